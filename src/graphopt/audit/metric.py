"""A task metric on the user's own data, for every contestant."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from graphopt.audit.bench import Variant, open_variant
from graphopt.audit.feeds import load_data
from graphopt.errors import UsageError
from graphopt.verify.interface import interface_of

Arrays = Mapping[str, "np.ndarray[Any, Any]"]
_BATCH = 16


@dataclass(frozen=True, slots=True)
class Metric:
    """Data, and a function that evaluates outputs on it.

    Attributes:
        name: its name in tables.
        data: arrays by name, samples along the first axis; those named like model inputs are fed, the others (labels)
            are only passed to the function.
        function: maps (outputs by name, data) to a number; None if there is only data.
    """

    name: str
    data: Arrays
    function: Callable[[Arrays, Arrays], float] | None

    @classmethod
    def of(cls, data: str | Path | Arrays | None, metric: str | Callable[..., float] | None) -> Metric | None:
        """A metric from the user's arguments.

        Raises:
            UsageError: a metric without data, or one that cannot be found.
            ModelError: the file with the data cannot be read.
        """
        if data is None:
            if metric is not None:
                raise UsageError("a metric needs data (an .npz file with the model's inputs)")
            return None
        arrays = dict(data) if isinstance(data, Mapping) else load_data(Path(data))
        if metric is None or callable(metric):
            return cls(getattr(metric, "__name__", "metric") if metric else "", arrays, metric)
        return cls(metric.rpartition(":")[2], arrays, _find(metric))

    def inputs(self, model: onnx.ModelProto) -> dict[str, Any]:
        """The arrays for the model's inputs.

        Raises:
            UsageError: one of its inputs is missing.
        """
        needed = [spec.name for spec in interface_of(model).inputs]
        missing = [name for name in needed if name not in self.data]
        if missing:
            raise UsageError(f"data has no array {missing[0]!r}; it has {', '.join(self.data) or 'none'}")
        return {name: self.data[name] for name in needed}

    def first_batch(self, model: onnx.ModelProto) -> dict[str, Any]:
        """Inputs for timing: as many samples as the model's fixed batch size, else one."""
        size = _fixed_batch(model) or 1
        return _samples(self.inputs(model), 0, size)


def _find(text: str) -> Callable[[Arrays, Arrays], float]:
    module, colon, name = text.partition(":")
    if not colon:
        raise UsageError(f"metric {text!r}: expected module:function")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"metric {text!r} cannot be loaded: {error}") from None
    if not callable(found):
        raise UsageError(f"metric {text!r} is not a function")
    metric: Callable[[Arrays, Arrays], float] = found
    return metric


def _fixed_batch(model: onnx.ModelProto) -> int | None:
    for spec in interface_of(model).inputs:
        if spec.shape and isinstance(spec.shape[0], int):
            return spec.shape[0]
    return None


def _samples(inputs: Mapping[str, Any], at: int, size: int) -> dict[str, Any]:
    """A slice of the samples; scalars apply to all samples."""
    return {name: array[at : at + size] if np.ndim(array) else array for name, array in inputs.items()}


def _joined(parts: Sequence[Any]) -> Any:
    """The values of one output from all runs, concatenated; scalars give an array."""
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate([np.atleast_1d(part) for part in parts])
    return [each for part in parts for each in (part if isinstance(part, list) else [part])]


def evaluate(metric: Metric, variant: Variant) -> float | None:
    """The metric of one contestant over all samples, without an incomplete last batch if the batch size is fixed."""
    if metric.function is None:
        return None
    model = onnx.load(variant.path, load_external_data=False)
    inputs = metric.inputs(model)
    fixed = _fixed_batch(model)
    size = fixed or _BATCH
    count = min((len(array) for array in inputs.values() if np.ndim(array)), default=1)
    count -= count % size if fixed else 0
    session = open_variant(variant, 1)
    names = [output.name for output in session.get_outputs()]
    parts = [session.run(None, _samples(inputs, at, size)) for at in range(0, count, size)]
    if not parts:
        raise UsageError(f"data has fewer than the {size} samples of one batch")
    outputs = {name: _joined([part[i] for part in parts]) for i, name in enumerate(names)}
    given = {
        name: array[:count] if np.ndim(array) and len(array) >= count else array for name, array in metric.data.items()
    }
    try:
        return float(metric.function(outputs, given))
    except Exception as error:  # the user's code may raise anything
        raise UsageError(f"the metric {metric.name} raised {type(error).__name__}: {error}") from error
