"""Explanations and bisection, with faults planted on purpose."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.audit.bisection import Oracle, bisect, first_bad, nodes_of, reproduce
from graphopt.audit.blame import blame
from graphopt.audit.difference import diff
from graphopt.audit.explaining import explain
from graphopt.audit.settings import Settings
from graphopt.errors import Decline, UsageError
from graphopt.manager import PassManager
from graphopt.rewrite import Event, Level, Options, Target
from graphopt.rewrite.events import NodeNote


def chain(*ops: str) -> onnx.ModelProto:
    """A chain of unary operators from x to y, with a Conv in front."""
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.standard_normal((4, 3, 3, 3)).astype(np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["v0"], name="conv")]
    names = [f"v{i}" for i in range(len(ops))] + ["y"]
    nodes += [helper.make_node(op, [names[i]], [names[i + 1]], name=f"{op.lower()}{i}") for i, op in enumerate(ops)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "chain", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def broken_identity(monkeypatch):
    """Eliminates Identity rightly but for the one named `identity3`, where it drops the Neg in front too."""
    from graphopt_passes.elimination.nop import EliminateIdentity

    right = EliminateIdentity.rewrite

    def rewrite(self, node, rw):
        if node.name == "identity3":
            return rw.replace(node, [node.inputs[0].producer.inputs[0]])
        return right(self, node, rw)

    monkeypatch.setattr(EliminateIdentity, "rewrite", rewrite)


def test_first_bad_asks_no_more_than_needed() -> None:
    for count in range(1, 40):
        for place in range(1, count + 1):
            asked: list[int] = []

            def bad(n: int, place: int = place, asked: list[int] = asked) -> bool:
                asked.append(n)
                return n >= place

            assert first_bad(count, bad) == place
            assert len(asked) <= max(1, count - 1).bit_length()


def test_nothing_to_bisect() -> None:
    assert bisect(chain("Relu", "Identity", "Neg")) is None
    assert bisect(chain("Relu", "Neg")) is None


def test_bisect_names_the_planted_fault(broken_identity) -> None:
    model = chain("Identity", "Relu", "Neg", "Identity", "Sin", "Identity", "Exp", "Identity")
    fault = bisect(model)
    assert fault is not None
    assert fault.step == "eliminate_identity"
    assert fault.event.startswith("eliminate_identity: ")
    assert "v4" in fault.event
    assert fault.of > 1
    assert fault.reproduction is not None
    assert {n.op_type for n in fault.reproduction.graph.node} >= {"Neg", "Identity"}
    assert fault.nodes <= 4
    onnx.checker.check_model(fault.reproduction, full_check=True)
    again = bisect(fault.reproduction)
    assert again is not None
    assert again.step == "eliminate_identity"


def test_nodes_of_a_reproduction_are_those_of_all_graphs() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18, "my" : 1]>
        g (bool c, float[2] x) => (float[2] y) {
            y = If (c) <then_branch = a () => (o) { n = Neg (x) o = my.F (n) }, else_branch = b () => (e) { e = Relu (x) }>
        }
        <domain: "my", opset_import: ["" : 18]> F (x) => (y) { y = Exp (x) }""")
    assert nodes_of(model) == 5


def test_reproduce_without_a_difference() -> None:
    assert reproduce(chain("Relu", "Identity"), {"y"}, lambda model: model, Oracle()) is None


def test_explanation_lists_events_and_passes() -> None:
    found = explain(chain("Identity", "Relu", "Identity"))
    assert [step.event.rule for step in found.steps] == ["eliminate_identity"] * 2
    assert found.nodes == (4, 2)
    assert found.steps[0].traffic == 4 * 6 * 6 * 4
    assert found.gains[0].hits == 2
    assert found.to_dict()["steps"][0]["rule"] == "eliminate_identity"


def test_story_of_a_node() -> None:
    found = explain(chain("Identity", "Relu"))
    story = found.story("identity0")
    assert story.start is not None
    assert story.start.op == "Identity"
    assert [event.rule for event in story.events] == ["eliminate_identity"]
    assert found.story("y").end[0].op == "Relu"
    assert found.story("relu1").events == []
    with pytest.raises(UsageError, match="no node or value 'nothing'"):
        found.story("nothing")


def test_near_misses_tell_why(monkeypatch) -> None:
    from graphopt_passes.elimination.nop import EliminateIdentity

    def rewrite(self, node, rw):
        raise Decline("{} is dear to me", node.name)

    monkeypatch.setattr(EliminateIdentity, "rewrite", rewrite)
    found = explain(chain("Identity", "Relu"), Settings().only("eliminate_identity"))
    assert [miss.reason for miss in found.near_misses] == ["identity0 is dear to me"]
    assert found.story("identity0").near_misses[0].rule == "eliminate_identity"
    assert found.steps == []


def test_what_stays_in_plain_layout_has_its_reason() -> None:
    settings = Settings(level=Level.ALL, options=Options(target=Target.parse("avx512")))
    found = explain(chain("Relu"), settings)
    reasons = [miss.reason for miss in found.near_misses if miss.rule == "convert_layout_nchwc"]
    assert len(reasons) == 1
    assert reasons[0].startswith("com.microsoft::FusedConv takes about")
    assert [note.op for note in found.after] == ["com.microsoft::FusedConv"]


def test_measured_gains() -> None:
    from graphopt.audit.gains import measure_gains

    model = chain("Identity", "Relu", "Identity")
    found = explain(model)
    measure_gains(found, model, Settings(), budget=0.05)
    assert found.gains[0].speedup is not None
    assert found.gains[0].low <= found.gains[0].speedup <= found.gains[0].high


def padded_pool() -> onnx.ModelProto:
    """A zero Pad before a MaxPool among other work."""
    pads = numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64), "pads")
    nodes = [
        helper.make_node("Identity", ["x"], ["a"], name="same"),
        helper.make_node("Sub", ["a", "three"], ["b"], name="down"),
        helper.make_node("Pad", ["b", "pads"], ["c"], name="pad"),
        helper.make_node("MaxPool", ["c"], ["d"], name="pool", kernel_shape=[3, 3]),
        helper.make_node("Relu", ["d"], ["e"], name="relu"),
        helper.make_node("Neg", ["d"], ["f"], name="neg"),
        helper.make_node("Add", ["e", "f"], ["y"], name="add"),
    ]
    three = numpy_helper.from_array(np.array(3.0, np.float32), "three")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "padded", [x], [y], [pads, three])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_blame_names_the_pass_of_a_peer_that_is_wrong(wrong_peer: str) -> None:
    fault = blame(padded_pool(), wrong_peer)
    assert fault is not None
    assert fault.tool == wrong_peer
    assert fault.step == "fold_pad"
    assert fault.reproduction is not None
    assert {n.op_type for n in fault.reproduction.graph.node} == {"Pad", "MaxPool"}


def test_blame_finds_nothing_where_nothing_is_wrong() -> None:
    suspects = ("EliminateIdentity", "Pad_Fusion", "ConstantSharing")
    assert blame(chain("Relu", "Identity"), "ort-basic", only=suspects) is None
    with pytest.raises(UsageError, match="unknown peer"):
        blame(chain("Relu"), "nobody")
    with pytest.raises(UsageError, match="ort-basic has no pass 'EliminateIdentiy'; did you mean EliminateIdentity"):
        blame(chain("Relu"), "ort-basic", only=("EliminateIdentiy",))
    with pytest.raises(UsageError, match="no pass of ort-transformers can run alone|not installed"):
        blame(chain("Relu"), "ort-transformers")


@pytest.mark.parametrize("more", [{"feed": {"x": np.array([1, -2, 3], np.float32)}}, {"dims": {"batch": 2}}])
def test_parts_of_a_model_are_judged_on_what_they_take(broken_identity, more: dict) -> None:
    """A part may read other values than the model that somebody gave inputs for, and lack its symbolic dimensions."""
    free = ", float[batch] z) => (float[3] y, float[batch] w)" if "dims" in more else ") => (float[3] y)"
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 17]> g (float[3] x{free}'
        "{ e = Exp (x)  a = Sin (e)  b = Neg (a)  c = Identity (b)  y = Add (c, x) }"
    )
    if "dims" in more:
        model.graph.node.append(helper.make_node("Relu", ["z"], ["w"]))
    model.graph.node[3].name = "identity3"
    fault = bisect(model, **more)
    assert fault is not None
    assert [node.op_type for node in fault.reproduction.graph.node] == ["Sin", "Neg", "Identity", "Add"]


def test_blame_looks_at_the_inputs_that_are_given(wrong_peer: str) -> None:
    """Where all are large, nothing is below the zeros of the padding."""
    x = np.full((1, 3, 8, 8), 100, np.float32)
    assert blame(padded_pool(), wrong_peer, feed={"x": x, "labels": x}) is None
    with pytest.raises(UsageError, match="no array 'x'"):
        blame(padded_pool(), wrong_peer, feed={"labels": x})


def test_a_story_ends_where_the_next_block_begins() -> None:
    """Each blocked convolution takes in the reorder behind the one before it; the story of one is not that of all."""
    rng = np.random.default_rng(3)
    weights = [
        numpy_helper.from_array(rng.standard_normal((64, 64, 3, 3)).astype(np.float32), f"w{i}") for i in range(4)
    ]
    nodes = [helper.make_node("Conv", [f"v{i}", f"w{i}"], [f"v{i + 1}"], pads=[1] * 4) for i in range(4)]
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 64, 28, 28]) for name in ("v0", "v4"))
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    found = explain(model, Settings.of(PassManager("all", target="avx2")))
    story = found.story("v2")
    assert [event.rule for event in story.events] == ["convert_layout_nchwc"]
    assert [note.op for note in story.end] == ["com.microsoft.nchwc::Conv"]


def test_an_event_that_only_changes_a_node_says_so() -> None:
    event = Event(0, "some_pass", "g", changed=(NodeNote("Relu", "", ("y",)),), detail="a is b")
    assert str(event) == "some_pass: changed Relu(y) (a is b)"


def test_what_was_said_in_another_function_is_no_part_of_a_story() -> None:
    """Values of one name in the main graph and two functions: each place is told, and each node its own."""
    head = '<domain: "local", opset_import: ["" : 18]> '
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18, "local" : 1]>'
        "g (float[2,2] x, int64[2] s) => (float[2,2] y) { a = Reshape (x, s)  b = local.f (a)  y = local.h (b) }"
        + head + "f (x) => (y) { s = Shape (x)  a = Reshape (x, s)  y = Exp (a) }"
        + head + "h (x) => (y) { s = Shape (x)  a = Reshape (x, s)  y = Tanh (a) }"
    )  # fmt: skip
    found = explain(model, PassManager("basic"))
    places = [miss.function for miss in found.near_misses if miss.rule == "eliminate_nop_reshape"]
    assert sorted(places) == ["", "local::f", "local::h"]
    assert {miss.function for miss in found.story("a").near_misses} == {""}
    assert [miss.function for miss in found.story("s").near_misses] == ["local::f"]
    assert "Reshape(a) in local::h" in str(found)


def test_constants_of_one_name_in_several_graphs_are_told_apart() -> None:
    def model(one: float, other: float) -> onnx.ModelProto:
        return onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 18]> g (float x, bool c) => (float y) <float w = {1}> { v = Mul (x, w)'
            f" y = If (c) <then_branch = t () => (float o) <float k = {{{one}}}> {{ o = Mul (v, k) }},"
            f" else_branch = e () => (float p) <float k = {{{other}}}> {{ p = Add (v, k) }}> }}"
        )

    found = diff(model(1, 2), model(3, 4))
    assert sorted(found.constants_changed) == ["k in y.else_branch", "k in y.then_branch"]


def test_what_is_saved_across_the_border_of_a_function_is_known() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17, "my" : 1]>
        g (float[1, 8, 9, 9] x, float[8, 8, 3, 3] w) => (float[1, 8, 7, 7] y) { y = my.F(x, w) }
        <domain: "my", opset_import: ["" : 17]> F (x, w) => (y) { c = Conv(x, w)  y = Relu(c) }""")
    found = explain(model, Settings(Level.EXTENDED))
    traffic = {gain.rule: gain.traffic for gain in found.gains}
    assert traffic["inline_functions"] == 0
    assert traffic["fuse_activation_into_conv"] == 8 * 7 * 7 * 4


def test_where_nothing_was_to_do_that_is_said() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
    )
    assert "no pass fired or nearly fired" in str(explain(model))


_INNER = """<ir_version: 11, opset_import: ["" : 17, "f" : 1]> g (float[2,3,4] x, bool c) => (float[2,3,4] y) {
  a = f.F (x)
  y = If (c) <then_branch = t () => (float[2,3,4] u) { u = Neg (a) }, else_branch = e () => (float[2,3,4] v) { v = Relu (a) }>
}
<domain: "f", opset_import: ["" : 12]> F (p) => (q) { q = Softmax (p) }"""


def _branch(model: onnx.ModelProto) -> onnx.GraphProto:
    return model.graph.node[1].attribute[0].g


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda m: setattr(m.functions[0].opset_import[0], "version", 13), "changed"),  # of Softmax, for example
        (lambda m: setattr(_branch(m).output[0].type.tensor_type.shape.dim[0], "dim_param", "n"), "changed"),
        (lambda m: _branch(m).quantization_annotation.add(tensor_name="u"), "other"),
        (lambda m: setattr(_branch(m), "doc_string", "said"), "other"),
        (lambda m: m.graph.input[0].metadata_props.add(key="a", value="b"), "other"),
        (lambda m: m.graph.node[0].device_configurations.add(configuration_id="two"), "other"),
        (lambda m: m.configuration.add(name="two", num_devices=2), "other"),
    ],
)
def test_diff_shows_what_differs_inside_and_beside(change, told: str) -> None:
    before, after = onnx.parser.parse_model(_INNER), onnx.parser.parse_model(_INNER)
    assert diff(before, after).empty
    change(after)
    assert len(getattr(diff(before, after), told)) == 1
