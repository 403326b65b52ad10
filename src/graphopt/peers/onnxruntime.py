"""ONNX Runtime's own graph optimizers, run offline."""

from __future__ import annotations

import base64
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from graphopt.peers import files
from graphopt.peers.base import Peer, data_file
from graphopt.system.sessions import LEVELS, open_session, weights_beside

# Rewrite rules run inside one transformer per level. They can be disabled by name like transformers, but no log or API
# lists them.
RULES: Mapping[int, tuple[str, ...]] = {
    1: (
        "EliminateIdentity", "EliminateSlice", "UnsqueezeElimination", "EliminateDropout", "ExpandElimination",
        "CastElimination", "CastChainElimination", "PreShapeNodeElimination", "NoopElimination", "DivMulFusion",
        "FuseReluClip", "GemmSumFusion", "GemmTransposeFusion", "NotWhereFusion", "ConvAddFusion", "ConvMulFusion",
        "ConvBNFusion", "Pad_Fusion", "MatMul_BatchNormalization_Fusion", "LabelEncoderFusion",
    ),
    2: ("ClipQuantRewrite", "ReluQuantRewrite", "GemmTransposeFusion"),
}  # fmt: skip
_LEVEL = re.compile(r"Applying \d+ graph transformer\(s\) for level (\d)")
_TRANSFORMER = re.compile(r"Applying graph transformer (\S+) on step 1\.")
_CAST_CHAINS = "optimization.enable_cast_chain_elimination"
_LARGE = 1_500_000_000  # bytes above which the optimized model might not fit into one file
# A model of one Relu, to create a session without building a proto.
_ONE_RELU = base64.b64decode("CAg6MwoMCgF4EgF5IgRSZWx1EgFnWg8KAXgSCgoICAESBAoCCAFiDwoBeRIKCggIARIECgIIAUIECgAQEQ==")


class OnnxRuntimeLevel(Peer):
    """ONNX Runtime up to one level, with its optimized model saved to a file."""

    distribution = "onnxruntime"
    level: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        self._known: tuple[tuple[int, str], ...] = ()

    def load(self) -> None:
        """Import the peer."""
        import onnxruntime as ort

        option = LEVELS[self.name.removeprefix("ort-")]
        if not hasattr(ort.GraphOptimizationLevel, option):
            raise RuntimeError(f"onnxruntime {ort.__version__} has no level {option}")

    def optimize(self, src: str, dst: str) -> None:
        """Create a session that saves its optimized model."""
        self._session(src, dst, [])

    def list_passes(self) -> list[str]:
        """Transformers up to this level, in the order of execution, with rule sets replaced by their rules."""
        found: list[str] = []
        for level, name in _transformers():
            if level <= self.level:
                found.extend(RULES.get(level, ()) if name == _rule_set(level) else [name])
        return list(dict.fromkeys(found))

    def prepare(self, pass_name: str) -> None:
        """Get the names of onnxruntime's transformers."""
        self._known = self._known or _transformers()

    def run_one(self, src: str, dst: str, pass_name: str) -> None:
        """Disable everything but one transformer or rule."""
        known = self._known or _transformers()
        kept = {pass_name} | {_rule_set(level) for level, rules in RULES.items() if pass_name in rules}
        names = [name for _, name in known] + [rule for rules in RULES.values() for rule in rules]
        config = {_CAST_CHAINS: "1"} if pass_name == "CastChainElimination" else {}
        self._session(src, dst, [name for name in dict.fromkeys(names) if name not in kept], config)

    def _session(self, src: str, dst: str, disabled: list[str], config: Mapping[str, str] | None = None) -> None:
        config = dict(config or {})
        if os.path.getsize(src) > _LARGE or files.has_external_data(src):
            config |= weights_beside(data_file(Path(dst)).name)
        level = self.name.removeprefix("ort-")
        open_session(src, level=level, config=config, save_as=dst, disabled=disabled)


class OrtBasic(OnnxRuntimeLevel):
    """ORT_ENABLE_BASIC."""

    name, level = "ort-basic", 1


class OrtExtended(OnnxRuntimeLevel):
    """ORT_ENABLE_EXTENDED."""

    name, level = "ort-extended", 2


class OrtLayout(OnnxRuntimeLevel):
    """ORT_ENABLE_LAYOUT: its output is only for similar machines."""

    name, level = "ort-layout", 3


class OrtAll(OnnxRuntimeLevel):
    """ORT_ENABLE_ALL: its output is only for similar machines."""

    name, level = "ort-all", 4


def _rule_set(level: int) -> str:
    return f"Level{level}_RuleBasedTransformer"


def _transformers() -> tuple[tuple[int, str], ...]:
    """(level, name) of every registered transformer, read from the verbose log of a session; worker process only."""
    with tempfile.TemporaryFile() as log:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            open_session(_ONE_RELU, level="all", verbose=True)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        log.seek(0)
        return tuple(_parse_log(log.read().decode(errors="replace")))


def _parse_log(text: str) -> Iterator[tuple[int, str]]:
    level = 0
    for line in text.splitlines():
        if found := _LEVEL.search(line):
            level = int(found[1])
        if found := _TRANSFORMER.search(line):
            yield level, found[1]
