"""onnxoptimizer."""

from __future__ import annotations

from graphopt.peers import files
from graphopt.peers.base import Peer


class OnnxOptimizer(Peer):
    """onnxoptimizer with its default passes, repeated to a fixed point."""

    name = "onnxoptimizer"
    distribution = "onnxoptimizer"

    def load(self) -> None:
        """Import the peer."""
        import onnxoptimizer  # noqa: F401  # imported before the timing starts

    def optimize(self, src: str, dst: str) -> None:
        """Run the default passes to a fixed point."""
        import onnxoptimizer

        files.save(onnxoptimizer.optimize(files.load(src), None, fixed_point=True), dst)

    def list_passes(self) -> list[str]:
        """All passes, including those outside the default set."""
        import onnxoptimizer

        return list(onnxoptimizer.get_available_passes())

    def run_one(self, src: str, dst: str, pass_name: str) -> None:
        """Run one pass to its fixed point."""
        import onnxoptimizer

        files.save(onnxoptimizer.optimize(files.load(src), [pass_name or "nop"], fixed_point=True), dst)
