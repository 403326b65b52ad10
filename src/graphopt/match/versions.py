"""All versions of an operator at once: what a pattern may say of it, whatever the opset of the model will be."""

from __future__ import annotations

from functools import lru_cache

from graphopt.ir.schema import OpInfo, latest_opset, op_schema


def split_key(key: str) -> tuple[str, str]:
    """Domain and operator type of a dispatch key."""
    domain, _, op_type = key.rpartition("::")
    return domain, op_type


@lru_cache(maxsize=1024)
def op_versions(key: str) -> tuple[OpInfo, ...]:
    """Every version of an operator that the `onnx` package knows, oldest first; none for custom operators."""
    domain, op_type = split_key(key)
    found: list[OpInfo] = []
    opset = latest_opset()
    while opset > 0:
        info = op_schema(op_type, domain, opset)
        if info is not None:
            found.append(info)
        opset = (info.since_version if info is not None else opset) - 1
    return tuple(reversed(found))


def is_commutative(key: str) -> bool:
    """Whether two inputs of the operator may be swapped."""
    versions = op_versions(key)
    return bool(versions) and versions[-1].commutative
