"""A pass that fails has changed nothing: whatever it can reach is journaled, copied or refuses to be changed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import Message

from graphopt import PassManager
from graphopt.analysis import infer_types
from graphopt.errors import Decline, PassError
from graphopt.ir import Graph, Model, Node, Tensor, TensorType, Value
from graphopt.ir.interface import fix_shapes
from graphopt.match import Match
from graphopt.rewrite import FIRED, Driver, GraphPass, Log, OpRule, Options, Outcome, PatternRule, Rewriter
from graphopt.rewrite.attempts import Tables
from tests.engine.isolation_model import everything

Action = Callable[[Node, Rewriter], object]


class Meddle(OpRule):
    """Do something at one node, then fail in one of several ways."""

    name = "meddle"
    ops = ("Sub",)

    def __init__(self, action: Action, end: BaseException | None) -> None:
        self.action = action
        self.end = end

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        self.action(node, rw)
        if self.end is not None:
            raise self.end
        return None


class MeddleGraph(GraphPass):
    """The same, as a pass over the graph."""

    name = "meddle_graph"

    def __init__(self, action: Action, end: BaseException | None) -> None:
        self.action = action
        self.end = end

    def run_model(self, model: Model, rw: Rewriter) -> None:
        rw.enter(model.graph)
        self.action(next(node for node in model.graph if node.op == "Sub"), rw)
        if self.end is not None:
            raise self.end


def serialized(model: Model | onnx.ModelProto) -> bytes:
    proto = model.flush() if isinstance(model, Model) else model
    return proto.SerializeToString(deterministic=True)


def meddled(action: Action, end: BaseException | None, *, inplace: bool = False, whole: bool = False) -> Driver:
    """Run an action that fails, and see that the model, and the proto that it came from, are what they were."""
    proto = everything()
    before = serialized(proto)
    model = Model.load(proto, inplace=inplace)
    driver = Driver(model, Log(listen=True))
    driver.infer()
    types = {id(value): value.type for graph in model.graphs() for value in graph.values.values()}
    if whole:
        assert not isinstance(end, Decline)
        driver.run_pass(MeddleGraph(action, end))
    else:
        driver.run_rules([Meddle(action, end)])
    assert serialized(proto) == before
    assert not driver.log.events
    assert not model.changed
    model.verify()
    for graph in model.graphs():
        for value in graph.values.values():
            assert value.type == types[id(value)], value
    assert serialized(model) == before
    assert serialized(proto) == before
    return driver


# ---------------------------------------------------------------------- everything that can be reached

Path = tuple[tuple[str, Any], ...]


def follow(start: tuple[Node, Rewriter], path: Path) -> Any:
    found: Any = start
    for kind, key in path:
        if kind == "attribute":
            found = getattr(found, key)
        elif kind == "call":
            found = getattr(found, key)()
        else:
            found = list(found)[key] if kind == "element" else found[key]
    return found


_CALLS = {"constant_tensor", "array", "scalar"}
_OPAQUE = (str, bytes, int, float, bool, type(None), np.dtype, type)


def steps(thing: Any) -> Iterator[tuple[str, Any]]:
    """How to get from one object to those that it shows."""
    if isinstance(thing, np.ndarray):
        return
    if isinstance(thing, Message):
        yield from (("attribute", field.name) for field in thing.DESCRIPTOR.fields)
    elif isinstance(thing, dict) or hasattr(thing, "keys"):
        yield from (("item", key) for key in thing)
        yield from (("element", n) for n in range(len(thing)))
    elif isinstance(thing, (list, tuple)) or (hasattr(thing, "__len__") and hasattr(thing, "__getitem__")):
        yield from (("element", n) for n in range(len(thing)))
    if type(thing).__module__.startswith("graphopt"):
        for name in dir(type(thing)):
            if name.startswith("_"):
                continue
            if callable(getattr(type(thing), name, None)):
                if name in _CALLS and not isinstance(thing, Node):  # a node's reads the array of an operand
                    yield "call", name
            else:
                yield "attribute", name


def reachable() -> list[tuple[str, Path]]:
    """One path to an object of each kind, where the kind is its class and how it is shown by an object of a kind."""
    model = Model.load(everything())
    driver = Driver(model, options=Options(extra={"meddle": {"setting": 1}}))
    driver.infer()
    start = (next(node for node in model.graph if node.op == "Sub"), driver.rewriter)
    seen: dict[str, Path] = {}

    class Look(GraphPass):
        """Walk from the node and the gate, while protos look as a pass sees them."""

        name = "look"

        def run_model(self, model: Model, rw: Rewriter) -> None:
            waiting: list[tuple[str, Path]] = [("node", (("element", 0),)), ("rw", (("element", 1),))]
            while waiting:
                kind, path = waiting.pop(0)
                try:
                    thing = follow(start, path)
                except (Decline, ValueError):  # what this node or tensor does not have
                    continue
                if isinstance(thing, _OPAQUE) or len(path) > 9:
                    continue
                label = f"{kind}: {type(thing).__name__}"
                if label in seen:
                    continue
                seen[label] = path
                for step in steps(thing):
                    shown = str(step[1]) if step[0] in ("attribute", "call") else "[]"
                    waiting.append((f"{type(thing).__name__}.{shown}", (*path, step)))

    driver.run_pass(Look())
    assert not driver.log.failures
    return list(seen.items())


MUTATORS: dict[str, tuple[Any, ...]] = {
    "append": (None,), "extend": ([None],), "insert": (0, None), "pop": (), "popitem": (), "clear": (), "reverse": (),
    "update": ({"meddled": None},), "setdefault": ("meddled", None), "__setitem__": (0, None), "__delitem__": (0,),
    "__iadd__": ([None],), "__imul__": (0,), "__ior__": ({"meddled": None},), "remove": (None,), "sort": (),
    "add": (), "Clear": (), "CopyFrom": (None,), "MergeFrom": (None,), "ParseFromString": (b"",), "SetInParent": (),
    "MergeFromString": (b"",), "ClearField": ("name",), "hold": (), "__delattr__": ("name",),
}  # fmt: skip


def changes(path: Path, start: tuple[Node, Rewriter]) -> Iterator[tuple[str, Action]]:
    """Each way to change the object at a path: its attributes, and what changes a list, a dict, a message, an array."""
    thing = follow(start, path)
    names = [name for name in dir(type(thing)) if not name.startswith("_")]
    if isinstance(thing, Message):
        names = [field.name for field in thing.DESCRIPTOR.fields]
    for name in names:
        if not callable(getattr(type(thing), name, None)):
            for junk in (None, "meddled"):
                yield f"{name} = {junk!r}", lambda node, rw, n=name, j=junk: setattr(follow((node, rw), path), n, j)
            yield f"del {name}", lambda node, rw, n=name: delattr(follow((node, rw), path), n)
    for method, arguments in MUTATORS.items():
        if hasattr(thing, method) or isinstance(thing, Message):
            given = arguments
            if method in ("__setitem__", "__delitem__", "pop") and hasattr(thing, "keys"):
                given = (next(iter(thing), 0), *arguments[1:])
            if method == "remove" and len(thing):
                given = (next(iter(thing)),)
            yield f"{method}(...)", lambda node, rw, m=method, a=given: getattr(follow((node, rw), path), m)(*a)
    if isinstance(thing, np.ndarray):
        yield "array[...] = 0", lambda node, rw: follow((node, rw), path).__setitem__(..., 0)


def test_whatever_a_pass_reaches_it_cannot_change_for_good() -> None:
    kinds = reachable()
    labels = {label for label, _ in kinds}
    shown = {label.partition(":")[0] for label in labels}
    assert {"_SealedNode.inputs", "_SealedValue.users", "Model.proto", "_SealedNode.proto", "Rewriter.log"} <= shown
    tried = 0
    for label, path in kinds:
        ways: list[str] = []

        def collect(node: Node, rw: Rewriter, path: Path = path, ways: list[str] = ways) -> None:
            ways.extend(name for name, _ in changes(path, (node, rw)))

        meddled(collect, None)
        for way in ways:

            def act(node: Node, rw: Rewriter, path: Path = path, way: str = way) -> None:
                for name, action in changes(path, (node, rw)):
                    if name == way:
                        action(node, rw)

            try:
                meddled(act, ValueError("meddled"))
            except BaseException as error:
                raise AssertionError(f"{label}: {way}") from error
            tried += 1
    assert tried > 500


# ---------------------------------------------------------------------- everything that the gate does


def _value(rw: Rewriter, name: str) -> Value:
    return rw.model.graph.values[name]


def _node(rw: Rewriter, output: str) -> Node:
    producer = _value(rw, output).producer
    assert producer is not None
    return producer


def _into_microsoft(node: Node, rw: Rewriter) -> object:
    out = rw.op("FusedMatMul", node.inputs[0], np.ones((3, 3), np.float32), domain="com.microsoft")
    return rw.replace(node, [rw.op("Relu", out)])


def _output_taken_over(node: Node, rw: Rewriter) -> object:
    y = _node(rw, "y")
    return rw.replace(y, [rw.op("Sub", y.inputs[0], y.inputs[1])])


def _without_branch(node: Node, rw: Rewriter) -> object:
    branch = _node(rw, "h")
    return rw.replace(branch, [rw.op("Neg", node.inputs[0])])


def _inside_of_branch(node: Node, rw: Rewriter) -> object:
    inner = next(each for each in _node(rw, "h").subgraphs["then_branch"] if each.op == "Neg")
    rw.enter(inner.graph)
    return rw.replace(inner, [rw.op("Mul", inner.inputs[0], np.full(3, -1, np.float32))])


def _inside_of_function(node: Node, rw: Rewriter) -> object:
    inner = next(iter(rw.model.functions[0]))
    rw.enter(inner.graph)
    return rw.replace(inner, [rw.op("Mul", inner.inputs[0], np.array(2, np.float32))])


def _constants_dropped_and_made(node: Node, rw: Rewriter) -> object:
    first, second = _node(rw, "a"), _node(rw, "b")
    for each in (first, second):
        factor = rw.constant(np.array([3, 2, 1], np.float32), like=each.inputs[1])
        assert rw.replace(each, [rw.op("Mul", each.inputs[0], factor)])
    return rw.replace(_node(rw, "a"), [_value(rw, "x")])


GATE: dict[str, Action] = {
    "replace by new nodes": lambda node, rw: rw.replace(node, [rw.op("Relu", rw.op("Neg", node.inputs[0]))]),
    "replace by an operand": lambda node, rw: rw.replace(node, [node.inputs[0]]),
    "another domain": _into_microsoft,
    "an output of the graph": _output_taken_over,
    "a node with bodies": _without_branch,
    "inside of a body": _inside_of_branch,
    "inside of a function": _inside_of_function,
    "constants": _constants_dropped_and_made,
    "erase": lambda node, rw: rw.erase(_node(rw, "dead")),
    "set an attribute": lambda node, rw: rw.set_attr(_node(rw, "m"), keepdims=None, noop_with_empty_axes=0),
    "set an input": lambda node, rw: rw.set_input(node, 1, np.array([1, 1, 3], np.float32)),
    "swap inputs": lambda node, rw: rw.set_inputs(node, {0: node.inputs[1], 1: node.inputs[0]}),
    "more inputs": lambda node, rw: rw.set_input(_node(rw, "s"), 2, _value(rw, "z")),
    "rename": lambda node, rw: rw.rename_node(node, "other"),
    "merge": lambda node, rw: rw.merge_constant(_value(rw, "w2"), _value(rw, "w")),
    "drop": lambda node, rw: rw.drop_constant(_value(rw, "large")),
    "drop a function": lambda node, rw: rw.drop_function(rw.model.functions[1]),
    "import": lambda node, rw: rw.import_domain("com.example", 3),
    "metadata": lambda node, rw: [rw.set_metadata("key", "changed"), rw.set_metadata("new", "added")],
    "state a type": lambda node, rw: rw.state_type(_value(rw, "e"), TensorType(1, (2, 3))),
    "reserve names": lambda node, rw: [rw.model.fresh_name("a"), rw.model.fresh_name("a"), rw.model.fresh_name("")],
    "flush": lambda node, rw: rw.model.flush(),
    "flush what changed": lambda node, rw: [rw.replace(node, [node.inputs[0]]), rw.model.flush()],
}
NO_EVENT = {"import", "metadata", "state a type", "reserve names", "flush"}

FAILURES = [
    ValueError("oh"), SystemExit(3), asyncio.CancelledError(), GeneratorExit(), BaseException("base"), MemoryError(),
    RecursionError(), PassError("mine"), None, Decline("no"),
]  # fmt: skip


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("name", GATE)
def test_what_the_gate_did_for_a_failing_attempt_is_undone(name: str, inplace: bool) -> None:
    for end in FAILURES:
        outcomes: list[object] = []

        def act(node: Node, rw: Rewriter, outcomes: list[object] = outcomes) -> None:
            outcomes.append(GATE[name](node, rw))

        driver = meddled(act, end, inplace=inplace)
        assert name in NO_EVENT or outcomes[0], outcomes
        fails = end is not None and not isinstance(end, Decline)
        assert [type(f.error) for f in driver.log.failures] == ([type(end)] if fails else [])
        if fails:
            meddled(act, end, inplace=inplace, whole=True)


@pytest.mark.parametrize("whole", [False, True])
def test_only_the_user_interrupts_a_run(whole: bool) -> None:
    model = Model.load(everything())
    before = serialized(model)
    driver = Driver(model)
    driver.infer()
    rule = (MeddleGraph if whole else Meddle)(GATE["constants"], KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        driver.run([rule])
    assert serialized(model) == before
    model.graph.name = "free again"


@pytest.mark.parametrize("seed", range(60))
def test_random_changes_are_undone_to_the_byte(seed: int) -> None:
    """Changes that stay, then changes that are undone, with the names and the order that a run without them has."""
    draw = random.Random(seed)
    kept = draw.sample(sorted(GATE), 4)
    lost = draw.sample(sorted(GATE), 6)
    results = []
    for undone in (False, True):
        proto = everything()
        model = Model.load(proto, inplace=bool(seed % 2))
        driver = Driver(model)
        driver.infer()

        def several(node: Node, rw: Rewriter, names: list[str]) -> None:
            for name in names:
                rw.enter(rw.model.graph)
                target = next((each for each in rw.model.graph if each.op == "Sub" or each.name == "other"), None)
                try:
                    GATE[name](target or next(iter(rw.model.graph)), rw)
                except (KeyError, AssertionError, StopIteration, IndexError):
                    continue  # what it changes is not there any more

        driver.run_pass(MeddleGraph(lambda node, rw: several(node, rw, kept[:2]), None))
        if undone:
            source = serialized(proto)
            fail = MeddleGraph(lambda node, rw: several(node, rw, lost), SystemExit())
            fail.name = "fail"  # type: ignore[misc]
            present = _printed(model)
            driver.run_pass(fail)
            model.verify()
            assert _printed(model) == present
            assert serialized(proto) == source
        later = MeddleGraph(lambda node, rw: several(node, rw, kept[2:]), None)
        later.name = "later"  # type: ignore[misc]
        driver.run_pass(later)
        model.verify()
        results.append(serialized(model))
    assert results[0] == results[1]


def _printed(model: Model) -> bytes:
    """The bytes that a model would be written as, without writing them into the proto that it came from."""
    inplace, model.inplace = model.inplace, False
    try:
        return serialized(model)
    finally:
        model.inplace = inplace


# ---------------------------------------------------------------------- other ways to fail


class BadPattern(PatternRule):
    """A rule whose pattern cannot be traced."""

    name = "bad_pattern"

    def pattern(self, op: Any, x: Any) -> Any:
        raise SystemExit("no pattern")

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        return m.x


class BadOpset(OpRule):
    """A rule that states its opsets wrongly."""

    name = "bad_opset"
    ops = ("Sub",)
    opsets = "thirteen"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        return rw.replace(node, [node.operand(0)])


class BadReason(OpRule):
    """A rule whose reason cannot be put into words."""

    name = "bad_reason"
    ops = ("Sub",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        raise Decline("{} {} {}", 1)


class Boast(OpRule):
    """A rule that says it fired and did nothing."""

    name = "boast"
    ops = ("Sub",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        return FIRED


@pytest.mark.parametrize("rule", [BadPattern(), BadOpset(), BadReason(), Boast()], ids=lambda rule: rule.name)
def test_other_ways_to_fail_are_isolated_too(rule: OpRule | PatternRule) -> None:
    model = Model.load(everything())
    before = serialized(model)
    tables = Tables()
    for _ in range(2):  # it fails in every run, also in one that has the tables of another
        driver = Driver(model, Log(listen=True), tables=tables)
        driver.infer()
        driver.run_rules([rule])
        assert {f.rule for f in driver.log.failures} == {rule.name}
        assert serialized(model) == before
    with pytest.raises(PassError, match=rule.name):
        Driver(model, Log(listen=True), strict=True).run_rules([rule])


def test_a_pass_cannot_change_the_model_by_the_functions_of_the_engine() -> None:
    for act in (lambda model: fix_shapes(model, {"x": (2, 3)}), infer_types):

        def change(node: Node, rw: Rewriter, act: Callable[[Model], object] = act) -> None:
            act(rw.model)

        (failure,) = meddled(change, None).log.failures
        assert "cannot be changed while a pass runs" in str(failure.error)


def test_constants_are_not_changed_by_those_who_made_or_read_them() -> None:
    given = np.ones(3, np.float32)

    def keep(node: Node, rw: Rewriter) -> None:
        assert rw.replace(node, [rw.op("Mul", node.inputs[0], rw.constant(given, "made"))])
        array = _value(rw, "made").const()
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0

    assert not meddled(keep, None).log.failures


def test_outside_of_a_run_the_view_is_free() -> None:
    model = Model.load(everything())
    model.metadata["mine"] = "stays"
    model.graph.name = "other"
    assert {p.key: p.value for p in PassManager(passes="eliminate_deadend").run(model).model.metadata_props}[
        "mine"
    ] == "stays"
    assert isinstance(model.graph, Graph)
    assert isinstance(model.proto, onnx.ModelProto)
    assert isinstance(next(model.graph.initializers).tensor, Tensor)
