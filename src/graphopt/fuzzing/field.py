"""Samples of sessions that test only other optimizers: golden cases of similar passes in turn, and harder numbers."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import zip_longest

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from graphopt.audit.equivalents import BUILT_ON_IT
from graphopt.fuzzing.building import Sample, stored
from graphopt.fuzzing.drawing import Draw
from graphopt.fuzzing.seedlings import Seedling
from graphopt.fuzzing.stock import FragmentName, opset_of
from graphopt.peers import by_name
from graphopt.pipeline import registry
from graphopt.verify.values import Array, is_float

_PERIOD = 6
"""One index in this many begins with no golden case."""
_TOGETHER = 3
"""Golden cases per model. An optimizer's fault in one case hides its faults in the others."""
_OPSETS = tuple(range(7, 26))
_FROZEN = 0.3
"""Fraction of the models some of whose inputs become constants, for optimizers to fold."""
_FORMS = 0.3
"""Fraction of the models whose constants use the attributes that `Constant` has for single numbers and lists."""
_NEWER_CONSTANTS = 12
"""The opset from which on `Constant` has other attributes."""


def rules_like(peers: Iterable[str]) -> set[str]:
    """Our passes that do the same as some pass of these optimizers, as `Rule.peers` states."""
    tools = {by_name(name).distribution for name in peers}
    tools |= {below for below, above in BUILT_ON_IT.items() if tools & set(above)}
    known = registry()
    return {name for name in known.names() if tools & set(known.rule_class(name).peers)}


class Turns:
    """Golden cases of passes like those of the peers, three per model, each once before any is repeated.

    In the first round they are unchanged; later rounds change something or convert them to another opset. The order
    depends only on the seed. Passes take turns, and within a pass cases that fire alternate with cases that decline.

    Args:
        seed: the seed of the order.
        cases: golden cases by name.
        peers: the optimizers.
    """

    def __init__(self, seed: str, cases: Mapping[str, Seedling], peers: Iterable[str]) -> None:
        wanted = rules_like(peers)
        self.seed = seed
        self.cases = {name: each for name, each in cases.items() if each.rule in wanted}
        self._places = {name: (each.context, each.opset) for name, each in self.cases.items()}
        self._round = lru_cache(maxsize=2)(self._grouped)

    def draw(self, index: int) -> list[str]:
        """Cases for the model of an index; none if it is to begin otherwise."""
        turn, rest = divmod(index, _PERIOD)
        if rest == _PERIOD - 1 or not self.cases:
            return []
        number, at = divmod(turn * (_PERIOD - 1) + rest, len(self._round(0)))
        rng = random.Random(f"{self.seed}/{index}/changed")
        return [self._changed(rng, name, index) if number else name for name in self._round(number)[at]]

    @staticmethod
    def _changed(rng: random.Random, name: str, index: int) -> str:
        lot = rng.random()
        if lot < 0.6:
            return str(FragmentName(name, steps=(index,)))
        return str(FragmentName(name, opset=rng.choice(_OPSETS))) if lot < 0.8 else name

    def _grouped(self, number: int) -> list[tuple[str, ...]]:
        """The cases of one round; those in one model share the opset, target and settings."""
        groups: list[list[str]] = []
        open_groups: dict[object, list[str]] = {}
        for name in self._ordered(random.Random(f"{self.seed}/round {number}")):
            group = open_groups.setdefault(self._places[name], [])
            if not group:
                groups.append(group)
            group.append(name)
            if len(group) == _TOGETHER:
                del open_groups[self._places[name]]
        return [tuple(group) for group in groups]

    def _ordered(self, rng: random.Random) -> list[str]:
        """All cases, in rounds of one per pass."""
        of: dict[str, dict[bool, list[str]]] = {}
        for name, each in self.cases.items():
            of.setdefault(each.rule, {True: [], False: []})[each.fires].append(name)
        lines = []
        for kinds in of.values():
            some = list(kinds.values())
            for names in (*some, some):
                rng.shuffle(names)  # type: ignore[arg-type]  # the cases of a kind, and which kind comes first
            lines.append([name for pair in zip_longest(*some) for name in pair if name])
        rng.shuffle(lines)
        return [name for names in zip_longest(*lines) for name in names if name]


def harden(sample: Sample, draw: Draw, *, as_it_is: bool) -> None:
    """Add large numbers and zeros to the feeds; turn inputs into constants, and rewrite the form of constants.

    Args:
        sample: the sample, which is changed.
        draw: the source of choices.
        as_it_is: whether the model is to stay unchanged.
    """
    if not as_it_is:
        if draw.chance(_FROZEN):
            _freeze(sample, draw)
        if draw.chance(_FORMS):
            _reform(sample.model, draw)
    first = sample.feeds[0]
    if first:
        sample.feeds.append({name: _large(draw, array) for name, array in first.items()})
        sample.feeds.append({name: _with_zeros(draw, array) for name, array in first.items()})


def _large(draw: Draw, array: Array) -> Array:
    """The same array some orders of magnitude larger; lists of positions and sizes stay."""
    many = array.dtype.kind in "iu" and array.dtype.itemsize >= 4 and array.ndim > 1
    if not many and not is_float(array.dtype):
        return array
    with np.errstate(all="ignore"):
        return np.asarray(array * np.asarray(10 ** draw.between(1, 4), array.dtype)).astype(array.dtype)


def _with_zeros(draw: Draw, array: Array) -> Array:
    """The same array with zeros in some slices along any axis."""
    if not is_float(array.dtype) or not array.size:
        return array
    made = array.copy()
    if not array.ndim:
        return np.zeros_like(made)
    axis = draw.rng.randrange(array.ndim)
    at = draw.some(range(array.shape[axis]), 1)
    np.moveaxis(made, axis, 0)[at] = 0
    return made


def _freeze(sample: Sample, draw: Draw) -> None:
    """Turn all or some inputs into constants."""
    graph = sample.model.graph
    names = [info.name for info in graph.input if info.name in sample.feeds[0]]
    for name in names if draw.chance(0.4) else draw.some(names, 1):
        info = next(each for each in graph.input if each.name == name)
        graph.input.remove(info)
        tensor = stored(sample.feeds[0][name], name)
        if draw.chance(0.5):
            graph.initializer.append(tensor)
        else:
            tensor.name = ""
            graph.node.insert(0, helper.make_node("Constant", [], [name], value=tensor))
        for feed in sample.feeds:
            feed.pop(name, None)


def _reform(model: onnx.ModelProto, draw: Draw) -> None:
    """Rewrite constants of one number or a list with the attribute that `Constant` has for these."""
    if opset_of(model) < _NEWER_CONSTANTS:
        return
    graph = model.graph
    given = {info.name for info in graph.input}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].HasField("t") and draw.chance(0.7):
            _spell(node, node.attribute[0].t)
    for tensor in [t for t in graph.initializer if t.name not in given]:
        node = helper.make_node("Constant", [], [tensor.name])
        if draw.chance(0.4) and _spell(node, tensor):
            graph.initializer.remove(tensor)
            graph.node.insert(0, node)


_SPELLED: dict[int, str] = {
    TensorProto.FLOAT: "value_float", TensorProto.INT64: "value_int", TensorProto.STRING: "value_string"
}  # fmt: skip


def _spell(node: NodeProto, tensor: TensorProto) -> bool:
    """Write a constant as an attribute of numbers; whether that is possible."""
    if tensor.data_type not in _SPELLED or len(tensor.dims) > 1 or 0 in tensor.dims:
        return False
    name, values = _SPELLED[tensor.data_type], numpy_helper.to_array(tensor).reshape(-1).tolist()
    made = helper.make_attribute(f"{name}s", values) if tensor.dims else helper.make_attribute(name, values[0])
    del node.attribute[:]
    node.attribute.append(made)
    return True
