"""Judges the result of an optimizer on a model by comparing its outputs with those of the original."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from graphopt.fuzzing.building import Sample, as_standard, makeshift, stored
from graphopt.fuzzing.differences import apart, first_difference
from graphopt.fuzzing.grants import (
    counts_floats,
    is_of_infinite_constants,
    overflows_integers,
    overwrites,
    planned_wrongly,
    reads_unwritten,
)
from graphopt.fuzzing.nearness import is_nearer
from graphopt.fuzzing.stepwise import FEW, after_steps
from graphopt.fuzzing.subjects import Optimized, Subject
from graphopt.fuzzing.usual import is_image_of_unknown_size, is_usual, values_of
from graphopt.verify import compare
from graphopt.verify.interface import differences, interface_of
from graphopt.verify.jitter import without_negative_zeros
from graphopt.verify.runners import CannotLoadError, OrtRunner, ReferenceRunner, RunError, Runner, one_line
from graphopt.verify.source import Source, all_nodes
from graphopt.verify.structure import leaves
from graphopt.verify.values import Array, is_float

KINDS = (
    "wrong", "invalid", "does not load", "raised", "crashed", "hung", "lost", "unstable", "nondeterministic", "runtime",
)  # fmt: skip
"""Kinds of faults. `runtime`: the runtime's outputs differ from those of onnx's own evaluator."""

_NO_KERNEL = ("Failed to find kernel", "Could not find an implementation")
_NO_EMPTY_IMAGE = ("Only N can be zero", "QLinearGlobalAveragePool parameter out of computation range")
"""The runtime's errors for pools of images without pixels. Passes that write pools assume that unknown sizes are
positive, and say so: it is no fault if nothing states the size that is 0."""
_EXPANDED = 25
_NOT_CHECKED = ("K->Shape()[2] == V->Shape()[2] was false", "Attention node", "running Add node")
"""Its errors for keys and values of different lengths, and for masks longer than both."""
_REUSED = "attempting to re-use buffer"
"""Its error if a value is larger than inferred when the memory was planned."""
_NO_EMPTY_ROWS = "must be greater than 0"
"""Its error of the `Attention` kernel for sizes of 0, which the standard and the runtime's own expansion accept."""
_MOST_NAN = 0.5


@dataclass(frozen=True, slots=True)
class Verdict:
    """A fault of a result.

    Attributes:
        kind: one of `KINDS`.
        message: a description.
        feed: the index of the feed that shows it; -1 if none is needed.
        passes: the passes that fired, for an unstable result in the second run.
    """

    kind: str
    message: str
    feed: int = -1
    passes: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        """The message without names and numbers, by which findings are grouped if no pass is known."""
        words = ["#" if any(c.isdigit() for c in word) else word for word in self.message.split()]
        return " ".join(words)[:80]


class NotUsableError(Exception):
    """An unusable model: it does not run, or its outputs vary or are mostly NaN."""


def _sides_in(refusal: str) -> tuple[int, ...]:
    """The spatial sizes of the image that a pool of the runtime refuses; none if it does not tell."""
    found = re.search(r"Got:\{([\d,]+)\}", refusal)
    return tuple(map(int, found[1].split(",")))[2:] if found else ()


class Judge:
    """Runs a sample's model and judges results by its outputs.

    Args:
        sample: the sample.

    Raises:
        NotUsableError: the sample is unusable.
    """

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.model = sample.model
        try:
            onnx.checker.check_model(self.model, full_check=True)
        except Exception as error:  # the checker raises several unrelated types
            raise NotUsableError(f"invalid: {one_line(error)}") from None
        try:
            self._runner: Runner = OrtRunner(Source(self.model, "original"))
        except CannotLoadError as error:
            raise NotUsableError(str(error)) from None
        self.expected: list[tuple[int, dict[str, Array], list[Any]]] = []
        for number, feed in enumerate(sample.feeds):
            outputs = _run(self._runner, feed) if self.expected else _twice(self._runner, feed)
            if outputs is not None and fits(self.model, feed, outputs) and self._as_standard(feed, outputs):
                self.expected.append((number, feed, outputs))
        if not self.expected or self.expected[0][0] != 0:
            raise NotUsableError("does not run")
        if _mostly_nan(self.expected[0][2]):
            raise NotUsableError("mostly NaN")
        self._sound = {(_bytes(self.model), "exact")}

    def _as_standard(self, feed: dict[str, Array], outputs: list[Any]) -> bool:
        """Whether outputs have the shapes that the standard defines for a feed.

        They do if the feed equals the first one in everything that inference can read, and the shapes are the same.
        """
        if self.expected and not any(node.op_type == "ConcatFromSequence" for node in self.model.graph.node):
            _, first, known = self.expected[0]
            if _alike(first, feed) and list(map(_shape, known)) == list(map(_shape, outputs)):
                return True
        return is_usual(self.model, feed) and _standard(self.model, feed, outputs)

    def of(self, subject: Subject, outcome: Optimized, *, again: bool = True, once_more: bool = True) -> Verdict | None:
        """The fault of a subject's result on the sample's model; None if there is none.

        Args:
            subject: the subject.
            outcome: its outcome.
            again: whether to optimize the result again, which must not change it.
            once_more: whether to optimize the same model again, which must give the same result.
        """
        passes = tuple(outcome.hits)
        if outcome.fault:
            return Verdict(outcome.fault, outcome.message, passes=passes)
        assert outcome.model is not None
        written = _bytes(outcome.model)
        found = self._once(outcome, written)
        if found is not None:
            return Verdict(found.kind, found.message, found.feed, passes)
        if once_more and (found := _other(subject, self.model, written)) is not None:
            return found
        return _unsettled(subject, outcome.model, written) if again and written != _bytes(self.model) else None

    def _once(self, outcome: Optimized, written: bytes) -> Verdict | None:
        """The fault of a result itself. Equal results of several subjects are judged once, by the strictest promise."""
        result = outcome.model
        assert result is not None
        if any(of == written and known in ("exact", outcome.numerics) for of, known in self._sound):
            return None
        lost = self._unchanged(result)
        if lost is None or (not outcome.keeps and self._runs_alike(result)):
            found = self._invalid(result) or self._numbers(result, outcome) or lost
        else:
            found = lost
        if found is None and not (outcome.finite or outcome.stepwise):
            self._sound.add((written, outcome.numerics))
        return found

    def _runs_alike(self, result: onnx.ModelProto) -> bool:
        """Whether a result has only inputs of the original, and the same outputs."""
        known = {info.name for info in self.model.graph.input}
        same = [i.name for i in result.graph.output] == [i.name for i in self.model.graph.output]
        return same and {info.name for info in result.graph.input} <= known

    def _unchanged(self, result: onnx.ModelProto) -> Verdict | None:
        """A change of the interface: names, order, types or metadata."""
        broken = [d.message for d in differences(interface_of(self.model), interface_of(result)) if d.breaking]
        if broken:
            return Verdict("lost", broken[0])
        after = {entry.key: entry.value for entry in result.metadata_props}
        gone = [entry.key for entry in self.model.metadata_props if after.get(entry.key) != entry.value]
        return Verdict("lost", f"metadata {gone[0]!r} is lost") if gone else None

    def _invalid(self, result: onnx.ModelProto) -> Verdict | None:
        try:
            onnx.checker.check_model(result, full_check=not _has_contrib(result))
        except Exception as error:  # the checker raises several unrelated types
            return Verdict("invalid", one_line(error))
        return None

    def _numbers(self, result: onnx.ModelProto, outcome: Optimized) -> Verdict | None:
        try:
            runner = OrtRunner(Source(result, "result"))
        except CannotLoadError as error:
            unknown = outcome.portable and any(words in str(error) for words in _NO_KERNEL)
            return None if unknown else Verdict("does not load", str(error))
        for number, feed, old in self.expected:
            difference = self._difference(runner, result, outcome, feed, old)
            if difference is not None:
                refused = any(words in difference for words in _NO_EMPTY_IMAGE)
                if refused and is_image_of_unknown_size(self.model, feed, _sides_in(difference)):
                    continue
                unchecked = outcome.portable and self._is_unchecked(difference)
                if unchecked and _NO_EMPTY_ROWS in difference:
                    continue
                wrong = Verdict("runtime" if refused or unchecked else "wrong", difference, number)
                return self._by_reference(result, outcome, feed, wrong)
        return None

    def _is_unchecked(self, difference: str) -> bool:
        """Whether a converted model is refused for an input that the runtime's expansion of `Attention` accepts."""
        expanded = any(entry.version >= _EXPANDED for entry in self.model.opset_import if not entry.domain)
        attends = any(node.op_type == "Attention" for node in all_nodes(self.model.graph.node))
        return expanded and attends and any(words in difference for words in _NOT_CHECKED)

    def _difference(
        self, runner: Runner, result: onnx.ModelProto, outcome: Optimized, feed: dict[str, Array], old: list[Any]
    ) -> str | None:
        if outcome.numerics == "fast" and any(_odd(array) for array in feed.values()):
            return None
        poison(old)
        taken = {info.name for info in result.graph.input}
        if any(tensor.name in feed and tensor.name not in taken for tensor in self.model.graph.initializer):
            return None  # it can no longer be overridden: only the input is lost
        try:
            new = runner.run({name: array for name, array in feed.items() if name in taken})
        except RunError as error:
            if outcome.portable and outcome.finite and any(map(_odd, feed.values())):
                return None  # an expansion may compute positions from NaN
            reused = planned_wrongly(result, feed) if _REUSED in str(error) else None
            if reused is None:
                return f"the result does not run: {error}"
            new = reused
        numerics = "rounding" if outcome.numerics == "exact" else outcome.numerics
        found = first_difference(old, new, numerics)
        if found is None or (outcome.numerics != "exact" and _steps_apart(self.model, result, outcome, feed)):
            return None
        if outcome.ties and all(np.asarray(b).dtype.kind in "iub" for _, b in apart(old, new)):
            return None
        if outcome.numerics != "exact" and self._same_but_counts(old, new, numerics):
            return None
        if not self._is_determined(feed, old) or overflows_integers(self.model, feed):
            return None
        loose = outcome.finite or outcome.numerics == "fast"
        if loose and any(_exceeds(model, feed, outcome.largest) for model in (self.model, result)):
            return None
        # The full oracle measures how sensitive the original is to its last bits, which takes longer.
        report = compare(self.model, result, numerics=numerics, inputs=feed)
        if report.status != "mismatch" or (
            outcome.numerics != "exact"
            and (
                self._signs_of_zeros(result, outcome, feed)
                or is_nearer(self.model, feed, old, new, numerics)
                or is_of_infinite_constants(self.model, result, feed, old, new)
            )
        ):
            return None
        return found

    def _is_determined(self, feed: dict[str, Array], old: list[Any]) -> bool:
        """Whether the original's outputs are the same each time, in another session too.

        Some kernels read uninitialized memory, or overwrite the operands of other nodes, in all sessions alike.
        """
        if reads_unwritten(self.model, feed) or overwrites(self.model) or _twice(self._runner, feed) is None:
            return False
        for _ in range(_SESSIONS):
            poison(old)
            try:
                again = OrtRunner(Source(self.model, "again")).run(feed)
            except (CannotLoadError, RunError):
                return False
            if first_difference(old, again, "exact") is not None:
                return False
        return True

    def _same_but_counts(self, old: list[Any], new: list[Any], numerics: str) -> bool:
        """Whether all differences follow from which floats are equal."""
        counts = counts_floats(self.model)
        if not counts:
            return False
        names = [info.name for info in self.model.graph.output]
        left = [pair for name, *pair in zip(names, old, new, strict=True) if name not in counts]
        return first_difference([a for a, _ in left], [b for _, b in left], numerics) is None

    def _signs_of_zeros(self, result: onnx.ModelProto, outcome: Optimized, feed: dict[str, Array]) -> bool:
        """Whether a difference vanishes if no zero is negative: only `exact` preserves signs of zeros.

        Single steps of eight-bit integers may remain, which are allowed elsewhere in the same model.
        """
        plain = {name: np.asarray(a + np.zeros((), a.dtype)) if is_float(a.dtype) else a for name, a in feed.items()}
        original, other = (without_negative_zeros(model) for model in (self.model, result))
        try:
            old, new = (OrtRunner(Source(model, "unsigned")).run(plain) for model in (original, other))
        except (CannotLoadError, RunError):
            return False
        return first_difference(old, new, outcome.numerics) is None or _steps_apart(original, other, outcome, plain)

    def _by_reference(
        self, result: onnx.ModelProto, outcome: Optimized, feed: dict[str, Array], wrong: Verdict
    ) -> Verdict:
        """The verdict, or `runtime` if onnx's own evaluator gives the same outputs for both models."""
        taken = {info.name for info in result.graph.input}
        try:
            old = ReferenceRunner(Source(self.model, "original")).run(feed)
            new = ReferenceRunner(Source(result, "result")).run({n: a for n, a in feed.items() if n in taken})
        except (CannotLoadError, RunError):
            return wrong
        numerics = "rounding" if outcome.numerics == "exact" else outcome.numerics
        if first_difference(old, new, numerics) is None:
            return Verdict("runtime", wrong.message, wrong.feed)
        return wrong


def _steps_apart(
    original: onnx.ModelProto, result: onnx.ModelProto, outcome: Optimized, feed: dict[str, Array]
) -> bool:
    """Whether the results differ only by single steps of eight-bit integers and their consequences.

    The last bits of floats decide how ties are rounded; perturbing integers does not reveal that.
    """
    pair = after_steps(original, result, feed, FEW if outcome.stepwise else 0.0)
    return pair is not None and first_difference(*pair, outcome.numerics) is None


def _other(subject: Subject, model: onnx.ModelProto, written: bytes) -> Verdict | None:
    """A fault if another run on the same model gives another result."""
    once_more = subject.optimize(model)
    if once_more.model is None or _bytes(once_more.model) != written:
        return Verdict("nondeterministic", once_more.message or "another run gives another model")
    return None


def _unsettled(subject: Subject, result: onnx.ModelProto, written: bytes) -> Verdict | None:
    """A fault if optimizing a result changes it."""
    second = subject.optimize(result)
    if second.model is None:
        return Verdict("unstable", f"its own result: {second.message}", passes=tuple(second.hits))
    if _bytes(second.model) != written:
        return Verdict("unstable", "a second run changes the result", passes=tuple(second.hits))
    return None


def _bytes(model: onnx.ModelProto) -> bytes:
    return model.SerializeToString(deterministic=True)


_SESSIONS = 3
"""In how many further sessions a model runs before its outputs count as deterministic."""


def _run(runner: Runner, feed: dict[str, Array]) -> list[Any] | None:
    """The outputs; None if the model does not run on the feed."""
    try:
        return runner.run(feed)
    except RunError:
        return None


def _twice(runner: Runner, feed: dict[str, Array]) -> list[Any] | None:
    """The outputs; None if the model does not run on the feed, or a second run gives others."""
    try:
        first = runner.run(feed)
        poison(first)
        second = runner.run(feed)
    except RunError:
        return None
    return first if first_difference(first, second, "exact") is None else None


def poison(outputs: list[Any]) -> None:
    """Leave NaN in the memory that the next run reuses: outputs computed from it are not deterministic."""
    for _, leaf in (leaf for output in outputs for leaf in leaves(output)):
        size = np.asarray(leaf).nbytes + 64
        for _ in range(3):
            np.full(size, 0xFF, np.uint8)


def fits(model: onnx.ModelProto, feed: dict[str, Array], outputs: list[Any]) -> bool:
    """Whether outputs have the shapes that the model states; the runtime deviates for some operators.

    Names of sizes are often wrong, so only those of empty inputs count: a `Reshape` to such a size copies another.
    """
    empty = {
        dim.dim_param
        for info in model.graph.input
        for dim, size in zip(
            info.type.tensor_type.shape.dim, np.shape(feed[info.name]) if info.name in feed else (), strict=False
        )
        if dim.dim_param and not size
    }
    for info, output in zip(model.graph.output, outputs, strict=True):
        if info.type.WhichOneof("value") != "tensor_type" or not info.type.tensor_type.HasField("shape"):
            continue
        dims, shape = info.type.tensor_type.shape.dim, np.shape(output)
        stated = [0 if dim.dim_param in empty else dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
        if len(dims) != len(shape) or any(size not in (None, n) for size, n in zip(stated, shape, strict=True)):
            return False
    return True


def _standard(model: onnx.ModelProto, feed: dict[str, Array], outputs: list[Any]) -> bool:
    """Whether the outputs have the shapes that inference computes for this feed."""
    graph = model.graph
    tensors = [t for t in graph.initializer if t.name not in feed]
    given = [*tensors, *(stored(array, name) for name, array in feed.items())]
    names = [info.name for info in graph.output]
    if set(names) & {tensor.name for tensor in given}:
        return True
    return as_standard(makeshift(graph.node, given, names, model.opset_import, model.functions), outputs)


def _shape(output: Any) -> tuple[int, ...] | None:
    return output.shape if isinstance(output, np.ndarray) else None


_READ = 16
"""The most elements of a value that inference reads."""


def _alike(first: dict[str, Array], other: dict[str, Array]) -> bool:
    """Whether two feeds have the same short lists and scalars, which may determine shapes."""
    if first.keys() != other.keys():
        return False
    short = [name for name, a in first.items() if a.ndim <= 1 and a.size <= _READ and a.dtype.kind in "iu"]
    return all(np.array_equal(first[name], other[name]) for name in short)


def _mostly_nan(outputs: list[Any]) -> bool:
    floats = [a for a in map(np.asarray, (leaf for o in outputs for _, leaf in leaves(o))) if is_float(a.dtype)]
    total = sum(a.size for a in floats)
    return total > 0 and sum(int(np.isnan(a.astype(np.float64)).sum()) for a in floats) > _MOST_NAN * total


def _odd(array: Array) -> bool:
    return is_float(array.dtype) and not np.isfinite(array.astype(np.float64)).all()


def _exceeds(model: onnx.ModelProto, feed: dict[str, Array], largest: float) -> bool:
    """Whether an input or intermediate value is infinite, NaN or at least `largest`; True if that cannot be told."""
    if any(attribute.HasField("g") for node in model.graph.node for attribute in node.attribute):
        return True
    given = {info.name for info in model.graph.input} | {tensor.name for tensor in model.graph.initializer}
    fed = {name: array for name, array in feed.items() if name in given}
    found = values_of(model, fed, [name for node in model.graph.node for name in node.output if name])
    held = [np.asarray(leaf) for value in (found or {}).values() for _, leaf in leaves(value)]
    return found is None or any(_odd(a) or _magnitude(a) >= largest for a in (*fed.values(), *held))


def _magnitude(array: Array) -> float:
    return float(np.abs(array.astype(np.float64)).max(initial=0.0)) if is_float(array.dtype) else 0.0


def _has_contrib(model: onnx.ModelProto) -> bool:
    return any(entry.domain not in ("", "ai.onnx", "ai.onnx.ml") for entry in model.opset_import)
