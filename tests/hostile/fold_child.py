"""Folds models of one operator each and runs both; one line for each, written before what may end the process."""

from __future__ import annotations

import ctypes
import json
import sys
import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from graphopt.manager import PassManager

PASSES = "repeat({folding/*})"


def same(one: Any, two: Any) -> bool:
    """Whether two results are the same bit by bit; all NaN are one."""
    a, b = np.asarray(one), np.asarray(two)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind == "O":
        return bool(np.array_equal(a, b))
    if a.dtype.kind != "f":
        return a.tobytes() == b.tobytes()
    one_nan, two_nan = np.isnan(a), np.isnan(b)
    alike = np.where(one_nan, 0, a).tobytes() == np.where(two_nan, 0, b).tobytes()
    return alike and bool(np.array_equal(one_nan, two_nan))


def outputs(model: onnx.ModelProto, feed: dict[str, Any]) -> list[Any] | str:
    """What the runtime computes with its optimizations off; the error where it does not."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        values = {
            name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, _element(model, name))
            for name, array in feed.items()
        }
        return [_content(value) for value in session.run_with_ort_values(None, values)]
    except Exception as error:  # the runtime raises many kinds
        return f"{type(error).__name__}: {error}"


def _element(model: onnx.ModelProto, name: str) -> int:
    return next(v.type.tensor_type.elem_type for v in model.graph.input if v.name == name)


def _content(value: Any) -> Any:
    if not value.is_tensor():
        return value.data_type()
    if value.element_type() in _NUMPY:
        return value.numpy()
    size = value.tensor_size_in_bytes()
    raw = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.array([repr((value.element_type(), value.shape(), raw))], object)


_NUMPY = frozenset(range(1, 14))
"""Element types whose results the runtime gives as arrays; of others the bytes are compared."""


def judge(name: str, model: onnx.ModelProto, feed: dict[str, Any]) -> dict[str, Any]:
    """Fold a model and compare."""
    say(name, "fold")
    result = PassManager(passes=PASSES, explain=True).run(model)
    failures = [f"{failure.rule}: {failure.error!r}" for failure in result.failures]
    found: dict[str, Any] = {"name": name, "changed": result.changed, "failures": failures}
    say(name, "before")
    before = outputs(model, feed)
    if isinstance(before, str):
        found["invalid"] = before[:300]
        found["state"] = "invalid"
        if not result.changed:
            return found
    say(name, "after")
    after = outputs(result.model, feed)
    if isinstance(before, str):
        found["state"] = "invalid" if isinstance(after, str) else "computed"
    elif isinstance(after, str):
        found["state"], found["detail"] = "broken", after[:300]
    elif all(same(*pair) for pair in zip(before, after, strict=True)):
        found["state"] = "same"
    else:
        found["state"], found["detail"] = "different", f"{before} became {after}"[:600]
    return found


def say(name: str, phase: str) -> None:
    """Note what is about to be done with a case."""
    write({"name": name, "phase": phase})


def write(entry: dict[str, Any]) -> None:
    """One line of JSON, at once."""
    sys.stdout.write(json.dumps(entry) + "\n")
    sys.stdout.flush()


def main(first: int, last: int, chosen: str, skip: int) -> None:
    """Judge the cases of some seeds; `skip` many are left out."""
    from tests.hostile.ops import backend_cases, cases

    warnings.simplefilter("ignore")
    count = 0
    for seed in range(first, last):
        source = (
            backend_cases(seed, chosen.removeprefix("backend:"))
            if chosen.startswith("backend:")
            else cases(seed, chosen)
        )
        for name, model, feed in source:
            count += 1
            if count > skip:
                write(judge(name, model, feed))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
