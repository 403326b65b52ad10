"""Operators whose result's size is arithmetic: windows, parts, factors, counts; one node a model, drawn at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

LARGEST = (1 << 63) - 1


@dataclass(slots=True)
class Drawn:
    """One node to be.

    Attributes:
        op: the operator.
        opset: the opset of the model.
        operands: what each input holds, None where one is left out.
        attrs: its attributes.
        outputs: how many outputs it has.
    """

    op: str
    opset: int
    operands: list[np.ndarray | None]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1

    def model(self, fed: Collection[int] = (0,), shaped: bool = True) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        """A model of this node alone and a feed for it.

        Args:
            fed: which operands are inputs; the others are constant.
            shaped: whether the model says what shape each input has; else it says so of the first alone.
        """
        names = ["" if a is None else f"x{i}" for i, a in enumerate(self.operands)]
        node = helper.make_node(self.op, names, [f"y{i}" for i in range(self.outputs)])
        for name, value in self.attrs.items():
            kind = onnx.AttributeProto.INTS if value == [] else None
            node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
        feed = {n: a for n, a in zip(names, self.operands, strict=True) if a is not None}
        held = [numpy_helper.from_array(feed.pop(n), n) for i, n in enumerate(names) if n and i not in fed]
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape if shaped or name == names[0] else None
            )
            for name, a in feed.items()
        ]
        outputs = [helper.make_value_info(n, onnx.TypeProto()) for n in node.output]
        graph = helper.make_graph([node], "g", inputs, outputs, held)
        imports = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8), feed


def data(*shape: int) -> np.ndarray:
    """Numbers to compute with."""
    return (np.arange(int(np.prod(shape)), dtype=np.float32) % 7 - 3).reshape(shape)


def ints(values: Any) -> np.ndarray:
    """Sizes, axes or places."""
    return np.array(values, np.int64)


def _spatial(rng: random.Random, op: str) -> int:
    return rng.choice((1, 1, 2) if op != "MaxPool" else (1, 2, 2, 3))


def _window(
    rng: random.Random, count: int, opset: int, *, dilated: bool, ceil: bool
) -> tuple[dict[str, Any], list[int]]:
    kernel = [rng.randint(1, 4) for _ in range(count)]
    attrs: dict[str, Any] = {"kernel_shape": kernel}
    if rng.random() < 0.8:
        attrs["strides"] = [rng.randint(1, 4) for _ in range(count)]
    if dilated and rng.random() < 0.4:
        attrs["dilations"] = [rng.randint(1, 3) for _ in range(count)]
    if ceil and rng.random() < 0.7:
        attrs["ceil_mode"] = 1
    kind = rng.choice(("NOTSET", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
    if kind != "NOTSET" or rng.random() < 0.1:
        attrs["auto_pad"] = kind
    elif rng.random() < 0.8:
        attrs["pads"] = [rng.randint(0, k - 1) for k in kernel * 2]
    return attrs, kernel


def pool(rng: random.Random) -> Drawn:
    op = rng.choice(("MaxPool", "AveragePool", "LpPool"))
    opset = rng.choice((7, 8, 10, 11, 12, 18, 19, 21, 22))
    since = {"MaxPool": (10, 10), "AveragePool": (19, 10), "LpPool": (18, 18)}[op]
    count = _spatial(rng, op)
    attrs, _ = _window(rng, count, opset, dilated=opset >= since[0], ceil=opset >= since[1])
    if op == "AveragePool" and rng.random() < 0.4:
        attrs["count_include_pad"] = 1
    outputs = 2 if op == "MaxPool" and opset >= 8 and rng.random() < 0.2 else 1
    return Drawn(op, opset, [data(1, 2, *(rng.randint(1, 9) for _ in range(count)))], attrs, outputs)


def conv(rng: random.Random) -> Drawn:
    opset, count = rng.choice((7, 11, 13, 22)), rng.choice((1, 2))
    attrs, kernel = _window(rng, count, opset, dilated=True, ceil=False)
    if rng.random() < 0.5:
        del attrs["kernel_shape"]
    sizes = [rng.randint(1, 9) for _ in range(count)]
    return Drawn("Conv", opset, [data(1, 2, *sizes), data(3, 2, *kernel)], attrs)


def conv_transpose(rng: random.Random) -> Drawn:
    opset, count = rng.choice((7, 11, 13, 22)), rng.choice((1, 2))
    attrs, kernel = _window(rng, count, opset, dilated=True, ceil=False)
    strides = attrs.get("strides", [1] * count)
    if rng.random() < 0.4:
        attrs["output_padding"] = [rng.randint(0, s - 1) if rng.random() < 0.8 else s for s in strides]
    sizes = [rng.randint(1, 5) for _ in range(count)]
    if rng.random() < 0.3:
        attrs["output_shape"] = [n * s + rng.randint(-1, 2) for n, s in zip(sizes, strides, strict=True)]
    if rng.random() < 0.5:
        del attrs["kernel_shape"]
    group = rng.choice((1, 2))
    attrs["group"] = group
    return Drawn("ConvTranspose", opset, [data(1, 2, *sizes), data(2, 3, *kernel)], attrs)


def resize(rng: random.Random) -> Drawn:
    opset = rng.choice((10, 11, 13, 18, 19))
    shape = [1, 2, rng.randint(1, 9), rng.randint(1, 9)]
    factors = [1.0, 1.0, *(rng.choice((0.3, 0.5, 0.6, 0.7, 0.9, 1.0, 1.1, 1.3, 1.7, 2.0, 3.3)) for _ in range(2))]
    scales = np.array(factors, np.float32)
    attrs: dict[str, Any] = {"mode": rng.choice(("nearest", "linear"))}
    if opset == 10:
        return Drawn("Resize", 10, [data(*shape), scales], attrs)
    attrs["coordinate_transformation_mode"] = rng.choice(
        ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize")
    )
    crop = attrs["coordinate_transformation_mode"] == "tf_crop_and_resize"
    sizes = [1, 2, rng.randint(1, 12), rng.randint(1, 12)]
    if opset >= 18 and rng.random() < 0.5:
        attrs["axes"] = rng.choice(([2, 3], [3, 2], [-1, -2], [3]))
        scales = np.array([factors[a] for a in attrs["axes"]], np.float32)
        sizes = [sizes[a] for a in attrs["axes"]]
    count = len(sizes)
    starts, ends = [0.0] * count, [rng.choice((0.5, 0.8, 1.0)) if n > 2 or count < 4 else 1.0 for n in range(count)]
    roi = np.array(starts + ends, np.float32) if crop else None
    if rng.random() < 0.5:
        if opset >= 18 and rng.random() < 0.7:
            attrs["keep_aspect_ratio_policy"] = rng.choice(("stretch", "not_larger", "not_smaller"))
        empty = np.zeros(0, np.float32)
        first = empty if opset == 11 else None
        return Drawn("Resize", opset, [data(*shape), roi if crop else first, first, ints(sizes)], attrs)
    return Drawn("Resize", opset, [data(*shape), roi if crop or opset > 11 else np.zeros(0, np.float32), scales], attrs)


def upsample(rng: random.Random) -> Drawn:
    opset = rng.choice((7, 9))
    scales = [1.0, 1.0, *(rng.choice((1.0, 1.1, 1.3, 1.7, 2.0, 3.3)) for _ in range(2))]
    x = data(1, 2, rng.randint(1, 9), rng.randint(1, 9))
    mode = {"mode": rng.choice(("nearest", "linear"))}
    if opset == 7:
        return Drawn("Upsample", 7, [x], {"scales": scales, **mode})
    return Drawn("Upsample", 9, [x, np.array(scales, np.float32)], mode)


def range_(rng: random.Random) -> Drawn:
    kind = rng.choice((np.int64, np.int32, np.float32, np.float64, np.int16))
    if np.issubdtype(kind, np.floating):
        values = [
            rng.choice((0.0, 0.1, -0.7, 3.0, 16777216.0)),
            rng.choice((1.0, 0.3, 5.0, -2.1, 16777300.0)),
            rng.choice((0.1, 0.3, 1.0, -0.7, -0.1)),
        ]
    else:
        values = [rng.randint(-4, 9), rng.randint(-4, 9), rng.choice((1, 2, 3, -1, -2))]
    return Drawn("Range", rng.choice((11, 17)), [np.array(v, kind) for v in values])


def slice_(rng: random.Random) -> Drawn:
    opset = rng.choice((7, 10, 11, 13))
    shape = [rng.randint(0, 6) for _ in range(rng.choice((1, 2, 3)))]
    axes = rng.sample(range(len(shape)), rng.randint(1, len(shape)))
    far = (LARGEST, -LARGEST, (1 << 31) - 1, -(1 << 31), -LARGEST - 1)

    def place() -> int:
        return rng.choice(far) if rng.random() < 0.2 else rng.randint(-8, 8)

    starts, ends = [place() for _ in axes], [place() for _ in axes]
    named = [a - len(shape) if rng.random() < 0.3 else a for a in axes]
    if opset == 7:
        attrs = {"starts": starts, "ends": ends, "axes": axes}
        return Drawn("Slice", 7, [data(*shape)], attrs)
    steps = [rng.choice((1, 1, 2, 3, -1, -2, -3)) for _ in axes]
    operands = [data(*shape), ints(starts), ints(ends), ints(named)]
    return Drawn("Slice", opset, [*operands, ints(steps)] if rng.random() < 0.8 else operands)


def split(rng: random.Random) -> Drawn:
    opset = rng.choice((7, 11, 13, 18))
    size, count = rng.randint(0, 9), rng.randint(1, 4)
    axis = rng.choice((0, 1, -1))
    shape = [2, 2]
    shape[axis] = size
    attrs: dict[str, Any] = {"axis": axis}
    parts = None
    if rng.random() < 0.4:
        cuts = sorted(rng.randint(0, size) for _ in range(count - 1))
        parts = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    if opset < 13 and parts:
        attrs["split"] = parts
    elif opset >= 18 and parts is None:
        attrs["num_outputs"] = count
    operands: list[np.ndarray | None] = [data(*shape)]
    return Drawn("Split", opset, [*operands, ints(parts)] if opset >= 13 and parts else operands, attrs, count)


def pad(rng: random.Random) -> Drawn:
    opset = rng.choice((7, 11, 13, 18, 19, 21))
    shape = [rng.randint(1, 5) for _ in range(rng.choice((1, 2, 3)))]
    axes = list(range(len(shape)))
    mode = rng.choice(("constant", "constant", "edge", "reflect", *(("wrap",) if opset >= 19 else ())))
    if opset >= 18 and rng.random() < 0.4:
        axes = rng.sample(axes, rng.randint(1, len(axes)))
    low = -3 if mode == "constant" or rng.random() < 0.3 else 0
    pads = [rng.randint(low, 3) for _ in range(2 * len(axes))]
    if opset < 11:
        return Drawn("Pad", opset, [data(*shape)], {"pads": pads, "mode": mode})
    operands: list[np.ndarray | None] = [data(*shape), ints(pads), None, ints(axes)]
    return Drawn("Pad", opset, operands if opset >= 18 else operands[:2], {"mode": mode})


def reshape(rng: random.Random) -> Drawn:
    opset = rng.choice((7, 13, 14, 19))
    shape = rng.choice(((2, 3, 4), (0, 3), (2, 0, 3), (6,), (), (1, 1)))
    target = [rng.choice((-1, 0, 1, 2, 3, 4, 6, 12)) for _ in range(rng.randint(0, 4))]
    attrs = {"allowzero": 1} if opset >= 14 and rng.random() < 0.4 else {}
    return Drawn("Reshape", opset, [data(*shape), ints(target)], attrs)


def squeezes(rng: random.Random) -> Drawn:
    opset = rng.choice((7, 11, 13, 21))
    op = rng.choice(("Squeeze", "Squeeze", "Unsqueeze"))
    shape = [rng.choice((1, 1, 2, 0)) for _ in range(rng.randint(0, 4))]
    rank = len(shape) + (2 if op == "Unsqueeze" else 0)
    axes = rng.sample(range(rank), rng.randint(0, rank if op == "Squeeze" else 2))
    if opset >= 11:
        axes = [a - rank if rng.random() < 0.3 else a for a in axes]
    if opset >= 13:
        given = op == "Unsqueeze" or rng.random() < 0.8
        return Drawn(op, opset, [data(*shape), ints(axes)] if given else [data(*shape)])
    return Drawn(op, opset, [data(*shape)], {"axes": axes} if axes or op == "Unsqueeze" else {})


def counted(rng: random.Random) -> Drawn:
    """`TopK`, `OneHot`, `Tile`, `Expand`, `ConstantOfShape`, `EyeLike`."""
    op = rng.choice(("TopK", "OneHot", "Tile", "Expand", "ConstantOfShape", "EyeLike"))
    shape = [rng.randint(0, 4) for _ in range(rng.choice((1, 2, 3)))]
    if op == "TopK":
        opset, axis = rng.choice((7, 10, 11, 24)), rng.randrange(len(shape))
        k = rng.randint(0, 5)
        if opset == 7:
            return Drawn(op, 7, [data(*shape)], {"k": max(k, 1), "axis": axis}, 2)
        return Drawn(op, opset, [data(*shape), ints([k])], {"axis": axis}, 2)
    if op == "OneHot":
        depth = np.array(
            [rng.randint(1, 5)] if rng.random() < 0.5 else rng.randint(1, 5), rng.choice((np.int64, np.float32))
        )
        values = np.array([0, 1], np.float32)
        return Drawn(op, rng.choice((9, 11)), [ints(np.zeros(shape)), depth, values], {"axis": rng.choice((-1, 0, 1))})
    if op == "Tile":
        return Drawn(op, rng.choice((7, 13)), [data(*shape), ints([rng.randint(0, 3) for _ in shape])])
    if op == "Expand":
        target = [rng.choice((1, n, n, 2)) for n in shape]
        return Drawn(op, rng.choice((8, 13)), [data(*shape), ints(target[rng.randint(0, 1) :])])
    if op == "ConstantOfShape":
        return Drawn(op, rng.choice((9, 20)), [ints(shape)])
    return Drawn(op, rng.choice((9, 22)), [data(2, 3)], {"k": rng.randint(-1, 1)})


def reduce(rng: random.Random) -> Drawn:
    op = rng.choice(("ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2", "ReduceProd", "ReduceMin"))
    opset = rng.choice((7, 11, 13, 18, 20))
    shape = [rng.choice((0, 1, 2, 2, 3, 3, 3)) for _ in range(rng.randint(0, 3))]
    attrs: dict[str, Any] = {"keepdims": rng.choice((0, 1))}
    axes = rng.sample(range(len(shape)), rng.randint(0, len(shape)))
    if opset >= 11:
        axes = [a - len(shape) if rng.random() < 0.3 else a for a in axes]
    by_operand = opset >= (13 if op == "ReduceSum" else 18)
    if by_operand:
        if rng.random() < 0.4:
            attrs["noop_with_empty_axes"] = 1
        given = rng.random() < 0.8
        return Drawn(op, opset, [data(*shape), ints(axes)] if given else [data(*shape)], attrs)
    if axes or rng.random() < 0.2:
        attrs["axes"] = axes
    return Drawn(op, opset, [data(*shape)], attrs)


def image(rng: random.Random) -> Drawn:
    """`Col2Im`, `CenterCropPad`, `AffineGrid`, `DepthToSpace`, `SpaceToDepth`, `GridSample`, `RoiAlign`."""
    op = rng.choice(
        ("Col2Im", "CenterCropPad", "AffineGrid", "DepthToSpace", "SpaceToDepth", "RoiAlign", "MaxRoiPool", "MaxUnpool")
    )
    if op == "Col2Im":
        size, block = [rng.randint(2, 5), rng.randint(2, 5)], [rng.randint(1, 2), rng.randint(1, 2)]
        count = (size[0] - block[0] + 1) * (size[1] - block[1] + 1)
        return Drawn(op, 18, [data(1, 2 * block[0] * block[1], count), ints(size), ints(block)])
    if op == "CenterCropPad":
        axes = rng.choice(([0, 1, 2], [1, 2], [-1], [2, 0]))
        target = ints([rng.randint(1, 6) for _ in axes])
        attrs = {"axes": axes} if len(axes) < 3 or rng.random() < 0.5 else {}
        return Drawn(op, 18, [data(3, 4, 5), target], attrs)
    if op == "AffineGrid":
        flat = rng.random() < 0.5
        size = [2, 1, 3, 4] if flat else [2, 1, 3, 4, 5]
        return Drawn(op, 20, [data(2, len(size) - 2, len(size) - 1), ints(size)], {"align_corners": rng.choice((0, 1))})
    if op == "DepthToSpace":
        return Drawn(op, rng.choice((7, 13)), [data(1, 8, 2, 3)], {"blocksize": rng.choice((1, 2))})
    if op == "SpaceToDepth":
        return Drawn(
            op, rng.choice((7, 13)), [data(1, 2, 4, rng.choice((6, 6, 5)))], {"blocksize": rng.choice((1, 2, 3))}
        )
    if op == "MaxUnpool":
        places = ints(np.arange(4).reshape(1, 1, 2, 2) * 3)
        attrs: dict[str, Any] = {"kernel_shape": [2, 2], "strides": rng.choice(([2, 2], [1, 2]))}
        if rng.random() < 0.5:
            attrs["pads"] = [rng.randint(0, 1) for _ in range(4)]
        operands: list[np.ndarray | None] = [data(1, 1, 2, 2), places]
        if rng.random() < 0.5:
            operands.append(ints([1, 1, rng.choice((4, 5)), rng.choice((4, 5))]))
        return Drawn(op, 11, operands, attrs)
    boxes = np.array([[0, 0, 2, 2], [1, 1, 3, 3], [0, 1, 2, 3]], np.float32)
    if op == "MaxRoiPool":
        return Drawn(op, 7, [data(1, 2, 4, 4), np.insert(boxes, 0, 0, 1)], {"pooled_shape": [rng.randint(1, 3)] * 2})
    attrs = {"output_height": rng.randint(1, 3), "output_width": rng.randint(1, 3)} if rng.random() < 0.7 else {}
    return Drawn(op, rng.choice((10, 16)), [data(1, 2, 4, 4), boxes, ints([0, 0, 0])], attrs)


def signal(rng: random.Random) -> Drawn:
    """`STFT`, `DFT`, windows and `MelWeightMatrix`."""
    op = rng.choice(("STFT", "DFT", "HannWindow", "MelWeightMatrix"))
    if op == "STFT":
        length, step = rng.randint(2, 5), rng.randint(1, 4)
        complete = rng.random() < 0.5
        window = np.ones(length, np.float32) if rng.random() < 0.5 else None
        x = data(1, rng.randint(5, 12), 1)
        frame = None if window is not None and rng.random() < 0.5 else np.array(length, np.int64)
        attrs = {"onesided": int(not complete)} if rng.random() < 0.7 else {}
        return Drawn(op, 17, [x, np.array(step, np.int64), window, frame], attrs)
    if op == "DFT":
        x = data(1, rng.randint(2, 7), rng.choice((1, 1, 2)))
        length = np.array(rng.randint(1, 8), np.int64) if rng.random() < 0.6 else None
        onesided = int(x.shape[-1] == 1 and rng.random() < 0.5)
        if rng.random() < 0.5:
            return Drawn(op, 17, [x, length], {"axis": 1, "onesided": onesided})
        return Drawn(op, 20, [x, length, np.array(rng.choice((1, -2)), np.int64)], {"onesided": onesided})
    if op == "HannWindow":
        return Drawn(op, 17, [np.array(rng.randint(0, 6), np.int64)], {"periodic": rng.choice((0, 1))})
    numbers = [rng.randint(1, 4), rng.randint(4, 16), 8000]
    return Drawn(op, 17, [*map(np.array, numbers), np.array(0.0, np.float32), np.array(4000.0, np.float32)])


def gathered(rng: random.Random) -> Drawn:
    """`Gather`, `GatherND`, `Compress`, `NonZero`, `Unique`, `Shape`, `Flatten`, `Concat`, `MatMul`, `Einsum`."""
    op = rng.choice(
        ("Gather", "GatherND", "Compress", "NonZero", "Unique", "Shape", "Flatten", "Concat", "MatMul", "Einsum")
    )
    if op == "Gather":
        indices = ints(np.zeros([rng.randint(0, 2) for _ in range(rng.randint(0, 2))]))
        return Drawn(
            op, rng.choice((7, 13)), [data(3, 2, 4), indices], {"axis": rng.randint(-3, 2) if rng.random() < 0.8 else 0}
        )
    if op == "GatherND":
        depth, batch = rng.randint(1, 2), rng.randint(0, 1)
        return Drawn(op, 13, [data(3, 2, 4), ints(np.zeros((3, rng.randint(0, 2), depth)))], {"batch_dims": batch})
    if op == "Compress":
        picked = np.array([rng.random() < 0.5 for _ in range(rng.randint(1, 3))])
        return Drawn(
            op, rng.choice((9, 11)), [data(3, 4), picked], {"axis": rng.randint(0, 1)} if rng.random() < 0.6 else {}
        )
    if op == "NonZero":
        return Drawn(op, rng.choice((9, 13)), [data(*([3, 2, 4][: rng.randint(0, 3)]))])
    if op == "Unique":
        return Drawn(
            op, 11, [data(3, 2, 2)], {"axis": rng.randint(-3, 2)} if rng.random() < 0.5 else {}, rng.randint(1, 4)
        )
    if op == "Shape":
        attrs = {"start": rng.randint(-5, 5), "end": rng.randint(-5, 5)}
        return Drawn(op, rng.choice((15, 21)), [data(3, 2, 4)], {k: v for k, v in attrs.items() if rng.random() < 0.6})
    if op == "Flatten":
        return Drawn(
            op, rng.choice((7, 9, 11, 13)), [data(3, rng.choice((0, 2)), 4)], {"axis": rng.choice((0, 1, 2, 3, -1, -2))}
        )
    if op == "Concat":
        axis = rng.choice((0, 1, -1))
        return Drawn(
            op,
            rng.choice((7, 11, 13)),
            [data(2, 2), data(2, 2), data(*((0, 2) if axis == 0 else (2, 0)))],
            {"axis": axis},
        )
    if op == "MatMul":
        a, b = rng.choice(
            (
                ((3,), (3, 2)),
                ((2, 3), (3,)),
                ((3,), (3,)),
                ((2, 1, 2, 3), (4, 3, 2)),
                ((2, 0), (0, 3)),
                ((3,), (4, 3, 2)),
            )
        )
        return Drawn(op, rng.choice((7, 13)), [data(*a), data(*b)])
    equation, shapes = rng.choice(
        (("ij,jk->ik", ((2, 3), (3, 2))), ("...ij,jk", ((4, 2, 3), (3, 2))), ("ii->i", ((3, 3),)), ("ij->", ((2, 3),)),
         ("bi,bj", ((2, 3), (2, 4))), ("ij,jk->ik", ((2, 1), (3, 2))), ("ba", ((2, 3),)), ("i...->...", ((2, 3, 4),)))
    )  # fmt: skip
    return Drawn("Einsum", 12, [data(*s) for s in shapes], {"equation": equation})


def layers(rng: random.Random) -> Drawn:
    """Recurrent layers, normalizations with several results, dropouts, losses."""
    op = rng.choice(
        (
            "LSTM",
            "GRU",
            "RNN",
            "LayerNormalization",
            "Dropout",
            "BatchNormalization",
            "NegativeLogLikelihoodLoss",
            "SoftmaxCrossEntropyLoss",
            "ArgMax",
        )
    )
    if op in ("LSTM", "GRU", "RNN"):
        gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
        direction = rng.choice(("forward", "reverse", "bidirectional"))
        many = 2 if direction == "bidirectional" else 1
        opset = rng.choice((7, 14))
        attrs: dict[str, Any] = {"hidden_size": 3, "direction": direction}
        if opset == 14 and rng.random() < 0.3:
            attrs["layout"] = 1
        x = data(rng.randint(1, 4), rng.randint(1, 3), 2)
        return Drawn(
            op,
            opset,
            [x, data(many, gates * 3, 2), data(many, gates * 3, 3)],
            attrs,
            rng.randint(1, 3 if op == "LSTM" else 2),
        )
    if op == "LayerNormalization":
        axis = rng.choice((-1, -2, 0, 1, 2))
        return Drawn(op, 17, [data(2, 3, 4), data(*(2, 3, 4)[axis:])], {"axis": axis}, rng.randint(1, 3))
    if op == "Dropout":
        return Drawn(op, rng.choice((7, 10, 12)), [data(2, 3)], {}, rng.randint(1, 2))
    if op == "BatchNormalization":
        params: list[np.ndarray | None] = [np.ones(3, np.float32) for _ in range(4)]
        training = rng.random() < 0.3
        return Drawn(op, 15, [data(2, 3, 4), *params], {"training_mode": int(training)}, 3 if training else 1)
    if op == "ArgMax":
        attrs = {"axis": rng.randint(-3, 2), "keepdims": rng.choice((0, 1))}
        return Drawn(op, rng.choice((11, 13)), [data(2, rng.choice((0, 3)), 4)], attrs)
    labels = ints(np.zeros((2, 4)))
    attrs = {"reduction": rng.choice(("none", "sum", "mean"))}
    outputs = 2 if op == "SoftmaxCrossEntropyLoss" and rng.random() < 0.5 else 1
    return Drawn(op, rng.choice((12, 13)), [data(2, 3, 4), labels], attrs, outputs)


KINDS: dict[str, Callable[[random.Random], Drawn]] = {
    "pool": pool, "conv": conv, "conv_transpose": conv_transpose, "resize": resize, "upsample": upsample,
    "range": range_, "slice": slice_, "split": split, "pad": pad, "reshape": reshape, "squeezes": squeezes,
    "counted": counted, "reduce": reduce, "image": image, "signal": signal, "gathered": gathered, "layers": layers,
}  # fmt: skip
"""What can be drawn."""


def drawn(kind: str, seed: int) -> Drawn:
    """The node of a seed."""
    return KINDS[kind](random.Random(f"{kind}{seed}"))
