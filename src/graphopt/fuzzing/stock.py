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
"""Elements of all fragments that a process holds, and a model's worth for each."""
_SMALL = 1 << 10
"""What a fragment counts for beside its elements."""
_LARGE = 1 << 16
"""Elements of a fragment that is not held."""
_TRIES = 3
_GUESSES = 8
"""How often sizes that are open are drawn."""
_TWICE = 0.3
"""Part of the variants in which two things are changed."""
_NAME = re.compile(r"(?P<case>[^@#]+)(?:@(?P<opset>\d+))?(?P<steps>(?:#\d+)*)")


class FragmentName(NamedTuple):
    """A golden case and what was made of it, as `pass/case@17#5#9`.

    Attributes:
        case: the golden case, as `pass/case`.
        opset: the standard opset that it is brought to; 0 for its own.
        steps: numbers of which each changes one thing more.
    """

    case: str
    opset: int = 0
    steps: tuple[int, ...] = ()

    @classmethod
    def read(cls, text: str) -> FragmentName:
        """The name that a text is; of anything else a case that there is not."""
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
        rule: the pass whose golden case it was made of.
        model: the model.
        feed: numbers for its inputs.
        results: its outputs on these numbers, as far as they are tensors.
        opaque: types of its other outputs.
        constants: its initializers.
        form: a number that differs where operators, attributes, types, sizes or lists of integers do.
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
        seed: where variants come from.
        cases: golden cases by name.
        kinds: what can be changed; what usually can when None.
    """

    def __init__(
        self, seed: str, cases: Mapping[str, Seedling], kinds: Mapping[str, Change] | None = None
    ) -> None:  # fmt: skip
        self.seed, self.cases, self.kinds = seed, cases, kinds
        self._held: OrderedDict[str, Fragment | None] = OrderedDict()
        self._size = 0

    def get(self, name: str) -> Fragment | None:
        """The fragment of a name; None where it does not run."""
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
        tries = _GUESSES if any(map(is_open, model.graph.input)) else 1  # not every size goes with the others
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
    """The standard opset of a model; 0 where it states none."""
    return next((entry.version for entry in model.opset_import if not entry.domain), 0)


def schema_of(node: NodeProto, opset: int) -> defs.OpSchema | None:
    """What the standard says of the operator of a node at an opset; None where it has none."""
    try:
        return defs.get_schema(node.op_type, max(opset, 1), "")
    except defs.SchemaError:
        return None


def at_opset(model: ModelProto, opset: int) -> None:
    """Say that a model is of another opset, which need not be valid."""
    for entry in model.opset_import:
        if not entry.domain:
            entry.version = opset


def fragment(rule: str, model: ModelProto, draw: Draw) -> Fragment | None:
    """What a model gives on numbers drawn for it; None where it does not run."""
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
    """A number that is equal for models that differ in nothing but names and the numbers of their weights."""
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
    """The numbers of a short list of integers, which say what an operator does."""
    lists = tensor.data_type in (TensorProto.INT32, TensorProto.INT64) and len(tensor.dims) <= 1
    return numpy_helper.to_array(tensor).tobytes() if lists else b""
