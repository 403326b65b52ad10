"""`CompiledPattern`: a traced pattern, and the Python function that finds it."""

from __future__ import annotations

import linecache
from collections.abc import Collection, Iterator, Mapping
from itertools import combinations
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from graphopt.match import checks
from graphopt.match.builder import PatternFunction, trace
from graphopt.match.definition import check_definition
from graphopt.match.guards import Guards
from graphopt.match.mismatch import Mismatch
from graphopt.match.result import Match
from graphopt.match.structure import Structure
from graphopt.match.text import pattern_text
from graphopt.match.tree import Opt, OutputPattern, Tree
from graphopt.match.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphopt.ir import Node

Found: TypeAlias = Match | Mismatch | None

_CALLED = ("climb", "differs", "given", "not_constant", "not_equal", "not_set", "outside", "too_few", "unmentioned",
           "used_elsewhere", "wrong_dtype", "wrong_rank")  # fmt: skip


class CompiledPattern:
    """A pattern that was checked, and that turns into a Python function when it is first asked.

    Args:
        tree: what the trace recorded.

    Attributes:
        tree: the same.
        roots: the operators that it is dispatched by.
        names: each name that it binds, with the kind: `value`, `values`, `const`, `node` or `attr`.
        match: tries a node. Gives the `Match`, or a `Mismatch` if the operators fit and something else does not, or
            None. It changes nothing and keeps nothing.

    Raises:
        PassError: the pattern does not make sense.
    """

    __slots__ = ("_source", "match", "names", "roots", "tree")

    match: Callable[[Node], Found]

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.roots: tuple[str, ...] = tuple(dict.fromkeys(tree.root.ops))
        self.names: Mapping[str, str] = MappingProxyType(check_definition(tree))
        self._source: str | None = None
        self.match = self._compile_and_match

    @property
    def source(self) -> str:
        """The Python source of the matcher."""
        if self._source is None:
            self._compile()
        assert self._source is not None
        return self._source

    def _compile_and_match(self, node: Node) -> Found:
        """Stands in for `match` until a node comes: most rules never meet one."""
        if self._source is None:
            self._compile()
        return self.match(node)

    def _compile(self) -> None:
        """Write the source, let tracebacks and debuggers find it, and run it."""
        writer = Writer({"Match": Match, **{name: getattr(checks, name) for name in _CALLED}})
        variants = list(_variants(self.tree))
        for number, absent in enumerate(variants):
            structure = Structure(self.tree, absent, writer, _function(number, len(variants)))
            structure.write()
            Guards(structure, writer).write(dict(self.names))
            writer.line("", 0)
        if len(variants) > 1:
            _write_trials(writer, len(variants))
        self._source = "".join(f"# {line}\n" for line in str(self).splitlines()) + "\n" + writer.source()
        filename = f"<pattern {self.tree.name} of {self.tree.where}>"
        linecache.cache[filename] = (len(self._source), None, self._source.splitlines(True), filename)
        exec(compile(self._source, filename, "exec"), writer.namespace)
        self.match = writer.namespace["match"]

    def __str__(self) -> str:
        return pattern_text(self.tree)

    def __repr__(self) -> str:
        return f"CompiledPattern({self.tree.name!r}, roots={self.roots})"


def compile_pattern(function: PatternFunction, name: str | None = None) -> CompiledPattern:
    """Trace a pattern function, check it, and make a matcher of it.

    Args:
        function: takes the builder `op` and any number of variables, and returns what the pattern ends in.
        name: whose pattern it is, for messages.

    Raises:
        PassError: the pattern does not make sense; the message has file and line, and the pattern as text.

    Examples:
        >>> pattern = compile_pattern(lambda op, x: op.Relu(op.Add(x, 0.0)))
        >>> print(pattern)
        v1 = Add (x, 0)
        v2 = Relu (v1)
        >>> pattern.roots
        ('Relu',)
    """
    return CompiledPattern(trace(function, name))


def _variants(tree: Tree) -> Iterator[Collection[Opt]]:
    """The optional operators to leave out: none at first, then ever more."""
    slots = (slot for node in tree.nodes() for slot in node.inputs if isinstance(slot, Opt))
    operators = [slot for slot in slots if isinstance(slot.pattern, OutputPattern)]
    for count in range(len(operators) + 1):
        yield from combinations(operators, count)


def _function(number: int, variants: int) -> str:
    return "match" if variants == 1 else f"match_{number}"


def _write_trials(writer: Writer, variants: int) -> None:
    """The function that tries one variant after the other."""
    functions = ", ".join(_function(number, variants) for number in range(variants))
    writer.line("def match(n0):", 0)
    writer.line("miss = None")
    writer.line(f"for variant in ({functions}):")
    writer.line("found = variant(n0)", 2)
    writer.test("found", "found", 2)
    writer.line("if found is not None:", 2)
    writer.line("miss = found", 3)
    writer.line("return miss")
