"""The drop-in replacements against the originals, on what both support."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from graphopt.compat import onnxoptimizer, onnxsim
from graphopt.errors import UsageError
from graphopt.verify import compare

MODEL = onnx.parser.parse_model(
    '<ir_version: 9, opset_import: ["" : 18]> g (float[n,2] x) => (float[n,2] y) <float[2] w = {1, -2}>'
    "{ a = Identity (x)  b = Transpose <perm = [1,0]> (a)  c = Transpose <perm = [1,0]> (b)  d = Neg (w)  y = Add (c, d) }"
)


@pytest.mark.parametrize("name", sorted(onnxoptimizer.NOT_OFFERED))
def test_passes_that_are_not_offered_say_why(name: str) -> None:
    with pytest.raises(UsageError, match="is not offered"):
        onnxoptimizer.optimize(MODEL, [name])


def test_unknown_names_and_options_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown pass 'nosuch'"):
        onnxoptimizer.optimize(MODEL, ["nosuch"])
    with pytest.raises(UsageError, match="expects a ModelProto, found str"):
        onnxoptimizer.optimize("model.onnx")
    with pytest.raises(UsageError, match="custom_lib is not supported"):
        onnxsim.simplify(MODEL, custom_lib="x")


def test_every_default_pass_of_onnxoptimizer_is_there() -> None:
    original = pytest.importorskip("onnxoptimizer")
    missing = set(original.get_fuse_and_elimination_passes()) - set(onnxoptimizer.get_fuse_and_elimination_passes())
    assert not missing
    offered = set(onnxoptimizer.get_available_passes()) | set(onnxoptimizer.NOT_OFFERED)
    assert not set(original.get_available_passes()) - offered


def test_optimize_does_what_onnxoptimizer_does() -> None:
    original = pytest.importorskip("onnxoptimizer")
    passes = ["eliminate_identity", "fuse_consecutive_transposes"]
    ours = onnxoptimizer.optimize(MODEL, passes)
    theirs = original.optimize(MODEL, [*passes, "eliminate_nop_transpose"], True)
    assert [n.op_type for n in ours.graph.node] == [n.op_type for n in theirs.graph.node] == ["Neg", "Add"]
    assert compare(MODEL, ours).ok
    assert onnxoptimizer.optimize(MODEL, ["nop"]) == MODEL


def test_simplify_folds_and_checks() -> None:
    simplified, agrees = onnxsim.simplify(MODEL, check_n=2, test_input_shapes={"x": [3, 2]})
    assert agrees
    assert [n.op_type for n in simplified.graph.node] == ["Add"]
    unfolded, agrees = onnxsim.simplify(
        MODEL, skip_constant_folding=True, input_data={"x": np.ones((1, 2), np.float32)}, check_n=1
    )
    assert agrees
    assert [n.op_type for n in unfolded.graph.node] == ["Neg", "Add"]


def test_simplify_takes_shapes() -> None:
    simplified, _ = onnxsim.simplify(MODEL, overwrite_input_shapes={"x": [3, 2]})
    assert [d.dim_value for d in simplified.graph.input[0].type.tensor_type.shape.dim] == [3, 2]
