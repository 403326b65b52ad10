"""The `slim` of onnxslim, implemented by graphopt.

Differences: the interface is never changed, initializers that are inputs stay overridable, and `model_check` runs
with ONNX Runtime's optimizations off on inputs that expose errors. Options without a counterpart in graphopt raise a
`UsageError` if they are given, and are never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from graphopt.compat.interface import compared_on
from graphopt.errors import UsageError
from graphopt.ir import ExternalData
from graphopt.manager import PassManager

__version__ = "0.1.98"
"""The version with this interface; exporters print it, or require a minimum."""

_SKIPPED = {
    "constant_folding": ("fold_constants", "fold_shapes"),
    "dead_node_elimination": ("eliminate_identity", "eliminate_deadend"),
    "subexpression_elimination": ("eliminate_common_subexpression",),
    "weight_tying": ("eliminate_duplicate_initializer",),
}
"""onnxslim's names of optimizations to skip, with the corresponding passes."""


def slim(
    model: str | onnx.ModelProto, output_model: str | None = None, *, model_check: bool = False,
    input_shapes: Sequence[str] | None = None, no_shape_infer: bool = False,
    skip_optimizations: Sequence[str] | None = None, save_as_external_data: bool = False,
    model_check_inputs: Sequence[str] | Mapping[str, Any] | None = None, verbose: bool = False, **unsupported: Any,
) -> onnx.ModelProto | None:  # fmt: skip
    """Optimize a model.

    Args:
        model: a path or a `ModelProto`, which is not changed.
        output_model: a file to write.
        model_check: compare with the original; if they differ, None is returned and nothing is written.
        input_shapes: shapes like `input:1,3,224,224`.
        no_shape_infer: accepted; graphopt's inference cannot fail the run, so there is no need to skip it.
        skip_optimizations: names of onnxslim's optimizations; `graph_fusion` skips all fusions.
        save_as_external_data: put weights into a file beside the model.
        model_check_inputs: inputs to compare on: arrays by name, or texts like onnxslim's, `input:1,3,224,224` for a
            shape and `input:file.npy` for an array. Other inputs are generated.
        verbose: accepted; graphopt uses its `logging` logger.
        **unsupported: onnxslim's other options; None, which is their absence there, is accepted.

    Returns:
        The model; None if it was written to a file, or differs.

    Raises:
        UsageError: an option without a counterpart in graphopt.
    """
    if given := sorted(name for name, value in unsupported.items() if value is not None):
        raise UsageError(f"slim: {', '.join(given)} is not supported")
    skip = list(skip_optimizations or ())
    unknown = [name for name in skip if name not in {*_SKIPPED, "graph_fusion"}]
    if unknown:
        raise UsageError(
            f"slim: unknown optimization {unknown[0]!r}; expected some of {', '.join(_SKIPPED)}, graph_fusion"
        )
    manager = PassManager(
        passes="repeat({elimination/*,folding/*})" if "graph_fusion" in skip else None,
        skip=[name for each in skip for name in _SKIPPED.get(each, ())],
        shapes=dict(map(_shape, input_shapes or ())),
    )
    result = manager.run(model)
    if model_check or model_check_inputs is not None:
        from graphopt.verify import compare

        before = manager.as_optimized(model)
        if not compare(before, result.model, **compared_on(before, *_given(model_check_inputs or ()))).ok:
            return None
    if output_model is None:
        return result.model
    result.save(output_model, ExternalData() if save_as_external_data else None)
    return None


def _given(inputs: Sequence[str] | Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """The arrays and shapes for a comparison."""
    if isinstance(inputs, Mapping):
        return dict(inputs), {}
    shapes: dict[str, list[int]] = {}
    arrays: dict[str, Any] = {}
    for text in inputs:
        name, _, file = text.rpartition(":")
        if file.endswith(".npy"):
            arrays[name] = np.load(file)
        else:
            shapes.update([_shape(text)])
    return arrays, shapes


def _shape(text: str) -> tuple[str, list[int]]:
    name, _, sizes = text.rpartition(":")
    try:
        return name, [int(size) for size in sizes.split(",")]
    except ValueError:
        raise UsageError(f"slim: input shape {text!r}: expected something like input:1,3,224,224") from None
