"""A check of the built-in rates on this machine, within a second: a short form of `graphopt tune`.

If the built-in rates are within their error they stay, so that machines of one kind get the same plans. Otherwise a few
groups of rates are scaled to the measured times of some convolutions; a group that is within the error stays as well.
"""

from __future__ import annotations

import math
from dataclasses import astuple, replace
from typing import Any

from graphopt.system.machine import BLOCKS, Target
from graphopt_passes.layout.timing import built_in
from graphopt_passes.layout.tuning import ConvolutionTimes, Place, Timed, fit, time_cases, typical_error

CASES = (
    Timed(64, 64, 3, 28), Timed(128, 128, 3, 14), Timed(24, 24, 3, 56), Timed(8, 8, 3, 56), Timed(3, 32, 3, 56, 2),
    Timed(16, 64, 1, 56), Timed(144, 24, 1, 56), Timed(256, 256, 1, 14), Timed(40, 240, 1, 28), Timed(64, 4, 1, 56),
    Timed(144, 144, 3, 28, group=144), Timed(384, 384, 3, 14, group=384), Timed(240, 240, 5, 14, group=240),
    Timed(96, 96, 3, 28, 2, 96),
)  # fmt: skip
"""Some convolutions of each kind, of a few milliseconds together."""

_ROUNDS = 20
_TIMES = 3
"""How often the cases are measured while the built-in rates seem to be wrong, as they do on a busy machine."""
_STEPS = (1.3, 1.1)
_TOGETHER: tuple[tuple[Place, ...], ...] = (
    (("blocked", 0), ("blocked", 1), ("blocked", 2)), (("plain", None),),
    (("stream", None), ("weight", None), ("unroll", None), ("rows", None), ("pack", None), ("store", None)),
    (("depthwise", None), ("depthwise_stream", None)), (("plain_depthwise", 0), ("plain_depthwise", 1)),
)  # fmt: skip
"""Rates that are scaled together, since a few cases do not tell them apart."""


def calibrate(target: Target) -> dict[str, Any]:
    """The rates of this machine, in a form that JSON can hold.

    Raises:
        ValueError: the target has no blocked kernels.
    """
    if target.block not in BLOCKS:
        raise ValueError(f"{target} has no blocked kernels")
    given = built_in(target)
    shapes = [case.shape(target.block) for case in CASES]
    taken: list[ConvolutionTimes] = []
    for _ in range(_TIMES):
        again = time_cases(CASES, target.block, lambda what, part: None, _ROUNDS)
        taken = [_least(*pair) for pair in zip(taken or again, again, strict=True)]
        if typical_error(shapes, taken, target.block, given) <= given.error:
            return {"rates": given.stated()}
    found = fit(CASES, taken, target.block, given, places=_TOGETHER, steps=_STEPS)
    rates = replace(
        given,
        **{name: _checked(getattr(given, name), getattr(found, name), given.error) for name in _NAMES},
    )
    error = typical_error(shapes, taken, target.block, rates)
    return {"rates": replace(rates, error=max(round(error / _STEP) * _STEP, _STEP)).stated()}


def _least(one: ConvolutionTimes, two: ConvolutionTimes) -> ConvolutionTimes:
    """The shorter of both times: other work on the machine only makes them longer."""
    return ConvolutionTimes(*map(min, astuple(one), astuple(two)))


_NAMES = (*dict.fromkeys(name for together in _TOGETHER for name, _ in together), "reorder")


def _checked(given: Any, found: Any, error: float) -> Any:
    """The rate found, rounded, or the given one if both are equal within the error."""
    if isinstance(given, tuple):
        return tuple(_checked(one, two, error) for one, two in zip(given, found, strict=True))
    return given if abs(math.log(found / given)) <= error else float(f"{found:.2g}")


_STEP = 0.05
