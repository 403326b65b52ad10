"""Golden cases for passes: a model in ONNX text before and after a pass, checked by every oracle.

A case is a file `tests/golden/<pass>/<kind>_<what>.onnxtxt`:

    # RUN: eliminate_identity
    # FIRES: 1
    <ir_version: 9, opset_import: ["" : 18]>
    g (float[2] x) => (float[2] y) { a = Identity (x)  y = Relu (a) }
    # ---- after
    <ir_version: 9, opset_import: ["" : 18]>
    g (float[2] x) => (float[2] y) { y = Relu (x) }

A case in which the pass must decline has `# KEEPS: reason` instead of `# FIRES`, and no second part. If the pass
declines without a reason, since it does not concern the node, the reason is `no match: ` followed by what differs from
the pattern, in its author's words. Other head lines: `# TARGET: avx2` sets the target, by default `avx512`, so
that costs are the same on every machine; `# SETTINGS: {"force": true}` sets `Options.extra` of the pass, as JSON;
`# FROM: exporter, model` states the origin of such models; `# NOT RUN: reason` omits the numeric comparison if no
runtime has the operators. Use `Case.read`, then `run_case`; `bless` writes the pass's current result into the file.

This is the test harness of graphopt's own passes, and public: `docs/extending.md` tests a pass of another package.
"""

from __future__ import annotations

import importlib
import itertools
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorProto

from graphopt.errors import GraphoptError, ModelError, UsageError, VerificationError
from graphopt.ir import Model
from graphopt.ir.attributes import GRAPH_KINDS
from graphopt.manager import PassManager
from graphopt.records import dataclass
from graphopt.results import Result
from graphopt.rewrite import Options, Rule
from graphopt.system.files import write_text
from graphopt.system.machine import runs_here

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from graphopt.fuzzing.building import Sample

_DIVIDER = "# ---- after"
_EMPTY = re.compile(r'\[""\] |\n\s*(producer_name|producer_version|doc_string|domain): "",?')
"""The printer's output for empty names and strings."""
_SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)
_SMALL = re.compile(r"(?<![\w.])-?\d[\d.]*e-\d+")
"""Numbers with a negative exponent, which may be denormal."""
_SPELLED: dict[int, tuple[str, str]] = {
    TensorProto.BOOL: ("int32_data", "u1"), TensorProto.INT8: ("int32_data", "i1"),
    TensorProto.UINT8: ("int32_data", "u1"), TensorProto.INT16: ("int32_data", "<i2"),
    TensorProto.UINT16: ("int32_data", "<u2"), TensorProto.FLOAT16: ("int32_data", "<u2"),
    TensorProto.BFLOAT16: ("int32_data", "<u2"), TensorProto.UINT32: ("uint64_data", "<u4"),
    TensorProto.UINT64: ("uint64_data", "<u8"),
}  # fmt: skip
"""Types whose raw bytes onnx before 1.23 prints as `...`: the field for their numbers instead, and their NumPy type."""
_HEAD = re.compile(r"#\s*(RUN|FIRES|KEEPS|TARGET|SETTINGS|FROM|NOT RUN|DOC):?\s*(.*)")


class GoldenError(GraphoptError, AssertionError):
    """A golden case does not hold."""


@dataclass(slots=True)
class Case:
    """One golden case.

    Attributes:
        path: its file.
        head: the head lines by key.
        before: the model, as text.
        after: the expected model, as text; None if nothing may change.
        comments: other comment lines at the top, which `bless` keeps.
    """

    path: Path
    head: dict[str, str]
    before: str
    after: str | None
    comments: list[str] = field(default_factory=list)

    @property
    def passes(self) -> str:
        """The pass name or pipeline to run."""
        return self.head["RUN"]

    @property
    def target(self) -> str:
        """The target that the passes write for."""
        return self.head.get("TARGET", "avx512")

    @classmethod
    def read(cls, path: Path) -> Case:
        """Read a case from its file.

        Raises:
            GoldenError: there is no `# RUN` line.
        """
        return cls.parse(path, path.read_text(encoding="utf-8"))

    @classmethod
    def parse(cls, path: Path, text: str) -> Case:
        """Parse a case from the text of its file.

        Raises:
            GoldenError: there is no `# RUN` line.
        """
        before, divider, after = text.partition(_DIVIDER)
        head: dict[str, str] = {}
        comments = []
        body: list[str] = []
        for line in before.splitlines():
            match = _HEAD.fullmatch(line)
            if match:
                head[match[1]] = match[2].strip()
            elif line.startswith("#") and not body:
                comments.append(line)
            else:
                body.append(line)
        if "RUN" not in head:
            raise GoldenError(f"{path}: expected a line '# RUN: <pass>'")
        return cls(path, head, "\n".join(body).strip(), after.strip() if divider else None, comments)

    def model(self) -> onnx.ModelProto:
        """The original model.

        Raises:
            GoldenError: the text is not an ONNX model; the message states line and column.
        """
        return _parse(self.before, self.path)

    def write(self) -> None:
        """Write the case back to its file."""
        lines = [f"# {key}: {text}".rstrip() for key, text in self.head.items()]
        text = "\n".join([*lines, *self.comments, self.before]) + "\n"
        if self.after is not None:
            text += f"{_DIVIDER}\n{self.after}\n"
        write_text(self.path, text)


def cases(folder: Path) -> list[Path]:
    """The golden files below a folder, in the order of their names.

    Args:
        folder: the folder; none are found if it does not exist.
    """
    return sorted(folder.rglob("*.onnxtxt"))


def cases_of(rule: type[Rule]) -> Iterator[Case]:
    """The golden cases of a pass: in its package, in the source tree, or in the archive of a wheel.

    Args:
        rule: the class of the pass; there may be none for it.

    Raises:
        GoldenError: a file is not a golden case.
    """
    package = importlib.import_module(rule.__module__.partition(".")[0])
    for root in map(Path, getattr(package, "__path__", ())):
        for folder in (root / "golden", root.parent.parent / "tests" / "golden"):
            if (folder / rule.name).is_dir():
                yield from map(Case.read, cases(folder / rule.name))
                return
        archive = root / "golden.zip"
        if archive.is_file():
            inside = zipfile.Path(archive, f"{rule.name}/")
            found = sorted(inside.iterdir(), key=lambda path: path.name) if inside.is_dir() else []
            yield from (Case.parse(Path(rule.name, path.name), path.read_text(encoding="utf-8")) for path in found)
            return


def run_case(case: Case, *, bless: bool = False) -> None:
    """Run a case through every oracle.

    The original model passes the full checker; the pass does what the file states; a second run does nothing; the
    result passes the full checker and gives the same numbers with all of the runtime's own optimizations off.

    Args:
        case: the case.
        bless: write the result of the pass into the file instead of comparing it.

    Raises:
        GoldenError: something differs; the message states what was expected and found.
    """
    before = case.model()
    onnx.checker.check_model(before, full_check=True)
    manager = _manager(case)
    result = manager.run(before)
    found = canonical_text(result.model)
    _check_again(case, result)
    onnx.checker.check_model(result.model, full_check=True)
    _check_numbers(case, before, result, manager)
    if bless:
        _bless(case, result, found, _reasons(result, manager))
    else:
        _compare(case, result, found, _reasons(result, manager))


def _manager(case: Case, target: str | None = None) -> PassManager:
    settings, target = case.head.get("SETTINGS"), target or case.target
    return PassManager(
        passes=case.passes, target=target, numerics="fast", strict=True, check=True, explain=True,
        options=Options(extra={case.passes: json.loads(settings)} if settings else {}),
    )  # fmt: skip


def _check_again(case: Case, result: Result) -> None:
    again = _manager(case).run(result.model)
    if again.events:
        raise GoldenError(
            f"{case.path}: a second run changed the model again\n  " + "\n  ".join(map(str, again.events))
        )


def _check_numbers(case: Case, before: onnx.ModelProto, result: Result, manager: PassManager) -> None:
    if "NOT RUN" in case.head or not result.changed:
        return
    from graphopt.verify import FINITE_SETS, compare

    if not runs_here(before):
        return
    if not runs_here(result.model):
        result = _manager(case, "host").run(before)
    rules: list[type[Rule]] = [type(manager.plan.rule(name)) for name in result.hits]
    if not rules:
        return
    numerics = str(max(rule.numerics for rule in rules))
    report = compare(before, result.model, numerics=numerics)
    if report.status_of("special") == "mismatch" and any(rule.finite for rule in rules):
        report = compare(before, result.model, numerics=numerics, sets=FINITE_SETS)
    if not report.ok:
        raise VerificationError(report.summary())


def _reasons(result: Result, manager: PassManager) -> str:
    """Why nothing changed, as far as the passes state it: in near misses, or by the opsets that they support."""
    found = {miss.reason for miss in result.near_misses}
    opset = next((entry.version for entry in result.model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    rules = [manager.plan.rule(name) for name in manager.plan.names()]
    if not found and not any(rule.knows_opset(opset) for rule in rules):
        found = {f"opset {opset} is not among {rule.opsets}" for rule in rules}
    return "; ".join(sorted(found)) or _NO_MATCH


_NO_MATCH = "no match"


def _agrees(stated: str, reasons: str) -> bool:
    """Whether a case states the reasons that were found; without any, it has words of its own after `no match: `."""
    return stated == reasons or (reasons == _NO_MATCH and stated.startswith(f"{_NO_MATCH}: "))


def _bless(case: Case, result: Result, found: str, reasons: str) -> None:
    case.head.pop("FIRES", None)
    stated = case.head.pop("KEEPS", "")
    if result.changed:
        case.head["FIRES"] = str(len(result.events))
        case.after = found
    else:
        case.head["KEEPS"] = stated if _agrees(stated, reasons) else reasons
        case.after = None
    case.write()


def _compare(case: Case, result: Result, found: str, reasons: str) -> None:
    if "KEEPS" in case.head:
        if result.changed:
            raise GoldenError(f"{case.path}: expected no change, but\n  " + "\n  ".join(map(str, result.events)))
        if not _agrees(case.head["KEEPS"], reasons):
            raise GoldenError(f"{case.path}: expected the reason\n  {case.head['KEEPS']}\nfound\n  {reasons}")
        return
    if str(len(result.events)) != case.head.get("FIRES"):
        missed = "" if reasons == _NO_MATCH else f" (near misses: {reasons})"
        raise GoldenError(
            f"{case.path}: expected {case.head.get('FIRES')} rewrites, found {len(result.events)}{missed}"
        )
    expected = canonical_text(_parse(case.after or "", case.path))
    if found != expected:
        raise GoldenError(f"{case.path}: expected\n{expected}\nfound\n{found}")


def _parse(text: str, path: Path) -> onnx.ModelProto:
    try:
        return onnx.parser.parse_model(text)
    except onnx.parser.ParseError as error:
        raise GoldenError(f"{path}: {error}") from error
    except IndexError as error:  # the parser of onnx before 1.23 refuses denormals
        marks: dict[float, str] = {}
        marked = _SMALL.sub(lambda found: _mark(found[0], marks), text)
        if not marks:
            raise GoldenError(f"{path}: a number is out of range: {error}") from error
        model = _parse(marked, path)
        for tensor in _tensors(model.graph.node, model.graph.initializer):
            for numbers in (tensor.float_data, tensor.double_data):
                numbers[:] = [float(marks.get(number, number)) for number in numbers]
        return model


def _mark(number: str, marks: dict[float, str]) -> str:
    """Replace a denormal with a number that every parser reads and that no case contains."""
    if not 0 < abs(float(number)) < _SMALLEST_NORMAL:
        return number
    mark = (len(marks) + 1) << 90
    marks[float(mark)] = number
    return f"{mark}.0"


def _tensors(nodes: Iterable[NodeProto], initializers: Iterable[TensorProto] = ()) -> Iterator[TensorProto]:
    """The tensors in initializers and attributes, subgraphs included."""
    yield from initializers
    for attribute in itertools.chain.from_iterable(node.attribute for node in nodes):
        yield from attribute.tensors
        if attribute.type == AttributeProto.TENSOR:
            yield attribute.t
        for graph in (attribute.g, *attribute.graphs) if attribute.type in GRAPH_KINDS else ():
            yield from _tensors(graph.node, graph.initializer)


def _spell(tensor: TensorProto) -> None:
    """Store raw bytes as numbers, so that every version of the printer writes them.

    For 16-bit floats onnx before 1.23 writes nothing: there they are not compared.
    """
    if tensor.data_type in _SPELLED and tensor.HasField("raw_data"):
        field_name, code = _SPELLED[tensor.data_type]
        getattr(tensor, field_name).extend(np.frombuffer(tensor.raw_data, code).tolist())
        tensor.ClearField("raw_data")


def canonical_text(model: onnx.ModelProto) -> str:
    """The model as text with internal names numbered in order, without node names, doc strings and metadata.

    Args:
        model: the model; it is not changed.

    Raises:
        ModelError: the standard's printer cannot print it.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.producer_name = copy.producer_version = copy.doc_string = ""
    del copy.metadata_props[:]
    _rename(copy.graph, {}, _counter())
    for function in copy.functions:
        for node in function.node:
            node.name = ""
    bodies = itertools.chain.from_iterable(function.node for function in copy.functions)
    for tensor in _tensors(itertools.chain(copy.graph.node, bodies), copy.graph.initializer):
        _spell(tensor)
    try:
        text = onnx.printer.to_text(copy)
    except Exception as error:
        raise ModelError(f"the model cannot be printed: {error}") from error
    return _EMPTY.sub("", text).replace(",\n>", "\n>").strip()


def _counter() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def _rename(graph: onnx.GraphProto, outer: dict[str, str], numbers: Iterator[int]) -> None:
    del graph.value_info[:]
    fixed = {v.name for v in (*graph.input, *graph.output)}
    names = {**outer, **{name: name for name in fixed}}
    taken = fixed | set(outer.values())

    def new(name: str) -> str:
        if name and (name not in names or (name not in fixed and name in outer and names[name] == outer[name])):
            names[name] = next(short for number in numbers if (short := f"v{number}") not in taken)
        return names.get(name, name)

    for tensor in sorted(graph.initializer, key=lambda t: _first_use(graph, t.name)):
        tensor.name = new(tensor.name)
    ordered = sorted(graph.initializer, key=lambda t: (len(t.name), t.name))
    copies = [onnx.TensorProto.FromString(t.SerializeToString()) for t in ordered]
    del graph.initializer[:]
    graph.initializer.extend(copies)
    for node in graph.node:
        node.name = ""
        for index, name in enumerate(node.input):
            node.input[index] = names.get(name, name)
        for attribute in sorted(node.attribute, key=lambda a: a.name):
            if attribute.type == onnx.AttributeProto.GRAPH:
                _rename(attribute.g, names, numbers)
        for index, name in enumerate(node.output):
            node.output[index] = new(name)
        ordered_attributes = sorted(node.attribute, key=lambda a: a.name)
        attributes = [onnx.AttributeProto.FromString(a.SerializeToString()) for a in ordered_attributes]
        del node.attribute[:]
        node.attribute.extend(attributes)


def _first_use(graph: onnx.GraphProto, name: str) -> tuple[int, int, str]:
    for number, node in enumerate(graph.node):
        for position, read in enumerate(node.input):
            if read == name:
                return number, position, ""
    return len(graph.node), 0, name


def load_case_model(path: Path) -> Model:
    """The original model of a golden file, as a view.

    Args:
        path: the file.

    Raises:
        GoldenError: it is not a golden case.
    """
    return Model.load(Case.read(path).model())


def draw_sample(seed: object, ops: Sequence[str] = (), steps: int = 10) -> Sample | None:
    """A random model that runs, with inputs for it; see `graphopt fuzz`.

    Args:
        seed: equal seeds give equal models.
        ops: operators of the standard to draw from; all if empty.
        steps: the most nodes that are drawn.

    Returns:
        The sample; None if this seed gives none.

    Raises:
        UsageError: no model can be drawn from one of the operators.
    """
    from graphopt.fuzzing.models import Wishes, sample
    from graphopt.fuzzing.operators import check_ops

    check_ops(ops)
    return sample(seed, Wishes(tuple(ops), steps=steps))


def models(ops: Sequence[str] = (), steps: int = 10) -> SearchStrategy[Sample]:
    """A hypothesis strategy that draws samples: models that run, with inputs.

    Hypothesis varies only their seed; `graphopt.fuzzing.shrinking.shrink` reduces a failing model.

    Args:
        ops: operators of the standard to draw from; all if empty.
        steps: the most nodes that are drawn.

    Raises:
        UsageError: hypothesis is not installed, or no model can be drawn from one of the operators.
    """
    try:
        from hypothesis import strategies
    except ImportError:
        raise UsageError("hypothesis is not installed (pip install hypothesis)") from None
    from graphopt.fuzzing.operators import check_ops

    check_ops(ops)
    drawn = strategies.integers(0, 1 << 32).map(lambda seed: draw_sample(seed, ops, steps))
    return drawn.filter(lambda found: found is not None)  # type: ignore[return-value]  # None is filtered out


__all__ = [
    "Case", "GoldenError", "canonical_text", "cases", "cases_of", "draw_sample", "load_case_model", "models",
    "run_case",
]  # fmt: skip
