"""The conditions of a legal change; the gate checks them before it changes a graph in any way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from onnx import TensorProto

from graphopt.analysis.nodes import infer_node, is_refused
from graphopt.analysis.overridable import SIZE_OPERANDS, are_misread
from graphopt.analysis.purity import malformed
from graphopt.errors import Decline, StaleError
from graphopt.ir import Graph, Node, Tensor, TensorType, Value, ValueType, captured_values
from graphopt.ir.flush import IR_WITH_FREE_INITIALIZERS
from graphopt.ir.schema import RUNTIMES_OWN, has_its_operands, op_schema
from graphopt.ir.types import FLOAT_TYPES, is_told, type_name
from graphopt.rewrite.operands import check_kernel, check_operand_types

CONTRIB_OPSETS = {"com.microsoft": 1, "com.microsoft.nchwc": 1, "ai.onnx.ml": 3}
"""Versions at which domains are imported for the first operator that a rewrite adds of one."""

_STANDARD = ("", "ai.onnx.ml")

_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16})


_NUMBERS = frozenset({int})

_DIVIDING = frozenset({"Div", "Mod"})
_SCALING = frozenset({"Resize", "Upsample"})
_LOOKED_INTO = {"ConstantOfShape": 0, "Div": 1, "Mod": 1, "Range": 2, "Resize": 2, "Slice": 4, "Upsample": 1}
"""Operators with a constant operand that a runtime checks at load: integer divisors, scales and steps must not be zero,
and sizes not be negative. The step of `Range` is checked by the ONNX checker."""
_RANKS: dict[str, dict[int, int]] = {
    "DFT": {1: 0, 2: 0}, "MelWeightMatrix": dict.fromkeys(range(5), 0), "Pad": {1: 1},
    "Range": dict.fromkeys(range(3), 0), "STFT": {1: 0, 3: 0}, "Split": {1: 1},
    "BlackmanWindow": {0: 0}, "HammingWindow": {0: 0}, "HannWindow": {0: 0},
}  # fmt: skip
"""Operators of which runtimes accept computed operands that the standard's inference, and so loading, rejects as
constants: lists for scalars, pads of higher rank, empty sizes of parts; with the standard's ranks by operand."""
_LOOKED_AT = {*_RANKS, *_LOOKED_INTO}
_ROI_SINCE = 11
"""From this opset on `Resize` has the operand `roi` before its scales."""


def reads(node: Node) -> list[Value]:
    """The values that a node or its subgraphs read."""
    read = [v for v in node.inputs if v is not None]
    return [*read, *captured_values(node)] if node.subgraphs else read


def well_known(value: Value) -> bool:
    """Whether every dimension is fixed or has a symbol of the model."""
    shape = value.shape  # called for every value that is replaced or new
    return shape is not None and ({*map(type, shape)} <= _NUMBERS or all(map(is_told, shape)))


def tells_more(old: Value, new: Value) -> bool:
    """Whether the new value is better known to readers: constant, or of a known shape, unlike the old one."""
    if new.constant_tensor is not None and old.constant_tensor is None:
        return True
    return well_known(new) and not well_known(old) and (bool(old.users) or _leaves_body(old))


def _leaves_body(value: Value) -> bool:
    """Whether it is an output of a subgraph, on whose type results of the owner node depend."""
    producer = value.producer
    return bool(value.output_count) and producer is not None and producer.graph.owner is not None


def at_level(node: Node, graph: Graph) -> Node:
    """The node of `graph` that is `node`, or contains it."""
    while node.graph is not graph:
        owner = node.graph.owner
        if owner is None:
            return node
        node = owner
    return node


def is_visible(value: Value, graph: Graph) -> bool:
    """Whether `graph` can read `value` by its name: it is in scope, and not shadowed by a scope in between."""
    scope: Graph | None = graph
    while scope is not None and scope is not value.graph:
        if value.name in scope.values:
            return False
        scope = scope.parent
    return scope is not None


def check_types(old: Value, new: Value) -> None:
    """Check that the known types of two values agree, so that they may have the same readers.

    Raises:
        Decline: they do not.
    """
    _check_agree(old.name, old.type, new.type)


def _check_agree(name: str, before: ValueType | None, after: ValueType | None) -> None:
    if before is after or not isinstance(before, TensorType) or not isinstance(after, TensorType):
        return
    if before.dtype != after.dtype:
        old, new = type_name(before.dtype), type_name(after.dtype)
        raise Decline("{} has element type {}, its replacement has {}", name, old, new)
    if before.shape is None or after.shape is None or before.shape == after.shape:
        return
    if len(before.shape) != len(after.shape):
        raise Decline("{} has rank {}, its replacement has {}", name, len(before.shape), len(after.shape))
    for a, b in zip(before.shape, after.shape, strict=True):
        if isinstance(a, int) and isinstance(b, int) and a != b:
            raise Decline("{} has shape {}, its replacement has {}", name, before.shape, after.shape)


def check_constant(graph: Graph, tensor: Tensor, *, as_node: bool = False) -> None:
    """Check that a graph can hold a constant; if it has to be a `Constant` node, that must support its type.

    Args:
        graph: the graph.
        tensor: the constant.
        as_node: whether it has to be a node because it is a graph output.

    Raises:
        Decline: it cannot.
    """
    if graph.opset() >= 9 or tensor.dtype in _FLOATS:
        return
    if graph.model.ir_version >= IR_WITH_FREE_INITIALIZERS and not graph.in_function and not as_node:
        return
    raise Decline("before opset 9 a Constant node holds floats only, not element type {}", type_name(tensor.dtype))


def gone(value: Value) -> bool:
    """Whether a named value was removed from its graph."""
    return bool(value.name) and value.graph.values.get(value.name) is not value


def check_operand(value: Value, at: Node) -> None:
    """Check that a node can read a value: it is in its graph, visible, and computed before.

    Args:
        value: the value; pending values, which have no name yet, may be read by any pending node.
        at: the node, or the one before which it will be inserted.

    Raises:
        Decline: it cannot.
    """
    if not value.name:
        return
    if gone(value):
        raise StaleError("{} is no longer in the graph", value.name)
    graph = value.graph
    if graph is not at.graph and not is_visible(value, at.graph):
        raise Decline("{} is not visible in graph {}", value.name, at.graph.name)
    producer = value.producer
    if producer is not None and (producer.removed or producer.order >= at_level(at, graph).order):
        raise Decline("{} is not yet computed at the place of the replacement", value.name)


def check_node(node: Node, at: Node, constants: Mapping[Value, str]) -> None:
    """Check that a node may be added to its graph: its operator, its operands, and the form of constants there.

    Args:
        node: the node, not linked yet.
        at: the node before which it will be inserted, or which it replaces.
        constants: the pending constants that it needs.

    Raises:
        Decline: it cannot.
    """
    graph, domain = node.graph, node.domain
    if domain in _STANDARD and not node.op.startswith(("call ", "referring ", "malformed ")):
        if graph.opsets.get(domain):
            _check_form(node)
        elif not domain:
            raise Decline("the standard operators are not imported")
    for value in reads(node):
        if value.name:
            check_operand(value, at)
        if value.producer is not None and value.producer.op.startswith("malformed "):
            # Inference may derive a type that runtimes do not, so that they reject new readers.
            raise Decline("{} is computed by a malformed {}", value.name, value.producer.op_type)
        if value.is_sparse and domain in _STANDARD and all(user.domain not in _STANDARD for user in value.users):
            # In the standard its type is not a tensor, even if runtimes treat it as one.
            raise Decline("{} is sparse, which no standard operator accepts", value.name)
        if value in constants and value.tensor is not None:
            check_constant(graph, value.tensor)
    check_loads(node, node.inputs)
    check_kernel(node, at)
    stated = node.constant_tensor() if node.op == "Constant" else None
    if stated is not None:
        check_constant(graph, stated, as_node=True)


def check_loads(node: Node, inputs: Sequence[Value | None]) -> None:
    """Check that a runtime does not reject a node at load because of the contents of a constant operand.

    In a branch that is not taken, a computed operand with such contents does no harm.

    Args:
        node: the node; its subgraphs are checked as well.
        inputs: its future operands.

    Raises:
        Decline: it does.
    """
    for graph in node.subgraphs.values():
        for inner in graph:
            check_loads(inner, inner.inputs)
    at = _LOOKED_INTO.get(node.op)
    if at is None:
        return
    if node.op == "Resize" and node.graph.opset() < _ROI_SINCE:
        at = 1
    value = inputs[at] if at < len(inputs) else None
    tensor = value.constant_tensor if value is not None else None
    if tensor is None or (node.op in _DIVIDING and tensor.dtype in FLOAT_TYPES):
        return
    array = tensor.array()
    if node.op in _SCALING:
        wrong = not _scales(node, array)
    else:
        wrong = bool((array < 0 if node.op == "ConstantOfShape" else array == 0).any())
    if wrong and node.op == "Range":
        raise Decline("the step of Range is 0")
    if wrong:
        raise Decline("the runtime rejects {} with this constant", node.op)


def _scales(node: Node, scales: np.ndarray) -> bool:
    """Whether the runtime supports these scales: all positive, and along few axes if it interpolates.

    It reads a tensor of any rank as a list.
    """
    scales = scales.reshape(-1)
    enough = scales >= 1 if node.op == "Upsample" else scales > 0
    if not np.all(enough & np.isfinite(scales)):
        return False
    mode = node.attr("mode", "nearest")
    if mode == "nearest" or not scales.size:
        return True
    ones = [at for at, scale in enumerate(scales) if scale == 1]
    linear, count = mode == "linear", scales.size
    if count in (4, 5) and {0, 1} <= {*ones}:
        return linear or count == 4
    return count == 2 or (linear and count == 3) or (count == 4 and {0, 3} <= {*ones} and (linear or scales.min() >= 1))


def _check_form(node: Node) -> None:
    """Check that the standard has an operator with these operands and attributes."""
    opset = node.graph.opsets[node.domain]
    schema, attrs = op_schema(node.op_type, node.domain, opset), node.attrs
    if node.op == RUNTIMES_OWN:
        return
    if schema is None:
        raise Decline("{} is not an operator of opset {}", node.op, opset)
    if not has_its_operands(node.op, schema, node.inputs):
        raise Decline("{} does not take {} operands at opset {}", node.op, len(node.inputs), opset)
    if attrs and not attrs.keys() <= schema.attributes.keys():
        unknown = min(node.attrs.keys() - schema.attributes.keys())
        raise Decline("{} has no attribute {} at opset {}", node.op, unknown, opset)


def infer_pending(nodes: Iterable[Node]) -> None:
    """Infer the types of the results of new nodes, in order; unnamed values have temporary names meanwhile."""
    named: list[Value] = []
    try:
        for node in nodes:
            if _is_typed(node):
                continue
            for value in (*node.inputs, *node.outputs):
                if value is not None and not value.name:
                    value.name = f"pending {len(named)}"
                    named.append(value)
            for made, value_type in zip(node.outputs, infer_node(node), strict=False):
                if made is not None and made.type is None:
                    made.type = value_type
    finally:
        for value in named:
            value.name = ""


def _is_typed(node: Node) -> bool:
    for value in node.outputs:  # noqa: SIM110 -- called for every new node
        if value is not None and value.type is None:
            return False
    return True


def check_result(node: Node) -> None:
    """Check that the types of operands agree, and that inference finds a result for operands of known rank.

    Args:
        node: a node after `infer_pending`.

    Raises:
        Decline: they do not, it does not, or the runtime computes another result.
    """
    check_operand_types(node, node.inputs)
    _check_rows_of_text(node)
    if node.domain or node.subgraphs or node.op != node.op_type or _is_typed(node):
        return
    types = [value.type for value in node.inputs if value is not None]
    if all(isinstance(each, TensorType) and each.shape is not None for each in types):
        raise Decline("{} does not take operands of these shapes", node.op)


def _check_rows_of_text(node: Node) -> None:
    """Check that a Gather selects no rows of strings: the runtime copies the first of each, and then empty ones."""
    x = node.inputs[0] if node.op == "Gather" and node.inputs else None
    if x is None or x.dtype != TensorProto.STRING:
        return
    dims = x.dims()
    behind = dims[x.axis(node.attr("axis", 0)) + 1 :]
    if any(size not in (0, 1) for size in behind):
        raise Decline("the runtime gathers only the first string of each row")


def check_change(node: Node, inputs: Sequence[Value | None], attrs: Mapping[str, object]) -> None:
    """Check that a node with other operands or attributes is legal, and its results have the same types.

    Args:
        node: the node.
        inputs: its future operands.
        attrs: its future attributes.

    Raises:
        Decline: it is not.
    """
    trial = _trial(node, inputs, attrs)
    check_node(trial, node, {})
    if node.graph.owner is not None:
        _check_sizes(node, inputs)
    _check_outcome(node, trial)


def _trial(node: Node, inputs: Sequence[Value | None], attrs: Mapping[str, object]) -> Node:
    """An unlinked copy of a node with other operands or attributes."""
    trial = Node(node.op_type, node.domain, node.graph)
    trial.op, trial.overload = node.op, node.overload
    trial.inputs, trial.subgraphs = list(inputs), node.subgraphs
    trial._attrs = dict(attrs)
    trial.outputs = [None if v is None else Value("", node.graph, trial, i) for i, v in enumerate(node.outputs)]
    return trial


def _check_outcome(node: Node, trial: Node) -> None:
    """Check that the results of a trial have the types of the node's results."""
    infer_pending([trial])
    check_result(trial)
    for old, new in zip(node.outputs, trial.outputs, strict=True):
        if old is not None and new is not None:
            check_types(old, new)


def _check_dependents(old: Value, new: Value) -> None:
    """Check that the readers of a value still load and pass the ONNX checker once the value is constant.

    Likewise their readers, as far as the constant makes more sizes known.
    """
    seen, waiting = {old}, [(old, new)]
    while waiting:
        old, new = waiting.pop()
        for user in old.users:
            if user.graph.owner is None and user.op not in _LOOKED_AT and not user.subgraphs:
                continue  # nothing to check, and it may have thousands of operands
            told = _check_reader(user, [new if value is old else value for value in user.inputs])
            waiting += [pair for pair in told if pair[0] not in seen]
            seen.update(before for before, _ in told)


def _check_ranks(node: Node, inputs: Sequence[Value | None]) -> None:
    """Check the ranks of constants and defaults, which loading may reject; inference reads the data's shape first."""
    for at, rank in _RANKS.get(node.op, {}).items():
        value = inputs[at] if at < len(inputs) else None
        held = value and (value.tensor or value.constant_tensor)
        if held and (len(held.dims) != rank or (node.op == "Split" and held.dims == (0,))):
            raise Decline("{} does not accept this constant", node.op)


def _check_reader(node: Node, inputs: Sequence[Value | None]) -> list[tuple[Value, Value]]:
    """Check that a node with other operands loads and passes the ONNX checker; returns results that are better known.

    Most nodes that always run would fail anyway. A body may exist for unknown sizes, and never run.
    """
    check_loads(node, inputs)
    _check_ranks(node, inputs)
    if node.graph.owner is None:
        if node.op in _RANKS and is_refused(_trial(node, inputs, node.attrs)):
            raise Decline("{} does not accept this constant", node.op)
        return []
    if node.op.startswith("malformed "):
        raise malformed()
    _check_sizes(node, inputs)
    trial = _trial(node, inputs, node.attrs)
    if is_refused(trial) or are_misread(inputs):
        raise Decline("{} does not accept this constant", node.op)
    if not _is_typed(node):
        return []
    told = []
    _check_outcome(node, trial)
    for old, new in zip(node.outputs, trial.outputs, strict=True):
        if old is not None and new is not None:
            if old.shape is not None and new.shape is None:  # with a constant more is known, unless inference fails
                raise Decline("{} does not accept this constant", node.op)
            _check_put_out(old, new)
            if new.shape != old.shape:
                told.append((old, new))
    return told


def _check_put_out(old: Value, new: Value) -> None:
    """Check that a value has its declared type as a graph output, and that of the `If` output it is for."""
    owner = old.graph.owner
    around = zip(old.graph.outputs, owner.outputs, strict=True) if owner is not None and owner.op == "If" else ()
    for each in (old, *(result for inner, result in around if inner is old)):
        if each is not None and each.output_count:
            _check_agree(each.name, each.declared, new.type)


def _check_sizes(node: Node, inputs: Sequence[Value | None]) -> None:
    """Check that axes or sizes may become constant: no known type contradicts them.

    The ONNX checker knows less, and derives sizes from the defaults of overridable initializers: the operand must have
    a known rank, and no output of the body another shape than declared.
    """
    x = inputs[0] if inputs else None
    indices = [index for index in SIZE_OPERANDS.get(node.op, ()) if index < len(inputs)]
    if x is None or all(inputs[index] is node.input(index) for index in indices):
        return
    if x.shape is None and (x.type is None or isinstance(x.type, TensorType)) and x is node.input(0):
        raise Decline("the rank of {} is not known, so that the constant may be invalid for it", x.name)
    if node.op == "Squeeze" and any((each := inputs[index]) and each.shape == (0,) for index in indices):
        raise Decline("empty axes mean no axes to the checker, and all axes to runtimes")
    for value in node.graph.outputs:
        _check_agree(value.name, value.declared, value.type)


def check_readers(old: Value, new: Value, replaced: Collection[Node], at: Node) -> None:
    """Check that each reader of a value can read another one: it is visible by name, and computed before.

    Args:
        old: the value.
        new: its replacement.
        replaced: nodes that will be removed.
        at: the node before which new nodes are inserted.

    Raises:
        Decline: a reader cannot.
    """
    if (new.tensor or new.constant_tensor) is not None and old.constant_tensor is None:
        _check_dependents(old, new)
    near = old.producer is at or old.graph is not at.graph  # all readers of an output of the anchor come after it
    if near and not new.name:
        return
    for user in old.users:
        graph = user.graph
        if graph is not at.graph and new.name and not is_visible(new, graph):
            raise Decline("{} is shadowed where {} is read", new.name, old.name)
        if not near and user not in replaced and at_level(user, at.graph).order < at.order:
            raise Decline("{} is read before all replaced nodes are computed", old.name)


def check_output(old: Value, new: Value, *, taken: bool, constant: bool) -> None:
    """Check that a value can become a graph output in place of another one, under its name.

    Args:
        old: an output of a graph.
        new: its replacement.
        taken: whether `new` already replaces another output.
        constant: whether `new` is a new constant.

    Raises:
        Decline: it cannot.
    """
    if constant:
        raise Decline("{} is a graph output and cannot become an initializer", old.name)
    if old.graph.owner is not None and new.constant_tensor is not None:
        _check_agree(old.name, old.declared, new.type)
    if taken:
        raise Decline("{} would be the same value as another graph output", old.name)
    if not new.name:
        return
    if new.is_input or new.tensor is not None or new.is_sparse or new.output_count or new.producer is None:
        raise Decline("would merge two graph inputs, outputs or initializers, {} and {}", new.name, old.name)
    if new.graph is not old.graph:
        raise Decline("would output the captured value {} as {}", new.name, old.name)
    if any(user.graph is not new.graph and _hides(user.graph, new.graph, old.name) for user in new.users):
        raise Decline("{} cannot be renamed to {}: a subgraph that reads it uses that name", new.name, old.name)


def _hides(inner: Graph, outer: Graph, name: str) -> bool:
    scope: Graph | None = inner
    while scope is not None and scope is not outer:
        if name in scope.values:
            return True
        scope = scope.parent
    return False
