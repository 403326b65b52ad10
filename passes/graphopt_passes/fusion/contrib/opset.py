"""A newer opset, for an operator that only it has."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

from graphopt.match import FLOAT32, CompiledPattern, Either, Match, OpBuilder, Pattern, Var, compile_pattern
from graphopt.rewrite import Decline, GraphPass, Level, Model, Node, Rewriter
from graphopt_passes.fusion.contrib.normalization import check_sum, skip_layer_normalization
from graphopt_passes.fusion.contrib.operands import DOMAIN
from graphopt_passes.fusion.normalization import (
    LAYER,
    centered,
    last_sizes,
    layer_normalization,
    number_over_root_mean_square,
)

_NAME, _SKIP = "LayerNormalization", f"{DOMAIN}::SkipLayerNormalization"


class ConvertOpset(GraphPass):
    """Convert a model to opset 17 if it has a `LayerNormalization` written out, fused with a sum, or in an older opset.

    Opset 17 has that operator, and ONNX Runtime supports opset 17 since version 1.12. In older opsets it has only an
    operator of that name that does the same in one step, which models saved by it have and no checker accepts. All
    operators of the model are converted, as `graphopt convert` does, or none. A requested opset (`--opset`,
    `Options.keep_opset`) is kept.
    """

    ops = ("ReduceMean", _NAME, _SKIP)
    level = Level.EXTENDED
    needs = (("Div", "Mul", _NAME, _SKIP), ("Pow", "Sqrt", _NAME, _SKIP))
    opsets = f"7-{LAYER - 1}"
    late = True

    def run_model(self, model: Model, rw: Rewriter) -> None:
        node = next((node for graph in model.graphs() for node in graph if _is_normalization(node)), None)
        if node is None:
            return
        from graphopt.opsets import raise_opset  # imports the converters of all operators, which few models need

        with rw.attempt(node):
            if rw.options.keep_opset:
                raise Decline("keep_opset is set, so opset {} stays", model.opset())
            raise_opset(model, LAYER, rw)


def _is_normalization(node: Node) -> bool:
    """Whether a node is, or is the last node of, a normalization that opset 17 has one operator for."""
    if node.op == _NAME:
        return True
    if node.op not in _known().roots:
        return False
    with suppress(Decline):
        _known().match(node, _check, silent=True)
        return True
    return False


def _check(m: Match) -> None:
    if m.whole is not None:
        check_sum(m)
    else:
        last_sizes(m)


@lru_cache(maxsize=1)
def _known() -> CompiledPattern:
    def pattern(op: OpBuilder, skip: Pattern, gamma: Pattern, x: Pattern = FLOAT32) -> Pattern:
        number = number_over_root_mean_square(op, centered(op, x))
        return Either(layer_normalization(op, x), number, skip_layer_normalization(op, Var("x"), skip, gamma))

    return compile_pattern(pattern, ConvertOpset.name)
