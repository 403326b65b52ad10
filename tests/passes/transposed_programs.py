"""Random programs full of transposes, for the pass that moves them."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]


class Program:
    """A model in the making; every value is float32 and its shape known.

    Args:
        seed: what to draw from.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        rank = self.rng.choice([3, 4, 4])
        self.perm = self.rng.sample(range(rank), rank)
        shape = tuple(self.rng.choice([1, 2, 3, 4]) for _ in range(rank))
        self.inputs = {"x": shape, "z": shape}
        self.shapes: dict[str, Shape] = dict(self.inputs)

    def const(self, array: object, dtype: type | None = None) -> str:
        """A constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def op(self, op_type: str, *inputs: str, shapes: list[Shape] | None = None, **attrs: object) -> list[str]:
        """A node; `shapes` are those of its results that later nodes may read."""
        outputs = [f"v{len(self.nodes)}_{index}" for index in range(max(1, len(shapes or ())))]
        self.nodes.append(helper.make_node(op_type, list(inputs), outputs, **attrs))
        self.shapes.update(zip(outputs, shapes or (), strict=False))
        return outputs

    def step(self) -> None:
        """One more operator on one of the last values."""
        name = self.rng.choice(list(self.shapes)[-4:])
        draw = _transpose if self.rng.random() < 0.35 else self.rng.choice(_STEPS)
        if self.shapes[name]:
            draw(self, name, self.shapes[name], self.rng.randrange(len(self.shapes[name])))

    def model(self) -> onnx.ModelProto:
        """The program so far; what nothing reads is put out, and now and then something in between."""
        read = {name for node in self.nodes for name in node.input}
        made = [name for name in self.shapes if name not in self.inputs]
        outputs = [name for name in made if name not in read]
        outputs += self.rng.sample([name for name in made if name in read], min(1, len(made) - len(outputs)))
        values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in self.shapes.items()}
        graph = helper.make_graph(
            self.nodes, "g", [values[n] for n in self.inputs], [values[n] for n in outputs], self.constants
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        return model


def _set(shape: Shape, axis: int, *sizes: int) -> Shape:
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


def _transpose(p: Program, x: str, shape: Shape, axis: int) -> None:
    same = len(shape) == len(p.perm)
    back = [int(at) for at in np.argsort(p.perm)]
    perm = (
        p.rng.choice([p.perm, back]) if same and p.rng.random() < 0.8 else p.rng.sample(range(len(shape)), len(shape))
    )
    p.op("Transpose", x, shapes=[tuple(shape[at] for at in perm)], perm=perm)


def _unary(p: Program, x: str, shape: Shape, axis: int) -> None:
    p.op(p.rng.choice(["Relu", "Sigmoid", "Neg", "Tanh"]), x, shapes=[shape])


def _binary(p: Program, x: str, shape: Shape, axis: int) -> None:
    other = p.rng.choice(list(p.shapes))
    try:
        both = np.broadcast_shapes(shape, p.shapes[other])
    except ValueError:
        return
    if p.rng.random() < 0.2:
        p.op("Where", p.op("Greater", x, other)[0], x, other, shapes=[both])
    else:
        p.op(p.rng.choice(["Add", "Mul", "Max", "Sub", "Sum"]), x, other, shapes=[both])


def _with_constant(p: Program, x: str, shape: Shape, axis: int) -> None:
    sizes = [size if p.rng.random() < 0.6 else 1 for size in shape[axis:]]
    operands = [x, p.const(p.numbers.standard_normal(sizes), np.float32)]
    p.rng.shuffle(operands)
    p.op(p.rng.choice(["Add", "Mul"]), *operands, shapes=[shape])


def _concat(p: Program, x: str, shape: Shape, axis: int) -> None:
    fits = [n for n, s in p.shapes.items() if len(s) == len(shape) and _set(s, axis, 0) == _set(shape, axis, 0)]
    parts = [x, *p.rng.choices(fits, k=p.rng.randint(1, 2))]
    total = sum(p.shapes[n][axis] for n in parts)
    p.op("Concat", *parts, shapes=[_set(shape, axis, total)], axis=axis - p.rng.choice([0, len(shape)]))


def _slice(p: Program, x: str, shape: Shape, axis: int) -> None:
    if shape[axis] > 1:
        bounds = (p.const([number]) for number in (1, shape[axis], axis - p.rng.choice([0, len(shape)])))
        p.op("Slice", x, *bounds, shapes=[_set(shape, axis, shape[axis] - 1)])


def _split(p: Program, x: str, shape: Shape, axis: int) -> None:
    if shape[axis] > 1:
        parts = [1, shape[axis] - 1]
        p.op("Split", x, p.const(parts), shapes=[_set(shape, axis, size) for size in parts], axis=axis)


def _pad(p: Program, x: str, shape: Shape, axis: int) -> None:
    pads = p.rng.choices([0, 0, 1], k=2 * len(shape))
    sizes = [size + pads[at] + pads[len(shape) + at] for at, size in enumerate(shape)]
    p.op("Pad", x, p.const(pads), p.const(0.5, np.float32), shapes=[tuple(sizes)])


def _reduce(p: Program, x: str, shape: Shape, axis: int) -> None:
    axes = p.rng.sample(range(len(shape)), p.rng.randint(1, len(shape)))
    keep = p.rng.randint(0, 1)
    sizes = [1 if at in axes else size for at, size in enumerate(shape) if keep or at not in axes]
    kind = p.rng.choice(["ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2"])
    p.op(kind, x, p.const(axes), shapes=[tuple(sizes)], keepdims=keep)


def _softmax(p: Program, x: str, shape: Shape, axis: int) -> None:
    p.op(p.rng.choice(["Softmax", "LogSoftmax"]), x, shapes=[shape], axis=axis)


def _squeeze(p: Program, x: str, shape: Shape, axis: int) -> None:
    if shape[axis] == 1:
        p.op("Squeeze", x, p.const([axis]), shapes=[_set(shape, axis)])


def _unsqueeze(p: Program, x: str, shape: Shape, axis: int) -> None:
    if len(shape) < 5:
        p.op("Unsqueeze", x, p.const([axis]), shapes=[(*shape[:axis], 1, *shape[axis:])])


def _tile(p: Program, x: str, shape: Shape, axis: int) -> None:
    p.op("Tile", x, p.const(_set((1,) * len(shape), axis, 2)), shapes=[_set(shape, axis, 2 * shape[axis])])


def _expand(p: Program, x: str, shape: Shape, axis: int) -> None:
    sizes = [p.rng.choice([1, 3]) if size == 1 else p.rng.choice([1, size]) for size in shape[axis:]]
    p.op("Expand", x, p.const(sizes), shapes=[np.broadcast_shapes(shape, tuple(sizes))])


def _gather(p: Program, x: str, shape: Shape, axis: int) -> None:
    if p.rng.random() < 0.4:
        p.op("Gather", x, p.const(shape[axis] - 1), shapes=[_set(shape, axis)], axis=axis)
    else:
        p.op("Gather", x, p.const([-1, 0]), shapes=[_set(shape, axis, 2)], axis=axis)


def _arg_max(p: Program, x: str, shape: Shape, axis: int) -> None:
    keep = p.rng.randint(0, 1)
    after = _set(shape, axis, 1) if keep else _set(shape, axis)
    found = p.op("ArgMax", x, axis=axis, keepdims=keep)
    p.op("Cast", found[0], shapes=[after], to=TensorProto.FLOAT)


def _product(p: Program, x: str, shape: Shape, axis: int) -> None:
    if len(shape) > 1:
        weight = p.const(p.numbers.standard_normal((shape[-1], 3)), np.float32)
        p.op("MatMul", x, weight, shapes=[(*shape[:-1], 3)])


def _normalize(p: Program, x: str, shape: Shape, axis: int) -> None:
    p.op("LayerNormalization", x, p.const(np.ones(shape[axis:]), np.float32), shapes=[shape], axis=axis)


def _sum_up(p: Program, x: str, shape: Shape, axis: int) -> None:
    p.op("CumSum", x, p.const(axis), shapes=[shape], reverse=p.rng.randint(0, 1))


def _largest(p: Program, x: str, shape: Shape, axis: int) -> None:
    p.op("TopK", x, p.const([1]), shapes=[_set(shape, axis, 1)], axis=axis)
    p.nodes[-1].output.append(f"{p.nodes[-1].output[0]}_positions")


def _resize(p: Program, x: str, shape: Shape, axis: int) -> None:
    if len(shape) == 4:
        scales = p.rng.choice([(1, 1, 2, 2), (1, 2, 2, 1)])
        mode = p.rng.choice(["nearest", "linear"])
        sizes = tuple(size * scale for size, scale in zip(shape, scales, strict=True))
        p.op("Resize", x, "", p.const(scales, np.float32), shapes=[sizes], mode=mode)


def _quantize(p: Program, x: str, shape: Shape, axis: int) -> None:
    scales = p.const(p.numbers.random(shape[axis]) + 0.1, np.float32)
    zero = p.const(p.numbers.integers(90, 110, shape[axis]), np.uint8)
    one = p.op("QuantizeLinear", x, scales, zero, axis=axis)
    p.op("DequantizeLinear", one[0], scales, zero, shapes=[shape], axis=axis)


_STEPS: tuple[Callable[[Program, str, Shape, int], None], ...] = (
    _unary, _binary, _binary, _with_constant, _concat, _slice, _split, _pad, _reduce, _softmax, _squeeze, _unsqueeze,
    _tile, _expand, _gather, _arg_max, _product, _normalize, _sum_up, _largest, _resize, _quantize,
)  # fmt: skip
