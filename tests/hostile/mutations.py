"""Models with something wrong in them: bytes flipped, files cut, and fields of every kind set to what no one expects."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor as Kind
from google.protobuf.message import Message
from onnx import TensorProto, helper, numpy_helper, parser

from graphopt.testing import Case, cases

GOLDEN = Path(__file__).parents[1] / "golden"

INTEGERS = (
    0, 1, -1, 2, 3, 7, 17, 64, 255, 1 << 16, (1 << 31) - 1, -(1 << 31), 1 << 32, 1 << 40, (1 << 62) - 1, 1 << 62,
    (1 << 63) - 1, -(1 << 63),
)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 3e38, -3e38, 1e-45, float("inf"), float("-inf"), float("nan"))
STRINGS = (
    "", "x", "y", "\x1b[2J\x1b[31mred\x1b[0m", "one\ntwo", "a\rb", "\u202egnp.exe", "\u2066left\u2069", "[red]name[/]",
    "[/]", "[link=file:///etc/passwd]here[/link]", "a|b`c`<script>alert(1)</script>", "../../../etc/passwd", "/dev/null",
    "/etc/passwd", "long" * 5000, "\0", "name\0after", "\U0001f600", "%s%n{0}", "{", "SAME_UPPER", "-1", "ij,jk->ik",
    "weights.bin", "loop/loop/loop", "a\tb", "\u2028", "\ufeff", "\x7f\x9b31m", "Loop", "If", "",
)  # fmt: skip
_NO_TEXT = "\ue000no-utf-8\ue001"
_NO_TEXT_BYTES = _NO_TEXT.encode()
_BROKEN_BYTES = b"\xff\xfe\x80" + _NO_TEXT_BYTES[3:-3] + b"\xc3\x28\xa0"

_REPEATED_MESSAGES = 64


def seeds() -> list[onnx.ModelProto]:
    """Models that mutations start from, besides the golden cases: one of each kind of thing a file can hold."""
    head = '<ir_version: 10, opset_import: ["" : 18, "local" : 1, "com.microsoft" : 1]> '
    texts = [
        "g (float[N,3,8,8] x) => (float[N,4] y) <float[4,3,1,1] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[4] s = {1,2,3,4}>"
        " { a = Conv (x, w)  b = BatchNormalization (a, s, s, s, s)  c = Relu (b)  p = GlobalAveragePool (c)"
        "  y = Flatten (p) }",
        "g (float[2,3] x, bool d) => (y, z) <int64 m = {3}, bool t = {1}> { a = If (d) <then_branch = t () => (float[2,3] p)"
        " { p = Neg (x) }, else_branch = f () => (float[2,3] q) { q = Abs (x) }>  y, z = Loop (m, t, a) <body ="
        " b (int64 i, bool ci, float[2,3] s) => (bool co, float[2,3] so, float[2,3] v) { co = Identity (ci)"
        "  so = Sin (s)  v = Neg (s) }> }",
        "g (float[2,3] x) => (y) { s = SequenceConstruct (x, x)  n = SequenceLength (s)  i = Constant <value_int = 1> ()"
        "  a = SequenceAt (s, i)  c = ConcatFromSequence <axis = 0> (s)  h = Shape (c)  e = Expand (a, h)"
        "  y = Add (c, e) }",
        "g (float[N,4] x) => (float[N,4] y) { a = local.Twice (x)  y = local.Scaled <by = 2.0> (a) }"
        '<domain: "local", opset_import: ["" : 18]> Twice (v) => (w) { w = Add (v, v) }'
        '<domain: "local", opset_import: ["" : 18, "local" : 1]> Scaled <by> (v) => (w)'
        " { k = Constant <value_float: float = @by> ()  u = local.Twice (v)  w = Mul (u, k) }",
        "g (float[1,8,16] x) => (y) <float[16,16] w, int64[3] s = {1,8,16}> { q = MatMul (x, w)  k = MatMul (x, w)"
        "  t = Transpose <perm = [0,2,1]> (k)  a = MatMul (q, t)  p = Softmax <axis = -1> (a)  v = MatMul (p, x)"
        "  y = Reshape (v, s) }".replace("<float[16,16] w,", "<float[16,16] w = {" + ",".join(["0.5"] * 256) + "},"),
        "g (float[1,4] x) => (y) <float sc = {0.1}, uint8 zp = {3}, float[4,4] w> { q = QuantizeLinear (x, sc, zp)"
        "  d = DequantizeLinear (q, sc, zp)  m = MatMul (d, w)  y = Relu (m) }".replace(
            "float[4,4] w>", "float[4,4] w = {" + ",".join(map(str, range(16))) + "}>"
        ),
    ]
    models = [parser.parse_model(head + text) for text in texts]
    models.append(_outside())
    models.append(_everything())
    return models


def _outside() -> onnx.ModelProto:
    """Weights in `weights.bin`, which the suite puts beside each model."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 8], data_location=TensorProto.EXTERNAL)
    for key, text in (("location", "weights.bin"), ("offset", "64"), ("length", "128")):
        weight.external_data.add(key=key, value=text)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    graph = helper.make_graph(nodes, "outside", [x], [helper.make_value_info("y", onnx.TypeProto())], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _everything() -> onnx.ModelProto:
    """Sparse weights, metadata, doc strings, quantization annotations, training information, every kind of data field."""
    tensors = [
        helper.make_tensor("f16", TensorProto.FLOAT16, [3], np.array([1, 2, 3], np.float16)),
        helper.make_tensor("i4", TensorProto.INT4, [3], [1, -2, 3]),
        helper.make_tensor("i8", TensorProto.INT8, [2], [1, -2]),
        helper.make_tensor("text", TensorProto.STRING, [2], [b"a", b"b"]),
        helper.make_tensor("f64", TensorProto.DOUBLE, [2], [1.5, 2.5]),
        helper.make_tensor("u64", TensorProto.UINT64, [2], [1, 2]),
        helper.make_tensor("c64", TensorProto.COMPLEX64, [1], [1 + 2j]),
        numpy_helper.from_array(np.arange(4, dtype=np.float32), "raw"),
    ]
    nodes = [
        helper.make_node("Cast", [name], [f"{name}_c"], to=1, name=f"cast of {name}") for name in ("f16", "i8", "f64", "u64")
    ]  # fmt: skip
    nodes += [
        helper.make_node("Add", ["x", "raw"], ["a"], doc_string="adds"),
        helper.make_node("Add", ["a", "sparse"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"]),
        helper.make_node("Constant", [], ["k"], value=helper.make_tensor("", TensorProto.FLOAT, [2], [1.0, 2.0])),
        helper.make_node("Concat", ["k", "f16_c", "i8_c", "f64_c", "u64_c"], ["z"], axis=0),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    infos = [helper.make_value_info(name, onnx.TypeProto()) for name in ("y", "z", "i4", "text", "c64")]
    graph = helper.make_graph(nodes, "everything", [x], infos, tensors, doc_string="of a graph")
    values = helper.make_tensor("sparse", TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = helper.make_tensor("", TensorProto.INT64, [2], [0, 3])
    graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    graph.quantization_annotation.add(tensor_name="x").quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="f64")
    graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [4]))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10, producer_name="tests")
    helper.set_model_props(model, {"author": "nobody"})
    return model


def mutated(seed: int) -> tuple[str, bytes]:
    """One file: what was done to which model, and its bytes.

    Args:
        seed: tells all of it.
    """
    rng = random.Random(seed)
    source, model = _start(rng)
    data = bytearray(model.SerializeToString())
    manner = rng.choices(("fields", "bytes", "cut", "spliced"), (70, 18, 6, 6))[0]
    if manner == "fields":
        told = _change_fields(model, rng)
        data = bytearray(model.SerializeToString().replace(_NO_TEXT_BYTES, _BROKEN_BYTES))
        return f"{source}: {told}", bytes(data)
    if manner == "bytes":
        for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
            place = rng.randrange(len(data))
            data[place] = data[place] ^ (1 << rng.randrange(8)) if rng.random() < 0.6 else rng.randrange(256)
    elif manner == "cut":
        del data[rng.randrange(len(data)) :]
    else:
        start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        place = rng.randrange(len(data) + 1)
        data[place:place] = data[start:end]
    return f"{source}: {manner}", bytes(data)


_SEEDS: list[onnx.ModelProto] = []
_CASES: list[Path] = []


def _start(rng: random.Random) -> tuple[str, onnx.ModelProto]:
    if not _SEEDS:
        _SEEDS.extend(seeds())
        _CASES.extend(sorted(path for folder in sorted(GOLDEN.iterdir()) for path in cases(folder)))
    model = onnx.ModelProto()
    if rng.random() < 0.45:
        number = rng.randrange(len(_SEEDS))
        model.CopyFrom(_SEEDS[number])
        return f"seed {number}", model
    path = rng.choice(_CASES)
    model.CopyFrom(Case.read(path).model())
    return f"{path.parent.name}/{path.stem}", model


Place = tuple[Message, Any]


def _places(message: Message, found: list[Place]) -> None:
    """Every field that is set, and some that are not, all the way down."""
    for field, value in message.ListFields():
        found.append((message, field))
        if field.type == Kind.TYPE_MESSAGE:
            for inner in list(value)[:_REPEATED_MESSAGES] if field.is_repeated else [value]:
                _places(inner, found)


def _change_fields(model: onnx.ModelProto, rng: random.Random) -> str:
    told = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        found: list[Place] = []
        _places(model, found)
        message, field = rng.choice(found)
        if rng.random() < 0.1:
            field = rng.choice(message.DESCRIPTOR.fields)
        told.append(f"{message.DESCRIPTOR.name}.{field.name}")
        _change(message, field, rng, model)
    return ", ".join(told)


def _change(message: Message, field: Any, rng: random.Random, model: onnx.ModelProto) -> None:
    if field.type == Kind.TYPE_MESSAGE:
        _change_messages(message, field, rng)
    elif field.is_repeated:
        _change_list(getattr(message, field.name), field, rng, model)
    elif rng.random() < 0.1:
        message.ClearField(field.name)
    else:
        _assign(message, field, _draw(field, getattr(message, field.name), rng, model))


def _assign(message: Message, field: Any, value: Any) -> None:
    try:
        setattr(message, field.name, value)
    except (ValueError, TypeError):
        message.ClearField(field.name)


def _change_messages(message: Message, field: Any, rng: random.Random) -> None:
    if not field.is_repeated:
        message.ClearField(field.name)
        if rng.random() < 0.3:
            getattr(message, field.name).SetInParent()
        return
    items = getattr(message, field.name)
    manner = rng.choice(("remove", "double", "swap", "empty", "clear", "many"))
    if not items or manner == "empty":
        items.add()
    elif manner == "remove":
        del items[rng.randrange(len(items))]
    elif manner == "double":
        items.add().CopyFrom(rng.choice(items))
    elif manner == "many":
        copied = rng.choice(items)
        for _ in range(100):
            items.add().CopyFrom(copied)
    elif manner == "swap":
        a, b = (rng.randrange(len(items)) for _ in range(2))
        kept = type(items[a])()
        kept.CopyFrom(items[a])
        items[a].CopyFrom(items[b])
        items[b].CopyFrom(kept)
    else:
        message.ClearField(field.name)


def _change_list(values: Any, field: Any, rng: random.Random, model: onnx.ModelProto) -> None:
    manner = rng.choice(("set", "set", "set", "remove", "append", "clear", "many"))
    try:
        if not values or manner == "append":
            values.append(_draw(field, None, rng, model))
        elif manner == "set":
            place = rng.randrange(len(values))
            values[place] = _draw(field, values[place], rng, model)
        elif manner == "remove":
            del values[rng.randrange(len(values))]
        elif manner == "many":
            values.extend([rng.choice(list(values))] * rng.choice((10, 100, 3000)))
        else:
            del values[:]
    except (ValueError, TypeError):
        del values[:]


def _draw(field: Any, old: Any, rng: random.Random, model: onnx.ModelProto) -> Any:
    if field.type in (Kind.TYPE_FLOAT, Kind.TYPE_DOUBLE):
        return rng.choice(FLOATS)
    if field.type == Kind.TYPE_STRING:
        return _draw_text(field.name, rng, model)
    if field.type == Kind.TYPE_BYTES:
        return _draw_bytes(old, rng)
    if field.name in ("data_type", "elem_type"):
        return rng.choice((*range(28), 99, -1, rng.choice(INTEGERS)))
    if field.type == Kind.TYPE_ENUM:
        return rng.choice(list(field.enum_type.values_by_number))
    if field.name == "version" and rng.random() < 0.7:
        return rng.randrange(30)
    if old is not None and rng.random() < 0.3:
        return old + rng.choice((-1, 1, 2, -old * 2))
    return rng.choice(INTEGERS)


def _draw_text(name: str, rng: random.Random, model: onnx.ModelProto) -> str:
    chance = rng.random()
    if name == "op_type" and chance < 0.7:
        return rng.choice(_operators())
    if chance < 0.2:
        return _NO_TEXT
    if chance < 0.5:
        names = [n for node in model.graph.node for n in (*node.input, *node.output, node.op_type, node.domain)]
        names += [f.domain for f in model.functions] + [f.name for f in model.functions]
        return rng.choice(names) if names else ""
    return rng.choice(STRINGS)


def _draw_bytes(old: bytes | None, rng: random.Random) -> bytes:
    old = old or b""
    return rng.choice((
        b"", old[:-1], old + b"\0", old * 2, old[: len(old) // 2], rng.randbytes(len(old)), b"\xff\xfe", b"\x1b[31m",
        b"SAME_UPPER", b"constant", b"\0" * 100_000,
    ))  # fmt: skip


_OPERATORS: list[str] = []


def _operators() -> list[str]:
    if not _OPERATORS:
        _OPERATORS.extend(sorted({schema.name for schema in onnx.defs.get_all_schemas()}))
    return _OPERATORS


def deep() -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Files that are deep or wide where nobody is: graphs in graphs, functions in functions, types in types."""
    yield from ((f"{n} graphs in graphs", partial(nested_graphs, n)) for n in (20, 45, 90, 400, 5000))
    yield from ((f"{n} functions in functions", partial(nested_functions, n, 1)) for n in (50, 300, 2000))
    yield from ((f"{n} functions that call twice", partial(nested_functions, n, 2)) for n in (20, 60, 2000))
    yield from ((f"{n} types in types", partial(nested_types, n)) for n in (10, 45, 400, 5000))
    yield from ((f"a circle of {n} functions", partial(nested_functions, n, 1, circular=True)) for n in (1, 300, 2000))
    yield "a long chain", partial(_chain, 20_000)
    yield "a long chain backwards", partial(_chain, 3_000, backwards=True)
    yield "many outputs of one name", _wide
    yield "groups", lambda: bytes([0x3B] * 50_000)


def _vector(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])


def _wrapped(nodes: list[onnx.NodeProto], **more: Any) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [_vector("x")], [helper.make_value_info("y", onnx.TypeProto())])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("local", 1)], ir_version=9, **more
    )


def _field(number: int, body: bytes) -> bytes:
    from graphopt.ir.messages import delimited

    return delimited(number, len(body)) + body


def nested_graphs(depth: int) -> bytes:
    """An `If` in an `If` in an `If`, written byte by byte, since the parser would not take more than a hundred."""
    result = _vector("r").SerializeToString()
    graph = _field(1, helper.make_node("Neg", ["x"], ["r"]).SerializeToString()) + _field(2, b"g") + _field(12, result)
    for _ in range(depth):
        attributes = [
            _field(5, _field(1, name) + _field(6, graph if name == b"then_branch" else b"") + b"\xa0\x01\x05")
            for name in (b"then_branch",)
        ]
        node = _field(1, b"d") + _field(2, b"r") + _field(4, b"If") + b"".join(attributes)
        graph = _field(1, node) + _field(2, b"g") + _field(12, result)
    flag = helper.make_tensor_value_info("d", TensorProto.BOOL, []).SerializeToString()
    graph += _field(11, _vector("x").SerializeToString()) + _field(11, flag)
    return b"\x08\x09" + _field(8, helper.make_opsetid("", 18).SerializeToString()) + _field(7, graph)


def nested_functions(count: int, calls: int, *, circular: bool = False) -> bytes:
    """Functions of which each calls the next."""
    functions = []
    for number in range(count):
        last = number == count - 1
        target = "f0" if circular else f"f{number + 1}"
        nodes = [helper.make_node("Neg", ["a"], ["r1"])] if last and not circular else []
        for call in range(0 if nodes else calls):
            given = "a" if call == 0 else f"r{call}"
            nodes.append(
                helper.make_node(target if last else f"f{number + 1}", [given], [f"r{call + 1}"], domain="local")
            )
        functions.append(helper.make_function(
            "local", f"f{number}", ["a"], [nodes[-1].output[0]], nodes,
            [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)],
        ))  # fmt: skip
    return _wrapped([helper.make_node("f0", ["x"], ["y"], domain="local")], functions=functions).SerializeToString()


def nested_types(depth: int) -> bytes:
    """A sequence of sequences of sequences."""
    kind = _field(1, b"\x08\x01")
    for _ in range(depth):
        kind = _field(4, _field(1, kind))
    info = _field(1, b"s") + _field(2, kind)
    model = _wrapped([helper.make_node("Neg", ["x"], ["y"])])
    graph = model.graph.SerializeToString() + _field(11, info)
    model.ClearField("graph")
    return model.SerializeToString() + _field(7, graph)


def _chain(length: int, *, backwards: bool = False) -> bytes:
    nodes = [
        helper.make_node("Sin", [f"v{k}" if k else "x"], [f"v{k + 1}" if k + 1 < length else "y"])
        for k in range(length)
    ]
    return _wrapped(nodes[::-1] if backwards else nodes).SerializeToString()


def _wide() -> bytes:
    model = _wrapped([helper.make_node("Neg", ["x"], ["y"])])
    for _ in range(2000):
        model.graph.output.add().CopyFrom(model.graph.output[0])
    return model.SerializeToString()
