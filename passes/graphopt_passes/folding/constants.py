"""Folding nodes whose inputs are constant."""

from __future__ import annotations

from typing import ClassVar

from graphopt.analysis.budget import Allowance, constant_bytes
from graphopt.analysis.evaluate import Policy, evaluate, plan
from graphopt.rewrite import Graph, GraphPass, Level, Model, Numerics, Options, Rewriter
from graphopt_passes.folding.store import store

GROWTH_KEY = "graphopt.folding"
"""The key in `metadata_props` of the bytes that folding added and started from, if that blocked a result."""


class FoldConstants(GraphPass):
    """Fold nodes whose inputs are all constant into initializers.

    A result above 64 KiB is stored only if it takes at most `max_growth` times the constants that it replaces, or less
    than 1/16 of all weights, at most 16 MiB. The model grows by no more than that, or 1 MiB, in all; if this limit
    blocked a result, the model's metadata (`graphopt.folding`) records the bytes spent, so that another run adds no
    more. Weights are quantized, but never dequantized; random and custom operators and control flow are not folded,
    and in bodies, which may never run, only small results are. Results equal those of ONNX Runtime's kernels bit for
    bit; a reader of the new constant may still select another kernel, which rounds differently.
    """

    numerics = Numerics.ROUNDING
    peers = {
        "onnxsim": ("constant_folding", "eliminate_reshape_family_on_constant"),
        "onnxruntime": ("ConstantFolding", "UnsqueezeElimination", "FuseFp16InitializerToFp32NodeTransformer"),
        "onnxslim": "constant_folding",
        "onnxscript": "FoldConstantsPass",
    }

    growth_key: ClassVar[str] = GROWTH_KEY

    def run_model(self, model: Model, rw: Rewriter) -> None:
        """Fold every graph, outer graphs first, since inner ones read their constants; all share one allowance."""
        events = len(rw.log.events)
        spent, weights = self._account(model, rw)
        allowance = self.allowance(weights, spent, rw.options)
        for graph in self.entered(model, rw, outer_first=True):
            self._fold(graph, rw, allowance)
        now = self._account(model, rw)[0] if len(rw.log.events) > events else spent
        if now > 0 and allowance.refuses_more_than(self.allowance(constant_bytes(model.graphs()), 0, rw.options)):
            rw.set_metadata(self.growth_key, f"{now} added to {weights}")

    @staticmethod
    def allowance(weights: int, spent: int, options: Options) -> Allowance:
        """How much a model may still grow, given the bytes of its original constants, and those spent."""
        return Allowance.of(weights, spent)

    def _fold(self, graph: Graph, rw: Rewriter, allowance: Allowance) -> None:
        """Fold all constant regions of a graph at once."""
        options = rw.options
        region = plan(graph, Policy(options.max_folded_bytes, options.max_growth, options.fold_qdq), allowance)
        results = evaluate(region) if region.roots else {}
        for node, reason in region.declined.items() if rw.log.listen else ():
            rw.note(self.name, node, reason)
        for node in reversed(region.roots):
            if not node.removed and all(v in results for v in node.results):
                with rw.attempt(node):
                    store(rw, node, [None if v is None else results[v] for v in node.outputs])

    def _account(self, model: Model, rw: Rewriter) -> tuple[int, int]:
        """The bytes added to a model, including earlier runs, and the bytes of its original weights."""
        events = rw.log.events
        name = self.name
        spent = sum([event.bytes for event in events if event.rule == name])
        # The original metadata is in the proto: this run may have changed the metadata since.
        stated = {prop.key: prop.value for prop in model.proto.metadata_props}.get(self.growth_key, "")
        earlier, _, first = stated.partition(" added to ")
        if earlier.isdecimal() and first.isdecimal():
            return spent + int(earlier), int(first)
        return spent, constant_bytes(model.graphs()) - sum([event.bytes for event in events])


class FoldLargeConstants(FoldConstants):
    """Fold nodes whose inputs are all constant even where that makes the file larger.

    Models of level `all` run without the runtime's optimizer, which would fold these at load: for example, relative
    position tables that every layer projects, or gathers for each pair of positions. Neither a single result nor the
    growth of a model exceeds `max_folded_bytes`; the model's metadata (`graphopt.folding.large`) records if that
    blocked a result.
    """

    level = Level.ALL
    peers: ClassVar[dict[str, str | tuple[str, ...]]] = {"onnxruntime": "ConstantFolding"}
    growth_key = "graphopt.folding.large"

    @staticmethod
    def allowance(weights: int, spent: int, options: Options) -> Allowance:
        """The limit of a single result."""
        limit = options.max_folded_bytes
        return Allowance(limit, limit - max(spent, 0), limit)
