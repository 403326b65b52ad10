"""The HTML report: complete in itself, right for 2,000 nodes, and alive in a browser where there is one."""

from __future__ import annotations

import json
import re
import time
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt import PassManager, demo
from graphopt.audit import audit
from graphopt.audit.explaining import explain_with_graphs
from graphopt.audit.html import alone, audit_html, explanation_html, inspection_html
from graphopt.audit.html.charts import Bar, bar_chart
from graphopt.audit.html.layout import HEIGHT, WIDTH, positions
from graphopt.audit.inspecting import inspect
from graphopt.audit.settings import Settings
from graphopt.cli.auditing import audit_report
from graphopt.rewrite import Level


def tower(blocks: int, name: str = "tower") -> onnx.ModelProto:
    """A model of five nodes a block, with branches, and an Identity to remove in each."""
    weight = numpy_helper.from_array(np.ones((4, 4, 1, 1), np.float32), "w")
    nodes = []
    at = "x"
    for i in range(blocks):
        nodes += [
            helper.make_node("Conv", [at, "w"], [f"c{i}"], name=f"conv{i}"),
            helper.make_node("Relu", [f"c{i}"], [f"r{i}"], name=f"relu{i}"),
            helper.make_node("Identity", [f"r{i}"], [f"i{i}"], name=f"same{i}"),
            helper.make_node("Sigmoid", [at], [f"s{i}"], name=f"gate{i}"),
            helper.make_node("Mul", [f"i{i}", f"s{i}"], [f"m{i}" if i < blocks - 1 else "y"], name=f"mul{i}"),
        ]
        at = f"m{i}"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, name, [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def graph_data(text: str) -> dict:
    found = re.search(r'<script id="graph-data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def report(model: onnx.ModelProto, level: Level = Level.BASIC) -> str:
    found, drawing = explain_with_graphs(model, Settings(level))
    return explanation_html("model", found, drawing)


def test_layers_never_overlap_and_lead_down() -> None:
    edges = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 5), (4, 6), (5, 6)]
    places = positions(7, edges)
    assert all(places[b][1] >= places[a][1] + HEIGHT for a, b in edges)
    by_layer: dict[float, list[float]] = {}
    for x, y in places:
        by_layer.setdefault(y, []).append(x)
    for xs in by_layer.values():
        xs.sort()
        assert all(b - a >= WIDTH - 1e-6 for a, b in pairwise(xs))
    assert positions(0, []) == []


def test_report_needs_nothing_from_outside() -> None:
    text = report(tower(3))
    for reference in re.findall(r"""(?:src|href|url|import)\s*[=(]\s*["']?([^"')\s>]+)""", text):
        pytest.fail(f"the report refers to {reference}")
    assert "http://" not in text
    assert "https://" not in text


def test_both_graphs_and_what_became_of_nodes() -> None:
    data = graph_data(report(tower(2)))
    assert len(data["before"]["nodes"]) == 10 + 2  # its input and its output are drawn, too
    assert len(data["after"]["nodes"]) == 8 + 2
    ops = [node[2] for node in data["before"]["nodes"]]
    removed = {i for event in data["events"] for i in event["before"]}
    assert {ops[i] for i in removed} >= {"Identity"}
    for group, node in zip(data["origins"], data["after"]["nodes"], strict=True):
        assert node[2] in {ops[i] for i in group}


def test_hostile_names_stay_text() -> None:
    model = tower(1)
    model.graph.node[0].name = "</script><script>alert(1)</script>"
    model.graph.node[2].output[0] = model.graph.node[4].input[0] = "<img src=x onerror=alert(2)>"
    text = report(model)
    assert "<script>alert" not in text
    assert "<img" not in text
    assert graph_data(text)["before"]["nodes"][0][3] == "</script><script>alert(1)</script>"


def test_two_thousand_nodes_are_drawn_in_seconds() -> None:
    started = time.perf_counter()
    text = report(tower(400))
    assert len(graph_data(text)["before"]["nodes"]) == 2000 + 2
    assert time.perf_counter() - started < 20
    assert len(text) < 4_000_000


def test_too_large_a_graph_is_not_drawn(monkeypatch) -> None:
    from graphopt.audit.html import drawing

    monkeypatch.setattr(drawing, "MOST_NODES", 4)
    text = report(tower(1))
    assert "graph-data" not in text
    assert "eliminate_identity" in text


def walked() -> onnx.ModelProto:
    """A model with bodies, a function, attributes and weights of every kind."""
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17, "local" : 1]>
        g (float[2, 4] x, bool c) => (float[2, 4] y)
        <float[40] w, float[2] few = {1.5, -2}, int64[0] none = {}, float[2] odd = {nan, inf}> {
          a = local.twice(x)
          b = If (c) <then_branch = t () => (float[2, 4] r) { k = Identity(a)  r = Relu(k) },
                      else_branch = e () => (float[2, 4] q) { two = Constant<value_float = 2.0>()  q = Mul(a, two) }>
          s = LeakyRelu<alpha = 0.25>(b)
          z = Concat<axis = 0>(w, few, odd)
          y = Identity(s)
        }
        <domain: "local", opset_import: ["" : 17]>
        twice (v) => (u) { d = Add(v, v)  u = Identity(d) }
    """)
    weights = numpy_helper.from_array(np.linspace(-1, 1, 40, dtype=np.float32), "w")
    kept = [weights, *(each for each in model.graph.initializer if each.name != "w")]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    return model


def test_a_name_means_another_value_in_each_function() -> None:
    """And bodies of nodes without names are told apart by what these compute."""
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17, "local" : 1]>
        g (float[2] x, bool c) => (float[2] y) {
          t = local.one(x)
          u = local.two(t)
          v = If (c) <then_branch = a () => (float[2] p) { p = Relu(x) }, else_branch = b () => (float[2] q) { q = Neg(x) }>
          w = If (c) <then_branch = a () => (float[2] r) { r = Exp(x) }, else_branch = b () => (float[2] s) { s = Abs(x) }>
          y = Sum(u, v, w)
        }
        <domain: "local", opset_import: ["" : 17]> one (x) => (y) { t = Identity(x)  y = Relu(t) }
        <domain: "local", opset_import: ["" : 17]> two (x) => (y) { t = Identity(x)  y = Neg(t) }
    """)
    found, drawing = explain_with_graphs(model)
    assert drawing is not None
    titles = [graph["title"] for graph in drawing["before"]["graphs"]]
    assert [title for title in titles if "then" in title] == ["If v › then_branch", "If w › then_branch"]

    def function(side: str, number: int) -> str:
        graphs = drawing[side]["graphs"]
        return next(g["title"] for g in graphs if g["first"] <= number < g["first"] + g["count"])

    for number, group in enumerate(drawing["origins"]):
        assert {function("before", each) for each in group} <= {function("after", number)}
    places = [function("before", number) for event in drawing["events"] for number in event["before"]]
    assert sorted(places) == ["local::one", "local::two"]
    assert [step.traffic for step in found.steps] == [None, None]  # no type of a function's value is known
    assert found.story("t").events == []


def test_weights_are_told_exactly_where_that_matters() -> None:
    """All digits of integers, and no zeros only where there are none."""
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (int64[40] i, float[4000] x) => (int64[40] j, float[4000] y) { j = Add(i, ids)  y = Add(x, few) }""")
    ids, few = np.arange(40) + (1 << 62), np.ones(4000, np.float32)
    few[7] = 0
    for name, array in (("ids", ids), ("few", few)):
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    data = alone(model)
    assert data is not None
    found = {value[0]: data["before"]["weights"][value[2]] for value in data["before"]["values"] if value[2] >= 0}
    assert found["ids"]["first"][:2] == ["4611686018427387904", "4611686018427387905"]
    assert found["ids"]["range"][:2] == ["4611686018427387904", "4611686018427387943"]
    assert found["few"]["zeros"] == "below 0.1%"


def test_what_a_reader_asks_of_a_model() -> None:
    data = alone(walked())
    assert data is not None
    (shown,) = data.values()
    assert [graph["title"] for graph in shown["graphs"]] == [
        "g",
        "If › then_branch",
        "If › else_branch",
        "local::twice",
    ]
    by_op = {node[2]: node for node in shown["nodes"]}
    assert by_op["LeakyRelu"][6] == [["alpha", "0.25"]]
    assert [shown["graphs"][number]["title"] for number in by_op["If"][7]] == ["If › then_branch", "If › else_branch"]
    assert [shown["graphs"][number]["title"] for number in by_op["local::twice"][7]] == ["local::twice"]
    values = {name: (kind, weight) for name, kind, weight in shown["values"]}
    assert values["s"][0] == "float[2,4]"
    weight = {name: shown["weights"][number] for name, (_, number) in values.items() if number >= 0}
    assert weight["few"]["first"] == ["1.5", "-2"]
    assert weight["two"]["first"] == ["2"]
    assert weight["odd"]["first"] == ["nan", "inf"]
    assert (weight["w"]["count"], weight["w"]["range"][:2], sum(weight["w"]["bars"])) == (40, ["-1", "1"], 40)
    reads = [shown["values"][number][0] for number in by_op["Mul"][4]]
    assert reads == ["a", "two"]  # one of the outer graph, the other a constant of the body


def test_a_page_of_one_model() -> None:
    text = inspection_html("m<b>", inspect(walked()), alone(walked()))
    assert "m&lt;b&gt;" in text
    assert "local::twice" in text
    assert 'id="after"' not in text
    assert "rewrites" not in text.partition("<script")[0]


def test_rewrites_say_why_and_what_they_gain() -> None:
    data = graph_data(report(walked()))
    fold = next(event for event in data["events"] if event["rule"] == "eliminate_identity")
    assert "node fewer" in fold["gain"]
    assert data["passes"]["eliminate_identity"].startswith("Remove")
    inner = {node[3] for node in data["before"]["nodes"] if node[8]}
    assert inner >= {"x", "c", "y"}


def test_chart() -> None:
    svg = bar_chart("t<", [Bar("a&b", 2.0, "2 ms", 1.0, 30.0, "own"), Bar("c", 1.0, "1 ms")], mark=1.0)
    assert svg.startswith("<svg")
    assert "a&amp;b" in svg
    assert 'aria-label="t&lt;"' in svg
    assert bar_chart("empty", []) == ""


def test_what_the_oracle_could_not_tell_is_not_right() -> None:
    found = audit(demo.conv_maxpool(), levels=("basic", "extended"), against=[], timed=False, isolate=False)
    assert "2 of 2" in audit_html(found)
    found.row("graphopt basic").verification = "inconclusive"
    text = audit_html(found)
    assert "1 of 2" in text
    assert "not graphopt basic" in text
    for row in found.rows[2:]:
        row.contents = None
    assert "What each did" in audit_html(found)


def test_the_report_of_an_audit_explains_the_run_that_was_audited() -> None:
    """With its numerics and its target."""
    model = demo.conv_maxpool()
    managers = {name: PassManager(name, numerics="exact", target="avx512") for name in ("basic", "all")}
    found = audit(model, managers, against=[], timed=False, isolate=False, verify=False)
    text = audit_report(found, model, managers)
    assert f"{len(managers['all'].run(model).events)} rewrites of graphopt all, in order" in text


def test_audit_report_and_notebook() -> None:
    found = audit(demo.conv_maxpool(), levels=("basic",), against=[], rounds=2, starts=1, verify=False)
    text = audit_html(found)
    assert text.count("<svg") == 4
    assert "What its output is worth" in text
    assert "base: raw, ORT all" in text
    assert "correct results" not in text  # nobody asked the oracle
    fragment = found._repr_html_()
    assert fragment.startswith("<pre")
    assert "graphopt basic" in fragment
