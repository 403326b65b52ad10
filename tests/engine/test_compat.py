"""The drop-in replacements against the originals, on what both support."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from benchmarks.skeleton import load_skeleton
from graphopt.compat import onnxoptimizer, onnxsim, onnxslim
from graphopt.errors import UsageError
from graphopt.system.extras import release_of
from graphopt.verify import compare

MODEL = onnx.parser.parse_model(
    '<ir_version: 9, opset_import: ["" : 18]> g (float[n,2] x) => (float[n,2] y) <float[2] w = {1, -2}>'
    "{ a = Identity (x)  b = Transpose <perm = [1,0]> (a)  c = Transpose <perm = [1,0]> (b)  d = Neg (w)  y = Add (c, d) }"
)


def test_unknown_names_and_options_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown pass 'nosuch'"):
        onnxoptimizer.optimize(MODEL, ["nosuch"])
    with pytest.raises(UsageError, match="expected a list of names, found 'eliminate_identity'"):
        onnxoptimizer.optimize(MODEL, "eliminate_identity")
    with pytest.raises(UsageError, match="expects a ModelProto, found str"):
        onnxoptimizer.optimize("model.onnx")
    with pytest.raises(UsageError, match="custom_lib is not supported"):
        onnxsim.simplify(MODEL, custom_lib="x")
    assert onnxsim.simplify(MODEL, custom_lib=None)[1]  # as exporters that pass all options on say "none"
    assert onnxslim.slim(MODEL, dtype=None) is not None


def test_every_default_pass_of_onnxoptimizer_is_there() -> None:
    original = pytest.importorskip("onnxoptimizer")
    missing = set(original.get_fuse_and_elimination_passes()) - set(onnxoptimizer.get_fuse_and_elimination_passes())
    assert not missing
    assert not set(original.get_available_passes()) - set(onnxoptimizer.get_available_passes())


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
    simplified, agrees = onnxsim.simplify(MODEL, check_n=1, overwrite_input_shapes={"x": [3, 2]})
    assert agrees
    assert [d.dim_value for d in simplified.graph.input[0].type.tensor_type.shape.dim] == [3, 2]


STAGED = """<ir_version: 9, opset_import: ["" : 18]> g (float[n,2] x, int64[n] k) => (float[n,2] y, float[2] b, int64[n] j)
<float[2] w = {1, -2}, float[2] u = {3, 4}>
{ a = Neg (w)  b = Neg (a)  t = Add (x, a)  input_0 = Add (t, u)  y = Neg (input_0)  j = Neg (k) }"""


def test_simplify_tests_with_shapes_of_unnamed_dimensions() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[?,4] x) => (float[2,?] y) <int64[2] s = {2, -1}>
    { a = Identity (x)  y = Reshape (a, s) }"""
    model = onnx.parser.parse_model(text)
    assert onnxsim.simplify(model, check_n=1, test_input_shapes={"x": [6, 4]})[1]
    with pytest.raises(UsageError, match="no input 'q'"):
        onnxsim.simplify(model, check_n=1, test_input_shapes={"q": [6, 4]})


def names(infos: object) -> list[str]:
    return [info.name for info in infos]


def staged(*passes: str) -> onnx.ModelProto:
    model = onnxoptimizer.optimize(onnx.parser.parse_model(STAGED), list(passes), fixed_point=True)
    onnx.checker.check_model(model, full_check=True)
    return model


def test_rename_input_output(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = staged("rename_input_output").graph
    assert (names(graph.input), names(graph.output)) == (["input_0", "input_1"], ["output_0", "output_1", "output_2"])
    assert [n.op_type for n in graph.node] == ["Neg", "Neg", "Add", "Add", "Neg", "Neg"]
    assert graph.node[3].output == ["input_0_1"], "the internal value of that name gives way"
    monkeypatch.setenv("OPTIMIZER_RENAME_INPUT_PATTERN", "in%dx")
    monkeypatch.setenv("OPTIMIZER_RENAME_OUTPUT_PATTERN", "no number")
    graph = staged("rename_input_output").graph
    assert (names(graph.input), names(graph.output)[0]) == (["in0x", "in1x"], "output_0")
    monkeypatch.setenv("OPTIMIZER_RENAME_OUTPUT_PATTERN", "in%dx")
    with pytest.raises(UsageError, match="two values one name"):
        staged("rename_input_output")


def test_rename_reaches_into_branches() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[2] x, bool c) => (float[2] y)
    { y = If (c) <then_branch = t () => (float[2] p) { p = Neg (x) }, else_branch = e () => (float[2] q) { q = Abs (x) }> }"""
    model = onnxoptimizer.optimize(onnx.parser.parse_model(text), ["rename_input_output"])
    onnx.checker.check_model(model, full_check=True)
    branches = [attribute.g.node[0].input[0] for attribute in model.graph.node[0].attribute]
    assert branches == ["input_0", "input_0"]


def trained() -> onnx.ModelProto:
    """A model that states how `w` is trained, from its input and its output."""
    model = onnx.parser.parse_model("""<ir_version: 11, opset_import: ["" : 18]>
    g (int64[2] x) => (int64[2] y) <int64[2] w = {1, 2}> { y = Add (x, w) }""")
    info = model.training_info.add()
    step = "step () => (int64[2] new) { input_0 = Sub (y, x)  new = Add (w, input_0) }"
    info.algorithm.CopyFrom(onnx.parser.parse_graph(step))
    info.update_binding.add(key="w", value="new")
    return model


def test_rename_reaches_training_information_and_shardings() -> None:
    model = trained()
    model.graph.node[0].device_configurations.add(configuration_id="two").sharding_spec.add(tensor_name="x")
    after = onnxoptimizer.optimize(model, ["rename_input_output"])
    difference, new = after.training_info[0].algorithm.node
    assert (difference.input, difference.output) == (["output_0", "input_0"], ["input_0_1"])
    assert new.input == ["w", "input_0_1"]
    assert after.graph.node[0].device_configurations[0].sharding_spec[0].tensor_name == "input_0"


def test_what_training_reads_keeps_its_type() -> None:
    after = onnxoptimizer.optimize(trained(), ["rewrite_input_dtype"])
    assert after.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.INT64


def test_rewrite_input_dtype() -> None:
    graph = staged("rewrite_input_dtype").graph
    assert [i.type.tensor_type.elem_type for i in graph.input] == [onnx.TensorProto.FLOAT, onnx.TensorProto.INT32]
    assert graph.output[2].type.tensor_type.elem_type == onnx.TensorProto.INT64
    assert [n.op_type for n in graph.node] == ["Cast", "Neg", "Neg", "Add", "Add", "Neg", "Neg"]


def test_split_init_and_predict_together_are_the_model() -> None:
    init, predict = staged("split_init"), staged("split_predict")
    assert (names(init.graph.input), names(init.graph.output)) == ([], ["b", "a", "u"])
    assert names(predict.graph.input) == ["x", "k", "a", "u", "b"]
    assert names(predict.graph.output) == ["y", "b", "j"]
    assert [n.op_type for n in predict.graph.node] == ["Add", "Add", "Neg", "Neg"]
    assert not predict.graph.initializer
    run = ReferenceEvaluator
    feeds = {"x": np.array([[1, 2], [-3, 4]], np.float32), "k": np.array([5, -6])}
    between = dict(zip(names(init.graph.output), run(init).run(None, {}), strict=True))
    expected = run(onnx.parser.parse_model(STAGED)).run(None, feeds)
    for one, two in zip(expected, run(predict).run(None, {**feeds, **between}), strict=True):
        np.testing.assert_array_equal(one, two)


def test_split_keeps_chance_out_of_the_constant_part() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]> g () => (float[2] y, float[2] z) <float[2] w = {1, -2}>
    { r = RandomNormal <shape = [2]> ()  a = Neg (w)  y = Add (r, a)  z = Abs (a) }"""
    init = onnxoptimizer.optimize(onnx.parser.parse_model(text), ["split_init"])
    assert [n.op_type for n in init.graph.node] == ["Neg", "Abs"]
    assert names(init.graph.output) == ["z", "a"]


def test_split_declines_what_it_cannot_type() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18, "own" : 1]> g () => (float[2] y) <float[2] w = {1, -2}>
    { a = own.Thing (w)  y = Neg (a) }"""
    model = onnx.parser.parse_model(text)
    assert [n.op_type for n in onnxoptimizer.optimize(model, ["split_predict"]).graph.node] == ["Thing", "Neg"]


def test_lift_lexical_references() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}>
    { a = Neg (x)  y = If (c) <then_branch = t () => (float[2] p) { p = Add (a, w) }, else_branch = e () => (float[2] q)
    { q = If (c) <then_branch = u () => (float[2] r) { r = Abs (x) }, else_branch = v () => (float[2] s) { s = Neg (a) }> }> }"""
    model = onnxoptimizer.optimize(onnx.parser.parse_model(text), ["lift_lexical_references"])
    found = {a.name: list(a.strings) for a in model.graph.node[1].attribute}
    assert found["__control_inputs"] == [b"a", b"c", b"w", b"x"]


def test_the_pass_of_their_main_branch_for_squeezes_that_unsqueeze_undoes() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        g (float[2, 1, 4] x) => (float[2, 1, 4] y) <int64[1] one = {1}, int64[1] last = {-2}> {
          a = Squeeze(x, one)  b = Unsqueeze(a, last)  y = Relu(b)
        }
    """)
    name = "fuse_consecutive_squeeze_unsqueeze"
    assert name in onnxoptimizer.get_available_passes()
    assert [node.op_type for node in onnxoptimizer.optimize(model, [name]).graph.node] == ["Relu"]


SMALL = {
    "equal constants of two nodes": """<ir_version: 9, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { a = Constant<value = float[1] {2}>() b = Constant<value = float[1] {2}>() p = Mul(x,a) q = Mul(x,b) y = Add(p,q) }""",
    "zero through Identity and Reshape": """<ir_version: 9, opset_import: ["" : 17]> g (float[2,3] x) => (float[2,3] y) { z = Constant<value = float[1] {0}>() r = Identity(z) s = Constant<value = int64[2] {1,1}>() e = Reshape(r, s) c = Cast<to = 1>(e) y0 = Add(x, c) y = Relu(y0) }""",
    "zero through ConstantOfShape": """<ir_version: 9, opset_import: ["" : 17]> g (float[2,3] x) => (float[2,3] y) { s = Constant<value = int64[2] {1,1}>() z = ConstantOfShape(s) c = Cast<to = 1>(z) y0 = Add(x, c) y = Relu(y0) }""",
    "size cast to float and back": """<ir_version: 9, opset_import: ["" : 17]> g (float[A,3,4] x) => (float[B,C] y) { s = Shape(x) i = Constant<value = int64[1] {0}>() d = Gather(s,i) f = Cast<to = 1>(d) e = Cast<to = 7>(f) m = Constant<value = int64[1] {12}>() t = Concat<axis=0>(e,m) y = Reshape(x,t) }""",
    "size cast and unsqueezed": """<ir_version: 9, opset_import: ["" : 17]> g (float[A,3,4] x) => (float[B,C] y) { s = Shape(x) i = Constant<value = int64 {0}>() d = Gather(s,i) f = Cast<to = 7>(d) ax = Constant<value = int64[1] {0}>() u = Unsqueeze(f, ax) m = Constant<value = int64[1] {12}>() t = Concat<axis=0>(u,m) y = Reshape(x,t) }""",
}


@pytest.mark.parametrize("fixed_point", [False, True])
@pytest.mark.parametrize("text", SMALL.values(), ids=SMALL)
def test_no_more_nodes_than_the_original_leaves(text: str, fixed_point: bool) -> None:
    """Neutral elements reached through several producers, sizes cast on their way into a Reshape, equal constants."""
    original = pytest.importorskip("onnxoptimizer")
    model = onnx.parser.parse_model(text)
    theirs = original.optimize(model, fixed_point=fixed_point)
    ours = onnxoptimizer.optimize(model, fixed_point=fixed_point)
    assert len(ours.graph.node) <= len(theirs.graph.node)
    assert compare(model, ours).ok


@pytest.mark.parametrize("key", ["dynamo_raw/distilbert_dyn", "dynamo_raw/poolformer_s12"])
def test_no_more_nodes_in_one_round_on_networks(key: str) -> None:
    original = pytest.importorskip("onnxoptimizer")
    model = load_skeleton(key)
    theirs = len(original.optimize(model).graph.node)
    assert len(onnxoptimizer.optimize(model).graph.node) <= theirs


def test_simplify_and_slim_fill_in_inputs_that_are_not_given(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> agraph (float[n,2] x, float[n,2] b) => (float[n,2] y)'
        " { i = Identity(x) y = Add(i, b) }"
    )
    ones = np.ones((3, 2), np.float32)
    np.save(tmp_path / "x.npy", ones)
    assert onnxsim.simplify(model, check_n=1, input_data={"b": ones[:1]})[1]
    for given in ({"x": ones, "b": ones}, [f"x:{tmp_path}/x.npy", "b:3,2"], ["x:5,2", "b:5,2"]):
        slimmed = onnxslim.slim(model, model_check=True, model_check_inputs=given)
        assert slimmed is not None
        assert [node.op_type for node in slimmed.graph.node] == ["Add"]
    with pytest.raises(UsageError, match="input shape 'x': expected something like input:1,3,224,224"):
        onnxslim.slim(model, model_check=True, model_check_inputs=["x"])


@pytest.mark.parametrize("text", ['__version__ = "1.31.0+custom"\n', None])
def test_a_release_that_no_file_states_is_none(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of that name that a test put there has no file; builds between releases are no release."""
    if text is None:
        monkeypatch.setitem(sys.modules, "imaginary", types.ModuleType("imaginary"))
    else:
        (tmp_path / "imaginary.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
    assert release_of("imaginary") == release_of("absent_altogether") == (0, 0)


def test_a_release_is_read_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imagined.py").write_text('__version__ = "1.31.2"\nraise ImportError\n')
    monkeypatch.syspath_prepend(tmp_path)
    assert release_of("imagined") == (1, 31)
