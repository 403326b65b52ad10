"""Whole models: random operators, golden cases of rules in random surroundings, and real structures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper

from graphopt.fuzzing.building import Builder, Sample, element_type
from graphopt.fuzzing.control import as_function, random_control_model
from graphopt.fuzzing.drawing import Draw
from graphopt.fuzzing.embedding import embed, is_open, plant_fragment
from graphopt.fuzzing.field import harden
from graphopt.fuzzing.networks import channels_network
from graphopt.fuzzing.operators import FREQUENT, OPSETS, grow, operators
from graphopt.fuzzing.quantized import random_dynamic, random_operators, random_qdq, random_single
from graphopt.fuzzing.seedlings import Nursery, Seedling
from graphopt.fuzzing.stock import FragmentName, Stock, opset_of
from graphopt.fuzzing.templates import FOR_PEERS, TEMPLATES, plant
from graphopt.verify.values import Array, is_float

_IR_VERSIONS = ((24, 13), (23, 11), (21, 10), (19, 9), (0, 8))
"""The IR version for each opset from which on it is needed."""

TOGETHER = (1, 2, 4, 8, 12, 16)
"""Numbers of golden cases that one model begins with."""
_MOST_OUTPUTS = 12
_LEAST = 0.6
"""Fraction of the models that begin with golden cases."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """Constraints on the models.

    Attributes:
        ops: standard operators to draw from; all if empty.
        seedlings: models on which rules are known to fire or decline.
        passes: whether only these rules are tested, so that real structures are of no use.
        steps: the largest number of nodes drawn for one model.
        together: numbers of golden cases that one model begins with.
        sown: the golden cases that models can be told to begin with, by name.
        stock: their variants that run.
        field: whether only other optimizers are tested.
    """

    ops: tuple[str, ...] = ()
    seedlings: Nursery = field(default_factory=Nursery)
    passes: bool = False
    steps: int = 10
    together: tuple[int, ...] = TOGETHER
    sown: Mapping[str, Seedling] = field(default_factory=dict)
    stock: Stock | None = None
    field: bool = False


@np.errstate(all="ignore")  # overflowing numbers are among those drawn
def sample(seed: object, wishes: Wishes = Wishes(), sow: Sequence[str] = ()) -> Sample | None:
    """A model and feeds for it.

    Args:
        seed: equal seeds give equal models.
        wishes: constraints on the model.
        sow: golden cases to begin with.

    Returns:
        The sample; None if this seed gives none.
    """
    draw = Draw(seed)
    b = Builder(draw, draw.one(OPSETS))
    kind = _sown_with(b, wishes, sow) if sow else _begun(b, wishes)
    if kind is None:
        return None
    more = draw.one((0, 0, 1, 2, 4)) if b.woven else 0
    for _ in range(more if kind else draw.between(2, wishes.steps)):
        grow(b, _operator(b, wishes))
    if not b.nodes or all(node.op_type == "Constant" for node in b.nodes):
        return None
    found = finish(b)
    found.kind, found.seed = kind or "random", str(seed)
    if wishes.field:
        as_it_is = bool(b.planted) and all(not any(FragmentName.read(name)[1:]) for name in b.planted)
        harden(found, Draw(f"{seed}/harder"), as_it_is=as_it_is)
    if b.planted:
        found.target, found.settings, _ = wishes.sown[FragmentName.read(next(iter(b.planted))).case].context
    return found


def _begun(b: Builder, wishes: Wishes) -> str | None:
    """Begin a model; returns the kind of its beginning, empty if it is to be all random; None if that failed."""
    draw = b.draw
    lot = draw.rng.random()
    if wishes.field:
        lot = _LEAST + (1 - _LEAST) * lot  # golden cases take turns in other models
    elif wishes.seedlings and lot < _LEAST:
        return _sown(b, wishes)
    if wishes.ops or wishes.passes or lot < 0.8:
        return ""
    if lot < 0.86:
        model = random_control_model(draw.rng.randrange(1 << 30), draw.between(2, 6))
        if draw.chance(0.25):
            model = as_function(model)
        return "control flow" if embed(b, model, surrounded=False, varied=False) else None
    if lot < 0.89:
        model = channels_network(draw.rng.randrange(1 << 30))
        return "network" if embed(b, model, surrounded=False, varied=False) else None
    if lot < 0.93:
        return "quantized network" if embed(b, _quantized(draw), surrounded=False, varied=False) else None
    name = str(draw.one(sorted({**TEMPLATES, **FOR_PEERS} if wishes.field else TEMPLATES)))
    return name if plant(b, name) else None


def _quantized(draw: Draw) -> onnx.ModelProto:
    """A quantized network; with exact scales if several operators follow one another, since steps accumulate."""
    seed, kind = draw.rng.randrange(1 << 30), draw.rng.randrange(4)
    if kind == 0:
        return random_single(seed)[0]
    if kind == 1:
        return random_dynamic(seed)[0]
    grown = random_qdq if kind == 2 else random_operators
    return grown(seed, True)[0]


def _sown(b: Builder, wishes: Wishes) -> str | None:
    """Begin with one golden case or several; later cases may read values of earlier ones."""
    draw = b.draw
    names: list[str] = []
    for _ in range(draw.one(wishes.together)):
        seedling = wishes.seedlings.draw(draw, b.opset if names else 0)
        if seedling is not None and embed(b, seedling.model(), surrounded=draw.chance(0.5)):
            names.append(f"{seedling.rule}/{seedling.case}")
            b.rules.append(seedling.rule)
    return ", ".join(names) or None


_WOVEN = 0.25
"""Fraction of the models whose golden cases read values of other nodes and are surrounded by other operators."""


def _sown_with(b: Builder, wishes: Wishes, sow: Sequence[str]) -> str | None:
    """Begin with the named fragments of golden cases that are compatible with the first."""
    assert wishes.stock is not None
    first = wishes.sown[FragmentName.read(sow[0]).case]
    b.opset = FragmentName.read(sow[0]).opset or first.opset or b.opset
    names, woven = [], b.draw.chance(_WOVEN)
    for name in sow:
        told = FragmentName.read(name)
        if first.context != wishes.sown[told.case].context:
            continue
        made = wishes.stock.get(name)
        if made is None or opset_of(made.model) not in (0, b.opset):
            made = wishes.stock.get(str(told._replace(opset=b.opset)))
        if made is not None and plant_fragment(b, name, made, woven=woven and b.draw.chance(0.5)):
            names.append(name)
            b.metadata.update({entry.key: entry.value for entry in made.model.metadata_props})
    b.woven = woven
    return ", ".join(names) or None


def _operator(b: Builder, wishes: Wishes) -> str:
    known = wishes.ops or operators(b.opset)
    if not wishes.ops and b.draw.chance(0.6):
        return str(b.draw.one(FREQUENT))
    return str(b.draw.one(known))


def finish(b: Builder) -> Sample:
    """Choose the outputs, declare the sizes as an author would, and make the feeds."""
    draw = b.draw
    outputs = _outputs(b)
    symbols = _symbols(b)
    initial = {tensor.name for tensor in b.tensors}
    infos = [_info(name, b.held[name], symbols if name not in initial else {}) for name in b.inputs]
    infos = [helper.make_value_info(i.name, b.declared.get(i.name, i.type)) for i in infos]
    static = not any(map(is_open, infos))
    branched = any(node.op_type == "If" for node in b.nodes)  # the branch not taken may have another shape
    results = [_info(name, b.held[name], {}, shaped=static and draw.chance(0.6) and not branched) for name in outputs]
    results += [helper.make_value_info(name, kind) for name, kind in b.opaque.items()]
    graph = helper.make_graph(b.nodes, "g", infos, results, b.tensors)
    named = {*b.inputs, *outputs, *initial}
    if static and draw.chance(0.25):
        inner = [n for n in b.order if n not in named and draw.chance(0.7)]
        graph.value_info.extend(_info(name, b.held[name], {}) for name in inner)
    version = next(ir for opset, ir in _IR_VERSIONS if b.opset >= opset)
    model = helper.make_model(graph, opset_imports=b.imports(), ir_version=version, functions=b.functions)
    if draw.chance(0.1):
        model.metadata_props.add(key="author", value="somebody")
        model.doc_string = "a model"
    for key, value in b.metadata.items():
        model.metadata_props.add(key=key, value=value)
    numbers = feeds(b, [n for n in b.inputs if n not in initial], [n for n in b.inputs if n in initial])
    return Sample(model, numbers, rules=tuple(b.rules), planted=b.planted)


def _outputs(b: Builder) -> list[str]:
    """Values without readers, and sometimes an intermediate value, an input or a constant."""
    draw = b.draw
    known = set(b.order)
    made = [name for node in b.nodes for name in node.output if name in known]
    read = {name for node in b.nodes for name in node.input}
    ends = [name for name in made if name not in read]
    if len(ends) > _MOST_OUTPUTS and not b.planted:  # no node of a golden case may be dead
        ends = sorted(draw.rng.sample(ends, _MOST_OUTPUTS), key=made.index)
    extra = [name for name in made if name in read and draw.chance(0.12)]
    if draw.chance(0.04) and b.inputs:
        extra.append(draw.one(b.inputs))
    chosen = list(dict.fromkeys([*ends, *extra])) or made[-1:]
    draw.rng.shuffle(chosen)
    return chosen


def _symbols(b: Builder) -> dict[tuple[str, int], str]:
    """Names for axes of inputs whose sizes are dynamic."""
    draw = b.draw
    if draw.chance(0.9 if b.planted else 0.6):  # most golden cases need static sizes
        return {}
    sizes = sorted({d for name in b.inputs for d in b.held[name].shape})
    chosen = {d for d in sizes if draw.chance(0.4)}
    named: dict[tuple[str, int], str] = {}
    for name in b.inputs:
        for axis, size in enumerate(b.held[name].shape):
            if size in chosen and draw.chance(0.8):
                named[name, axis] = "" if draw.chance(0.15) else f"n{size}"
    return named


def _info(name: str, array: Array, symbols: dict[tuple[str, int], str], *, shaped: bool = True) -> onnx.ValueInfoProto:
    def dim(axis: int, size: int) -> int | str | None:
        return (symbols[name, axis] or None) if (name, axis) in symbols else size

    dims = [dim(axis, size) if shaped else None for axis, size in enumerate(array.shape)]
    return helper.make_tensor_value_info(name, element_type(array), dims)


def feeds(b: Builder, needed: Sequence[str], optional: Sequence[str]) -> list[dict[str, Array]]:
    """Feeds: the ordinary numbers that the model was grown on, others, special ones, and overrides of defaults."""
    first = {name: b.held[name] for name in needed}
    found = [first]
    for special in (False, True):
        other = {name: _again(b.draw, array, special=special) for name, array in first.items()}
        if other:
            found.append(other)
    if optional:
        found.append({**first, **{name: _again(b.draw, b.held[name], special=False) for name in optional}})
    return found


def _again(draw: Draw, array: Array, *, special: bool) -> Array:
    """Other numbers in place of an array; lists of sizes, axes and positions stay."""
    if array.dtype.kind in "iu" and array.dtype.itemsize >= 4 and array.ndim <= 1:
        return array
    return draw.array(
        array.dtype, array.shape, special=special and (is_float(array.dtype) or array.dtype.itemsize == 1)
    )
