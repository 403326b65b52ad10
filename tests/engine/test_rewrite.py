"""The gate, the driver and the journal: what is refused, what is undone, what is reported."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from graphopt.errors import PassError
from graphopt.ir import Graph, Model, Node
from graphopt.rewrite import Driver, GraphPass, Log, Mismatch, OpRule, Outcome, RewriteLoopError, Rewriter
from graphopt.testing import canonical_text

HEAD = '<ir_version: 9, opset_import: ["" : 18]>'


def load(body: str, head: str = HEAD) -> Model:
    return Model.load(onnx.parser.parse_model(f"{head} {body}"))


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph]


class Drop(OpRule):
    """Let the first input of Identity stand for its output."""

    name = "drop"
    ops = ("Identity",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        return rw.replace(node, [node.inputs[0]])


def run(model: Model, *rules: OpRule, **settings: bool) -> Driver:
    driver = Driver(model, Log(listen=True), check=True, **settings)
    driver.infer()
    driver.run_rules(rules)
    return driver


def reasons(driver: Driver) -> list[str]:
    return [miss.reason for miss in driver.log.near_misses.values()]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("g (float[2] x) => (float[2] y) { y = Identity (x) }", "would merge two interface values, x and y"),
        ("g (float[2] x) => (float[2] y, float[2] z) { y = Neg (x)  z = Identity (y) }", "would merge two interface values, y and z"),
        ("g (float[2] x) => (float[2] y, float[2] z) <float[2] w = {1, 2}> { z = Add (x, w)  y = Identity (w) }", "would merge two interface values, w and y"),
        (
            "g (float[2] x, bool c) => (float[2] y) { a = Neg (x)  y = If (c) <then_branch = t () => (float[2] p) { p = Identity (a) },"
            " else_branch = e () => (float[2] q) { q = Neg (a) }> }",
            "would put out captured value a as p",
        ),
    ],
)  # fmt: skip
def test_interface_values_are_never_merged(body: str, reason: str) -> None:
    model = load(body)
    before = model.flush().SerializeToString()
    driver = run(model, Drop())
    assert reasons(driver) == [reason]
    assert not driver.log.events
    assert model.flush().SerializeToString() == before


def test_an_output_name_goes_to_its_new_producer() -> None:
    model = load("g (float[2] x) => (float[2] y) { a = Neg (x)  y = Identity (a) }")
    run(model, Drop())
    assert ops(model.graph) == ["Neg"]
    assert model.graph.outputs[0].name == "y"
    onnx.checker.check_model(model.flush(), full_check=True)


def test_other_types_and_shapes_are_refused() -> None:
    class Wrong(OpRule):
        """Replace a Cast or Reshape by its input, wrongly."""

        name = "wrong"
        ops = ("Cast", "Reshape", "Unsqueeze")

        def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
            return rw.replace(node, [node.inputs[0]])

    model = load(
        "g (float[2,3] x) => (float16[2,3] a, float[3,2] b, float[1,2,3] c) <int64[2] s = {3, 2}, int64[1] z = {0}>"
        "{ m = Neg (x)  k = Cast <to = 10> (m)  a = Neg (k)  r = Reshape (m, s)  b = Neg (r)  u = Unsqueeze (m, z)  c = Neg (u) }"
    )
    driver = run(model, Wrong())
    assert reasons(driver) == [
        "k has element type 10, its replacement 1",
        "r has shape (3, 2), its replacement (2, 3)",
        "u has rank 3, its replacement 2",
    ]


def test_constants_get_fresh_names_and_the_old_one_goes() -> None:
    class Double(OpRule):
        """Double the constant of a Mul once."""

        name = "double"
        ops = ("Mul",)

        def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
            w = node.inputs[1]
            if w is None or w.const() is None or w.const()[0] != 1:
                return None
            return rw.replace(node, [rw.op("Mul", node.inputs[0], rw.constant(w.const() * 2, like=w))])

    model = load(
        "g (float[2] x) => (float[2] y, float[2] z) <float[2] w = {1, 2}, float[2] w_1 = {5, 6}> { y = Mul (x, w)  t = Add (x, w)  z = Add (t, w_1) }"
    )
    run(model, Double())
    names = {v.name: v.tensor.array().tolist() for v in model.graph.initializers if v.tensor}
    assert names == {"w": [1, 2], "w_1": [5, 6], "w_2": [2, 4]}


def test_what_only_the_replaced_node_used_is_swept() -> None:
    model = load(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Mul (x, w)  b = Neg (a)  c = Abs (x)  y = Identity (c) }"
    )

    class Cut(OpRule):
        """Replace Neg by x."""

        name = "cut"
        ops = ("Neg",)

        def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
            return rw.erase(node)

    driver = run(model, Cut())
    assert ops(model.graph) == ["Abs", "Identity"]
    assert not list(model.graph.initializers)
    (event,) = driver.log.events
    assert [note.op for note in event.removed] == ["Neg", "Mul"]
    assert event.bytes == -8


def test_a_rule_that_raises_is_isolated_and_named() -> None:
    class Bad(OpRule):
        """Change something, then fail."""

        name = "bad"
        ops = ("Neg",)

        def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
            rw.set_attr(node, left=1)
            raise ZeroDivisionError("oh")

    model = load("g (float[2] x) => (float[2] y) { a = Neg (x)  b = Identity (a)  y = Relu (b) }")
    driver = run(model, Bad(), Drop())
    assert [str(f.error) for f in driver.log.failures] == ["oh"]
    assert driver.log.failures[0].node is not None
    assert [event.rule for event in driver.log.events] == ["drop"]
    assert not next(iter(model.graph)).attrs
    with pytest.raises(PassError, match="pass bad failed at Neg"):
        run(load("g (float[2] x) => (float[2] y) { y = Neg (x) }"), Bad(), strict=True)


def test_a_graph_pass_that_raises_is_undone_as_a_whole() -> None:
    class Half(GraphPass):
        """Rebuild half of the graph, then fail."""

        name = "half"

        def run(self, graph: Graph, rw: Rewriter) -> None:
            for count, node in enumerate(list(graph)):
                if count == 3:
                    raise RuntimeError("half way")
                if node.op != "If":
                    new = rw.op("Abs", rw.op("Sub", node.inputs[0], rw.constant(np.zeros(2, np.float32), "zero")))
                    assert rw.replace(node, [new])

    model = load(
        "g (float[2] x, bool c) => (float[2] y, float[2] b) { a = Neg (x)  b = Identity (a)  y = If (c) <then_branch = t () => (float[2] p) { p = Relu (a) },"
        " else_branch = e () => (float[2] q) { q = Neg (b) }>  k = Neg (b) }"
    )
    before = canonical_text(model.flush())
    driver = Driver(model, check=True)
    driver.infer()
    driver.run_pass(Half())
    model.verify()
    assert [str(f.error) for f in driver.log.failures] == ["half way"]
    assert not driver.log.events
    assert canonical_text(model.flush()) == before


def test_rules_that_never_rest_are_stopped_with_the_cycle() -> None:
    class Swap(OpRule):
        """Turn Neg into Abs and back."""

        name = "swap"
        ops = ("Neg", "Abs")

        def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
            return rw.replace(node, [rw.op("Abs" if node.op == "Neg" else "Neg", node.inputs[0])])

    body = "g (float[2] x) => (float[2] y) { y = Neg (x) }"
    with pytest.raises(RewriteLoopError, match="swap: Neg"):
        run(load(body), Swap(), strict=True)
    model = load(body)
    driver = run(model, Swap())
    assert ops(model.graph) == ["Neg"]
    assert not driver.log.events
    assert "do not come to an end" in str(driver.log.failures[0].error)


def test_several_nodes_can_be_replaced_at_once_where_order_allows() -> None:
    class Merge(OpRule):
        """Compute two Neg of one value once."""

        name = "merge"
        ops = ("Neg",)

        def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
            others = [n for n in node.inputs[0].users if n.op == "Neg" and n is not node] if node.inputs[0] else []
            if not others:
                return None
            new = rw.op("Neg", node.inputs[0])
            return rw.replace_all([(node, [new]), (others[0], [new])])

    model = load("g (float[2] x) => (float[2] y) { a = Neg (x)  b = Neg (x)  y = Add (a, b) }")
    run(model, Merge())
    assert ops(model.graph) == ["Neg", "Add"]
    late = load("g (float[2] x) => (float[2] y) { a = Neg (x)  c = Abs (a)  b = Neg (x)  y = Add (c, b) }")
    assert reasons(run(late, Merge())) == ["a is read before all replaced nodes are computed"] * 2


def test_new_names_never_meet_names_of_other_scopes() -> None:
    model = load(
        "g (float[2] x, bool c) => (float[2] y) { a = Neg (x)  y = If (c) <then_branch = t () => (float[2] p) { a_1 = Relu (a)  p = Abs (a_1) },"
        " else_branch = e () => (float[2] q) { q = Neg (a) }> }"
    )
    assert model.fresh_name("a") == "a_2"
    assert model.fresh_name("a") == "a_3"
    assert model.fresh_name("new") == "new"
    assert model.fresh_name("new") == "new_1"


def test_limit_replays_a_prefix() -> None:
    body = "g (float[2] x) => (float[2] y) { a = Identity (x)  b = Identity (a)  d = Identity (b)  y = Relu (d) }"
    full = run(load(body), Drop()).log.events
    model = load(body)
    driver = Driver(model, Log(limit=2))
    driver.infer()
    driver.run_rules([Drop()])
    assert [str(e) for e in driver.log.events] == [str(e) for e in full[:2]]
    assert len(model.graph) == 2


def test_mismatch_is_falsy_and_lazy() -> None:
    assert not Mismatch("never {}", "formatted")


def test_attempts_grow_with_the_nodes_and_not_with_the_rules() -> None:
    """A rule is asked only at its operators: attempts are counted, not timed."""
    chain = "  ".join(f"v{i + 1} = Abs (v{i})" for i in range(200))
    model = load(f"g (float[2] v0) => (float[2] y) {{ {chain}  y = Identity (v200) }}")
    driver = run(model, Drop())
    assert driver.log.stats["drop"].attempts <= 2
