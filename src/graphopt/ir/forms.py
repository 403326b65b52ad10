"""Operands that were attributes in older opsets: lists and bounds of the standard's operators.

`Node.ints` and `Node.number` read through this table and `Rewriter.op` writes through it, so that no rule depends on
the opset for them. A test compares the table with the schemas of the standard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphopt.errors import Decline
from graphopt.records import dataclass


@dataclass(frozen=True, slots=True)
class Moved:
    """An operand that is an attribute below some opset.

    Attributes:
        index: its position among the inputs, from `since` on.
        since: the first opset with it as an input.
        dtype: its element type as an input; None if that is the type of the first input.
        rank: 1 for a list, 0 for a single number.
        names: the names of the attribute, if they differ from the name of the input.
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
"""For each operator, by input name, the operands that are attributes in an older opset."""


BROADCASTING = (
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor",
)  # fmt: skip
"""The operators that broadcast all of their operands."""

BROADCASTING_SINCE: dict[str, int] = {"Max": 8, "Mean": 8, "Min": 8, "Sum": 8, "Where": 9}
"""The first opset in which elementwise operators broadcast all operands, if it is not 7."""


def placed(
    op_type: str, opset: int, inputs: Sequence[Any], settings: dict[str, Any], dtype: np.dtype[Any] | None
) -> tuple[list[Any], dict[str, Any]]:
    """The inputs and attributes of a standard operator, with each setting in the form that the opset requires.

    Args:
        op_type: the operator.
        opset: the opset of the graph.
        inputs: its inputs: values, arrays, None for one that is left out.
        settings: attributes and moved operands by name, as plain numbers, lists or values; None omits one.
        dtype: the element type of the first input, which bounds and fill values share; None if it is not known.

    Raises:
        Decline: a setting is a plain number of that element type, which is not known.
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
        raise Decline("the element type of the input {} is not known", setting)
    try:
        array = np.asarray(setting, None if typed else form.dtype or dtype)
    except OverflowError:
        raise Decline("{} does not fit into the element type", setting) from None
    return array.reshape(-1) if form.rank else array.reshape(())
