"""Operands that were attributes: the table against the standard."""

from __future__ import annotations

from itertools import pairwise

from onnx import defs

from graphopt.ir.forms import MOVED


def _versions() -> dict[str, list[defs.OpSchema]]:
    found: dict[str, list[defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain:
            found.setdefault(schema.name, []).append(schema)
    return {name: sorted(schemas, key=lambda s: s.since_version) for name, schemas in found.items()}


def test_the_table_is_what_the_standard_says() -> None:
    stated = {}
    for name, versions in _versions().items():
        for before, after in pairwise(versions):
            lost = set(before.attributes) - set(after.attributes) - {"consumed_inputs"}
            if lost and after.deprecated is False:
                old = {i.name for i in before.inputs}
                for index, operand in enumerate(after.inputs):
                    if operand.name not in old:
                        stated[name, index] = after.since_version
    listed = {(op, form.index): form.since for op, moved in MOVED.items() for form in moved.values()}
    optional_later = {("Dropout", 2), ("Pad", 3)}  # training_mode was no attribute; axes came with opset 18
    assert {k: v for k, v in stated.items() if k not in optional_later} == {
        k: v for k, v in listed.items() if k not in optional_later
    }
