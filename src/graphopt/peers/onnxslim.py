"""onnxslim."""

from __future__ import annotations

from graphopt.peers import files
from graphopt.peers.base import Peer

_SWITCHES = ("constant_folding", "dead_node_elimination", "subexpression_elimination", "weight_tying")
_FUSION = "graph_fusion"


class OnnxSlim(Peer):
    """onnxslim with its default settings."""

    name = "onnxslim"
    distribution = "onnxslim"

    def load(self) -> None:
        """Import the peer."""
        import onnxslim  # noqa: F401  # imported before the timing starts

    def optimize(self, src: str, dst: str) -> None:
        """Slim."""
        import onnxslim

        files.save(onnxslim.slim(src), dst)

    def list_passes(self) -> list[str]:
        """Its switches, then its fusion patterns."""
        return [*_SWITCHES, *_patterns()]

    def run_one(self, src: str, dst: str, pass_name: str) -> None:
        """Run one switch or one pattern, with everything else skipped."""
        import onnxslim

        patterns = _patterns()
        kept = _FUSION if pass_name in patterns else pass_name
        model = onnxslim.slim(
            src,
            skip_optimizations=[name for name in (*_SWITCHES, _FUSION) if name != kept],
            skip_fusion_patterns=[name for name in patterns if name != pass_name],
        )
        files.save(model, dst)


def _patterns() -> list[str]:
    from onnxslim.core.pattern import registry

    return list(registry.DEFAULT_FUSION_PATTERNS)
