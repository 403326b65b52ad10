"""The conversion: version by version, for the main graph and each function, all or nothing.

At each step a node whose operator is defined differently in the adjacent version is first *read*, while the graph still
has the node's own version; then the graph gets the other version, and the node is *written*. A node without a form in
the other version is first expanded into operators of its own version, which are then converted like all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import onnx

from graphopt.analysis.purity import malformed
from graphopt.analysis.shapes import ShapeAnalysis
from graphopt.errors import Decline, GraphoptError, StaleError, UsageError
from graphopt.ir import Graph, Model, Node, Source, paused_gc
from graphopt.ir.flush import IR_WITH_FREE_INITIALIZERS
from graphopt.ir.interface import load_fixed, restored_on_error
from graphopt.ir.seal import unsealed
from graphopt.opsets import meanings
from graphopt.opsets.bodies import write_out
from graphopt.opsets.changes import DOMAINS, Change, changes, newest
from graphopt.opsets.contents import contents
from graphopt.opsets.descent import MOST_ROUNDS, Descent, Origin
from graphopt.opsets.file_versions import ir_of, least_ir
from graphopt.opsets.obstacles import obstacle
from graphopt.opsets.refusals import ConversionError, Refusal, failing_alike, internal
from graphopt.opsets.runtimes import runtime
from graphopt.opsets.untyped import check_unknown, types_met
from graphopt.opsets.validity import FlawedError, check, is_valid
from graphopt.pipeline import INLINED, Pipeline, Plan, execute
from graphopt.rewrite import Driver, Log, Options, Rewriter
from graphopt.rewrite.inline import inner_graphs

LOWEST = 7
"""The lowest opset to convert to: the lowest that current runtimes still read."""

_RULE = "convert_opset"


@dataclass(slots=True)
class Conversion:
    """The conversion of a model to other versions of its operators.

    Attributes:
        model: the model; changed in place, or not at all.
        driver: the gate and the log.
        before: the description of the original model; see `described`.
        descent: the original node from which each node was made.
        checked: whether the result has to pass the full check.
    """

    model: Model
    driver: Driver
    before: dict[str, Any] = field(init=False)
    descent: Descent = field(init=False)
    checked: bool = True

    def __post_init__(self) -> None:
        self.before = self.described()
        self.descent = Descent(self.model.graphs())

    def described(self) -> dict[str, Any]:
        """The versions that the model states now, and its number of nodes."""
        nodes = sum(len(graph) for graph in self.model.graphs())
        return {"opsets": dict(self.model.graph.opsets), "ir_version": self.model.ir_version, "nodes": nodes}

    def run(self, targets: Mapping[str, int]) -> None:
        """Convert every graph to the given versions.

        Args:
            targets: a version for each domain to be converted.

        Raises:
            ConversionError: a node cannot be converted; nothing changed.
        """
        target = next(iter(targets.values()))
        with failing_alike(target):
            try:
                self._run_in_some_file(targets)
            except FlawedError as found:
                self.driver.infer()  # so that the original has as many known types as the result had
                if is_valid(self.model):
                    raise ConversionError(target, [], f"the result would not be a valid model: {found}") from None
                self.checked = False  # the original is not valid either
                self._run_in_some_file(targets)

    def _run_in_some_file(self, targets: Mapping[str, int]) -> None:
        try:
            self._run(targets)
        except ConversionError as first:
            if "" not in targets or self.model.ir_version >= IR_WITH_FREE_INITIALIZERS:
                raise
            try:  # IR 4, needed anyway, allows lists as initializers; a higher IR version is up to the caller
                self._run(targets, IR_WITH_FREE_INITIALIZERS)
            except ConversionError:
                raise first from first.__cause__

    def _run(self, targets: Mapping[str, int], ir_version: int | None = None) -> None:
        with self.driver.undone_on_error():
            if ir_version is not None:
                self.driver.rewriter.set_ir_version(ir_version)
            self.driver.infer()
            for domain, target in targets.items():
                for top in (self.model.graph, *self.model.functions):
                    self._bring(top, domain, target)
            self._state_ir(targets)
            if self.checked:
                check(self.model)

    @property
    def written_out(self) -> dict[str, int]:
        """How many nodes of each operator were replaced with others."""
        gone = Counter(note.op for event in self.driver.log.events for note in event.removed)
        made = Counter(note.op for event in self.driver.log.events for note in event.added)
        return dict((gone - made).most_common())

    def _bring(self, top: Graph, domain: str, target: int) -> None:
        version = top.opset(domain)
        while version and version != target:
            step = 1 if target > version else -1
            try:
                declined = self._step(top, domain, version, step)
            except _FailedError as failed:
                origin = self.descent.origin(failed.node)
                refusal = _refusal(origin, internal(failed.error), version)
                raise ConversionError(target, [refusal], domain=domain) from failed.error
            except _EndlessError as endless:
                refusal = _refusal(endless.origin, endless.reason, version)
                raise ConversionError(target, [refusal], domain=domain) from None
            if declined:
                refusals = [_refusal(self.descent.origin(node), str(why), version) for node, why in declined.items()]
                raise ConversionError(target, list(dict.fromkeys(refusals)), domain=domain)
            version += step

    def _step(self, top: Graph, domain: str, version: int, step: int) -> dict[Node, Decline]:
        """Convert a graph to an adjacent version. Returns the nodes that cannot be converted, with reasons."""
        differing = changes(domain, max(version, version + step))
        met = types_met(self.model) if top.is_function else ()
        crossing = _Crossing(self.driver.rewriter, top, domain, step, differing, self.descent, met)
        declined = crossing.read()
        if declined:
            self._learn(declined)
            declined = crossing.read(again=declined)
        if not declined:
            declined = crossing.write(version + step)
        if not declined:
            self.driver.refresh_types()
        return declined

    def _learn(self, nodes: Iterable[Node]) -> None:
        """Infer more about nodes that declined: ranks of their operands, and the contents of computed lists."""
        self.driver.infer()
        analysis = ShapeAnalysis(self.model)
        analysis.refine()
        rw = self.driver.rewriter
        for node in nodes:
            if not node.removed:
                rw.begin(_RULE, node)
                found = {i: array for i, v in enumerate(node.inputs) if (array := contents(v, analysis)) is not None}
                if found:
                    with suppress(Decline):  # the known types of its outputs may contradict them
                        rw.set_inputs(node, dict(found))

    def _state_ir(self, targets: Mapping[str, int]) -> None:
        """Set the IR version of the release that has the new opset, or a higher one that the model requires."""
        if "" not in targets or self.model.opset() in (0, self.before["opsets"].get("")):
            return
        wanted = max(ir_of(targets[""]), least_ir(self.model))
        if wanted != self.model.ir_version:
            self.driver.rewriter.set_ir_version(wanted)


@dataclass(slots=True)
class _Crossing:
    """A step to an adjacent version.

    Attributes:
        rw: the gate.
        top: the main graph or a function.
        domain: the domain whose version changes.
        step: 1 upwards, -1 downwards.
        differing: the operators that the version changes.
        descent: the original node from which each node was made.
        met: in a function, the types that values of unknown type may have.
        writing: nodes that were read, with the part that follows at the other version.
        seen: nodes that were visited.
    """

    rw: Rewriter
    top: Graph
    domain: str
    step: int
    differing: Mapping[str, Change]
    descent: Descent
    met: Collection[str] = ()
    writing: list[tuple[Node, Iterator[None]]] = field(default_factory=list)
    seen: set[Node] = field(default_factory=set)

    def read(self, again: Collection[Node] = ()) -> dict[Node, Decline]:
        """Read every node that the step changes, including nodes made by that; returns the nodes that declined.

        Args:
            again: nodes that are visited a second time, with last resorts.

        Raises:
            _EndlessError: a node was expanded without end.
            _FailedError: the conversion of a node raised an unexpected error.
        """
        declined: dict[Node, Decline] = {}
        self.seen.difference_update(again)
        rounds = 0
        while nodes := [node for node in self._nodes() if node not in self.seen]:
            rounds += 1
            if rounds > MOST_ROUNDS:
                reason = f"what it is written out by is written out more than {MOST_ROUNDS} times over"
                raise _EndlessError(self.descent.origin(nodes[0]), reason)
            for node in nodes:
                self.seen.add(node)
                try:
                    if not node.removed:
                        if self.met:
                            check_unknown(node, self.differing[node.op_type], self.step, self.met)
                        self._read(node, at_last=bool(again))
                except Decline as reason:
                    declined[node] = reason
        return declined

    @contextmanager
    def _at(self, node: Node) -> Iterator[None]:
        """Record the nodes made from a node as its descendants, and name the node in errors."""
        origin = self.descent.origin(node)
        try:
            yield
        except StaleError as error:
            raise _FailedError(node, error) from error
        except (Decline, GraphoptError):
            raise
        except Exception as error:
            raise _FailedError(node, error) from error
        finally:
            touched = self.rw.take_touched()
        try:
            self.descent.enter(origin, touched)
        except Decline as reason:
            raise _EndlessError(origin, str(reason)) from None

    def _nodes(self) -> Iterator[Node]:
        for graph in (self.top, *inner_graphs(self.top)):
            for node in graph:
                if node.domain == self.domain and node.op_type in self.differing and not node.op.startswith("call "):
                    yield node

    def _read(self, node: Node, *, at_last: bool) -> None:
        """Try each conversion of the node in turn, and finally its expansion."""
        if node.op.startswith("malformed "):
            raise malformed()
        change, declined = self.differing[node.op_type], Decline()
        for meaning in (*meanings.of(node, change, self.step, at_last=at_last), _written_out):
            self.rw.begin(_RULE, node)
            try:
                with self._at(node):
                    rest = meaning(node, change, self.rw)
                    if isinstance(rest, Iterator) and next(rest, _DONE) is not _DONE:
                        self.writing.append((node, rest))
                return
            except Decline as reason:
                declined = declined if declined.args else reason
        raise declined

    def write(self, version: int) -> dict[Node, Decline]:
        """Set the other version and write the nodes that were read; returns the nodes that declined."""
        declined: dict[Node, Decline] = {}
        self.rw.set_opset(self.top, self.domain, version)
        waiting = self.writing
        while waiting:
            again = []
            for node, rest in waiting:
                if not node.removed:
                    self.rw.begin(_RULE, node)
                    try:
                        with self._at(node):
                            if next(rest, _DONE) is not _DONE:
                                again.append((node, rest))
                    except Decline as reason:
                        declined[node] = reason
            waiting = again
        return declined


class _EndlessError(Exception):
    """A node was expanded without end."""

    def __init__(self, origin: Origin, reason: str) -> None:
        super().__init__(reason)
        self.origin, self.reason = origin, reason


class _FailedError(Exception):
    """The conversion of a node raised an unexpected error."""

    def __init__(self, node: Node, error: Exception) -> None:
        super().__init__(str(error))
        self.node, self.error = node, error


_DONE = object()


def _written_out(node: Node, change: Change, rw: Rewriter) -> None:
    write_out(node, rw)


def _refusal(origin: Origin, reason: str, version: int) -> Refusal:
    return Refusal(origin.op, origin.node, origin.graph, reason, version)


def targets_of(model: Model, opset: int | None, ml_opset: int | None) -> dict[str, int]:
    """The versions to convert a model to, checked.

    Raises:
        UsageError: there is no such version, or none is given.
        ConversionError: the model as a whole cannot be converted.
    """
    asked: list[tuple[str, Any]] = [*zip(DOMAINS, (opset, ml_opset), strict=True)]
    given: dict[str, int] = {}
    for domain, version in asked:
        if version is None:
            continue
        lowest = 1 if domain else LOWEST
        if (
            isinstance(version, bool)
            or not isinstance(version, Integral)
            or not lowest <= int(version) <= newest(domain)
        ):
            name = "ml_opset" if domain else "opset"
            raise UsageError(f"{name}: expected a version from {lowest} to {newest(domain)}, found {version!r}")
        given[domain] = int(version)
    if not given:
        raise UsageError("expected an opset to convert to")
    for domain, version in given.items():
        if reason := obstacle(model, domain, version):
            raise ConversionError(version, [], reason, domain)
    return given


def opset_for(model: Model, opset: int | None, runtime_name: str | None) -> int | None:
    """The requested opset, given by its number or by the name of a runtime.

    Raises:
        UsageError: both are given, or there is no such runtime.
    """
    if runtime_name is None:
        return opset
    if opset is not None:
        raise UsageError("expected an opset or a runtime, found both")
    return runtime(runtime_name).opset(model.opset())


def convert_view(model: Model, opset: int | None = None, *, ml_opset: int | None = None) -> Conversion:
    """Convert a view to other versions of its operators, in place.

    Args:
        model: the view.
        opset: the version of the standard's operators, from 7 on.
        ml_opset: the version of `ai.onnx.ml`; unchanged by default.

    Returns:
        The conversion, with its log.

    Raises:
        UsageError: there is no such version.
        ConversionError: the model cannot be converted; it is unchanged.
    """
    conversion = Conversion(model, Driver(model, Log()))
    targets = targets_of(model, opset, ml_opset)
    with paused_gc():
        conversion.run(targets)
    return conversion


def raise_opset(model: Model, opset: int, rw: Rewriter) -> None:
    """Convert a view to a newer opset within a pass, as one rewrite by the pass.

    Args:
        model: the view.
        opset: the version of the standard's operators.
        rw: the gate of the pass.

    Raises:
        Decline: the model cannot be converted; it is unchanged.
    """
    before = model.opset()
    try:
        targets = targets_of(model, opset, None)
        driver = Driver.through(rw)
        with unsealed(), driver.as_one(f"opset {before} to {opset}"):
            Conversion(model, driver).run(targets)
    except ConversionError as error:
        raise Decline("the model keeps its opset: {}", error) from None


def convert(
    source: Source, opset: int | None = None, *, ml_opset: int | None = None, runtime: str | None = None,
    inplace: bool = False,
) -> onnx.ModelProto:  # fmt: skip
    """Convert a model to another version of the standard's operators, newer or older, with the same results.

    Each operator gets the form of the other opset; operators that are newer than the target are expanded into
    older ones. If an opset cannot express a node, the conversion is refused and nothing changes.

    Args:
        source: a path, serialized bytes, or a `ModelProto`, which is not changed unless `inplace`.
        opset: the version of the standard's operators, from 7 on.
        ml_opset: the version of `ai.onnx.ml`; unchanged by default.
        runtime: instead of an opset, the target runtime: `tensorrt`, `coreml`, `openvino`, `ncnn` or `tract`.
        inplace: change the given `ModelProto` instead of making a new one.

    Returns:
        The converted model.

    Raises:
        UsageError: there is no such version or runtime.
        ConversionError: the model cannot be converted; the message names the nodes and the nearest opset.
        ModelError: the model cannot be read.

    Examples:
        >>> from graphopt import convert, demo
        >>> convert(demo.conv_maxpool(), opset=9).opset_import[0].version
        9
    """
    return convert_source(source, opset, ml_opset=ml_opset, runtime=runtime, inplace=inplace).model.flush()


def convert_source(
    source: Source, opset: int | None = None, *, ml_opset: int | None = None, runtime: str | None = None,
    inplace: bool = False, opaque_weights: str | None = None, shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
) -> Conversion:  # fmt: skip
    """Read a model and convert it to another opset; see `convert`.

    Types inside model-local functions are not known. If that, or a reference to an attribute of the call, prevents
    the conversion, functions are inlined first.

    Args:
        source: see `convert`.
        opset: see `convert`.
        ml_opset: see `convert`.
        runtime: see `convert`.
        inplace: whether the given proto may change.
        opaque_weights: which weights are left unread, see `graphopt.PassManager`.
        shapes: fixed shapes for inputs, by name.
        dims: fixed sizes for symbolic dimensions, by name.

    Returns:
        The conversion, with the model.
    """
    with restored_on_error(source if inplace else None):
        model = load_fixed(source, shapes, dims, inplace=inplace, opaque=opaque_weights)
        return convert_loaded(model, opset_for(model, opset, runtime), ml_opset=ml_opset)


def convert_loaded(model: Model, opset: int | None = None, *, ml_opset: int | None = None) -> Conversion:
    """Convert a view as `convert_view` does, but inline functions if nodes in them prevent the conversion.

    Args:
        model: the view; even if the conversion is refused in the end, its functions may be inlined.
        opset: the version of the standard's operators.
        ml_opset: the version of `ai.onnx.ml`.
    """
    try:
        return convert_view(model, opset, ml_opset=ml_opset)
    except ConversionError as error:
        inside = {graph.name for function in model.functions for graph in (function, *inner_graphs(function))}
        if not any(refusal.graph in inside for refusal in error.refusals):
            raise
    plan = Plan(Pipeline.parse(INLINED))
    with failing_alike(opset or ml_opset or 0):
        execute(plan, model, Log(), strict=True, check=False, options=Options())
    return convert_view(model, opset, ml_opset=ml_opset)
