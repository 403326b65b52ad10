"""Chains of operators that only move data, such as reshapes, each read only by the next."""

from __future__ import annotations

from graphopt.rewrite import Node, Rewriter, Value

_MOST_MOVES = 8


def before_moves(value: Value, reader: Node, kinds: tuple[str, ...]) -> tuple[Value, list[Node]]:
    """The value before a chain of moves of some kinds, and the moves, last first; each is read only by the next."""
    moves: list[Node] = []
    while len(moves) < _MOST_MOVES and value.made_by(*kinds):
        reader = value.sole_source(*kinds, reader=reader)
        moves.append(reader)
        value = reader.operand(0)
    return value, moves


def moved_again(value: Value, moves: list[Node], rw: Rewriter) -> Value:
    """Apply the same moves to another value."""
    for move in reversed(moves):
        value = rw.again(move, value, *move.inputs[1:])
    return value
