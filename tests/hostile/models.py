"""Models that would explode, crash or mislead an optimizer that is not careful. All of them are small."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

_HEAD = '<ir_version: 9, opset_import: ["" : 18]> '
_INPUT = "g (float[1] x) => (y) "


def _text(body: str, constants: str = "", head: str = _HEAD, signature: str = _INPUT) -> onnx.ModelProto:
    """A model whose result `b` is huge and is added to the input."""
    return parser.parse_model(f"{head}{signature}{constants} {{ {body} }}")


def _huge(body: str, constants: str, opset: int = 18) -> onnx.ModelProto:
    head = f'<ir_version: 9, opset_import: ["" : {opset}]> '
    return _text(f"{body} y = Add (x, b)", f"<{constants}>", head)


def growing() -> dict[str, onnx.ModelProto]:
    """A constant region of each operator whose result can be much larger than its inputs."""
    side = "int64[2] s = {4096,4096}"
    return {
        "Expand": _huge("b = Expand (one, s)", f"float[1] one = {{2}}, {side}"),
        "Tile": _huge("b = Tile (one, s)", f"float[1,1] one = {{2}}, {side}"),
        "ConstantOfShape": _huge("b = ConstantOfShape (s)", side),
        "ConstantOfShape of ones": _huge("c = ConstantOfShape <value = float[1] {1}> (s)  b = Neg (c)", side),
        "Range": _huge("b = Range (lo, hi, by)", "float lo = {0}, float hi = {16777216}, float by = {1}"),
        "Range of integers": _huge(
            "r = Range (lo, hi, by)  b = Cast <to = 1> (r)", "int64 lo = {0}, int64 hi = {99999999999}, int64 by = {1}"
        ),
        "Pad": _huge("b = Pad (one, s)", "float[1] one = {2}, int64[2] s = {8000000,8000000}"),
        "Resize": _huge('b = Resize (one, "", s)', "float[1,1,2,2] one = {1,2,3,4}, float[4] s = {1,1,4096,4096}"),
        "Resize to sizes": _huge(
            'b = Resize (one, "", "", s)', "float[1,1,2,2] one = {1,2,3,4}, int64[4] s = {1,1,8192,8192}"
        ),
        "Upsample": _huge("b = Upsample (one, s)", "float[1,1,2,2] one = {1,2,3,4}, float[4] s = {1,1,4096,4096}", 9),
        "OneHot": _huge(
            "b = OneHot (at, depth, v)", "int64[64] at = {" + ",".join(["1"] * 64) + "}, int64 depth = {1000000}, float[2] v = {0,1}"
        ),
        "EyeLike": _huge("c = ConstantOfShape (s)  b = EyeLike (c)", side),
        "Concat of itself": _huge(
            " ".join(f"a{k + 1} = Concat <axis = 0> (a{k}, a{k})" for k in range(30)) + " b = Identity (a30)",
            "float[1] a0 = {2}",
        ),
        "Mul of itself": _huge(
            "c = Reshape (w, col)  d = Mul (w, c)  e = Reshape (d, flat)  f = Reshape (e, col)  h = Mul (e, f)"
            "  b = Reshape (h, flat)",
            "float[32] w = {" + ",".join(map(str, range(32))) + "}, int64[2] col = {-1,1}, int64[1] flat = {-1}",
        ),
        "MatMul": _huge(
            "p = Reshape (w, col)  q = Reshape (w, row)  c = MatMul (p, q)  d = Reshape (c, col)  e = Reshape (c, row)  b = MatMul (d, e)",
            "float[64] w = {" + ",".join(map(str, range(64))) + "}, int64[2] col = {-1,1}, int64[2] row = {1,-1}",
        ),
        "rows by columns, flattened": _huge(
            "p = Reshape (w, col)  c = Mul (p, w)  d = Reshape (c, flat)  e = Reshape (d, col)  h = Add (d, e)"
            "  v0 = Reshape (h, flat) "
            + " ".join(f"v{k + 1} = Add (v{k}, v{k})" for k in range(16))
            + " b = Identity (v16)",
            "float[64] w = {" + ",".join(map(str, range(64))) + "}, int64[2] col = {-1,1}, int64[1] flat = {-1}",
        ),
        "a long axis, squeezed": _huge(
            "p = Reshape (w, col)  c = Mul (p, w)  d = Reshape (c, flat)  e = Reshape (d, col)  h = Add (d, e)"
            "  k = Flatten <axis = 0> (h)  l = Squeeze (k)  b = Mul (l, l)",
            "float[64] w = {" + ",".join(map(str, range(64))) + "}, int64[2] col = {-1,1}, int64[1] flat = {-1}",
        ),
        "a size that is computed": _huge(
            "m0 = Identity (n) "
            + " ".join(f"m{k + 1} = Add (m{k}, m{k})" for k in range(30))
            + " c = ConstantOfShape (m12)  d = Add (c, c)  e = ConstantOfShape (m30)  f = Add (e, e)  b = Add (d, f)",
            "int64[1] n = {4096}",
        ),
        "Gather": _huge(
            "i = ConstantOfShape <value = int64[1] {0}> (s)  b = Gather (one, i)", f"float[1] one = {{2}}, {side}"
        ),
        "GatherElements": _huge(
            "i = ConstantOfShape <value = int64[1] {0}> (s)  b = GatherElements (one, i)", f"float[1,4096] one, {side}".replace(" one,", " one = {" + ",".join(["1"] * 4096) + "},")
        ),
        "ScatterND": _huge(
            "c = ConstantOfShape (s)  b = ScatterND (c, i, u)", f"int64[1,2] i = {{0,0}}, float[1] u = {{1}}, {side}"
        ),
        "ScatterElements": _huge(
            "c = ConstantOfShape (s)  b = ScatterElements (c, i, u)", f"int64[1,1] i = {{0}}, float[1,1] u = {{1}}, {side}"
        ),
        "Where": _huge("c = ConstantOfShape (s)  d = Cast <to = 9> (c)  b = Where (d, one, one)", f"float[1] one = {{2}}, {side}"),
        "CumSum": _huge("c = ConstantOfShape (s)  b = CumSum (c, z)", f"int64 z = {{0}}, {side}"),
        "Einsum": _huge(
            'p = Reshape (w, flat)  b = Einsum <equation = "i,j,k,l->ijkl"> (p, p, p, p)',
            "float[64] w = {" + ",".join(map(str, range(64))) + "}, int64[1] flat = {-1}",
        ),
        "ConvTranspose": _huge(
            "b = ConvTranspose <strides = [4000,4000]> (one, k)", "float[1,1,2,2] one = {1,2,3,4}, float[1,1,1,1] k = {1}"
        ),
        "DepthToSpace and Tile": _huge(
            "t = Tile (one, s)  b = DepthToSpace <blocksize = 64> (t)",
            "float[1,4096,1,1] one = {" + ",".join(["1"] * 4096) + "}, int64[4] s = {1,1,64,64}",
        ),
        "NonZero": _huge("c = ConstantOfShape <value = float[1] {1}> (s)  n = NonZero (c)  b = Cast <to = 1> (n)", side),
        "Compress": _huge(
            "c = ConstantOfShape <value = float[1] {1}> (s)  d = Cast <to = 9> (c)  f = Reshape (d, flat)  b = Compress (c, f)",
            f"int64[1] flat = {{-1}}, {side}",
        ),
        "HannWindow": _huge("b = HannWindow (n)", "int64 n = {16777216}"),
        "flattened": _huge(
            "c = ConstantOfShape (s)  b = Reshape (c, flat)", "int64[2] s = {30000,30000}, int64[1] flat = {-1}"
        ),
        "Trilu": _huge("c = ConstantOfShape <value = float[1] {1}> (s)  b = Trilu (c)", side),
        "RandomUniform": _huge("b = RandomUniform <shape = [4096,4096]> ()", "float unused = {0}"),
        "RandomNormalLike": _huge("c = ConstantOfShape (s)  b = RandomNormalLike (c)", side),
        "Split": _huge("c = ConstantOfShape (s)  b, d = Split <axis = 0, num_outputs = 2> (c)", side),
        "Mod of a bomb": _huge("r = Range (lo, hi, by)  m = Mod (r, by)  b = Cast <to = 1> (m)", "int64 lo = {0}, int64 hi = {50000000}, int64 by = {3}"),
        "Loop that doubles": _text(
            "t = Loop (m, c, one) <body = b (int64 i, bool ci, float[N] s) => (bool co, float[M] so) { co = Identity (ci)  so = Concat <axis = 0> (s, s) }>  y = Add (x, t)",
            "<int64 m = {30}, bool c = {1}, float[1] one = {2}>",
        ),
        "Loop of many rounds": _text(
            "t = Loop (m, c, x) <body = b (int64 i, bool ci, float[1] s) => (bool co, float[1] so) { co = Identity (ci)  a = Neg (s)  so = Exp (a) }>  y = Abs (t)",
            "<int64 m = {9223372036854775807}, bool c = {1}>",
        ),
        "Loop that stacks": _text(
            "t, u = Loop (m, c, x) <body = b (int64 i, bool ci, float[1] s) => (bool co, float[1] so, float[4096] v) { co = Identity (ci)  so = Neg (s)  k = Constant <value_ints = [4096]> ()  v = Expand (s, k) }>  y = Add (t, u)",
            "<int64 m = {900}, bool c = {1}>",
        ),
        "While that ends late": _text(
            't, y = Loop ("", c, zero, x) <body = b (int64 i, bool ci, int64 n, float[1] s) => (bool co, int64 no, float[1] so) { no = Add (n, one)  co = Less (no, many)  so = Neg (s) }>',
            "<bool c = {1}, int64 zero = {0}, int64 one = {1}, int64 many = {4000000000000}>",
        ),
        "Scan of many": _text(
            "y, u = Scan <num_scan_inputs = 1, body = b (float[1] s, float[1] e) => (float[1] so, float[1] o) { so = Add (s, e)  o = Neg (e) }> (x, w)",
            signature="g (float[1] x, float[1000000,1] w) => (y, u) ",
        ),
        "nested Loops": nested_loops(5),
        "many small results": many_small(100),
        "many branches": many_branches(60),
        "many sums of one vector": many_sums(60),
        "one weight behind many results": one_weight(100),
    }  # fmt: skip


def nested_loops(depth: int) -> onnx.ModelProto:
    """Ten rounds in ten rounds in ten rounds: a hundred thousand nodes, were all of it written out."""
    inner = "so1 = Sin (s1)  co1 = Identity (c1)"
    for k in range(1, depth + 1):
        body = f"b{k} (int64 i{k}, bool c{k}, float[1] s{k}) => (bool co{k}, float[1] so{k}) {{ {inner} }}"
        outer, state = (f"so{k + 1}", f"s{k + 1}") if k < depth else ("y", "x")
        inner = f"{outer} = Loop (ten, yes, {state}) <body = {body}>"
        inner += f"  co{k + 1} = Identity (c{k + 1})" if k < depth else ""
    return _text(inner, "<int64 ten = {10}, bool yes = {1}>")


def many_small(count: int) -> onnx.ModelProto:
    """Results that are each small enough to be stored; together they are not."""
    body = " ".join(f"c{k} = Expand (w{k}, s)  a{k + 1} = Add (a{k}, c{k})" for k in range(count))
    constants = ", ".join(f"float[1] w{k} = {{{k}.5}}" for k in range(count))
    return _text(f"a0 = Identity (x)  {body}  y = Neg (a{count})", f"<int64[1] s = {{15000}}, {constants}>")


def one_weight(count: int) -> onnx.ModelProto:
    """Each result alone would take the place of the weight; only the last one does."""
    body = " ".join(f"c{k} = Mul (s, f{k})  a{k + 1} = Add (a{k}, c{k})" for k in range(count))
    constants = ", ".join(f"float f{k} = {{{k}.5}}" for k in range(count))
    weight = ",".join(["1"] * 8000)
    return _text(
        f"a0 = Identity (x)  s = Exp (w)  {body}  y = Neg (a{count})", f"<float[8000] w = {{{weight}}}, {constants}>"
    )


def many_branches(count: int) -> onnx.ModelProto:
    """Branches that each have a constant region which fits alone."""
    body = []
    for k in range(count):
        sums = " ".join(f"c{k}_{j} = Expand (w{k}_{j}, s)  t{k}_{j + 1} = Add (t{k}_{j}, c{k}_{j})" for j in range(8))
        constants = ", ".join(f"float[1] w{k}_{j} = {{{k}.{j}}}" for j in range(8))
        then = (
            f"then{k} () => (float[A] p{k}) <{constants}> {{ t{k}_0 = Identity (a{k})  {sums}  p{k} = Neg (t{k}_8) }}"
        )
        other = f"else{k} () => (float[B] q{k}) {{ q{k} = Abs (a{k}) }}"
        body.append(f"a{k + 1} = If (d) <then_branch = {then}, else_branch = {other}>")
    signature = "g (float[1] x, bool d) => (y) "
    return _text(
        f"a0 = Identity (x)  {' '.join(body)}  y = Neg (a{count})", "<int64[1] s = {15000}>", signature=signature
    )


def many_sums(count: int) -> onnx.ModelProto:
    """A vector as long as some seconds of sound, whose elements could be taken for those of a shape at each step."""
    body = " ".join(f"a{k + 1} = Add (a{k}, x)" for k in range(count))
    return _text(f"a0 = Neg (x)  {body}  y = Neg (a{count})", signature="g (float[1000000] x) => (y) ")


def deep_chain(length: int) -> onnx.ModelProto:
    """One operator after the other."""
    nodes = [helper.make_node("Sin", [f"v{k}"], [f"v{k + 1}"]) for k in range(length)]
    return _model(nodes, "v0", f"v{length}")


def deep_branches(depth: int) -> onnx.ModelProto:
    """Branches in branches."""
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["r0"])], "g0", [], [_vector("r0")])
    for k in range(1, depth + 1):
        other = helper.make_graph([helper.make_node("Abs", ["x"], [f"o{k}"])], f"h{k}", [], [_vector(f"o{k}")])
        node = helper.make_node("If", ["d"], [f"r{k}"], then_branch=graph, else_branch=other)
        graph = helper.make_graph([node], f"g{k}", [], [_vector(f"r{k}")])
    flag = helper.make_tensor_value_info("d", TensorProto.BOOL, [])
    main = helper.make_graph(list(graph.node), "main", [_vector("x"), flag], [_vector(f"r{depth}")])
    return helper.make_model(main, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _vector(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])


def _model(nodes: list[onnx.NodeProto], source: str, result: str, *constants: onnx.TensorProto) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "g", [_vector(source)], [helper.make_value_info(result, onnx.TypeProto())], list(constants)
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _constant(name: str, values: list[float] | list[int], dtype: type = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype), name)


def broken() -> dict[str, onnx.ModelProto]:
    """Models that are wrong somewhere; the rest of each is as good as any."""
    ints = np.int64
    one = helper.make_node
    cases = {
        "axis that is not there": [one("Softmax", ["x"], ["a"], axis=7), one("Identity", ["a"], ["y"])],
        "negative axis that is not there": [one("Concat", ["x", "x"], ["a"], axis=-9), one("Identity", ["a"], ["y"])],
        "axes that are missing": [one("Unsqueeze", ["x"], ["a"]), one("Identity", ["a"], ["y"])],
        "no inputs": [one("Add", [], ["a"]), one("Identity", ["x"], ["y"])],
        "too many inputs": [one("Relu", ["x", "x", "x"], ["a"]), one("Identity", ["a"], ["y"])],
        "an attribute of another type": [one("Transpose", ["x"], ["a"], perm="no"), one("Identity", ["a"], ["y"])],
        "types that differ": [one("Add", ["x", "i"], ["a"]), one("Identity", ["a"], ["y"])],
        "shapes that differ": [one("MatMul", ["x", "m"], ["a"]), one("Identity", ["a"], ["y"])],
        "Reshape to negative": [one("Reshape", ["x", "neg"], ["a"]), one("Identity", ["a"], ["y"])],
        "Expand to negative": [one("Expand", ["f", "neg"], ["a"]), one("Add", ["a", "x"], ["y"])],
        "Expand of huge dims": [one("Expand", ["f", "huge"], ["a"]), one("Add", ["a", "x"], ["y"])],
        "huge product of dims": [one("ConstantOfShape", ["huge"], ["a"]), one("Add", ["a", "x"], ["y"])],
        "Div by zero": [one("Div", ["i", "zero"], ["a"]), one("Cast", ["a"], ["c"], to=1), one("Add", ["c", "x"], ["y"])],
        "smallest integer by -1": [one("Div", ["low", "minus"], ["a"]), one("Cast", ["a"], ["c"], to=1), one("Add", ["c", "x"], ["y"])],
        "Range by zero": [one("Range", ["zero", "i", "zero"], ["a"]), one("Cast", ["a"], ["c"], to=1), one("Add", ["c", "x"], ["y"])],
        "Gather out of bounds": [one("Gather", ["f", "i"], ["a"]), one("Add", ["a", "x"], ["y"])],
        "Loop without a body": [one("Loop", ["i", "", "x"], ["a"]), one("Identity", ["a"], ["y"])],
        "If without branches": [one("If", ["t"], ["a"]), one("Identity", ["a"], ["y"])],
        "SequenceAt out of bounds": [one("SequenceConstruct", ["x"], ["s"]), one("SequenceAt", ["s", "i"], ["a"]), one("Identity", ["a"], ["y"])],
        "an operator nobody knows": [one("Frobnicate", ["f"], ["a"]), one("Add", ["a", "x"], ["y"])],
        "an unknown domain": [one("Relu", ["f"], ["a"], domain="nowhere"), one("Add", ["a", "x"], ["y"])],
        "Split into nothing": [one("Split", ["f"], ["a", "b"], num_outputs=0), one("Identity", ["x"], ["y"])],
        "strides of zero": [one("MaxPool", ["p"], ["a"], kernel_shape=[1, 1], strides=[0, 0]), one("Identity", ["x"], ["y"])],
    }  # fmt: skip
    constants = (
        _constant("i", [7], ints), _constant("m", [[1, 2], [3, 4], [5, 6]]), _constant("neg", [-5, 3], ints),
        _constant("huge", [1 << 40, 1 << 40], ints), _constant("zero", [0], ints), _constant("minus", [-1], ints),
        _constant("low", [-(1 << 63)], ints), _constant("f", [3]), _constant("t", [True], np.bool_),
        _constant("p", [[[[1, 2]]]]),
    )  # fmt: skip
    return {name: _model(nodes, "x", "y", *constants) for name, nodes in cases.items()}
