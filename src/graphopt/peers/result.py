"""The result of a peer's run on a file."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

PeerStatus = Literal["ok", "crashed", "timeout", "failed", "invalid"]
"""`crashed`: the process died; `failed`: it reported an error; `invalid`: its output does not load."""


@dataclass(frozen=True, slots=True)
class PeerResult:
    """One run of one peer.

    Attributes:
        peer: The peer's name.
        version: Its version.
        status: `ok`, or the kind of failure.
        pass_name: The one pass that ran, or None for the whole optimizer.
        seconds: Time of the work, including reading and writing the files, without the import of the peer; None if it
            did not finish.
        import_seconds: Time to import the peer.
        peak_memory_bytes: Largest resident memory of the process, including the interpreter and the peer's code.
        message: The error in one line; empty if there is none.
        output: The optimized model; None unless the status is `ok`.
        files: The output and the data files that it refers to.
    """

    peer: str
    version: str
    status: PeerStatus
    pass_name: str | None = None
    seconds: float | None = None
    import_seconds: float | None = None
    peak_memory_bytes: int | None = None
    message: str = ""
    output: Path | None = None
    files: tuple[Path, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is an output that loads."""
        return self.status == "ok"

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data for JSON."""
        paths = {"output": str(self.output) if self.output else None, "files": [str(path) for path in self.files]}
        return {**dataclasses.asdict(self), **paths}
