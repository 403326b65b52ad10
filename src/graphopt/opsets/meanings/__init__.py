"""Conversion steps that do not follow from the schemas, by operator and version; one module per group of operators."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import lru_cache

from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.opsets import automatic
from graphopt.opsets.changes import DOMAINS, Change, changes, newest
from graphopt.opsets.meanings.registry import AT_LAST, DOWN, UP, Meaning
from graphopt.rewrite import Rewriter

_GROUPS = (
    "arithmetic", "bits", "computed", "early", "elementary", "experimental", "indexing", "kernels", "labels", "layers",
    "listing", "lists", "loops", "matrices", "movement", "optional", "pooling", "positions", "products", "quantizing",
    "reshaping", "resizing", "resizing_computed", "sampling", "signals", "suppression",
)  # fmt: skip

_KNOWN = 7
"""Before this version operators with the same names had other semantics."""


@lru_cache(maxsize=1)
def _enter_all() -> None:
    for name in _GROUPS:
        importlib.import_module(f"graphopt.opsets.meanings.{name}")


def of(node: Node, change: Change, step: int, *, at_last: bool = False) -> Sequence[Meaning]:
    """The steps to try for a node at a change, in order: those of its operator, or the one that follows from schemas.

    Args:
        node: the node.
        change: the change.
        step: 1 upwards, -1 downwards.
        at_last: whether all of them declined before, so that last resorts are added.
    """
    _enter_all()
    key = node.op_type, change.version
    own = (UP if step > 0 else DOWN).get(key, ())
    if own and node.op.startswith("referring "):
        return (_refers,)  # these steps need values of attributes, not references
    own = own or ((automatic.up if step > 0 else automatic.down),)
    return (*own, *AT_LAST.get(key, ())) if at_last and step < 0 else own


def stays(node: Node, version: int) -> bool:
    """Whether a node, unchanged, has the same semantics at a later version of its domain as in its graph.

    Args:
        node: a node with an operator of the standard.
        version: the later version.
    """
    own = node.graph.opset(node.domain)
    if node.domain not in DOMAINS or not _KNOWN <= own < version <= newest(node.domain):
        return False
    steps = [changes(node.domain, step).get(node.op_type) for step in range(own + 1, version + 1)]
    return all(
        automatic.stays(node, step) and of(node, step, 1) == (automatic.up,) for step in steps if step is not None
    )


def _refers(node: Node, change: Change, rw: Rewriter) -> None:
    raise Decline("an attribute refers to an attribute of the function")
