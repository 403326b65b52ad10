"""Operands that were attributes: where each operator of the standard has its lists and bounds at each opset.

`Node.ints` and `Node.number` read through this table and `Rewriter.op` writes through it, so that nobody else asks for
an opset to find them. A test compares it with the schemas of the standard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphopt.errors import Decline
from graphopt.records import dataclass


@dataclass(frozen=True, slots=True)
class Moved:
    """One operand that is an attribute below some opset.

    Attributes:
        index: its position among the inputs, from `since` on.
        since: the first opset that reads it as an input.
        dtype: its element type as an input; None when that is the type of the first input.
        rank: 1 for a list, 0 for a single number.
        names: what the attribute is called before, where that is not what the input is called.
    """

    index: int
    since: int
    dtype: type[np.generic] | None = np.int64
    rank: int = 1
    names: tuple[str, ...] = ()


def _axes(since: int) -> dict[str, Moved]:
    return {"axes": Moved(1, since)}


_EARLY_PADS = ("pads", "paddings")

MOVED: dict[str, dict[str, Moved]] = {
    "Clip": {"min": Moved(1, 11, None, 0), "max": Moved(2, 11, None, 0)},
    "DFT": {"axis": Moved(2, 20, rank=0)},
    "Dropout": {"ratio": Moved(1, 12, np.float32, 0)},
    "Pad": {
        "pads": Moved(1, 11, names=_EARLY_PADS), "constant_value": Moved(2, 11, None, 0, ("value",)),
        "axes": Moved(3, 18),
    },
    "Reshape": {"shape": Moved(1, 5)},
    "Slice": {"starts": Moved(1, 10), "ends": Moved(2, 10), "axes": Moved(3, 10), "steps": Moved(4, 10)},
    "Split": {"split": Moved(1, 13)},
    "Squeeze": _axes(13),
    "TopK": {"k": Moved(1, 10)},
    "Unsqueeze": _axes(13),
    "Upsample": {"scales": Moved(1, 9, np.float32)},
    "ReduceSum": _axes(13),
    **{
        f"Reduce{kind}": _axes(18)
        for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
    },
}  # fmt: skip
"""For each operator its operands that an older opset states as attributes, by the name of the input."""


BROADCASTING = (
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor",
)  # fmt: skip
"""The operators that broadcast all of their operands to each other."""

BROADCASTING_SINCE: dict[str, int] = {"Max": 8, "Mean": 8, "Min": 8, "Sum": 8, "Where": 9}
"""The opset from which on elementwise operators broadcast their operands to each other, where that is not 7."""


def placed(
    op_type: str, opset: int, inputs: Sequence[Any], settings: dict[str, Any], dtype: np.dtype[Any] | None
) -> tuple[list[Any], dict[str, Any]]:
    """The inputs and attributes of a standard operator, each setting where the opset has it.

    Args:
        op_type: the operator.
        opset: the opset of the graph.
        inputs: its inputs: values, arrays, None for one that is left out.
        settings: attributes and moved operands by name, as plain numbers, lists or values; None leaves one out.
        dtype: the element type of the first input, which bounds and fill values share; None when it is not known.

    Raises:
        Decline: a plain number is given where that element type is needed and not known.
    """
    moved = MOVED[op_type]
    operands, attrs = list(inputs), {}
    for name, setting in settings.items():
        form = moved.get(name)
        if form is None or setting is None:
            attrs[name] = setting
        elif opset < form.since:
            attrs[form.names[0] if form.names else name] = _as_attribute(setting)
        else:
            operands.extend([None] * (form.index + 1 - len(operands)))
            operands[form.index] = _as_input(setting, form, dtype)
    return operands, attrs


def _as_attribute(setting: Any) -> Any:
    plain = setting.tolist() if isinstance(setting, (np.ndarray, np.generic)) else setting
    return tuple(plain) if isinstance(plain, (list, range)) else plain


def _as_input(setting: Any, form: Moved, dtype: np.dtype[Any] | None) -> Any:
    if not isinstance(setting, (np.ndarray, np.generic, int, float, list, tuple, range)):
        return setting  # a value
    typed = isinstance(setting, (np.ndarray, np.generic)) and form.dtype is None
    if not typed and form.dtype is None and dtype is None:
        raise Decline("the element type that {} is written in is not known", setting)
    array = np.asarray(setting, None if typed else form.dtype or dtype)
    return array.reshape(-1) if form.rank else array.reshape(())
