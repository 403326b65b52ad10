"""Changes of the interface on request: fixed shapes of inputs, and initializers that stop being inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import index
from typing import SupportsIndex, cast

import onnx

from graphopt.errors import UsageError
from graphopt.ir.edit import mark_changed, set_ir_version
from graphopt.ir.flush import IR_WITH_FREE_INITIALIZERS
from graphopt.ir.messages import as_text
from graphopt.ir.model import Model, Source
from graphopt.ir.seal import check_unsealed
from graphopt.ir.types import TensorType


def load_fixed(
    source: Source, shapes: Mapping[str, Sequence[int]] | None, dims: Mapping[str, int] | None, *,
    inplace: bool = False, opaque: str | None = None, constant_initializers: bool = False,
) -> Model:  # fmt: skip
    """Load a model and fix its interface; a given proto stays as it is unless `inplace`.

    Args:
        source: see `Model.load`.
        shapes: see `fix_shapes`.
        dims: see `fix_shapes`.
        inplace: whether the given proto may change.
        opaque: which weights are left unread; see `Model.load`.
        constant_initializers: whether initializers stop being inputs; see `fix_initializers`.

    Raises:
        ModelError: the model cannot be read.
        UsageError: the sizes do not match the model.
    """
    if (shapes or dims or constant_initializers) and isinstance(source, onnx.ModelProto) and not inplace:
        copy = onnx.ModelProto()
        copy.CopyFrom(source)
        source, inplace = copy, True
    model = Model.load(source, inplace=inplace, opaque=opaque)
    if shapes or dims:
        fix_shapes(model, shapes, dims)
    if constant_initializers:
        fix_initializers(model)
    return model


@contextmanager
def restored_on_error(source: object) -> Iterator[None]:
    """Context that restores the interface of a proto, which `load_fixed` may change in place, if its body raises.

    Args:
        source: a proto that may be changed; anything else is left alone.
    """
    graph = source.graph if isinstance(source, onnx.ModelProto) else onnx.GraphProto()
    kept = onnx.GraphProto(input=graph.input, output=graph.output)
    try:
        yield
    except BaseException:
        for field, before in ((graph.input, kept.input), (graph.output, kept.output)):
            del field[:]
            field.extend(before)
        raise


def fix_initializers(model: Model) -> None:
    """Remove the initializers of the main graph from its inputs, which makes them constants.

    Before IR version 4 all initializers must be inputs, so the model is raised to IR version 4.

    Args:
        model: a model that owns its proto.
    """
    check_unsealed("the interface")
    graph, listed = model.graph, model.proto.graph.input
    defaults = {value.name: value for value in graph.defaults}
    if not defaults:
        return
    for value in defaults.values():
        value.is_input, value._info = False, None
        value.type = None if value.tensor is None else TensorType(value.tensor.dtype, value.tensor.dims)
    graph.inputs = [value for value in graph.inputs if value.is_input]
    kept = [info for info in listed if info.name not in defaults]
    del listed[:]
    listed.extend(kept)
    set_ir_version(model, max(model.ir_version, IR_WITH_FREE_INITIALIZERS))
    mark_changed(graph)


def fix_shapes(
    model: Model, shapes: Mapping[str, Sequence[int]] | None = None, dims: Mapping[str, int] | None = None
) -> None:
    """Fix shapes of inputs, and sizes of symbolic dimensions wherever their names occur in the interface.

    Args:
        model: a model that owns its proto.
        shapes: from the name of an input to its shape.
        dims: from the name of a symbolic dimension (`dim_param`) to its size.

    Raises:
        UsageError: there is no such input or symbol, the rank differs, or a fixed size would be changed.
    """
    check_unsealed("the interface")
    proto = model.proto.graph
    inputs = {info.name: info.type.tensor_type for info in proto.input if info.type.HasField("tensor_type")}
    sizes = {symbol: whole_size(size, f"dimension {symbol!r}") for symbol, size in (dims or {}).items()}
    fixed: dict[str, list[int]] = {}
    for name, shape in (shapes or {}).items():
        if name not in inputs:
            raise UsageError(f"no input {name!r} to give a shape; inputs are {', '.join(inputs) or 'none'}")
        fixed[name] = whole_sizes(shape, f"input {name!r}")
        _check_input(name, inputs[name], fixed[name], sizes)
    known = {as_text(d.dim_param) for t in inputs.values() for d in t.shape.dim if d.dim_param}
    for symbol in dims or {}:
        if symbol not in known:
            raise UsageError(f"no symbolic dimension {symbol!r}; the inputs have {', '.join(sorted(known)) or 'none'}")
    for name, shape in fixed.items():  # nothing is changed before everything is checked
        _fix_input(inputs[name], shape)
    for info in (*proto.input, *proto.output):
        for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
            if (symbol := as_text(dim.dim_param)) in sizes:
                dim.dim_value = sizes[symbol]
    mark_changed(model.graph)


def whole_sizes(shape: object, what: str) -> list[int]:
    """A shape as a list of sizes; see `whole_size`.

    Args:
        shape: the given shape.
        what: the name of the shaped object in messages.

    Raises:
        UsageError: it is no list, or has another element than a size.
    """
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable):
        raise UsageError(f"{what}: expected a shape such as [1, 3, 224, 224], found {shape!r}")
    return [whole_size(size, what) for size in shape]


def whole_size(size: object, what: str) -> int:
    """A size as an int; NumPy's integers are accepted, too.

    Args:
        size: the given size.
        what: the name of the sized object in messages.

    Raises:
        UsageError: it is not a nonnegative int64.
    """
    try:
        number = -1 if isinstance(size, bool) else index(cast(SupportsIndex, size))
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 63:
        raise UsageError(f"{what}: expected sizes that are whole numbers >= 0, found {size!r}")
    return number


def _check_input(name: str, tensor: onnx.TypeProto.Tensor, shape: Sequence[int], sizes: dict[str, int]) -> None:
    """Check that an input can have a shape, and record the sizes of its symbols in `sizes`."""
    if not tensor.HasField("shape"):
        return
    if len(tensor.shape.dim) != len(shape):
        raise UsageError(f"input {name!r} has rank {len(tensor.shape.dim)}, the shape {list(shape)} has {len(shape)}")
    for dim, size in zip(tensor.shape.dim, shape, strict=True):
        if dim.HasField("dim_value") and dim.dim_value not in (-1, size):  # old exporters write -1 for unknown
            raise UsageError(f"input {name!r}: dimension {dim.dim_value} cannot become {size}")
        symbol = as_text(dim.dim_param)
        if symbol and sizes.setdefault(symbol, size) != size:
            raise UsageError(f"dimension {symbol!r} cannot be both {sizes[symbol]} and {size}")


def _fix_input(tensor: onnx.TypeProto.Tensor, shape: Sequence[int]) -> None:
    if not tensor.HasField("shape"):
        tensor.shape.SetInParent()
        for size in shape:
            tensor.shape.dim.add(dim_value=size)
        return
    for dim, size in zip(tensor.shape.dim, shape, strict=True):
        if not dim.dim_param:
            dim.dim_value = size
