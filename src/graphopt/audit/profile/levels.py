"""Every operator at each of ONNX Runtime's levels, aligned by the original nodes that it replaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphopt.audit.bench import Job, Variant
from graphopt.audit.profile.kernels import KernelJob, Kernels, measure_kernels
from graphopt.audit.profile.provenance import Provenance, blocks
from graphopt.audit.profile.record import Block, LevelTotal, Part, Profile
from graphopt.audit.statistics import Spread
from graphopt.audit.timing import Progress, measure
from graphopt.ir import Model, Node
from graphopt.system.processes import call

LEVELS = ("none", "basic", "extended", "all")


def profile_levels(
    profile: Profile, path: Path, variants: list[Variant], feed: dict[str, Any],
    *, folder: Path, progress: Progress, rounds: int, budget: float,
) -> dict[str, Path]:  # fmt: skip
    """Fill in a profile's levels and blocks.

    Args:
        profile: the profile to fill.
        path: the original.
        variants: one for each level.
        feed: inputs.
        folder: the folder for the graphs of all levels.
        progress: callback that receives the progress.
        rounds: the most interleaved rounds under the profiler.
        budget: seconds of these for each level, and of rounds without it.

    Returns:
        The optimized graph of each level.
    """
    progress("profiling operators", 0.0)
    job = KernelJob(variants, feed, profile.threads, rounds, budget, str(folder))
    found: list[Kernels] = call(measure_kernels, job)
    timing = measure(Job(variants, variants[-1].name, feed, (profile.threads,), budget, starts=0), progress)
    latency = timing.latency.get(profile.threads, {})
    original = Model.load(path)
    origins: dict[str, list[tuple[float, str, Node, list[Node], bool]]] = {}
    places: dict[str, Path] = {}
    for kernels in found:
        total = LevelTotal(kernels.variant, len(kernels.kernels), kernels.total, kernels.run, failure=kernels.failure)
        if kernels.variant in latency:
            total.latency = Spread.of(latency[kernels.variant])
        profile.levels.append(total)
        if kernels.saved:
            places[kernels.variant] = Path(kernels.saved)
            origins[kernels.variant] = _origins(original, Model.load(kernels.saved), kernels)
    profile.blocks = _align(original, origins)
    for total in profile.levels:
        total.hidden = sum(b.parts[total.name].hidden for b in profile.blocks if total.name in b.parts)
    return places


def _origins(original: Model, saved: Model, kernels: Kernels) -> list[tuple[float, str, Node, list[Node], bool]]:
    """Time, operator, node, origins, and whether it is hidden, for each kernel that is a node of the main graph."""
    provenance = Provenance(original, saved)
    times: dict[tuple[str, str], list[float]] = {}
    for kernel in kernels.kernels:
        times.setdefault((kernel.name, kernel.op), []).append(kernel.ms)
    unnamed = {op: [k.ms for k in kernels.kernels if k.op == op and not _known(saved, k.name)] for _, op in times}
    rows = []
    for node in saved.graph:
        own = times.get((node.name, node.op_type)) or unnamed.get(node.op_type)
        if not own:
            continue
        hidden = provenance.hidden(node)
        nodes = provenance.origins(node)
        if hidden:
            nodes = _anchored(original, provenance.anchor(node))
        rows.append((own.pop(0), node.op, node, nodes, hidden))
    return rows


def _known(saved: Model, name: str) -> bool:
    return any(node.name == name for node in saved.graph)


def _anchored(original: Model, name: str | None) -> list[Node]:
    value = original.graph.values.get(name or "")
    if value is None:
        return []
    return [value.producer] if value.producer is not None else sorted(value.users, key=lambda n: n.order)[:1]


def _align(original: Model, origins: dict[str, list[tuple[float, str, Node, list[Node], bool]]]) -> list[Block]:
    groups = blocks([nodes for _, _, _, nodes, hidden in rows if nodes and not hidden] for rows in origins.values())
    members: dict[int, list[Node]] = {}
    for node, number in groups.items():
        members.setdefault(number, []).append(node)
    found = {
        number: Block([n.op for n in sorted(nodes, key=lambda n: n.order)], [n.name for n in nodes])
        for number, nodes in members.items()
    }
    rest = Block(["(not attributed)"], [])
    for level, rows in origins.items():
        for ms, op, node, nodes, hidden in rows:
            block = found[groups[nodes[0]]] if nodes and nodes[0] in groups else rest
            part = block.parts.setdefault(level, Part())
            part.ms += ms
            part.names.append(node.name)
            part.times.append(ms)
            if hidden:
                part.hidden += ms
                part.hidden_ops.append(op)
            else:
                part.ops.append(op)
    ordered = [found[number] for number in sorted(found)]
    return [*ordered, rest] if rest.parts else ordered
