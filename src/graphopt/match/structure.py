"""The first half of a matcher: from the root down through the producers, binding what the pattern names.

It is silent: a node with other operators around it is no near miss. The code that comes out is straight. Where a choice
is open (the order of a commutative operator's inputs, which reader of a value is a further root), the matcher calls
itself with one choice made, and goes on with the other if that found nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from graphopt.match.commute import Order, order_of
from graphopt.match.roots import anchor_path, apart, below
from graphopt.match.tree import Const, NodePattern, Opt, OutputPattern, Rest, Slot, Tree, Var
from graphopt.match.versions import is_commutative
from graphopt.match.writer import Writer


class Structure:
    """Writes the walk over the operators.

    Attributes:
        tree: the pattern.
        nodes: the Python variable of each matched node, in the order of matching.
        values: the Python variable of each value that has one.
        reached: the value that each node was reached through; roots are not in it.
    """

    def __init__(self, tree: Tree, absent: Collection[Opt], writer: Writer, function: str) -> None:
        self.tree = tree
        self.nodes: dict[NodePattern, str] = {}
        self.values: dict[Slot, str] = {}
        self.reached: dict[NodePattern, str] = {}
        self._absent = absent
        self._writer = writer
        self._function = function
        self._operands: dict[tuple[NodePattern, int], str] = {}
        self._reach: dict[NodePattern, int] = {}
        self._unseen: list[str] = []
        self._variables = 0
        self._choices = 0
        self._roots = apart(tree, absent)
        self._further = [f"root{k}" for k in range(1, len(self._roots))]
        swaps = any(order_of(tree, node) is Order.BOTH for node in tree.nodes(absent))
        self._miss = "miss" if swaps or self._further else "None"

    def write(self) -> None:
        """Write the signature and the whole walk."""
        line, choices = self._writer.line, ["tried=0", *(f"{name}=None" for name in self._further)]
        line(f"def {self._function}({', '.join(['n0', *(choices if self._miss == 'miss' else ())])}):", 0)
        self._writer.test(_other_op("n0", self._roots[0]), "None")
        if self._miss == "miss":
            line("miss = None")
        for name, root in zip(["n0", *self._further], self._roots, strict=True):
            if name in self._further:
                self._find_root(root, name)
            self.nodes[root] = name
            self._walk(root)
        self._check_distinct()

    def slots(self, node: NodePattern) -> list[Slot]:
        """A node's input patterns with `Opt` taken off; None for what must be absent."""
        slots = (None if slot in self._absent else slot for slot in node.inputs)
        return [slot.pattern if isinstance(slot, Opt) else slot for slot in slots]

    def inputs_of(self, node: NodePattern) -> str:
        """The Python variable that holds a node's inputs."""
        return f"i_{self.nodes[node]}"

    def output_of(self, output: OutputPattern) -> str:
        """The Python expression for an output of a matched node."""
        return self.values.get(output) or f"{self.nodes[output.node]}.output({output.index})"

    def _walk(self, root: NodePattern) -> None:
        """Match the operators below a root, then bind the values they read."""
        waiting = [root]
        for node in waiting:
            waiting += self._match_inputs(node)
        for node in waiting:
            self._bind_inputs(node)

    def _match_inputs(self, node: NodePattern) -> list[NodePattern]:
        """Check the producers of a node's inputs. Gives those that were not known before."""
        slots, inputs, order = self.slots(node), self.inputs_of(node), order_of(self.tree, node)
        reach = max((j + 1 for j, slot in enumerate(slots) if isinstance(slot, OutputPattern)), default=0)
        reach = self._reach[node] = reach if order is Order.FIXED else 2
        self._writer.line(f"{inputs} = {self.nodes[node]}.inputs")
        if reach:
            self._writer.test(f"len({inputs}) < {reach}", self._miss)
        if order is not Order.FIXED:
            self._choose_order(node, order)
        found = []
        for j, slot in enumerate(slots):
            if isinstance(slot, OutputPattern) and self._follow(slot, *self._operand(node, j)):
                found.append(slot.node)
        return found

    def _choose_order(self, node: NodePattern, order: Order) -> None:
        """Put the two inputs of a commutative operator into the order of the pattern."""
        line, inputs = self._writer.line, self.inputs_of(node)
        a, b = self._variable(), self._variable()
        self._operands[node, 0], self._operands[node, 1] = a, b
        first, second = node.inputs
        line(f"{a}, {b} = {inputs}[0], {inputs}[1]")
        self._writer.test(f"{a} is None or {b} is None", self._miss)
        commutes = [key for key in node.ops if is_commutative(key)]
        only = [] if len(commutes) == len(node.ops) else [f"{self.nodes[node]}.op in {_names(commutes)}"]
        if order is Order.BOTH:
            written = [*self._fits(first, a), *self._fits(second, b)]
            self._try_both(a, b, written, [*only, *self._fits(first, b), *self._fits(second, a)])
        else:
            fits = self._fits(first, a) if order is Order.BY_FIRST else self._fits(second, b)
            line(f"if {' and '.join([*only, *(f'not ({condition})' for condition in fits)])}:")
            line(f"{a}, {b} = {b}, {a}", 2)

    def _try_both(self, a: str, b: str, written: list[str], swapped: list[str]) -> None:
        """Swap two inputs if they fit only then; if they fit both ways, try them as written first."""
        line, bit, depth = self._writer.line, 1 << self._choices, 1
        self._choices += 1
        if swapped:
            line(f"if {' and '.join(swapped)}:")
            depth = 2
        if written:
            line(f"if not ({' and '.join(written)}):", depth)
            line(f"{a}, {b} = {b}, {a}", depth + 1)
        line(f"{'elif' if written else 'if'} not tried & {bit}:", depth)
        self._call_again([f"tried | {bit}", *self._further], depth + 1)
        line(f"{a}, {b} = {b}, {a}", depth + 1)

    def _call_again(self, choices: list[str], depth: int) -> None:
        """Call the matcher with one more choice made: return what it finds, or remember why it found nothing."""
        self._writer.line(f"found = {self._function}({', '.join(['n0', *choices])})", depth)
        self._writer.test("found", "found", depth)
        self._writer.line("if found is not None:", depth)
        self._writer.line("miss = found", depth + 1)

    def _fits(self, slot: Slot, value: str) -> list[str]:
        """What can quickly be said of a value that fits a pattern: at most one condition."""
        if isinstance(slot, OutputPattern):
            if slot.node in self.nodes:
                return [f"{value}.producer is {self.nodes[slot.node]}"]
            producer = f"{value}.producer"
            return [f"{producer} is not None and {_same_op(producer, slot.node)}"]
        if slot in self.values:
            return [f"{value} is {self.values[slot]}"]
        return [f"{value}.is_const"] if isinstance(slot, Const) else []

    def _follow(self, output: OutputPattern, operand: str, present: bool) -> bool:
        """Go from an input to its producer. Tells whether the producer was not known before."""
        test = self._writer.test
        if output in self.values:
            test(f"{operand} is not {self.values[output]}", self._miss)
            return False
        value = self._name(output, operand, present)
        self._check_present()
        if output.node in self.nodes:
            known = self.nodes[output.node]
            test(f"{value}.producer is not {known} or {value}.index != {output.index}", self._miss)
            return False
        node = f"n{len(self.nodes)}"
        self._writer.line(f"{node} = {value}.producer")
        test(f"{node} is None or {_other_op(node, output.node)} or {value}.index != {output.index}", self._miss)
        self.nodes[output.node] = node
        self.reached[output.node] = value
        return True

    def _bind_inputs(self, node: NodePattern) -> None:
        """Bind the values that a node reads; one that is bound already must be the same."""
        slots, inputs = self.slots(node), self.inputs_of(node)
        least = max((j + 1 for j, slot in enumerate(node.inputs) if self._is_needed(slot)), default=0)
        if least > self._reach[node]:
            self._writer.test(f"len({inputs}) < {least}", f"too_few({self.nodes[node]}, {least})")
        for j, slot in enumerate(slots):
            if isinstance(slot, Rest):
                rest = self.values[slot] = self._variable()
                self._writer.line(f"{rest} = tuple({inputs}[{j}:])")
                self._writer.test(f"len({rest}) < {slot.min}", f"too_few({self.nodes[node]}, {j + slot.min})")
                self._writer.test(f"None in {rest}", self._miss)
            elif isinstance(slot, (Var, Const)) and isinstance(node.inputs[j], Opt):
                self.values[slot] = self._variable()
                self._writer.line(f"{self.values[slot]} = {inputs}[{j}] if len({inputs}) > {j} else None")
            elif isinstance(slot, (Var, Const)):
                self._bind_leaf(slot, *self._operand(node, j))
        self._check_present()

    def _bind_leaf(self, leaf: Var | Const, operand: str, present: bool) -> None:
        if leaf in self.values:
            self._writer.test(f"{operand} is not {self.values[leaf]}", self._miss)
        else:
            self._name(leaf, operand, present)

    def _is_needed(self, slot: Slot) -> bool:
        if isinstance(slot, Opt):
            return isinstance(slot.pattern, OutputPattern) and slot not in self._absent
        return slot is not None and not isinstance(slot, Rest)

    def _find_root(self, root: NodePattern, name: str) -> None:
        """Look for a further root among the readers of what is known, and go on once for each candidate."""
        known = {*self.values, *(output for node in self.nodes for output in node.outputs)}
        found = anchor_path(root, known)
        assert found is not None, "the definition was checked"
        anchor, path = found
        value = self.output_of(anchor) if isinstance(anchor, OutputPattern) else self.values[anchor]
        ops = self._writer.constant("PATH", tuple(frozenset(node.ops) for node in path))
        self._writer.line(f"if {name} is None:")
        self._writer.line(f"for {name} in climb({value}, {ops}, n0.graph):", 2)
        self._call_again(["tried", *self._further[: self._further.index(name) + 1]], 3)
        self._writer.line(f"return {self._miss}", 2)

    def _check_distinct(self) -> None:
        """Different operators of a pattern are different nodes, which only sharing could break."""
        loose = {*self.tree.roots(), *(node for node in self.nodes if node.shared)}
        nodes = list(self.nodes)
        pairs = [(a, b) for i, a in enumerate(nodes) for b in nodes[:i] if {a, b} & loose and set(a.ops) & set(b.ops)]
        depends = {node: below(self.tree, node, self._absent) for node in nodes}
        same = [
            f"{self.nodes[a]} is {self.nodes[b]}" for a, b in pairs if a not in depends[b] and b not in depends[a]
        ]  # fmt: skip
        if same:
            self._writer.test(" or ".join(same), self._miss)

    def _operand(self, node: NodePattern, index: int) -> tuple[str, bool]:
        """The Python expression for an input, and whether it is known to be there."""
        chosen = self._operands.get((node, index))
        return (chosen, True) if chosen else (f"{self.inputs_of(node)}[{index}]", False)

    def _name(self, pattern: Slot, operand: str, present: bool) -> str:
        """Give an input a variable, which it may have already."""
        name = operand if operand.isidentifier() else self._variable()
        self.values[pattern] = name
        if name != operand:
            self._writer.line(f"{name} = {operand}")
        if not present:
            self._unseen.append(name)
        return name

    def _check_present(self) -> None:
        """Inputs that were given a variable must be there."""
        if self._unseen:
            self._writer.test(" or ".join(f"{name} is None" for name in self._unseen), self._miss)
            self._unseen.clear()

    def _variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"


def _names(ops: Collection[str]) -> str:
    return "{" + ", ".join(map(repr, ops)) + "}"


def _same_op(node: str, pattern: NodePattern) -> str:
    return f"{node}.op == {pattern.ops[0]!r}" if len(pattern.ops) == 1 else f"{node}.op in {_names(pattern.ops)}"


def _other_op(node: str, pattern: NodePattern) -> str:
    return f"{node}.op != {pattern.ops[0]!r}" if len(pattern.ops) == 1 else f"{node}.op not in {_names(pattern.ops)}"
