"""Settings of an audit of many models, and the record of each model: both are plain data that can be sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from graphopt.audit.comparison import LEVELS
from graphopt.audit.contestants import contestants
from graphopt.audit.settings import Settings
from graphopt.system.given import check_threads

Status = Literal[
    "done", "failed", "crashed", "timeout", "memory", "too large", "unreachable", "changed", "disk", "lost"
]
OF_THE_MODEL = ("done", "failed", "crashed", "timeout", "memory", "too large")
"""Statuses caused by the model. The others are caused by the machine: they are stored, and retried in the next run."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A model to audit.

    Attributes:
        name: a path, or a URL that fsspec can open.
        digest: of its contents, including weights; "" if it has not been read yet.
        files: the files of its external data, relative to it.
        stamp: the file system's information about all these files when they were read.
    """

    name: str
    digest: str = ""
    files: tuple[str, ...] = ()
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class CorpusSettings:
    """How each model is audited; records depend on every field.

    Attributes:
        levels: graphopt's levels.
        against: names of peers.
        timed: measure latency; without it there are only counts, checks and the time to optimize.
        threads: intra-op thread counts to time at.
        rounds: interleaved rounds; by the budget if None.
        budget: seconds of rounds for one thread count.
        starts: session starts of each row.
        shapes: shapes of inputs by name.
        dims: sizes of symbolic dimensions by name.
        verify: ask the oracle.
        seed: seed of the inputs.
        numerics: the ceiling for graphopt's passes.
        target: the machine that layout passes write for; the present one if "".
        seconds: time limit of one optimizer.
        memory: bytes that one process may hold; half of the machine's if None.
        largest: bytes of the largest model, external data included; None for no limit.
    """

    levels: tuple[str, ...] = LEVELS
    against: tuple[str, ...] = ()
    timed: bool = True
    threads: tuple[int, ...] = (1,)
    rounds: int | None = None
    budget: float = 10.0
    starts: int = 7
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    verify: bool = True
    seed: int = 0
    numerics: str = "rounding"
    target: str = ""
    seconds: float = 300.0
    memory: int | None = None
    largest: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def check(self) -> None:
        """Reject settings that are wrong for all models.

        Raises:
            UsageError: a level, a peer, a target or numerics is unknown, or a number of threads is impossible.
        """
        check_threads(*self.threads)
        contestants(None, self.levels, self.against, Settings.at(self.numerics, self.target or None))


@dataclass(frozen=True, slots=True)
class Record:
    """The result for one model.

    Attributes:
        model: digest of its contents; of its name if it could not be read.
        name: the name of the model.
        status: `done`, or why there is no audit.
        how: the error, with the last line of the process in which it occurred.
        at: the activity at that time: the contestant and the stage.
        tries: how each attempt failed.
        seconds: its duration.
        kind: the kind of machine; "" if nothing was timed, since then it does not matter.
        machine: description of the machine.
        audit: the result of `Audit.to_dict`.
        versions: digest of the versions of all software involved.
    """

    model: str
    name: str
    status: Status
    how: str = ""
    at: str = ""
    tries: tuple[str, ...] = ()
    seconds: float = 0.0
    kind: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)
    audit: dict[str, Any] | None = None
    versions: str = ""

    @property
    def settled(self) -> bool:
        """Whether another run would give the same result."""
        return self.status in OF_THE_MODEL

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def digest_of(data: Any) -> str:
    """A digest of plain data."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()
