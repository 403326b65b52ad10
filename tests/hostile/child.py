"""Optimizes every model of a folder in a process with little memory, and says what became of each."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path


def main(folder: str, memory: int) -> None:
    """Optimize each `*.onnx` of `folder` with at most `memory` bytes of data; one line of JSON for each."""
    from graphopt.errors import ModelError
    from graphopt.manager import PassManager

    manager = PassManager("basic", explain=True, inline_functions=True)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    for path in sorted(Path(folder).glob("*.onnx")):
        start = time.process_time()
        found: dict[str, object] = {"name": path.stem, "before": path.stat().st_size}
        try:
            result = manager.run(path.read_bytes())
            data = result.model.SerializeToString()
            path.with_suffix(".after").write_bytes(data)
            found["after"] = len(data)
            found["failures"] = [f"{failure.rule}: {failure.error!r}" for failure in result.failures]
            found["reasons"] = [miss.reason for miss in result.near_misses]
        except ModelError as error:
            found["refused"] = str(error)
        found["seconds"] = time.process_time() - start
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
