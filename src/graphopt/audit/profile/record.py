"""The results of a profile."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from graphopt.audit.machine import Machine
from graphopt.audit.statistics import Spread
from graphopt.showing import Shown

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from graphopt.audit.profile.peak import Peak

SCHEMA = 1
SWITCH = "session.set_denormal_as_zero"
"""ONNX Runtime's own remedy: a session configuration entry."""


@dataclass(slots=True)
class Part:
    """The nodes of one level that replace one block of the original.

    Attributes:
        ops: their operators.
        names: their names.
        times: the time of each.
        ms: their total time.
        hidden: the time of inserted nodes among them: reorders, transposes, casts.
        hidden_ops: the operators of those.
    """

    ops: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    ms: float = 0.0
    hidden: float = 0.0
    hidden_ops: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Block:
    """The smallest group of original nodes that no level splits.

    Attributes:
        ops: operators of the original nodes.
        names: their names.
        parts: their replacement at each level.
    """

    ops: list[str]
    names: list[str]
    parts: dict[str, Part] = field(default_factory=dict)


@dataclass(slots=True)
class LevelTotal:
    """One level as a whole.

    Attributes:
        name: the level.
        nodes: nodes that run.
        kernels: milliseconds of all kernels of a run.
        run: milliseconds of a run as the caller sees it, under the profiler.
        hidden: milliseconds of inserted nodes such as reorders.
        latency: milliseconds of a run without the profiler.
        failure: why it could not be profiled.
    """

    name: str
    nodes: int
    kernels: float
    run: float
    hidden: float = 0.0
    latency: Spread | None = None
    failure: str = ""


@dataclass(slots=True)
class Lone:
    """One operator timed three ways.

    Attributes:
        level: the level whose graph contains it.
        name: node name.
        op: operator.
        shapes: shapes of its inputs and first output.
        inside: milliseconds within the model.
        warm: milliseconds alone, with its operands in the cache.
        cold: milliseconds alone, with the cache flushed before each run.
        flops: floating-point operations; None if unknown.
        bytes: bytes read and written.
        compute: fraction of the machine's measured operations per second, inside.
        memory: fraction of the machine's measured bytes per second, inside.
        form: the passes that have a faster form of it, or why none has.
        failure: why it could not be run alone.
    """

    level: str
    name: str
    op: str
    shapes: str
    inside: float
    warm: float | None = None
    cold: float | None = None
    flops: int | None = None
    bytes: int | None = None
    compute: float | None = None
    memory: float | None = None
    form: str = ""
    failure: str = ""

    def called(self, longest: int | None = None) -> str:
        """The operator, and the name of its node if it has one, shortened to the end of a long name."""
        whole = longest is None or len(self.name) <= longest
        name = self.name if whole else f"…{self.name[1 - (longest or 0) :]}"
        return f"{self.op.rpartition('::')[2]} {name}".rstrip()

    @property
    def below(self) -> float | None:
        """The ratio of its time to the time in which the machine could multiply, or copy, as much."""
        share = max(self.compute or 0.0, self.memory or 0.0)
        return 1 / share if share else None


@dataclass(slots=True)
class Denormals:
    """Denormals, on which some processors are slow.

    Attributes:
        weights: denormal elements of the model's own weights, by name.
        folded: denormal elements of the optimized model's weights, by name.
        activations: denormal elements of intermediate values on a sample input, by name.
        elements: numbers of elements examined: weights, folded, activations.
        plain: milliseconds by level.
        flushed: milliseconds by level with `session.set_denormal_as_zero`.
        speedup: speed-up by flushing, by level.
        error: largest relative error by flushing, by level.
        cured: milliseconds by level of graphopt's `basic` result.
        cure: speed-up of that result, by level.
        penalty: slowdown of a matrix product with denormal weights on this machine.
    """

    weights: dict[str, int]
    folded: dict[str, int]
    activations: dict[str, int]
    elements: tuple[int, int, int]
    plain: dict[str, Spread] = field(default_factory=dict)
    flushed: dict[str, Spread] = field(default_factory=dict)
    speedup: dict[str, Spread] = field(default_factory=dict)
    error: dict[str, float] = field(default_factory=dict)
    cured: dict[str, Spread] = field(default_factory=dict)
    cure: dict[str, Spread] = field(default_factory=dict)
    penalty: float | None = None


@dataclass(slots=True)
class ThreadRow:
    """One thread count.

    Attributes:
        threads: intra-op threads of each session.
        alone: milliseconds without another session.
        beside: milliseconds while a second session of the same kind runs.
        together: runs per second of both sessions together.
        single: runs per second of one session alone.
    """

    threads: int
    alone: Spread
    beside: Spread | None = None
    together: float | None = None
    single: float | None = None


@dataclass(slots=True)
class Profile(Shown):
    """Where a model's time goes.

    Attributes:
        model: its name.
        inputs: shapes of inputs.
        machine: the machine.
        threads: intra-op threads of everything but the thread table.
        levels: totals by level.
        blocks: the work, aligned across levels.
        peak: measured limits of the machine.
        lone: operators timed alone.
        denormals: denormal numbers and what they cost.
        contention: times by thread count, alone and beside a second session.
        findings: conclusions in words.
    """

    model: str
    inputs: dict[str, list[int]]
    machine: Machine
    threads: int
    levels: list[LevelTotal] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    peak: Peak | None = None
    lone: list[Lone] = field(default_factory=list)
    denormals: Denormals | None = None
    contention: list[ThreadRow] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def level(self, name: str) -> LevelTotal:
        """A level by name; KeyError if it was not profiled."""
        for level in self.levels:
            if level.name == name:
                return level
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"schema": SCHEMA, **asdict(self)}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from graphopt.audit.profile.view import render_profile

        yield from render_profile(self, options.max_width)
