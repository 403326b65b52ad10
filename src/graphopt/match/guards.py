"""The second half of a matcher: the conditions beyond the operators, cheapest first, each with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from graphopt.match.constants import ConstTest
from graphopt.match.structure import Structure
from graphopt.match.tree import UNSET, Attr, Const, NodePattern, OutputPattern, Rest, Slot, Var
from graphopt.match.writer import Writer


class Guards:
    """Writes the conditions, and the match at the end.

    Args:
        structure: the first half, written already.
        writer: takes the lines.
    """

    def __init__(self, structure: Structure, writer: Writer) -> None:
        self._structure = structure
        self._writer = writer
        self._attributes: dict[Attr, str] = {}
        self._used = Counter(slot for node in structure.nodes for slot in structure.slots(node))

    def write(self, names: dict[str, str]) -> None:
        """Write everything after the walk.

        Args:
            names: every name that the pattern binds, with its kind.
        """
        nodes = self._structure.nodes
        for node, name in nodes.items():
            self._scope(node, name)
        for node in nodes:
            self._uses(node)
        for node, name in nodes.items():
            self._left_out(node, name)
            self._unmentioned(node, name)
            self._attrs(node, name)
        self._variables()
        self._constants()
        self._match(names)

    def _scope(self, node: NodePattern, name: str) -> None:
        value = self._structure.reached.get(node)
        if value is not None:
            self._writer.test(f"{name}.graph is not n0.graph", f"outside({value})")

    def _uses(self, node: NodePattern) -> None:
        """Whatever the replacement does not provide must not be used outside of the match."""
        for output in node.outputs:
            count = self._used[output]
            if count and not node.shared and not self._is_free(output):
                value = self._structure.values[output]
                alone = f"not {value}.one_use" if count == 1 else f"{value}.uses != {count}"
                self._writer.test(alone, f"used_elsewhere({value})")

    def _is_free(self, output: OutputPattern) -> bool:
        """Whether the replacement provides this output."""
        tree = self._structure.tree
        return output in tree.outputs or output.node in tree.roots()

    def _left_out(self, node: NodePattern, name: str) -> None:
        inputs = self._structure.inputs_of(node)
        for j, slot in enumerate(self._structure.slots(node)):
            if slot is None:
                self._writer.test(f"len({inputs}) > {j} and {inputs}[{j}] is not None", f"given({name}, {j})")

    def _unmentioned(self, node: NodePattern, name: str) -> None:
        """More inputs, outputs or attributes than the pattern mentions: one quick look, then a closer one."""
        slots, inputs = self._structure.slots(node), self._structure.inputs_of(node)
        suspicious, most, listed, mentioned = [], "None", "None", "None"
        if not any(isinstance(slot, Rest) for slot in slots):
            most = str(len(slots))
            suspicious.append(f"len({inputs}) > {most}")
        if not node.shared:
            known = [output.index for output in node.outputs if self._used[output] or self._is_free(output)]
            listed = f"({', '.join(map(str, known))},)"
            suspicious.append(f"len({name}.outputs) > {len(known) if known == list(range(len(known))) else 0}")
        if not node.other_attrs:
            mentioned = self._writer.constant("MENTIONED", frozenset(node.attrs)) if node.attrs else "()"
            suspicious.append(f"not {mentioned}.issuperset({name}.attrs)" if node.attrs else f"{name}.attrs")
        if suspicious:
            self._writer.line(f"if {' or '.join(suspicious)}:")
            self._writer.reason(f"unmentioned({name}, {most}, {listed}, {mentioned})", 2)

    def _attrs(self, node: NodePattern, name: str) -> None:
        for key, attr in node.attrs.items():
            if attr.equals is not UNSET:
                expected = self._writer.literal(attr.equals)
                self._writer.line(f"if {name}.attr({key!r}) != {expected}:")
                self._writer.reason(f"not_equal({name}, {key!r}, {expected})", 2)
            if attr.name is not None:
                self._bind_attribute(attr, key, name)

    def _bind_attribute(self, attr: Attr, key: str, name: str) -> None:
        found = f"{name}.attr({key!r})"
        if attr.equals is not UNSET:  # checked already, and an opset without the attribute has nothing to bind
            found = self._writer.literal(attr.equals)
        elif attr.default is not UNSET:
            found = f"{name}.attr({key!r}, {self._writer.literal(attr.default)})"
        if attr in self._attributes:
            first = self._attributes[attr]
            self._writer.test(f"{found} != {first}", f"differs({name}, {key!r}, {found}, {first})")
            return
        variable = self._attributes[attr] = f"a{len(self._attributes)}"
        self._writer.line(f"{variable} = {found}")
        if attr.equals is UNSET and attr.default is UNSET:
            self._writer.test(f"{variable} is None", f"not_set({name}, {key!r})")

    def _variables(self) -> None:
        for leaf, variable, _ in self._leaves():
            if isinstance(leaf, Var):
                for kind, choices in (("dtype", leaf.dtypes), ("rank", leaf.ranks)):
                    if choices is not None:
                        condition = f"{variable}.{kind} not in {set(choices) or '()'}"
                        self._guard_leaf(leaf, variable, condition, f"wrong_{kind}({variable}, {set(choices) or '()'})")

    def _constants(self) -> None:
        """Constness of all first, then what costs more: contents."""
        leaves = [(leaf, variable, node) for leaf, variable, node in self._leaves() if isinstance(leaf, Const)]
        for leaf, variable, _ in leaves:
            if not leaf.is_demanding:
                self._guard_leaf(leaf, variable, f"{variable}.constant_tensor is None", f"not_constant({variable})")
        for leaf, variable, node in leaves:
            if leaf.is_demanding:
                test = self._writer.constant("CONST", ConstTest(leaf))
                optional = self._is_optional(leaf)
                if optional:
                    self._writer.line(f"if {variable} is not None:")
                self._writer.reason(f"{test}({variable}, {self._structure.inputs_of(node)})", 2 if optional else 1)

    def _guard_leaf(self, leaf: Slot, variable: str, condition: str, answer: str) -> None:
        there = f"{variable} is not None and " if self._is_optional(leaf) else ""
        self._writer.test(there + condition, answer)

    def _is_optional(self, leaf: Slot) -> bool:
        """Whether a leaf stands in an `Opt`, where it may be absent."""
        return not any(leaf is slot for node in self._structure.nodes for slot in node.inputs)

    def _leaves(self) -> Iterator[tuple[Slot, str, NodePattern]]:
        """The bound variables and constants, each with the node that reads it first."""
        seen: set[Slot] = set()
        for node in self._structure.nodes:
            for slot in self._structure.slots(node):
                if isinstance(slot, (Var, Const)) and slot not in seen:
                    seen.add(slot)
                    yield slot, self._structure.values[slot], node

    def _match(self, names: dict[str, str]) -> None:
        """Return the match; what an optional part would have bound is None."""
        structure, line = self._structure, self._writer.line
        named = {key: variable for slot, variable in structure.values.items() if (key := _name(slot)) in names}
        for node in structure.nodes:
            named |= {output.name: structure.output_of(output) for output in node.outputs if output.name is not None}
        nodes = {node.bind: variable for node, variable in structure.nodes.items() if node.bind is not None}
        attrs = {attr.name: variable for attr, variable in self._attributes.items() if attr.name is not None}
        outputs = [structure.output_of(output) for output in structure.tree.outputs]
        line("return Match(")
        line(f"({', '.join(structure.nodes.values())},),", 2)
        line(f"({', '.join(outputs)},),", 2)
        for kinds, bound in ((("value", "values", "const"), named), (("node",), nodes), (("attr",), attrs)):
            entries = (f"{name!r}: {bound.get(name)}" for name, kind in names.items() if kind in kinds)
            line(f"{{{', '.join(entries)}}},", 2)
        line(")")


def _name(slot: Slot) -> str | None:
    if isinstance(slot, (Var, Const, Rest, OutputPattern)):
        return slot.name
    return None
