"""Reduces a model that shows a fault until nothing more can be removed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

from graphopt.fuzzing.building import Sample, element_type, evaluate, makeshift, prune, stored
from graphopt.verify.source import all_nodes, read_by
from graphopt.verify.values import Array, is_float

Fails = Callable[[Sample], bool]
"""Whether a sample still shows the fault."""

_ROUNDS = 6
_FLOATS = (TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def shrink(sample: Sample, fails: Fails, seconds: float = 20.0) -> Sample:
    """The smallest sample found that still fails: first fewer nodes, then smaller tensors, then simpler ones.

    Args:
        sample: a sample that fails, whose first feed shows it.
        fails: called for each candidate, which may be invalid.
        seconds: after this time the smallest sample so far is returned.
    """
    until = time.monotonic() + seconds
    best = Sample(sample.model, sample.feeds[:1], sample.kind, sample.seed, sample.rules)
    for _ in range(_ROUNDS):
        size = _size(best)
        for step in STEPS:
            best = _exhaust(best, step, fails, until)
        if _size(best) == size or time.monotonic() > until:
            break
    return best


def narrow(sample: Sample, fails: Fails) -> Sample:
    """The part of a sample that fails, if its model has parts that share no computed value.

    Args:
        sample: a sample that fails.
        fails: called for each half of the remaining parts.
    """
    best, parts = sample, _parts(sample.model.graph)
    while len(parts) > 1:
        half = len(parts) // 2
        for some in (parts[:half], parts[half:]):
            made = _copy(best)
            names = set().union(*some)
            infos = [info for info in best.model.graph.output if info.name in names]
            del made.model.graph.output[:]
            made.model.graph.output.extend(infos)
            if infos and fails(_pruned(made)):
                best, parts = made, some
                break
        else:
            break
    return best


def _parts(graph: onnx.GraphProto) -> list[set[str]]:
    """The connected components of the values that nodes compute."""
    parts: list[set[str]] = []
    shared = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer} | {""}
    for node in graph.node:
        read = set(read_by(node))
        names = (read | set(node.output)) - shared
        if not read:  # a constant
            shared |= set(node.output)
            continue
        touched = [part for part in parts if part & names]
        parts = [part for part in parts if not part & names] + [names.union(*touched)]
    return parts


def _exhaust(best: Sample, step: Callable[[Sample], Iterator[Sample]], fails: Fails, until: float) -> Sample:
    """Repeat a step as long as one of its candidates fails."""
    found = True
    while found:
        found = False
        for candidate in step(best):
            if time.monotonic() > until:
                return best
            if _size(candidate) < _size(best) and fails(candidate):
                best, found = candidate, True
                break
    return best


def _size(sample: Sample) -> tuple[int, ...]:
    """The measure to reduce: nodes, values at the interface, attributes, elements, unusual numbers, bytes."""
    graph = sample.model.graph
    nodes = list(all_nodes(graph.node))
    arrays = [numpy_helper.to_array(t) for t in graph.initializer] + list(sample.feeds[0].values())
    plain = sum(int(np.count_nonzero((a != 0) & (a != 1))) for a in arrays if a.dtype.kind in "fiu")
    odd = sum(is_float(a.dtype) and a.dtype != np.float32 for a in arrays)
    listed = len(graph.input) + 2 * len(graph.output) + len(graph.initializer) + len(sample.model.functions)
    named = sum(not d.HasField("dim_value") for i in graph.input for d in i.type.tensor_type.shape.dim)
    constants = sum(node.op_type == "Constant" for node in nodes)
    attributes = sum(len(node.attribute) for node in nodes)
    elements = sum(a.size for a in arrays)
    return (
        len(nodes) - constants,
        listed + constants,
        constants,
        attributes,
        elements,
        odd,
        named,
        plain,
        sample.model.ByteSize(),
    )


def _copy(sample: Sample) -> Sample:
    model = ModelProto()
    model.CopyFrom(sample.model)
    return Sample(model, [dict(sample.feeds[0])], sample.kind, sample.seed, sample.rules)


def _values(sample: Sample) -> dict[str, Array]:
    """Every tensor of the main graph, evaluated on the feed."""
    graph = sample.model.graph
    feed = sample.feeds[0]
    tensors = [t for t in graph.initializer if t.name not in feed]
    tensors += [stored(array, name) for name, array in feed.items()]
    names = [name for node in graph.node for name in node.output if name]
    model = makeshift(graph.node, tensors, names, sample.model.opset_import, sample.model.functions)
    found = evaluate(model) or []
    return {n: a for n, a in zip(names, found, strict=False) if isinstance(a, np.ndarray)}


def _pruned(sample: Sample) -> Sample:
    """The sample without nodes, constants and inputs that nothing reads."""
    needed = prune(sample.model.graph)
    sample.feeds[0] = {name: array for name, array in sample.feeds[0].items() if name in needed}
    return sample


# -- steps


def _fewer_outputs(sample: Sample) -> Iterator[Sample]:
    """A single output, or one output fewer."""
    count = len(sample.model.graph.output)
    for keep in [[i] for i in range(count)] + [[j for j in range(count) if j != i] for i in range(count)]:
        if not keep or len(keep) == count:
            continue
        made = _copy(sample)
        infos = [made.model.graph.output[i] for i in keep]
        copies = [onnx.ValueInfoProto.FromString(info.SerializeToString()) for info in infos]
        del made.model.graph.output[:]
        made.model.graph.output.extend(copies)
        yield _pruned(made)


def _earlier_outputs(sample: Sample) -> Iterator[Sample]:
    """An intermediate value as the only output."""
    values = _values(sample)
    ends = {info.name for info in sample.model.graph.output}
    for name, array in values.items():
        if name in ends and len(ends) == 1:
            continue
        made = _copy(sample)
        del made.model.graph.output[:]
        made.model.graph.output.append(_declared(name, array))
        yield _pruned(made)


def _declared(name: str, array: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type(array), [None] * array.ndim)


def _later_inputs(sample: Sample) -> Iterator[Sample]:
    """An intermediate value as an input, so that its producers can be removed."""
    values = _values(sample)
    for node in reversed(sample.model.graph.node):
        if not all(name in values for name in node.output if name) or node.op_type == "Constant":
            continue
        made = _copy(sample)
        graph = made.model.graph
        graph.node.remove(node)
        for name in (n for n in node.output if n):
            graph.input.append(helper.make_tensor_value_info(name, element_type(values[name]), values[name].shape))
            made.feeds[0][name] = values[name]
        yield _pruned(made)


def _bypassed(sample: Sample) -> Iterator[Sample]:
    """A node replaced with one of its operands."""
    values = {**{t.name: numpy_helper.to_array(t) for t in sample.model.graph.initializer}, **sample.feeds[0]}
    values.update(_values(sample))
    ends = {info.name for info in sample.model.graph.output}
    for at, node in enumerate(sample.model.graph.node):
        out = node.output[0] if node.output else ""
        for name in node.input:
            if out in ends or name not in values or out not in values:
                continue
            if values[name].dtype != values[out].dtype or values[name].shape != values[out].shape:
                continue
            made = _copy(sample)
            del made.model.graph.node[at]
            for other in made.model.graph.node:
                other.input[:] = [name if n == out else n for n in other.input]
            yield _pruned(made)


def _bare(sample: Sample) -> Iterator[Sample]:
    """The model without annotations; constants as initializers, all sizes static."""
    made = _copy(sample)
    model, graph = made.model, made.model.graph
    del model.metadata_props[:], graph.value_info[:]
    model.ClearField("doc_string")
    for node in graph.node:
        node.ClearField("name")
    yield made
    fixed = _copy(made)
    for info in fixed.model.graph.input:
        array = fixed.feeds[0].get(info.name)
        if array is not None:
            info.CopyFrom(helper.make_tensor_value_info(info.name, element_type(array), array.shape))
    yield fixed
    for node in [n for n in graph.node if n.op_type == "Constant" and n.attribute and n.attribute[0].HasField("t")]:
        other = _copy(made)
        other.model.graph.node.remove(node)
        other.model.graph.initializer.add().CopyFrom(node.attribute[0].t)
        other.model.graph.initializer[-1].name = node.output[0]
        yield other
    for info in [i for i in graph.input if i.name in {t.name for t in graph.initializer}]:
        other = _copy(made)
        other.model.graph.input.remove(info)
        if (given := other.feeds[0].pop(info.name, None)) is not None:
            tensor = next(t for t in other.model.graph.initializer if t.name == info.name)
            tensor.CopyFrom(stored(given, info.name))
        yield other
    for function in model.functions:
        other = _copy(made)
        other.model.functions.remove(function)
        yield other
    used = {node.domain for node in all_nodes(graph.node)} | {n.domain for f in model.functions for n in f.node} | {""}
    if any(entry.domain not in used for entry in model.opset_import):
        other = _copy(made)
        kept = [entry for entry in model.opset_import if entry.domain in used]
        del other.model.opset_import[:]
        other.model.opset_import.extend(kept)
        yield other


def _attributes(sample: Sample) -> Iterator[Sample]:
    """The model without one attribute."""
    for at, node in enumerate(sample.model.graph.node):
        for attribute in node.attribute:
            if attribute.type != AttributeProto.GRAPH and node.op_type != "Constant":
                made = _copy(sample)
                made.model.graph.node[at].attribute.remove(attribute)
                yield made


def _operands(sample: Sample) -> Iterator[Sample]:
    """The model without the last operand of a node."""
    for at, node in enumerate(sample.model.graph.node):
        if len(node.input) > 1:
            made = _copy(sample)
            made.model.graph.node[at].input.pop()
            yield _pruned(made)


def _sizes(sample: Sample) -> Iterator[Sample]:
    """A smaller size, wherever it occurs, or on one axis of one tensor."""
    graph = sample.model.graph
    sizes = sorted(
        {d for a in sample.feeds[0].values() for d in a.shape} | {d for t in graph.initializer for d in t.dims}
    )
    for old in reversed(sizes):
        for new in sorted({1, 2, old // 2, old - 1}):
            if 0 < new < old:
                yield _resized(sample, old, new, lists=True)
                yield _resized(sample, old, new, lists=False)
    for name, array in sample.feeds[0].items():
        for axis, size in enumerate(array.shape):
            if size > 1:
                yield _resized(sample, size, 1, lists=False, only=(name, axis))
    for tensor in graph.initializer:
        for axis, size in enumerate(tensor.dims):
            if size > 1:
                yield _resized(sample, size, 1, lists=False, only=(tensor.name, axis))


def _resized(sample: Sample, old: int, new: int, *, lists: bool, only: tuple[str, int] | None = None) -> Sample:
    made = _copy(sample)

    def shape(name: str, before: Any) -> list[int]:
        return [new if d == old and (only is None or only == (name, axis)) else d for axis, d in enumerate(before)]

    def change(name: str, array: Array) -> Array:
        if lists and array.dtype.kind in "iu" and array.ndim == 1:
            array = np.where(array == old, new, array).astype(array.dtype)
        wanted = shape(name, array.shape)
        if tuple(wanted) == array.shape:
            return array
        return np.ascontiguousarray(array[tuple(slice(0, d) for d in wanted)])

    for name, array in made.feeds[0].items():
        made.feeds[0][name] = change(name, array)
    for tensor in made.model.graph.initializer:
        tensor.CopyFrom(stored(change(tensor.name, numpy_helper.to_array(tensor)), tensor.name))
    for info in made.model.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value == old and only in (None, (info.name, axis)):
                dim.dim_value = new
    return _undeclared(made)


def _undeclared(sample: Sample) -> Sample:
    for info in sample.model.graph.output:
        for dim in info.type.tensor_type.shape.dim:
            dim.Clear()
    return sample


def _numbers(sample: Sample) -> Iterator[Sample]:
    """A tensor of ones or zeros, or with one element set to 1."""
    named = {**{t.name: numpy_helper.to_array(t) for t in sample.model.graph.initializer}, **sample.feeds[0]}
    for name, array in named.items():
        if array.dtype.kind not in "fiu" or not array.size:
            continue
        for value in (1, 0):
            yield _with(sample, name, np.full(array.shape, value, array.dtype))
        flat = array.reshape(-1)
        for at in range(min(array.size, 16)):
            if flat[at] not in (0, 1):
                changed = flat.copy()
                changed[at] = 1
                yield _with(sample, name, changed.reshape(array.shape))


def _with(sample: Sample, name: str, array: Array) -> Sample:
    made = _copy(sample)
    if name in made.feeds[0]:
        made.feeds[0][name] = array
    for tensor in made.model.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(stored(array, name))
    return made


def _types(sample: Sample) -> Iterator[Sample]:
    """All floats of another type as float32."""
    for old in _FLOATS:
        made = _copy(sample)
        for tensor in made.model.graph.initializer:
            if tensor.data_type == old:
                tensor.CopyFrom(stored(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
        for info in (*made.model.graph.input, *made.model.graph.output):
            if info.type.tensor_type.elem_type == old:
                info.type.tensor_type.elem_type = TensorProto.FLOAT
        for name, array in made.feeds[0].items():
            if element_type(array) == old:
                made.feeds[0][name] = array.astype(np.float32)
        for node in made.model.graph.node:
            for attribute in node.attribute:
                if attribute.name == "to" and attribute.i == old:
                    attribute.i = TensorProto.FLOAT
        yield made


def _plain_names(sample: Sample) -> Iterator[Sample]:
    """Short names, numbered in order."""
    made = _copy(sample)
    graph = made.model.graph
    if any(a.type == AttributeProto.GRAPH for node in graph.node for a in node.attribute):
        return
    names: dict[str, str] = {"": ""}
    for kind, listed in (("x", [i.name for i in graph.input]), ("w", [t.name for t in graph.initializer])):
        for name in listed:
            names.setdefault(name, f"{kind}{sum(n.startswith(kind) for n in names.values())}")
    for node in graph.node:
        for name in node.output:
            names.setdefault(name, f"v{sum(n.startswith('v') for n in names.values())}")
    for node in graph.node:
        node.input[:] = [names[n] for n in node.input]
        node.output[:] = [names[n] for n in node.output]
    for info in (*graph.input, *graph.output):
        info.name = names[info.name]
    for tensor in graph.initializer:
        tensor.name = names[tensor.name]
    made.feeds[0] = {names[name]: array for name, array in made.feeds[0].items()}
    yield made


STEPS = (
    _fewer_outputs, _earlier_outputs, _later_inputs, _bypassed, _bare, _operands, _attributes, _sizes, _types, _numbers,
    _plain_names,
)  # fmt: skip
"""Reduction steps, those that reduce most first."""

__all__ = ["STEPS", "Fails", "narrow", "shrink"]
