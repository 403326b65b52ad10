"""Which cells of a kernel see the image, against trying all places of the window."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from graphopt.operators.window import KernelAxis


@st.composite
def axes(draw: st.DrawFn) -> KernelAxis:
    size, cells, stride, dilation, before, after = (
        draw(st.integers(low, high)) for low, high in ((1, 12), (1, 6), (1, 4), (1, 9), (0, 40), (0, 40))
    )
    return KernelAxis(size, cells, stride, dilation, before, after)


def windows(axis: KernelAxis, offset: int = 0) -> list[list[tuple[int, int]]]:
    """For each place of the window: which cell lies over which pixel."""
    span = (axis.cells - 1) * axis.dilation + 1
    steps = (axis.size + axis.before + axis.after - span) // axis.stride + 1
    found = []
    for step in range(steps):
        places = [
            (cell + offset, step * axis.stride - axis.before + cell * axis.dilation) for cell in range(axis.cells)
        ]
        found.append([(cell, place) for cell, place in places if 0 <= place < axis.size])
    return found


@given(axes())
def test_the_smaller_kernel_sees_the_same(axis: KernelAxis) -> None:
    whole = windows(axis)
    assume(whole)
    first, last = axis.live()
    smaller = axis.cut(first, last)
    assert min(smaller.before, smaller.after) >= 0
    assert smaller.cells == last - first + 1
    assert windows(smaller, first) == whole


def test_cells_far_apart_leave_one() -> None:
    far = KernelAxis(14, 3, 1, 24, 24, 24)
    assert far.live() == (1, 1)
    assert far.cut(1, 1) == KernelAxis(14, 1, 1, 1, 0, 0)
    assert KernelAxis(14, 3, 1, 12, 12, 12).live() == (0, 2)
