"""Sizes that depend on overridable initializers, that is initializers that are graph inputs too."""

from __future__ import annotations

from collections.abc import Iterable

from graphopt.ir import Graph, Model, Node, TensorType, Value
from graphopt.ir.flush import IR_WITH_FREE_INITIALIZERS

SIZE_OPERANDS: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,), "BlackmanWindow": (0,), "CenterCropPad": (1,), "Col2Im": (1, 2), "Compress": (1,),
    "ConstantOfShape": (0,), "DFT": (1, 2), "Expand": (1,), "HammingWindow": (0,), "HannWindow": (0,), "If": (0,),
    "Loop": (0, 1), "MaxUnpool": (2,), "MelWeightMatrix": (0, 1), "NonMaxSuppression": (0, 1, 2, 3, 4),
    "NonZero": (0,), "OneHot": (1,), "Pad": (1, 3), "Range": (0, 1, 2), "Reshape": (1,), "Resize": (1, 2, 3),
    "STFT": (1, 2, 3), "SequenceAt": (1,), "SequenceErase": (1,), "SequenceInsert": (2,), "Slice": (1, 2, 3, 4),
    "Split": (1,), "SplitToSequence": (1,), "Squeeze": (1,), "StringSplit": (0,), "Tile": (1, 2), "TopK": (1,),
    "Unique": (0,), "Unsqueeze": (1,), "Upsample": (1,),
    **{
        f"Reduce{kind}": (1,)
        for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
}  # fmt: skip
"""Standard operators whose result sizes depend on the contents of operands, with the indices of these."""


def is_default(value: Value) -> bool:
    """Whether an initializer is overridable: only the default of an input that the caller, or a body's owner, may set.

    Before IR version 4, every initializer of the main graph has to be an input, and no runtime lets a caller set it.
    """
    if not value.is_input:
        return False
    return value.graph.owner is not None or value.graph.model.ir_version >= IR_WITH_FREE_INITIALIZERS


def are_misread(values: Iterable[Value | None]) -> bool:
    """Whether inference may state sizes of values that are not known: it takes an overridable initializer for constant.

    So a checker may refuse what reads them, although a caller would set other sizes.
    """
    known = [value for value in values if value is not None]
    unknown = not all(isinstance(value.type, TensorType) and value.type.static for value in known)
    return unknown and any(
        value.tensor is not None and is_default(value) for value in known[0].graph.model.graph.inputs
    )


class CallersChoice:
    """The values of a model whose contents or sizes depend on overridable initializers."""

    def __init__(self, model: Model) -> None:
        """Visit the main graph and its subgraphs."""
        self.contents = {value for value in model.graph.initializers if is_default(value)}
        self.sizes: set[Value] = set()
        if self.contents:
            self._graph(model.graph)

    def sizes_any(self, node: Node) -> bool:
        """Whether the result sizes of an unknown operator may depend on overridable initializers.

        Weights do not count: an operator derives no size from fractional numbers.
        """
        read = [value for value in node.inputs if value is not None]
        return any(v in self.sizes or (v in self.contents and v.dtype not in _WEIGHTS) for v in read)

    def _graph(self, graph: Graph) -> None:
        for node in graph:
            if node.subgraphs:
                self._owner(node)
                continue
            read = [value for value in node.inputs if value is not None]
            results = [value for value in node.outputs if value is not None]
            if any(v in self.contents or v in self.sizes for v in read):
                self.contents.update(results)
            if self._decides_sizes(node, read):
                self.sizes.update(results)

    def _decides_sizes(self, node: Node, read: list[Value]) -> bool:
        if any(value in self.sizes for value in read):
            return True
        if node.domain or node.schema is None:
            return self.sizes_any(node)
        operands = (node.input(index) for index in SIZE_OPERANDS.get(node.op, ()))
        return any(value in self.contents for value in operands)

    def _owner(self, node: Node) -> None:
        """Control flow: if any value depends on overridable initializers, all inputs and outputs do."""
        before = len(self.contents) + len(self.sizes)
        chosen = any(value in self.contents or value in self.sizes for value in node.inputs)
        for graph in node.subgraphs.values():
            if chosen:
                self.contents.update(graph.inputs)
                self.sizes.update(graph.inputs)
            self._graph(graph)
        if chosen or len(self.contents) + len(self.sizes) > before:
            results = [value for value in node.outputs if value is not None]
            self.contents.update(results)
            self.sizes.update(results)


_WEIGHTS = frozenset({1, 10, 11, 16})
"""Element types of weights: float32, float16, double and bfloat16."""
