"""The pattern language: what a rule looks for, written as ONNX and compiled to Python.

A pattern is a function that applies operators to variables. It is called once, and what it recorded becomes a matcher:

    def pattern(op, x):
        conv = op.Conv(x, Const("w"), Opt(Const("b")), _bind="conv", _other_attrs=True)
        return op.Relu(conv)

`docs/adr/0003-pattern-semantics.md` says what a pattern matches.
"""

from graphopt.match.builder import OpBuilder, trace
from graphopt.match.compiled import CompiledPattern, Found, compile_pattern
from graphopt.match.mismatch import Mismatch
from graphopt.match.result import Match
from graphopt.match.tree import Attr, Const, Opt, OutputPattern, Pattern, Rest, Var

__all__ = [
    "Attr", "CompiledPattern", "Const", "Found", "Match", "Mismatch", "OpBuilder", "Opt", "OutputPattern", "Pattern",
    "Rest", "Var", "compile_pattern", "trace",
]  # fmt: skip
