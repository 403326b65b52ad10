"""Without a rewrite the proto comes back byte for byte, and with one everything else does."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from graphopt import optimize
from graphopt.errors import ModelError
from graphopt.ir import Model, Tensor
from graphopt.ir.types import element_bits
from tests.backend_models import backend_models
from tests.same import assert_same_bytes


def rewritten(source: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every graph written anew from the view."""
    model = Model.load(source)
    for graph in model.graphs():
        graph.changed = True
    return model.flush()


def test_every_backend_model_comes_back() -> None:
    models = backend_models()
    assert len(models) > 1500
    for name, source in models.items():
        before = source.SerializeToString()
        model = Model.load(source)
        model.verify()
        assert_same_bytes(model.flush().SerializeToString(), before, name)
        assert_same_bytes(rewritten(source).SerializeToString(), before, f"{name}, written anew")
        assert_same_bytes(source.SerializeToString(), before, f"{name} was changed by loading it")


def full_model() -> onnx.ModelProto:
    """A model with something in every corner that no pass understands."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])
    node = helper.make_node("Relu", ["x"], ["y"], name="relu", doc_string="why")
    node.metadata_props.add(key="k", value="v")
    graph = helper.make_graph([node], "g", [x], [y], doc_string="graph")
    graph.metadata_props.add(key="gk", value="gv")
    graph.input[0].type.denotation = "IMAGE"
    graph.quantization_annotation.add(tensor_name="x").quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    graph.sparse_initializer.append(
        helper.make_sparse_tensor(
            helper.make_tensor("sparse", TensorProto.FLOAT, [1], [3.0]),
            helper.make_tensor("where", TensorProto.INT64, [1], [2]),
            [5],
        )
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    model.metadata_props.add(key="author", value="me")
    model.training_info.add().algorithm.name = "training"
    function = helper.make_function("local", "f", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 18)])  # fmt: skip
    function.overload = "o1"
    model.functions.append(function)
    return model


def test_unknown_fields_survive_at_every_level() -> None:
    source = full_model()
    extra = b"\xfa\x3e\x03abc"  # field 1007, length-delimited: a later version of ONNX
    for message in (source, source.graph, source.graph.node[0], source.functions[0]):
        message.MergeFromString(extra)
    before = source.SerializeToString()
    assert before.count(b"abc") == 4
    assert rewritten(source).SerializeToString().count(b"abc") == 4
    assert onnx.ModelProto.FromString(rewritten(source).SerializeToString()) == source


def test_what_no_pass_understands_survives() -> None:
    source = full_model()
    assert rewritten(source) == source


def test_what_is_no_utf_8_survives_rewriting() -> None:
    source = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        g (float[2] x, int64 n, bool go) => (float[2] y) <bool yes = {1}> {
            y = If (yes) <
                then_branch = t () => (float[2] o) {
                    o = Loop (n, go, x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w) {
                        d = Identity (c)
                        w = Add (v, x)
                    }>
                },
                else_branch = e () => (float[2] p) { p = Neg (x) }
            >
        }""")
    loop = source.graph.node[0].attribute[0].g.node[0]
    loop.doc_string = loop.attribute[0].g.doc_string = loop.attribute[0].g.node[1].doc_string = "mark"
    given = source.SerializeToString().replace(b"mark", b"\xff\xfe\xfd\xfc")
    result = optimize(given)
    assert [node.op_type for node in result.graph.node] == ["Loop"]
    assert result.SerializeToString().count(b"\xff\xfe\xfd\xfc") == 3


def test_metadata_with_a_key_given_twice_survives() -> None:
    source = full_model()
    source.metadata_props.add(key="author", value="and me")
    assert rewritten(source) == source


DTYPES = [TensorProto.FLOAT, TensorProto.INT64, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT4, TensorProto.STRING]  # fmt: skip


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    """Random graphs of unary and binary nodes, names with odd characters, branches that capture, every tensor form."""
    names = ["x"]
    nodes = []
    initializers = []
    for number in range(draw(st.integers(0, 3))):
        dims = draw(st.lists(st.integers(0, 3), max_size=3))
        dtype = draw(st.sampled_from(DTYPES))
        values = [b"a"] * int(np.prod(dims)) if dtype == TensorProto.STRING else [1] * int(np.prod(dims))
        initializers.append(helper.make_tensor(f"w{number}", dtype, dims, values))
    for number in range(draw(st.integers(1, 8))):
        name = draw(st.sampled_from([f"v{number}", f"v/{number}:0", f"ö {number}"]))
        kind = draw(st.sampled_from(["Neg", "Add", "If", "Odd"]))
        read = [draw(st.sampled_from(names)) for _ in range(2)]
        if kind == "If":
            branch = helper.make_graph([helper.make_node("Neg", [read[0]], [f"t{number}"])], "b", [], [helper.make_tensor_value_info(f"t{number}", 1, None)])  # fmt: skip
            other = helper.make_graph([helper.make_node("Abs", [read[1]], [f"e{number}"])], "b", [], [helper.make_tensor_value_info(f"e{number}", 1, None)])  # fmt: skip
            nodes.append(helper.make_node("If", ["c"], [name], then_branch=branch, else_branch=other))
        elif kind == "Odd":
            nodes.append(
                helper.make_node("Odd", ["", read[0], ""], ["", name], domain="my.domain", alpha=0.5, l=[1, 2])
            )
        else:
            nodes.append(
                helper.make_node(kind, read[: 1 if kind == "Neg" else 2], [name], name=draw(st.sampled_from(["", "n"])))
            )
        names.append(name)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, draw(st.sampled_from([None, ["n"], [2, "n", None]])))
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    y = helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x, c], [y], initializers)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("my.domain", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@given(models())
def test_random_models_come_back(source: onnx.ModelProto) -> None:
    before = source.SerializeToString()
    model = Model.load(source)
    model.verify()
    assert model.flush().SerializeToString() == before
    assert rewritten(source).SerializeToString() == before
    assert Model.load(before).flush().SerializeToString() == before


@pytest.mark.parametrize("dtype", sorted(set(TensorProto.DataType.values()) - {0, TensorProto.STRING}))
def test_tensors_of_every_type_read_and_write_back(dtype: int) -> None:
    """Reading to NumPy and writing a new constant gives the same bits."""
    bits = {TensorProto.BOOL: [0, 1, 1, 0]}.get(dtype, [1, 0, 2, 1])
    proto = helper.make_tensor("t", dtype, [4], bits)
    original = numpy_helper.to_array(proto)
    tensor = Tensor(dtype, (4,), proto=proto)
    assert tensor.array().tobytes() == original.tobytes()
    copy = TensorProto()
    if element_bits(dtype) is None:  # a type newer than this library: it passes through, new constants are refused
        with pytest.raises(ModelError, match="no raw form"):
            Tensor.from_array(tensor.array(), dtype).fill(copy, "t")
        return
    Tensor.from_array(tensor.array(), dtype).fill(copy, "t")
    assert numpy_helper.to_array(copy).tobytes() == original.tobytes()
    assert copy.data_type == dtype
    assert tensor.key() == Tensor(dtype, (4,), proto=copy).key()
