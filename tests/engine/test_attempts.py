"""How often rules are asked: attempts are counted, not timed."""

from __future__ import annotations

import onnx

from graphopt.ir import Model, Node
from graphopt.rewrite import Decline, Driver, Log, OpRule, Outcome, Rewriter
from graphopt.rewrite.attempts import Tables


class Drop(OpRule):
    """Let what Identity reads stand for its output."""

    name = "drop"
    ops = ("Identity",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        return rw.replace(node, [node.operand(0)])


class Idle(OpRule):
    """Never find anything."""

    name = "idle"
    ops = ("Neg",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        raise Decline


def load(body: str) -> Model:
    return Model.load(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {body}'))


def run(model: Model, *rules: OpRule) -> Driver:
    driver = Driver(model, Log(listen=True), check=True)
    driver.infer()
    driver.run_rules(rules)
    return driver


def test_attempts_grow_with_the_nodes_and_not_with_the_rules() -> None:
    """A rule is asked only at its operators: attempts are counted, not timed."""
    chain = "  ".join(f"v{i + 1} = Abs (v{i})" for i in range(200))
    model = load(f"g (float[2] v0) => (float[2] y) {{ {chain}  y = Identity (v200) }}")
    driver = run(model, Drop())
    assert driver.log.stats["drop"].attempts <= 2


def test_runs_share_what_rules_try_and_count_for_themselves() -> None:
    """Each run has its own statistics, whichever of them made the tables."""
    body, tables = "g (float[2] x) => (float[2] y) { a = Neg (x)  b = Identity (a)  y = Abs (b) }", Tables()
    drop = Drop()
    for _ in range(2):
        driver = Driver(load(body), Log(), check=True, tables=tables)
        driver.run_rules([drop])
        assert (driver.log.stats["drop"].attempts, driver.log.stats["drop"].hits) == (1, 1)
    assert tables.table((drop,), 18, silent=True) is tables.table((drop,), 18, silent=True)
    assert tables.table((drop,), 18, silent=True) is not tables.table((drop,), 18, silent=False)


def test_rules_that_found_nothing_in_company_are_not_asked_again_alone() -> None:
    """Until something changes, what two rules did not find is not looked for by one of them."""
    model = load("g (float[2] x) => (float[2] y, float[2] z) { y = Identity (x)  a = Neg (x)  z = Identity (a) }")
    drop, idle = Drop(), Idle()
    driver = run(model, drop, idle)
    attempts = driver.log.stats["drop"].attempts
    assert driver.run_rules([drop]) == 0
    assert driver.log.stats["drop"].attempts == attempts
    driver.infer()
    driver.run_rules([drop])
    assert driver.log.stats["drop"].attempts > attempts
