"""Sets models on which a rule fires, with one change, into larger models."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

from graphopt.fuzzing.building import Builder, Planted, made_by
from graphopt.fuzzing.drawing import Draw
from graphopt.fuzzing.variants import variant
from graphopt.verify.values import Array, numpy_dtype

if TYPE_CHECKING:
    from graphopt.fuzzing.stock import Fragment

MOST_ELEMENTS = 1 << 19
"""Of a value in a golden case; large, since some cases have to exceed the threshold above which a rewrite pays."""
_SIZES = (2, 3, 4, 1)
"""Sizes to draw for dynamic axes."""
_TRIES = 3
"""Variants of a model that are tried before it is used unchanged; many are not valid."""


def embed(
    b: Builder, model: onnx.ModelProto, *, surrounded: bool, varied: bool = True, often: float = 0.7
) -> bool:  # fmt: skip
    """Set a model, or a variant of it, into another; an empty builder takes over its opset.

    Args:
        b: the model.
        model: the model to embed.
        surrounded: whether some of its inputs may be computed.
        varied: whether something may be changed.
        often: the probability that a change is tried.
    """
    draw = b.draw
    for _ in range(_TRIES if varied and draw.chance(often) else 0):
        changed = variant(model, draw.rng.randrange(1 << 30))
        if changed is not None and draw.chance(0.3):
            changed = variant(changed[1], draw.rng.randrange(1 << 30)) or changed
        if changed is not None and _embed(b, changed[1], surrounded=surrounded):
            return True
    return _embed(b, model, surrounded=surrounded)


def _embed(b: Builder, model: onnx.ModelProto, *, surrounded: bool) -> bool:
    before = b.opset, dict(b.domains), list(b.inputs), list(b.order), list(b.nodes), list(b.functions)
    if not _takes_over(b, model):
        return False
    if _planted(b, model, surrounded=surrounded):
        return True
    b.opset, b.domains, b.inputs, b.order, b.nodes, b.functions = before
    return False


def _planted(b: Builder, model: onnx.ModelProto, *, surrounded: bool) -> bool:
    sizes: dict[str, int] = {}
    renamed: dict[str, str] = {}
    defaults = {tensor.name: tensor for tensor in model.graph.initializer}
    for info in model.graph.input:
        if info.name in defaults:
            continue
        array = _array(b.draw, info, sizes)
        if array is None:
            return False
        renamed[info.name] = _source(b, array, surrounded)
    return _set_in(b, model, renamed)


def plant_fragment(b: Builder, name: str, fragment: Fragment, *, woven: bool) -> bool:
    """Set a fragment into a model; its results are known, unless its inputs are replaced.

    Args:
        b: the model, of the fragment's opset.
        name: the fragment's name.
        fragment: the fragment.
        woven: whether some of its inputs may be values of the model, or computed.
    """
    before = len(b.nodes)
    done = _embed(b, fragment.model, surrounded=True) if woven else _set_as_it_is(b, fragment)
    if done:
        b.rules.append(fragment.rule)
        made = frozenset[str]().union(*map(made_by, b.nodes[before:]))
        b.planted[name] = Planted(made, fragment.form)
    return done


def _set_as_it_is(b: Builder, fragment: Fragment) -> bool:
    if not _takes_over(b, fragment.model):
        return False
    renamed = {name: b.input(array) for name, array in fragment.feed.items()}
    nodes, tensors = _renamed(b, fragment.model, renamed)
    _declare(b, fragment.model, renamed)
    b.nodes.extend(nodes)
    b.tensors.extend(tensors)
    b.held.update((renamed[name], array) for name, array in fragment.constants.items())
    for name, array in fragment.results.items():
        b.held[renamed[name]] = array
        b.order.append(renamed[name])
    b.opaque.update((renamed[name], kind) for name, kind in fragment.opaque.items())
    given = {info.name for info in fragment.model.graph.input}
    b.inputs.extend(renamed[name] for name in fragment.constants if name in given)
    return True


def _declare(b: Builder, model: onnx.ModelProto, renamed: dict[str, str]) -> None:
    """Declare the dynamic sizes of inputs as in their case; its symbols are renamed apart."""
    mark = next(iter(renamed.values()), "")
    for info in model.graph.input:
        if info.name in renamed and is_open(info):
            kind = b.declared[renamed[info.name]] = onnx.TypeProto()
            kind.CopyFrom(info.type)
            for dim in kind.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.dim_param = f"{dim.dim_param} of {mark}"


def is_open(info: onnx.ValueInfoProto) -> bool:
    """Whether some size of an input is dynamic."""
    return not all(dim.HasField("dim_value") for dim in info.type.tensor_type.shape.dim)


def _takes_over(b: Builder, model: onnx.ModelProto) -> bool:
    """Take over the opsets and functions of another model; whether they are compatible."""
    imports = {o.domain: o.version for o in model.opset_import}
    opset, known = imports.pop("", b.opset), {(f.domain, f.name, f.overload) for f in b.functions}
    if b.nodes and (
        opset != b.opset
        or any(b.domains.get(domain, version) != version for domain, version in imports.items())
        or any((f.domain, f.name, f.overload) in known for f in model.functions)
    ):
        return False
    b.opset = opset
    b.domains.update(imports)
    b.functions.extend(model.functions)
    return True


def numbers_for(model: onnx.ModelProto, draw: Draw, *, special: bool = False) -> dict[str, Array]:
    """Random arrays for those inputs of a model that are tensors of at most `MOST_ELEMENTS` elements.

    Args:
        model: the model.
        draw: the source of choices.
        special: whether NaN, infinities, denormals and the ends of the range are among them.
    """
    sizes: dict[str, int] = {}
    initial = {tensor.name for tensor in model.graph.initializer}
    infos = [info for info in model.graph.input if info.name not in initial]
    made = {info.name: _array(draw, info, sizes, special=special) for info in infos}
    return {name: array for name, array in made.items() if array is not None}


def _array(draw: Draw, info: onnx.ValueInfoProto, sizes: dict[str, int], *, special: bool = False) -> Array | None:
    """A random array for an input; None if it is not a tensor."""
    tensor = info.type.tensor_type
    dtype = numpy_dtype(tensor.elem_type)
    if info.type.WhichOneof("value") != "tensor_type" or dtype is None:
        return None
    shape = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value"):
            shape.append(dim.dim_value)
        else:
            shape.append(sizes.setdefault(dim.dim_param or f"{info.name}{len(shape)}", draw.one(_SIZES)))
    if any(d < 0 for d in shape) or math.prod(shape) > MOST_ELEMENTS:
        return None
    return draw.array(dtype, shape, special=special)


def _source(b: Builder, array: Array, surrounded: bool) -> str:
    """A name for a value: an existing value, an input, or the result of an operator on an input."""
    if surrounded and b.draw.chance(0.4):
        there = b.pick(lambda a: a.dtype == array.dtype and a.shape == array.shape)
        if there is not None:
            return there
    name = b.input(array)
    if not surrounded or array.dtype.kind != "f" or not array.size:
        return name
    op = b.draw.one(("Relu", "Neg", "Identity", "Abs", "Tanh", "Sigmoid"))
    made = b.emit(op, [name])
    return made[0] if made is not None else name


def _renamed(b: Builder, model: onnx.ModelProto, renamed: dict[str, str]) -> tuple[list[NodeProto], list[TensorProto]]:
    """The nodes and constants of a model under names that are not taken, which are added to `renamed`."""
    tensors = []
    for tensor in model.graph.initializer:
        copy = TensorProto()
        copy.CopyFrom(tensor)
        copy.name = renamed[tensor.name] = b.name("w")
        tensors.append(copy)
    for node in model.graph.node:
        for name in node.output:
            if name:
                renamed[name] = b.name(node.op_type)
    return [renamed_node(node, renamed) for node in model.graph.node], tensors


def _set_in(b: Builder, model: onnx.ModelProto, renamed: dict[str, str]) -> bool:
    graph = model.graph
    nodes, tensors = _renamed(b, model, renamed)
    made = {name for node in nodes for name in node.output}
    types = {renamed[info.name]: info.type for info in graph.output if renamed.get(info.name) in made}
    opaque = {name: kind for name, kind in types.items() if kind.WhichOneof("value") != "tensor_type"}
    results = [name for name in types if name not in opaque]
    if not b.extend(nodes, results, tensors, opaque=opaque, most=MOST_ELEMENTS):
        return False
    overridable = {info.name for info in graph.input}
    b.inputs.extend(renamed[t.name] for t in graph.initializer if t.name in overridable)
    return bool(types)


def renamed_node(node: NodeProto, names: dict[str, str]) -> NodeProto:
    """A copy that reads and computes values under other names, in its subgraphs too."""
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names.get(name, name) for name in node.input]
    copy.output[:] = [names.get(name, name) for name in node.output]
    for attribute in copy.attribute:
        if attribute.type == AttributeProto.GRAPH:
            _rename_captures(attribute.g, names)
    return copy


def _rename_captures(graph: GraphProto, names: dict[str, str]) -> None:
    own = {info.name for info in graph.input} | {t.name for t in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    outer = {old: new for old, new in names.items() if old not in own}
    nodes = [renamed_node(node, outer) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    for info in graph.output:
        info.name = outer.get(info.name, info.name)
