"""Which cells of a kernel see the image, against trying all places of the window."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from graphopt_passes.elimination.kernel import Axis


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    size, cells, stride, dilation, before, after = (
        draw(st.integers(low, high)) for low, high in ((1, 12), (1, 6), (1, 4), (1, 9), (0, 40), (0, 40))
    )
    return Axis(size, cells, stride, dilation, before, after)


def windows(axis: Axis, first: int, last: int, before: int, after: int) -> list[list[tuple[int, int]]]:
    """For each place of the window: which cell lies over which pixel."""
    span = (last - first) * axis.dilation + 1
    steps = (axis.size + before + after - span) // axis.stride + 1
    found = []
    for step in range(steps):
        places = [
            (cell, step * axis.stride - before + (cell - first) * axis.dilation) for cell in range(first, last + 1)
        ]
        found.append([(cell, place) for cell, place in places if 0 <= place < axis.size])
    return found


@given(axes())
def test_the_smaller_kernel_sees_the_same(axis: Axis) -> None:
    whole = windows(axis, 0, axis.cells - 1, axis.before, axis.after)
    assume(whole)
    first, last = axis.live()
    before = axis.before - first * axis.dilation
    after = axis.after - (axis.cells - 1 - last) * axis.dilation
    assert min(before, after) >= 0
    assert windows(axis, first, last, before, after) == whole


def test_cells_far_apart_leave_one() -> None:
    assert Axis(14, 3, 1, 24, 24, 24).live() == (1, 1)
    assert Axis(14, 3, 1, 12, 12, 12).live() == (0, 2)
