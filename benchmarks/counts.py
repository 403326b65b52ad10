"""Counts of repeated or long code, each with a bound; an improved count must stay improved.

`python -m benchmarks counts` prints them; `--places guards` lists the places of one. A test checks the bounds.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONG_FUNCTION, LONG_FILE = 40, 500
"""About 40 lines, and about 500."""
Places = list[str]


class Sources:
    """The files of the engine and of the pass library, by their paths below the root.

    Attributes:
        texts: their contents.
        trees: their syntax trees.
    """

    def __init__(self, root: Path = ROOT) -> None:
        files = sorted(file for base in ("src", "passes") for file in (root / base).rglob("*.py"))
        self.texts = {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}
        self.trees = {name: ast.parse(text) for name, text in self.texts.items()}

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
        """All nodes of some kinds, with the file of each."""
        for name, tree in self.trees.items():
            yield from ((name, node) for node in ast.walk(tree) if isinstance(node, kinds))

    def calls(self, *names: str) -> Places:
        """Calls of functions, by their spelling in the source."""
        found = ((file, node) for file, node in self.nodes(ast.Call) if isinstance(node, ast.Call))
        return [f"{file}:{node.lineno}" for file, node in found if ast.unparse(node.func) in names]


def _guards(sources: Sources) -> Places:
    return [
        f"{file}:{node.lineno}"
        for file, node in sources.nodes(ast.Compare)
        if file.startswith("passes/") and isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is)
        and ast.unparse(node.comparators[0]) == "None"
    ]  # fmt: skip


def _mismatches(sources: Sources) -> Places:
    return [place for place in sources.calls("isinstance") if "Mismatch" in sources.texts[place.partition(":")[0]]]


def _long_functions(sources: Sources) -> Places:
    """Functions with a long body; parameters and their documentation do not count."""
    found = []
    for file, node in sources.nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        body = node.body[ast.get_docstring(node) is not None :]
        lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
        if lines > LONG_FUNCTION:
            found.append(f"{file}:{node.lineno} {node.name}: {lines} lines")
    return found


def _long_files(sources: Sources) -> Places:
    return [name for name, text in sources.texts.items() if text.count("\n") > LONG_FILE]


def _alike(sources: Sources) -> Places:
    """Public classes with the same name in several modules."""
    places: dict[str, Places] = defaultdict(list)
    for name, tree in sources.trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    return [f"{name}: {', '.join(files)}" for name, files in places.items() if len(files) > 1]


def _vague_modules(sources: Sources) -> Places:
    return [name for name in sources.texts if Path(name).stem in ("facts", "utils", "helpers", "misc")]


def _circles(sources: Sources) -> Places:
    """The first cycle among imports at module level."""
    modules = {name.partition("/")[2].removesuffix(".py").removesuffix("/__init__").replace("/", "."): tree
               for name, tree in sources.trees.items()}  # fmt: skip
    needs: dict[str, set[str]] = {}
    for module, tree in modules.items():
        found = (node for node in tree.body if isinstance(node, ast.ImportFrom))
        full = [(node.module or "", alias.name) for node in found for alias in node.names]
        named = {f"{origin}.{name}" if f"{origin}.{name}" in modules else origin for origin, name in full}
        needs[module] = (named & set(modules)) - {module}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as circle:
        return [" -> ".join(circle.args[1])]
    return []


def _own() -> list[type]:
    from graphopt.pipeline import registry

    return [rule for rule in registry().rules() if rule.__module__.startswith("graphopt_passes.")]


def _patterns(_: Sources) -> Places:
    from graphopt.rewrite import PatternRule

    return [rule.__name__ for rule in _own() if issubclass(rule, PatternRule)]


def _lines(sources: Sources) -> Places:
    return [name for name, text in sources.texts.items() if name.startswith("passes/") for _ in text.splitlines()]


@dataclass(frozen=True)
class Count:
    """A counted property.

    Attributes:
        what: its description.
        find: finds the places.
        most: the upper bound.
        least: the lower bound.
        passes: the number of passes that the bounds refer to on average; 0 for all.
    """

    what: str
    find: Callable[[Sources], Places]
    most: int = 0
    least: int = 0
    passes: int = 0

    def of(self, sources: Sources) -> int:
        """The count."""
        found = len(self.find(sources))
        return found * self.passes // len(_own()) if self.passes else found


COUNTS = {
    "lines": Count("lines of the pass library for each pass", _lines, 84, passes=1),
    "patterns": Count("rules that are a pattern", _patterns, 999, 78),
    "guards": Count("`is None` in the pass library for each hundred passes", _guards, 96, passes=100),
    "mismatches": Count("refusals that are handed on", _mismatches),
    "functions": Count(f"functions whose body has more than {LONG_FUNCTION} lines", _long_functions),
    "files": Count(f"files of more than {LONG_FILE} lines", _long_files),
    "alike": Count("public classes of one name in several modules", _alike),
    "vague": Count("modules called facts, utils, helpers or misc", _vague_modules),
    "circles": Count("circles of imports", _circles),
    "launchers": Count(
        "places that start a process",
        lambda s: s.calls("subprocess.Popen", "subprocess.run", "subprocess.check_output", "os.fork"), 2,
    ),
    "sessions": Count("places that make a session of the runtime", lambda s: s.calls("ort.InferenceSession"), 1),
    "writes": Count("places that put a file in another's place", lambda s: s.calls("os.replace", "os.rename"), 1),
}  # fmt: skip
"""The counts."""


def show(places: str | None = None) -> None:
    """Print all counts with their bounds, the lines by family, or the places of one count."""
    sources = Sources()
    if places is not None:
        print("\n".join(COUNTS[places].find(sources)))
        return
    for key, count in COUNTS.items():
        bound = f"at least {count.least}" if count.least else f"at most {count.most}"
        print(f"{key:12} {count.of(sources):5}  {bound:13}  {count.what}")
    families: Counter[str] = Counter()
    for name, text in sources.texts.items():
        if name.startswith("passes/"):
            families[name.split("/")[2]] += len(text.splitlines())
    print(
        ", ".join(f"{family} {number:,}" for family, number in families.most_common()), f"in all {families.total():,}"
    )
