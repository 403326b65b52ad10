"""Computing ahead what depends on constants only."""

from __future__ import annotations

from typing import ClassVar

from graphopt.analysis.budget import Allowance, constant_bytes
from graphopt.analysis.evaluate import Policy, evaluate, plan
from graphopt.rewrite import Graph, GraphPass, Level, Model, Numerics, Options, Rewriter
from graphopt_passes.folding.store import store

GROWTH_KEY = "graphopt.folding"
"""What folding has added to a model, and to what, where that kept a result from being stored."""


class FoldConstants(GraphPass):
    """Compute nodes whose inputs are all constant, and store their results.

    A result above 64 KiB is stored only if it takes at most `max_growth` times the constants that it replaces, or less
    than 1/16 of all weights, 16 MiB at most. No more than that, or 1 MiB, is added to a model in all; where this limit
    kept a result from being stored, the model's metadata (`graphopt.folding`) says what is spent, so that another run
    stores no more. Weights are quantized, but nothing is dequantized; random and custom operators and control flow are
    never computed, and in bodies, which may never run, only small results are. Results are those of ONNX Runtime's
    kernels, bit by bit; a reader of the new constant may still pick another kernel, which rounds differently.
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
        """Fold every graph, outer ones first, whose constants inner ones read; together they may grow by so much."""
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
        """By how much a model may still grow: the bytes of the constants it came with, and those spent."""
        return Allowance.of(weights, spent)

    def _fold(self, graph: Graph, rw: Rewriter, allowance: Allowance) -> None:
        """Fold one graph: all its constant regions at once."""
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
        """Bytes added to a model, by earlier runs too, and those of the weights that it came with."""
        events = rw.log.events
        name = self.name
        spent = sum([event.bytes for event in events if event.rule == name])
        # What the model came with is in its proto: the metadata may have been written since by this very run.
        stated = {prop.key: prop.value for prop in model.proto.metadata_props}.get(self.growth_key, "")
        earlier, _, first = stated.partition(" added to ")
        if earlier.isdecimal() and first.isdecimal():
            return spent + int(earlier), int(first)
        return spent, constant_bytes(model.graphs()) - sum([event.bytes for event in events])


class FoldLargeConstants(FoldConstants):
    """Compute what depends on constants only even where that makes the file larger.

    The level `all` is run with the runtime's optimizer off, which would compute these at load: a table of relative
    positions that every layer projects, or looks up for each pair of places. No result takes more than
    `max_folded_bytes`, and no model grows by more; its metadata (`graphopt.folding.large`) says where that kept one
    from being stored.
    """

    level = Level.ALL
    peers: ClassVar[dict[str, str | tuple[str, ...]]] = {"onnxruntime": "ConstantFolding"}
    growth_key = "graphopt.folding.large"

    @staticmethod
    def allowance(weights: int, spent: int, options: Options) -> Allowance:
        """As much as a single result may take."""
        limit = options.max_folded_bytes
        return Allowance(limit, limit - max(spent, 0), limit)
