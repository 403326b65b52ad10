"""A quantized matrix that an embedding and the last product share is stored once, where it is large."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from graphopt.manager import PassManager
from graphopt.verify import compare

WIDTH = 96
COLUMNS = {"few": 512, "many": 2048}
"""Below and above 64 KiB with rows of so many numbers, of four bits as well."""


def model_of(readers: str, kind: str, columns: int, made: int = onnx.TensorProto.FLOAT) -> onnx.ModelProto:
    """A product of rows with a matrix `m`, and what else reads that."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (uint8[400,{WIDTH}] x, int64[3] ids) => (y, z)
        <float s = {{0.02}}, uint8 z0 = {{128}}, int8 n = {{0}}, float[1] axis = {{0}}>
        {{ {readers} }}
    """)
    integers = np.random.default_rng(0).integers(-8, 8, (columns, WIDTH))
    matrix = onnx.helper.make_tensor("m", onnx.TensorProto.INT4, (columns, WIDTH), integers.reshape(-1))
    if kind == "int8":
        matrix = numpy_helper.from_array(integers.astype(np.int8) * 9, "m")
    model.graph.initializer.append(matrix)
    y, z = model.graph.output
    y.CopyFrom(onnx.helper.make_tensor_value_info("y", made, (400, columns)))
    z.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return model


PRODUCT = "a = DequantizeLinear (x, s, z0)  w = DequantizeLinear (m, s)  y = Gemm <transB = 1> (a, w)"
EMBEDDING = "g = Gather (m, ids)  z = DequantizeLinear (g, s)"
OF_FLOATS = "z = Gather (w, ids)"
AGAIN = "b = DequantizeLinear (x, s, z0)  v = DequantizeLinear (m, s)  z = Gemm <transB = 1> (b, v)"
PUT_OUT = "z = Identity (w)"
NOTHING = "z = Cast <to = 1> (ids)"


@pytest.mark.parametrize("size", COLUMNS)
@pytest.mark.parametrize("others", [EMBEDDING, OF_FLOATS, AGAIN, PUT_OUT, NOTHING])
def test_a_matrix_that_others_read_is_not_stored_turned(others: str, size: str) -> None:
    model = model_of(f"{PRODUCT} {others}", "int8", COLUMNS[size])
    result = PassManager(passes="fuse_dequantize_into_matmul", target="avx512-zen4", strict=True, explain=True).run(
        model
    )
    tied = size == "many" and others in (EMBEDDING, OF_FLOATS, PUT_OUT)
    assert bool(result.hits) != tied
    assert compare(model, result.model, numerics="rounding").ok


@pytest.mark.parametrize("size", COLUMNS)
@pytest.mark.parametrize("others", [EMBEDDING, NOTHING])
def test_a_matrix_of_four_bits_that_others_read_is_not_packed(others: str, size: str) -> None:
    model = model_of(f"{PRODUCT} {others}", "int4", COLUMNS[size])
    result = PassManager(passes="fuse_int4_into_matmul", strict=True, explain=True).run(model)
    assert bool(result.hits) != (size == "many" and others == EMBEDDING)


@pytest.mark.parametrize("size", COLUMNS)
@pytest.mark.parametrize("others", ["z = Gather (m, ids)", NOTHING])
def test_a_matrix_of_bytes_that_others_read_is_no_kernel(others: str, size: str) -> None:
    product = "y = com.microsoft.QGemm <transB = 1> (x, s, z0, m, s, n, , s, z0)"
    model = model_of(f"{product} {others}", "int8", COLUMNS[size], onnx.TensorProto.UINT8)
    manager = PassManager(passes="convert_byte_product_to_convolution", target="avx512-zen4", strict=True)
    assert bool(manager.run(model).hits) != (size == "many" and others != NOTHING)
