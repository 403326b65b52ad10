"""The intermediate values of a model on one input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from graphopt.system.processes import call
from graphopt.system.sessions import open_session

_EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"

_Arrays = dict[str, "np.ndarray[Any, Any]"]


def values_of(path: Path, names: list[str], feed: dict[str, Any]) -> _Arrays:
    """Values by name on a feed, as the unoptimized graph computes them; runs in a separate process.

    Args:
        path: the model, run as it is.
        names: the requested values: inputs, constants and computed ones.
        feed: the inputs.
    """
    found: _Arrays = call(_values, str(path), names, feed)
    return found


def _values(path: str, names: list[str], feed: dict[str, Any]) -> _Arrays:
    session = _session_with_outputs(path, names)
    outputs = [output.name for output in session.get_outputs()]
    wanted = [name for name in outputs if name in set(names)]
    results = session.run(wanted, feed) if wanted else []
    found = {name: value for name, value in zip(wanted, results, strict=True) if isinstance(value, np.ndarray)}
    found.update({name: np.asarray(feed[name]) for name in names if name in feed})
    return found


def _session_with_outputs(path: str, names: list[str]) -> Any:
    """A session that also returns intermediate values."""
    import os

    model = onnx.load(path, load_external_data=False)
    known = {value.name for value in model.graph.output} | {value.name for value in model.graph.input}
    known |= {tensor.name for tensor in model.graph.initializer}
    computed = {name for node in model.graph.node for name in node.output}
    for name in names:
        if name in computed and name not in known:
            model.graph.output.add().name = name
    # External data is in the folder of the original file.
    return open_session(model, config={_EXTERNAL_FOLDER: os.path.dirname(os.path.realpath(path))})


def count_denormals(path: Path, feed: dict[str, Any]) -> tuple[dict[str, int], int]:
    """Denormal elements of each computed value, and the number of elements examined; runs in a separate process."""
    found: tuple[dict[str, int], int] = call(_count_denormals, str(path), feed)
    return found


def _count_denormals(path: str, feed: dict[str, Any]) -> tuple[dict[str, int], int]:
    model = onnx.load(path, load_external_data=False)
    computed = [name for node in model.graph.node for name in node.output if name]
    counts: dict[str, int] = {}
    total = 0
    session = _session_with_outputs(path, computed)
    for names in _chunks(session, feed, computed):
        for name, value in zip(names, session.run(names, feed), strict=True):
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                total += value.size
                if number := denormals(value):
                    counts[name] = number
    return counts, total


def _chunks(session: Any, feed: dict[str, Any], names: list[str]) -> Iterator[list[str]]:
    """Names in groups whose values fit into memory together; sizes are unknown at first, so groups start small."""
    available = {output.name for output in session.get_outputs()}
    wanted = [name for name in names if name in available]
    size = 32
    for at in range(0, len(wanted), size):
        yield wanted[at : at + size]


def denormals(array: np.ndarray[Any, Any]) -> int:
    """The number of denormal elements."""
    if array.dtype.kind != "f" or not array.size:
        return 0
    tiny = np.finfo(array.dtype).smallest_normal
    magnitude = np.abs(array)
    return int(np.count_nonzero((magnitude > 0) & (magnitude < tiny)))
