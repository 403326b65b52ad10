"""onnxsim."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from graphopt.peers import files
from graphopt.peers.base import Peer

_FOLDING = "constant_folding"

# Passes that onnxsim runs by default and can skip by name, but does not list.
_UNLISTED = (
    "eliminate_loop_with_const_trip_count",
    "eliminate_nop_reduce",
    "eliminate_nop_softmax",
    "eliminate_optional_get_element",
    "eliminate_optional_has_element",
    "eliminate_reshape_around_elementwise",
    "eliminate_reshape_family_on_constant",
    "eliminate_sequence_at_construct",
    "eliminate_sequence_length_construct",
    "fuse_attention",
    "fuse_consecutive_mul",
    "fuse_consecutive_reduce",
    "fuse_consecutive_reshapes",
    "fuse_gelu",
    "fuse_gqa",
    "fuse_layer_norm",
    "fuse_lp_normalization",
    "fuse_matmul_add_bias_into_gemm_batched",
    "fuse_mul_into_conv",
    "fuse_preceding_mul_into_conv",
    "fuse_reshape_family",
    "fuse_rms_norm",
    "fuse_rope",
    "fuse_split_gather_concat",
    "rewrite_arg_reduce_select_last_index",
    "rewrite_bool_where",
)


class OnnxSim(Peer):
    """onnxsim with its default settings, from file to file.

    A single pass runs together with onnxsim's shape inference, without which most of its passes match nothing.
    """

    name = "onnxsim"
    distribution = "onnxsim"

    def load(self) -> None:
        """Import the peer."""
        import onnxsim  # noqa: F401  # imported before the timing starts

    def optimize(self, src: str, dst: str) -> None:
        """Simplify."""
        _simplify(src, dst)

    def list_passes(self) -> list[str]:
        """Its default passes, its unlisted passes, constant folding, and the opt-in passes."""
        default, others = _lists()
        return list(dict.fromkeys([_FOLDING, *default, *_UNLISTED, *others]))

    def usual_passes(self) -> tuple[str, ...]:
        """Without the opt-in passes, which come last: quantization is not a fault of a simplification."""
        names = self.passes()
        usual = [place for place, name in enumerate(names) if name in _UNLISTED]
        return names[: usual[-1] + 1] if usual else names

    def run_one(self, src: str, dst: str, pass_name: str) -> None:
        """Run one pass, with all others skipped."""
        default, others = _lists()
        usual = [*default, *_UNLISTED]
        options: dict[str, Any] = {
            "skipped_optimizers": [name for name in usual if name != pass_name],
            "skip_constant_folding": pass_name != _FOLDING,
        }
        if pass_name in others and pass_name not in usual:
            options["extra_optimizers"] = [pass_name]
        _simplify(src, dst, **options)


def _simplify(src: str, dst: str, **options: Any) -> None:
    import onnxsim

    if "output_path" in inspect.signature(onnxsim.simplify).parameters:
        model, valid = onnxsim.simplify(src, output_path=dst, **options)
        if not Path(dst).exists():
            files.save(model, dst)
    else:
        model, valid = onnxsim.simplify(files.load(src), **options)
        files.save(model, dst)
    if not valid:
        raise RuntimeError("onnxsim's own check of the result failed")


def _lists() -> tuple[list[str], list[str]]:
    """The default and the opt-in passes, as far as this version can list them."""
    from onnxsim import onnxsim_cpp2py_export as native

    default: list[str] = list(getattr(native, "_list_optimizers", list)())
    others: list[str] = list(getattr(native, "_list_other_optimizers", list)())
    return default, others
