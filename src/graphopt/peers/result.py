"""What came of letting a peer work on a file."""

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
        status: `ok`, or what went wrong.
        pass_name: The one pass that ran, or None for the whole optimizer.
        seconds: Time of the work, reading and writing the files included, importing the peer not; None when it did
            not get to the end.
        import_seconds: Time to import the peer.
        peak_memory_bytes: Largest resident memory of the process, the interpreter and the peer's code included.
        message: One line that says what went wrong; empty when nothing did.
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
        """True when there is an output that loads."""
        return self.status == "ok"

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data for JSON."""
        paths = {"output": str(self.output) if self.output else None, "files": [str(path) for path in self.files]}
        return {**dataclasses.asdict(self), **paths}
