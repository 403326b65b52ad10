"""Checks that a traced pattern makes sense, made once, when the pattern is defined, with file and line."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NoReturn

from graphopt.errors import PassError
from graphopt.match.commute import MOST_UNDECIDED, undecided
from graphopt.match.roots import anchor_path, apart, below
from graphopt.match.text import pattern_text
from graphopt.match.tree import UNSET, Const, NodePattern, Opt, OutputPattern, Rest, Slot, Tree, Var, present
from graphopt.match.versions import op_versions, split_key

MOST_OPTIONAL_OPS = 3
"""Optional inputs that are operators: each doubles the number of matchers."""


def check_definition(tree: Tree) -> dict[str, str]:
    """Check a pattern.

    Returns:
        Each name that it binds, with the kind: `value`, `values`, `const`, `node` or `attr`.

    Raises:
        PassError: with the position in the source, and the pattern as text.
    """
    _check_all_used(tree)
    for node in tree.nodes():
        _check_operator(tree, node)
        _check_attributes(tree, node)
        _check_inputs(tree, node)
    _check_optional(tree)
    _check_roots(tree)
    _check_commutative(tree)
    return _names(tree)


def fail(tree: Tree, where: str, problem: str) -> NoReturn:
    """Raise a `PassError` about a pattern."""
    text = pattern_text(tree).replace("\n", "\n    ")
    raise PassError(f"{where}: {problem}\n  in the pattern of {tree.name}:\n    {text}")


def _check_all_used(tree: Tree) -> None:
    nodes = set(tree.nodes())
    for node in nodes - set(tree.recorded):
        fail(tree, node.where, f"{_op(node)} belongs to another pattern")
    for node in tree.recorded:
        if node not in nodes:
            fail(tree, node.where, f"{_op(node)} is not part of what the pattern returns")
    leaves = {leaf for node in nodes for leaf in present(node)}
    for variable in tree.variables:
        if variable not in leaves:
            fail(tree, tree.where, f"parameter {variable.name} is never used, so nothing would bind it")


def _check_operator(tree: Tree, node: NodePattern) -> None:
    for key in node.ops:
        domain, op_type = split_key(key)
        if not domain and not op_versions(key):
            fail(tree, node.where, f"the ONNX standard has no operator {op_type}{_close(op_type, _standard_ops())}")
    if "Constant" in node.ops and node is not tree.root:
        fail(tree, node.where, "Constant nodes are matched with Const(...), which binds initializers as well")
    if not node.outputs:
        fail(tree, node.where, f"{_op(node)} lists no outputs")


def _check_attributes(tree: Tree, node: NodePattern) -> None:
    versions = [info for key in node.ops for info in op_versions(key)]
    known = {name for info in versions for name in info.attributes}
    for name, attr in node.attrs.items():
        if versions and name not in known:
            fail(tree, node.where, f"{_op(node)} has no attribute {name}{_close(name, known)}")
        if attr.equals is not UNSET and attr.default is not UNSET:
            fail(tree, node.where, f"attribute {name} of {_op(node)} has equals and default: one of them is enough")
    if versions and not node.other_attrs:
        required = set.intersection(*(set(info.required) for info in versions))
        for name in sorted(required - node.attrs.keys()):
            fail(tree, node.where, f"{_op(node)} needs attribute {name}, so mention it, for example {name}=Attr()")


def _check_inputs(tree: Tree, node: NodePattern) -> None:
    versions = [info for key in node.ops for info in op_versions(key)]
    most = max((info.max_inputs for info in versions), default=len(node.inputs))
    if len(node.inputs) > most:
        fail(tree, node.where, f"{_op(node)} takes at most {most} inputs, the pattern has {len(node.inputs)}")
    if any(isinstance(slot, Rest) for slot in node.inputs[:-1]):
        fail(tree, node.where, f"Rest must be the last input of {_op(node)}")


def _check_optional(tree: Tree) -> None:
    uses = Counter(leaf for node in tree.nodes() for leaf in present(node))
    optional = [(node, slot) for node in tree.nodes() for slot in node.inputs if isinstance(slot, Opt)]
    for node, slot in optional:
        if not isinstance(slot.pattern, OutputPattern) and uses[slot.pattern] > 1:
            fail(tree, node.where, f"an optional input of {_op(node)} is used elsewhere too, where it cannot be absent")
    operators = [slot for _, slot in optional if isinstance(slot.pattern, OutputPattern)]
    if len(operators) > MOST_OPTIONAL_OPS:
        fail(tree, tree.where, f"{len(operators)} optional operators, at most {MOST_OPTIONAL_OPS} are allowed")


def _check_roots(tree: Tree) -> None:
    for node in tree.roots():
        if node.shared:
            fail(tree, node.where, f"{_op(node)} is returned, so it is replaced for everyone: _shared means nothing")
    absent = [slot for node in tree.nodes() for slot in node.inputs if isinstance(slot, Opt)]
    known: set[Slot] = set()
    for root in apart(tree, absent):
        if known and anchor_path(root, known) is None:
            fail(tree, root.where, f"{_op(root)} shares no value with the roots before it, so nothing leads to it")
        for node in below(tree, root, absent):
            known |= {*present(node, absent), *node.outputs}


def _check_commutative(tree: Tree) -> None:
    nodes = undecided(tree)
    if len(nodes) > MOST_UNDECIDED:
        fail(
            tree, nodes[-1].where,
            f"{len(nodes)} commutative operators whose order neither a constant nor the operators around them decide, "
            f"at most {MOST_UNDECIDED} are tried both ways: match a canonical form and mark the rest _ordered=True",
        )  # fmt: skip


def _names(tree: Tree) -> dict[str, str]:
    kinds: dict[str, str] = {}
    owners: dict[str, object] = {}
    for name, kind, owner, where in _bound(tree):
        if not name.isidentifier():
            fail(tree, where, f"{name!r} is not a usable name: it must be a Python identifier")
        if owners.setdefault(name, owner) is not owner:
            fail(tree, where, f"{name} is bound twice; use the same object to mean the same thing")
        kinds[name] = kind
    return kinds


def _bound(tree: Tree) -> Iterator[tuple[str, str, object, str]]:
    """Every name with its kind, the object that binds it, and where."""
    for node in tree.nodes():
        for leaf in present(node):
            kind = _leaf_kind(leaf)
            if kind and not isinstance(leaf, OutputPattern) and leaf.name is not None:
                yield leaf.name, kind, leaf, node.where
        for output in node.outputs:
            if output.name is not None:
                yield output.name, "value", output, node.where
        if node.bind is not None:
            yield node.bind, "node", node, node.where
        for attr in node.attrs.values():
            if attr.name is not None:
                yield attr.name, "attr", attr, node.where


def _leaf_kind(leaf: Slot) -> str | None:
    if isinstance(leaf, Const):
        return "const"
    if isinstance(leaf, Rest):
        return "values"
    return "value" if isinstance(leaf, Var) else None


def _op(node: NodePattern) -> str:
    return "/".join(node.ops)


def _close(name: str, known: set[str] | frozenset[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


@lru_cache(maxsize=1)
def _standard_ops() -> frozenset[str]:
    from onnx import defs

    return frozenset(schema.name for schema in defs.get_all_schemas() if not schema.domain)
