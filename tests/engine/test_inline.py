"""Copying inner graphs out: captured values, outer outputs, taking it back, and what is refused."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from graphopt.ir import Model
from graphopt.manager import PassManager
from graphopt.rewrite import Driver
from graphopt.rewrite.journal import Journal
from graphopt.testing import cases, load_case_model
from graphopt_passes.folding.branches import EliminateIfWithConstCond

NAME = "eliminate_if_with_const_cond"
CASES = list(cases(Path(__file__).parents[1] / "golden" / NAME))


def vector(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])


def with_branch(then: onnx.GraphProto, *after: onnx.NodeProto, output: str = "a") -> onnx.ModelProto:
    """A model whose `If` always takes `then`; the text form cannot write a branch that puts out an outer value."""
    other = helper.make_graph([helper.make_node("Abs", ["x"], ["q"])], "other", [], [vector("q")])
    nodes = [
        helper.make_node("Neg", ["x"], ["u"]),
        helper.make_node("If", ["c"], ["a"], then_branch=then, else_branch=other),
        *after,
    ]
    constants = [
        helper.make_tensor("c", TensorProto.BOOL, [], [1]),
        helper.make_tensor("w", TensorProto.FLOAT, [2], [1, 2]),
    ]
    graph = helper.make_graph(nodes, "g", [vector("x")], [vector(output)], constants)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("custom", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


@pytest.mark.parametrize("path", CASES, ids=[p.stem for p in CASES])
def test_undo_gives_the_model_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "forget", lambda journal: None)
    model = load_case_model(path)
    before = model.flush().SerializeToString(deterministic=True)
    driver = Driver(model, strict=True, check=True)
    driver.infer()
    mark = driver.rewriter._journal.mark()
    count = driver.run_rules([EliminateIfWithConstCond()])
    driver.rewriter._journal.undo(mark)
    model.verify()
    assert model.flush().SerializeToString(deterministic=True) == before
    assert driver.run_rules([EliminateIfWithConstCond()]) == count
    model.verify()


@pytest.mark.parametrize("outer", ["x", "w", "u"])
def test_branch_that_puts_out_an_outer_value_as_a_graph_output(outer: str) -> None:
    model = with_branch(helper.make_graph([], "then", [], [vector(outer)]))
    result = PassManager(passes=NAME, strict=True, check=True).run(model).model
    onnx.checker.check_model(result, full_check=True)
    assert [v.name for v in result.graph.output] == ["a"]
    assert result.graph.node[-1].op_type == "Identity"


@pytest.mark.parametrize("outer", ["x", "w", "u"])
def test_branch_that_puts_out_an_outer_value_to_a_reader(outer: str) -> None:
    reader = helper.make_node("Abs", ["a"], ["y"])
    model = with_branch(helper.make_graph([], "then", [], [vector(outer)]), reader, output="y")
    result = PassManager(passes=NAME, strict=True, check=True).run(model).model
    assert list(result.graph.node[-1].input) == [outer]


def test_lists_of_graphs_are_refused() -> None:
    body = helper.make_graph([helper.make_node("Neg", ["x"], ["n"])], "body", [], [vector("n")])
    many = helper.make_node("Many", ["x"], ["p"], domain="custom", bodies=[body, body])
    model = with_branch(helper.make_graph([many], "then", [], [vector("p")]))
    result = PassManager(passes=NAME, strict=True, check=True, explain=True).run(model)
    assert not result.changed
    assert "list of graphs" in result.near_misses[0].reason


def test_sparse_initializers_are_refused() -> None:
    values = helper.make_tensor("s", TensorProto.FLOAT, [1], [3])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", TensorProto.INT64, [1], [1]), [2])
    branch = helper.make_graph([helper.make_node("Add", ["x", "s"], ["p"])], "then", [], [vector("p")])
    branch.sparse_initializer.append(sparse)
    view = Model.load(with_branch(branch))
    driver = Driver(view, strict=True)
    assert driver.run_rules([EliminateIfWithConstCond()]) == 0


def test_quantization_annotations_of_a_branch_are_kept() -> None:
    branch = helper.make_graph([helper.make_node("Add", ["x", "x"], ["p"])], "then", [], [vector("p")])
    branch.quantization_annotation.add(tensor_name="p").quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    result = PassManager(passes=NAME, strict=True, check=True, explain=True).run(with_branch(branch))
    assert not result.changed
    assert result.near_misses[0].reason == "graph then has quantization annotations"


def test_fresh_names_are_none_that_an_annotation_has() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17]> g (float[2] a) => (float[2] y) { y = Neg (a) }'
    )
    proto.graph.quantization_annotation.add(tensor_name="a_1")
    assert Model.load(proto).fresh_name("a") == "a_2"


def test_copies_keep_what_is_said_of_a_body_and_of_custom_operators() -> None:
    body = """(int64 i, bool c, float[2] s, float[2] e) => (bool d, float[2] r, float[2] f)
        { d = Identity (c)  u = my.Op (s)  r = Add (u, e)  f = Identity (e) }"""
    proto = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 18, "my": 1]>
        g (float[2] x, int64 n) => (float[2] y) {{ y, z = Loop (n, "", x, x) <body = b {body}> }}""")
    told = proto.graph.node[0].attribute[0].g
    told.metadata_props.add(key="source", value="layer.py")
    told.value_info.append(vector("u"))
    result = PassManager(passes="eliminate_loop_invariant_state", strict=True, check=True).run(proto)
    copy = result.model.graph.node[0].attribute[0].g
    assert result.changed
    assert [entry.value for entry in copy.metadata_props] == ["layer.py"]
    assert [info.type for info in copy.value_info] == [vector("u").type]
