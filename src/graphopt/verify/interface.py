"""The interface of a model, its inputs and outputs, and differences between two interfaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx

from graphopt.errors import UsageError
from graphopt.ir.interface import whole_sizes
from graphopt.ir.messages import as_text
from graphopt.ir.numpy_types import numpy_type
from graphopt.ir.types import type_name
from graphopt.verify.report import Difference

Dim = int | str | None
Shapes = Mapping[str, Sequence[int]]
_FIRST_OVERRIDABLE_IR = 4  # before, every initializer had to be listed as an input, and none could be overridden
Kind = Literal["tensor", "sequence", "optional", "map", "sparse", "unknown"]


@dataclass(frozen=True, slots=True)
class Spec:
    """One graph input or output.

    Attributes:
        name: Its name.
        kind: The kind of its type; for sequences and optionals `element` is the inner type.
        dtype: Element type (`onnx.TensorProto` enumeration) of a tensor.
        shape: Dimensions of a tensor: a number, a symbol or None; None if even the rank is unknown.
        element: The type inside a sequence or optional.
    """

    name: str
    kind: Kind
    dtype: int = 0
    shape: tuple[Dim, ...] | None = None
    element: Spec | None = None

    def __str__(self) -> str:
        if self.element is not None:
            return f"{self.kind}({self.element})"
        if self.kind != "tensor":
            return self.kind
        name = type_name(self.dtype) if self.dtype else "unknown"
        if self.shape is None:
            return f"{name} of unknown rank"
        return f"{name}[{','.join('?' if d is None else str(d) for d in self.shape)}]"


@dataclass(frozen=True, slots=True)
class Interface:
    """The inputs and outputs of a model.

    Attributes:
        inputs: The inputs that a caller must feed.
        overridable: Inputs with a default value (initializers that are graph inputs as well).
        outputs: The outputs.
    """

    inputs: tuple[Spec, ...]
    overridable: tuple[Spec, ...]
    outputs: tuple[Spec, ...]


def interface_of(model: onnx.ModelProto) -> Interface:
    """Read a model's interface."""
    defaults = {t.name for t in model.graph.initializer} | {t.values.name for t in model.graph.sparse_initializer}
    inputs = [spec_of(value.name, value.type) for value in model.graph.input]
    overridable = tuple(s for s in inputs if s.name in defaults)
    return Interface(
        tuple(s for s in inputs if s.name not in defaults),
        overridable if model.ir_version >= _FIRST_OVERRIDABLE_IR else (),
        tuple(spec_of(value.name, value.type) for value in model.graph.output),
    )


def differences(original: Interface, result: Interface) -> tuple[Difference, ...]:
    """How the result's interface differs from the original's."""
    found: list[Difference] = []
    _compare("input", original.inputs, result.inputs, found)
    _compare("overridable input", original.overridable, result.overridable, found)
    _compare("output", original.outputs, result.outputs, found)
    return tuple(found)


def _compare(role: str, before: Sequence[Spec], after: Sequence[Spec], found: list[Difference]) -> None:
    old, new = {s.name: s for s in before}, {s.name: s for s in after}
    found.extend(Difference(n, f"{role} {n!r} is missing", True) for n in old if n not in new)
    # A new optional input does not affect callers of the original, a new required one breaks them.
    optional = role == "overridable input"
    found.extend(Difference(n, f"{role} {n!r} is new", not optional) for n in new if n not in old)
    common_before, common_after = [n for n in old if n in new], [n for n in new if n in old]
    if common_before != common_after:
        name = next(a for a, b in zip(common_before, common_after, strict=True) if a != b)
        found.append(
            Difference(name, f"{role}s are in another order: expected {common_before}, found {common_after}", True)
        )
    if len(before) != len(old) or len(after) != len(new):
        found.append(Difference("", f"{role} names are not unique", len(before) != len(after)))
    for name in common_before:
        if old[name] == new[name]:
            continue
        found.append(
            Difference(
                name,
                f"{role} {name!r}: expected {old[name]}, found {new[name]}",
                _breaks(old[name], new[name], narrowing_breaks=role != "output"),
            )
        )


def undeclared(outputs: Sequence[Spec], values: Sequence[Any]) -> dict[str, str]:
    """The outputs whose rank or sizes differ from the declared ones, with a message."""
    return {
        spec.name: f"output {spec.name!r}: declared {spec}, found shape {list(value.shape)}"
        for spec, value in zip(outputs, values, strict=False)
        if not _fits(spec, value)
    }


def _fits(spec: Spec, value: Any) -> bool:
    """Whether a tensor has the declared rank and fixed sizes; True for other values."""
    if spec.shape is None or not isinstance(value, np.ndarray):
        return True
    sizes = zip(spec.shape, value.shape, strict=False)
    return len(spec.shape) == value.ndim and all(dim == size for dim, size in sizes if isinstance(dim, int))


def _breaks(old: Spec, new: Spec, *, narrowing_breaks: bool) -> bool:
    if old.element is not None and new.element is not None and old.kind == new.kind:
        return _breaks(old.element, new.element, narrowing_breaks=narrowing_breaks)
    if old.kind != new.kind or old.dtype != new.dtype:
        return not (old.kind == "unknown" or (old.kind == new.kind == "tensor" and old.dtype == 0))
    if old.shape is None or new.shape is None:
        return old.shape is None and narrowing_breaks
    if len(old.shape) != len(new.shape):
        return True
    for before, after in zip(old.shape, new.shape, strict=True):
        if isinstance(before, int) and isinstance(after, int) and before != after:
            return True
        if narrowing_breaks and not isinstance(before, int) and isinstance(after, int):
            return True
    return False


def spec_of(name: str, proto: onnx.TypeProto) -> Spec:
    """An input or output of a type."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        tensor = proto.tensor_type
        shape = tuple(_dim(d) for d in tensor.shape.dim) if tensor.HasField("shape") else None
        return Spec(name, "tensor", tensor.elem_type, shape)
    if kind == "sequence_type":
        return Spec(name, "sequence", element=spec_of(name, proto.sequence_type.elem_type))
    if kind == "optional_type":
        return Spec(name, "optional", element=spec_of(name, proto.optional_type.elem_type))
    if kind == "map_type":
        return Spec(name, "map")
    if kind == "sparse_tensor_type":
        return Spec(name, "sparse")
    return Spec(name, "unknown")


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return as_text(dim.dim_param) or None


def taken(model: onnx.ModelProto, arrays: object) -> dict[str, Any]:
    """The given arrays that are inputs of the model; others, such as labels, are ignored.

    Raises:
        UsageError: an input has no array, or one of another element type or shape, or `arrays` is not a mapping.
    """
    if not isinstance(arrays, Mapping):
        raise UsageError(f"inputs: expected arrays by name, found {type(arrays).__name__}")
    told = interface_of(model)
    missing = [spec.name for spec in told.inputs if spec.name not in arrays]
    if missing:
        raise UsageError(f"inputs: no array {missing[0]!r}; found {', '.join(map(str, arrays)) or 'none'}")
    specs = {spec.name: spec for spec in (*told.inputs, *told.overridable)}
    for name, array in arrays.items():
        if name in specs and isinstance(array, np.ndarray) and not _suits(array, specs[name]):
            kind = "string" if array.dtype.kind in "OUS" else array.dtype
            raise UsageError(f"input {name!r}: expected {specs[name]}, found {kind}{list(array.shape)}")
    return {name: array for name, array in arrays.items() if name in specs}


def _suits(array: np.ndarray[Any, Any], spec: Spec) -> bool:
    """Whether an array has the element type, rank and fixed sizes of an input; True if that is not a tensor."""
    if spec.kind != "tensor":
        return True
    stated = numpy_type(spec.dtype) if spec.dtype else array.dtype
    alike = stated == array.dtype or (array.dtype.kind in "OUS" and spec.dtype == onnx.TensorProto.STRING)
    return alike and _fits(spec, array)


def sizes_from_shapes(model: onnx.ModelProto, shapes: Shapes) -> dict[str, int]:
    """The sizes of symbolic dimensions that the given input shapes imply; unnamed ones are `input[axis]`.

    Raises:
        UsageError: there is no such input, its fixed sizes differ, or a dimension would have two sizes.
    """
    specs = {spec.name: spec for spec in interface_of(model).inputs}
    sizes: dict[str, int] = {}
    for name, given in shapes.items():
        spec = specs.get(name)
        if spec is None:
            raise UsageError(f"the model has no input {name!r}; it has {', '.join(specs)}")
        shape = whole_sizes(given, f"input {name!r}")
        if spec.shape is None or len(spec.shape) != len(shape):
            raise UsageError(f"input {name!r} is {spec}, found shape {list(shape)}")
        for axis, (dim, size) in enumerate(zip(spec.shape, shape, strict=True)):
            if isinstance(dim, int) and dim != size:
                raise UsageError(f"input {name!r} has {dim} at axis {axis}, found shape {list(shape)}")
            if not isinstance(dim, int):
                key = dim or f"{name}[{axis}]"
                if sizes.setdefault(key, size) != size:
                    raise UsageError(f"dimension {key!r} would be both {sizes[key]} and {size}")
    return sizes
