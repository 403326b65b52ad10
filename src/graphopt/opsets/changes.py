"""Changes of operators between two adjacent versions of a domain, from the schemas of the `onnx` package."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from onnx import defs, helper

DOMAINS = ("", "ai.onnx.ml")
"""The domains that are converted; operators of other domains stay as they are."""

_EXPERIMENTAL = frozenset({
    "Affine", "Crop", "DynamicSlice", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh",
})  # fmt: skip
"""Operators without a schema, which opset 10 removed."""

_VARIADIC = defs.OpSchema.FormalParameterOption.Variadic
_OPTIONAL = defs.OpSchema.FormalParameterOption.Optional


@dataclass(frozen=True, slots=True)
class Change:
    """An operator whose definition changes at a version.

    Attributes:
        op_type: the operator.
        domain: its domain.
        version: the first version of the domain with the new definition.
        before: the definition until then; None for a new operator.
        after: the definition from then on; None for a removed operator.
    """

    op_type: str
    domain: str
    version: int
    before: defs.OpSchema | None
    after: defs.OpSchema | None


@lru_cache(maxsize=256)
def changes(domain: str, version: int) -> dict[str, Change]:
    """Every operator whose definition changes at a version of its domain.

    Args:
        domain: one of `DOMAINS`.
        version: the version; definitions before the change are those of `version - 1`.
    """
    found = {}
    if (domain, version) == ("", 10):
        found = {name: Change(name, domain, version, None, None) for name in _EXPERIMENTAL}
    for name, schemas in _history()[domain].items():
        at = next((i for i, schema in enumerate(schemas) if schema.since_version == version), None)
        if at is not None:
            before = schemas[at - 1] if at else None
            found[name] = Change(name, domain, version, _alive(before), _alive(schemas[at]))
    return found


def _alive(schema: defs.OpSchema | None) -> defs.OpSchema | None:
    return None if schema is None or schema.deprecated else schema


@lru_cache(maxsize=1)
def _history() -> dict[str, dict[str, list[defs.OpSchema]]]:
    found: dict[str, dict[str, list[defs.OpSchema]]] = {domain: {} for domain in DOMAINS}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain in found:
            found[schema.domain].setdefault(schema.name, []).append(schema)
    for schemas in (each for domain in found.values() for each in domain.values()):
        schemas.sort(key=lambda schema: schema.since_version)
    return found


def all_changes() -> list[Change]:
    """Every change of every operator after version 1, by domain, version and name."""
    versions = {
        (domain, schema.since_version)
        for domain, operators in _history().items()
        for schemas in operators.values()
        for schema in schemas
    }
    return [
        change for domain, version in sorted(versions) for _, change in sorted(changes(domain, version).items())
        if version > 1
    ]  # fmt: skip


def newest(domain: str = "") -> int:
    """The newest version of a domain that the `onnx` package knows."""
    return max(schema.since_version for schemas in _history()[domain].values() for schema in schemas)


def defaults(schema: defs.OpSchema) -> dict[str, Any]:
    """The default values of attributes, in the form of decoded attributes: strings as text, lists as tuples."""
    return {
        name: plain(helper.get_attribute_value(attribute.default_value))
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type
    }


def plain(value: Any) -> Any:
    """An attribute's value from `onnx.helper` in the form of decoded attributes."""
    if isinstance(value, list):
        return tuple(map(plain, value))
    return value.decode() if isinstance(value, bytes) else value


def formal(parameters: Any, index: int) -> defs.OpSchema.FormalParameter | None:
    """The formal parameter at a position: a variadic last one covers all that follow; None after the last."""
    last = parameters[-1] if parameters and parameters[-1].option == _VARIADIC else None
    found: defs.OpSchema.FormalParameter | None = parameters[index] if index < len(parameters) else last
    return found


def is_required(parameter: defs.OpSchema.FormalParameter) -> bool:
    """Whether a formal parameter must be given."""
    return parameter.option not in (_OPTIONAL, _VARIADIC)
