"""The process of a `PassServer`: `python -m graphopt.peers.server PEER`."""

from __future__ import annotations

import os
import sys

from graphopt.peers import by_name
from graphopt.peers.serving import serve
from graphopt.peers.worker import no_core_dump


def main(name: str) -> None:
    """Serve until standard input ends."""
    no_core_dump()
    # Peers print: answers keep the real standard output for themselves, and all else goes to standard error.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        serve(by_name(name), sys.stdin, answers)


if __name__ == "__main__":
    main(sys.argv[1])
