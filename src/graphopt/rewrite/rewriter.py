"""The gate: the only way to change a graph. It keeps interfaces, scopes, types and names right, and reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from graphopt.analysis.nodes import infer_node
from graphopt.analysis.purity import is_removable
from graphopt.errors import PassError
from graphopt.ir import Graph, Model, Node, Tensor, TensorType, Value
from graphopt.ir.forms import MOVED, placed
from graphopt.match import Mismatch
from graphopt.rewrite.events import Event, Log, NearMiss, NodeNote
from graphopt.rewrite.journal import Journal
from graphopt.rewrite.legality import at_level, constant_conflict, is_annotated, reads, type_conflict, well_known
from graphopt.rewrite.operands import Operand, agreeing, operand_conflict
from graphopt.rewrite.options import Options
from graphopt.rewrite.rule import FIRED, Outcome

CONTRIB_OPSETS = {"com.microsoft": 1, "com.microsoft.nchwc": 1, "ai.onnx.ml": 3}
"""Versions at which domains are imported when a rewrite brings the first operator of one."""


class Rewriter:
    """Changes a model for one rule at a time.

    New nodes and constants are *pending* until `replace` takes them in; what no replacement reads is dropped.
    So a rule that declines, or raises, leaves nothing behind.

    Attributes:
        model: the model.
        graph: the graph that the current node is in.
        log: where events go.
        options: settings of the run.
        touched: nodes to look at again after the current attempt.
        stale_types: whether something new has a type that inference over the whole model may know better.
    """

    def __init__(self, model: Model, log: Log, options: Options) -> None:
        self.model = model
        self.options = options
        self.graph = model.graph
        self.log = log
        self.journal = Journal()
        self.touched: list[Node] = []
        self.stale_types = False
        self._rule = ""
        self._origin: Node | None = None
        self._pending_nodes: list[Node] = []
        self._pending_constants: dict[Value, str] = {}

    # ------------------------------------------------------------------ building

    def begin(self, rule: str, node: Node) -> None:
        """Start an attempt of a rule at a node; whatever is pending is dropped."""
        self._origin = node
        self.graph = node.graph
        self.next_rule(rule)

    def next_rule(self, rule: str) -> None:
        """Start an attempt of another rule at the same node."""
        self._rule = rule
        if self._pending_nodes or self._pending_constants:
            self._drop_pending()

    def enter(self, graph: Graph, rule: str | None = None) -> None:
        """Let following calls build into `graph`."""
        self.graph = graph
        self._origin = None
        if rule is not None:
            self._rule = rule
        self._drop_pending()

    def _drop_pending(self) -> None:
        self._pending_nodes = []
        self._pending_constants = {}

    def op(
        self, op_type: str, *inputs: Operand, domain: str = "", outputs: int = 1, name: str | None = None, **attrs: Any
    ) -> Any:
        """A new node, pending.

        Args:
            op_type: operator name.
            *inputs: values; arrays become constants; None leaves an optional input out.
            domain: operator domain.
            outputs: how many outputs to take.
            name: node name; by default derived from the node that is rewritten.
            **attrs: attributes; None leaves one out. What is an attribute at some opsets and an input at others, like
                axes and bounds, is given here by the input's name, and goes where the opset of the graph has it.

        Returns:
            The output value, or a tuple of them when there are several.
        """
        if attrs and not domain and op_type in MOVED:
            inputs, attrs = placed(op_type, self.graph.opset(), inputs, attrs, _element_type(inputs))  # type: ignore[assignment]
        node = Node(op_type, domain, self.graph)
        node._attrs = {key: value for key, value in attrs.items() if value is not None}
        node.inputs = [self.constant(v) if isinstance(v, np.ndarray) else v for v in agreeing(node, inputs)]
        while node.inputs and node.inputs[-1] is None:
            node.inputs.pop()
        node.outputs = [Value("", self.graph, node, index) for index in range(outputs)]
        if name is not None:
            node.name = name
        if self._origin is not None:
            node.origin = self._origin.proto if self._origin.proto is not None else self._origin.origin
        self._pending_nodes.append(node)
        return node.outputs[0] if outputs == 1 else tuple(node.outputs)

    def add_pending(self, node: Node) -> None:
        """Take a node that was built elsewhere (see `graphopt.rewrite.inline`) among the pending ones."""
        self._pending_nodes.append(node)

    def constant(self, array: np.ndarray | Tensor, like: Value | str | None = None) -> Value:
        """A new constant, pending. It always gets a fresh name.

        Args:
            array: its contents; a `Tensor` for element types that NumPy lacks.
            like: a value or a text that the name is made from.
        """
        tensor = array if isinstance(array, Tensor) else Tensor.from_array(array)
        value = Value("", self.graph)
        value.tensor = tensor
        hint = like.name if isinstance(like, Value) else like
        self._pending_constants[value] = hint or ""
        return value

    # ------------------------------------------------------------------ deciding

    def replace(self, node: Node, values: Sequence[Value | None], detail: str = "") -> Outcome:
        """Let `values` take the place of the outputs of `node`, and remove it with all that only it used.

        Args:
            node: the node to remove.
            values: one for each output; None for outputs that nothing uses.
            detail: a remark for the event.

        Returns:
            `FIRED`, or a `Mismatch` when that would not be legal; then nothing changed.
        """
        return self.replace_all([(node, values)], detail=detail)

    def replace_all(
        self, pairs: Sequence[tuple[Node, Sequence[Value | None]]], *, anchor: Node | None = None, detail: str = ""
    ) -> Outcome:
        """Replace several nodes of one graph at once; new nodes go before `anchor`, by default the last of them.

        Args:
            pairs: each node with what replaces its outputs.
            anchor: where new nodes go.
            detail: a remark for the event.

        Returns:
            `FIRED`, or a `Mismatch` when that would not be legal; then nothing changed.
        """
        at = anchor or (pairs[0][0] if len(pairs) == 1 else max((node for node, _ in pairs), key=lambda n: n.order))
        swaps: list[tuple[Value, Value]] = []
        for node, values in pairs:
            for index, old in enumerate(node.outputs):
                new = values[index] if index < len(values) else None
                if old is None or (new is None and not old.users and not old.output_count):
                    continue
                if new is None:
                    return Mismatch("output {} is used and has no replacement", old.name)
                swaps.append((old, new))
        fresh = self._needed(new for _, new in swaps)
        gone = [node for node, _ in pairs]
        problem = self._illegal(swaps, gone, at, fresh)
        if problem is not None:
            return problem
        self._commit(swaps, gone, at, fresh, detail)
        return FIRED

    def _needed(self, values: Iterable[Value]) -> dict[Node, None]:
        """Pending nodes that the values depend on, in the order they were made."""
        if not self._pending_nodes:
            return {}
        pending = set(self._pending_nodes)
        found: set[Node] = set()
        stack = [v.producer for v in values if v.producer is not None]
        while stack:
            node = stack.pop()
            if node not in pending or node in found:
                continue
            found.add(node)
            stack.extend(v.producer for v in reads(node) if v.producer is not None)
        return {node: None for node in self._pending_nodes if node in found}

    def _illegal(
        self, swaps: list[tuple[Value, Value]], gone: list[Node], at: Node, fresh: dict[Node, None]
    ) -> Mismatch | None:
        taken: set[Value] = set()
        for old, new in swaps:
            problem = type_conflict(old, new)
            if problem is None and old.output_count:
                problem = self._interface_conflict(old, new, new in taken)
                taken.add(new)
            if problem is not None:
                return problem
            if old.producer is at or old.graph is not at.graph:
                continue  # whatever reads an output of the anchor comes after it
            for user in old.users:
                if user not in gone and at_level(user, at.graph).order < at.order:
                    return Mismatch("{} is read before all replaced nodes are computed", old.name)
        for old, new in swaps:
            if new.producer in gone:
                return Mismatch("{} would be replaced by an output of a removed node", old.name)
            if self._comes_late(new, at):
                return _late(new)
        return self._illegal_new(swaps, at, fresh) if fresh or self._pending_constants else None

    def _illegal_new(self, swaps: list[tuple[Value, Value]], at: Node, fresh: dict[Node, None]) -> Mismatch | None:
        """What speaks against the pending nodes and constants."""
        for value in (*(v for node in fresh for v in reads(node)), *(new for _, new in swaps)):
            if self._comes_late(value, at):
                return _late(value)
            if value in self._pending_constants and value.tensor is not None:
                problem = constant_conflict(at.graph, value.tensor)
                if problem is not None:
                    return problem
        for node in fresh:
            problem = operand_conflict(node, node.inputs)
            if problem is not None:
                return problem
            stated = node.constant_tensor() if node.op == "Constant" else None
            problem = constant_conflict(node.graph, stated, as_node=True) if stated is not None else None
            if problem is not None:
                return problem
        return None

    def _comes_late(self, value: Value, at: Node) -> bool:
        producer = value.producer
        if producer is None or not value.name:
            return False
        return producer.graph is at.graph and (producer.removed or producer.order >= at.order)

    def _interface_conflict(self, old: Value, new: Value, taken: bool) -> Mismatch | None:
        if new in self._pending_constants:
            return Mismatch("{} is an output, it cannot become an initializer", old.name)
        if not new.name and not taken:
            return None
        if new.is_input or new.tensor is not None or new.is_sparse or new.output_count or taken or new.producer is None:
            return Mismatch("would merge two interface values, {} and {}", new.name or "a new value", old.name)
        if new.graph is not old.graph:
            return Mismatch("would put out captured value {} as {}", new.name, old.name)
        return None

    # ------------------------------------------------------------------ committing

    def _commit(
        self, swaps: list[tuple[Value, Value]], gone: list[Node], at: Node, fresh: dict[Node, None], detail: str
    ) -> None:
        removed = [NodeNote.of(node) for node in gone]
        heirs: dict[Value, Value] = {}
        size = 0
        if any(new.is_const and not old.is_const for old, new in swaps):
            self.stale_types = True  # a shape or an axis that is known from now on may settle the types of its readers
        if fresh or self._pending_constants:
            heirs = {new: old for old, new in reversed(swaps) if not new.name}
            size = self._admit(heirs, fresh, at)
        for old, new in swaps:
            self._refine_type(old, new)
            self.touched.extend(self.journal.replace_uses(old, new))
            if old.output_count:
                self.journal.take_over_output(old, new)
        if heirs:
            self._adopt_names(heirs)
        if fresh:
            self._infer_types(fresh)
        freed = [value for node in gone for value in reads(node)]
        for node in gone:
            self.journal.remove(node)
        size -= self._sweep(freed, removed)
        if fresh or self._pending_constants:
            self._drop_pending()
        self._emit(removed, [NodeNote.of(node) for node in fresh], size, detail)

    def _admit(self, heirs: dict[Value, Value], fresh: dict[Node, None], at: Node) -> int:
        """Link the pending nodes and constants that the replacement needs. Returns the bytes of the constants."""
        size = self._admit_constants(fresh, heirs)
        for node in fresh:
            self._name_outputs(node, heirs)
            self.journal.insert_before(node, at)
            self.touched.append(node)
            if node.domain and not node.graph.opset(node.domain):
                self.model.require_opset(node.domain, CONTRIB_OPSETS.get(node.domain, 1))
        return size

    def _admit_constants(self, fresh: dict[Node, None], heirs: dict[Value, Value]) -> int:
        used = {v for node in fresh for v in reads(node) if v in self._pending_constants}
        used.update(v for v in heirs if v in self._pending_constants)
        size = 0
        for value, hint in self._pending_constants.items():
            if value not in used:
                continue
            assert value.tensor is not None
            base = heirs[value].name if value in heirs else hint or "constant"
            value.name = self.model.fresh_name(base)
            size += value.tensor.nbytes
            if self.graph.in_function:
                self._constant_node(value, fresh)
            else:
                self.journal.adopt_initializer(value)
        return size

    def _constant_node(self, value: Value, fresh: dict[Node, None]) -> None:
        """Functions have no initializers: the constant becomes a node in front of its readers."""
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
        base = next((v.name for v in (origin.outputs if origin is not None else ()) if v is not None), node.op_type)
        first = next(iter(heirs), None)
        inherits = False
        for value in node.outputs:
            assert value is not None
            if value is first:
                inherits = True
            if not value.name:
                value.name = self.model.fresh_name(f"{base}_{node.op_type.lower()}")
        if not node.name and origin is not None and origin.name:
            # Runtimes refuse two nodes of one name: one node inherits it, the others are named like their outputs.
            node.name = origin.name if inherits else next(v.name for v in node.outputs if v is not None)

    def _adopt_names(self, heirs: dict[Value, Value]) -> None:
        """A new value that stands for an old one keeps its name, so that tools still find it."""
        for new, old in heirs.items():
            if new.name != old.name and not new.output_count and not old.output_count and old.graph is new.graph:
                self.journal.swap_names(old, new)

    def _refine_type(self, old: Value, new: Value) -> None:
        known = new.type
        if isinstance(known, TensorType) and known.shape is not None:
            return
        stated = old.type
        if stated is None or known is stated:
            return
        unknown = known is None or (isinstance(known, TensorType) and known.shape is None)
        if unknown and not new.is_input:
            self.journal.set_type(new, stated)

    def _infer_types(self, fresh: dict[Node, None]) -> None:
        for node in fresh:
            if any(v is not None and v.type is None for v in node.outputs):
                for value, value_type in zip(node.outputs, infer_node(node), strict=False):
                    if value is not None and value.type is None:
                        value.type = value_type
            if any(v is not None and not well_known(v) for v in node.outputs):
                self.stale_types = True

    def _sweep(self, values: list[Value], removed: list[NodeNote]) -> int:
        """Drop what nothing uses any more, upwards from `values`. Returns the bytes of constants dropped."""
        size = 0
        stack = values if len(values) == 1 else list(dict.fromkeys(values))
        while stack:
            value = stack.pop()
            if value.output_count or value.users:
                if len(value.users) == 1:
                    self.touched.extend(value.users)
                    if value.producer is not None:
                        self.touched.append(value.producer)
                continue
            if value.tensor is not None:
                if not value.is_input and value.graph.values.get(value.name) is value and not is_annotated(value):
                    size += value.tensor.nbytes
                    self.journal.remove_initializer(value)
                continue
            node = value.producer
            if node is None or node.removed or not is_removable(node):
                continue
            if any(v is not None and (v.users or v.output_count) for v in node.outputs):
                self.touched.append(node)
                continue
            stack.extend(reads(node))
            removed.append(NodeNote.of(node))
            self.journal.remove(node)
        return size

    # ------------------------------------------------------------------ other changes

    def erase(self, node: Node) -> Outcome:
        """Remove a node that nothing uses, with all that only it used."""
        if any(v is not None and (v.users or v.output_count) for v in node.outputs):
            return Mismatch("{} is used", node.outputs[0].name if node.outputs and node.outputs[0] else node.op)
        removed = [NodeNote.of(node)]
        freed = reads(node)
        self.journal.remove(node)
        size = -self._sweep(freed, removed)
        self._emit(removed, [], size, "")
        return FIRED

    def set_attr(self, node: Node, **attrs: Any) -> Outcome:
        """Set attributes of a node where it stands; None removes one."""
        self.journal.set_attrs(node, attrs)
        self._emit([], [], 0, ", ".join(attrs), [node])
        return FIRED

    def set_input(self, node: Node, index: int, value: Operand, detail: str = "") -> Outcome:
        """Let an input of a node read another value (an array becomes a constant, None leaves it out)."""
        return self.set_inputs(node, {index: value}, detail)

    def set_inputs(self, node: Node, changes: dict[int, Operand], detail: str = "", **attrs: Any) -> Outcome:
        """Change several inputs, and attributes with them, as one event."""
        count = max(len(node.inputs), *(i + 1 for i in changes))
        given = agreeing(node, [changes.get(i, node.input(i)) for i in range(count)])
        operands = {i: self.constant(v) if isinstance(v, np.ndarray) else v for i in changes for v in (given[i],)}
        new = [v for v in operands.values() if v is not None]
        fresh = self._needed(new)
        for each in (node, *fresh):
            problem = operand_conflict(each, given if each is node else each.inputs)
            if problem is not None:
                return problem
        for value in [*new, *(v for n in fresh for v in n.inputs if v is not None)]:
            if value.producer not in fresh and self._comes_late(value, node):
                return Mismatch("{} is not computed yet", value.name)
        size = self._admit_constants(fresh, {v: v for v in new if v in self._pending_constants})
        for made in fresh:
            self._name_outputs(made, {})
            self.journal.insert_before(made, node)
            self.touched.append(made)
        self._infer_types(fresh)
        freed = [v for i in operands if (v := node.input(i)) is not None]
        self.stale_types |= any(v.constant_tensor is not None for v in new)
        for index, operand in operands.items():
            self.journal.set_input(node, index, operand)
        if attrs:
            self.journal.set_attrs(node, attrs)
        removed: list[NodeNote] = []
        size -= self._sweep(freed, removed)
        self._drop_pending()
        self._emit(removed, [NodeNote.of(n) for n in fresh], size, detail, [node])
        return FIRED

    def rename_node(self, node: Node, name: str) -> Outcome:
        """Give a node another name; values keep theirs."""
        before = node.name
        self.journal.rename_node(node, name)
        self._emit([], [], 0, f"{before!r} is {name!r}", [node])
        return FIRED

    def merge_constant(self, duplicate: Value, kept: Value) -> Outcome:
        """Let readers of an initializer read an equal one, and drop it."""
        if duplicate.is_input or duplicate.output_count:
            return Mismatch("{} is part of the interface", duplicate.name)
        size = duplicate.tensor.nbytes if duplicate.tensor is not None else 0
        readers = self.journal.replace_uses(duplicate, kept)
        self.touched.extend(readers)
        self.journal.remove_initializer(duplicate)
        self._emit([], [], -size, f"{duplicate.name} is {kept.name}", readers)
        return FIRED

    def drop_constant(self, value: Value) -> Outcome:
        """Drop an initializer that nothing uses."""
        if value.is_input or value.users or value.output_count:
            return Mismatch("{} is used or part of the interface", value.name)
        size = value.tensor.nbytes if value.tensor is not None else 0
        self.journal.remove_initializer(value)
        self._emit([], [], -size, f"initializer {value.name}")
        return FIRED

    def drop_function(self, function: Graph) -> Outcome:
        """Drop a model-local function that nothing calls."""
        removed = [NodeNote.of(node) for node in function]
        self.journal.remove_function(function)
        self._emit(removed, [], 0, f"function {function.name}")
        return FIRED

    def decline(self, reason: str, *args: object, node: Node | None = None) -> Mismatch:
        """Note a near miss; for passes over whole graphs, which return nothing."""
        mismatch = Mismatch(reason, *args)
        if self.log.listen:
            at = node or self._origin
            if at is None:
                raise PassError("decline needs a node")
            self.note(self._rule, at, mismatch)
        return mismatch

    def note(self, rule: str, node: Node, mismatch: Mismatch) -> None:
        """Remember why a rule declined at a node."""
        note = NodeNote.of(node)
        key = note.outputs[0] if note.outputs else note.name
        self.log.near_misses[rule, key] = NearMiss(rule, note, str(mismatch))

    def _emit(
        self, removed: list[NodeNote], added: list[NodeNote], size: int, detail: str, changed: Sequence[Node] = ()
    ) -> None:
        notes: tuple[NodeNote, ...] = ()
        if changed:
            self.touched.extend(changed)
            notes = tuple([NodeNote.of(node) for node in changed])
        events = self.log.events
        events.append(
            Event(len(events), self._rule, self.graph.name, tuple(removed), tuple(added), notes, size, detail)
        )


def _element_type(inputs: Sequence[Operand]) -> np.dtype[Any] | None:
    """The element type of a first operand."""
    first = inputs[0] if inputs else None
    if isinstance(first, np.ndarray):
        return first.dtype
    dtype = first.dtype if first is not None else None
    return None if dtype is None else np.dtype(tensor_dtype_to_np_dtype(dtype))


def _late(value: Value) -> Mismatch:
    return Mismatch("{} is not computed yet where the replacement goes", value.name)
