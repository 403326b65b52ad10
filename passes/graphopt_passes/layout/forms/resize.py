"""Resize and Upsample by whole factors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.operators import Resize
from graphopt_passes.algorithm.resize import work_as_products
from graphopt_passes.algorithm.work import MARGIN, price
from graphopt_passes.layout.cost import Costs, Price
from graphopt_passes.layout.form import Form, Written, by_element
from graphopt_passes.layout.known import Known

_PRICES = {"linear": (1.4e-3, 0.37e-3), "nearest": (0.2e-3, 0.13e-3)}
"""Microseconds per element of the result, in NCHW and blocked: linear computes as much as it writes."""

_ROUNDED = frozenset({"round_prefer_floor", "round_prefer_ceil"})
_CENTERED = frozenset({"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"})
"""With whole factors no coordinate lies halfway between two pixels: rounding picks what floor picks if asymmetric."""

_LINEAR = {
    "asymmetric": "asymmetric", "align_corners": "align_corners", "half_pixel": "half_pixel",
    "half_pixel_symmetric": "half_pixel", "pytorch_half_pixel": "half_pixel",
}  # fmt: skip


def resized(node: Node, known: Known) -> Written:
    """The blocked form of a Resize or Upsample."""
    x, layout = known.image(node)
    view = Resize.of(node)
    factors = _factors(view)
    scales, how = (1, 1, *factors), {"mode": view.mode, "coordinate_transformation_mode": _coordinates(view, factors)}
    return Written(
        node, [x], [layout], known.sizes(node.result), known.lanes(x).rounded(),
        name="upsample", cost=_cost(view.mode),
        make=lambda emit: emit.on_blocks(x, lambda source: emit.op("Upsample", source, scales=scales, **how)),
    )  # fmt: skip


def _cost(mode: str) -> Callable[[Form, Costs], Price]:
    """The prices of both forms; in NCHW matrix products may be faster, for example when factors are large."""
    kernels = by_element(*_PRICES[mode])

    def cost(form: Form, costs: Costs) -> Price:
        plain, blocked = kernels(form, costs)
        with suppress(Decline):
            plain = min(plain, price(work_as_products(form.node), costs.algorithms) / MARGIN)
        return plain, blocked

    return cost


def _factors(view: Resize) -> tuple[int, int]:
    """Whole factors of height and width."""
    scales = view.scales
    if view.antialias or len(scales) != 4 or scales[:2] != (1, 1) or any(s < 1 or s != int(s) for s in scales[2:]):
        raise Decline("the scales of {} are not integers", view.x.name)
    return int(scales[2]), int(scales[3])


def _coordinates(view: Resize, factors: tuple[int, int]) -> str:
    """The coordinate mode with which the blocked operator gives the same result."""
    if view.mode == "nearest" and _picks_the_same(view, factors):
        return "asymmetric"
    if view.mode == "linear" and view.coordinates in _LINEAR:
        image = (view.x.shape or (0,) * 4)[2:]
        grown = [d * f if isinstance(d, int) else f for d, f in zip(image, factors, strict=True)]
        # PyTorch's coordinates are those of half_pixel unless an output side is 1.
        if view.coordinates != "pytorch_half_pixel" or min(grown) > 1:
            return _LINEAR[view.coordinates]
    raise Decline("blocked Upsample has no mode {} with these coordinates", view.mode)


def _picks_the_same(view: Resize, factors: tuple[int, int]) -> bool:
    """Whether nearest picks the same pixels as with asymmetric coordinates and floor."""
    if view.coordinates in _CENTERED:
        return view.rounding in _ROUNDED
    # With factors up to 2 a coordinate is at most halfway between two pixels, and then the lower one is taken.
    floors = view.rounding == "floor" or (view.rounding == "round_prefer_floor" and max(factors) <= 2)
    return view.coordinates == "asymmetric" and floors
