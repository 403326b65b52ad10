"""Infers the types of every operator of the standard on operands of which no type is known."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import onnx
from onnx import TensorProto, defs, helper

from graphopt.analysis import infer_types
from graphopt.ir import Model
from graphopt.verify.inference import infer

_REQUIRED = {"FLOAT": 1.0, "FLOATS": [1.0], "INT": 1, "INTS": [1, 1], "STRING": "a", "STRINGS": ["a"]}


def main() -> None:
    """Infer the types of all; each operator is told before, since inference may end the process."""
    count = 0
    for schema in defs.get_all_schemas_with_history():
        if schema.deprecated or schema.domain not in ("", "ai.onnx.ml") or not schema.max_input:
            continue
        sys.stderr.write(f"{schema.name} {schema.since_version}\n")
        for model in _models(schema):
            infer_types(Model.load(model))
            infer(model)
            count += 1
    sys.stdout.write(f"{count}\n")


def _models(schema: onnx.defs.OpSchema) -> Iterator[onnx.ModelProto]:
    """The operator with all numbers of operands up to five: the first, the others or all of unknown type."""
    required: dict[str, Any] = {
        name: _REQUIRED[each.type.name]
        for name, each in schema.attributes.items()
        if each.required and each.type.name in _REQUIRED
    }
    standard, ml = (21, schema.since_version) if schema.domain else (schema.since_version, 3)
    opsets = [helper.make_opsetid(*each) for each in (("", standard), ("my", 1), ("ai.onnx.ml", ml))]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    for number in range(max(schema.min_input, 1), min(schema.max_input, 5) + 1):
        made, domain = [f"r{at}" for at in range(number)], "my" if number % 2 else ""
        for operands in (made, ["r0", *["x"] * (number - 1)], ["x", *made[1:]]):
            results = [f"y{at}" for at in range(max(schema.min_output, 1))]
            nodes = [
                helper.make_node("Foo", ["x"], made, domain=domain),
                helper.make_node(schema.name, operands, results, domain=schema.domain, **required),
                helper.make_node("Relu", ["y0"], ["z"]),
            ]
            graph = helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("z")])
            yield helper.make_model(graph, opset_imports=opsets, ir_version=8)


if __name__ == "__main__":
    main()
