"""Patterns as text that reads like ONNX's own: for error messages, generated code and the documentation."""

from __future__ import annotations

from typing import Any

from graphopt.match.tree import UNSET, Attr, Const, NodePattern, Opt, OutputPattern, Rest, Slot, Tree, Var


def pattern_text(tree: Tree) -> str:
    """One line for each operator, in the order in which they compute.

    A `?` marks what may be absent, `*` what may be anything.
    """
    names = _Names(tree)
    lines = [names.line(node) for node in names.order]
    if len(tree.outputs) > 1:
        lines.append(f"return {', '.join(names.output(output) for output in tree.outputs)}")
    return "\n".join(lines)


class _Names:
    """Names for the values between operators: the author's, else v1, v2, ..."""

    def __init__(self, tree: Tree) -> None:
        self.order = _inputs_first(tree)
        self._names: dict[OutputPattern, str] = {}
        for node in self.order:
            for output in node.outputs:
                single = len(node.outputs) == 1
                self._names[output] = output.name or (node.bind if single else None) or self._number()

    def _number(self) -> str:
        return f"v{len(self._names) + 1}"

    def output(self, output: OutputPattern) -> str:
        return self._names.get(output, "?")

    def line(self, node: NodePattern) -> str:
        outputs = ", ".join(self.output(output) for output in node.outputs)
        inputs = ", ".join(self._slot(slot) for slot in node.inputs)
        attrs = [f"{key} = {_attr(attr)}" for key, attr in node.attrs.items()] + ["..."] * node.other_attrs
        middle = f" <{', '.join(attrs)}>" if attrs else ""
        notes = [note for note, holds in (("shared", node.shared), ("in this order", node.ordered)) if holds]
        return f"{outputs} = {'|'.join(node.ops)}{middle} ({inputs})" + (f"  # {', '.join(notes)}" if notes else "")

    def _slot(self, slot: Slot) -> str:
        if slot is None:
            return '""'
        if isinstance(slot, Opt):
            return f"{self._slot(slot.pattern)}?"
        if isinstance(slot, OutputPattern):
            return self.output(slot)
        if isinstance(slot, Const):
            return _const(slot)
        return f"{slot.name}..." if isinstance(slot, Rest) else slot.name


def _const(const: Const) -> str:
    value = None if const.value is None else _literal(const.value.tolist())
    if const.name is None:
        return value or "const"
    return f"const {const.name}" + (f" = {value}" if value else "")


def _attr(attr: Attr) -> str:
    if attr.name is None:
        return "*" if attr.equals is UNSET else _literal(attr.equals)
    return attr.name + ("" if attr.equals is UNSET else f" = {_literal(attr.equals)}")


def _literal(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_literal(v) for v in value)}]"
    if isinstance(value, float):
        return f"{value:.7g}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _inputs_first(tree: Tree) -> list[NodePattern]:
    """The nodes in the order of the trace, in which inputs come first by nature."""
    members = set(tree.nodes())
    return [node for node in tree.recorded if node in members]


def slot_name(slot: Slot) -> str:
    """What to call an input in a message."""
    if isinstance(slot, Opt):
        return slot_name(slot.pattern)
    if isinstance(slot, (Var, Const, Rest)) and slot.name:
        return slot.name
    return "an input"
