"""Operators that move what another one computes, each read by the next alone."""

from __future__ import annotations

from graphopt.rewrite import Node, Rewriter, Value

_MOST_MOVES = 8


def before_moves(value: Value, reader: Node, kinds: tuple[str, ...]) -> tuple[Value, list[Node]]:
    """What is moved, with the moves of some kinds, the last one first; each of them is read by the next alone."""
    moves: list[Node] = []
    while len(moves) < _MOST_MOVES and value.made_by(*kinds):
        reader = value.sole_source(*kinds, reader=reader)
        moves.append(reader)
        value = reader.operand(0)
    return value, moves


def moved_again(value: Value, moves: list[Node], rw: Rewriter) -> Value:
    """The same moves of another value."""
    for move in reversed(moves):
        value = rw.again(move, value, *move.inputs[1:])
    return value
