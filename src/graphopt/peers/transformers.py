"""ONNX Runtime's fusions for transformer models, which are written in Python."""

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
        """Whether this onnxruntime includes the package, and sympy is installed, which no onnxruntime depends on."""
        spec = importlib.util.find_spec(self.distribution)
        if self.version is None or spec is None or spec.origin is None or not importlib.util.find_spec("sympy"):
            return False
        return (Path(spec.origin).parent / "transformers" / "optimizer.py").exists()

    @property
    def absent(self) -> str:
        """The message if it is not installed."""
        return f"{self.name} is not installed (pip install onnxruntime sympy)"

    def load(self) -> None:
        """Import the peer."""
        import onnxruntime.transformers.optimizer  # noqa: F401  # imported before the timing starts

    def optimize(self, src: str, dst: str) -> None:
        """Run the fusions for BERT."""
        from onnxruntime.transformers import optimizer

        model = optimizer.optimize_model(src, model_type="bert", opt_level=0)
        external = files.initializer_bytes(model.model) > 2**31 - 2**20
        model.save_model_to_file(dst, use_external_data_format=external)
