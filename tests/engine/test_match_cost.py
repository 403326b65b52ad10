"""What an attempt may cost, in counts and generous ratios: wall time on shared machines is noise."""

from __future__ import annotations

import sys
import timeit

from graphopt.ir import Model, Node
from graphopt.match import Const, compile_pattern
from graphopt.match.checks import MOST_READERS, climb
from tests.engine.matching import graph, producer


def calls_during(function, *args) -> int:
    """How many Python functions are entered."""
    count = 0

    def profile(_frame, event, _arg):
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
    return count


def fan_out(readers: int) -> Model:
    body = " ".join(f"v{k} = MatMul (x, w)" for k in range(readers)) + " y = Relu (x)"
    return graph(body, held="float[1] w = {1.0}")


def compiled(pattern):
    """The generated function itself, not the stand-in that compiles it."""
    made = compile_pattern(pattern)
    assert made.source
    return made.match


def gelu(op, x):
    return op.Mul(op.Mul(x, op.Add(op.Erf(op.Div(x, 1.4142135)), 1.0)), 0.5)


def test_a_miss_calls_nothing():
    match = compiled(gelu)
    for body in ("y = Mul (x, x)", "a = Abs (x) y = Mul (a, x)", "a = Mul (x, x) y = Mul (x, a)"):
        assert calls_during(match, producer(graph(body))) == 1


def test_a_miss_costs_about_as_much_as_asking_by_hand():
    match, node = compiled(gelu), producer(graph("a = Abs (x) y = Mul (a, x)"))

    def by_hand(node: Node) -> bool:
        first, second = node.inputs
        return any(v is not None and v.producer is not None and v.producer.op == "Mul" for v in (first, second))

    ours, theirs = (min(timeit.repeat(lambda f=f: f(node), number=2000, repeat=5)) for f in (match, by_hand))
    assert ours < 10 * theirs


def test_orders_that_cannot_be_told_apart_are_tried_a_few_times_at_most():
    def pattern(op, a, b, c, d):
        left, right = op.Mul(a, b), op.Mul(c, d)
        return op.Sub(op.Add(left, right), op.Concat(a, b, c, d, axis=7))

    inputs = "float[N] p, float[N] q, float[N] r, float[N] s"
    body = "l = Mul (p, q) m = Mul (r, s) t = Add (l, m) u = Concat <axis = 0> (p, q, r, s) y = Sub (t, u)"
    match = compiled(pattern)
    assert calls_during(match, producer(graph(body, inputs=inputs))) <= 150
    assert not match(producer(graph(body, inputs=inputs)))
    assert match(producer(graph(body.replace("= 0", "= 7"), inputs=inputs)))


def test_further_roots_are_looked_for_among_few_readers():
    model = fan_out(3 * MOST_READERS)
    x = model.graph.values["x"]
    assert len(climb(x, [{"MatMul"}], model.graph)) == MOST_READERS
    assert climb(x, [{"Relu"}], model.graph) == []


def test_the_cost_of_further_roots_does_not_grow_with_the_readers():
    def pattern(op, x):
        return op.MatMul(x, Const("w")), op.Sigmoid(op.MatMul(x, Const("v")))

    match = compiled(pattern)
    few, many = (calls_during(match, producer(fan_out(n), "v0")) for n in (2 * MOST_READERS, 50 * MOST_READERS))
    assert few == many
