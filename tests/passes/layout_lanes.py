"""Padding lanes of blocked models: whether they hold what the plan says, and whether anything depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graphopt.system.machine import host
from graphopt_passes.layout import nchwc, weights
from graphopt_passes.layout.emitter import Blocked, Emitter
from graphopt_passes.layout.form import Group
from tests.passes.layout_models import assert_close, convert, run

BEFORE = "_before"
"""What the name of a value ends with whose padding lanes are filled behind it."""

WILD = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 0, 1], np.float32)


@dataclass
class Built:
    """What a run of the pass has built.

    Attributes:
        blocked: the blocked values, by name.
        kinds: kinds of forms, with the operator of each.
    """

    blocked: dict[str, Blocked] = field(default_factory=dict)
    kinds: set[tuple[str, str]] = field(default_factory=set)


@contextmanager
def recorded(monkeypatch: Any) -> Iterator[Built]:
    """Note what is emitted in all runs meanwhile."""
    built, emitters = Built(), []
    emit = nchwc.emit

    def recording(group: Group, emitter: Emitter) -> None:
        emitters.append(emitter)
        emit(group, emitter)
        built.kinds.add((group.form.node.op, group.form.title))

    with monkeypatch.context() as patch:
        patch.setattr(nchwc, "emit", recording)
        yield built
    for emitter in emitters:
        built.blocked |= {found.value.name: found for found in emitter._blocked.values()}


def padding(layout: weights.Layout, block: int) -> np.ndarray:
    """Which lanes are no channels."""
    found = np.ones(weights.lanes(layout, block), bool)
    found[weights.positions(layout, block)] = False
    return found


def exposed(model: onnx.ModelProto, built: Built) -> onnx.ModelProto:
    """A model whose blocked values are outputs, too; as nodes give them, where something else fills their padding."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    made = {name for node in model.graph.node for name in node.output} - {out.name for out in model.graph.output}
    for name in sorted(set(built.blocked)):
        found = next((each for each in (name + BEFORE, name) if each in made), None)
        if found is not None:
            shown.graph.output.append(helper.make_tensor_value_info(found, TensorProto.FLOAT, None))
    return shown


def poisoned(model: onnx.ModelProto, built: Built, block: int, rng: np.random.Generator) -> onnx.ModelProto:
    """A model that fills padding lanes behind each node with any of the numbers that they may hold."""
    wild = onnx.ModelProto()
    wild.CopyFrom(model)
    nodes = list(wild.graph.node)
    del wild.graph.node[:]
    for node in nodes:
        made = wild.graph.node.add()
        made.CopyFrom(node)
        for at, name in enumerate(node.output):
            found = built.blocked.get(name)
            if found is not None and padding(found.layout, block).any():
                made.output[at] = name + BEFORE
                _fill(wild.graph, name, found, block, rng)
    return wild


def _fill(graph: onnx.GraphProto, name: str, found: Blocked, block: int, rng: np.random.Generator) -> None:
    lanes, width = found.lanes, weights.lanes(found.layout, block)
    numbers = rng.choice(WILD, width)
    if lanes.bounded:
        numbers = rng.choice([lanes.low, lanes.high, rng.uniform(lanes.low, lanes.high)], width).astype(np.float32)
    split = (1, width // block, 1, 1, block)
    constants = {
        "view": weights.view(found.layout, block), "whole": weights.whole(found.layout, block),
        "is_padding": padding(found.layout, block).reshape(split), "numbers": numbers.reshape(split),
    }  # fmt: skip
    names = {what: f"{name}_{what}" for what in (*constants, "split", "filled")}
    graph.initializer.extend(numpy_helper.from_array(array, names[what]) for what, array in constants.items())
    graph.node.extend(
        helper.make_node(op, [names.get(i, i) for i in inputs], [names.get(out, out)])
        for op, inputs, out in (
            ("Reshape", [name + BEFORE, "view"], "split"),
            ("Where", ["is_padding", "numbers", "split"], "filled"),
            ("Reshape", ["filled", "whole"], name),
        )
    )


def _assert_as_stated(names: list[str], arrays: list[np.ndarray], built: Built, block: int) -> None:
    """Padding lanes hold what the plan says."""
    for name, array in zip(names, arrays, strict=True):
        found = built.blocked[name.removesuffix(BEFORE)]
        if not found.lanes.bounded:
            continue
        n, c, h, w = array.shape
        lanes = array.reshape(n, c // block, h, w, block).transpose(1, 4, 0, 2, 3).reshape(c, -1)
        held = lanes[padding(found.layout, block)]
        within = (held >= np.float32(found.lanes.low)) & (held <= np.float32(found.lanes.high))
        assert within.all(), (name, found.lanes, held[~within][:4])


def assert_lanes_do_not_matter(
    model: onnx.ModelProto, built: Built, expected: list[np.ndarray], given: dict[str, np.ndarray], seed: int
) -> None:
    """Results are the same whatever padding lanes hold, and each node keeps to what the plan says of its own."""
    block, rng = host().block, np.random.default_rng(seed)
    for filled in (model, poisoned(model, built, block, rng), poisoned(model, built, block, rng)):
        shown = exposed(filled, built)
        found = run(shown, given)
        count = len(model.graph.output)
        _assert_as_stated([out.name for out in shown.graph.output][count:], found[count:], built, block)
        if filled is model:
            assert_close(expected, found[:count])
            plain = found[:count]
        for a, b in zip(plain, found[:count], strict=True):
            np.testing.assert_array_equal(b, a)


def converted(model: onnx.ModelProto, monkeypatch: Any, **settings: Any) -> tuple[onnx.ModelProto, Built]:
    """The blocked model, and what was built of it."""
    with recorded(monkeypatch) as built:
        result = convert(model, **settings)
    return result.model, built
