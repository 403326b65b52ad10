"""Conversion between opsets: the operator cases of the standard's backend suite, refusals, and what stays as it is."""

from __future__ import annotations

import dataclasses
import random
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphopt
from benchmarks.conversion import Case, attempt, case_of, differs, pairs, run_model
from graphopt.compat.onnx_version_converter import convert_version
from graphopt.errors import UsageError
from graphopt.ir import Model
from graphopt.opsets import ConversionError, convert, convert_view
from graphopt.opsets.changes import Change, all_changes, defaults, newest
from graphopt.verify import compare

LOOKED_AT = Path(__file__).with_name("opset_changes.txt")
"""The changes that are more than new element types, each of which was read in the standard's changelog."""


def parsed(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model, full_check=True)
    return model


def canonical(model: onnx.ModelProto) -> str:
    """The graph as text; the order of attributes, which says nothing, is that of their names."""
    copy = onnx.GraphProto()
    copy.CopyFrom(model.graph)
    for node in copy.node:
        attributes = sorted(node.attribute, key=lambda attribute: attribute.name)
        del node.attribute[:]
        node.attribute.extend(attributes)
    return onnx.printer.to_text(copy)


def opset(model: onnx.ModelProto, domain: str = "") -> int:
    return next(entry.version for entry in model.opset_import if entry.domain == domain)


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def _check(chosen: list[tuple[str, int]]) -> None:
    found = {pair: attempt(case, pair[1]) for pair in chosen if (case := case_of(pair[0])) is not None}
    assert {pair: said for pair, said in found.items() if said[0] in ("wrong", "crashed")} == {}
    assert sum(said[0] == "right" for said in found.values()) > 0.7 * len(found)


def test_a_sample_of_the_backend_cases_is_right_or_refused() -> None:
    """Another sample every day; what fails is named."""
    _check(random.Random(date.today().toordinal()).sample(list(pairs()), 30))


def _stated(case: Case) -> Case:
    """The case with all operands but the first as initializers, which is how models have them."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    feed = dict(case.feed)
    for info in list(model.graph.input)[1:]:
        model.graph.initializer.append(onnx.numpy_helper.from_array(feed.pop(info.name), info.name))
        model.graph.input.remove(info)
    return dataclasses.replace(case, model=model, feed=feed)


@pytest.mark.parametrize("target", [8, 10, 15])
def test_images_are_resized_before_there_were_such_modes(target: int) -> None:
    """Whatever mode, coordinates, axes and sizes: all but the one that crops goes down where sizes are known."""
    names = [name for name in dict(pairs()) if "resize" in name and "tf_crop" not in name]
    found = {name: attempt(_stated(case), target) for name in names[::5] if (case := case_of(name)) is not None}
    assert {name: said for name, said in found.items() if said[0] != "right"} == {}
    assert len(found) > 4


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
def test_backend_cases_are_right_or_refused(number: int) -> None:
    _check(list(pairs())[number::8])


def _widens(change: Change) -> bool:
    """Whether nothing but element types was added, as far as the schemas tell."""
    old, new = change.before, change.after
    if old is None or new is None or defaults(old) != defaults(new) or set(old.attributes) != set(new.attributes):
        return False
    before, after = ([(p.option, p.is_homogeneous) for p in (*s.inputs, *s.outputs)] for s in (old, new))
    return before == after


def test_every_change_of_the_standard_was_looked_at() -> None:
    """A release of onnx with a new version of an operator fails here by name until somebody has read what changed."""
    more = {f"{c.domain}:{c.op_type}-{c.version}" for c in all_changes() if not _widens(c)}
    assert sorted(more - set(LOOKED_AT.read_text().split())) == []


HALF = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2,3] x) => (float[2,3] y) {
  shape = Constant <value_ints = [3]> ()
  scale = ConstantOfShape <value = float[1] {1.0}> (shape)
  n = LayerNormalization <axis = -1> (x, scale)
  y = Relu (n)
}
"""


def test_what_is_newer_is_written_out() -> None:
    model = convert(parsed(HALF), opset=13)
    assert opset(model) == 13
    assert "LayerNormalization" not in ops(model)
    onnx.checker.check_model(model, full_check=True)


AROUND = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x, float[2] NAME, bool c) => (float[2] y) <int64 one = {1}, float[2] w = {1, 2}>
{
  s = SequenceConstruct (x, NAME)
  n = Neg (x)
  m = SequenceMap (s) <body = b (float[2] e) => (float[2] r) {
    a = Add (e, NAME)
    p = Mul (a, w)
    r = If (c) <then_branch = t () => (float[2] o) { o = Add (p, n) }, else_branch = f () => (float[2] u) { u = Neg (NAME) }>
  }>
  y = SequenceAt (m, one)
}
"""


def test_a_body_that_is_written_out_reads_what_is_around_it() -> None:
    model = parsed(AROUND.replace("NAME", "z"))
    after = convert(model, opset=16)
    onnx.checker.check_model(after, full_check=True)
    assert compare(model, after).ok


@pytest.mark.parametrize("name", ["input_sequence", "SequenceMap_loop_body_r_in"])
def test_what_a_written_body_reads_is_not_taken_for_what_has_its_name_there(name: str) -> None:
    with pytest.raises(ConversionError, match="SequenceMap"):
        convert(parsed(AROUND.replace("NAME", name)), opset=16)


def test_an_operator_that_is_written_out_may_hold_itself() -> None:
    """The runtime and the standard's evaluator run no such map; of each element and y the body gives the second sum."""
    nested = parsed("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x, float[2] y) => (float[2] a, float[2] b) <int64 zero = {0}, int64 one = {1}> {
          s = SequenceConstruct (x, y)
          m = SequenceMap (s) <body = outer (float[2] e) => (float[2] r) {
            t = SequenceConstruct (e, y)
            n = SequenceMap (t) <body = inner (float[2] f) => (float[2] p) { p = Add (f, e) }>
            r = SequenceAt (n, one)
          }>
          a = SequenceAt (m, zero)
          b = SequenceAt (m, one)
        }
    """)
    meant = parsed("""
        <ir_version: 8, opset_import: ["" : 16]>
        g (float[2] x, float[2] y) => (float[2] a, float[2] b) { a = Add (y, x) b = Add (y, y) }
    """)
    after = convert(nested, opset=16)
    onnx.checker.check_model(after, full_check=True)
    assert compare(meant, after).ok


def test_the_source_is_not_changed_unless_inplace() -> None:
    model = parsed(HALF)
    before = model.SerializeToString()
    convert(model, opset=13)
    assert model.SerializeToString() == before
    assert convert(model, opset=13, inplace=True) is model
    assert opset(model) == 13


REFUSED = """
<ir_version: 9, opset_import: ["" : 20]>
g (float[2,3] x, string[2] s) => (string[2] y, float[2,3] z) {
  y = StringConcat (s, s)
  z = Gelu (x)
}
"""


def test_a_refused_conversion_changes_nothing_and_says_what_stands_in_the_way() -> None:
    model = Model.load(parsed(REFUSED))
    before = model.flush().SerializeToString()
    with pytest.raises(ConversionError) as caught:
        convert_view(model, 13)
    assert [(each.op, each.node, each.nearest) for each in caught.value.refusals] == [("StringConcat", "y", 20)]
    assert "StringConcat" in str(caught.value)
    assert "nearest opset: 20" in str(caught.value)
    assert model.flush().SerializeToString() == before
    convert_view(model, 22)
    assert opset(model.flush()) == 22


@pytest.mark.parametrize("version", [6, 0, -1, 1000, True, "13"])
def test_versions_that_are_none_are_refused(version: object) -> None:
    with pytest.raises(UsageError, match="opset"):
        convert(parsed(HALF), opset=version)  # type: ignore[arg-type]


def test_without_a_version_there_is_nothing_to_convert_to() -> None:
    with pytest.raises(UsageError, match="opset"):
        convert(parsed(HALF))


ROUND = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2,3,4] x) => (float[2,3] y) {
  a = ReduceMean <axes = [2], keepdims = 0> (x)
  b, c = Split <axis = 1> (w)
  d = Softmax <axis = -1> (a)
  e = Add (d, b)
  y = Mul (e, c)
}
"""


def test_there_and_back_is_the_same_graph() -> None:
    model = parsed(ROUND.replace("(w)", "(v)").replace("float[2,3,4] x", "float[2,3,4] x, float[2,6] v"))
    back = convert(convert(model, opset=newest()), opset=17)
    assert canonical(back) == canonical(model)


def test_names_metadata_and_weights_stay() -> None:
    model = parsed(HALF)
    weight = onnx.numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "weight")
    model.graph.initializer.append(weight)
    model.graph.node.append(helper.make_node("Add", ["y", "weight"], ["z"], name="last", doc_string="why"))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3]))
    model.metadata_props.add(key="author", value="nobody")
    after = convert(model, opset=11)
    assert [(p.key, p.value) for p in after.metadata_props] == [("author", "nobody")]
    assert next(t for t in after.graph.initializer if t.name == "weight").raw_data == weight.raw_data
    assert (after.graph.node[-1].name, after.graph.node[-1].doc_string) == ("last", "why")
    assert [v.name for v in after.graph.output] == ["y", "z"]


def test_the_ir_version_is_that_of_the_opset() -> None:
    model = parsed(HALF)
    assert convert(model, opset=21).ir_version == 10
    assert convert(model, opset=11).ir_version == 6
    assert convert(model, opset=7).ir_version == 4


@pytest.mark.parametrize(
    ("kind", "least"),
    [("bfloat16", 4), ("float8e5m2", 9), ("int4", 10), ("uint4", 10), ("float4e2m1", 11), ("optional(seq(float))", 8)],
)
def test_the_ir_version_has_the_types_of_what_is_beside(kind: str, least: int) -> None:
    """An operator of another domain may take what no operator of the opset does."""
    model = parsed(f"""<ir_version: 12, opset_import: ["" : 23, "com.microsoft" : 1]>
        g (float[2] x, {kind} w) => (float[2] y) {{ y = Relu (x) }}""")
    assert convert(model, opset=7).ir_version == least
    assert convert(model, opset=26).ir_version == 13


@pytest.mark.parametrize(("attributes", "least"), [("", 8), ("<slope: float = 0.5>", 9)])
def test_the_ir_version_has_defaults_of_functions(attributes: str, least: int) -> None:
    model = parsed(f"""<ir_version: 10, opset_import: ["" : 20, "of" : 1]>
        g (float[2] x) => (float[2] y) {{ y = of.F (x) }}
        <opset_import: ["" : 20], domain: "of"> F {attributes} (x) => (y) {{ y = Relu (x) }}""")
    assert convert(model, opset=9).ir_version == least


@pytest.mark.parametrize("asked", [{"opset": 20}, {"runtime": "tensorrt"}, {"ml_opset": 3}])
def test_what_is_there_already_is_left_alone(asked: dict[str, Any]) -> None:
    model = parsed('<ir_version: 8, opset_import: ["" : 20]> g (float[2] x) => (float[2] y) { y = Mish (x) }')
    assert convert(model, **asked).SerializeToString() == model.SerializeToString()


def test_other_domains_stay_as_they_are() -> None:
    model = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["" : 13, "com.microsoft" : 1, "mine" : 3]>
g (float[2] x) => (y) {
  a = com.microsoft.Gelu (x)
  b = mine.Softmax <axis = 0> (a)
  y = Softmax <axis = 0> (x)
}
""")
    after = convert(model, opset=11)
    assert [(o.domain, o.version) for o in after.opset_import] == [("", 11), ("com.microsoft", 1), ("mine", 3)]
    assert after.graph.node[0].SerializeToString() == model.graph.node[0].SerializeToString()
    assert after.graph.node[1].SerializeToString() == model.graph.node[1].SerializeToString()


NESTED = """
<ir_version: 8, opset_import: ["" : 13, "f" : 1]>
g (bool c, float[2,3] x) => (float[2] y) {
  axes = Constant <value = int64[1] {1}> ()
  y = If (c) <
    then_branch = one () => (float[2] s) { s = ReduceSum <keepdims = 0> (x, axes) },
    else_branch = two () => (float[2] t) { t = f.Sum1 (x) }>
}
<domain: "f", opset_import: ["" : 13]>
Sum1 (x) => (y) {
  a = Constant <value = int64[1] {1}> ()
  m = ReduceSum <keepdims = 0> (x, a)
  y = Identity (m)
}
"""


def test_bodies_and_functions_are_converted_too() -> None:
    model = onnx.parser.parse_model(NESTED)
    after = convert(model, opset=11)
    branch = after.graph.node[-1].attribute[0].g
    assert [len(node.input) for node in branch.node] == [1]
    function = after.functions[0]
    assert function.opset_import[0].version == 11
    assert [len(node.input) for node in function.node if node.op_type == "ReduceSum"] == [1]
    assert compare(model, after).ok


def test_optimize_converts_first() -> None:
    assert opset(graphopt.optimize(parsed(HALF), opset=20)) == 20
    assert "LayerNormalization" not in ops(graphopt.optimize(parsed(HALF), opset=13))


def test_the_interface_of_the_standards_converter() -> None:
    assert opset(convert_version(parsed(HALF), 13)) == 13


REFERRING = """
<ir_version: 8, opset_import: ["" : 18, "f" : 1]>
g (float[2,3] x) => (float[2] y) { y = f.Last <keep = 0> (x) }
<domain: "f", opset_import: ["" : 18]>
Last <keep> (x) => (y) {
  axis = Constant <value = int64[1] {-1}> ()
  shape = Shape (x)
  r = Reshape <allowzero = 1> (x, shape)
  s = Softmax <axis = 0> (r)
  y = ReduceSum <keepdims: int = @keep> (s, axis)
}
"""


def test_functions_are_replaced_by_their_bodies_where_the_types_inside_matter() -> None:
    model = onnx.parser.parse_model(REFERRING)
    after = convert(model, opset=9)
    assert [len(after.functions), opset(after)] == [0, 9]
    assert compare(model, after).ok


ZEROS = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[n,6] x, int64[3] s) => (float[a,b,c] y) { y = Reshape <allowzero = 1> (x, s) }
"""


@pytest.mark.parametrize("shape", [(2, 3, 2), (2, -1, 3), (0, 3, 2)])
def test_sizes_of_zero_that_are_computed_stay_zero(shape: tuple[int, ...]) -> None:
    model = parsed(ZEROS)
    feed = {"x": np.ones((0 if 0 in shape else 2, 6), np.float32), "s": np.asarray(shape, np.int64)}
    assert differs(run_model(model, feed), run_model(convert(model, opset=11), feed)) is None


LABELS = """
<ir_version: 8, opset_import: ["" : 13, "ai.onnx.ml" : 1]>
g (string[3] x) => (int64[3] y) { y = ai.onnx.ml.LabelEncoder <classes_strings = ["a", "b"], default_int64 = 7> (x) }
"""


def test_operators_of_machine_learning_have_versions_of_their_own() -> None:
    model = parsed(LABELS)
    after = convert(model, ml_opset=4)
    assert (opset(after), opset(after, "ai.onnx.ml")) == (13, 4)
    feed = {"x": np.asarray(["b", "c", "a"], object)}
    assert run_model(after, feed)[0].tolist() == [1, 7, 0]
    with pytest.raises(ConversionError, match="to ai.onnx.ml opset 1: .*(default_float|keys_strings)"):
        convert(after, ml_opset=1)


_SIZES = {"b": 2, "h": 3, "i": 2, "j": 3, "k": 4, "l": 5, "q": 6, "d": 4}
EQUATIONS = [
    "ij->ji", "ij->", "ij,jk->ik", "ij,jk", "bhqd,bhkd->bhqk", "bqhd,bkhd->bhqk", "i,i->", "i,j->ij", "ij,ij->ij",
    "ijk,kl->ijl", "...ij,...jk->...ik", "ij,jk,kl->il", "ij,k->i", "bijk,bijl->bkl", "...i->...", "i->i",
]  # fmt: skip

STRETCHED = [
    ("ijkl,ijlz->ijkz", [(2, 3, 4, 1), (2, 3, 5, 6)]), ("ij,jk->ik", [(2, 1), (3, 4)]), ("ij,kj->ik", [(2, 4), (3, 1)]),
    ("bhid,bhjd->bhij", [(1, 2, 3, 4), (2, 1, 5, 4)]), ("i,i->", [(1,), (5,)]), ("i,i,i->i", [(1,), (1,), (5,)]),
]  # fmt: skip


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einstein_sums_are_written_out(equation: str) -> None:
    terms = [term.replace("...", "bh") for term in equation.partition("->")[0].split(",")]
    writes_out_alike(equation, [tuple(_SIZES[letter] for letter in term) for term in terms])


@pytest.mark.parametrize(("equation", "shapes"), STRETCHED)
def test_an_axis_of_one_is_broadcast_to_its_letter(equation: str, shapes: list[tuple[int, ...]]) -> None:
    writes_out_alike(equation, shapes)


def test_an_empty_image_has_no_proportions() -> None:
    text = """g (int64[4] s) => (float[N,C,H,W] y) <float[0,1,1,1] x = {}>
    { y = Resize <keep_aspect_ratio_policy = "not_larger"> (x, "", "", s) }"""
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 18]>' + text)
    with pytest.raises(ConversionError, match="cannot convert to opset 17"):
        convert(model, opset=17)


@pytest.mark.parametrize("sizes", ["float[N] a, float[3] b", "float[N] a, float[M] b"])
def test_an_axis_that_may_be_one_is_broadcast_to_its_letter(sizes: str) -> None:
    """Whether sizes are equal shows when the model runs, and a product of matrices takes none of 1 beside others."""
    text = f'g ({sizes}) => (float[] y) {{ y = Einsum <equation = "d,d->"> (a, b) }}'
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 13]>' + text)
    feed = {"a": np.array([2], np.float32), "b": np.array([3, 4, -5], np.float32)}
    after = convert(model, opset=7)
    assert "MatMul" not in ops(after)
    assert differs(run_model(model, feed), run_model(after, feed)) is None


def writes_out_alike(equation: str, shapes: list[tuple[int, ...]]) -> None:
    """An `Einsum` of random operands gives the same where its opset has none."""
    rng = np.random.default_rng(0)
    feed = {f"x{i}": rng.standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name, x in feed.items()]
    node = helper.make_node("Einsum", list(feed), ["y"], equation=equation)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    after = convert(model, opset=7)
    assert "Einsum" not in ops(after)
    assert differs(run_model(model, feed), run_model(after, feed)) is None


EXTREME = {
    "cumulated": ("CumSum (x, axis)", 11), "shrunk": ("Shrink <lambd = 1.0, bias = 0.5> (x)", 9),
    "chosen": ("Where (c, x, z)", 9), "rounded": ("Round (x)", 11), "hyperbolic": ("Sinh (x)", 9),
}  # fmt: skip


@pytest.mark.parametrize("name", EXTREME)
def test_infinities_nans_and_tiny_numbers_are_what_they_were(name: str) -> None:
    computation, version = EXTREME[name]
    model = parsed(f"""
<ir_version: 6, opset_import: ["" : {version}]>
g (float[2,4] x, float[2,4] z, bool[2,4] c) => (float[2,4] y) <int64 axis = {{1}}> {{ y = {computation} }}
""")
    x = np.asarray([[1.5, np.inf, 2.5, -np.inf], [np.nan, 1e-6, -2.5, 0.5]], np.float32)
    feed = {"x": x, "z": x[::-1].copy(), "c": np.asarray([[1, 0, 1, 0], [0, 1, 1, 0]], bool)}
    feed = {key: value for key, value in feed.items() if key in {i.name for i in model.graph.input}}
    before, after = run_model(model, feed)[0], run_model(convert(model, opset=version - 1), feed)[0]
    np.testing.assert_allclose(after, before, rtol=2e-7)


def normalizing() -> onnx.ModelProto:
    """A layer normalization that is written out, at opset 13."""
    return parsed(
        """
        <ir_version: 7, opset_import: ["" : 13]>
        g (float[2, 4] x) => (float[2, 4] y)
        <float two = {2}, float e = {0.00001}>
        {
          m = ReduceMean <axes = [-1]> (x)
          c = Sub (x, m)
          p = Pow (c, two)
          v = ReduceMean <axes = [-1]> (p)
          a = Add (v, e)
          s = Sqrt (a)
          y = Div (c, s)
        }
        """
    )


@pytest.mark.parametrize(
    "settings", [{"opset": 14}, {"options": graphopt.Options(keep_opset=True)}, {"skip": ["convert_opset"]}]
)
def test_levels_keep_an_opset_that_is_to_be_kept(settings: dict[str, Any]) -> None:
    asked = settings.get("opset", 13)
    assert graphopt.optimize(normalizing(), "extended").opset_import[0].version == 17
    assert graphopt.optimize(normalizing(), "basic").opset_import[0].version == 13
    assert graphopt.optimize(normalizing(), "extended", **settings).opset_import[0].version == asked
