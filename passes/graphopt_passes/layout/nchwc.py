"""Blocked layout for ONNX Runtime's NCHWc kernels."""

from __future__ import annotations

from typing import ClassVar

from graphopt.errors import UsageError
from graphopt.rewrite import Graph, GraphPass, Rewriter, Value
from graphopt.system.machine import BLOCKS, METADATA_KEY, Target
from graphopt_passes.algorithm import work
from graphopt_passes.layout.blocks import DOMAIN, ForBlocks
from graphopt_passes.layout.emitter import Blocked, Emitter
from graphopt_passes.layout.form import Group
from graphopt_passes.layout.forms.pools import is_planned_otherwise
from graphopt_passes.layout.plan import LayoutPlan, Setting, blocks_something, make_plan
from graphopt_passes.layout.timing import LayoutRates, rates_of


class ConvertLayoutNchwc(ForBlocks, GraphPass):
    """Convert convolutions and the operators between them to the blocked layout of one target.

    All nodes of a graph are considered together: each gets a form, NCHW or blocked, such that kernels and reorders
    take the least time by the cost model. Activations and residual sums fuse into the convolutions. The model then runs
    only on machines with the same block size, which its metadata states. Unknown sizes are assumed to be large enough
    for the windows of pools: at its default level too, the runtime divides by zero where they are not. In NCHW, a
    linear `Resize` counts as the matrix products with which `convert_resize_to_products` replaces it later.

    `Options(extra={"convert_layout_nchwc": {...}})` takes `"force"`: True blocks all nodes that can be, whatever it
    costs; and `"rates"`: `LayoutRates` instead of the measured or built-in ones. The log of a run that explains has a
    row for each node: its form, and the prices of both forms.
    """

    ops = ("Conv", "com.microsoft::FusedConv", "ConvTranspose")
    peers = {"onnxruntime": "NchwcTransformer"}
    tuner: ClassVar[str] = "graphopt_passes.layout.tuning:LayoutTuner"

    def run(self, graph: Graph, rw: Rewriter) -> None:
        first = graph.first
        if first is None or graph.in_function:
            return
        target = rw.target
        if not any(node.op in self.ops for node in graph):
            return
        if target.block not in BLOCKS:
            rw.decline("target {} has no blocked kernels", target.name, node=first)
            return
        if any(node.domain == DOMAIN for node in graph):
            rw.decline("{} is in blocked layout already", graph.name, node=first)
            return
        wrong = next((node for node in graph if is_planned_otherwise(node)), None)
        if wrong is not None:
            rw.decline("the runtime plans memory for another size of {}, which may fail", wrong.result.name, node=wrong)
            return
        self._convert(graph, rw, target)

    def _convert(self, graph: Graph, rw: Rewriter, target: Target) -> None:
        plan = make_plan(graph, _setting(rw))
        if rw.log.listen:
            rw.log.show(self.name, plan.rows(graph))
            self._explain(plan, rw)
        emitter = Emitter(rw, target.block)
        converted = False
        for node in graph:
            if rw.log.full:
                break
            if node in plan.groups:
                with rw.attempt(node):
                    emit(plan.groups[node], emitter)
                    converted = True
        emitter.finish()
        if converted:
            rw.set_metadata(METADATA_KEY, str(target))

    def _explain(self, plan: LayoutPlan, rw: Rewriter) -> None:
        for node, reason in plan.declined.items():
            rw.note(self.name, node, reason)
        text = "{} takes about {:.1f} us in NCHW, {:.1f} us blocked, without reorders"
        for node, prices in plan.kept.items():
            rw.decline(text, node.op, *prices, node=node)


def emit(group: Group, emitter: Emitter) -> None:
    """Replace a group; nodes before it already have their final form."""
    node = group.last
    emitter.begin()
    results = group.form.build(emitter, group)
    if isinstance(results, Value):
        emitter.replace(node, {}, [results], str(group))
        return
    for value, layout in results:
        emitter.state_type(value, layout, group.form.sizes)
    made = [Blocked(value, layout, group.lanes) for value, layout in results]
    blocked = dict(zip(node.results, made, strict=False))
    if group.inside and not emitter.rw.log.limited:
        emitter.add(node, blocked, str(group))
    else:
        emitter.replace(node, blocked, [emitter.leave(value, layout) for value, layout in results], str(group))


def would_block(graph: Graph, rw: Rewriter) -> bool:
    """Whether the pass would block a convolution of a graph."""
    return blocks_something(graph, _setting(rw))


def _setting(rw: Rewriter) -> Setting:
    stated = rw.options.stated(ConvertLayoutNchwc.name)
    rates = stated.get("rates")
    if rates is not None and not isinstance(rates, LayoutRates):
        raise UsageError(f"rates are {rates!r}: expected LayoutRates")
    force = rw.options.forces(ConvertLayoutNchwc.name)
    return Setting(rw.target.block, force, rates or rates_of(rw.target), work.rates_of(rw.target))
