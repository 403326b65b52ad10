"""The number of iterations of a `Loop`, where it is known statically."""

from __future__ import annotations

import numpy as np

from graphopt.analysis.kernels import Array, Unsupported, run_kernel
from graphopt.analysis.purity import is_deterministic
from graphopt.errors import Decline
from graphopt.ir import Node, TensorType, Value
from graphopt.operators.carried import Carried
from graphopt_passes.folding.branches import known_condition, only_element

_MOST_STEPS = 20_000
"""Most node evaluations to determine when a loop ends."""

_MOST_BYTES = 1 << 12
"""Most bytes of a tensor that the condition depends on: usually it is a counter."""


def rounds_of(loop: Carried, most: int) -> int:
    """The number of iterations of a `Loop`; declines if it is unknown, and may decline if it exceeds `most`."""
    limit, condition = loop.node.input(0), loop.node.input(1)
    if limit is not None and limit.is_const and only_element(limit) <= 0:
        return 0
    if condition is not None and not known_condition(condition, loop.node.graph):
        return 0
    trips = None if limit is None else only_element(limit)
    return 1 if trips == 1 else _until_false(loop, trips, most)


def _until_false(loop: Carried, limit: int | None, most: int) -> int:
    goes_on = loop.body.outputs[0]
    while copy := goes_on.made_by("Identity"):
        goes_on = copy.operand(0)
    if goes_on.is_const and not only_element(goes_on):
        return 1
    if goes_on is loop.body.inputs[1] or goes_on.is_const:
        if limit is None:
            raise Decline("the loop does not terminate")
        return limit
    try:
        return _Simulation(loop).run(limit, most)
    except Unsupported as reason:
        raise Decline("the trip count is not known: {}", reason) from None


class _Simulation:
    """Evaluates the nodes that a loop's condition depends on, iteration by iteration."""

    def __init__(self, loop: Carried) -> None:
        self.loop = loop
        self.body = loop.body
        self.states: dict[int, Array] = {}
        self.cone: dict[Node, None] = {}

    def run(self, limit: int | None, most: int) -> int:
        """The number of iterations.

        Raises:
            Unsupported: the condition depends on an unknown value, or there are more than `most` iterations.
        """
        self._collect()
        nodes = [node for node in self.body if node in self.cone]
        rounds = 0
        goes_on = scalar_or_vector(self.body.inputs[1], True)
        while True:
            if rounds > most or rounds * len(nodes) > _MOST_STEPS:
                raise Unsupported(f"there are more than {rounds - 1} rounds")
            values = self._round(nodes, rounds, goes_on)
            rounds += 1
            goes_on = self._value(self.body.outputs[0], values)
            if goes_on.size != 1:
                raise Unsupported("the condition is no single boolean")
            if not goes_on.reshape(-1)[0] or rounds == limit:
                return rounds
            self.states = {k: self._value(self.loop.after[k], values) for k in self.states}

    def _collect(self) -> None:
        """Find the nodes and carried values that the condition depends on."""
        stack = [self.body.outputs[0]]
        carried = {self.loop.before(k): k for k in range(self.loop.states)}
        while stack:
            value = stack.pop()
            k = carried.get(value)
            producer = value.producer
            if k is not None and k not in self.states:
                self.states[k] = self._value(self.loop.start(k), {})
                stack.append(self.loop.after[k])
            elif producer is not None and producer.graph is self.body and producer not in self.cone:
                if not value.is_const and (producer.subgraphs or not is_deterministic(producer)):
                    raise Unsupported(f"it depends on {producer.op}")
                self.cone[producer] = None
                stack.extend(producer.operands)

    def _round(self, nodes: list[Node], number: int, goes_on: Array) -> dict[Value, Array]:
        count, condition = self.body.inputs[:2]
        values = {count: scalar_or_vector(count, number), condition: goes_on}
        values.update((self.loop.before(k), array) for k, array in self.states.items())
        for node in nodes:
            if node.op == "Constant":
                continue
            results = run_kernel(node, [None if v is None else self._value(v, values) for v in node.inputs])
            if sum(array.nbytes for array in results) > _MOST_BYTES:
                raise Unsupported("it depends on large tensors")
            values.update((v, array) for v, array in zip(node.outputs, results, strict=False) if v is not None)
        return values

    def _value(self, value: Value, values: dict[Value, Array]) -> Array:
        array = values[value] if value in values else value.const(_MOST_BYTES)
        if array is None:
            raise Unsupported(f"{value.name} is not constant")
        return array


def scalar_or_vector(value: Value, content: int | bool) -> Array:
    """A counter or condition as an input of a body: a scalar, or a one-element vector if declared so."""
    declared = value.declared
    is_vector = isinstance(declared, TensorType) and declared.rank == 1
    array: Array = np.array(content, np.bool_ if isinstance(content, bool) else np.int64)
    return array.reshape(1) if is_vector else array
