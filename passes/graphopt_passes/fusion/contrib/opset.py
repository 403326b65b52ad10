"""A newer opset, for an operator that only it has."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

from onnx import TensorProto

from graphopt.match import CompiledPattern, Var, compile_pattern
from graphopt.rewrite import Decline, GraphPass, Level, Model, Node, Rewriter
from graphopt_passes.fusion.contrib.operands import DOMAIN
from graphopt_passes.fusion.normalization import LAYER, last_sizes, layer_normalization

_SKIP = f"{DOMAIN}::SkipLayerNormalization"


class ConvertOpset(GraphPass):
    """Bring a model to opset 17 where it has `LayerNormalization` written out, or joined with a sum.

    Opset 17 has that operator, and ONNX Runtime has had opset 17 since version 1.12; in older opsets nothing that it
    runs does the same in one step. All operators of the model are converted, as `graphopt convert` does, or none. An
    opset that was asked for (`--opset`, `Options.keep_opset`) is kept.
    """

    ops = ("ReduceMean", _SKIP)
    level = Level.EXTENDED
    needs = (("Div", "Mul", _SKIP), ("Pow", "Sqrt", _SKIP))
    opsets = f"7-{LAYER - 1}"
    late = True

    def run_model(self, model: Model, rw: Rewriter) -> None:
        node = next((node for graph in model.graphs() for node in graph if _is_normalization(node)), None)
        if node is None:
            return
        from graphopt.opsets import raise_opset  # with the steps of all operators, which few models need

        rw.begin(self.name, node)
        with rw.attempt(node):
            if rw.options.keep_opset:
                raise Decline("opset {} is to be kept", model.opset())
            raise_opset(model, LAYER, rw)


def _is_normalization(node: Node) -> bool:
    """Whether a node ends what is one operator from opset 17 on."""
    if node.op == _SKIP:
        return True
    if node.op not in _written_out().roots:
        return False
    with suppress(Decline):
        _written_out().match(node, last_sizes, silent=True)
        return True
    return False


@lru_cache(maxsize=1)
def _written_out() -> CompiledPattern:
    return compile_pattern(lambda op: layer_normalization(op, Var("x", dtype=TensorProto.FLOAT)), ConvertOpset.name)
