"""Random spellings of what fusions look for, near misses included; equal seeds give equal models.

Each model is one pattern with everything about it drawn at random: opset, element type, which operand comes first, the
shapes of constants and whether they are initializers, nodes, inputs with a default or real inputs, names of dimensions,
further outputs, and whether all of it lies in a branch or in a function.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]
_FLOATS = (TensorProto.FLOAT,) * 4 + (TensorProto.DOUBLE,)


class Writer:
    """Writes one model.

    Attributes:
        rng: where all choices come from.
        opset: the standard opset.
        dtype: the element type of all floats.
        sizes: the shape of each input.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.opset = self.rng.randint(8, 24)
        self.dtype = self.rng.choice(_FLOATS)
        self.kind = np.dtype(helper.tensor_dtype_to_np_dtype(self.dtype))
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.sizes: dict[str, Shape] = {}
        self.values: list[str] = []
        self.count = 0

    def sometimes(self, chance: float = 0.5) -> bool:
        """True with that chance."""
        return self.rng.random() < chance

    def name(self, base: str) -> str:
        """A name that nothing has yet."""
        self.count += 1
        return f"{base}{self.count}"

    def input(self, *shape: int) -> str:
        """An input, some of whose dimensions have names."""
        name = self.name("x")
        dims = [f"d{size}" if self.sometimes(0.3) else size for size in shape]
        self.inputs.append(helper.make_tensor_value_info(name, self.dtype, dims))
        self.sizes[name] = shape
        return name

    def const(self, array: np.ndarray) -> str:
        """A constant in one of its spellings, or something that only looks like one."""
        name, kind = self.name("c"), self.rng.random()
        tensor = numpy_helper.from_array(array, name)
        if kind < 0.2:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
            return name
        self.initializers.append(tensor)
        if kind > 0.9 and array.dtype == self.kind:
            self.inputs.append(helper.make_tensor_value_info(name, self.dtype, array.shape))
            self.sizes[name] = array.shape
        if 0.8 < kind <= 0.9:
            return self.op("Identity", name)
        return name

    def floats(self, *shape: int) -> str:
        """A constant of random numbers."""
        return self.const(np.asarray(self.numbers.standard_normal(shape)).astype(self.kind))

    def number(self, value: float) -> str:
        """A constant of one element, of rank 0 to 2."""
        shape: Shape = self.rng.choice([(), (), (1,), (1, 1)])
        return self.const(np.full(shape, value, self.kind))

    def ints(self, *values: int) -> str:
        """A list of integers."""
        return self.const(np.array(values, np.int64))

    def op(self, op: str, *inputs: str, **attrs: object) -> str:
        """A node of one output."""
        name = self.name("v")
        given = {key: value for key, value in attrs.items() if value is not None}
        self.nodes.append(helper.make_node(op, inputs, [name], name=self.rng.choice(["", name]), **given))
        self.values.append(name)
        return name

    def either(self, op: str, a: str, b: str) -> str:
        """A commutative operator with its operands in either order."""
        return self.op(op, a, b) if self.sometimes() else self.op(op, b, a)

    def with_axes(self, op: str, x: str, axes: Sequence[int], **attrs: object) -> str:
        """`Squeeze`, `Unsqueeze` or a reduction in the form of the opset."""
        since = 13 if op in ("Squeeze", "Unsqueeze", "ReduceSum") else 18
        if self.opset < since:
            return self.op(op, x, axes=list(axes), **attrs)
        return self.op(op, x, self.ints(*axes), **attrs)

    def cut(self, x: str, start: int, end: int, axis: int) -> str:
        """A `Slice` along one axis."""
        if self.opset < 10:
            return self.op("Slice", x, starts=[start], ends=[end], axes=[axis])
        return self.op("Slice", x, self.ints(start), self.ints(end), self.ints(axis))

    def clip(self, x: str, low: float | None, high: float | None) -> str:
        """A `Clip` in the form of the opset."""
        if self.opset < 11:
            return self.op("Clip", x, min=low, max=high)
        bounds = ["" if n is None else self.const(np.asarray(n, self.kind)) for n in (low, high)]
        return self.op("Clip", x, *bounds)

    def axis(self, number: int, rank: int) -> int:
        """An axis counted from either end, where the opset knows that."""
        return number - rank if self.opset >= 11 and self.sometimes(0.3) else number


def convolution(w: Writer) -> str:
    """Scales, shifts, padding and normalization around a convolution."""
    channels, out = w.rng.choice([1, 2, 3]), w.rng.choice([1, 2, 4])
    x = w.input(w.rng.choice([1, 2]), channels, 4, 5)
    if w.sometimes(0.3):
        x = w.either(w.rng.choice(["Add", "Mul"]), x, w.floats(*w.rng.choice([(channels, 1, 1), (1,), ()])))
    if w.sometimes(0.3) and w.opset >= 11:
        x = w.op("Pad", x, w.ints(0, 0, 1, 0, 0, 0, 1, 2))
    bias = [w.floats(out)] if w.sometimes() else []
    pads = w.rng.choice([None, [1, 0, 1, 1]])
    mode = w.rng.choice([None, "VALID", "SAME_UPPER"]) if pads is None else None
    y = w.op("Conv", x, w.floats(out, channels, 2, 3), *bias, pads=pads, auto_pad=mode)
    for _ in range(w.rng.randint(1, 3)):
        constant = w.floats(*w.rng.choice([(out, 1, 1), (1, out, 1, 1), (1,), (), (1, 1, out, 1, 1)]))
        steps = [
            lambda y=y, c=constant: w.either("Add", y, c), lambda y=y, c=constant: w.either("Mul", y, c),
            lambda y=y, c=constant: w.op(w.rng.choice(["Sub", "Div"]), y, c), lambda y=y: w.op("Relu", y),
            lambda y=y: w.clip(y, 0.0, w.rng.choice([None, 6.0])),
        ]  # fmt: skip
        y = w.rng.choice(steps)()
    return y


def product(w: Writer) -> str:
    """Transposes, biases, scales and activations around a matrix product."""
    rows, depth, columns = (w.rng.choice([1, 2, 3]) for _ in range(3))
    a, b = w.input(rows, depth), w.floats(depth, columns)
    if w.sometimes(0.3):
        a = w.op("Transpose", w.input(depth, rows), perm=w.rng.choice([None, [1, 0]]))
    if w.sometimes():
        y = w.op("MatMul", a, b)
    else:
        bias = [w.floats(*w.rng.choice([(columns,), (rows, 1), ()]))] if w.opset < 11 or w.sometimes() else []
        y = w.op("Gemm", a, b, *bias, alpha=w.rng.choice([None, 0.5]), beta=w.rng.choice([None, 2.0]))
    for _ in range(w.rng.randint(1, 3)):
        other = w.floats(*w.rng.choice([(columns,), (1, columns), (rows, 1), (), (1, 1, columns)]))
        y = w.either("Add", y, other) if w.sometimes() else w.op(w.rng.choice(["Mul", "Div", "Sub"]), y, other)
        if w.sometimes(0.3):
            y = w.op(w.rng.choice(["Relu", "Tanh", "Identity"]), y)
    return y


def normalization(w: Writer) -> str:
    """Layer or RMS normalization over the last axis, written out."""
    x, last = w.input(2, 3, 4), [w.rng.choice([-1, 2]) for _ in range(2)]
    keep = w.rng.choice([None, 1])
    centered = w.sometimes()
    d = w.op("Sub", x, w.with_axes("ReduceMean", x, last[:1], keepdims=keep)) if centered else x
    two = w.const(np.array(2, np.int64)) if w.opset >= 12 and w.sometimes() else w.number(2.0)
    square = w.op("Mul", d, d) if w.sometimes() else w.op("Pow", d, two)
    mean = w.with_axes("ReduceMean", square, last[1:], keepdims=keep)
    total = w.either("Add", mean, w.number(w.rng.choice([1e-5, 1e-3])))
    root = w.op("Sqrt", total) if w.sometimes() else w.op("Pow", total, w.number(0.5))
    y = w.op("Div", d, root) if w.sometimes() else w.either("Mul", d, w.op("Reciprocal", root))
    if w.sometimes(0.7):
        y = w.either("Mul", y, w.floats(*w.rng.choice([(4,), (1, 1, 4), (1,), (3, 1)])))
    return w.either("Add", y, w.floats(4)) if w.sometimes(0.7) else y


def gelu(w: Writer) -> str:
    """The Gaussian error linear unit in either form, its factors in any order."""
    x, one = w.input(*w.rng.choice([(), (3,), (2, 3)])), w.number(1.0)
    if w.opset >= 9 and w.sometimes():
        scaled = w.op("Div", x, w.number(math.sqrt(2))) if w.sometimes() else w.either("Mul", x, w.number(0.5**0.5))
        gate = w.op("Erf", scaled)
    else:
        three = w.const(np.array(3, np.int64)) if w.opset >= 12 and w.sometimes() else w.number(3.0)
        cube = w.op("Pow", x, three) if w.sometimes() else w.either("Mul", w.op("Mul", x, x), x)
        total = w.either("Add", x, w.either("Mul", cube, w.number(0.044715)))
        gate = w.op("Tanh", w.either("Mul", total, w.number(math.sqrt(2 / math.pi))))
    gate, half = w.either("Add", gate, one), w.number(w.rng.choice([0.5, 0.5, 0.25]))
    if w.sometimes():
        return w.either("Mul", w.either("Mul", x, gate), half)
    return w.either("Mul", w.either("Mul", x, half), gate)


def bounds(w: Writer) -> str:
    """Bounds in a row, crossed ones among them."""
    y = w.input(2, 3)
    for _ in range(w.rng.randint(2, 3)):
        limit = w.rng.choice([0.0, 1.0, -1.0, 6.0])
        steps = [
            lambda y=y: w.op("Relu", y), lambda y=y, n=limit: w.clip(y, n, w.rng.choice([None, 0.5, 6.0])),
            lambda y=y, n=limit: w.either("Max", y, w.number(n)), lambda y=y, n=limit: w.either("Min", y, w.number(n)),
        ]  # fmt: skip
        y = w.rng.choice(steps)()
    return y


def parts(w: Writer) -> str:
    """Parts of axes that may have names, what was joined taken apart, and axes of size 1."""
    x = w.input(w.rng.choice([1, 2, 5]), 3)
    y, axis = x, w.axis(w.rng.choice([0, 1]), 2)
    for _ in range(w.rng.randint(1, 3)):
        steps = [
            lambda y=y: w.cut(y, *w.rng.choice([(0, -1), (0, 1 << 40), (0, 2), (-2, 1 << 40), (1, 100)]), axis),
            lambda y=y: w.op("Concat", y, w.floats(*w.rng.choice([(0, 3), (2, 3)])), axis=0),
            lambda y=y: w.op("Transpose", y, perm=w.rng.choice([[1, 0], [0, 1]])),
            lambda y=y: w.with_axes("Squeeze", w.with_axes("Unsqueeze", y, [0]), [0]),
            lambda y=y: w.op("Gather", y, w.ints(0), axis=1),
        ]
        y = w.rng.choice(steps)()
    return y


def reductions(w: Writer) -> str:
    """Two reductions, or one whose axes come back."""
    kind, keep = w.rng.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2"]), w.rng.choice([0, 1])
    first, second = w.rng.sample([0, 1, 2], 2)
    y = w.with_axes(kind, w.input(2, 3, 4), [w.axis(first, 3)], keepdims=keep)
    if w.sometimes():
        return w.with_axes(kind, y, [second if keep else min(second, 1)], keepdims=w.rng.choice([0, 1]))
    return w.with_axes("Squeeze" if keep else "Unsqueeze", y, [w.axis(first, 3)])


def arithmetic(w: Writer) -> str:
    """Constants in a row that may be neutral, may broadcast, and may raise the rank."""
    y = w.input(2, 3)
    for _ in range(w.rng.randint(1, 3)):
        shape: Shape = w.rng.choice([(), (1,), (3,), (2, 1), (1, 1, 1)])
        constant = w.const(np.full(shape, w.rng.choice([0.0, -0.0, 1.0, 2.0, 0.5, -3.0]), w.kind))
        op = w.rng.choice(["Add", "Sub", "Mul", "Div"])
        y = w.op(op, constant, y) if w.sometimes(0.3) else w.op(op, y, constant)
    return y


PATTERNS: list[Callable[[Writer], str]] = [
    convolution, product, normalization, gelu, bounds, parts, reductions, arithmetic,
]  # fmt: skip


def random_pattern(seed: int) -> tuple[onnx.ModelProto, dict[str, Shape]]:
    """A model, and the shapes of its inputs; the checker may still refuse it."""
    w = Writer(seed)
    outputs = [w.rng.choice(PATTERNS)(w)]
    if w.sometimes(0.2):
        outputs.append(w.rng.choice(w.values))
    outputs = list(dict.fromkeys(outputs))
    graph = helper.make_graph(w.nodes, "g", w.inputs, [onnx.ValueInfoProto(name=name) for name in outputs])
    graph.initializer.extend(w.initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", w.opset)], ir_version=8)
    known = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    types = {info.name: info for info in (*known.value_info, *known.output)}
    del model.graph.output[:]
    for name in outputs:
        rank = len(types[name].type.tensor_type.shape.dim)
        model.graph.output.append(helper.make_tensor_value_info(name, w.dtype, [None] * rank))
    place = w.rng.random()
    return (_in_function(model) if place < 0.15 else _in_branch(model) if place < 0.3 else model), w.sizes


def _in_branch(model: onnx.ModelProto) -> onnx.ModelProto:
    """All nodes in both branches of an `If`; they read inputs and initializers of the graph around."""
    graph = model.graph
    bodies = [onnx.GraphProto(name=name, node=graph.node, output=graph.output) for name in ("yes", "no")]
    for body in bodies[1:]:
        renamed = {name: f"{name}_no" for node in body.node for name in node.output}
        for node in body.node:
            node.name = f"{node.name}_no" if node.name else ""
            node.input[:] = [renamed.get(name, name) for name in node.input]
            node.output[:] = [renamed[name] for name in node.output]
        for info in body.output:
            info.name = renamed[info.name]
    del graph.node[:]
    for info in graph.output:
        info.name = f"{info.name}_chosen"
    graph.input.append(helper.make_tensor_value_info("condition", TensorProto.BOOL, []))
    names = [info.name for info in graph.output]
    graph.node.append(helper.make_node("If", ["condition"], names, then_branch=bodies[0], else_branch=bodies[1]))
    return model


def _in_function(model: onnx.ModelProto) -> onnx.ModelProto:
    """All nodes in a function, which reads the initializers as inputs; its name is that of an operator."""
    graph = model.graph
    read = [*dict.fromkeys([*(info.name for info in graph.input), *(t.name for t in graph.initializer)])]
    made = [info.name for info in graph.output]
    function = helper.make_function("local", "Relu", read, made, list(graph.node), list(model.opset_import))
    del graph.node[:]
    graph.node.append(helper.make_node("Relu", read, made, domain="local"))
    model.functions.append(function)
    model.opset_import.add(domain="local", version=1)
    return model
