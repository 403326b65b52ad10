"""A choice of passes as plain data that a child process or a replay can run again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from graphopt.ir import Model, Source
from graphopt.pipeline import Pipeline, Plan, execute, pipeline_of
from graphopt.rewrite import Level, Log, Numerics, Options, Target


class Manager(Protocol):
    """The parts of a `PassManager` that an audit needs."""

    @property
    def level(self) -> Level:
        """The level."""
        ...

    @property
    def numerics(self) -> Numerics:
        """The ceiling for passes."""
        ...

    @property
    def target(self) -> Target | None:
        """The machine that layout passes write for."""
        ...

    @property
    def plan(self) -> Plan:
        """Its passes."""
        ...

    @property
    def options(self) -> Options:
        """Settings of passes."""
        ...

    @property
    def limit(self) -> int | None:
        """The largest number of rewrites."""
        ...

    @property
    def opaque_weights(self) -> str | None:
        """Weights that are not read."""
        ...

    def prepared(self, source: Source) -> Source:
        """The model as the passes get it."""
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """Which passes run, and how.

    Attributes:
        level: the level.
        passes: the pipeline as text; the level's if "".
        skip: passes left out.
        numerics: the ceiling.
        options: settings of passes.
        limit: stop after this many rewrites.
        opaque: weights that are not read, see `graphopt.PassManager`.
    """

    level: Level = Level.BASIC
    passes: str = ""
    skip: tuple[str, ...] = ()
    numerics: Numerics = Numerics.ROUNDING
    options: Options = field(default_factory=Options)
    limit: int | None = None
    opaque: str | None = None

    @classmethod
    def of(cls, manager: Manager) -> Settings:
        """The settings of a manager."""
        plan = manager.plan
        skip = tuple(sorted(plan.skip))
        return cls(
            manager.level, str(plan.pipeline), skip, manager.numerics, manager.options, manager.limit,
            manager.opaque_weights,
        )  # fmt: skip

    @classmethod
    def at(cls, numerics: str | Numerics, target: str | Target | None) -> Settings:
        """Settings for any level, with this ceiling and target; the present machine if None.

        Raises:
            UsageError: one of them is unknown.
        """
        machine = Target.parse(target) if isinstance(target, str) else target
        return cls(numerics=Numerics.of(numerics), options=Options(target=machine))

    @property
    def complete(self) -> bool:
        """Whether outputs need no further optimization by ONNX Runtime, which would slow them down."""
        return self.level >= Level.LAYOUT

    def with_limit(self, limit: int | None) -> Settings:
        """The same settings, with a limit on the rewrites."""
        return replace(self, limit=limit)

    def only(self, *passes: str) -> Settings:
        """The same settings, running only these passes."""
        return replace(self, passes=",".join(passes))

    def plan(self) -> Plan:
        """The passes, ready to run."""
        pipeline = pipeline_of(self.passes) if self.passes else Pipeline.of_level(self.level)
        return Plan(pipeline, self.numerics, frozenset(self.skip))

    def run(self, source: Source | Model, *, explain: bool = False, plan: Plan | None = None) -> tuple[Model, Log]:
        """Optimize a model; a `Model` is changed in place.

        Args:
            source: the model.
            explain: collect near misses.
            plan: the passes, if already made.
        """
        model = source if isinstance(source, Model) else Model.load(source, opaque=self.opaque)
        log = Log(listen=explain, limit=self.limit)
        execute(plan or self.plan(), model, log, strict=False, check=False, options=self.options)
        return model, log

    def __str__(self) -> str:
        return self.passes or str(self.level)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "level": str(self.level),
            "passes": str(self.plan().pipeline),
            "skip": list(self.skip),
            "numerics": str(self.numerics),
            "limit": self.limit,
        }
