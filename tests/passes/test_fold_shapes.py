"""Shape folding at sizes that the verifier's inputs do not reach: empty dimensions, and one."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from graphopt.manager import PassManager
from graphopt.testing import Case, cases

FILES = [p for p in cases(Path(__file__).parents[1] / "golden" / "fold_shapes") if not p.stem.startswith("keeps")]
TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}


def run(model: onnx.ModelProto, sizes: dict[str, int]) -> list[np.ndarray] | None:
    """The outputs, or None when the run fails."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    numbers = np.random.default_rng(0)
    feed = {}
    for value in session.get_inputs():
        shape = [sizes.get(dim, dim) for dim in value.shape]
        feed[value.name] = numbers.integers(0, 2, shape).astype(TYPES[value.type])
    try:
        return session.run(None, feed)  # type: ignore[no-any-return]
    except Exception:  # the runtime's errors have no common base
        return None


@pytest.mark.parametrize("path", FILES, ids=[p.stem for p in FILES])
def test_all_sizes(path: Path) -> None:
    """Whatever the original computes, the folded model computes too; where it fails anything may happen."""
    model = Case.read(path).model()
    # Declared output shapes only make the runtime complain.
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    folded = PassManager(passes="fold_shapes", strict=True, check=True).run(model).model
    names = sorted({d.dim_param for v in model.graph.input for d in v.type.tensor_type.shape.dim if d.dim_param})
    succeeded = 0
    for sizes in product((0, 1, 2, 5), repeat=len(names)):
        env = dict(zip(names, sizes, strict=True))
        expected = run(model, env)
        if expected is None:
            continue
        succeeded += 1
        found = run(folded, env)
        assert found is not None, f"fails at {env}"
        for a, b in zip(expected, found, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype), env
            np.testing.assert_array_equal(a, b, err_msg=str(env))
    assert succeeded
