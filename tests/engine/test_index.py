"""The index: passes are imported only for models that have something for them, and nothing else changes by it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import onnx
import pytest

from benchmarks.skeleton import load_skeleton
from graphopt import PassManager
from graphopt.errors import PassError, PluginWarning, UsageError
from graphopt.ir import Model, Node, Value
from graphopt.match import Either, Match, Var
from graphopt.pipeline import Plan, registry
from graphopt.pipeline.registry import INDEX, Registry, index_of
from graphopt.rewrite import Driver, Fired, OpRule, PatternRule, Rewriter, Rule
from graphopt.rewrite.waiting import Card, Waiting
from tests.same import assert_same_bytes


def test_the_index_is_not_stale() -> None:
    path, text = index_of("graphopt_passes")
    assert path.read_text() == text, "run `graphopt passes --index graphopt_passes`"


def test_an_index_of_a_package_without_passes_is_refused() -> None:
    with pytest.raises(UsageError, match="no pass comes from package 'json'"):
        index_of("json")


def eager() -> Registry:
    """All passes, as if there were no index."""
    known = registry()
    places = {name: f"{(rule := known.rule_class(name)).__module__}:{rule.__name__}" for name in known.names()}
    return Registry({"everything": places})


@pytest.mark.parametrize("key", ["ts/mobilenetv3_small_100", "dynamo/bert", "ts/crnn", "dynamo_raw/levit_128s"])
def test_what_waits_changes_no_rewrite(key: str) -> None:
    model = load_skeleton(key)
    waiting, all_there = PassManager("all", strict=True), PassManager("all", strict=True)
    all_there.plan = Plan(waiting.plan.pipeline, waiting.numerics, frozenset(), eager())
    assert not any(card.needs for card in map(all_there.plan.registry.card, all_there.plan.names()))
    one, two = waiting.run(model), all_there.run(model)
    assert list(map(str, one.events)) == list(map(str, two.events))
    assert_same_bytes(one.model.SerializeToString(), two.model.SerializeToString())


def imported(script: str) -> set[str]:
    """The modules of passes that a new process imports."""
    tell = "import sys; print(*[name for name in sys.modules if name.startswith('graphopt_passes.')])"
    run = subprocess.run([sys.executable, "-c", f"{script}\n{tell}"], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_choosing_passes_imports_none() -> None:
    known = registry()
    of_passes = {known.rule_class(name).__module__ for name in known.names()}
    assert not of_passes & imported("import graphopt; graphopt.PassManager('all')")


def test_a_small_model_imports_little(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(RELU), tmp_path / "m.onnx")
    small = imported(f"import graphopt; graphopt.optimize({str(tmp_path / 'm.onnx')!r}, 'all')")
    known = registry()
    everything = {known.rule_class(name).__module__ for name in known.names()}
    assert 0 < len(small) < len(everything) / 3


def test_passes_for_functions_stay_out_of_a_model_without(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(RELU), tmp_path / "m.onnx")
    script = f"import graphopt; graphopt.optimize({str(tmp_path / 'm.onnx')!r}, 'extended')"
    assert "graphopt_passes.folding.functions" not in imported(script)


def test_what_few_networks_need_stays_out_of_others(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 17]> g (float[1,2,4,4] x) => (float[1,64] f)
    <float[2,2,1,1] w = {1,2,3,4}, int64[2] s = {1, 64}>
    { y = Conv (x, w) p = MaxPool <kernel_shape = [1, 1]> (y) z = Concat <axis = 1> (x, p) f = Reshape (z, s) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    found = imported(f"import graphopt; graphopt.optimize({str(tmp_path / 'm.onnx')!r}, 'all')")
    assert "graphopt_passes.elimination.dead_channels" in found
    for_few = (
        "elimination.narrowing",
        "fusion.contrib.signed",
        "fusion.transposes.turning",
        "layout.nhwc_plan",
        "layout.widening",
    )
    assert not found & {f"graphopt_passes.{name}" for name in for_few}


RELU = '<ir_version: 9, opset_import: ["" : 17]> g (float[2] x) => (float[2] z) { y = Relu (x) z = Relu (y) }'


class _Makes(OpRule):
    """Writes the operator that another pass waits for."""

    name = "softsign_into_softplus"
    ops = ("Softsign",)

    def rewrite(self, node: Node, rw: Rewriter) -> Fired:
        return rw.replace(node, [rw.op("Softplus", node.operand(0))])


class _Waits(OpRule):
    """Reads what that one writes."""

    name = "softplus_into_tanh"
    ops = ("Softplus",)

    def rewrite(self, node: Node, rw: Rewriter) -> Fired:
        return rw.replace(node, [rw.op("Tanh", node.operand(0))])


def test_a_pass_is_loaded_once_another_writes_what_it_needs() -> None:
    loads: list[str] = []

    def load() -> type[Rule]:
        loads.append("")
        return _Waits

    waiting = Waiting(Card.complete(_Waits), load)
    model = Model.load(onnx.parser.parse_model(RELU))
    assert Driver(model, strict=True).run_rules([waiting, _Makes()]) == 0
    assert not loads
    model = Model.load(onnx.parser.parse_model(RELU.replace("Relu (x)", "Softsign (x)")))
    assert Driver(model, strict=True).run_rules([waiting, _Makes()], once=True) == 2
    assert len(loads) == 1
    assert [node.op for node in model.graph] == ["Tanh", "Relu"]


def test_a_pass_is_loaded_at_the_first_node_that_it_is_asked_at() -> None:
    class ReadsSoftsign(_Waits):
        """Has its operator in the model, and nowhere behind the one that it looks for."""

        sources = ("Softsign",)

    loads: list[str] = []

    def load() -> type[Rule]:
        loads.append("")
        return ReadsSoftsign

    card = Card.complete(ReadsSoftsign)
    assert Card.from_record(card.name, card.record()) == card
    text = '<ir_version: 9, opset_import: ["" : 17]> g (float[2] x) => (float[2] y, float[2] z) { y = Softsign (x) z = Softplus (%s) }'
    assert Driver(Model.load(onnx.parser.parse_model(text % "x")), strict=True).run_rules([Waiting(card, load)]) == 0
    assert not loads
    model = Model.load(onnx.parser.parse_model(text % "y"))
    assert Driver(model, strict=True).run_rules([Waiting(card, load)]) == 1
    assert len(loads) == 1
    assert [node.op for node in model.graph] == ["Softsign", "Tanh"]


def test_a_pass_that_does_not_know_the_opset_does_nothing_when_it_is_asked() -> None:
    class OfLater(_Waits):
        """The same, from an opset on that the model does not have."""

        opsets = "18-"

    model = Model.load(onnx.parser.parse_model(RELU.replace("Relu (x)", "Softplus (x)")))
    assert Driver(model, strict=True).run_rules([Waiting(Card.complete(OfLater), lambda: OfLater)]) == 0
    assert [node.op for node in model.graph] == ["Softplus", "Relu"]


class _Pattern(PatternRule):
    """A pattern with an alternative."""

    name = "gelu_like"

    def pattern(self, op: Any, x: Var) -> Any:
        return op.Mul(x, Either(op.Erf(op.Div(x, 2.0)), op.Tanh(op.Div(x, 2.0))))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        return rw.op("Relu", m.x)


def test_what_a_pattern_needs() -> None:
    needs = set(Card.complete(_Pattern).needs)
    assert needs == {frozenset({"Mul"}), frozenset({"Div"}), frozenset({"Erf", "Tanh"})}


class _Alternatives(_Pattern):
    """A pattern that ends in one of several operators, each with others before it."""

    name = "gelu_or_product"

    def pattern(self, op: Any, x: Var) -> Any:
        return Either(op.Mul(x, op.Erf(x)), op.Add(op.Neg(x), op.Erf(op.Neg(x))))


def test_what_alternatives_need() -> None:
    needs = set(Card.complete(_Alternatives).needs)
    assert needs == {frozenset({"Erf"}), frozenset({"Add", "Mul"}), frozenset({"Mul", "Neg"})}


def entry_beside(folder: Path, monkeypatch: pytest.MonkeyPatch, index: str) -> None:
    """The entry point of a package that registers one pass, and has an index."""
    registry()  # that of all other tests, in case this one is the first of its process: it is made once, without the entry
    (folder / "waits_package.py").write_text("def catalogue():\n    return {'softplus_into_tanh': 'nowhere:Waits'}\n")
    (folder / INDEX).write_text(index)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "waits_package", raising=False)
    entry = EntryPoint("mine", "waits_package:catalogue", "graphopt.passes")
    beside = [*entry_points(group="graphopt.passes"), entry]
    monkeypatch.setattr(sys.modules[Registry.__module__], "entry_points", lambda group: beside)


def test_what_an_index_says_is_known_without_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card.complete(_Waits)
    entry_beside(tmp_path, monkeypatch, json.dumps({card.name: card.record()}))
    known = registry.__wrapped__()
    assert [each for each in known.cards() if each.name not in registry()] == [card]
    with pytest.raises(PassError, match="cannot be loaded from nowhere:Waits"):
        known.rule_class(card.name)


@pytest.mark.parametrize("index", ["{", "3", '{"a": 3}', '{"a": {}}', '{"a": {"level": "x"}}'])
def test_a_malformed_index_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str) -> None:
    entry_beside(tmp_path, monkeypatch, index)
    with pytest.warns(PluginWarning, match="the passes of mine are left out: .*index.json is malformed"):
        assert list(registry.__wrapped__().names()) == list(registry().names())


def test_a_tree_whose_own_passes_are_unknown_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[Registry.__module__], "entry_points", lambda group: [])
    with pytest.raises(PassError, match="graphopt's own passes are not registered"):
        registry.__wrapped__()
