"""The interface of onnxoptimizer, implemented by graphopt's passes of the same names.

Differences: results are right where onnxoptimizer's are not (see the passes); models above 2 GiB and everything that
its representation lacks (metadata, sparse tensors, functions, training information) are preserved; `fixed_point`
reaches a true fixed point. All 48 names of release 0.4.2 work, and one that only its main branch has; the five passes
that change the interface or use non-standard features are in `graphopt.compat.interface`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import onnx

from graphopt.compat.interface import INTERFACE_PASSES
from graphopt.errors import UsageError
from graphopt.manager import PassManager
from graphopt.pipeline import registry

__version__ = "0.4.2"
"""The version with this interface; exporters print it, or require a minimum."""

_DEFAULT = (
    "nop", "eliminate_nop_cast", "eliminate_nop_dropout", "eliminate_nop_flatten", "extract_constant_to_initializer",
    "eliminate_consecutive_idempotent_ops", "eliminate_if_with_const_cond", "eliminate_nop_monotone_argmax",
    "eliminate_nop_pad", "eliminate_nop_concat", "eliminate_nop_split", "eliminate_nop_expand",
    "eliminate_shape_gather", "eliminate_slice_after_shape", "eliminate_nop_transpose", "fuse_add_bias_into_conv",
    "fuse_bn_into_conv", "fuse_consecutive_concats", "fuse_consecutive_log_softmax",
    "fuse_consecutive_reduce_unsqueeze", "fuse_consecutive_squeezes", "fuse_consecutive_transposes",
    "fuse_matmul_add_bias_into_gemm", "fuse_pad_into_conv", "fuse_pad_into_pool", "fuse_transpose_into_gemm",
    "fuse_concat_into_reshape", "eliminate_nop_reshape", "eliminate_nop_with_unit", "eliminate_common_subexpression",
    "fuse_qkv", "fuse_consecutive_unsqueezes", "eliminate_deadend", "eliminate_identity", "eliminate_shape_op",
    "fuse_consecutive_slices", "eliminate_unused_initializer", "eliminate_duplicate_initializer", "rewrite_where",
)  # fmt: skip
"""onnxoptimizer's default set, in its order."""

_NEWER = {"fuse_consecutive_squeeze_unsqueeze": "eliminate_squeeze_unsqueeze"}
"""Passes that onnxoptimizer's main branch has and its last release lacks, with graphopt's names."""

_COMMON, _DUPLICATE = "eliminate_common_subexpression", "eliminate_duplicate_initializer"
_MOST_ROUNDS = 10


def get_available_passes() -> list[str]:
    """Names that `optimize` accepts: onnxoptimizer's default set, the interface passes, then graphopt's own."""
    own = [name for name in registry().names() if name not in _DEFAULT]
    return [*get_fuse_and_elimination_passes(), *INTERFACE_PASSES, *_NEWER, *own]


def get_fuse_and_elimination_passes() -> list[str]:
    """The default set of `optimize`."""
    return [name for name in _DEFAULT if name == "nop" or name in registry()]


def optimize(model: onnx.ModelProto, passes: Sequence[str] | None = None, fixed_point: bool = False) -> onnx.ModelProto:
    """Apply passes to a model.

    Args:
        model: the model, which is not changed.
        passes: names, in order; `get_fuse_and_elimination_passes()` if None.
        fixed_point: repeat the whole list until nothing changes.

    Raises:
        UsageError: a name is unknown, or a pass that changes the interface is not applicable.
        ModelError: the model is broken.
    """
    if not isinstance(model, onnx.ModelProto):
        raise UsageError(f"optimize expects a ModelProto, found {type(model).__name__}")
    if isinstance(passes, str):
        raise UsageError(f"passes: expected a list of names, found {passes!r}")
    wanted = get_fuse_and_elimination_passes() if passes is None else passes
    names = _with_equal_constants([_NEWER.get(name, name) for name in wanted])
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for _ in range(_MOST_ROUNDS if fixed_point else 1):
        before = result.SerializeToString(deterministic=True) if INTERFACE_PASSES.keys() & set(names) else None
        for of_interface, group in groupby((name for name in names if name != "nop"), INTERFACE_PASSES.__contains__):
            if of_interface:
                for name in group:
                    INTERFACE_PASSES[name](result)
            else:
                text = ",".join(group)
                result = PassManager(passes=f"repeat({text})" if fixed_point else text).run(result).model
        if before is None or before == result.SerializeToString(deterministic=True):
            break
    return result


def _with_equal_constants(names: list[str]) -> list[str]:
    """The passes, with equal initializers merged before common subexpressions if both are requested.

    To find equal nodes onnxoptimizer compares constants by contents, graphopt by identity.
    """
    if not {_COMMON, _DUPLICATE} <= set(names):
        return names
    return [each for name in names for each in ((_DUPLICATE, name) if name == _COMMON else (name,))]


def check(model: onnx.ModelProto) -> None:
    """Check a model like onnxoptimizer's command."""
    onnx.checker.check_model(model)
