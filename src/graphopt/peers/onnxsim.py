"""onnxsim."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from graphopt.peers import files
from graphopt.peers.base import Peer
from graphopt.peers.counterparts import ONNXSIM, ONNXSIM_UNLISTED

_FOLDING = "constant_folding"


class OnnxSim(Peer):
    """onnxsim with its default settings, from file to file.

    One pass alone runs beside onnxsim's shape inference, without which most of its passes see nothing.
    """

    name = "onnxsim"
    distribution = "onnxsim"
    counterparts: ClassVar[Mapping[str, str]] = ONNXSIM

    def load(self) -> None:
        """Import the peer."""
        import onnxsim  # noqa: F401

    def optimize(self, src: str, dst: str) -> None:
        """Simplify."""
        _simplify(src, dst)

    def list_passes(self) -> list[str]:
        """Its default passes, its own passes that no list of it names, constant folding, and the opt-in passes."""
        default, others = _lists()
        return list(dict.fromkeys([_FOLDING, *default, *ONNXSIM_UNLISTED, *others]))

    def run_one(self, src: str, dst: str, pass_name: str) -> None:
        """Run one pass, all the others skipped."""
        default, others = _lists()
        usual = [*default, *ONNXSIM_UNLISTED]
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
