"""Judging what an optimizer made of a model: what runs is compared with what the original gives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from graphopt.fuzzing.building import Sample, as_standard, makeshift, stored
from graphopt.fuzzing.doubles import exact_outputs
from graphopt.fuzzing.grants import (
    counts_floats,
    is_of_infinite_constants,
    no_farther,
    overflows_integers,
    overwrites,
    planned_wrongly,
    reads_unwritten,
    without_overflow,
)
from graphopt.fuzzing.stepwise import FEW, after_steps
from graphopt.fuzzing.subjects import Optimized, Subject
from graphopt.fuzzing.usual import is_image_of_unknown_size, is_usual, values_of
from graphopt.verify import compare
from graphopt.verify.interface import differences, interface_of
from graphopt.verify.jitter import without_negative_zeros
from graphopt.verify.numerics import compare_arrays
from graphopt.verify.runners import CannotLoadError, OrtRunner, ReferenceRunner, RunError, Runner, one_line
from graphopt.verify.source import Source, all_nodes
from graphopt.verify.structure import leaves
from graphopt.verify.values import Array, is_float

KINDS = (
    "wrong", "invalid", "does not load", "raised", "crashed", "hung", "lost", "unstable", "nondeterministic", "runtime",
)  # fmt: skip
"""What can be wrong with a result. `runtime`: the runtime computes it otherwise than onnx's own evaluator does."""

_NO_KERNEL = ("Failed to find kernel", "Could not find an implementation")
_NO_EMPTY_IMAGE = ("Only N can be zero", "QLinearGlobalAveragePool parameter out of computation range")
"""What pools of the runtime say to images without pixels. Passes that write pools take sizes that they do not know for
more than 0, and say so: where nothing states the size that is 0, that is granted."""
_EXPANDED = 25
_NOT_CHECKED = ("K->Shape()[2] == V->Shape()[2] was false", "Attention node", "running Add node")
"""What it says to keys and values of two lengths, and to masks that are longer than both."""
_REUSED = "attempting to re-use buffer"
"""What it says where a value is larger than its own inference told when it planned its memory."""
_NO_EMPTY_ROWS = "must be greater than 0"
"""What its own kernel of `Attention` says to sizes of 0, which the standard and the runtime's expansion take."""
_MOST_NAN = 0.5


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with a result.

    Attributes:
        kind: one of `KINDS`.
        message: in words.
        feed: which feed shows it; -1 where none is needed.
        passes: the passes that fired, or that did in the second run of an unstable result.
    """

    kind: str
    message: str
    feed: int = -1
    passes: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        """The message without names and numbers, by which findings are grouped where no pass is known."""
        words = ["#" if any(c.isdigit() for c in word) else word for word in self.message.split()]
        return " ".join(words)[:80]


class NotUsableError(Exception):
    """A model that says nothing: it does not run, or gives other numbers each time, or hardly any."""


def _sides_in(refusal: str) -> tuple[int, ...]:
    """The sides of the image that a pool of the runtime refuses; none where it does not say."""
    found = re.search(r"Got:\{([\d,]+)\}", refusal)
    return tuple(map(int, found[1].split(",")))[2:] if found else ()


class Judge:
    """Knows what a sample's model gives, and judges results by it.

    Args:
        sample: the sample.

    Raises:
        NotUsableError: the sample says nothing.
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
            if outputs is not None and fits(self.model, outputs) and self._as_standard(feed, outputs):
                self.expected.append((number, feed, outputs))
        if not self.expected or self.expected[0][0] != 0:
            raise NotUsableError("does not run")
        if _mostly_nan(self.expected[0][2]):
            raise NotUsableError("mostly NaN")
        self._sound = {(_bytes(self.model), "exact")}

    def _as_standard(self, feed: dict[str, Array], outputs: list[Any]) -> bool:
        """Whether outputs have the shapes that the standard gives them on a feed.

        They have on one that differs from the first in nothing that inference can read, where it says the same.
        """
        if self.expected and not any(node.op_type == "ConcatFromSequence" for node in self.model.graph.node):
            _, first, known = self.expected[0]
            if _alike(first, feed) and list(map(_shape, known)) == list(map(_shape, outputs)):
                return True
        return is_usual(self.model, feed) and _standard(self.model, feed, outputs)

    def of(self, subject: Subject, outcome: Optimized, *, again: bool = True, once_more: bool = True) -> Verdict | None:
        """What is wrong with what a subject made of the sample's model; None when nothing is.

        Args:
            subject: whose result it is.
            outcome: what came of it.
            again: whether to run it on the result, which must stay as it is.
            once_more: whether to run it on the same model again, which must give the same.
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
        """What is wrong with a result itself. Subjects that make the same are judged once, by the strictest promise."""
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
        """Whether a result takes no inputs but those of the original, and gives the same outputs."""
        known = {info.name for info in self.model.graph.input}
        same = [i.name for i in result.graph.output] == [i.name for i in self.model.graph.output]
        return same and {info.name for info in result.graph.input} <= known

    def _unchanged(self, result: onnx.ModelProto) -> Verdict | None:
        """Names, order, types, metadata: what must stay."""
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
        """Whether a converted model is refused for what the runtime's expansion of a newer `Attention` lets pass."""
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
            return None  # it cannot be overridden any more: the input is lost, and nothing else
        try:
            new = runner.run({name: array for name, array in feed.items() if name in taken})
        except RunError as error:
            if outcome.portable and outcome.finite and any(map(_odd, feed.values())):
                return None  # what is written out may compute positions from what is no number
            reused = planned_wrongly(result, feed) if _REUSED in str(error) else None
            if reused is None:
                return f"the result does not run: {error}"
            new = reused
        numerics = "rounding" if outcome.numerics == "exact" else outcome.numerics
        found = first_difference(old, new, numerics)
        if found is None or (outcome.numerics != "exact" and self._steps_apart(result, outcome, feed)):
            return None
        if outcome.ties and all(np.asarray(b).dtype.kind in "iub" for _, b in _apart(old, new)):
            return None
        if outcome.numerics != "exact" and self._same_but_counts(old, new, numerics):
            return None
        if not self._is_determined(feed, old) or (outcome.portable and overflows_integers(self.model, feed)):
            return None
        loose = outcome.finite or outcome.numerics == "fast"
        if loose and any(_exceeds(model, feed, outcome.largest) for model in (self.model, result)):
            return None
        # The full oracle knows how sensitive the original is to its last bits, which takes it longer.
        report = compare(self.model, result, numerics=numerics, inputs=feed)
        if report.status != "mismatch" or (
            outcome.numerics != "exact"
            and (
                self._signs_of_zeros(result, feed, numerics)
                or self._is_nearer(feed, old, new, numerics)
                or is_of_infinite_constants(self.model, result, feed, old, new)
            )
        ):
            return None
        return found

    def _steps_apart(self, result: onnx.ModelProto, outcome: Optimized, feed: dict[str, Array]) -> bool:
        """Whether integers of eight bits that are one step apart are all that differs, and what follows from them.

        What lies halfway is rounded either way by the last bits of floats; no jitter of integers tells.
        """
        pair = after_steps(self.model, result, feed, FEW if outcome.stepwise else 0.0)
        return pair is not None and first_difference(*pair, outcome.numerics) is None

    def _is_nearer(self, feed: dict[str, Array], old: list[Any], new: list[Any], numerics: str) -> bool:
        """Whether each number is what the original is in doubles, or no farther from that than the original itself.

        Or the result differs only where the original left the range of floats on the way, and in doubles does not.
        """
        exact = exact_outputs(self.model, feed)
        if exact is None or len(exact) != len(old):
            return False
        exact = [a if _type_of(a) != _type_of(b) else b for a, b in zip(old, exact, strict=True)]
        # What is the same in both is not asked: of integers, for one, the evaluator has other opinions.
        apart = [each for each in zip(old, new, exact, strict=True) if _apart([each[0]], [each[1]], numerics)]
        old, new, exact = ([each[at] for each in apart] for at in range(3))
        if first_difference(without_overflow(old, new, exact), new, numerics) is None:
            return True
        return first_difference(exact, no_farther(old, new, exact), numerics) is None

    def _is_determined(self, feed: dict[str, Array], old: list[Any]) -> bool:
        """Whether the original gives the same numbers each time, in another session too.

        Some kernels read memory that nothing was written to, or write into what others read: in all sessions alike.
        """
        if reads_unwritten(self.model) or overwrites(self.model) or _twice(self._runner, feed) is None:
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
        """Whether all that differs follows from which floats are equal."""
        counts = counts_floats(self.model)
        if not counts:
            return False
        names = [info.name for info in self.model.graph.output]
        left = [pair for name, *pair in zip(names, old, new, strict=True) if name not in counts]
        return first_difference([a for a, _ in left], [b for _, b in left], numerics) is None

    def _signs_of_zeros(self, result: onnx.ModelProto, feed: dict[str, Array], numerics: str) -> bool:
        """Whether a difference is gone where no zero is negative: such signs are kept by `exact` alone."""
        plain = {name: np.asarray(a + np.zeros((), a.dtype)) if is_float(a.dtype) else a for name, a in feed.items()}
        try:
            old, new = (
                OrtRunner(Source(without_negative_zeros(model), "unsigned")).run(plain)
                for model in (self.model, result)
            )
        except (CannotLoadError, RunError):
            return False
        return first_difference(old, new, numerics) is None

    def _by_reference(
        self, result: onnx.ModelProto, outcome: Optimized, feed: dict[str, Array], wrong: Verdict
    ) -> Verdict:
        """The verdict, or that it is the runtime's fault: onnx's own evaluator gives the same for both models."""
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


def _other(subject: Subject, model: onnx.ModelProto, written: bytes) -> Verdict | None:
    """Whether another run on the same model gives another result."""
    once_more = subject.optimize(model)
    if once_more.model is None or _bytes(once_more.model) != written:
        return Verdict("nondeterministic", once_more.message or "another run gives another model")
    return None


def _unsettled(subject: Subject, result: onnx.ModelProto, written: bytes) -> Verdict | None:
    """Whether a result does not stay as it is."""
    second = subject.optimize(result)
    if second.model is None:
        return Verdict("unstable", f"its own result: {second.message}", passes=tuple(second.hits))
    if _bytes(second.model) != written:
        return Verdict("unstable", "a second run changes the result", passes=tuple(second.hits))
    return None


def _bytes(model: onnx.ModelProto) -> bytes:
    return model.SerializeToString(deterministic=True)


def first_difference(old: list[Any], new: list[Any], numerics: str) -> str | None:
    """In words where two lists of outputs differ by more than a numerics level allows; None when they do not."""
    if len(old) != len(new):
        return f"{len(old)} outputs are {len(new)}"
    for number, (one, other) in enumerate(zip(old, new, strict=True)):
        if _same(one, other):
            continue
        before, after = leaves(one), leaves(other)
        if [path for path, _ in before] != [path for path, _ in after]:
            return f"output {number} has other parts"
        for (path, a), (_, b) in zip(before, after, strict=True):
            report = compare_arrays(f"{number}{path}", a, b, numerics)
            if report.status == "mismatch":
                return f"output {number}{path}: {report.detail}"
    return None


def _same(one: Any, other: Any) -> bool:
    """Whether two outputs are arrays of the same bytes: most are, and need no report."""
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray) or one.dtype.hasobject:
        return False
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def _type_of(output: Any) -> Any:
    """The element type of an array; None for anything else, and nothing."""
    return output.dtype if isinstance(output, np.ndarray) else None


def _apart(old: list[Any], new: list[Any], numerics: str = "rounding") -> list[tuple[Any, Any]]:
    """The outputs that differ by more than a numerics level allows."""
    pairs = zip(old, new, strict=True)
    return [(a, b) for a, b in pairs if first_difference([a], [b], numerics) is not None]


_SESSIONS = 3
"""In how many more sessions a model runs before its numbers count as settled."""


def _run(runner: Runner, feed: dict[str, Array]) -> list[Any] | None:
    """The outputs, None where the model does not run on the feed."""
    try:
        return runner.run(feed)
    except RunError:
        return None


def _twice(runner: Runner, feed: dict[str, Array]) -> list[Any] | None:
    """The outputs, None where the model does not run on the feed, or gives others the second time."""
    try:
        first = runner.run(feed)
        poison(first)
        second = runner.run(feed)
    except RunError:
        return None
    return first if first_difference(first, second, "exact") is None else None


def poison(outputs: list[Any]) -> None:
    """Leave NaN in the memory that the next run is given: a result that reads it is not determined."""
    for _, leaf in (leaf for output in outputs for leaf in leaves(output)):
        size = np.asarray(leaf).nbytes + 64
        for _ in range(3):
            np.full(size, 0xFF, np.uint8)


def fits(model: onnx.ModelProto, outputs: list[Any]) -> bool:
    """Whether outputs have the shapes that the model says; the runtime has its own opinion of some operators."""
    for info, output in zip(model.graph.output, outputs, strict=True):
        if info.type.WhichOneof("value") != "tensor_type" or not info.type.tensor_type.HasField("shape"):
            continue
        dims = info.type.tensor_type.shape.dim
        shape = np.shape(output)
        if len(dims) != len(shape) or any(
            d.HasField("dim_value") and d.dim_value != n for d, n in zip(dims, shape, strict=True)
        ):
            return False
    return True


def _standard(model: onnx.ModelProto, feed: dict[str, Array], outputs: list[Any]) -> bool:
    """Whether the outputs have the shapes that inference gives them where it knows the feed."""
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
"""Elements of what inference reads of a value."""


def _alike(first: dict[str, Array], other: dict[str, Array]) -> bool:
    """Whether two feeds have the same short lists and scalars, which may say what shapes come of them."""
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
    """Whether anything given or on the way is infinite, no number or larger; True where it cannot be seen."""
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
