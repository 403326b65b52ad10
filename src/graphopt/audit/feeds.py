"""Inputs for timing: batch 1, and usual sizes for other symbolic dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import onnx

from graphopt.errors import ModelError
from graphopt.verify import Feed, sample_inputs
from graphopt.verify.interface import Spec, interface_of

_IMAGE, _SEQUENCE, _VIDEO = 224, 128, 32


def timing_sizes(model: onnx.ModelProto) -> Iterator[dict[str, int]]:
    """Sizes to try for the symbolic dimensions of the inputs, the most usual first."""
    dims: dict[str, tuple[int, Spec]] = {}
    for spec in interface_of(model).inputs:
        for axis, dim in enumerate(spec.shape or ()):
            if not isinstance(dim, int):
                dims.setdefault(dim or f"{spec.name}[{axis}]", (axis, spec))
    # Expressions like `past + 1` follow from their parts; the generator evaluates them.
    plain = {key: place for key, place in dims.items() if key.isidentifier() or key.endswith("]")}
    yield {key: _usual(axis, spec) for key, (axis, spec) in plain.items()}
    yield {key: 1 for key, (axis, _) in plain.items() if axis == 0}
    yield {}


def symbols(model: onnx.ModelProto) -> set[str]:
    """The symbolic dimensions of the inputs; unnamed ones are identified as `input[axis]`."""
    specs = interface_of(model).inputs
    dims = ((spec, axis, dim) for spec in specs for axis, dim in enumerate(spec.shape or ()))
    return {dim or f"{spec.name}[{axis}]" for spec, axis, dim in dims if not isinstance(dim, int)}


def _usual(axis: int, spec: Spec) -> int:
    rank = len(spec.shape or ())
    if axis == 0:
        return 1
    if rank == 4 and axis >= 2:
        return _IMAGE
    if rank == 4:
        return 3
    if rank == 5 and axis >= 2:
        return _VIDEO
    return _SEQUENCE


def timing_feed(path: Path, model: onnx.ModelProto, fixed: Mapping[str, int], seed: int = 0) -> Feed:
    """Inputs of usual sizes on which the model runs.

    Args:
        path: the model.
        model: its proto; weights are not needed.
        fixed: sizes that the caller wants.
        seed: seed of the values.

    Raises:
        ModelError: it does not load, or runs on none of the tried inputs.
    """
    problem: ModelError | None = None
    tried: list[dict[str, int]] = []
    for sizes in timing_sizes(model):
        wanted = {**sizes, **fixed}
        if wanted in tried:
            continue
        tried.append(wanted)
        try:
            return sample_inputs(path, seed=seed, dims=wanted)
        except ModelError as error:
            problem = problem or error
    raise problem or ModelError(f"{path}: no inputs found")


def load_data(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an `.npz` file.

    Raises:
        ModelError: it cannot be read as one.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except OSError as error:
        raise ModelError(f"cannot read data {path}: {error.strerror or error}") from None
    except (ValueError, EOFError, AttributeError, TypeError, BadZipFile):  # e.g. an array alone is no context
        # NumPy's own message would advise to load it in a way that can execute code from it.
        raise ModelError(f"cannot read data {path}: expected an .npz file of arrays (numpy.savez writes one)") from None


def shapes_of(feed: Feed) -> dict[str, list[int]]:
    """The shape of each array in a feed."""
    return {name: list(np.shape(value)) for name, value in feed.items() if isinstance(value, np.ndarray)}
