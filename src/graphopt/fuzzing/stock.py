"""Variants of golden cases that are known to run: drawn and validated once, then set into many models."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx
from onnx import ModelProto, NodeProto, TensorProto, defs, numpy_helper

from graphopt.fuzzing.building import FRAGILE, computed, makeshift, stored
from graphopt.fuzzing.drawing import Draw
from graphopt.fuzzing.embedding import MOST_ELEMENTS, is_open, numbers_for
from graphopt.fuzzing.seedlings import Seedling
from graphopt.fuzzing.variants import Change, variant
from graphopt.verify.values import Array

_KEPT = 1 << 24
"""Elements of all fragments that a process caches."""
_SMALL = 1 << 10
"""A fragment's size counts this much more than its elements."""
_LARGE = 1 << 16
"""Fragments with more elements are not cached."""
_TRIES = 3
_GUESSES = 8
"""How often dynamic sizes are drawn."""
_TWICE = 0.3
"""Fraction of the variants in which two things are changed."""
_NAME = re.compile(r"(?P<case>[^@#]+)(?:@(?P<opset>\d+))?(?P<steps>(?:#\d+)*)")


class FragmentName(NamedTuple):
    """A golden case and its changes, as `pass/case@17#5#9`.

    Attributes:
        case: the golden case, as `pass/case`.
        opset: the standard opset that it is converted to; 0 for its own.
        steps: seeds, each of one further change.
    """

    case: str
    opset: int = 0
    steps: tuple[int, ...] = ()

    @classmethod
    def read(cls, text: str) -> FragmentName:
        """The name in a text; other texts are read as the name of a case that does not exist."""
        match = _NAME.fullmatch(text)
        if match is None:
            return cls(text)
        return cls(match["case"], int(match["opset"] or 0), tuple(map(int, match["steps"].split("#")[1:])))

    def __str__(self) -> str:
        return f"{self.case}{f'@{self.opset}' if self.opset else ''}{''.join(f'#{n}' for n in self.steps)}"


@dataclass(slots=True)
class Fragment:
    """A model that runs, to be set into another.

    Attributes:
        rule: the pass from whose golden case it was made.
        model: the model.
        feed: arrays for its inputs.
        results: its tensor outputs on this feed.
        opaque: types of its other outputs.
        constants: its initializers.
        form: a number that differs if operators, attributes, types, sizes or lists of integers differ.
    """

    rule: str
    model: ModelProto
    feed: dict[str, Array]
    results: dict[str, Array]
    opaque: dict[str, onnx.TypeProto] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    form: int = 0

    @property
    def size(self) -> int:
        """Elements of its tensors."""
        return sum(a.size for held in (self.feed, self.results, self.constants) for a in held.values())


class Stock:
    """Fragments by name; equal names and seeds give equal fragments.

    Args:
        seed: the seed of the variants.
        cases: golden cases by name.
        kinds: the changes to draw from; the default ones if None.
    """

    def __init__(
        self, seed: str, cases: Mapping[str, Seedling], kinds: Mapping[str, Change] | None = None
    ) -> None:  # fmt: skip
        self.seed, self.cases, self.kinds = seed, cases, kinds
        self._held: OrderedDict[str, Fragment | None] = OrderedDict()
        self._size = 0

    def get(self, name: str) -> Fragment | None:
        """The fragment of a name; None if it does not run."""
        if name in self._held:
            self._held.move_to_end(name)
            return self._held[name]
        made = self._made(name)
        if _size_of(made) <= _LARGE:
            self._held[name] = made
            self._size += _size_of(made)
            while self._size > _KEPT:
                self._size -= _size_of(self._held.popitem(last=False)[1])
        return made

    def _made(self, name: str) -> Fragment | None:
        told = FragmentName.read(name)
        seedling, seed = self.cases[told.case], f"{self.seed}/{told.case}@{told.opset}"
        model: ModelProto | None = seedling.model()
        assert model is not None
        if told.opset:
            at_opset(model, told.opset)
        for step in told.steps:
            seed += f"#{step}"
            model = self._changed(model, Draw(seed), told.opset)
            if model is None:
                return None
        tries = _GUESSES if any(map(is_open, model.graph.input)) else 1  # not all sizes are compatible
        made = (fragment(seedling.rule, model, Draw(f"{seed}/numbers{n or ''}")) for n in range(tries))
        return next((each for each in made if each is not None), None)

    def _changed(self, model: ModelProto, draw: Draw, opset: int) -> ModelProto | None:
        for _ in range(_TRIES):
            found = variant(model, draw.rng.randrange(1 << 30), self.kinds)
            if found is not None and draw.chance(_TWICE):
                found = variant(found[1], draw.rng.randrange(1 << 30), self.kinds) or found
            if found is not None and (not opset or opset_of(found[1]) == opset):
                return found[1]
        return None


def _size_of(fragment: Fragment | None) -> int:
    return _SMALL + (fragment.size if fragment is not None else 0)


def opset_of(model: ModelProto) -> int:
    """The standard opset of a model; 0 if it states none."""
    return next((entry.version for entry in model.opset_import if not entry.domain), 0)


def schema_of(node: NodeProto, opset: int) -> defs.OpSchema | None:
    """The standard schema of the operator of a node at an opset; None if there is none."""
    try:
        return defs.get_schema(node.op_type, max(opset, 1), "")
    except defs.SchemaError:
        return None


def at_opset(model: ModelProto, opset: int) -> None:
    """Declare another opset of a model, which may be invalid for it."""
    for entry in model.opset_import:
        if not entry.domain:
            entry.version = opset


def fragment(rule: str, model: ModelProto, draw: Draw) -> Fragment | None:
    """A model with its outputs on a feed that is drawn for it; None if it does not run."""
    graph = model.graph
    initial = {tensor.name for tensor in graph.initializer}
    feed = numbers_for(model, draw)
    if any(info.name not in feed and info.name not in initial for info in graph.input):
        return None
    given = [*graph.initializer, *(stored(array, name) for name, array in feed.items())]
    if any(0 in tensor.dims for tensor in given) and any(node.op_type in FRAGILE for node in graph.node):
        return None
    made = {name for node in graph.node for name in node.output}
    types = {info.name: info.type for info in graph.output if info.name in made}
    opaque = {name: kind for name, kind in types.items() if kind.WhichOneof("value") != "tensor_type"}
    names = [name for name in types if name not in opaque]
    arrays = computed(
        makeshift(graph.node, given, [*names, *opaque], model.opset_import, model.functions), len(names), MOST_ELEMENTS
    )
    if not types or arrays is None:
        return None
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return Fragment(rule, model, feed, dict(zip(names, arrays, strict=True)), opaque, constants, form_of(model))


def form_of(model: ModelProto) -> int:
    """A number that is equal for models that differ only in names and in the elements of their weights."""
    graph = model.graph
    places: dict[str, int] = {"": -1}
    for name in (*(info.name for info in graph.input), *(tensor.name for tensor in graph.initializer)):
        places.setdefault(name, len(places))
    told: list[object] = [opset_of(model), [info.type.SerializeToString(deterministic=True) for info in graph.input]]
    told += [(t.data_type, tuple(t.dims), _list_of(t)) for t in graph.initializer]
    for node in graph.node:
        attributes = sorted(attribute.SerializeToString(deterministic=True) for attribute in node.attribute)
        read = [places.get(name, -2) for name in node.input]
        for name in node.output:
            places.setdefault(name, len(places))
        told.append((node.domain, node.op_type, read, len(node.output), attributes))
    told.append([places.get(info.name, -2) for info in graph.output])
    return int.from_bytes(hashlib.blake2b(repr(told).encode(), digest_size=6).digest(), "big")


def _list_of(tensor: TensorProto) -> bytes:
    """The elements of a short list of integers, which determine what an operator does."""
    lists = tensor.data_type in (TensorProto.INT32, TensorProto.INT64) and len(tensor.dims) <= 1
    return numpy_helper.to_array(tensor).tobytes() if lists else b""
