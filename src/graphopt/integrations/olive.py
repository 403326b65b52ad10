"""graphopt as a pass of Olive's workflows.

The package configuration names the class (docs/how-to/other-tools.md); in a workflow's JSON it is then a pass:

    {"passes": {"smaller": {"type": "Graphopt", "level": "extended", "numerics": "rounding"}}}
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from olive.hardware.accelerator import AcceleratorSpec
from olive.model import ONNXModelHandler
from olive.model.utils import resolve_onnx_path
from olive.passes import Pass
from olive.passes.pass_config import BasePassConfig, PassConfigParam

from graphopt.ir import ExternalData
from graphopt.manager import optimize_file


class Graphopt(Pass):
    """Optimize an ONNX model with graphopt."""

    @classmethod
    def _default_config(cls, accelerator_spec: AcceleratorSpec) -> dict[str, PassConfigParam]:
        return {
            "level": PassConfigParam(type_=str, default_value="basic", description="basic, extended, layout or all."),
            "passes": PassConfigParam(
                type_=list[str], default_value=None, description="Pass names, in place of the level's."
            ),
            "skip": PassConfigParam(type_=list[str], default_value=None, description="Passes to leave out."),
            "numerics": PassConfigParam(type_=str, default_value="rounding", description="exact, rounding or fast."),
            "target": PassConfigParam(type_=str, default_value=None, description="The machine for layout passes."),
            "verify": PassConfigParam(type_=bool, default_value=False, description="Compare with the original."),
            "save_as_external_data": PassConfigParam(
                type_=bool, default_value=False, description="Put weights into a file beside the model."
            ),
        }

    def _run_for_config(
        self, model: ONNXModelHandler, config: type[BasePassConfig], output_model_path: str
    ) -> ONNXModelHandler:
        settings: Any = config
        path = Path(resolve_onnx_path(output_model_path, Path(model.model_path).name))
        path.parent.mkdir(parents=True, exist_ok=True)
        optimize_file(
            model.model_path, path, settings.level, passes=settings.passes, skip=settings.skip or [],
            numerics=settings.numerics, target=settings.target, verify=settings.verify,
            external_data=ExternalData() if settings.save_as_external_data else None,
        )  # fmt: skip
        if any(each.name != path.name for each in path.parent.iterdir()):  # its weights are beside it
            return ONNXModelHandler(model_path=os.fspath(path.parent), onnx_file_name=path.name)
        return ONNXModelHandler(model_path=os.fspath(path))
