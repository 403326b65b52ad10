"""Every network of the zoo, in each dress, to other opsets and back: `python -m benchmarks conversion-networks`.

For each network and opset: whether the converted network gives the same numbers, and whether the way back gives the
original graph. If no operator had to be expanded, that graph must be the same, node for node; otherwise the numbers
are compared. Also the number of nodes that `basic` leaves of the network and of the graph that came back.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import onnx

import graphopt
from benchmarks import results
from benchmarks.conversion import DOCS, NEWEST_RUN, differs, run_model
from benchmarks.conversion_ledger import Ledger, digest
from benchmarks.skeleton import load_skeleton, names, sample_inputs
from graphopt.ir.schema import op_schema
from graphopt.opsets import ConversionError
from graphopt.opsets.changes import plain
from graphopt.opsets.conversion import convert_source

OPSETS = (11, 13, 17, 21, NEWEST_RUN)
"""The target opsets."""

_AT_ONCE = 5

MARK = "<!-- written by `python -m benchmarks conversion-networks` -->"
END = "<!-- as far as here -->"


def opset_of(model: onnx.ModelProto) -> int:
    """The version of the standard operator set that a model imports."""
    return next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))


class Network:
    """A network with its outputs, which are computed on first use.

    Args:
        key: its dress and name.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.model = load_skeleton(key)
        self.opset = opset_of(self.model)
        self._feed = sample_inputs(key, self.model)
        self._outputs: list[Any] | None = None
        self.basic = _basic_nodes(self.model)

    def judged(self, model: onnx.ModelProto, ledger: Ledger) -> str:
        """Whether a model gives the same numbers: `right`, or the difference."""
        key = f"{self.key} {digest(model.SerializeToString(deterministic=True))}"
        return str(ledger.find(key) or ledger.keep(key, self._compared(model)))

    def _compared(self, model: onnx.ModelProto) -> str:
        onnx.checker.check_model(model)
        if self._outputs is None:
            self._outputs = run_model(self.model, self._feed)
        difference = differs(self._outputs, run_model(model, self._feed))
        return "right" if difference is None else f"wrong: {difference}"


def _basic_nodes(model: onnx.ModelProto) -> int:
    """The number of nodes that the level `basic` leaves."""
    return len(graphopt.optimize(model, level="basic").graph.node)


def same_graph(one: onnx.ModelProto, two: onnx.ModelProto) -> bool:
    """Whether two models have the same nodes, in order: names, operands, attributes.

    Constants are compared by contents, wherever they are stored. An attribute stated with its default equals one that
    is left out, and so does `allowzero` if no size is 0.
    """
    return graph_lines(one) == graph_lines(two)


def _same_operators(one: onnx.ModelProto, two: onnx.ModelProto) -> bool:
    """Whether two models have the same number of each operator, except constants."""
    counted = [Counter(n.op_type for n in each.graph.node if n.op_type != "Constant") for each in (one, two)]
    return counted[0] == counted[1]


def graph_lines(model: onnx.ModelProto) -> list[str]:
    """A text for each node of the main graph, except constants, by which graphs are compared."""
    opset = opset_of(model)
    known = {tensor.name: _contents(tensor) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and not node.domain:
            known[node.output[0]] = _contents(node.attribute[0])
    return [
        f"{node.name} {node.op_type} {[known.get(name, name) for name in node.input]} {list(node.output)} "
        f"{_attributes(node, opset, known)}"
        for node in model.graph.node
        if node.op_type != "Constant" or node.domain
    ]


def _contents(constant: onnx.TensorProto | onnx.AttributeProto) -> str:
    if isinstance(constant, onnx.AttributeProto):
        value = onnx.helper.get_attribute_value(constant)
        if not isinstance(value, onnx.TensorProto):
            return f"={value}"
        constant = value
    array = onnx.numpy_helper.to_array(constant)
    zero = " with 0" if 0 in array else ""
    return f"{array.dtype}{array.shape}{digest(array.tobytes())}{zero}"


def _attributes(node: onnx.NodeProto, opset: int, constants: dict[str, str]) -> list[str]:
    stated = {a.name: plain(onnx.helper.get_attribute_value(a)) for a in node.attribute}
    if "allowzero" in stated and not constants.get(node.input[1], " with 0").endswith(" with 0"):
        del stated["allowzero"]
    schema = op_schema(node.op_type, node.domain, opset)
    known = {} if schema is None else schema.defaults
    return sorted(f"{name}={value}" for name, value in stated.items() if known.get(name) != value)


def row_of(network: Network, opset: int, ledger: Ledger) -> dict[str, Any]:
    """One conversion there and back."""
    row: dict[str, Any] = {"model": network.key, "from": network.opset, "to": opset}
    try:
        there = convert_source(network.model, opset).model.flush()
        row["written_out"] = not _same_operators(network.model, there)
        row["there"] = network.judged(there, ledger)
        back = convert_source(there, network.opset).model.flush()
        row["same_graph"] = same_graph(network.model, back)
        row["basic"], row["basic_of_back"] = network.basic, _basic_nodes(back)
        row["back"] = "right" if row["same_graph"] else network.judged(back, ledger)
    except ConversionError as error:
        row.setdefault("there", f"refused: {error.refusals[0]}")
        row.setdefault("back", f"refused: {error.refusals[0]}")
    return row


def run(keys: Iterable[str] | None, opsets: Iterable[int] | None) -> list[dict[str, Any]]:
    """Judge all networks or the chosen ones, in a random order, so that an interrupted run is a sample."""
    ledger = Ledger("networks")
    chosen = list(keys or names())
    random.Random(18).shuffle(chosen)
    rows: list[dict[str, Any]] = []
    for count, key in enumerate(chosen, 1):
        network = Network(key)
        rows += [row_of(network, opset, ledger) for opset in opsets or OPSETS if opset != network.opset]
        if count % _AT_ONCE == 0 or count == len(chosen):
            results.save("conversion_networks", sorted(rows, key=lambda row: (row["model"], row["to"])))
            print(count, dict(counts(rows)), flush=True)
    if not keys and not opsets:
        write(rows)
    return rows


def table(rows: Iterable[dict[str, Any]]) -> str:
    """The conversions by target, as Markdown."""
    found: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["to"], []).append(row)
    lines = [
        "| to opset | networks | right at the opset | right after the way back | nothing expanded | same graph "
        "| same count at basic |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for opset, each in sorted(found.items()):
        count = counts(each)
        names_ = (
            "conversions", "there right", "back right", "nothing written out", "the same graph",
            "basic leaves as many nodes",
        )  # fmt: skip
        lines.append(f"| {opset} | " + " | ".join(str(count[name]) for name in names_) + " |")
    return "\n".join(lines)


def write(rows: Iterable[dict[str, Any]]) -> None:
    """Put the table into docs/convert.md, between the marker lines."""
    page = DOCS / "convert.md"
    head, mark, rest = page.read_text().partition(MARK)
    page.write_text(f"{head}{mark}\n\n{table(rows)}\n\n{END}{rest.partition(END)[2]}")


def exported_twice() -> Iterator[tuple[str, str]]:
    """Networks that the zoo has as exports at two opsets: the older export, and the newer one."""
    known = names()
    for older in known:
        newer = older.partition("_opset")[0]
        if newer != older and newer in known:
            yield older, newer


def raised_exports() -> Iterator[dict[str, Any]]:
    """The nodes that `basic` leaves in an export converted to the opset of a newer one, and in the newer one."""
    for older, newer in exported_twice():
        old, new = load_skeleton(older), load_skeleton(newer)
        opset = opset_of(new)
        brought = len(graphopt.optimize(old, level="basic", opset=opset).graph.node)
        yield {"model": newer, "from": opset_of(old), "to": opset, "nodes": brought, "of_export": _basic_nodes(new)}


def counts(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    """The number of conversions that were right there, right back, and back to the same graph."""
    found: Counter[str] = Counter()
    for row in rows:
        found["conversions"] += 1
        found[f"there {row['there'].partition(':')[0]}"] += 1
        found[f"back {row['back'].partition(':')[0]}"] += 1
        found["the same graph"] += bool(row.get("same_graph"))
        found["nothing written out"] += not row.get("written_out", 1)
        found["basic leaves as many nodes"] += row.get("basic", -1) == row.get("basic_of_back")
        found["nothing written out, another graph"] += not row.get("written_out", 1) and not row.get("same_graph")
    return found


def raised(keys: Iterable[str], opsets: Iterable[int], level: str) -> Iterator[dict[str, Any]]:
    """The nodes that a level leaves in networks of opset 13 as they are, and converted to newer opsets first."""
    for key in keys:
        low = convert_source(load_skeleton(key), 13).model.flush()
        counted = {opset: len(graphopt.optimize(low, level=level, opset=opset).graph.node) for opset in (13, *opsets)}
        yield {"model": key, "level": level, "nodes": counted}
