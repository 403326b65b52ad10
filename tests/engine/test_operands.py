"""New operands have the element types that the operator takes, and the one of what stands beside them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs

from graphopt.ir import Model, Node
from graphopt.rewrite import Driver, Log, OpRule, Outcome, Rewriter
from graphopt.rewrite.operands import parameters

INTEGERS = frozenset({TensorProto.INT32, TensorProto.INT64})


class Renew(OpRule):
    """Write the last operand of an operator anew, of 64 bits."""

    name = "renew"
    in_place = False

    def __init__(self, op: str, array: np.ndarray) -> None:
        self.ops = (op,)
        self.array = array

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        last = node.inputs[-1]
        if last is None or last.name != "last":
            return None
        if self.in_place:
            return rw.set_input(node, len(node.inputs) - 1, self.array)
        return rw.replace(node, [rw.op(node.op_type, *node.inputs[:-1], self.array, **node.attrs)])


class RenewInPlace(Renew):
    """The same, where the node stands."""

    name = "renew_in_place"
    in_place = True


CASES = {
    "Slice": ("int32[1] s = {0}, int32[1] e = {2}, int32[1] last = {0}", "Slice (x, s, e, last)", [0]),
    "Range": ("int32 a = {0}, int32 b = {4}, int32 last = {1}", "Range (a, b, last)", 1),
    "STFT": ("int32 step = {1}, int32 last = {2}", "STFT (x3, step, , last)", 2),
    "Equal": ("int32[1] one = {1}, int32[1] last = {1}", "Equal (one, last)", [1]),
    "Max": ("int32[1] one = {1}, int32[1] last = {1}", "Max (one, one, last)", [1]),
}


def model_of(constants: str, call: str) -> Model:
    head = '<ir_version: 9, opset_import: ["" : 18]>'
    return Model.load(
        onnx.parser.parse_model(f"{head} g (float[4] x, float[1,4,1] x3) => (y) <{constants}> {{ y = {call} }}")
    )


def run(rule: Renew, model: Model) -> Driver:
    driver = Driver(model, Log(listen=True), check=True)
    driver.infer()
    driver.run_rules([rule])
    return driver


@pytest.mark.parametrize("rule", [Renew, RenewInPlace])
@pytest.mark.parametrize("op", CASES)
def test_new_lists_take_the_type_of_what_stands_beside_them(op: str, rule: type[Renew]) -> None:
    constants, call, array = CASES[op]
    model = model_of(constants, call)
    assert run(rule(op, np.array(array, np.int64)), model).log.events
    (node,) = model.graph
    last = node.inputs[-1]
    assert last is not None
    assert last.name != "last"
    assert last.dtype == TensorProto.INT32


@pytest.mark.parametrize("rule", [Renew, RenewInPlace])
def test_what_does_not_fit_is_refused(rule: type[Renew]) -> None:
    model = model_of(*CASES["Slice"][:2])
    driver = run(rule("Slice", np.array([1 << 40], np.int64)), model)
    assert not driver.log.events
    (miss,) = driver.log.near_misses.values()
    assert "Slice does not take" in miss.reason
    assert [value.name for value in model.graph.initializers] == ["s", "e", "last"]


@pytest.mark.parametrize("rule", [Renew, RenewInPlace])
@pytest.mark.parametrize("array", [np.array([1.0], np.float32), np.array([True])])
def test_types_that_an_operator_does_not_take_are_refused(rule: type[Renew], array: np.ndarray) -> None:
    for op in ("Slice", "Equal", "Max"):
        driver = run(rule(op, array), model_of(*CASES[op][:2]))
        assert not driver.log.events


def test_every_operator_says_what_its_operands_may_be() -> None:
    """Operands that share a type parameter are known for all operators, so that no rule need know of any."""
    for schema in defs.get_all_schemas_with_history():
        if schema.domain or schema.deprecated:
            continue
        known = parameters(schema.name, "", schema.since_version)[0]
        assert [each.name for each in known] == [operand.type_str for operand in schema.inputs]
        tensors = [operand for operand in schema.inputs if any(t.startswith("tensor(") for t in operand.types)]
        assert sum(bool(each.allowed) for each in known) == len(tensors)
    slices = parameters("Slice", "", 13)[0]
    assert {each.name for each in slices[1:]} == {"Tind"}
    assert all(each.allowed == INTEGERS for each in slices[1:])


def test_operators_without_a_schema_take_anything() -> None:
    assert parameters("Whatever", "", 18) == ((), ())
    assert parameters("FusedMatMul", "com.microsoft", 1) == ((), ())
