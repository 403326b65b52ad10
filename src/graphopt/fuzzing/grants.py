"""Places of infinities and NaN that a result need not share with its original: docs/adr/0001-scope-and-numerics.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from graphopt.fuzzing.usual import values_of
from graphopt.verify import compare
from graphopt.verify.jitter import float_types
from graphopt.verify.runners import CannotLoadError, OrtRunner, RunError
from graphopt.verify.source import Source, all_nodes, read_by
from graphopt.verify.values import Array, is_float


def counts_floats(model: onnx.ModelProto) -> set[str]:
    """The outputs of a model that depend on the last bit of computed floats: their shapes, or their digits as text."""
    if not any(map(_tells_bits, model.graph.node)):
        return set()
    computed, found = float_types(model), set[str]()
    for node in model.graph.node:
        read = set(read_by(node))
        if read & found or (_tells_bits(node) and node.input[0] in computed):
            found.update(node.output)
    return found & {info.name for info in model.graph.output}


def _tells_bits(node: onnx.NodeProto) -> bool:
    """Whether an operator compares floats for equality, also with zero, or writes floats as text."""
    as_text = any(each.name == "to" and each.i == onnx.TensorProto.STRING for each in node.attribute)
    return node.op_type in ("NonZero", "Unique") or (node.op_type == "Cast" and as_text)


def overflows_integers(model: onnx.ModelProto, feed: dict[str, Array]) -> bool:
    """Whether an integer power overflows: the kernel's result then depends on the exponent."""
    powers = [node for node in model.graph.node if node.op_type == "Pow" and not node.domain]
    found = values_of(model, feed, [name for node in powers for name in node.input]) if powers else None
    for base, exponent in (((found or {}).get(name) for name in node.input) for node in powers):
        if not isinstance(base, np.ndarray) or base.dtype.kind not in "iu" or not isinstance(exponent, np.ndarray):
            continue
        with np.errstate(all="ignore"):
            power = np.power(base.astype(np.float64), exponent.astype(np.float64))
        if not (np.abs(power) <= np.iinfo(base.dtype).max).all():
            return True
    return False


def reads_unwritten(model: onnx.ModelProto, feed: dict[str, Array]) -> bool:
    """Whether the runtime reads uninitialized memory.

    That is the case for a `MatMulNBits` of 2 bits with groups, for a `Cast` whose `saturate` is neither 0 nor 1, and
    for the `Sign` of a float16 NaN.
    """
    for node in all_nodes(model.graph.node):
        stated = {attribute.name: attribute.i for attribute in node.attribute}
        if node.op_type == "MatMulNBits" and stated.get("bits") == _UNPACKED and any(node.input[_GROUPS : _GROUPS + 1]):
            return True
        if node.op_type in ("Cast", "CastLike") and stated.get("saturate", 1) not in (0, 1):
            return True
    signed = [node.input[0] for node in model.graph.node if node.op_type == "Sign"]
    found = (values_of(model, feed, signed) or {}).values() if signed else ()
    return any(np.isnan(each).any() for each in found if isinstance(each, np.ndarray) and each.dtype == np.float16)


_UNPACKED, _GROUPS = 2, 4


def overwrites(model: onnx.ModelProto) -> bool:
    """Whether the results of a model depend on the order in which the runtime executes its nodes.

    In training mode `BatchNormalization` updates a computed mean and variance in place, even if other nodes read
    them.
    """
    nodes = list(all_nodes(model.graph.node))
    reads = Counter(name for node in nodes for name in node.input) + Counter(info.name for info in model.graph.output)
    made = {name for node in nodes for name in node.output if name}
    return any(
        reads[name] > 1 and name in made
        for node in nodes
        if node.op_type == "BatchNormalization" and _trains(node)
        for name in node.input[_RUNNING:]
    )


_RUNNING = 3


def _trains(node: onnx.NodeProto) -> bool:
    return len(node.output) > 1 or any(stated.name == "training_mode" and stated.i for stated in node.attribute)


def planned_wrongly(result: onnx.ModelProto, feed: dict[str, Array]) -> list[Any] | None:
    """The outputs of a result that fails as it is, run without stated shapes and with separate memory for each value.

    The runtime sizes a value by onnx's inference, which is known to be wrong for some operators
    (docs/runtime-differences.md). Which buffer is then too small depends on the order of the nodes.

    Returns:
        The outputs; None if the shapes that the result states are the fault, or if it runs neither way.
    """
    silent = onnx.ModelProto.FromString(result.SerializeToString())
    del silent.graph.value_info[:]
    taken = {info.name for info in result.graph.input}
    given = {name: array for name, array in feed.items() if name in taken}
    try:
        OrtRunner(Source(silent, "silent")).run(given)
    except (CannotLoadError, RunError):
        names = [info.name for info in result.graph.output]
        made = [name for node in silent.graph.node for name in node.output if name]
        found = values_of(silent, given, list(dict.fromkeys((*names, *made))))
        return None if found is None else [found[name] for name in names]
    return None


def is_of_infinite_constants(
    model: onnx.ModelProto, result: onnx.ModelProto, feed: dict[str, Array], old: Sequence[Any], new: Sequence[Any]
) -> bool:
    """Whether floats are finite in the same places, and all outputs agree once each infinite constant is 1 or -1.

    An infinite constant tells an exact 0 from a rounding error: one gives NaN, the other an infinity.
    """
    if not any(map(_is_infinite, model.graph.initializer)) or len(old) != len(new):
        return False
    if not all(map(_are_finite_alike, old, new)):
        return False
    return compare(_finite(model), _finite(result), numerics="rounding", inputs=feed).status in ("equal", "close")


def _are_finite_alike(old: Any, new: Any) -> bool:
    if not isinstance(old, np.ndarray) or not isinstance(new, np.ndarray):
        return False
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        return False
    return not is_float(old.dtype) or bool((np.isfinite(old) == np.isfinite(new)).all())


def _finite(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose infinite initializers are 1 instead, or -1 if negative."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if _is_infinite(tensor):
            array = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(np.where(np.isinf(array), np.sign(array), array), tensor.name))
    return copy


def _is_infinite(tensor: TensorProto) -> bool:
    wide = tensor.data_type in (TensorProto.FLOAT, TensorProto.DOUBLE)
    return wide and bool(np.isinf(numpy_helper.to_array(tensor)).any())
