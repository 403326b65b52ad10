"""Rules of element types against what the schemas say, for each version of each operator."""

from __future__ import annotations

import onnx
import pytest
from onnx import defs, helper

from graphopt.analysis.nodes import dtype_of_output
from graphopt.ir import Model

CODES = {f"tensor({name.lower()})": number for name, number in onnx.TensorProto.DataType.items()}
TOLD_BY_ATTRIBUTES = {"Cast", "ConstantOfShape", "DequantizeLinear", "If"}
SCHEMAS = [
    schema for schema in defs.get_all_schemas_with_history()
    if not schema.domain and not schema.deprecated and schema.name not in TOLD_BY_ATTRIBUTES
]  # fmt: skip


@pytest.mark.parametrize("name", sorted({schema.name for schema in SCHEMAS}))
def test_rules_agree_with_the_schemas_of_all_versions(name: str) -> None:
    for schema in SCHEMAS:
        if schema.name == name:
            check(schema)


def check(schema: defs.OpSchema) -> None:
    """Give each type parameter another type where it allows one, so that no rule is right by chance."""
    chosen: dict[str, str] = {}
    for parameter in schema.type_constraints:
        allowed = [text for text in parameter.allowed_type_strs if text in CODES] or [""]
        chosen[parameter.type_param_str] = next((t for t in allowed[::-1] if t not in chosen.values()), allowed[-1])
    named = [chosen.get(operand.type_str, operand.type_str) for operand in schema.inputs]
    types = [CODES[text] for text in named if text in CODES]
    if len(types) < len(named):
        return
    inputs = [helper.make_tensor_value_info(f"i{at}", dtype, None) for at, dtype in enumerate(types)]
    outputs = [f"o{at}" for at in range(len(schema.outputs))]
    node = helper.make_node(schema.name, [info.name for info in inputs], outputs)
    proto = helper.make_model(
        helper.make_graph([node], "g", inputs, []), opset_imports=[helper.make_opsetid("", schema.since_version)]
    )
    (read,) = Model.load(proto).graph
    for at, output in enumerate(schema.outputs):
        found = dtype_of_output(read, at)
        wanted = CODES.get(chosen.get(output.type_str, output.type_str))
        assert found in (None, wanted), (schema.since_version, output.name)
