"""Random small graphs of the operators whose corner cases optimizers get wrong, at a random opset."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]


class Builder:
    """Grows a graph node by node; every value has a known shape, declared symbolically at the input half of the time."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.opset = self.rng.choice([9, 11, 12, 13, 17, 18, 21])
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.values: list[tuple[str, Shape]] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def weight(self, array: np.ndarray) -> str:
        name = self.name()
        if self.rng.random() < 0.3:
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
        else:
            self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, values: list[int]) -> str:
        return self.weight(np.array(values, np.int64))

    def add(self, op: str, inputs: list[str], shape: Shape, outputs: int = 1, **attrs: object) -> str:
        names = [self.name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attrs))
        self.values.append((names[0], shape))
        return names[0]

    def pick(self) -> tuple[str, Shape]:
        return self.rng.choice(self.values[-4:])

    def axis(self, rank: int) -> int:
        return self.rng.randrange(-rank, rank)

    def sometimes(self, chance: float = 0.5) -> bool:
        return self.rng.random() < chance


def unary(b: Builder) -> None:
    x, shape = b.pick()
    b.add(
        b.rng.choice(["Relu", "Neg", "Abs", "Identity", "Sigmoid", "Ceil", "Floor", "Sign", "Tanh", "Exp"]), [x], shape
    )


def dropout(b: Builder) -> None:
    x, shape = b.pick()
    b.add("Dropout", [x], shape, outputs=b.rng.choice([1, 2]))


def cast(b: Builder) -> None:
    x, shape = b.pick()
    inner = b.rng.choice([TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BOOL])
    mid = b.add("Cast", [x], shape, to=inner)
    b.values.pop()
    b.add("Cast", [mid], shape, to=TensorProto.FLOAT)


def binary(b: Builder) -> None:
    x, shape = b.pick()
    fill = b.rng.choice([0.0, -0.0, 1.0, -2.0, 0.5])
    kind = b.rng.randrange(4)
    if kind == 0:
        other = np.float32(fill)
    elif kind == 1:
        other = np.full([1] * (len(shape) + b.sometimes(0.2)), fill, np.float32)
    elif kind == 2:
        other = np.full(shape[-1:], fill, np.float32)
    else:
        other = np.full(shape, fill, np.float32)
    w = b.weight(np.asarray(other))
    result = np.broadcast_shapes(shape, np.shape(other))
    operands = [x, w] if b.sometimes(0.6) else [w, x]
    b.add(
        b.rng.choice(["Add", "Mul", "Sub"] if fill == 0 or operands[0] == w else ["Add", "Mul", "Sub", "Div"]),
        operands,
        result,
    )


def join(b: Builder) -> None:
    (x, left), (y, right) = b.pick(), b.pick()
    try:
        shape = np.broadcast_shapes(left, right)
    except ValueError:
        return
    b.add(b.rng.choice(["Add", "Mul", "Max", "Min"]), [x, y], shape)


def transpose(b: Builder) -> None:
    x, shape = b.pick()
    if b.sometimes(0.3):
        b.add("Transpose", [x], shape[::-1])
        return
    perm = list(range(len(shape)))
    b.rng.shuffle(perm)
    b.add("Transpose", [x], tuple(shape[p] for p in perm), perm=perm)


def reshape(b: Builder) -> None:
    x, shape = b.pick()
    target = list(shape)
    kind = b.rng.randrange(4)
    if kind == 0 and len(target) > 1:
        at = b.rng.randrange(len(target) - 1)
        target[at : at + 2] = [target[at] * target[at + 1]]
    elif kind == 1:
        target.insert(b.rng.randrange(len(target) + 1), 1)
    result = tuple(target)
    if 0 not in result and b.sometimes() and target:
        target[b.rng.randrange(len(target))] = -1
    if b.sometimes(0.3) and 0 not in result:
        target = [0 if i < len(shape) and d == shape[i] == result[i] else d for i, d in enumerate(target)]
    if 0 in result:
        target = list(shape)
        result = shape
        if 0 in shape and any(d == 0 and i >= len(shape) for i, d in enumerate(target)):
            return
    b.add("Reshape", [x, b.ints(target)], result)


def squeeze(b: Builder) -> None:
    x, shape = b.pick()
    axes = [i for i, d in enumerate(shape) if d == 1]
    if not axes:
        return
    chosen = sorted(b.rng.sample(axes, b.rng.randint(1, len(axes))))
    result = tuple(d for i, d in enumerate(shape) if i not in chosen)
    given = [a - len(shape) if b.opset >= 11 and b.sometimes(0.3) else a for a in chosen]
    if b.opset < 13:
        b.add("Squeeze", [x], result, axes=given)
    else:
        b.add("Squeeze", [x, b.ints(given)], result)


def unsqueeze(b: Builder) -> None:
    x, shape = b.pick()
    if len(shape) > 4:
        return
    count = b.rng.randint(1, 2)
    axes = sorted(b.rng.sample(range(len(shape) + count), count))
    result = list(shape)
    for axis in axes:
        result.insert(axis, 1)
    given = [a - len(result) if b.opset >= 11 and b.sometimes(0.3) else a for a in axes]
    if b.opset < 13:
        b.add("Unsqueeze", [x], tuple(result), axes=given)
    else:
        b.add("Unsqueeze", [x, b.ints(given)], tuple(result))


def slice_(b: Builder) -> None:
    x, shape = b.pick()
    if not shape or b.opset < 10:
        return
    axis = b.axis(len(shape))
    size = shape[axis]
    start, end, step = b.rng.choice(
        [(0, 2**62, 1), (0, size, 1), (1, 2**62, 1), (-2, 2**62, 1), (0, -1, 1), (-1, -(2**62), -1), (0, 2**62, 2)]
    )
    length = len(range(*slice(start, None if end < -(2**60) else end, step).indices(size)))
    result = list(shape)
    result[axis] = length
    inputs = [x, b.ints([start]), b.ints([end]), b.ints([axis]), b.ints([step])]
    b.add("Slice", inputs, tuple(result))


def concat(b: Builder) -> None:
    x, shape = b.pick()
    if not shape:
        return
    if b.sometimes(0.3):
        b.add("Concat", [x], shape, axis=b.rng.randrange(len(shape)))
        return
    axis = b.axis(len(shape)) if b.opset >= 11 else b.rng.randrange(len(shape))
    empty = list(shape)
    empty[axis] = b.rng.choice([0, 1])
    w = b.weight(np.full(empty, -1, np.float32))
    result = list(shape)
    result[axis] += empty[axis]
    b.add("Concat", [x, w] if b.sometimes() else [w, x], tuple(result), axis=axis)


def expand(b: Builder) -> None:
    x, shape = b.pick()
    target = [d if b.sometimes(0.7) else 1 for d in shape]
    if b.sometimes(0.2):
        target = [b.rng.choice([1, 2]), *target]
    b.add("Expand", [x, b.ints(target)], np.broadcast_shapes(shape, tuple(target)))


def shape_program(b: Builder) -> None:
    """Reshape to a shape computed from the shape of the value itself."""
    x, shape = b.pick()
    if not shape:
        return
    s = b.name()
    b.nodes.append(helper.make_node("Shape", [x], [s]))
    if b.sometimes(0.5) and 0 not in shape:
        first, rest = b.name(), b.name()
        b.nodes.append(helper.make_node("Gather", [s, b.ints([0])], [first]))
        b.nodes.append(helper.make_node("Concat", [first, b.ints([-1])], [rest], axis=0))
        b.add("Reshape", [x, rest], (shape[0], int(np.prod(shape[1:]))))
    else:
        b.add("Reshape" if 0 not in shape else "Expand", [x, s], shape)


def reduce(b: Builder) -> None:
    x, shape = b.pick()
    if not shape or 0 in shape:
        return
    axis = b.axis(len(shape)) if b.opset >= 11 else b.rng.randrange(len(shape))
    keep = b.rng.choice([0, 1])
    result = list(shape)
    if keep:
        result[axis] = 1
    else:
        del result[axis]
    op = b.rng.choice(["ReduceMax", "ReduceMean", "ReduceSum"])
    if b.opset >= 18 or (op == "ReduceSum" and b.opset >= 13):
        b.add(op, [x, b.ints([axis])], tuple(result), keepdims=keep)
    else:
        b.add(op, [x], tuple(result), axes=[axis], keepdims=keep)


def softmax(b: Builder) -> None:
    x, shape = b.pick()
    if not shape or 0 in shape or (b.opset < 13 and len(shape) < 2):  # the default axis was 1
        return
    y = b.add(b.rng.choice(["Softmax", "LogSoftmax"]), [x], shape)
    if b.sometimes(0.3):
        b.add("Log", [y], shape)


def matmul(b: Builder) -> None:
    x, shape = b.pick()
    if len(shape) < 2 or 0 in shape:
        return
    out = b.rng.choice([1, 3])
    rng = np.random.default_rng(b.count)
    y = b.add("MatMul", [x, b.weight(rng.standard_normal((shape[-1], out)).astype(np.float32))], (*shape[:-1], out))
    if b.sometimes(0.7):
        bias = rng.standard_normal(b.rng.choice([(out,), (1,), (1, out), ()])).astype(np.float32)
        w = b.weight(np.asarray(bias))
        b.add("Add", [y, w] if b.sometimes() else [w, y], np.broadcast_shapes((*shape[:-1], out), bias.shape))


def clip(b: Builder) -> None:
    x, shape = b.pick()
    low, high = b.rng.choice([(0.0, 6.0), (-1.0, 1.0), (1.0, 0.5)])
    if b.opset < 11:
        b.add("Clip", [x], shape, min=low, max=high)
    else:
        b.add(
            "Clip",
            [x, b.weight(np.float32(low)), b.weight(np.float32(high))]
            if b.sometimes(0.7)
            else [x, "", b.weight(np.float32(high))],
            shape,
        )


def pad(b: Builder) -> None:
    x, shape = b.pick()
    if not shape or b.opset < 11 or 0 in shape:
        return
    pads = [b.rng.choice([0, 0, 1]) for _ in range(2 * len(shape))]
    result = tuple(d + pads[i] + pads[i + len(shape)] for i, d in enumerate(shape))
    b.add("Pad", [x, b.ints(pads), *([b.weight(np.float32(0))] if b.sometimes() else [])], result)


def branch(b: Builder) -> None:
    """An If whose branches capture the value, and sometimes decide on a constant."""
    x, shape = b.pick()
    if b.opset < 11:
        return
    if b.sometimes():
        condition = b.weight(np.array(b.sometimes()))
    else:
        condition = b.name()
        total = b.name()
        if b.opset >= 13:
            b.nodes.append(helper.make_node("ReduceSum", [x], [total], keepdims=0))
        else:
            b.nodes.append(helper.make_node("ReduceSum", [x], [total], keepdims=0))
        b.nodes.append(helper.make_node("Greater", [total, b.weight(np.float32(0))], [condition]))
    bodies = []
    for ops in (["Identity", "Neg"], ["Relu", "Identity"]):
        first, second = b.name(), b.name()
        body = [helper.make_node(ops[0], [x], [first]), helper.make_node(ops[1], [first], [second])]
        out = helper.make_tensor_value_info(second, TensorProto.FLOAT, shape)
        bodies.append(helper.make_graph(body, "body", [], [out]))
    b.add("If", [condition], shape, then_branch=bodies[0], else_branch=bodies[1])


STEPS: list[Callable[[Builder], None]] = [
    unary, unary, dropout, cast, binary, binary, join, transpose, transpose, reshape, reshape, squeeze, unsqueeze,
    slice_, concat, expand, shape_program, reduce, softmax, matmul, clip, pad, branch,
]  # fmt: skip


def random_model(seed: int, steps: int = 7) -> onnx.ModelProto:
    """A model that the checker and the runtime accept; equal seeds give equal models."""
    b = Builder(seed)
    shape = tuple(b.rng.choice([1, 2, 3, 0 if b.sometimes(0.1) else 4]) for _ in range(b.rng.randint(1, 4)))
    declared = [f"d{i}" if b.sometimes(0.3) else d for i, d in enumerate(shape)]
    b.inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, declared))
    b.values.append(("x", shape))
    while len(b.values) <= steps:
        before = len(b.values)
        b.rng.choice(STEPS)(b)
        if len(b.values) == before and b.sometimes(0.2):
            unary(b)
    outputs = [b.values[-1][0]]
    if b.sometimes(0.3):
        outputs.append(b.values[len(b.values) // 2][0])
    outputs = [name for name in dict.fromkeys(outputs) if name != "x"]
    ranks = {name: len(shape) for name, shape in b.values}
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * ranks[name]) for name in outputs]
    graph = helper.make_graph(b.nodes, "g", b.inputs, infos, b.initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", b.opset)], ir_version=9)


def input_sizes(seed: int) -> dict[str, int]:
    """The sizes that the symbolic dimensions of `random_model(seed)` were drawn with."""
    b = Builder(seed)
    shape = tuple(b.rng.choice([1, 2, 3, 0 if b.sometimes(0.1) else 4]) for _ in range(b.rng.randint(1, 4)))
    return {f"d{i}": d for i, d in enumerate(shape)}
