"""Experimental operators: the standard has no schemas of them, and ONNX Runtime runs them until opset 9.

Models converted from other formats at opsets 7 and 8 contain them, such as `ImageScaler` and `Crop` at the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import number_like, typed, up
from graphopt.rewrite import Rewriter

_FAR = np.iinfo(np.int64).max
_GONE = 10


def _stated(node: Node, **defaults: Any) -> list[Any]:
    """The attributes of a node, each of the type of its default; a type instead of a default marks a required one.

    Raises:
        Decline: the node is not the experimental operator of this name.
    """
    found = [node.attrs.get(name, default) for name, default in defaults.items()]
    kinds = [each if isinstance(each, type) else type(each) for each in defaults.values()]
    if len(node.inputs) != 1 or set(node.attrs) - set(defaults) or not all(map(isinstance, found, kinds)):
        raise Decline("it is not the experimental {} that was removed in opset {}", node.op_type, _GONE)
    return found


@up(_GONE, "Affine", "Scale")
def factor_and_term(node: Node, change: Change, rw: Rewriter) -> None:
    """Write out alpha * x + beta, or scale * x."""
    factor, *term = _stated(node, scale=1.0) if node.op_type == "Scale" else _stated(node, alpha=1.0, beta=0.0)
    x = node.operand(0)
    op = typed(rw, x)
    scaled = op("Mul", x, factor)
    rw.replace(node, [op("Add", scaled, *term) if term else scaled])


@up(_GONE, "ParametricSoftplus", "ScaledTanh")
def scaled_inside_and_outside(node: Node, change: Change, rw: Rewriter) -> None:
    """Write out alpha * f(beta * x)."""
    outside, inside = _stated(node, alpha=float, beta=float)
    x = node.operand(0)
    op = typed(rw, x)
    function = "Tanh" if node.op_type == "ScaledTanh" else "Softplus"
    rw.replace(node, [op("Mul", op(function, op("Mul", x, inside)), outside)])


@up(_GONE, "ImageScaler")
def term_of_each_channel(node: Node, change: Change, rw: Rewriter) -> None:
    """Write out scale * x + bias, with a bias per channel."""
    x, (factor, bias) = node.operand(0), _stated(node, scale=1.0, bias=tuple)
    terms = np.asarray(bias, number_like(x, 0).dtype).reshape(-1, 1, 1)
    rw.replace(node, [rw.op("Add", typed(rw, x)("Mul", x, factor), terms)])


@up(_GONE, "Crop")
def border_cut_off(node: Node, change: Change, rw: Rewriter) -> None:
    """Slice off borders on the left, top, right and bottom; or on the left and top, if the size is given."""
    border, sizes = _stated(node, border=tuple, scale=())
    if len(border) != 4 or len(sizes) not in (0, 2):
        raise Decline("border has {} elements, and scale has {}", len(border), len(sizes))
    left, above, right, below = border
    ends = [above + sizes[0], left + sizes[1]] if sizes else [-below or _FAR, -right or _FAR]
    rw.replace(node, [rw.op("Slice", node.operand(0), starts=[above, left], ends=ends, axes=[2, 3])])


@up(_GONE, "DynamicSlice")
def slice_without_steps(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Replace `DynamicSlice` with `Slice`."""
    yield
    rw.replace(node, [rw.op("Slice", *node.inputs)])
