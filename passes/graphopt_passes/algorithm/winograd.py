"""Converts convolutions to Winograd's minimal filtering."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from graphopt.errors import Decline, UsageError
from graphopt.rewrite import GraphPass, Level, Model, Node, Numerics, Rewriter
from graphopt.system.machine import METADATA_KEY as METADATA
from graphopt.system.machine import Target
from graphopt_passes.algorithm import blocked_cost
from graphopt_passes.algorithm.blocked import FUSED, BlockedBuilder, BlockedLayer, read_blocked
from graphopt_passes.algorithm.blocked_cost import BlockedRates
from graphopt_passes.algorithm.layer import Choice, PlainLayer, read_plain
from graphopt_passes.algorithm.plain import PlainBuilder
from graphopt_passes.algorithm.plain_cost import RATES, PlainRates, gains
from graphopt_passes.algorithm.transforms import TILES
from graphopt_passes.layout.blocks import DOMAIN

METADATA_KEY = "graphopt.winograd"
"""The key in `metadata_props` by which a model requests an algorithm: a tile size for all layers, or `off`."""

_ALL_OPERATORS = 11
"""The lowest opset in which all operators have the form that is written."""

GROWTH_KEY = "graphopt.winograd_growth"
"""The key in `metadata_props` of the bytes that earlier runs of the pass added to the model."""


AnyLayer = PlainLayer | BlockedLayer
Ask = Callable[[AnyLayer], list[Choice]]


class ConvertConvToWinograd(GraphPass):
    """Replace convolutions with Winograd's algorithm, which needs fewer multiplications, where that is faster.

    It converts convolutions of stride 1 with constant float32 weights and fixed height and width. In blocked layout
    (see `convert_layout_nchwc`), a convolution keeps its fused sum and activation, consecutive layers pass on tiles,
    and the kernel is 3x3 or 5x5, or a row or column of 3, 5 or 7. In NCHW, a `Conv` fuses the `Relu` after it, and must
    be 3x3. A cost model chooses between tiles of 4 and 2 outputs a side and the direct convolution; for few pixels, and
    any strides, a 1x1 convolution may read all taps as channels. Weights may grow by `Options.max_weight_growth` in
    all: layers that save the most time per byte are converted first.

    `Options(extra={"convert_conv_to_winograd": {...}})` takes `"force"`, a tile size (4 or 2) for every layer that
    supports it, whatever the cost; for blocked layers `"blocked_rates"`, `BlockedRates` instead of those measured by
    `graphopt tune` or built in; for NCHW `"plain": True` for standard operators only, and `"rates"`, the machine of the
    cost model (`zen4`, `xeon`, or custom `PlainRates`), by default all that were measured. A model may request a tile
    size, or `off`, by `graphopt.winograd` in its metadata.

    Rounding errors are larger than those of the direct convolution, and a NaN or infinity spreads to its whole tile;
    hence the pass requires `numerics="fast"`, or to be named.
    """

    ops = ("Conv", f"{DOMAIN}::Conv")
    level = Level.ALL
    numerics = Numerics.FAST
    opsets = "7-"
    tuner: ClassVar[str] = "graphopt_passes.algorithm.tuning:WinogradTuner"

    def run_model(self, model: Model, rw: Rewriter) -> None:
        settings = rw.options.stated(self.name)
        layers = self._layers(model, rw)
        force = _forced(settings, model)
        if force == 0:
            for layer in layers:
                rw.decline("it is switched off", node=layer.node)
            return
        if force is not None:
            chosen = [(layer, Choice(force, 0.0, layer.growth(force))) for layer in layers]
        else:
            chosen = self._choose(model, layers, _offers(settings, rw), rw)
        earlier = _grown(model) - _bytes(model)
        plain = PlainBuilder(rw, bool(settings.get("plain")))
        blocked = BlockedBuilder(rw)
        converted = False
        for layer, choice in chosen:
            if rw.log.full:
                break
            with rw.attempt(layer.node):
                if isinstance(layer, BlockedLayer):
                    blocked.build(layer, choice.tile)
                else:
                    plain.build(layer, choice.tile)
                converted = True
        if converted:
            rw.set_metadata(GROWTH_KEY, str(max(earlier + _bytes(model), 0)))

    def _layers(self, model: Model, rw: Rewriter) -> list[AnyLayer]:
        found: list[AnyLayer] = []
        block = _block(model)
        for graph in model.graphs():
            for node in graph:
                if node.op == "Conv" or (block and node.op == f"{DOMAIN}::Conv"):
                    with rw.attempt(node):
                        found.append(_layer(node, block))
        return found

    def _choose(self, model: Model, layers: list[AnyLayer], ask: Ask, rw: Rewriter) -> list[tuple[AnyLayer, Choice]]:
        """Choose the layers that gain and their algorithms, within the budget for growth."""
        grown = _grown(model)
        left = (rw.options.max_weight_growth - 1) * (_bytes(model) - grown) - grown
        offers = []
        for layer in layers:
            with rw.attempt(layer.node):
                offers.append((layer, ask(layer)))
        chosen: dict[AnyLayer, Choice] = {}
        paid: Counter[tuple[Any, ...]] = Counter()

        def bytes_of(layer: AnyLayer, choice: Choice) -> int:
            # Two layers pay for tables, and the others share: one that reads an image, and one that reads tiles.
            shared = isinstance(layer, BlockedLayer) and paid[layer.form, choice.tile] >= 2
            return choice.growth + (0 if shared else choice.tables)

        for layer, choices in sorted(offers, key=lambda offer: -_worth(offer[1][0])):
            choice = next((choice for choice in choices if bytes_of(layer, choice) <= left), None)
            if choice is None:
                reason = "its constants would grow by {:.1f} MB, more than max_weight_growth = {} leaves"
                needed = bytes_of(layer, choices[-1]) / 1e6
                rw.decline(reason, needed, rw.options.max_weight_growth, node=layer.node)
                continue
            left -= bytes_of(layer, choice)
            if isinstance(layer, BlockedLayer):
                paid[layer.form, choice.tile] += 1
            chosen[layer] = choice
        return [(layer, chosen[layer]) for layer, _ in offers if layer in chosen]


def _layer(node: Node, block: int) -> AnyLayer:
    """Read a convolution, blocked or not; declines if the algorithm does not support it."""
    layer: AnyLayer = read_blocked(node, block) if node.domain else read_plain(node)
    if node.graph.in_function:
        raise Decline("it is inside of a function")
    if node.graph.model.opset("") < _ALL_OPERATORS and not _is_simple(layer):
        raise Decline("DepthToSpace, Pad or Clip of opset {} is needed", _ALL_OPERATORS)
    return layer


def _is_simple(layer: AnyLayer) -> bool:
    """Whether the operators that are written for a layer are the same in all opsets."""
    if isinstance(layer, PlainLayer):
        return False
    return not layer.is_open and (layer.activation is None or layer.activation in FUSED)


def _worth(choice: Choice) -> float:
    return choice.saved / max(choice.growth + choice.tables, 1)


def _forced(settings: Mapping[str, Any], model: Model) -> int | None:
    """The requested tile size; 0 to convert nothing; None to let the cost model choose."""
    asked = settings.get("force", model.metadata.get(METADATA_KEY))
    if asked is None:
        return None
    if asked == "off":
        return 0
    if str(asked) not in map(str, TILES):
        raise UsageError(f"Winograd tile size {asked!r}: expected one of {', '.join(map(str, TILES))}, or 'off'")
    return int(asked)


def _block(model: Model) -> int:
    """Channels per block of a model in blocked layout, else 0."""
    stated = model.metadata.get(METADATA)
    return Target.parse(stated).block if stated is not None else 0


def _offers(settings: Mapping[str, Any], rw: Rewriter) -> Ask:
    """The function that returns the profitable algorithms of a layer."""
    machines = _machines(settings)
    given = settings.get("blocked_rates")
    if given is not None and not isinstance(given, BlockedRates):
        raise UsageError(f"blocked_rates are {given!r}: expected BlockedRates")
    blocked = given or blocked_cost.rates_of(rw.target)

    def ask(layer: AnyLayer) -> list[Choice]:
        if isinstance(layer, BlockedLayer):
            return blocked_cost.gains(layer, blocked)
        return gains(layer, machines)

    return ask


def _machines(settings: Mapping[str, Any]) -> list[PlainRates]:
    """The machines on which a layer must gain: all that were measured, unless `rates` names one or provides its own."""
    asked = settings.get("rates")
    if isinstance(asked, PlainRates):
        return [asked]
    if asked is None:
        return list(RATES.values())
    if asked not in RATES:
        raise UsageError(f"unknown rates {asked!r}: expected one of {', '.join(RATES)}")
    return [RATES[asked]]


def _grown(model: Model) -> int:
    text = model.metadata.get(GROWTH_KEY, "0")
    return int(text) if text.isdecimal() else 0


def _bytes(model: Model) -> int:
    return sum(v.tensor.nbytes for graph in model.graphs() for v in graph.initializers if v.tensor is not None)
