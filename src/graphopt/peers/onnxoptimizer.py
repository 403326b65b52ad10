"""onnxoptimizer."""

from __future__ import annotations

from graphopt.peers import files
from graphopt.peers.base import Peer


class OnnxOptimizer(Peer):
    """onnxoptimizer with its default passes, repeated until none of them changes anything."""

    name = "onnxoptimizer"
    distribution = "onnxoptimizer"

    def load(self) -> None:
        """Import the peer."""
        import onnxoptimizer  # noqa: F401  # to have it in memory before the clock starts

    def optimize(self, src: str, dst: str) -> None:
        """Run the default passes to a fixed point."""
        import onnxoptimizer

        files.save(onnxoptimizer.optimize(files.load(src), None, fixed_point=True), dst)

    def list_passes(self) -> list[str]:
        """All passes, those outside the default set included."""
        import onnxoptimizer

        return list(onnxoptimizer.get_available_passes())

    def run_one(self, src: str, dst: str, pass_name: str) -> None:
        """Run one pass to its fixed point."""
        import onnxoptimizer

        files.save(onnxoptimizer.optimize(files.load(src), [pass_name or "nop"], fixed_point=True), dst)
