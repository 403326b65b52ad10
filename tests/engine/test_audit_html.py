"""The HTML report: complete in itself, right for 2,000 nodes, and alive in a browser where there is one."""

from __future__ import annotations

import json
import re
import shutil
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt import demo
from graphopt.audit import audit
from graphopt.audit.explaining import explain_with_graphs
from graphopt.audit.html import audit_html, explanation_html
from graphopt.audit.html.charts import Bar, bar_chart
from graphopt.audit.html.layout import HEIGHT, WIDTH, positions
from graphopt.audit.settings import Settings
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
    assert len(data["before"]["nodes"]) == 10
    assert len(data["after"]["nodes"]) == 8
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
    assert len(graph_data(text)["before"]["nodes"]) == 2000
    assert time.perf_counter() - started < 20
    assert len(text) < 4_000_000


def test_too_large_a_graph_is_not_drawn(monkeypatch) -> None:
    from graphopt.audit.html import drawing

    monkeypatch.setattr(drawing, "MOST_NODES", 4)
    text = report(tower(1))
    assert "graph-data" not in text
    assert "eliminate_identity" in text


def test_chart() -> None:
    svg = bar_chart("t<", [Bar("a&b", 2.0, "2 ms", 1.0, 30.0, "own"), Bar("c", 1.0, "1 ms")], mark=1.0)
    assert svg.startswith("<svg")
    assert "a&amp;b" in svg
    assert 'aria-label="t&lt;"' in svg
    assert bar_chart("empty", []) == ""


def test_audit_report_and_notebook() -> None:
    found = audit(demo.conv_maxpool(), levels=("basic",), against=[], rounds=2, starts=1, verify=False)
    text = audit_html(found)
    assert text.count("<svg") == 4
    assert "What its output is worth" in text
    fragment = found._repr_html_()
    assert fragment.startswith("<pre")
    assert "graphopt basic" in fragment


@pytest.fixture
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with playwright.sync_playwright() as running:
        options: dict = {"args": ["--no-sandbox"]}
        found = shutil.which("chromium") or shutil.which("google-chrome")
        if found:
            options["executable_path"] = found
        try:
            started = running.chromium.launch(**options)
        except playwright.Error as error:
            pytest.skip(f"no browser that Playwright can start: {str(error).splitlines()[0]}")
        yield started
        started.close()


def test_in_a_browser(browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(report(tower(300), Level.ALL))
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    problems: list[str] = []
    requests: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())
    assert page.locator("#count-before").inner_text() == "1500 nodes, constants not drawn"
    before = page.evaluate("() => graphoptViews.left.scale")
    page.locator("#before").hover()
    page.mouse.wheel(0, -600)
    page.wait_for_timeout(100)
    assert page.evaluate("() => graphoptViews.left.scale") > before
    page.locator("#search").fill("gate7")
    assert page.evaluate("() => graphoptViews.left.picked.size") > 0
    page.locator("tr[data-event]").nth(3).click()
    assert page.evaluate("() => graphoptViews.left.picked.size") > 0
    assert page.locator("#detail").inner_text() != "click a node"
    frames = page.evaluate(
        "() => { const v = graphoptViews.left; v.all(); const t = performance.now();"
        " for (let i = 0; i < 20; i++) v.draw(); return (performance.now() - t) / 20; }"
    )
    assert frames < 200, f"{frames:.0f} ms to draw 1500 nodes"
    page.locator("#filter").fill("identity")
    assert page.locator("#events tbody tr:visible").count() > 0
    assert problems == []
    assert requests == [file.as_uri()]
