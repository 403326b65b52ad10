"""Whether a second run changes anything, and whether levels compose, over every skeleton: a table.

    python -m tests.models.settle --jobs 1
    python -m tests.models.settle dynamo/bert ts/crnn --numerics rounding

A network is optimized at each level and numerics, each result once more (`basic twice`), and the result of each level
at the higher ones (`basic then all`). What `basic` leaves must give what the network itself gives; what `extended`
leaves need not (`extended then all` is reported only): operators of the runtime that it fused stay fused, where `all`
alone would have chosen blocked ones.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import onnx

from benchmarks.skeleton import load_skeleton, names
from graphopt.manager import PassManager

LEVELS = ("basic", "extended", "all")
NUMERICS = ("exact", "rounding", "fast")
SAME = "same bytes"
RENAMED = "same graph, other names or order"
ALIKE = "the same operators, otherwise joined"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How two models that should be equal compare.

    Attributes:
        what: which runs are compared, as `basic twice` or `basic then all`.
        numerics: their numerics.
        verdict: `SAME`, `RENAMED`, or the operators that one has more of.
        hits: what the second run did.
    """

    what: str
    numerics: str
    verdict: str
    hits: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.what}, {self.numerics}: {self.verdict}" + (f" {self.hits}" if self.hits else "")


def outcomes(
    model: onnx.ModelProto,
    levels: tuple[str, ...] = LEVELS,
    numerics: tuple[str, ...] = NUMERICS,
) -> Iterator[Outcome]:
    """All comparisons of one network, each run made once."""
    for wanted in numerics:
        managers = {level: PassManager(level, numerics=wanted, strict=True) for level in levels}
        direct = {level: managers[level].run(model).model for level in levels}
        for at, level in enumerate(levels):
            again = managers[level].run(direct[level])
            yield Outcome(f"{level} twice", wanted, verdict(direct[level], again.model), again.hits)
            for low in levels[:at]:
                found = managers[level].run(direct[low])
                yield Outcome(f"{low} then {level}", wanted, verdict(direct[level], found.model), found.hits)


def verdict(one: onnx.ModelProto, two: onnx.ModelProto) -> str:
    """Whether two models are the same bytes, the same graph under other names, or what one has more of."""
    if one.SerializeToString() == two.SerializeToString():
        return SAME
    if fingerprint(one) == fingerprint(two):
        return RENAMED
    left, right = operators(one.graph), operators(two.graph)
    changes = [f"{right[op] - left[op]:+} {op}" for op in sorted({*left, *right}) if left[op] != right[op]]
    return ", ".join(changes) or ALIKE


def operators(graph: onnx.GraphProto) -> Counter[str]:
    """How often each operator occurs, in inner graphs too."""
    found: Counter[str] = Counter()
    for node in graph.node:
        found[node.op_type] += 1
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.type in GRAPHS else ():
                found += operators(inner)
    return found


GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def fingerprint(model: onnx.ModelProto) -> tuple[Counter[str], list[str]]:
    """A model without its names and order: every node by all that it is computed from, and the outputs."""
    functions = sorted(_digest(function.SerializeToString(deterministic=True)) for function in model.functions)
    nodes: Counter[str] = Counter()
    outputs = _outputs(model.graph, {}, nodes.update)
    return nodes, [*outputs, *functions]


def _outputs(graph: onnx.GraphProto, outer: dict[str, str], tell: Callable[[list[str]], None]) -> list[str]:
    known = dict(outer)
    for at, value in enumerate(graph.input):
        known[value.name] = _digest("input", str(at), value.type.SerializeToString(deterministic=True))
    for tensor in graph.initializer:
        bare = onnx.TensorProto()
        bare.CopyFrom(tensor)
        bare.ClearField("name")
        default = known.get(tensor.name, "")
        known[tensor.name] = _digest("constant", default, bare.SerializeToString(deterministic=True))
    for node in graph.node:
        attributes = sorted(_attribute(attribute, known, tell) for attribute in node.attribute)
        operands = [known.get(name, "") for name in node.input]
        present = [str(bool(name)) for name in node.output]
        computed = _digest(node.domain, node.op_type, node.overload, *operands, "", *attributes, "", *present)
        tell([computed])
        known.update((name, _digest(computed, str(at))) for at, name in enumerate(node.output) if name)
    return [known.get(value.name, "") for value in graph.output]


def _attribute(attribute: onnx.AttributeProto, known: dict[str, str], tell: Callable[[list[str]], None]) -> str:
    if attribute.type in GRAPHS:
        inner = [part for graph in (attribute.g, *attribute.graphs) for part in _outputs(graph, known, tell)]
        return _digest(attribute.name, *inner)
    return _digest(attribute.SerializeToString(deterministic=True))


def _digest(*parts: str | bytes) -> str:
    made = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        made.update(len(data).to_bytes(8, "little"))
        made.update(data)
    return made.hexdigest()


def _of_key(key: str, levels: tuple[str, ...], numerics: tuple[str, ...]) -> tuple[str, list[Outcome]]:
    return key, list(outcomes(load_skeleton(key), levels, numerics))


def main() -> None:
    """Print what is not equal, network by network, and how many of each comparison are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keys", nargs="*", default=names(), help="skeletons; all when none is given")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--level", action="append", choices=LEVELS)
    parser.add_argument("--numerics", action="append", choices=NUMERICS)
    options = parser.parse_args()
    os.environ["GRAPHOPT_TUNED"] = "off"
    levels, numerics = tuple(options.level or LEVELS), tuple(options.numerics or NUMERICS)
    table: dict[tuple[str, str], Counter[str]] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(_of_key, key, levels, numerics) for key in options.keys]
        for job in jobs:
            key, found = job.result()
            for outcome in found:
                counts = table.setdefault((outcome.what, outcome.numerics), Counter())
                counts[outcome.verdict if outcome.verdict in (SAME, RENAMED) else "another graph"] += 1
                if outcome.verdict != SAME:
                    _tell(f"{key}: {outcome}")
            _tell(f"{key}: {sum(o.verdict == SAME for o in found)} of {len(found)} equal")
    for (what, wanted), counts in table.items():
        _tell(f"{what:22} {wanted:10} " + ", ".join(f"{count} {kind}" for kind, count in counts.most_common()))


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
