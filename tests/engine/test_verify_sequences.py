"""Sequences and optionals for the oracle: given, put out, of several lengths, and empty."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from graphopt import verify
from tests.engine.verify_models import model, value


def sequence_type(shape=None):
    return helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, shape))


def test_sequences_in_and_out():
    def build(op, **attrs):
        return model(
            [helper.make_node(op, ["s"], ["y"], **attrs)],
            [helper.make_value_info("s", sequence_type(["N", 2]))],
            [value("y", TensorProto.FLOAT, None)],
        )

    good, bad = build("ConcatFromSequence", axis=0), build("ConcatFromSequence", axis=1)
    assert verify.compare(good, good, numerics="exact").ok
    assert verify.compare(good, bad).status == "mismatch"
    out = model(
        [helper.make_node("SequenceInsert", ["s", "x"], ["y"])],
        [helper.make_value_info("s", sequence_type()), value("x", TensorProto.FLOAT, [2])],
        [helper.make_value_info("y", sequence_type())],
    )
    same = model([helper.make_node("Identity", ["s"], ["y"])], out.graph.input, out.graph.output)
    report = verify.compare(out, same)
    assert report.status == "mismatch"
    assert "parts" in report.outputs[0].detail


def test_an_optional_input():
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    m = model(
        [helper.make_node("OptionalGetElement", ["o"], ["y"])],
        [helper.make_value_info("o", kind)],
        [value("y", TensorProto.FLOAT, [2])],
    )
    assert verify.compare(m, m).ok


def constant_in_place_of(node, kind, array):
    """A model of one node, and one that gives what that does for sequences of two elements."""
    given, result = helper.make_value_info("s", kind), numpy_helper.from_array(np.asarray(array), "w")
    stated = [value("y", result.data_type, [])]
    known = model([helper.make_node("Identity", ["w"], ["y"])], [given], stated)
    known.graph.initializer.append(result)
    return model([node], [given], stated), known


def test_sequences_are_of_several_lengths():
    length = helper.make_node("SequenceLength", ["s"], ["y"])
    for shape in ([2], ["N"]):
        report = verify.compare(*constant_in_place_of(length, sequence_type(shape), np.int64(2)))
        assert report.status == "mismatch"
        assert {"equal", "mismatch"} == {case.status for case in report.cases if case.set == "ordinary"}


def test_an_element_is_not_the_same_from_the_end():
    def build(position):
        m = model(
            [helper.make_node("SequenceAt", ["s", "i"], ["y"])],
            [helper.make_value_info("s", sequence_type([2]))],
            [value("y", TensorProto.FLOAT, [2])],
        )
        m.graph.initializer.append(numpy_helper.from_array(np.array(position, np.int64), "i"))
        return m

    assert verify.compare(build(1), build(1)).ok
    assert verify.compare(build(1), build(-1)).status == "mismatch"


def test_optionals_hold_nothing_in_some_run():
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    asks = helper.make_node("OptionalHasElement", ["s"], ["y"])
    assert verify.compare(*constant_in_place_of(asks, kind, True)).status == "mismatch"
    kind = helper.make_optional_type_proto(sequence_type([2]))
    assert verify.compare(*constant_in_place_of(asks, kind, True)).status == "mismatch"
