"""No pass raises where a size of one of its golden cases is 0 wherever it stands: in weights, inputs and all of them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from graphopt import Options, PassManager
from graphopt.errors import ModelError
from graphopt.fuzzing.seedlings import Seedling, golden
from graphopt.system.sessions import open_session

PARTS = 4
"""`make test` tries one case of so many, `make test-all` all of them."""


def emptied(model: onnx.ModelProto) -> Iterator[tuple[int, onnx.ModelProto]]:
    """For each size in weights and inputs the model in which it is 0 everywhere, with outputs of any shape."""
    sizes = {size for tensor in model.graph.initializer for size in tensor.dims}
    sizes |= {dim.dim_value for info in model.graph.input for dim in info.type.tensor_type.shape.dim}
    for size in sorted(sizes - {0}):
        made = onnx.ModelProto.FromString(model.SerializeToString())
        for tensor in made.graph.initializer:
            if size in tensor.dims:
                dims = [0 if each == size else each for each in tensor.dims]
                kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
                tensor.CopyFrom(numpy_helper.from_array(np.zeros(dims, kind), tensor.name))
        for info in made.graph.input:
            for dim in info.type.tensor_type.shape.dim:
                if dim.dim_value == size:
                    dim.dim_value = 0
        for info in made.graph.output:
            info.type.tensor_type.ClearField("shape")
        yield size, made


def loads(model: onnx.ModelProto) -> bool:
    """Whether the runtime takes a model; one that it refuses may be undone and reported."""
    try:
        open_session(model)
    except Exception:  # the exceptions of a native library share no base class
        return False
    return True


def faults(case: Seedling) -> list[str]:
    options = Options(extra={case.rule: json.loads(case.settings)}) if case.settings else None
    manager = PassManager(passes=case.rule, target=case.target or None, numerics="fast", options=options)
    found = []
    for size, model in emptied(case.model()):
        try:
            failures = manager.run(model).failures
        except ModelError:
            continue
        if failures and loads(model):
            found.append(f"{case.name}, {size} is 0: {failures[0]}")
    return found


def of_part(case: Seedling, part: int) -> bool:
    return zlib.crc32(case.name.encode()) % PARTS == part


@pytest.mark.parametrize("part", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in range(1, PARTS))])
def test_no_pass_raises_on_nothing(part: int) -> None:
    cases = [case for case in golden() if of_part(case, part)]
    assert len(cases) > 100
    assert [fault for case in cases for fault in faults(case)] == []
