"""The pattern language: patterns that rules search for, written like ONNX.

A pattern is a function that applies operators to variables. It is called once, and its result is matched:

    def pattern(self, op, x):
        return op.Mul(x, op.Sigmoid(op.Mul(x, Scalar("alpha"))))

`docs/adr/0003-pattern-semantics.md` says what a pattern matches.
"""

from graphopt.match.compiled import CompiledPattern, compile_pattern
from graphopt.match.pattern import FLOAT32, Attr, Const, Either, OpBuilder, Opt, Pattern, Product, Rest, Scalar, Var
from graphopt.match.result import Match

__all__ = [
    "FLOAT32", "Attr", "CompiledPattern", "Const", "Either", "Match", "OpBuilder", "Opt", "Pattern", "Product", "Rest",
    "Scalar", "Var", "compile_pattern",
]  # fmt: skip
