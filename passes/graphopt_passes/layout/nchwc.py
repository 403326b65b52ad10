"""Blocked layout for ONNX Runtime's NCHWc kernels."""

from __future__ import annotations

from typing import Any, ClassVar

from graphopt.rewrite import Graph, GraphPass, Level, Numerics, Rewriter
from graphopt.system.machine import BLOCKS, METADATA_KEY, Target, host
from graphopt_passes.layout.emission import emit
from graphopt_passes.layout.emitter import DOMAIN, Emitter
from graphopt_passes.layout.plan import LayoutPlan, blocks_something, make_plan
from graphopt_passes.layout.report import rows
from graphopt_passes.layout.timing import rates_of


class ConvertLayoutNchwc(GraphPass):
    """Convert convolutions and what lies between them to the blocked layout of one target.

    All nodes of a graph are looked at together: each gets a form, NCHW or blocked, such that kernels and reorders
    take the least time by the cost model. Activations and residual sums go into the convolutions. A `ConvTranspose`
    becomes convolutions of the places within its stride. The model then runs on machines with the same block size
    only, and says so in its metadata.

    `Options(extra={"convert_layout_nchwc": {...}})` takes `"force"`: True blocks all that can be, whatever the
    cost model says; and `"rates"`: `LayoutRates` in place of what `graphopt tune` measured here, or of the built-in
    ones. The log of a run that explains has the rows of `layout.report` among its findings: what becomes of each node,
    and both prices.
    """

    ops = ("Conv", "com.microsoft::FusedConv", "ConvTranspose")
    level = Level.LAYOUT
    numerics = Numerics.ROUNDING
    opsets = "7-"
    peers = {"onnxruntime": "NchwcTransformer"}
    tuner: ClassVar[str] = "graphopt_passes.layout.tuning:LayoutTuner"

    def run(self, graph: Graph, rw: Rewriter) -> None:
        """Plan and convert one graph."""
        first = graph.first
        if first is None or graph.in_function:
            return
        target = rw.options.target or host()
        if not any(node.op in self.ops for node in graph):
            return
        if target.block not in BLOCKS:
            rw.decline("target {} has no blocked kernels", target.name, node=first)
            return
        if any(node.domain == DOMAIN for node in graph):
            rw.decline("{} is in blocked layout already", graph.name, node=first)
            return
        self._convert(graph, rw, target)

    def _convert(self, graph: Graph, rw: Rewriter, target: Target) -> None:
        plan = plan_of(graph, rw)
        if rw.log.listen:
            rw.log.show(self.name, rows(graph, plan))
        self._explain(plan, rw)
        emitter = Emitter(rw, target.block)
        converted = False
        for node in graph:
            if rw.log.full:
                break
            if node in plan.groups:
                with rw.attempt(node):
                    emit(plan.groups[node], emitter, self.name)
                    converted = True
        if converted:
            rw.set_metadata(METADATA_KEY, str(target))

    def _explain(self, plan: LayoutPlan, rw: Rewriter) -> None:
        """Note what stays in NCHW, and why."""
        if not rw.log.listen:
            return
        for node, reason in plan.declined.items():
            rw.note(self.name, node, reason)
        text = "{} takes about {:.1f} us in NCHW, {:.1f} us blocked, without reorders"
        for node, prices in plan.kept.items():
            rw.decline(text, node.op, *prices, node=node)


def plan_of(graph: Graph, rw: Rewriter) -> LayoutPlan:
    """What the pass would make of a graph, with its settings and for the target of the run."""
    return make_plan(graph, **_settings(rw))


def would_block(graph: Graph, rw: Rewriter) -> bool:
    """Whether the pass would block a convolution of a graph."""
    return blocks_something(graph, **_settings(rw))


def _settings(rw: Rewriter) -> dict[str, Any]:
    target = rw.options.target or host()
    stated = rw.options.extra.get(ConvertLayoutNchwc.name, {})
    return {
        "block": target.block, "force": bool(stated.get("force")), "rates": stated.get("rates") or rates_of(target)
    }  # fmt: skip
