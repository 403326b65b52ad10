"""Convolutions by Winograd's minimal filtering."""

from __future__ import annotations

from typing import Any, ClassVar

from graphopt.errors import UsageError
from graphopt.ir import Graph, Model
from graphopt.rewrite import GraphPass, Level, Mismatch, Numerics, Rewriter
from graphopt_passes.algorithm.cost import RATES, SHORTEST, Choice, Rates, direct, gains, growth, winograd
from graphopt_passes.algorithm.emit import Builder
from graphopt_passes.algorithm.layer import Layer, read_layer
from graphopt_passes.algorithm.transforms import TILES

METADATA_KEY = "graphopt.winograd"
"""The algorithm that a model asks for by its `metadata_props`: a tile size for all layers that can, or `off`."""

GROWTH_KEY = "graphopt.winograd_growth"
"""Bytes that earlier runs of the pass have added to the model, in its `metadata_props`."""


class ConvertConvToWinograd(GraphPass):
    """Compute 3x3 convolutions by Winograd's algorithm, with fewer multiplications, where that is expected to pay.

    It takes `Conv` of stride 1 with constant float32 weights and a fixed height and width, and the `Relu` after it.
    A cost model chooses between F(4x4,3x3), F(2x2,3x3) and the direct convolution; transformed weights are larger, and
    all together may grow by `Options.max_weight_growth`: layers that save most time per byte come first.

    `Options(extra={"convert_conv_to_winograd": {...}})` takes `"force"`, a tile size (4 or 2) for every layer that can,
    whatever the cost model and the budget say, `"plain": True` for standard operators only, and `"rates"`, the machine
    that the cost model is for (`zen4`, `xeon`, or `Rates` of its own); without it a layer must gain on all machines
    that were measured. A model may ask for a tile size, or `off`, by `graphopt.winograd` in its metadata.

    Rounding errors are larger than those of the direct convolution, and a NaN or an infinity in the input spreads to
    the whole tile, so it takes `numerics="fast"`, or naming the pass.
    """

    name = "convert_conv_to_winograd"
    level = Level.ALL
    numerics = Numerics.FAST
    opsets = "11-"
    default = False
    peers: ClassVar[dict[str, str]] = {}

    def run_model(self, model: Model, rw: Rewriter) -> None:
        """Choose for all layers of the model together, then convert."""
        settings = rw.options.extra.get(self.name, {})
        layers = self._layers(model, rw)
        force = _forced(settings, model)
        if force == 0:
            for layer in layers:
                rw.decline("it is switched off", node=layer.node)
            return
        if force is not None:
            chosen = [(layer, Choice(force, 0.0, growth(layer, force))) for layer in layers]
        else:
            chosen = self._choose(model, layers, _machines(settings), rw)
        builder = Builder(rw, self.name, bool(settings.get("plain")))
        for layer, choice in chosen:
            if rw.log.full:
                return
            outcome = builder.build(layer, choice.tile)
            if isinstance(outcome, Mismatch):
                rw.decline("{}", outcome, node=layer.node)
            elif outcome:
                model.metadata[GROWTH_KEY] = str(_grown(model) + choice.growth)

    def run(self, graph: Graph, rw: Rewriter) -> None:
        """Nothing: the budget is the model's, so `run_model` looks at all graphs at once."""

    def _layers(self, model: Model, rw: Rewriter) -> list[Layer]:
        found = []
        for graph in model.graphs():
            for node in graph:
                layer = read_layer(node) if node.op == "Conv" else None
                if isinstance(layer, Layer) and _in_function(graph):
                    layer = Mismatch("it is inside of a function")
                if isinstance(layer, Mismatch):
                    rw.decline("{}", layer, node=node)
                elif layer is not None:
                    found.append(layer)
        return found

    def _decline(self, layer: Layer, machines: list[Rates], rw: Rewriter) -> None:
        shortest = min(machines, key=lambda rates: direct(layer, rates))
        base = direct(layer, shortest)
        if base < SHORTEST:
            reason = "direct convolution is expected to be as fast: it takes about {:.2f} ms, less than {} ms"
            rw.decline(reason, base, SHORTEST, node=layer.node)
            return
        slowest = max(machines, key=lambda r: min(winograd(layer, tile, r) for tile in TILES) / direct(layer, r))
        times = (direct(layer, slowest), *(winograd(layer, tile, slowest) for tile in TILES))
        reason = "direct convolution is expected to be faster: {:.2f} ms, F(4x4,3x3) {:.2f} ms, F(2x2,3x3) {:.2f} ms"
        rw.decline(reason, *times, node=layer.node)

    def _choose(
        self, model: Model, layers: list[Layer], machines: list[Rates], rw: Rewriter
    ) -> list[tuple[Layer, Choice]]:
        """The algorithms of the layers that gain, within the budget for growth."""
        grown = _grown(model)
        left = (rw.options.max_weight_growth - 1) * (_bytes(model) - grown) - grown
        offers = []
        for layer in layers:
            choices = gains(layer, machines)
            if choices:
                offers.append((layer, choices))
                continue
            self._decline(layer, machines, rw)
        chosen: dict[Layer, Choice] = {}
        for layer, choices in sorted(offers, key=lambda offer: -offer[1][0].saved / max(offer[1][0].growth, 1)):
            choice = next((choice for choice in choices if choice.growth <= left), None)
            if choice is None:
                reason = "its weights would grow by {:.1f} MB, more than max_weight_growth = {} leaves"
                rw.decline(reason, choices[-1].growth / 1e6, rw.options.max_weight_growth, node=layer.node)
                continue
            left -= choice.growth
            chosen[layer] = choice
        return [(layer, chosen[layer]) for layer, _ in offers if layer in chosen]


def _forced(settings: dict[str, Any], model: Model) -> int | None:
    """The tile size asked for; 0 for none at all; None when the cost model is to choose."""
    asked = settings.get("force", model.metadata.get(METADATA_KEY))
    if asked is None:
        return None
    if asked == "off":
        return 0
    if str(asked) not in map(str, TILES):
        raise UsageError(f"Winograd tile size {asked!r}: expected one of {', '.join(map(str, TILES))}, or 'off'")
    return int(asked)


def _machines(settings: dict[str, Any]) -> list[Rates]:
    """The machines on which a layer must gain: all that were measured unless `rates` names one or gives its own."""
    asked = settings.get("rates")
    if isinstance(asked, Rates):
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


def _in_function(graph: Graph) -> bool:
    outer: Graph | None = graph
    while outer is not None:
        if outer.is_function:
            return True
        outer = outer.parent
    return False
