"""The view over a graph: `Value`, `Node` and `Graph`, linked to each other and read once from the protos."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from graphopt.errors import Decline
from graphopt.ir.attributes import decode_attribute
from graphopt.ir.forms import BROADCASTING_SINCE, MOVED, Moved
from graphopt.ir.schema import OpInfo, op_schema
from graphopt.ir.seal import SealedDict, shown, write
from graphopt.ir.tensor import Tensor
from graphopt.ir.value import Value

if TYPE_CHECKING:
    from graphopt.ir.model import Model


class Node:
    """One operator application.

    Attributes:
        op: the key by which rules are dispatched: `Conv`, `com.microsoft::FusedConv`. Calls of model-local functions,
            nodes with attribute references and nodes with an attribute of the wrong type have a key that no rule can
            name.
        op_type: operator name.
        domain: operator domain; `ai.onnx` reads as "".
        overload: the overload of a model-local function.
        name: node name, may be empty.
        graph: the graph that holds it.
        inputs: values read; None where an optional input is left out.
        outputs: values computed; None where an optional output is left out.
        subgraphs: graphs in its attributes, by attribute name.
        removed: whether it was removed from the graph.
        changed: whether it must be serialized anew.
        attrs_changed: whether its attributes must be serialized anew, too.
    """

    __slots__ = (
        "_attrs",
        "_devices",
        "_origin",
        "_places",
        "_proto",
        "_tensor",
        "attrs_changed",
        "changed",
        "domain",
        "graph",
        "inputs",
        "name",
        "next",
        "op",
        "op_type",
        "order",
        "outputs",
        "overload",
        "prev",
        "removed",
        "subgraphs",
    )  # fmt: skip

    def __init__(self, op_type: str, domain: str, graph: Graph, proto: onnx.NodeProto | None = None) -> None:
        self.op_type = op_type
        self.domain = domain
        self.op = op_type if not domain else f"{domain}::{op_type}"
        self.overload = ""
        self.name = ""
        self.graph = graph
        self.inputs: list[Value | None] = []
        self.outputs: list[Value | None] = []
        self.subgraphs: dict[str, Graph] = _NO_SUBGRAPHS
        self._proto = proto
        self._origin: onnx.NodeProto | None = None
        self._devices: onnx.NodeProto | None = None
        self._places: dict[Value | None, list[int]] | None = None
        self._attrs: dict[str, Any] | None = None
        self._tensor: Tensor | None = None
        self.prev: Node | None = None
        self.next: Node | None = None
        self.order = 0
        self.removed = False
        self.changed = self.attrs_changed = proto is None

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The explicit attributes of the node, decoded."""
        attrs = self._attrs
        if attrs is None:
            attributes = self._proto.attribute if self._proto is not None else ()
            attrs = SealedDict([(a.name, decode_attribute(a)) for a in attributes])
            write(self, "_attrs", attrs)
        return attrs

    @property
    def proto(self) -> onnx.NodeProto | None:
        """The proto that it was read from, not to be changed; None for a new node."""
        return None if self._proto is None else shown(self._proto)

    def attr(self, name: str, default: Any = None) -> Any:
        """The attribute's value: the explicit one, else its default at this opset, else `default`."""
        attrs = self._attrs
        value = (self.attrs if attrs is None else attrs).get(name)
        if value is not None:
            return value
        schema = op_schema(self.op_type, self.domain, self.graph.opsets.get(self.domain, 0))
        return schema.defaults.get(name, default) if schema is not None else default

    @property
    def schema(self) -> OpInfo | None:
        """The operator's definition at this graph's opset, or None if unknown."""
        return op_schema(self.op_type, self.domain, self.graph.opsets.get(self.domain, 0))

    def input(self, index: int) -> Value | None:
        """The input at a position, None if left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def operand(self, index: int) -> Value:
        """A required input; loading ensures that each node of a known operator has all of them.

        Raises:
            Decline: it is left out.
        """
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise Decline("input {} of {} is left out", index, self.op)
        return value

    def array(self, index: int, default: np.ndarray) -> np.ndarray:
        """The contents of a constant input, read-only; the default if it is left out.

        Raises:
            Decline: it is not constant.
        """
        value = self.inputs[index] if index < len(self.inputs) else None
        return default if value is None else value.array()

    @property
    def operands(self) -> list[Value]:
        """The inputs, without optional ones that are left out."""
        return [value for value in self.inputs if value is not None]

    @property
    def results(self) -> list[Value]:
        """The outputs that have a name."""
        return [value for value in self.outputs if value is not None]

    @property
    def result(self) -> Value:
        """The first output.

        Raises:
            Decline: it is left out.
        """
        value = self.outputs[0] if self.outputs else None
        if value is None:
            raise Decline("the first output of {} is left out", self.op)
        return value

    def stated(self, name: str) -> Any:
        """A setting such as `axes` or `pads`, in the form that it has at this opset.

        Returns:
            The attribute, or the value of the input that replaced it; None if it is left out.
        """
        form = _form(self.op, name)
        if form is None:
            return self.attr(name)
        if self.graph.opset() >= form.since:
            return self.input(form.index)
        return next((found for key in form.names or (name,) if (found := self.attr(key)) is not None), None)

    def ints(self, name: str) -> tuple[int, ...] | None:
        """A list of integers, such as axes or pads, whether it is an attribute or an input at this opset.

        Returns:
            The integers; None if they are left out.

        Raises:
            Decline: they are an input that is not constant.
        """
        given = self.stated(name)
        if isinstance(given, Value):
            return given.ints()
        return None if given is None else tuple(map(int, given))

    def number(self, name: str) -> float | int | None:
        """A single number, such as a bound or a fill value, whether it is an attribute or an input at this opset.

        Returns:
            The number; None if it is left out.

        Raises:
            Decline: it is an input that is not a constant of one element.
        """
        given: Any = self.stated(name)
        if isinstance(given, Value):
            array = given.array()
            if array.size != 1:
                raise Decline("{} is not a single number", given.name)
            given = array.reshape(-1)[0].item()
        number: float | int | None = given
        return number

    def output(self, index: int) -> Value | None:
        """The output at a position, None if left out."""
        return self.outputs[index] if index < len(self.outputs) else None

    def constant_tensor(self) -> Tensor | None:
        """The tensor of a `Constant` node, from any of its attributes; None if it is sparse or has several."""
        if self._tensor is None and len(self.attrs) == 1:
            for name, value in self.attrs.items():
                if name == "value" and isinstance(value, Tensor) and value.is_known:
                    write(self, "_tensor", value)
                elif name in _CONSTANT_TYPES and not isinstance(value, onnx.AttributeProto):
                    write(self, "_tensor", _as_tensor(value, _CONSTANT_TYPES[name]))
        return self._tensor

    def __repr__(self) -> str:
        outputs = ", ".join(v.name for v in self.outputs if v is not None)
        return f"Node({self.op}{' ' + repr(self.name) if self.name else ''} -> {outputs})"


def _form(op: str, name: str) -> Moved | None:
    moved = MOVED.get(op)
    return moved.get(name) if moved is not None else None


def _as_tensor(value: Any, kind: Any) -> Tensor:
    """The contents of a `Constant`, which a caller's attribute may have given another type."""
    try:
        return Tensor.from_array(np.asarray(value, dtype=kind))
    except (ValueError, TypeError):
        raise Decline("the contents {} of a Constant are of another type", value) from None


_NO_SUBGRAPHS: dict[str, Any] = SealedDict()
_CONSTANT_TYPES: dict[str, Any] = {
    "value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32,
    "value_string": object, "value_strings": object,
}  # fmt: skip


class Graph:
    """A graph: the main one, the body of a control-flow operator, or a model-local function.

    Iteration yields the nodes in topological order, and nodes may be removed or inserted meanwhile: a node
    inserted after the current one is visited, one inserted before it is not.

    Attributes:
        name: its name; for functions `domain::name`.
        model: the model.
        parent: the graph around it, None for the main graph and functions.
        owner: the node whose attribute it is, None for the main graph and functions.
        inputs: its inputs.
        outputs: its outputs.
        values: every value of this scope by name; values of outer scopes are not in it.
        owners: the nodes that have subgraphs.
        is_function: whether it is a model-local function, which has no initializers and untyped inputs.
        changed: whether it must be serialized anew.
    """

    __slots__ = (
        "_annotated", "_count", "_listed", "_places", "_proto", "changed", "first", "inputs", "is_function", "last",
        "model", "name", "opsets", "outputs", "owner", "owners", "parent", "values",
    )  # fmt: skip

    def __init__(
        self, model: Model, name: str, proto: onnx.GraphProto | onnx.FunctionProto, opsets: dict[str, int],
        *, parent: Graph | None = None, owner: Node | None = None,
    ) -> None:  # fmt: skip
        self.model = model
        self.name = name
        self._proto = proto
        self.opsets = opsets
        self.parent = parent
        self.owner = owner
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.values: dict[str, Value] = {}
        self.owners: dict[Node, None] = {}
        self.is_function = isinstance(proto, onnx.FunctionProto)
        self.first: Node | None = None
        self.last: Node | None = None
        self.changed = False
        self._count = 0
        self._listed: list[Node] | None = None
        self._places: dict[Value | None, list[int]] | None = None
        self._annotated: frozenset[str] | None = None

    @property
    def defaults(self) -> list[Value]:
        """Its inputs that are also initializers: a caller may override them."""
        return [value for value in self.inputs if value.tensor is not None or value.is_sparse]

    @property
    def annotated(self) -> frozenset[str]:
        """Names of the initializers in the quantization annotations of the graph."""
        if self._annotated is None:
            notes = self._proto.quantization_annotation if isinstance(self._proto, onnx.GraphProto) else ()
            names = frozenset(entry.value for note in notes for entry in note.quant_parameter_tensor_names)
            write(self, "_annotated", names)
            return names
        return self._annotated

    @property
    def proto(self) -> onnx.GraphProto | onnx.FunctionProto:
        """The proto that it was read from, not to be changed."""
        return shown(self._proto)

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Node]:
        node = self.first
        while node is not None:
            if not node.removed:
                yield node
            node = node.next

    def __reversed__(self) -> Iterator[Node]:
        node = self.last
        while node is not None:
            if not node.removed:
                yield node
            node = node.prev

    def listed(self) -> list[Node]:
        """The current nodes in topological order, as a list that must not be changed.

        The list is cached until the order changes, for code that visits every node repeatedly.
        """
        found = self._listed
        if found is None:
            found = []
            node = self.first
            while node is not None:
                if not node.removed:
                    found.append(node)
                node = node.next
            write(self, "_listed", found)
        return found

    @property
    def initializers(self) -> Iterator[Value]:
        """The dense initializers, overridable ones included."""
        return (value for value in self.values.values() if value.tensor is not None)

    @property
    def outermost(self) -> Graph:
        """The main graph or the function that contains it, or the graph itself."""
        graph = self
        while graph.parent is not None:
            graph = graph.parent
        return graph

    @property
    def in_function(self) -> bool:
        """Whether it is a model-local function, or inside one."""
        return self.outermost.is_function

    @property
    def scope(self) -> str:
        """The name of the function that contains it, "" in the main graph. Equal names in two scopes are two values."""
        outermost = self.outermost
        return outermost.name if outermost.is_function else ""

    def opset(self, domain: str = "") -> int:
        """The imported version of an operator domain, 0 if it is not imported."""
        return self.opsets.get(domain, 0)

    def broadcasts(self, op: str) -> bool:
        """Whether an elementwise operator broadcasts all operands here; older opsets broadcast at most the second."""
        return self.opset() >= BROADCASTING_SINCE.get(op, 7)

    def has(self, op: str, attribute: str = "") -> bool:
        """Whether the standard has an operator, with an attribute, at the opset of the graph."""
        schema = op_schema(op, "", self.opset())
        return schema is not None and (not attribute or attribute in schema.attributes)

    def before(self, a: Node, b: Node) -> bool:
        """Whether node `a` of this graph comes before node `b` of this graph."""
        return a.order < b.order

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {self._count} nodes)"
