"""The gate: the only way to change a graph. It keeps interfaces, scopes, types and names valid, and logs events."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphopt.analysis.purity import is_removable
from graphopt.errors import Decline, PassError, StaleError
from graphopt.ir import Graph, Node, TensorType, Value, ValueType
from graphopt.rewrite.building import Building, settled
from graphopt.rewrite.events import Event, NodeNote
from graphopt.rewrite.legality import (
    CONTRIB_OPSETS,
    check_change,
    check_constant,
    check_node,
    check_operand,
    check_output,
    check_readers,
    check_result,
    check_types,
    gone,
    infer_pending,
    is_visible,
    reads,
    tells_more,
    well_known,
)
from graphopt.rewrite.operands import Operand, agreeing
from graphopt.rewrite.rule import FIRED, Fired


class Rewriter(Building):
    """Changes a model for one rule at a time.

    While a pass runs, a model cannot be changed in any other way (`graphopt.ir.seal`), and the changes are undone if
    the pass raises.
    """

    # ------------------------------------------------------------------ deciding

    def replace(self, node: Node, values: Sequence[Value | None], detail: str = "") -> Fired:
        """Replace the outputs of `node` with `values`, and remove it and all nodes that only it used.

        Args:
            node: the node to remove.
            values: one for each output; None for unused outputs.
            detail: a remark for the event.

        Raises:
            Decline: that would not be legal; nothing changed.
        """
        return self.replace_all([(node, values)], detail=detail)

    def pass_on(self, node: Node, value: Value) -> Fired:
        """Replace a node's output with a value, or with an `Identity` of it if both names must stay.

        Args:
            node: a node of one output, the last of several that together have no effect.
            value: the value.

        Raises:
            Decline: that would not be legal; nothing changed.
        """
        try:
            return self.replace(node, [value])
        except Decline:
            check_types(node.result, value)
            return self.replace(node, [self.op("Identity", value)])

    def replace_all(
        self, pairs: Sequence[tuple[Node, Sequence[Value | None]]], *, anchor: Node | None = None, detail: str = ""
    ) -> Fired:
        """Replace several nodes of a graph at once; new nodes are inserted before `anchor`, by default the last one.

        Args:
            pairs: each node with the replacements of its outputs.
            anchor: the node before which new nodes are inserted.
            detail: a remark for the event.

        Raises:
            Decline: that would not be legal; nothing changed.
        """
        if not pairs:
            raise Decline("there is no output to replace")
        at = anchor or (pairs[0][0] if len(pairs) == 1 else max((node for node, _ in pairs), key=lambda n: n.order))
        swaps: list[tuple[Value, Value]] = []
        for node, values in pairs:
            for index, old in enumerate(node.outputs):
                new = values[index] if index < len(values) else None
                if old is None or (new is None and not old.users and not old.output_count):
                    continue
                if new is None:
                    raise Decline("output {} is used and has no replacement", old.name)
                swaps.append((old, new))
        fresh = self._needed([new for _, new in swaps])
        replaced = dict.fromkeys(node for node, _ in pairs)  # there may be thousands
        self._check(swaps, replaced, at, fresh)
        self._commit(swaps, replaced, at, fresh, detail)
        return FIRED

    def add(self, values: Sequence[Value], before: Node, detail: str = "") -> Fired:
        """Insert the pending nodes that compute some values before a node, whose readers will follow.

        The event states that they replace the node. A pass that ends while nothing reads them leaves unused nodes.

        Raises:
            Decline: that would not be legal; nothing changed.
        """
        fresh = self._needed(values)
        self._check_node(before)
        self._check_new(values, before, fresh)
        size = self._admit({}, fresh, before)
        self._look_again(fresh)
        self._drop_pending()
        self._emit([note := NodeNote.of(before)], [NodeNote.of(node) for node in fresh], size, detail)
        self._stated.add(note)
        return FIRED

    def _check(
        self, swaps: list[tuple[Value, Value]], replaced: Collection[Node], at: Node, fresh: dict[Node, None]
    ) -> None:
        """Check that nodes can be replaced."""
        for node in replaced:
            self._check_node(node)
        self._check_new([new for _, new in swaps], at, fresh)
        taken: set[Value] = set()
        for old, new in swaps:
            check_types(old, new)
            if old.output_count:
                check_output(old, new, taken=new in taken, constant=new in self._pending_constants)
                taken.add(new)
            if self._writers.found:
                self._writers.check(old, new)
            if new.producer in replaced:
                raise Decline("{} would be replaced by an output of a removed node", old.name)
            check_readers(old, new, replaced, at)

    def _check_new(self, values: Iterable[Value], at: Node, fresh: dict[Node, None]) -> None:
        """Check that pending nodes and constants can be linked before `at`, and that values are readable there."""
        constants = self._pending_constants
        for value in values:
            check_operand(value, at)
            if not value.name:
                if value.producer not in fresh and value not in constants:
                    raise PassError("a value that was built in an earlier attempt is used; it was dropped")
                if value in constants and value.tensor is not None:
                    check_constant(at.graph, value.tensor)
        for node in fresh:
            check_node(node, at, constants)
        infer_pending(fresh)
        for node in fresh:
            check_result(node)

    def take_touched(self) -> list[Node]:
        """The nodes that were added or changed, or whose readers were, since the last call."""
        touched = list(self._touched)
        self._touched.clear()
        return touched

    # ------------------------------------------------------------------ committing

    def _commit(
        self, swaps: list[tuple[Value, Value]], gone: Collection[Node], at: Node, fresh: dict[Node, None], detail: str
    ) -> None:
        removed = [NodeNote.of(node) for node in gone]
        heirs: dict[Value, Value] = {}
        size = 0
        if not self.stale_types:
            for old, new in swaps:
                if tells_more(old, new):
                    self.stale_types = True  # the new knowledge may refine the types of its readers
                    break
        if fresh or self._pending_constants:
            heirs = {new: old for old, new in reversed(swaps) if not new.name}
            size = self._admit(heirs, fresh, at)
        for old, new in swaps:
            self._refine_type(old, new)
            self._touched.extend(self._journal.replace_uses(old, new))
            if old.output_count:
                self._journal.take_over_output(old, new)
        if heirs:
            self._adopt_names(heirs)
        if fresh:
            self._look_again(fresh)
        freed = [value for node in gone for value in reads(node)]
        for node in gone:
            self._journal.remove(node)
        size -= self._sweep(freed, removed)
        if fresh or self._pending_constants:
            self._give_back_name(fresh)
            self._drop_pending()
        self._emit(removed, [NodeNote.of(node) for node in fresh], size, detail)

    def _admit(self, heirs: dict[Value, Value], fresh: dict[Node, None], at: Node) -> int:
        """Link the pending nodes and constants that the replacement needs. Returns the bytes of the constants."""
        size = self._admit_constants(fresh, heirs)
        for node in fresh:
            self._name_outputs(node, heirs)
            self._journal.insert_before(node, at)
            self._touched.append(node)
            if node.subgraphs:
                self._owners.append(node)
            if node.domain and not node.graph.opset(node.domain):
                self.import_domain(node.domain, CONTRIB_OPSETS.get(node.domain, 1))
        return size

    def _admit_constants(self, fresh: dict[Node, None], heirs: dict[Value, Value]) -> int:
        used = {v for node in fresh for v in reads(node) if v in self._pending_constants}
        used.update(v for v in heirs if v in self._pending_constants)
        size = 0
        for value, hint in self._pending_constants.items():
            if value not in used:
                continue
            assert value.tensor is not None
            base = (heirs[value].name if value in heirs else "") or hint or "constant"
            value.name = self._model.fresh_name(base)
            size += value.tensor.nbytes
            if self.graph.in_function:
                self._constant_node(value, fresh)
            else:
                self._journal.adopt_initializer(value)
        return size

    def _constant_node(self, value: Value, fresh: dict[Node, None]) -> None:
        """Write a constant as a node before its readers, since functions have no initializers."""
        node = Node("Constant", "", self.graph)
        node._attrs = {"value": value.tensor}
        node.outputs = [value]
        value.tensor = None
        value.producer = node
        rest = list(fresh)
        fresh.clear()
        fresh[node] = None
        fresh.update(dict.fromkeys(rest))

    def _name_outputs(self, node: Node, heirs: dict[Value, Value]) -> None:
        origin = self._origin
        base = node.op_type
        for value in origin.outputs if origin is not None else ():
            if value is not None:
                base = value.name
                break
        first = next(iter(heirs), None)
        inherits = False
        for value in node.outputs:
            if value is not None and value is first:
                inherits = True
            if value is not None and not value.name:
                value.name = self.model.fresh_name(f"{base}_{node.op_type.lower()}")
        if not node.name and origin is not None and origin.name:
            # Runtimes reject two nodes of one name: one node inherits it, the others are named after their outputs.
            node.name = origin.name if inherits else next(v.name for v in node.outputs if v is not None)

    def _give_back_name(self, fresh: dict[Node, None]) -> None:
        """Rename a new node that inherited its name from a node that stays."""
        origin = self._origin
        if origin is None or origin.removed or not origin.name:
            return
        for node in fresh:
            if node.name == origin.name:
                self._journal.rename_node(node, self.model.fresh_name(f"{node.name}_{node.op_type.lower()}"))

    def _adopt_names(self, heirs: dict[Value, Value]) -> None:
        """Give new values the names of those that they replace, so that tools still find them."""
        for new, old in heirs.items():
            if new.name != old.name and not new.output_count and not old.output_count and old.graph is new.graph:
                self._journal.swap_names(old, new)

    def _refine_type(self, old: Value, new: Value) -> None:
        known = new.type
        if isinstance(known, TensorType) and known.shape is not None:
            return
        stated = old.type
        if stated is None or known is stated:
            return
        unknown = known is None or (isinstance(known, TensorType) and known.shape is None)
        if unknown and not new.is_input:
            self._journal.set_type(new, stated)

    def _look_again(self, fresh: dict[Node, None]) -> None:
        """Set `stale_types` if inference over the model may refine the types of new values."""
        self.stale_types = self.stale_types or not all(well_known(value) for node in fresh for value in node.results)

    def _sweep(self, values: list[Value], removed: list[NodeNote]) -> int:
        """Remove unused nodes and constants, upwards from `values`. Returns the bytes of removed constants."""
        size = 0
        stack = values if len(values) == 1 else list(dict.fromkeys(values))
        while stack:
            value = stack.pop()
            if value.output_count or value.users:
                if len(value.users) == 1:
                    self._touched.extend(value.users)
                    if value.producer is not None:
                        self._touched.append(value.producer)
                continue
            if value.tensor is not None:
                if not value.is_anchored and not gone(value):
                    size += value.tensor.nbytes
                    self._journal.remove_initializer(value)
                continue
            node = value.producer
            if node is None or node.removed or not is_removable(node):
                continue
            if any(v is not None and (v.users or v.output_count) for v in node.outputs):
                self._touched.append(node)
                continue
            stack.extend(reads(node))
            removed.append(NodeNote.of(node))
            self._journal.remove(node)
        return size

    # ------------------------------------------------------------------ other changes

    def erase(self, node: Node) -> Fired:
        """Remove an unused node, and all nodes that only it used."""
        if node.removed:
            raise StaleError("{} is no longer in the graph", node.op)
        if any(v is not None and (v.users or v.output_count) for v in node.outputs):
            raise Decline("{} is used", node.outputs[0].name if node.outputs and node.outputs[0] else node.op)
        removed, freed = [NodeNote.of(node)], reads(node)
        self._journal.remove(node)
        size = -self._sweep(freed, removed)
        self._emit(removed, [], size, "")
        return FIRED

    def set_attr(self, node: Node, **attrs: Any) -> Fired:
        """Set attributes of a node in place; None removes one."""
        return self.set_inputs(node, {}, ", ".join(attrs), **attrs)

    def set_input(self, node: Node, index: int, value: Operand, detail: str = "") -> Fired:
        """Make an input of a node read another value (an array becomes a constant, None omits the input)."""
        return self.set_inputs(node, {index: value}, detail)

    def set_inputs(self, node: Node, changes: Mapping[int, Operand], detail: str = "", **attrs: Any) -> Fired:
        """Change several inputs, and attributes with them, as one event.

        Raises:
            Decline: the node cannot read that, or a result would have another type; nothing changed.
        """
        count = max((len(node.inputs), *(i + 1 for i in changes)))
        given = agreeing(node, [changes.get(i, node.input(i)) for i in range(count)])
        operands = {i: self.constant(v) if isinstance(v, np.ndarray) else v for i in changes for v in (given[i],)}
        attrs = {name: settled(value) for name, value in attrs.items()}
        new = [v for v in operands.values() if v is not None]
        fresh = self._needed(new)
        self._check_change(node, operands, attrs, fresh)
        size = self._admit({v: v for v in new if v in self._pending_constants}, fresh, node)
        self._look_again(fresh)
        freed = [v for i in operands if (v := node.input(i)) is not None]
        self.stale_types |= any(v is not None and _settles(node.input(at), v) for at, v in operands.items())
        for index, operand in operands.items():
            self._journal.set_input(node, index, operand)
        if node.schema is not None and len(node.inputs) > node.schema.max_inputs:
            self._journal.cut_inputs(node, node.schema.max_inputs)
        if attrs:
            self._journal.set_attrs(node, attrs)
        removed: list[NodeNote] = []
        size -= self._sweep(freed, removed)
        self._give_back_name(fresh)
        self._drop_pending()
        self._emit(removed, [NodeNote.of(n) for n in fresh], size, detail, [node])
        return FIRED

    def _check_change(
        self, node: Node, operands: dict[int, Value | None], attrs: dict[str, Any], fresh: dict[Node, None]
    ) -> None:
        self._check_node(node)
        self._check_new([v for v in operands.values() if v is not None], node, fresh)
        for index in self._writers.written(node) if self._writers.found else ():
            if index in operands:
                raise Decline("{} writes into its operand {}", node.op, index)
        for value in operands.values():
            if value is not None and self._writers.found and self._writers.writes_to(value):
                raise Decline("a reader of {} writes in place, so it must not be shared", value.name)
        inputs = list(node.inputs) + [None] * (max(operands, default=-1) + 1 - len(node.inputs))
        for index, operand in operands.items():
            inputs[index] = operand
        while node.schema is not None and len(inputs) > node.schema.max_inputs and inputs[-1] is None:
            inputs.pop()
        merged = {**node.attrs, **attrs}
        check_change(node, inputs, {name: value for name, value in merged.items() if value is not None})

    def rename_node(self, node: Node, name: str) -> Fired:
        """Give a node another name; values keep theirs."""
        before = node.name
        self._journal.rename_node(node, name)
        self._emit([], [], 0, f"{before!r} is {name!r}", [node])
        return FIRED

    def merge_constant(self, duplicate: Value, kept: Value) -> Fired:
        """Make readers of an initializer read an equal one, and remove it."""
        a, b = duplicate.constant_tensor, kept.constant_tensor
        for value in (duplicate, kept):
            if value.constant_tensor is None or gone(value):
                raise Decline("{} is not a constant of the model", value.name)
        if duplicate.is_anchored or duplicate.producer is not None:
            raise Decline("{} is part of the graph's interface", duplicate.name)
        if a is None or b is None or a.key() != b.key():
            raise Decline("{} and {} do not hold the same data", duplicate.name, kept.name)
        if not all(is_visible(kept, user.graph) for user in duplicate.users):
            raise Decline("{} is shadowed where {} is read", kept.name, duplicate.name)
        self._writers.check(duplicate, kept)
        size = a.nbytes
        readers = self._journal.replace_uses(duplicate, kept)
        self._touched.extend(readers)
        self._journal.remove_initializer(duplicate)
        self._emit([], [], -size, f"{duplicate.name} is {kept.name}", readers)
        return FIRED

    def move_constant(self, value: Value, graph: Graph) -> Fired:
        """Move an initializer into a subgraph that contains all its readers; it keeps its name."""
        if value.tensor is None or gone(value) or value.is_anchored or graph.in_function:
            raise Decline("{} is part of the graph's interface, or not a constant of the model", value.name)
        moved = Value(value.name, graph)
        moved.tensor = value.tensor
        if not all(is_visible(moved, user.graph) for user in value.users):
            raise Decline("{} is read outside of the subgraph that would hold it", value.name)
        readers = self._journal.replace_uses(value, moved)
        self._journal.remove_initializer(value)
        self._journal.adopt_initializer(moved)
        self._emit([], [], 0, f"{value.name} is in a body", readers)
        return FIRED

    def drop_constant(self, value: Value) -> Fired:
        """Remove an unused initializer."""
        if value.tensor is None or gone(value):
            raise Decline("{} is not a constant of the model", value.name)
        if value.users or value.is_anchored:
            raise Decline("{} is used, or part of the graph's interface", value.name)
        size = value.tensor.nbytes
        self._journal.remove_initializer(value)
        self._emit([], [], -size, f"initializer {value.name}")
        return FIRED

    def drop_function(self, function: Graph) -> Fired:
        """Remove a model-local function without calls."""
        removed = [NodeNote.of(node) for node in function]
        self._journal.remove_function(function)
        self._emit(removed, [], 0, f"function {function.name}")
        return FIRED

    def import_domain(self, domain: str, version: int) -> None:
        """Import an operator domain that is not imported yet; versions never change."""
        self._journal.import_domain(domain, version)

    def set_opset(self, graph: Graph, domain: str, version: int) -> None:
        """Set the version of a domain in the main graph or a function.

        For version conversion only, which ensures that every node keeps its meaning: nothing is checked here.
        """
        self._journal.set_opset(graph, domain, version)

    def set_ir_version(self, version: int) -> None:
        """Set the IR version."""
        self._journal.set_ir_version(version)

    def set_metadata(self, key: str, text: str) -> None:
        """Set an entry of the model's `metadata_props`."""
        self._journal.set_metadata(key, text)

    def add_to_metadata(self, key: str, count: int) -> None:
        """Add to a number in the model's `metadata_props`; a missing one counts as 0."""
        before = self.model.metadata.get(key, "0")
        self.set_metadata(key, str(count + (int(before) if before.isdecimal() else 0)))

    def state_type(self, value: Value, value_type: ValueType) -> None:
        """Set the type of a value; it must not be less precise than the known type."""
        self._journal.set_type(value, value_type)

    def amend(self, *, zeroed: int, bound: float) -> None:
        """Record in the last event how many weights were set to zero, and the resulting error bound.

        Args:
            zeroed: the number of weights.
            bound: upper bound of the change of an output, for activations of magnitude 1.
        """
        events = self._log.events
        if not events or events[-1].rule != self._rule:
            raise PassError("there is no event of this pass to amend")
        events[-1] = dataclasses.replace(events[-1], zeroed=zeroed, bound=bound)

    def _emit(
        self, removed: list[NodeNote], added: list[NodeNote], size: int, detail: str, changed: Sequence[Node] = ()
    ) -> None:
        notes: tuple[NodeNote, ...] = ()
        if changed:
            self._touched.extend(changed)
            notes = tuple([NodeNote.of(node) for node in changed])
        events, gone = self._log.events, tuple([note for note in removed if note not in self._stated])
        events.append(Event(len(events), self._rule, self.graph.name, gone, tuple(added), notes, size, detail))


def _settles(old: Value | None, new: Value) -> bool:
    """Whether types of results may be refined by a new operand in place of an old one."""
    return new.constant_tensor is not None or (old is not None and tells_more(old, new))
