"""Models with an initializer that a caller may override where an operator reads a size, an axis or a count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.property.sized_operators import data, ints

NAME = "chosen"
"""The overridable initializer."""


@dataclass(slots=True)
class Choice:
    """One operator with one operand that a caller may choose.

    Attributes:
        op: the operator.
        opsets: opsets to try it at.
        operands: what each input holds; None where one is left out.
        index: which of them is the overridable one; what it holds is the default.
        others: other contents of the same shape.
        attrs: attributes, or for each opset from which on they hold.
        outputs: how many results there are.
    """

    op: str
    opsets: tuple[int, ...]
    operands: list[Any]
    index: int
    others: list[Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1


def _number(value: Any, kind: type = np.int64) -> np.ndarray:
    return np.array(value, kind)


def _floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


_X = data(2, 6)
_IMAGE = data(1, 2, 4, 6)
_ONE = data(1, 1, 3)
_BOXES = np.array([[[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]]], np.float32)
_SCORES = np.array([[[0.9, 0.8, 0.7]]], np.float32)
_NMS = [_BOXES, _SCORES, ints([2]), _floats(0.5), _floats(0.1)]
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

CHOICES = [
    Choice("Reshape", (5, 13, 14, 19), [_X, ints([3, 4])], 1, [ints([4, 3]), ints([-1, 2]), ints([12, 1])]),
    Choice("Reshape", (13,), [_X, ints([2, 6])], 1, [ints([6, 2]), ints([0, -1])]),
    Choice("Expand", (8, 13), [data(1, 3), ints([1, 3])], 1, [ints([4, 3]), ints([2, 1])]),
    Choice("Slice", (10, 11, 13), [_X, ints([0]), ints([9]), ints([0]), ints([1])], 1, [ints([1]), ints([-1])]),
    Choice("Slice", (10, 13), [_X, ints([0]), ints([9]), ints([1])], 2, [ints([2]), ints([-1])]),
    Choice("Slice", (10, 13), [_X, ints([0]), ints([1]), ints([0])], 3, [ints([1]), ints([-1])]),
    Choice("Slice", (10, 13), [_X, ints([0]), ints([9]), ints([1]), ints([1])], 4, [ints([2]), ints([3])]),
    Choice("Pad", (11, 13, 18, 21), [_X, ints([0, 0, 0, 0])], 1, [ints([0, 1, 0, 0]), ints([1, 0, 0, -2])]),
    Choice("Pad", (18, 21), [_X, ints([1, 0]), None, ints([0])], 3, [ints([1]), ints([-1])]),
    Choice("Split", (13, 18), [_X, ints([3, 3])], 1, [ints([2, 4]), ints([5, 1])], {"axis": 1}, 2),
    Choice("TopK", (10, 11), [_X, ints([6])], 1, [ints([1]), ints([3])], {}, 2),
    Choice("Range", (11,), [_number(0), _number(5), _number(1)], 0, [_number(2), _number(7)]),
    Choice("Range", (11,), [_number(0), _number(5), _number(1)], 1, [_number(2), _number(-1)]),
    Choice("Range", (11,), [_number(0), _number(5), _number(1)], 2, [_number(2), _number(-1)]),
    Choice("Range", (11,), [*_floats(0, 5, 1)], 1, [_number(2.5, np.float32)]),
    Choice("Resize", (10,), [_IMAGE, _floats(1, 1, 1, 1)], 1, [_floats(1, 1, 2, 0.5)]),
    Choice("Resize", (11, 13, 18), [_IMAGE, _floats(), _floats(1, 1, 1, 1)], 2, [_floats(1, 1, 2, 0.5)]),
    Choice("Resize", (13, 18), [_IMAGE, None, None, ints([1, 2, 4, 6])], 3, [ints([1, 2, 3, 9])]),
    Choice("Upsample", (9,), [_IMAGE, _floats(1, 1, 1, 1)], 1, [_floats(1, 1, 2, 3)]),
    Choice("OneHot", (9, 11), [ints([0, 1]), _number(3), _floats(0, 1)], 1, [_number(2), _number(5)]),
    Choice("Tile", (6, 13), [_X, ints([1, 1])], 1, [ints([2, 1]), ints([1, 3])]),
    Choice("Squeeze", (13, 21), [_ONE, ints([0])], 1, [ints([1])]),
    Choice("Unsqueeze", (13, 21), [_X, ints([0])], 1, [ints([2]), ints([1])]),
    *(
        Choice(f"Reduce{kind}", (13 if kind == "Sum" else 18, 20), [abs(_X) + 1, ints([0])], 1, [ints([1])], {"keepdims": keep})
        for kind in _REDUCTIONS
        for keep in (0, 1)
    ),
    Choice("ReduceSum", (13,), [data(1, 4), ints([0])], 1, [ints([1])]),
    Choice("ConstantOfShape", (9, 20), [ints([2, 3])], 0, [ints([1, 1]), ints([0, 2])]),
    Choice("Compress", (9, 11), [_X, np.array([True, True])], 1, [np.array([False, True])], {"axis": 0}),
    Choice("NonZero", (9, 13), [ints([1, 1])], 0, [ints([0, 1]), ints([0, 0])]),
    Choice("Unique", (11,), [ints([1, 2, 3])], 0, [ints([1, 1, 1])], {}, 3),
    Choice("NonMaxSuppression", (10, 11), _NMS, 0, [_BOXES * 0]),
    Choice("NonMaxSuppression", (11,), _NMS, 1, [_SCORES * 0]),
    Choice("NonMaxSuppression", (10, 11), _NMS, 2, [ints([0]), ints([1])]),
    Choice("NonMaxSuppression", (10, 11), _NMS, 3, [_floats(0.99)]),
    Choice("NonMaxSuppression", (10, 11), _NMS, 4, [_floats(0.85)]),
    Choice("Col2Im", (18,), [data(1, 4, 6), ints([2, 3]), ints([1, 1])], 1, [ints([3, 2])]),
    Choice("Col2Im", (18,), [data(1, 4, 6), ints([2, 3]), ints([1, 1])], 2, []),
    Choice("CenterCropPad", (18,), [_X, ints([2, 6])], 1, [ints([1, 8]), ints([3, 3])]),
    Choice("AffineGrid", (20,), [data(1, 2, 3), ints([1, 1, 3, 4])], 1, [ints([1, 1, 4, 2])]),
    Choice("STFT", (17,), [data(1, 16, 1), _number(4), None, _number(8)], 1, [_number(2)], {"onesided": 1}),
    Choice("STFT", (17,), [data(1, 16, 1), _number(4), _floats(*[1] * 8)], 2, [], {"onesided": 1}),
    Choice("STFT", (17,), [data(1, 16, 1), _number(4), None, _number(8)], 3, [_number(4)], {"onesided": 1}),
    Choice("DFT", (17, 20), [data(1, 4, 1), _number(4)], 1, [_number(2), _number(6)]),
    Choice("DFT", (20,), [data(4, 4, 1), None, _number(0)], 2, [_number(1)], {"onesided": 1}),
    *(Choice(op, (17,), [_number(4)], 0, [_number(7)]) for op in ("HannWindow", "HammingWindow", "BlackmanWindow")),
    Choice("MelWeightMatrix", (17,), [_number(2), _number(8), _number(8000), *_floats(0, 4000)], 0, [_number(3)]),
    Choice("MelWeightMatrix", (17,), [_number(2), _number(8), _number(8000), *_floats(0, 4000)], 1, [_number(16)]),
    Choice("MaxUnpool", (11,), [data(1, 1, 2, 2), ints(np.arange(4).reshape(1, 1, 2, 2)), ints([1, 1, 4, 4])], 2,
           [ints([1, 1, 5, 5])], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Choice("SplitToSequence", (11,), [_X, ints([2, 4])], 1, [ints([5, 1])], {"axis": 1}),
    Choice("SequenceAt", (11,), ["pieces", _number(0)], 1, [_number(1)]),
    Choice("SequenceErase", (11,), ["pieces", _number(0)], 1, [_number(1)]),
    Choice("SequenceInsert", (11,), ["pieces", _X, _number(0)], 2, [_number(1)]),
    Choice("StringSplit", (20,), [np.array(["a b", "c"], object)], 0, [np.array(["a b c", "d"], object)], {}, 2),
    Choice("If", (11, 13, 16), [np.array(True)], 0, [np.array(False)]),
    Choice("Loop", (11, 13, 16), [_number(2), np.array(True), _X], 0, [_number(0), _number(1)], {}, 2),
    Choice("Loop", (11, 16), [_number(2), np.array(True), _X], 1, [np.array(False)], {}, 2),
]  # fmt: skip
"""What is tried."""

WAYS = ("direct", "identity", "joined", "captured", "carried", "called")
"""How the operand reaches the operator: as it is, through other nodes, from a graph around it, as what a loop carries."""


def _node(choice: Choice, names: list[str], prefix: str) -> onnx.NodeProto:
    node = helper.make_node(choice.op, names, [f"{prefix}{i}" for i in range(choice.outputs)], **choice.attrs)
    if choice.op == "If":
        kept = helper.make_node("Neg", ["weight"], ["kept"])
        other = helper.make_node("Flatten", ["weight"], ["other"], axis=0)
        for key, inner in (("then_branch", kept), ("else_branch", other)):
            graph = helper.make_graph([inner], key, [], [helper.make_empty_tensor_value_info(inner.output[0])])
            node.attribute.append(helper.make_attribute(key, graph))
    if choice.op == "Loop":
        inner = [
            helper.make_node("Identity", ["go"], ["goes"]), helper.make_node("Concat", ["had", "weight"], ["has"], axis=0),
            helper.make_node("Neg", ["weight"], ["row"]),
        ]  # fmt: skip
        scalar = helper.make_tensor_value_info
        inputs = [
            scalar("round", TensorProto.INT64, []),
            scalar("go", TensorProto.BOOL, []),
            scalar("had", TensorProto.FLOAT, None),
        ]
        results = [helper.make_empty_tensor_value_info(name) for name in ("goes", "has", "row")]
        node.attribute.append(helper.make_attribute("body", helper.make_graph(inner, "body", inputs, results)))
    return node


class _Writer:
    """Writes one model around a choice."""

    def __init__(self, choice: Choice, opset: int) -> None:
        self.choice = choice
        self.imports = [helper.make_opsetid("", opset)]
        self.nodes: list[onnx.NodeProto] = []
        self.held = [numpy_helper.from_array(_X, "weight")]
        self.results = [f"y{i}" for i in range(choice.outputs)]
        self.functions: list[onnx.FunctionProto] = []
        default = np.asarray(choice.operands[choice.index])
        self.kind = helper.np_dtype_to_tensor_dtype(default.dtype)
        self.inputs = [
            helper.make_tensor_value_info("always", TensorProto.FLOAT, [1]),
            helper.make_tensor_value_info(NAME, self.kind, default.shape),
        ]

    def operands(self) -> list[str]:
        """The names of the operands."""
        names = []
        for index, operand in enumerate(self.choice.operands):
            name = "" if operand is None else NAME if index == self.choice.index else f"x{index}"
            names.append(name)
            if isinstance(operand, str):
                self.held.append(numpy_helper.from_array(data(1, 3), "smaller"))
                self.nodes.append(helper.make_node("SequenceConstruct", ["weight", "smaller"], [name]))
            elif operand is not None:
                self.held.append(numpy_helper.from_array(np.asarray(operand), name))
        return names

    def apply(self, way: str, names: list[str]) -> None:
        """Write the operator, reached that way."""
        if way in ("identity", "joined"):
            more = {"axis": 0} if way == "joined" else {}
            self.nodes.append(helper.make_node("Concat" if more else "Identity", [NAME], ["passed"], **more))
            names[self.choice.index] = "passed"
        ways = {"captured": self._captured, "carried": self._carried, "called": self._called}
        self.nodes.append(ways[way](names) if way in ways else _node(self.choice, names, "y"))

    def _captured(self, names: list[str]) -> onnx.NodeProto:
        self.held.append(numpy_helper.from_array(np.array(True), "yes"))
        self.inputs.append(helper.make_tensor_value_info("yes", TensorProto.BOOL, []))
        branches = {}
        for key in ("then_branch", "else_branch"):
            node = _node(self.choice, names, key)
            results = [helper.make_empty_tensor_value_info(name) for name in node.output]
            branches[key] = helper.make_graph([node], key, [], results)
        return helper.make_node("If", ["yes"], self.results, **branches)

    def _carried(self, names: list[str]) -> onnx.NodeProto:
        given = [*names]
        given[self.choice.index] = "had"
        node = _node(self.choice, given, "part")
        nodes = [helper.make_node("Identity", ["go"], ["goes"]), helper.make_node("Identity", ["had"], ["has"]), node]
        info = helper.make_tensor_value_info
        inputs = [info("round", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("had", self.kind, None)]
        results = [helper.make_empty_tensor_value_info(name) for name in ("goes", "has", *node.output)]
        self.held += [numpy_helper.from_array(_number(1), "once"), numpy_helper.from_array(np.array(True), "yes")]
        body = helper.make_graph(nodes, "body", inputs, results)
        return helper.make_node("Loop", ["once", "yes", NAME], ["end", *self.results], body=body)

    def _called(self, names: list[str]) -> onnx.NodeProto:
        given = [name for name in names if name]
        node = _node(self.choice, names, "y")
        self.functions.append(helper.make_function("f", "Call", given, self.results, [node], [*self.imports]))
        self.imports.append(helper.make_opsetid("f", 1))
        return helper.make_node("Call", given, self.results, domain="f")

    def read(self) -> list[str]:
        """Write what is folded from the sizes of the results; returns the outputs of the model."""
        if self.choice.op in _SEQUENCES:
            self.nodes.append(helper.make_node("SequenceLength", self.results, ["length"]))
            return [*self.results, "length"]
        outputs = [*self.results]
        for name in self.results:
            for op in ("Shape", "Size"):
                self.nodes.append(helper.make_node(op, [name], [f"{name}_{op}"]))
                outputs.append(f"{name}_{op}")
            if self.choice.op not in ("StringSplit", "NonMaxSuppression"):
                self.nodes.append(helper.make_node("Identity", [name], [f"{name}_same"]))
                self.nodes.append(helper.make_node("Flatten", [f"{name}_same"], [f"{name}_flat"], axis=0))
                outputs.append(f"{name}_flat")
        return outputs


_SEQUENCES = ("SplitToSequence", "SequenceErase", "SequenceInsert")


def model(choice: Choice, opset: int, way: str) -> onnx.ModelProto:
    """The operator, with the sizes of its results and what is folded from them as outputs too."""
    writer = _Writer(choice, opset)
    writer.apply(way, writer.operands())
    outputs = [helper.make_value_info(name, onnx.TypeProto()) for name in writer.read()]
    graph = helper.make_graph(writer.nodes, "g", writer.inputs, outputs, writer.held)
    return helper.make_model(graph, opset_imports=writer.imports, ir_version=8, functions=writer.functions)


def cases() -> Iterator[tuple[str, Choice, onnx.ModelProto]]:
    """Every choice at every opset by every way that fits it."""
    for number, choice in enumerate(CHOICES):
        default = np.asarray(choice.operands[choice.index])
        control = choice.op in ("If", "Loop", "SplitToSequence") or "pieces" in [
            o for o in choice.operands if isinstance(o, str)
        ]
        vector = default.ndim == 1 and default.dtype != bool
        for opset in choice.opsets:
            for way in WAYS:
                if (way == "joined" and not vector) or (control and way in WAYS[3:]):
                    continue
                if way == "carried" and (choice.op == "NonZero" or opset < 11):
                    continue
                yield f"{number}-{choice.op}-{opset}-{way}", choice, model(choice, opset, way)
