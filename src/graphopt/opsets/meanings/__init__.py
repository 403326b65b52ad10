"""Steps whose meaning the schemas do not tell, by operator and version; one module for each group of operators."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import lru_cache

from graphopt.ir import Node
from graphopt.opsets import automatic
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import DOWN, UP, Meaning

_GROUPS = (
    "arithmetic", "bits", "early", "elementary", "indexing", "layers", "lists", "movement", "pooling", "products",
    "quantizing", "resizing",
)  # fmt: skip


@lru_cache(maxsize=1)
def _enter_all() -> None:
    for name in _GROUPS:
        importlib.import_module(f"graphopt.opsets.meanings.{name}")


def of(node: Node, change: Change, step: int) -> Sequence[Meaning]:
    """What is tried for a node at a change, in order: its own meanings, or what follows from the schemas.

    Args:
        node: the node.
        change: the change.
        step: 1 on the way up, -1 on the way down.
    """
    _enter_all()
    own = (UP if step > 0 else DOWN).get((node.op_type, change.version), ())
    return own or ((automatic.up if step > 0 else automatic.down),)
