"""onnxscript's optimizer."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphopt.peers.base import Peer, data_file

_FOLD = "FoldConstantsPass"
_PASSES = (
    "InlinePass",
    "RemoveUnusedNodesPass",
    "RemoveUnusedFunctionsPass",
    "RemoveUnusedOpsetsPass",
    "LiftConstantsToInitializersPass",
    "LiftSubgraphInitializersToMainGraphPass",
    "DeduplicateInitializersPass",
    "CommonSubexpressionEliminationPass",
    "IdentityEliminationPass",
)
_OPT_IN = (
    "AffineConvFusion",
    "ConvAffineFusion",
    "gemm_to_matmul_add_rule",
    "MatMulAddToGemm",
    "TransAMatMulAddToGemm",
    "TransBMatMulAddToGemm",
    "TransABMatMulAddToGemm",
)
"""Rules of the common set that the optimizer does not apply."""
_LARGE = 2**31 - 2**20


class OnnxScript(Peer):
    """`onnxscript.optimizer.optimize` with its default settings, on onnx-ir's lazily loaded tensors."""

    name = "onnxscript"
    distribution = "onnxscript"

    def load(self) -> None:
        """Import the peer."""
        import onnx_ir  # noqa: F401  # imported before the timing starts
        import onnxscript.optimizer  # noqa: F401  # imported before the timing starts

    def optimize(self, src: str, dst: str) -> None:
        """Optimize."""
        import onnxscript.optimizer

        _apply(src, dst, onnxscript.optimizer.optimize)

    def list_passes(self) -> list[str]:
        """Passes of onnx-ir that the optimizer uses, then rewrite rules, including the opt-in ones."""
        return [_FOLD, *_PASSES, *_rules()]

    def usual_passes(self) -> tuple[str, ...]:
        """All passes except the opt-in rules."""
        return tuple(name for name in self.passes() if name not in _OPT_IN)

    def run_one(self, src: str, dst: str, pass_name: str) -> None:
        """Run one pass or one rewrite rule."""
        _apply(src, dst, _action(pass_name))


def _action(pass_name: str) -> Callable[[Any], Any]:
    from onnx_ir.passes import common
    from onnxscript import optimizer, rewriter

    if not pass_name:
        return lambda _: None
    if pass_name == _FOLD:
        return optimizer.fold_constants
    if pass_name in _PASSES:
        chosen: Callable[[Any], Any] = getattr(common, pass_name)()
        return chosen
    rule = _rules()[pass_name]
    try:
        rules = rewriter.RewriteRuleSet([rule], commute=True)
    except AssertionError:  # operands of variadic operators cannot be commuted
        rules = rewriter.RewriteRuleSet([rule])
    return lambda model: rewriter.rewrite(model, rules)


def _rules() -> dict[str, Any]:
    """Every rewrite rule of the common set by its name, or by the name of its variable if it has none."""
    from onnxscript.rewriter import RewriteRule
    from onnxscript.rewriter.rules import common

    found: dict[str, Any] = {}
    seen: set[int] = set()
    for module in pkgutil.iter_modules(common.__path__):
        if module.name.endswith("_test"):
            continue
        for name, value in vars(importlib.import_module(f"{common.__name__}.{module.name}")).items():
            if isinstance(value, RewriteRule) and id(value) not in seen:
                seen.add(id(value))
                found[value.name or name] = value
    return found


def _apply(src: str, dst: str, action: Callable[[Any], Any]) -> None:
    import onnx_ir

    model = onnx_ir.load(src)
    result = action(model)
    model = result if isinstance(result, onnx_ir.Model) else getattr(result, "model", model)
    large = os.path.getsize(src) > _LARGE or _external(model)
    onnx_ir.save(model, dst, external_data=data_file(Path(dst)).name if large else None)


def _external(model: Any) -> bool:
    import onnx_ir

    tensors = [value.const_value for value in model.graph.initializers.values()]
    return any(isinstance(tensor, onnx_ir.ExternalTensor) for tensor in tensors)
