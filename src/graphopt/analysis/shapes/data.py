"""Contents of small tensors: numbers if they are known, expressions if they depend on dynamic sizes.

If all operands are known, the NumPy kernels compute. If some elements are expressions, data movement still uses the
kernels (they move objects like numbers), and arithmetic the rules of this module. Floats are followed only as far as
exporters use them on sizes: integers, and fractions with a power of two as denominator, for which float32 is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from graphopt.analysis.kernels import KERNELS, MOVEMENT, Array, Unsupported, run_kernel
from graphopt.analysis.kernels.arithmetic import convert, reduced_axes
from graphopt.analysis.kernels.base import box, need
from graphopt.analysis.kernels.movement import shape_slice
from graphopt.analysis.shapes.dim import Expr, Size, at_least, divide, equal, fits, less
from graphopt.analysis.shapes.engine import MAX_ELEMENTS, ShapeAnalysis, fixed_shape
from graphopt.analysis.shapes.fractions import FloatElement, float_over, float_plus, float_times, fraction
from graphopt.ir import Node
from graphopt.ir.numpy_types import numpy_type

_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)


Element = Any
"""An int, an `Expr`, or in float tensors also a float or a `FloatElement`."""

Args = list[Array | None]
Symbolic = Callable[[ShapeAnalysis, Node, Args], Array]


def follow(analysis: ShapeAnalysis, node: Node) -> list[Array | None] | None:
    """The contents of the outputs of a node, None for those that cannot be followed."""
    args: Args = []
    symbolic = False
    for value in node.inputs:
        data = None
        if value is not None:
            data = analysis.data(value)
            if data is None:
                return None
            symbolic = symbolic or data.dtype.kind == "O"
        args.append(data)
    if any(value is not None and not _is_small(analysis, value) for value in node.outputs):
        return None
    stretched = node.op in _ONCE_ALIKE and len({a.shape for a in args if a is not None}) > 1
    if stretched and not node.graph.broadcasts(node.op):
        return None
    if not symbolic:
        return _numbers(node, args)
    rule = SYMBOLIC.get(node.op)
    if rule is not None:
        results = [rule(analysis, node, args if node.op in _WRAPPING else [_as_stored(analysis, a) for a in args])]
    elif node.op in MOVEMENT and node.op not in _LOOKS_AT_DATA:
        results = run_kernel(node, args)
    else:
        return None
    return [_settled(node, index, result) for index, result in enumerate(results)]


_ONCE_ALIKE = frozenset({"Add", "And", "Div", "Equal", "Greater", "Less", "Max", "Min", "Mul", "Or", "Sub"})
"""Operators that do not broadcast like NumPy in their first versions."""

_WRAPPING = frozenset({"Add", "And", "Mul", "Neg", "Not", "Or", "Sub", "Where"})
"""Operators that commute with wrapping around: integers equal modulo 2**n give results equal modulo 2**n."""

_LOOKS_AT_DATA = frozenset({"Compress", "NonZero", "Pad", "Trilu"})
"""Kernels that need numbers, or insert their own beside elements."""


def _as_stored(analysis: ShapeAnalysis, array: Array | None) -> Array | None:
    """An operand with elements as stored in its type: expressions that may have overflowed are wrapped."""
    if array is None or array.dtype.kind != "O":
        return array
    return _map(lambda element: analysis.symbols.wrapped(element) if isinstance(element, Expr) else element, array)


def _is_small(analysis: ShapeAnalysis, value: Any) -> bool:
    return fixed_shape(analysis.shape(value), MAX_ELEMENTS) is not None


def _numbers(node: Node, args: Args) -> list[Array | None] | None:
    """Compute with known operands; floats only by operations that IEEE 754 defines bit for bit."""
    first = args[0] if args else None
    if first is not None and first.dtype.kind == "f":
        function = _IEEE.get(node.op)
        if function is not None:
            _require(len(args) == function.nin, "operands")
            _require(all(a is not None and a.dtype == first.dtype for a in args), "element types")
            with np.errstate(all="ignore"):
                return [np.asarray(function(*args), first.dtype)]
        if node.op == "Cast":
            return [convert(first, node.attr("to"))]
    return list(run_kernel(node, args)) if node.op in KERNELS else None


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise Unsupported(message)


_IEEE: dict[str, np.ufunc] = {
    "Add": np.add, "Ceil": np.ceil, "Div": np.divide, "Floor": np.floor, "Mul": np.multiply, "Neg": np.negative,
    "Round": np.rint, "Sqrt": np.sqrt, "Sub": np.subtract,
}  # fmt: skip


def _settled(node: Node, index: int, array: Array) -> Array | None:
    """Convert an array without expressions to the element type of the output, whose numbers must fit it."""
    if array.dtype.kind != "O":
        return array
    is_number = [not isinstance(element, (Expr, FloatElement)) for element in array.reshape(-1).tolist()]
    numbers, dtype = array.reshape(-1)[is_number], output_dtype(node, index)
    if dtype is None:
        return None if all(is_number) else array
    stored = numbers.astype(numpy_type(dtype))
    if stored.tolist() != numbers.tolist():
        raise Unsupported("a number does not fit its type")
    return stored.reshape(array.shape) if all(is_number) else array


_BOOLEAN = frozenset({"And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or", "Xor"})


def output_dtype(node: Node, index: int) -> int | None:
    """The element type of an output, if the rules of this module can compute it."""
    value = node.output(index)
    known = value.dtype if value is not None else None
    if known is not None:
        return known
    if node.op in _BOOLEAN:
        return int(TensorProto.BOOL)
    if node.op in ("Shape", "Size"):
        return int(TensorProto.INT64)
    if node.op == "Cast":
        return int(node.attr("to"))
    source = node.input(1 if node.op in ("CastLike", "Where") else 0)
    return source.dtype if source is not None else None


def shape_contents(analysis: ShapeAnalysis, node: Node) -> list[Array | None] | None:
    """`Shape`: the sizes themselves."""
    shape = analysis.need(node, 0)
    return [_vector(list(shape[shape_slice(node, len(shape))]))]


def size_contents(analysis: ShapeAnalysis, node: Node) -> list[Array | None] | None:
    """`Size`: their product."""
    total: Size = 1
    for dim in analysis.need(node, 0):
        total = total * dim
    return [_vector([total]).reshape(())]


def _vector(sizes: list[Size]) -> Array:
    if all(isinstance(size, int) for size in sizes):
        return np.asarray(sizes, np.int64)
    array: Array = np.empty(len(sizes), object)
    for index, size in enumerate(sizes):
        array[index] = size
    return array


# Element by element


def _elements(array: Array) -> Array:
    """The array as objects; floats with integer values become integers."""
    if array.dtype.kind != "O":
        array = array.astype(object)
    return array


def _whole(element: Element) -> Element:
    return int(element) if isinstance(element, float) and element.is_integer() and element else element


def _map(function: Callable[..., Element], *arrays: Array) -> Array:
    try:
        np.broadcast_shapes(*[array.shape for array in arrays])
    except ValueError:
        raise Unsupported("shapes do not broadcast") from None
    result = np.frompyfunc(function, len(arrays), 1)(*map(_elements, arrays))
    return box(result, object)


def is_same(a: Element, b: Element) -> bool:
    """Whether two elements are identical in every run; 0.0 and -0.0 are not."""
    if a != b:
        return False
    return isinstance(a, (Expr, FloatElement)) or bool(a) or math.copysign(1, a) == math.copysign(1, b)


def same_contents(a: Array | None, b: Array | None) -> bool:
    """Whether two tensors are known to have identical contents."""
    if a is None or b is None or a.shape != b.shape:
        return False
    return all(map(is_same, a.reshape(-1).tolist(), b.reshape(-1).tolist()))


def _is_float(node: Node) -> bool:
    value = node.input(0)
    dtype = value.dtype if value is not None else None
    _require(dtype is not None, "the element type is unknown")
    return dtype not in (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)


def _add(analysis: ShapeAnalysis, node: Node, args: Args) -> Array:
    return _map(float_plus if _is_float(node) else lambda a, b: a + b, need(args, 0), need(args, 1))


def _sub(analysis: ShapeAnalysis, node: Node, args: Args) -> Array:
    if _is_float(node):
        return _map(lambda a, b: float_plus(a, b, -1), need(args, 0), need(args, 1))
    return _map(lambda a, b: a - b, need(args, 0), need(args, 1))


def _mul(analysis: ShapeAnalysis, node: Node, args: Args) -> Array:
    return _map(float_times if _is_float(node) else lambda a, b: a * b, need(args, 0), need(args, 1))


def _div(analysis: ShapeAnalysis, node: Node, args: Args) -> Array:
    if _is_float(node):
        return _map(float_over, need(args, 0), need(args, 1))
    return _map(lambda a, b: truncated(analysis, a, b), need(args, 0), need(args, 1))


def truncated(analysis: ShapeAnalysis, a: Size, b: Size) -> Size:
    """Integer division as in C and ONNX, truncated towards zero."""
    exact = divide(a, b)
    if exact is not None:
        return exact
    if isinstance(b, int) and b < 0:
        a, b = -a, -b
    if isinstance(a, int) and isinstance(b, int) and b > 0:
        return a // b if a >= 0 else -(-a // b)
    if isinstance(b, int) and b > 0 and at_least(a, 0):
        return analysis.symbols.floor_div(a, b)
    return analysis.symbols.content()


def _mod(analysis: ShapeAnalysis, node: Node, args: Args) -> Array:
    fmod = bool(node.attr("fmod", 0))

    def modulo(a: Size, b: Size) -> Size:
        if isinstance(b, int) and b > 0 and (not fmod or at_least(a, 0)):
            return analysis.symbols.modulo(a, b)
        return analysis.symbols.content()

    if _is_float(node):
        raise Unsupported("of floats")
    return _map(modulo, need(args, 0), need(args, 1))


def _neg(analysis: ShapeAnalysis, node: Node, args: Args) -> Array:
    if _is_float(node):
        return _map(lambda a: float_times(a, -1), need(args, 0))
    return _map(lambda a: -a, need(args, 0))


def _abs(analysis: ShapeAnalysis, node: Node, args: Args) -> Array:
    def absolute(a: Size) -> Size:
        if isinstance(a, int):
            return abs(a)
        return a if at_least(a, 0) else analysis.symbols.content()  # the least integer cannot be negated

    if _is_float(node):
        raise Unsupported("of floats")
    return _map(absolute, need(args, 0))


def _extreme(name: str) -> Symbolic:
    def rule(analysis: ShapeAnalysis, node: Node, args: Args) -> Array:
        if _is_float(node):
            raise Unsupported("of floats")
        choose = getattr(analysis.symbols, name)
        result = need(args, 0)
        for index in range(1, len(args)):
            result = _map(choose, result, need(args, index))
        return result

    return rule


def _compare(decide: Callable[[Size, Size], bool | None]) -> Symbolic:
    def rule(analysis: ShapeAnalysis, node: Node, args: Args) -> Array:
        def answer(a: Element, b: Element) -> Size:
            a, b = _whole(a), _whole(b)
            known = (
                None if isinstance(a, (float, FloatElement)) or isinstance(b, (float, FloatElement)) else decide(a, b)
            )
            return analysis.symbols.content(0, 1) if known is None else int(known)

        return _map(answer, need(args, 0), need(args, 1))

    return rule


def _negated(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _bit(element: Element) -> Element:
    return int(element) if isinstance(element, (bool, np.bool_)) else element


def _logical(neutral: int) -> Symbolic:
    """`And`, with neutral element 1, or `Or`, with 0; an operand of the other value decides the result."""

    def rule(analysis: ShapeAnalysis, node: Node, args: Args) -> Array:
        def joined(a: Element, b: Element) -> Size:
            a, b = _bit(a), _bit(b)
            if 1 - neutral in (a, b):
                return 1 - neutral
            if a in (neutral, b):
                return b  # type: ignore[no-any-return]  # an element of an array
            return a if b == neutral else analysis.symbols.content(0, 1)

        return _map(joined, need(args, 0), need(args, 1))

    return rule


def _not(analysis: ShapeAnalysis, node: Node, args: Args) -> Array:
    return _map(lambda a: 1 - _bit(a), need(args, 0))


def _where(analysis: ShapeAnalysis, node: Node, args: Args) -> Array:
    value = node.input(1)
    is_float = value is not None and value.dtype in _FLOATS

    def choose(condition: Element, a: Element, b: Element) -> Element:
        condition = _bit(condition)
        chosen = b if isinstance(condition, int) and not condition else a
        known = isinstance(condition, int) or is_same(_bit(a), _bit(b))
        if known and not is_same(chosen, -0.0):  # -0.0 loses its sign in the runtime
            return chosen
        return FloatElement() if is_float else analysis.symbols.content()

    return _map(choose, need(args, 0), need(args, 1), need(args, 2))


def _cast(analysis: ShapeAnalysis, node: Node, args: Args) -> Array:
    return _converted(analysis, node, need(args, 0), node.attr("to"))


def cast_like_contents(analysis: ShapeAnalysis, node: Node) -> list[Array | None] | None:
    """`CastLike`: only the type of its second operand matters."""
    source, like = node.input(0), node.input(1)
    target = like.dtype if like is not None else None
    data = analysis.data(source) if source is not None else None
    if data is None or target is None:
        return None
    if data.dtype.kind != "O":
        return [convert(data, target)]
    return [_settled(node, 0, _converted(analysis, node, data, target))]


def _converted(analysis: ShapeAnalysis, node: Node, data: Array, target: int) -> Array:
    to_float = target in _FLOATS
    source = node.input(0)
    narrow = target != TensorProto.BOOL and source is not None and source.dtype != target

    def one(element: Element) -> Element:
        element = _whole(_bit(element))
        if narrow and isinstance(element, Expr) and not fits(element):
            return FloatElement() if to_float else analysis.symbols.content()
        if to_float or (isinstance(element, (int, Expr)) and target != TensorProto.BOOL):
            return element
        if target == TensorProto.BOOL:
            return _truth(analysis, element)
        known = fraction(element)
        return analysis.symbols.content() if known is None else truncated(analysis, *known)

    if not to_float and target not in (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL):
        raise Unsupported("element type")
    return _map(one, data)


def _truth(analysis: ShapeAnalysis, element: Element) -> Size:
    if isinstance(element, (FloatElement, float)):
        return analysis.symbols.content(0, 1)
    is_zero = equal(element, 0)
    return analysis.symbols.content(0, 1) if is_zero is None else int(not is_zero)


def _rounding(up: bool) -> Symbolic:
    def rule(analysis: ShapeAnalysis, node: Node, args: Args) -> Array:
        def whole(element: Element) -> Element:
            element = _whole(element)
            if isinstance(element, (int, Expr)):
                return element
            known = fraction(element)
            if known is None or not at_least(known[0], 0):  # a number just below zero is rounded to -0.0
                return FloatElement()
            symbols = analysis.symbols
            return symbols.ceil_div(*known) if up else symbols.floor_div(*known)

        return _map(whole, need(args, 0))

    return rule


def _reduce(combine: Callable[[ShapeAnalysis], Callable[[Size, Size], Size]], start: Size | None) -> Symbolic:
    def rule(analysis: ShapeAnalysis, node: Node, args: Args) -> Array:
        if _is_float(node):
            raise Unsupported("of floats")
        data = need(args, 0)
        axes = reduced_axes(node, args, data.ndim)
        if axes is None:
            return data
        function = combine(analysis)
        kept = [axis for axis in range(data.ndim) if axis not in axes]
        moved = data.transpose(kept + axes)
        shape = moved.shape[: len(kept)]
        flat = moved.reshape(*shape, -1)
        if start is None and not flat.shape[-1]:
            raise Unsupported("reduction of nothing")
        result: Array = np.empty(shape, object)
        for index in np.ndindex(shape):
            elements = flat[index].tolist()
            total = elements.pop(0) if start is None else start
            for element in elements:
                total = function(total, element)
            # ONNX Runtime adds and multiplies in double precision, which neither wraps nor represents all integers.
            result[index] = total if start is None or fits(total) else analysis.symbols.content()
        if node.attr("keepdims", 1):
            return result.reshape([1 if a in axes else d for a, d in enumerate(data.shape)])
        return result

    return rule


def _range(analysis: ShapeAnalysis, node: Node, args: Args) -> Array:
    value = node.output(0)
    dims = fixed_shape(analysis.shape(value), MAX_ELEMENTS) if value is not None else None
    if dims is None or _is_float(node):
        raise Unsupported("a range of unknown length")
    start, delta = need(args, 0).reshape(-1)[0], need(args, 2).reshape(-1)[0]
    return _map(lambda k: start + k * delta, np.arange(dims[0]))


SYMBOLIC: dict[str, Symbolic] = {
    "Abs": _abs,
    "Add": _add,
    "And": _logical(1),
    "Cast": _cast,
    "Ceil": _rounding(up=True),
    "Div": _div,
    "Equal": _compare(equal),
    "Floor": _rounding(up=False),
    "Greater": _compare(lambda a, b: less(b, a)),
    "GreaterOrEqual": _compare(lambda a, b: _negated(less(a, b))),
    "Less": _compare(less),
    "LessOrEqual": _compare(lambda a, b: _negated(less(b, a))),
    "Max": _extreme("maximum"),
    "Min": _extreme("minimum"),
    "Mod": _mod,
    "Mul": _mul,
    "Neg": _neg,
    "Not": _not,
    "Or": _logical(0),
    "Range": _range,
    "ReduceMax": _reduce(lambda analysis: analysis.symbols.maximum, None),
    "ReduceMin": _reduce(lambda analysis: analysis.symbols.minimum, None),
    "ReduceProd": _reduce(lambda analysis: lambda a, b: a * b, 1),
    "ReduceSum": _reduce(lambda analysis: lambda a, b: a + b, 0),
    "Sub": _sub,
    "Where": _where,
}
"""Arithmetic on expressions by operator."""

RULES: dict[str, Callable[[ShapeAnalysis, Node], list[Array | None] | None]] = {
    **dict.fromkeys((*KERNELS, *SYMBOLIC, *_IEEE), follow),
    "CastLike": cast_like_contents,
    "Shape": shape_contents,
    "Size": size_contents,
}
"""Contents of outputs by operator."""
