"""Values of every type pass through untouched, and fold to the very bits where a fold applies."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graphopt.ir import Model
from graphopt.manager import PassManager

T = TensorProto
BITS = {
    "FLOAT": 32, "DOUBLE": 64, "FLOAT16": 16, "BFLOAT16": 16, "FLOAT8E4M3FN": 8, "FLOAT8E4M3FNUZ": 8, "FLOAT8E5M2": 8,
    "FLOAT8E5M2FNUZ": 8, "FLOAT4E2M1": 4, "UINT4": 4, "INT4": 4, "INT8": 8, "INT16": 16, "INT32": 32, "INT64": 64,
    "UINT8": 8, "UINT16": 16, "UINT32": 32, "UINT64": 64, "COMPLEX64": 64, "COMPLEX128": 128,
}  # fmt: skip
"""Bits of an element, by the name of its type."""

MANAGER = PassManager("basic", strict=True, check=True)


def tensor(name: str, kind: str, count: int) -> TensorProto:
    """A vector with every bit pattern there is room for, NaN and infinities among them."""
    rng = np.random.default_rng(BITS[kind])
    data = rng.integers(0, 256, (count * BITS[kind] + 7) // 8, np.uint8).tobytes()
    return TensorProto(name=name, data_type=getattr(T, kind), dims=[count], raw_data=data)


def run(
    nodes: list[onnx.NodeProto], constants: list[TensorProto], outputs: list[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [], outputs, constants)
    return MANAGER.run(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)).model


def constant_output(model: onnx.ModelProto) -> TensorProto:
    """The tensor that a model puts out, which must be the only node."""
    (node,) = model.graph.node
    assert node.op_type == "Constant"
    return node.attribute[0].t


@pytest.mark.parametrize("kind", BITS)
def test_weights_come_back_bit_by_bit(kind: str) -> None:
    """An `Identity` goes, the weight stays as it was, byte for byte."""
    weight = tensor("w", kind, 6)
    out = helper.make_tensor_value_info("y", weight.data_type, [6])
    nodes = [helper.make_node("Identity", ["w"], ["a"]), helper.make_node("Keep", ["a"], ["y"], domain="custom")]
    graph = helper.make_graph(nodes, "g", [], [out], [weight])
    imports = [helper.make_opsetid("", 23), helper.make_opsetid("custom", 1)]
    result = MANAGER.run(helper.make_model(graph, opset_imports=imports, ir_version=11)).model
    assert result.graph.initializer[0].SerializeToString() == weight.SerializeToString()
    assert [(n.op_type, list(n.input)) for n in result.graph.node] == [("Keep", ["w"])]


@pytest.mark.parametrize("kind", BITS)
def test_data_movement_folds_bit_by_bit(kind: str) -> None:
    """`Reshape` and `Transpose` of a constant: the same elements in another order, whatever they mean."""
    weight = tensor("w", kind, 6)
    shape = helper.make_tensor("s", T.INT64, [2], [2, 3])
    nodes = [helper.make_node("Reshape", ["w", "s"], ["a"]), helper.make_node("Transpose", ["a"], ["y"], perm=[1, 0])]
    result = run(nodes, [weight, shape], [helper.make_tensor_value_info("y", weight.data_type, [3, 2])])
    folded = constant_output(result)
    assert (folded.data_type, list(folded.dims)) == (weight.data_type, [3, 2])
    before = elements(weight)
    assert elements(folded) == [before[i] for i in (0, 3, 1, 4, 2, 5)]


def elements(proto: TensorProto) -> list[int]:
    """The bit patterns of the elements of a tensor, wherever it stores them."""
    name = T.DataType.Name(proto.data_type)
    array = onnx.numpy_helper.to_array(proto)
    bits = BITS[name]
    if bits == 4:
        return [int(v) & 15 for v in array.reshape(-1).view(np.uint8)]
    data = np.ascontiguousarray(array).tobytes()
    step = bits // 8
    return [int.from_bytes(data[i : i + step], "little") for i in range(0, len(data), step)]


def test_strings_fold() -> None:
    words = helper.make_tensor("w", T.STRING, [3], [b"one", "zwei\u00e4".encode(), b""])
    at = helper.make_tensor("i", T.INT64, [2], [2, 1])
    out = helper.make_tensor_value_info("y", T.STRING, [2])
    result = run([helper.make_node("Gather", ["w", "i"], ["y"])], [words, at], [out])
    assert list(constant_output(result).string_data) == [b"", "zwei\u00e4".encode()]


def test_strings_that_are_no_text_survive() -> None:
    words = helper.make_tensor("w", T.STRING, [2], [b"\xff\xfe", b"ok"])
    out = helper.make_tensor_value_info("y", T.STRING, [2])
    nodes = [helper.make_node("Identity", ["w"], ["a"]), helper.make_node("Identity", ["a"], ["y"])]
    result = run(nodes, [words], [out])
    strings = [list(t.string_data) for t in result.graph.initializer]
    strings += [list(n.attribute[0].t.string_data) for n in result.graph.node if n.op_type == "Constant"]
    assert strings == [[b"\xff\xfe", b"ok"]]


STRINGS = [b"a\0", b"a", b"\xff", b"\xff\0", b""]
"""With zeros at their end, which NumPy's own strings do not have, and what is no text."""


def test_strings_fold_byte_by_byte() -> None:
    table = TensorProto(name="t", data_type=T.STRING, dims=[len(STRINGS)], string_data=STRINGS)
    nodes = [helper.make_node("Gather", ["t", "i"], ["g"]), helper.make_node("Identity", ["g"], ["y"])]
    order = helper.make_tensor("i", T.INT64, [len(STRINGS)], range(len(STRINGS))[::-1])
    folded = run(nodes, [table, order], [helper.make_tensor_value_info("y", T.STRING, None)])
    assert list(constant_output(folded).string_data) == STRINGS[::-1]


def test_strings_that_differ_in_a_zero_are_not_one() -> None:
    tensors = [TensorProto(name=f"t{k}", data_type=T.STRING, dims=[1], string_data=[s]) for k, s in enumerate(STRINGS)]
    nodes = [helper.make_node("Concat", ["x", t.name], [f"y{k}"], axis=0) for k, t in enumerate(tensors)]
    outputs = [helper.make_tensor_value_info(node.output[0], T.STRING, [2]) for node in nodes]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", T.STRING, [1])], outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    assert MANAGER.run(model).model == model


@pytest.mark.parametrize(
    "value_type",
    [
        helper.make_sequence_type_proto(helper.make_tensor_type_proto(T.BFLOAT16, [2, None])),
        helper.make_optional_type_proto(helper.make_tensor_type_proto(T.INT4, [2])),
        helper.make_optional_type_proto(helper.make_sequence_type_proto(helper.make_tensor_type_proto(T.STRING, []))),
        helper.make_map_type_proto(T.INT64, helper.make_tensor_type_proto(T.FLOAT, [1])),
        helper.make_sequence_type_proto(
            helper.make_map_type_proto(T.STRING, helper.make_tensor_type_proto(T.FLOAT, []))
        ),
        helper.make_sparse_tensor_type_proto(T.FLOAT, [2, 2]),
    ],
    ids=["sequence", "optional", "optional sequence", "map", "sequence of maps", "sparse"],
)
def test_values_that_are_no_tensors_pass_through(value_type: onnx.TypeProto) -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node("Keep", ["a"], ["b"], domain="custom"),
        helper.make_node("Identity", ["b"], ["y"]),
    ]
    infos = [helper.make_value_info(name, value_type) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("custom", 1)]
    result = MANAGER.run(helper.make_model(graph, opset_imports=imports, ir_version=10)).model
    assert [(n.op_type, list(n.input), list(n.output)) for n in result.graph.node] == [("Keep", ["x"], ["y"])]
    assert [v.SerializeToString() for v in (*result.graph.input, *result.graph.output)] == [
        v.SerializeToString() for v in infos
    ]


def test_sparse_constants_survive_byte_for_byte() -> None:
    values = helper.make_tensor("s", T.FLOAT, [2], [3, -4])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", T.INT64, [2], [1, 3]), [4])
    nodes = [
        helper.make_node("Constant", [], ["c"], sparse_value=sparse),
        helper.make_node("Identity", ["c"], ["d"]),
        helper.make_node("Sum", ["x", "d", "s"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info(name, T.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    graph.sparse_initializer.append(sparse)
    result = MANAGER.run(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)).model
    assert result.graph.sparse_initializer[0].SerializeToString() == sparse.SerializeToString()
    constant = next(n for n in result.graph.node if n.op_type == "Constant")
    assert constant.attribute[0].sparse_tensor.SerializeToString() == sparse.SerializeToString()


def test_sparse_initializers_stay_with_operators_that_have_no_schema() -> None:
    """To inference they are no tensors: with an operator of the standard the model would not pass the full check."""
    values = helper.make_tensor("s", T.FLOAT, [2], [3, -4])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", T.INT64, [2], [1, 3]), [4])
    node = helper.make_node("SkipLayerNormalization", ["x", "x", "s"], ["y"], domain="com.microsoft")
    infos = [helper.make_tensor_value_info(name, T.FLOAT, [1, 2, 4]) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:])
    graph.sparse_initializer.append(sparse)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    result = PassManager(passes="replace_skip_layer_normalization", strict=True, explain=True).run(model)
    assert not result.changed
    assert {miss.reason for miss in result.near_misses} == {"s is sparse, which no standard operator accepts"}


def test_unknown_element_types_are_left_alone() -> None:
    """A type of a later version of the standard: the tensor is neither read nor written."""
    weight = TensorProto(name="w", data_type=99, dims=[2], raw_data=b"\x01\x02\x03")
    nodes = [helper.make_node("Keep", ["x", "w"], ["y"], domain="custom")]
    infos = [helper.make_tensor_value_info(name, T.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [weight])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("custom", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    view = Model.load(model)
    assert view.graph.values["w"].dtype == 99
    assert MANAGER.run(model).model.graph.initializer[0].SerializeToString() == weight.SerializeToString()
