"""The view over ONNX protos: `Model`, `Graph`, `Node`, `Value`, and the constants and types they carry."""

from graphopt.ir.files import ExternalData
from graphopt.ir.graph import Graph, Node
from graphopt.ir.load import captured_values, shown_op
from graphopt.ir.model import BOUNDED_KEY, REMOVED_KEY, ZEROED_KEY, Model, Source
from graphopt.ir.schema import OpInfo, op_schema
from graphopt.ir.tensor import Tensor
from graphopt.ir.types import FLOAT8_TYPES, FLOAT_TYPES, HALF_TYPES, Dim, TensorType, ValueType
from graphopt.ir.value import Value
from graphopt.system.collector import paused_gc

__all__ = [
    "BOUNDED_KEY", "FLOAT8_TYPES", "FLOAT_TYPES", "HALF_TYPES", "REMOVED_KEY", "ZEROED_KEY", "Dim", "ExternalData",
    "Graph", "Model", "Node", "OpInfo", "Source", "Tensor", "TensorType", "Value", "ValueType", "captured_values",
    "op_schema", "paused_gc", "shown_op",
]  # fmt: skip
