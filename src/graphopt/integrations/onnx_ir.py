"""graphopt as a pass of onnx-ir, for its pass manager and tools built on it.

from graphopt.integrations.onnx_ir import OptimizePass

model = onnx_ir.passes.Sequential(OptimizePass("basic"), OtherPass())(model).model
"""

from __future__ import annotations

from typing import Unpack

import onnx_ir

from graphopt.ir import foreign
from graphopt.manager import PassManager, RunSettings
from graphopt.rewrite import Level


class OptimizePass(onnx_ir.passes.FunctionalPass):
    """Optimize a model; the given one is not changed, and shares its large weights with the result.

    Args:
        level: `basic`, `extended`, `layout` or `all`.
        **settings: see `graphopt.PassManager`.
    """

    def __init__(self, level: str | Level = Level.BASIC, **settings: Unpack[RunSettings]) -> None:
        super().__init__()
        self._manager = PassManager(level, **settings)

    def call(self, model: onnx_ir.Model) -> onnx_ir.passes.PassResult:
        """Run graphopt's passes."""
        result = self._manager.run(model)
        written = foreign.write(result.view, model)
        # A requested opset or size is not a rewrite of a pass.
        return onnx_ir.passes.PassResult(written, result.changed or _stated(written) != _stated(model))


def _stated(model: onnx_ir.Model) -> tuple[dict[str, int], list[tuple[str | None, onnx_ir.Shape | None]]]:
    """The opsets and the input shapes of a model."""
    return dict(model.opset_imports), [(value.name, value.shape) for value in model.graph.inputs]
