"""Operands that a kernel writes into: such a value must not be shared with other readers.

The runtime lets some outputs alias the memory of an input. In training mode `BatchNormalization` updates mean and
variance in place, and attention with a cache appends to the keys and values that it reads. Operands that are equal
before may differ afterwards, so they are not merged, and a copy before such an operand is not removed.
"""

from __future__ import annotations

from graphopt.analysis.calls import called_function
from graphopt.errors import Decline
from graphopt.ir import Model, Node, Value

_CACHES: dict[str, tuple[int, ...]] = {
    "AdamOptimizer": (0, 1, 2, 3, 4), "AdamWOptimizer": (1, 2, 3, 4, 5), "Attention": (4,), "BatchNormInternal": (3, 4),
    "DecoderMaskedMultiHeadAttention": (5, 6), "DecoderMaskedSelfAttention": (4,), "GroupQueryAttention": (3, 4),
    "InPlaceAccumulator": (0,), "InPlaceAccumulatorV2": (0,), "LinearAttention": (3,), "MultiHeadAttention": (6, 7),
    "PagedAttention": (3, 4), "SGDOptimizer": (0, 1, 2), "SGDOptimizerV2": (1, 2), "SparseAttention": (3, 4),
}  # fmt: skip
"""Contrib operators, with the indices of the operands that they update."""

WRITTEN: dict[str, tuple[int, ...]] = {
    "BatchNormalization": (3, 4), "TensorScatter": (0,), **{f"com.microsoft::{op}": at for op, at in _CACHES.items()},
}  # fmt: skip
"""Operators whose kernels write into operands, with the indices of these."""


_VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators whose result may alias the memory of their operand, even of a constant."""


class Writers:
    """The operands that a model's nodes write into.

    For nearly all models, which have no such nodes, this is one pass over the operators: no rewrite adds training.
    """

    def __init__(self, model: Model) -> None:
        self._functions = {function.name: function for function in model.functions}
        self._inside: dict[str, frozenset[int]] = {}
        self.found = any(node.op in WRITTEN and self.written(node) for node in model.nodes())

    def written(self, node: Node) -> frozenset[int]:
        """The indices of the operands that a node writes into."""
        if node.op == "BatchNormalization":
            updates = node.attr("training_mode", 0) or sum(v is not None for v in node.outputs) > 1
            return frozenset(WRITTEN[node.op] if updates else ())
        if node.op in WRITTEN:
            return frozenset(WRITTEN[node.op])
        name = called_function(node)
        return self._of_function(name) if name else frozenset()

    def _of_function(self, name: str) -> frozenset[int]:
        known = self._inside.get(name)
        function = self._functions.get(name)
        if known is None and function is not None:
            self._inside[name] = frozenset()  # a recursive function is malformed
            inputs = function.inputs
            known = self._inside[name] = frozenset(i for i, value in enumerate(inputs) if self.writes_to(value))
        return known or frozenset()

    def writes_to(self, value: Value) -> bool:
        """Whether a reader writes into a value, or into a value that may alias its memory."""
        values = [value]
        for each in values:
            if any(node.input(at) is each for node in each.users for at in self.written(node)):
                return True
            values += [node.result for node in each.users if node.op in _VIEWS and node.input(0) is each]
        return False

    def check(self, old: Value, new: Value) -> None:
        """Check that the readers of one value may read another: none may write into a value with other readers.

        Args:
            old: the value that is replaced.
            new: its replacement.

        Raises:
            Decline: a reader does.
        """
        if not self.found:
            return
        if self.writes_to(old) and (new.uses or new.producer is None):
            raise Decline(
                "a reader of {} writes in place, so {} must not be shared", old.name, new.name or "a constant"
            )
        if old.uses and self.writes_to(new):
            raise Decline("a reader of {} writes in place, so it must not be shared", new.name)
