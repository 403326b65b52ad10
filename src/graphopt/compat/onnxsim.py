"""The `simplify` of onnxsim, implemented by graphopt.

Differences: with `check_n` the comparison runs with ONNX Runtime's optimizations off and on inputs with negatives,
zeros and extremes instead of numbers from 0 to 1; initializers that are inputs stay overridable; metadata is kept.
Options without a counterpart in graphopt raise a `UsageError` if they are given, and are never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from graphopt.compat.interface import compared_on
from graphopt.errors import UsageError
from graphopt.manager import PassManager
from graphopt.pipeline import registry
from graphopt.rewrite import Options

__version__ = "0.8.1"
"""The version with this interface; exporters print it, or require a minimum."""

_FOLDING = ("fold_constants", "fold_shapes")
_BN = ("fuse_bn_into_conv",)


def simplify(
    model: str | Path | onnx.ModelProto, check_n: int = 0, perform_optimization: bool = True,
    skip_fuse_bn: bool = False, overwrite_input_shapes: Mapping[str, Sequence[int]] | None = None,
    test_input_shapes: Mapping[str, Sequence[int]] | None = None, skipped_optimizers: Sequence[str] | None = None,
    skip_constant_folding: bool = False, skip_shape_inference: bool = False,
    input_data: Mapping[str, Any] | None = None, dynamic_input_shape: bool = False, *,
    inline_functions: bool = False, input_shapes: Mapping[str, Sequence[int]] | None = None,
    include_subgraph: bool = True, mutable_initializer: bool = True, **unsupported: Any,
) -> tuple[onnx.ModelProto, bool]:  # fmt: skip
    """Simplify a model.

    Args:
        model: a path or a `ModelProto`, which is not changed.
        check_n: how often to compare original and result; 0 for no comparison.
        perform_optimization: run eliminations and fusions, not only folding.
        skip_fuse_bn: do not fuse BatchNormalization into Conv.
        overwrite_input_shapes: fixed shapes for inputs.
        test_input_shapes: shapes to test with, for symbolic dimensions.
        skipped_optimizers: names of passes to leave out.
        skip_constant_folding: do not fold constants.
        skip_shape_inference: accepted; graphopt's inference cannot fail the run, so there is no need to skip it.
        input_data: inputs to test with.
        dynamic_input_shape: accepted; symbolic shapes always stay symbolic.
        inline_functions: replace calls of model-local functions by their bodies.
        input_shapes: the same as `overwrite_input_shapes`.
        include_subgraph: accepted; subgraphs are always optimized.
        mutable_initializer: accepted when true; initializers that are inputs always stay overridable.
        **unsupported: onnxsim's other options; None, which is their absence there, is accepted.

    Returns:
        The simplified model, and whether the comparison agreed (True if none was requested).

    Raises:
        UsageError: an option without a counterpart in graphopt.
    """
    given = sorted(name for name, value in unsupported.items() if value is not None)
    if given or not include_subgraph or not mutable_initializer:
        wrong = ", ".join(given) or ("include_subgraph=False" if not include_subgraph else "mutable_initializer=False")
        raise UsageError(f"simplify: {wrong} is not supported")
    skip = [*(skipped_optimizers or ()), *(_BN if skip_fuse_bn else ()), *(_FOLDING if skip_constant_folding else ())]
    known = [name for name in dict.fromkeys(skip) if name in registry()]
    passes = None if perform_optimization else "repeat({folding/*})"
    manager = PassManager(
        passes=passes, skip=known, shapes=overwrite_input_shapes or input_shapes,
        options=Options(inline_functions=inline_functions),
    )  # fmt: skip
    result = manager.run(model)
    if not check_n:
        return result.model, True
    from graphopt.verify import compare

    before = manager.as_optimized(model)
    run = partial(compare, before, result.model, **compared_on(before, input_data or {}, test_input_shapes or {}))
    return result.model, all(run(seed=seed).ok for seed in range(check_n))
