"""Passes side by side: who fires, what is left, who is wrong."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.audit.passes import PassConditions, audit_many, audit_passes
from graphopt.audit.passes.conduct import judge
from graphopt.audit.passes.isomorphism import isomorphic, live_nodes
from graphopt.audit.passes.record import PassRow, Side
from graphopt.errors import UsageError
from graphopt.ir import Model


def model(nodes: list[onnx.NodeProto], shape: tuple[int, ...] = (1, 3, 8, 8)) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((4, 3, 3, 3)).astype(np.float32), "w")]
    weights.append(numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64), "pads"))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(nodes, "g", [x], [y], [w for w in weights if w.name in used])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def identities() -> onnx.ModelProto:
    return model([
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
        helper.make_node("Identity", ["a"], ["b"], name="i1"),
        helper.make_node("Relu", ["b"], ["c"], name="relu"),
        helper.make_node("Identity", ["c"], ["y"], name="i2"),
    ])  # fmt: skip


def padded_pool() -> onnx.ModelProto:
    return model([
        helper.make_node("Pad", ["x", "pads"], ["a"], name="pad"),
        helper.make_node("MaxPool", ["a"], ["y"], name="pool", kernel_shape=[3, 3]),
    ])  # fmt: skip


def test_the_same_pass_in_both_peers() -> None:
    found = audit_passes(identities(), PassConditions(only=("eliminate_identity",)))
    rows = {row.peer: row for row in found.rows}
    assert set(rows) == {"onnxoptimizer", "ort-all"}
    for row in rows.values():
        assert row.own_pass == "eliminate_identity"
        assert row.verdict == "same"
        assert row.isomorphic
        assert (row.before, row.ours.live, row.theirs.live) == (4, 2, 2)
        assert row.ours.numbers == row.theirs.numbers == "equal"
    assert found.ok


def test_a_pass_with_nothing_to_do_is_idle() -> None:
    conditions = PassConditions(peers=("onnxoptimizer",), only=("fuse_consecutive_squeezes", "nop"))
    found = audit_passes(identities(), conditions)
    assert [row.verdict for row in found.rows] == ["idle"]
    assert "onnxoptimizer: nop" in found.skipped


def test_a_wrong_peer_is_found_out(wrong_peer: str) -> None:
    found = audit_passes(padded_pool(), PassConditions(peers=(wrong_peer,), only=("fold_pad",)))
    (row,) = found.rows
    assert row.verdict == "peer wrong"
    assert row.theirs.numbers == "mismatch"
    assert "differ" in row.reason
    assert found.ok


def test_unknown_pass() -> None:
    with pytest.raises(UsageError, match="no pass 'fuse_everything'"):
        audit_passes(identities(), PassConditions(peers=("onnxoptimizer",), only=("fuse_everything",)))


def test_an_unknown_pass_beside_a_known_one() -> None:
    conditions = PassConditions(peers=("onnxoptimizer",), only=("eliminate_identity", "fuse_everything"))
    with pytest.raises(UsageError, match="no pass 'fuse_everything'"):
        audit_passes(identities(), conditions)
    with pytest.raises(UsageError, match="no pass 'fuse_everything'"):
        audit_many(["a.onnx", "b.onnx"], conditions)


@pytest.mark.parametrize(
    ("ours", "theirs", "same_graph", "verdict"),
    [
        (Side(fired=True, numbers="mismatch"), Side(), None, "ours wrong"),
        (Side(fired=True), Side(status="crashed"), None, "peer wrong"),
        (Side(fired=True), Side(fired=True, numbers="mismatch"), False, "peer wrong"),
        (Side(fired=True, left=True), Side(fired=True, left=True), True, "same"),
        (Side(fired=True), Side(fired=True, left=True), False, "stronger"),
        (Side(left=True), Side(fired=True), None, "weaker"),
        (Side(fired=True), Side(fired=True), False, "same"),
        (Side(fired=True, left=True, live=3), Side(fired=True, left=True, live=5), False, "stronger"),
        (Side(fired=True, left=True, live=5), Side(fired=True, left=True, live=3), False, "weaker"),
    ],
)
def test_verdicts(ours: Side, theirs: Side, same_graph: bool | None, verdict: str) -> None:
    row = PassRow("m", "peer", "a", "b", 5, ours, theirs, same_graph)
    assert judge(row)[0] == verdict


def test_isomorphism_looks_at_wiring_not_at_names() -> None:
    first = Model.load(identities())
    renamed = identities()
    for node in renamed.graph.node:
        node.name = node.name[::-1] + "!"
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                names[i] = name if name in ("x", "y") else f"other_{name}"
    for tensor in renamed.graph.initializer:
        tensor.name = f"other_{tensor.name}"
    assert isomorphic(first, Model.load(renamed))
    swapped = identities()
    swapped.graph.node[2].op_type = "Sigmoid"
    assert not isomorphic(first, Model.load(swapped))
    attributed = identities()
    attributed.graph.node[0].attribute.add().CopyFrom(helper.make_attribute("group", 1))
    assert isomorphic(first, Model.load(attributed)), "an attribute at its default says nothing"
    attributed.graph.node[0].attribute.add().CopyFrom(helper.make_attribute("pads", [1, 1, 1, 1]))
    assert not isomorphic(first, Model.load(attributed))


def test_order_of_inputs_matters() -> None:
    def sub(a: str, b: str) -> Model:
        relu = helper.make_node("Relu", ["x"], ["r"])
        return Model.load(model([relu, helper.make_node("Sub", [a, b], ["y"])]))

    assert isomorphic(sub("x", "r"), sub("x", "r"))
    assert not isomorphic(sub("x", "r"), sub("r", "x"))


def test_nodes_that_only_read_constants_do_not_run() -> None:
    nodes = [
        helper.make_node("Constant", [], ["one"], value_float=1.0),
        helper.make_node("Sqrt", ["one"], ["root"]),
        helper.make_node("Mul", ["x", "root"], ["y"]),
    ]
    assert live_nodes(Model.load(model(nodes))) == 1
