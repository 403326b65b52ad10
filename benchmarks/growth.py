"""Families of graphs of any size, each extreme in one way, and their cost at one size and at twice that size.

from benchmarks.growth import FAMILIES, build
model = build("fan-in", 1_000)
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from benchmarks import results
from benchmarks.synthetic import Builder
from benchmarks.tools import measure

MOST = 2.3
"""The largest ratio of the cost at twice the size to that at one size."""


def _split(b: Builder, x: str, count: int, *, stated: bool = True) -> list[str]:
    parts = [f"part{n}" for n in range(count)]
    axis = AttributeProto(name="axis", type=AttributeProto.INT, i=0)
    inputs = [x, *([b.weight([1] * count)] if stated else [])]
    b.nodes.append(NodeProto(op_type="Split", name="split", input=inputs, output=parts, attribute=[axis]))
    return parts


def _fan_in(b: Builder, count: int) -> None:
    """Equal nodes with one reader: all of them become one."""
    x = b.input("x", (2, 4))
    b.output(b.node("Sum", *[b.node("Abs", x) for _ in range(count)]), (2, 4))


def _fan_out(b: Builder, count: int) -> None:
    """One value with many readers, and one operator that reads all of their results."""
    hub = b.node("Relu", b.input("x", (2, 4)))
    b.output(b.node("Sum", *[b.node("Identity", b.node("Mul", hub, b.noise(4))) for _ in range(count)]), (2, 4))


def _diamonds(b: Builder, count: int) -> None:
    x = b.input("x", (2, 4))
    for _ in range(count // 3):
        x = b.node("Add", b.node("Relu", x), b.node("Neg", x))
    b.output(x, (2, 4))


def _chain(op: str, *, constant: bool = False, **attributes: Any) -> Callable[[Builder, int], None]:
    """A chain of one operator; if it has two operands, the other one is a constant or a second input."""

    def make(b: Builder, count: int) -> None:
        x = y = b.input("x", (2, 4))
        z = b.input("z", (2, 4))
        for number in range(count):
            others = [b.noise(4) if constant else (x, z)[number % 2]] if op in _BINARY else []
            y = b.node(op, y, *others, **attributes)
        b.output(y, (2, 4) if op != "Concat" else (2 * count + 2, 4))

    return make


_BINARY = ("Add", "Mul", "Sub", "Div", "Max", "Min", "Sum", "Concat", "Pow", "PRelu")


def _reshapes(b: Builder, count: int) -> None:
    x = b.input("x", (2, 4))
    for _ in range(count // 2):
        x = b.node("Reshape", b.node("Reshape", x, b.weight([8])), b.weight([2, 4]))
    b.output(x, (2, 4))


def _reshapes_apart(b: Builder, count: int) -> None:
    """Reshapes there and back with operators in between that may move before them; all reshapes become one."""
    x = b.input("x", (2, 4))
    for number in range(count // 2):
        x = b.node("Reshape", b.node("Tanh", x), b.weight([2, 4] if number % 2 else [8]))
    b.output(b.node("Reshape", x, b.weight([4, 2])), (4, 2))


def _sequence(b: Builder, count: int) -> None:
    """A sequence that grows by one element at a time, as in an unrolled loop."""
    x = b.input("x", (2, 4))
    items = b.node("SequenceEmpty")
    for _ in range(count // 2):
        items = b.node("SequenceInsert", items, b.node("Mul", x, b.noise(4)))
    b.output(b.node("ConcatFromSequence", items, axis=0), (count // 2 * 2, 4))


def _transposes(b: Builder, count: int) -> None:
    x = b.input("x", (2, 4, 3))
    for _ in range(count // 2):
        x = b.node("Tanh", b.node("Transpose", x, perm=(1, 2, 0)))
    b.output(x, np.roll((2, 4, 3), -(count // 2)).tolist())


def _products(b: Builder, count: int) -> None:
    x = b.input("x", (1, 16))
    for _ in range(count // 2):
        x = b.node("Tanh", b.node("Gemm", x, b.noise(16, 16), b.noise(16)))
    b.output(x, (1, 16))


def _head_products(b: Builder, count: int) -> None:
    """Products of one row after a convolution, which the blocked layout considers one by one."""
    image = b.node("Relu", b.node("Conv", b.input("x", (1, 16, 4, 4)), b.noise(16, 16, 1, 1), kernel_shape=(1, 1)))
    x = b.node("Flatten", b.node("GlobalAveragePool", image))
    for _ in range(count // 2):
        x = b.node("Tanh", b.node("Gemm", x, b.noise(16, 16), b.noise(16)))
    b.output(x, (1, 16))


def _convs(b: Builder, count: int) -> None:
    x = b.input("x", (1, 16, 28, 28))
    for _ in range(count // 2):
        x = b.node("Relu", b.node("Conv", x, b.noise(16, 16, 1, 1, scale=0.2), kernel_shape=(1, 1)))
    b.output(x, (1, 16, 28, 28))


def _dense(b: Builder, count: int) -> None:
    """Slices of a channel axis, each concatenated with all before, as in dense blocks; twelve layers per block."""
    x = b.input("x", (1, 8, 4, 4))
    while len(b.nodes) < count:
        parts = [x]
        for number in range(12):
            joined = b.node("Concat", *parts, axis=1) if number else x
            parts.append(b.node("Conv", joined, b.noise(8, 8 * (number + 1), 1, 1, scale=0.1), kernel_shape=(1, 1)))
        x = b.node("Tanh", parts[-1])
    b.output(x, (1, 8, 4, 4))


def _wide_concat(b: Builder, count: int) -> None:
    x = b.input("x", (2, 4))
    b.output(b.node("Concat", *[b.node("Mul", x, b.noise(4)) for _ in range(count)], axis=0), (2 * count, 4))


def _between_transposes(b: Builder, count: int) -> None:
    """Operators that may all move out from between two transposes, which then cancel."""
    x = b.node("Transpose", b.input("x", (2, 3, 4)), perm=[0, 2, 1])
    for number in range(count):
        x = b.node(("Sigmoid", "Tanh")[number % 2], x)
    b.output(b.node("Transpose", x, perm=[0, 2, 1]), (2, 3, 4))


def _split_to_concat(b: Builder, count: int) -> None:
    b.output(b.node("Concat", *_split(b, b.input("x", (count, 4)), count), axis=0), (count, 4))


def _equal_parts(b: Builder, count: int) -> None:
    """The same with parts whose sizes are not stated."""
    b.output(b.node("Concat", *_split(b, b.input("x", (count, 4)), count, stated=False), axis=0), (count, 4))


def _wide_split(b: Builder, count: int) -> None:
    parts = _split(b, b.input("x", (count, 4)), count)
    b.output(b.node("Concat", *[b.node("Relu", b.node("Identity", part)) for part in parts], axis=0), (count, 4))


def _squeezed_parts(b: Builder, count: int) -> None:
    """Parts that lose their axis: a `Gather` for each, all before one node."""
    axis = b.weight([0])
    parts = _split(b, b.input("x", (count, 4)), count, stated=False)
    b.output(b.node("Sum", *[b.node("Squeeze", part, axis) for part in parts]), (4,))


def _slices(b: Builder, count: int) -> None:
    """Single rows in reverse; a few hundred of them would become one `Gather`."""
    count *= 2
    x, axis = b.input("x", (count, 4)), b.weight([0])
    cuts = [b.node("Slice", x, b.weight([n]), b.weight([n + 1]), axis) for n in range(count)]
    b.output(b.node("Concat", *reversed(cuts), axis=0), (count, 4))


def _gathers(b: Builder, count: int) -> None:
    x = b.input("x", (count, 4))
    cuts = [b.node("Tanh", b.node("Gather", x, b.weight([n]), axis=0)) for n in range(count)]
    b.output(b.node("Concat", *cuts, axis=0), (count, 4))


def _outputs(b: Builder, count: int) -> None:
    x = b.input("x", (2, 4))
    for _ in range(count):
        b.output(b.node("Identity", b.node("Mul", x, b.noise(4))), (2, 4))


def _inputs(b: Builder, count: int) -> None:
    b.output(b.node("Sum", *[b.node("Identity", b.input(f"x{n}", (2, 4))) for n in range(count)]), (2, 4))


def _initializers(b: Builder, count: int) -> None:
    """Equal and different initializers, used once each, and as many without readers."""
    x = b.input("x", (2, 4))
    used = [b.weight(np.full(4, n % 7, np.float32)) for n in range(count)]
    for _ in range(count):
        b.weight(np.ones(4, np.float32))
    b.output(b.node("Sum", x, *used), (2, 4))


def _constants(b: Builder, count: int) -> None:
    """Many constant regions."""
    x = b.input("x", (2, 4))
    for _ in range(count // 3):
        x = b.node("Add", x, b.node("Tanh", b.node("Add", b.noise(4), b.noise(4))))
    b.output(x, (2, 4))


def _dead(b: Builder, count: int) -> None:
    x = b.input("x", (2, 4))
    y = x
    for _ in range(count):
        y = b.node("Tanh", y)
    b.output(b.node("Relu", x), (2, 4))


def _bodies(b: Builder, count: int) -> None:
    """Branches that capture the same outer values."""
    x = b.input("x", (2, 4))
    c = b.node("Cast", b.input("c", (1,)), to=TensorProto.BOOL)
    hub = b.node("Relu", x)
    for number in range(count // 3):
        branches = [_body(f"b{number}{which}", hub, x, op) for which, op in (("t", "Abs"), ("e", "Neg"))]
        node = NodeProto(op_type="If", name=f"if{number}", input=[c], output=[f"i{number}"])
        for name, body in zip(("then_branch", "else_branch"), branches, strict=True):
            node.attribute.append(AttributeProto(name=name, type=AttributeProto.GRAPH, g=body))
        b.nodes.append(node)
        x = f"i{number}"
    b.output(x, (2, 4))


def _old_branches(b: Builder, count: int) -> None:
    """Branches before opset 11, with a result that nobody reads."""
    _bodies(b, count)
    b.model.opset_import[0].version = 9
    for node in b.nodes:
        if node.op_type == "If":
            node.output.append(f"{node.name}unread")
            for attribute in node.attribute:
                told = attribute.g.output.add()
                told.CopyFrom(attribute.g.output[0])
                told.name = attribute.g.node[0].output[0]


def _body(name: str, hub: str, x: str, op: str) -> GraphProto:
    body = GraphProto(name=name)
    body.node.add(op_type=op, input=[hub], output=[f"{name}a"])
    body.node.add(op_type="Identity", input=[f"{name}a"], output=[f"{name}i"])
    body.node.add(op_type="Add", input=[f"{name}i", x], output=[f"{name}o"])
    info = body.output.add(name=f"{name}o").type.tensor_type
    info.elem_type = TensorProto.FLOAT
    for size in (2, 4):
        info.shape.dim.add(dim_value=size)
    return body


def _functions(b: Builder, count: int) -> None:
    """Functions of three nodes, each called once."""
    b.model.opset_import.add(domain="local", version=1)
    x = b.input("x", (2, 4))
    for number in range(count // 4):
        function = b.model.functions.add(name=f"f{number}", domain="local", input=["u"], output=["v"])
        function.opset_import.add(domain="", version=17)
        for op, source, result in (("Relu", "u", "a"), ("Identity", "a", "i"), ("Tanh", "i", "v")):
            function.node.add(op_type=op, input=[source], output=[result])
        b.nodes.append(NodeProto(op_type=f"f{number}", domain="local", input=[x], output=[f"c{number}"]))
        x = f"c{number}"
    b.output(x, (2, 4))


FAMILIES: dict[str, Callable[[Builder, int], None]] = {
    "fan-in": _fan_in, "fan-out": _fan_out, "diamonds": _diamonds, "reshapes": _reshapes,
    "reshapes apart": _reshapes_apart, "sequence": _sequence, "transposes": _transposes,
    "between transposes": _between_transposes, "products": _products,
    "head products": _head_products, "convolutions": _convs, "dense blocks": _dense, "wide concat": _wide_concat,
    "split to concat": _split_to_concat, "equal parts": _equal_parts, "wide split": _wide_split,
    "squeezed parts": _squeezed_parts, "slices": _slices,
    "gathers": _gathers, "outputs": _outputs, "inputs": _inputs, "initializers": _initializers,
    "constants": _constants, "dead": _dead, "bodies": _bodies, "old branches": _old_branches,
    "functions": _functions,
    **{f"chain of {op}": _chain(op) for op in ("Identity", "Relu", "Neg", "Exp", "Abs", "Floor")},
    **{f"chain of {op}": _chain(op) for op in _BINARY if op not in ("Concat", "PRelu")},
    **{f"chain of {op} by constants": _chain(op, constant=True) for op in ("Add", "Mul", "Sub", "Max", "Min", "PRelu")},
    "chain of Concat": _chain("Concat", axis=0),
    "chain of Cast": _chain("Cast", to=1),
    "chain of Softmax": _chain("Softmax", axis=-1),
}  # fmt: skip


def build(family: str, count: int) -> ModelProto:
    """A valid model of the family with about `count` nodes, or `count` of its characteristic parts."""
    builder = Builder()
    FAMILIES[family](builder, count)
    return builder.finish()


def _row(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """The result of two measurements; the first run of each is left out, since it imports modules."""
    if any("failed" in report for report in reports):
        return {"failed": next(report["failed"] for report in reports if "failed" in report)}
    small, large = (min(report["runs_s"][1:]) for report in reports)
    less, more = (report["peak_mb"] - report["import_mb"] for report in reports)
    return {
        "seconds": [small, large], "megabytes": [round(less, 1), round(more, 1)], "times": round(large / small, 2),
        "memory": round(more / max(less, 1), 2),
    }  # fmt: skip


def run(families: Sequence[str] | None, count: int, levels: Sequence[str], repeats: int) -> dict[str, Any]:
    """Measure each family at `count` and twice that, each in a separate process.

    Returns:
        By level and family: seconds and bytes at both sizes, and their ratios.
    """
    found: dict[str, Any] = {}
    for level in levels:
        for family in families or FAMILIES:
            reports = []
            for size in (count, 2 * count):
                with tempfile.TemporaryDirectory() as folder:
                    source, target = Path(folder) / "in.onnx", Path(folder) / "out.onnx"
                    source.write_bytes(build(family, size).SerializeToString())
                    reports.append(measure(f"graphopt_{level}", source, target, repeats, 120.0))
            row = _row(reports)
            found.setdefault(level, {})[family] = row
            mark = "" if "failed" in row or max(row["times"], row["memory"]) <= MOST else "  <- more than it may"
            print(f"{level} {family}: {row}{mark}", flush=True)
            results.save("growth", found)
    return found
