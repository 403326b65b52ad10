"""The gate, the driver and the journal: what is refused, what is undone, what is reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from graphopt.errors import Decline, PassError
from graphopt.ir import Graph, Model, Node
from graphopt.naming import pass_name
from graphopt.rewrite import Driver, GraphPass, Log, OpRule, Outcome, RewriteLoopError, Rewriter
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
        ("g (float[2] x) => (float[2] y) { y = Identity (x) }", "would merge two graph inputs, outputs or initializers, x and y"),
        ("g (float[2] x) => (float[2] y, float[2] z) { y = Neg (x)  z = Identity (y) }", "would merge two graph inputs, outputs or initializers, y and z"),
        ("g (float[2] x) => (float[2] y, float[2] z) <float[2] w = {1, 2}> { z = Add (x, w)  y = Identity (w) }", "would merge two graph inputs, outputs or initializers, w and y"),
        (
            "g (float[2] x, bool c) => (float[2] y) { a = Neg (x)  y = If (c) <then_branch = t () => (float[2] p) { p = Identity (a) },"
            " else_branch = e () => (float[2] q) { q = Neg (a) }> }",
            "would output the captured value a as p",
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
        "k has element type float16, its replacement has float",
        "r has shape (3, 2), its replacement has (2, 3)",
        "u has rank 3, its replacement has 2",
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
        ops = ("Elu",)

        def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
            rw.set_attr(node, alpha=2.0)
            raise ZeroDivisionError("oh")

    model = load("g (float[2] x) => (float[2] y) { a = Elu (x)  b = Identity (a)  y = Relu (b) }")
    driver = run(model, Bad(), Drop())
    assert [str(f.error) for f in driver.log.failures] == ["oh"]
    assert driver.log.failures[0].node is not None
    assert [event.rule for event in driver.log.events] == ["drop"]
    assert not next(iter(model.graph)).attrs
    with pytest.raises(PassError, match="pass bad failed at Elu"):
        run(load("g (float[2] x) => (float[2] y) { y = Elu (x) }"), Bad(), strict=True)


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
    assert "do not terminate" in str(driver.log.failures[0].error)


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


def test_a_reason_is_formatted_only_when_it_is_read() -> None:
    declined = Decline("{} {}", "too few")
    with pytest.raises(IndexError):
        str(declined)
    assert str(Decline("{} of {}", 1, 2)) == "1 of 2"
    assert str(Decline()) == ""


# ---------------------------------------------------------------------- one check, whichever way a graph is changed

WAYS = {
    "replace": lambda rw, node, index, value: rw.replace(
        node, [rw.op(node.op_type, *[value if i == index else v for i, v in enumerate(node.inputs)], **node.attrs)]
    ),
    "set_input": lambda rw, node, index, value: rw.set_input(node, index, value),
    "set_inputs": lambda rw, node, index, value: rw.set_inputs(node, {index: value}, "several"),
    "through a new node": lambda rw, node, index, value: rw.set_input(node, index, rw.op("Identity", value)),
    "replace_all": lambda rw, node, index, value: rw.replace_all(
        [(node.inputs[index].producer, [rw.op("Identity", value)])]
    ),
}

REFUSED = {
    "element type": ("h", "n = Neg (v)  y = Add (u, n)", 1, "element type"),
    "shape": ("t", "n = Neg (v)  y = Add (n, n)", 0, "shape"),
    "rank": ("r", "n = Neg (v)  y = Relu (n)", 0, "rank"),
    "later": ("late", "n = Neg (v)  y = Add (u, n)  late = Abs (u)", 1, "not yet computed"),
    "of a body": ("p", "n = Neg (v)  y = Add (u, n)  q = If (c) <then_branch = t () => (float[2] p) { p = Abs (u) }, else_branch = e () => (float[2] o) { o = Abs (u) }>", 1, "not visible"),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", REFUSED)
def test_every_way_of_changing_a_graph_is_checked_alike(way: str, what: str) -> None:
    name, body, index, reason = REFUSED[what]

    class Change(OpRule):
        """Let the node that computes y read something else."""

        name = "change"
        ops = ("Add", "Relu")

        def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
            values = {k: v for graph in rw.model.graphs() for k, v in graph.values.items()}
            return WAYS[way](rw, node, index, values[name_of_new])  # type: ignore[no-any-return]

    name_of_new = name
    model = load(
        f"g (float[2] u, float[2] v, float16[2] h, float[3] t, float[1,2] r, bool c) => (float[2] y) {{ {body} }}"
    )
    before = model.flush().SerializeToString()
    driver = run(model, Change())
    (found,) = reasons(driver)
    assert reason in found or "does not take" in found
    assert not driver.log.events
    assert model.flush().SerializeToString() == before


ONE = np.array(1, np.float32), np.array(0, np.uint8)


@pytest.mark.parametrize(
    ("head", "make", "reason"),
    [
        ('<ir_version: 8, opset_import: ["" : 13]>', lambda rw, x: rw.op("Gelu", x), "Gelu is not an operator of opset 13"),
        (HEAD, lambda rw, x: rw.op("Neg", x, axis=1), "Neg has no attribute axis at opset"),
        (HEAD, lambda rw, x: rw.op("Add", x), "Add does not take 1 operands at opset"),
        (HEAD, lambda rw, x: rw.op("Add", x, x, x), "Add does not take 3 operands at opset"),
        ('<ir_version: 3, opset_import: ["" : 8]>', lambda rw, x: rw.op("Reshape", x, np.array([2], np.int64)), "before opset 9"),
        (HEAD, lambda rw, x: rw.op("Reshape", x, np.array([2, 1], np.int64)), "rank"),
        (HEAD, lambda rw, x: rw.op("Add", x, rw.op("QuantizeLinear", x, *ONE)), "element type uint8"),
        (HEAD, lambda rw, x: rw.op("Concat", x, x, axis=0), "shape"),
        (HEAD, lambda rw, x: rw.op("Cast", x, to=10), "element type"),
        (HEAD, lambda rw, x: rw.op("Reshape", rw.op("Unsqueeze", x, axes=[0]), np.array([1, 2], np.int64)), "rank"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("in_place", [False, True])
def test_new_nodes_are_checked_before_they_are_taken_in(head: str, make: Any, reason: str, in_place: bool) -> None:
    class Make(OpRule):
        """Compute something else instead of a negation."""

        name = "make"
        ops = ("Neg",)

        def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
            made = make(rw, node.inputs[0])
            return rw.set_input(next(iter(node.outputs[0].users)), 0, made) if in_place else rw.replace(node, [made])  # type: ignore[union-attr]

    model = load("g (float[2] x) => (float[2] y) { a = Neg (x)  y = Relu (a) }", head)
    before = model.flush().SerializeToString()
    driver = run(model, Make())
    (found,) = reasons(driver)
    assert reason in found
    assert model.flush().SerializeToString() == before


def test_attributes_that_would_change_the_result_are_refused() -> None:
    class Squash(OpRule):
        """Do not keep the reduced axis."""

        name = "squash"
        ops = ("ReduceMean",)

        def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
            return rw.set_attr(node, keepdims=0)

    driver = run(
        load("g (float[2,3] x) => (float[2,1] y) <int64[1] a = {1}> { m = ReduceMean (x, a)  y = Neg (m) }"), Squash()
    )
    assert reasons(driver) == ["m has rank 2, its replacement has 1"]


def test_an_output_does_not_take_a_name_that_hides_it_from_a_body() -> None:
    model = load(
        "g (float[2] x, bool c) => (float[2] y, float[2] z) { a = Neg (x)  y = Identity (a)"
        "  z = If (c) <then_branch = t () => (float[2] p) { y1 = Abs (a)  p = Neg (y1) }, else_branch = e () => (float[2] o) { o = Neg (a) }> }"
    )
    proto = model.flush()
    body = proto.graph.node[2].attribute[0].g
    body.node[0].output[0] = body.node[1].input[0] = "y"
    driver = run(Model.load(proto), Drop())
    assert reasons(driver) == ["a cannot be renamed to y: a subgraph that reads it uses that name"]


def test_only_equal_constants_are_merged() -> None:
    model = load(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] u = {1, 3}, float[2] t = {1, 2}> { a = Add (x, w)  b = Add (a, u)  y = Add (b, t) }"
    )
    rewriter = Driver(model).rewriter
    values = model.graph.values
    with pytest.raises(Decline, match="u and w do not hold the same data"):
        rewriter.merge_constant(values["u"], values["w"])
    with pytest.raises(Decline, match="x is not a constant of the model"):
        rewriter.merge_constant(values["x"], values["w"])
    assert rewriter.merge_constant(values["t"], values["w"])
    with pytest.raises(Decline, match="w and u do not hold the same data"):
        rewriter.merge_constant(values["w"], values["u"])


@pytest.mark.parametrize("imported", [False, True])
@pytest.mark.parametrize("body", [
    "(x, c) => (y) { y = Sigmoid (x) }",
    "(x, c) => (y) { y = If (c) <then_branch = t () => (float[2] o) { o = Sigmoid (x) },"
    " else_branch = e () => (float[2] p) { p = Neg (x) }> }",
])  # fmt: skip
def test_a_function_imports_what_its_operators_need(body: str, imported: bool) -> None:
    class Quick(OpRule):
        """Write an operator of another domain."""

        name = "quick"
        ops = ("Sigmoid",)

        def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
            return rw.replace(node, [rw.op("QuickGelu", node.inputs[0], domain="com.microsoft")])

    others = ', "com.microsoft" : 1' if imported else ""
    head = f'<ir_version: 9, opset_import: ["" : 18, "my" : 1{others}]>'
    model = load(
        f'g (float[2] x, bool c) => (float[2] y) {{ y = my.f (x, c) }} <domain: "my", opset_import: ["" : 18]> f {body}',
        head,
    )
    run(model, Quick())
    result = model.flush()
    assert [(o.domain, o.version) for o in result.functions[0].opset_import] == [("", 18), ("com.microsoft", 1)]
    onnx.checker.check_model(result)


def test_new_nodes_are_not_called_like_others() -> None:
    class Spread(OpRule):
        """Write one operator as three."""

        name = "spread"
        ops = ("Softsign",)

        def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
            x = node.inputs[0]
            return rw.replace(node, [rw.op("Div", x, rw.op("Exp", rw.op("Neg", x)))])

    source = onnx.parser.parse_model(f"{HEAD} g (float[2] x) => (float[2] z) {{ y = Softsign (x)  z = Abs (y) }}")
    source.graph.node[0].name, source.graph.node[1].name = "sign", "y_exp"  # as exporters name nodes like values
    model = Model.load(source)
    run(model, Spread())
    names = [node.name for node in model.flush().graph.node]
    assert names == ["y_neg", "y_exp_1", "sign", "y_exp"]


class Constant(OpRule):
    """Let each Add read ones."""

    ops = ("Add",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if node.operand(1).producer is not None and node.operand(1).constant_tensor is not None:
            return None
        return rw.set_input(node, 1, np.ones(2, np.float32))


def test_a_constant_in_a_function_is_not_called_like_its_reader() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18, "l" : 1]> g (float[2] x) => (float[2] y) { y = l.f (x) }'
        '<domain: "l", opset_import: ["" : 18]> f (a) => (r) { b = Neg (a)  r = Add (a, b) }'
    )
    proto.functions[0].node[1].name = "sum"
    model = Model.load(proto)
    run(model, Constant())
    names = [(node.op_type, node.name) for node in model.flush().functions[0].node]
    assert names == [("Constant", "sum_constant"), ("Add", "sum")]


@pytest.mark.parametrize(
    ("of_class", "name"),
    [
        ("FuseBnIntoConv", "fuse_bn_into_conv"),
        ("ConvertConv1dTo2d", "convert_conv_1d_to_2d"),
        ("FuseInt4IntoMatmul", "fuse_int4_into_matmul"),
    ],
)
def test_a_pass_is_called_like_its_class(of_class: str, name: str) -> None:
    assert pass_name(of_class) == name
    assert type(of_class, (GraphPass,), {}).name == name


def test_a_pass_over_a_graph_goes_on_behind_a_node_that_declines() -> None:
    class Doubled(GraphPass):
        """Write sums of a value with itself as products."""

        def run(self, graph: Graph, rw: Rewriter) -> None:
            for node in [node for node in graph if node.op == "Add"]:
                with rw.attempt(node):
                    if node.operand(0) is not node.operand(1):
                        raise Decline("{} is a sum of two", node.result.name)
                    rw.replace(node, [rw.op("Mul", node.operand(0), np.array(2, np.float32))])

    model = load("g (float[2] x, float[2] u) => (float[2] z) { y = Add (x, u) z = Add (y, y) }")
    driver = Driver(model, Log(listen=True), check=True)
    driver.infer()
    driver.run_pass(Doubled())
    assert reasons(driver) == ["y is a sum of two"]
    assert [node.op for node in model.graph] == ["Add", "Mul"]
