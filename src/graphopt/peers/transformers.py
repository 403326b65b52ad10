"""The fusions for transformer models that come with ONNX Runtime as Python code."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from graphopt.peers import files
from graphopt.peers.base import Peer


class OrtTransformers(Peer):
    """`onnxruntime.transformers.optimizer` for BERT-like models, without onnxruntime's own levels.

    Its fusions depend on one another and cannot run alone: it lists no passes.
    """

    name = "ort-transformers"
    distribution = "onnxruntime"

    def available(self) -> bool:
        """True when this onnxruntime brings the package along, and sympy, which no onnxruntime brings, is there."""
        spec = importlib.util.find_spec(self.distribution)
        if self.version is None or spec is None or spec.origin is None or not importlib.util.find_spec("sympy"):
            return False
        return (Path(spec.origin).parent / "transformers" / "optimizer.py").exists()

    @property
    def absent(self) -> str:
        """What is said where it is not installed."""
        return f"{self.name} is not installed (pip install onnxruntime sympy)"

    def load(self) -> None:
        """Import the peer."""
        import onnxruntime.transformers.optimizer  # noqa: F401  # to have it in memory before the clock starts

    def optimize(self, src: str, dst: str) -> None:
        """Fuse what the matchers for BERT find."""
        from onnxruntime.transformers import optimizer

        model = optimizer.optimize_model(src, model_type="bert", opt_level=0)
        external = files.initializer_bytes(model.model) > 2**31 - 2**20
        model.save_model_to_file(dst, use_external_data_format=external)
