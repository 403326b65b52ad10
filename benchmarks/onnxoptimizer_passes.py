"""Each of onnxoptimizer's passes and graphopt's of the same name, on a small model on which both can fire."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from graphopt.audit.markdown import table
from graphopt.audit.passes.isomorphism import isomorphic, live_nodes
from graphopt.audit.verdicts import oracle_status
from graphopt.compat import onnxoptimizer as ours
from graphopt.compat.interface import INTERFACE_PASSES
from graphopt.ir import Model
from graphopt.pipeline import registry
from graphopt.rewrite import Numerics
from graphopt.verify import compare

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "tests" / "peers" / "onnxoptimizer"
PAGE = ROOT / "docs" / "onnxoptimizer.md"
_HEAD = ("pass", "nodes", "theirs", "graphopt's", "their numbers", "graphopt's numbers", "same graph")


@dataclass(slots=True)
class Row:
    """Both passes on one model.

    Attributes:
        name: the pass.
        before: nodes that run in every inference, before the pass.
        theirs: the same after onnxoptimizer's pass; None if it failed.
        ours: the same after graphopt's pass.
        fired: whether theirs and ours changed anything.
        their_numbers: the oracle's status of their result.
        our_numbers: the oracle's status of ours.
        same: whether both graphs are equal up to names.
    """

    name: str
    before: int
    theirs: int | None
    ours: int
    fired: tuple[bool, bool]
    their_numbers: str
    our_numbers: str
    same: bool | None

    def cells(self) -> list[str]:
        """As text."""
        marks = ["" if fired else ", idle" for fired in self.fired]
        theirs = "failed" if self.theirs is None else f"{self.theirs}{marks[0]}"
        same = "·" if self.same is None else "yes" if self.same else "no"
        return [
            self.name, str(self.before), theirs, f"{self.ours}{marks[1]}", self.their_numbers, self.our_numbers, same,
        ]  # fmt: skip


def _their_pass(data: bytes, name: str) -> bytes:
    """Run in the other process, since the native library may crash."""
    import onnxoptimizer

    passes = [name] if name == "nop" or name in INTERFACE_PASSES else [name, "eliminate_deadend"]
    done: onnx.ModelProto = onnxoptimizer.optimize(onnx.ModelProto.FromString(data), passes, True)
    return done.SerializeToString()


class Isolated:
    """onnxoptimizer in a process that is restarted when it crashes."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def run(self, model: onnx.ModelProto, name: str) -> onnx.ModelProto | str:
        """The model after a pass, or the kind of failure."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        try:
            done = self._pool.submit(_their_pass, model.SerializeToString(), name).result(timeout=60)
        except BrokenProcessPool:
            self.close()
            return "crashed"
        except Exception as error:  # a native library may raise anything
            return type(error).__name__
        return onnx.ModelProto.FromString(done)

    def close(self) -> None:
        """End the process."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def models() -> dict[str, onnx.ModelProto]:
    """The model of each pass."""
    return {path.stem: onnx.parser.parse_model(path.read_text()) for path in sorted(MODELS.glob("*.onnxtxt"))}


def row(name: str, model: onnx.ModelProto, isolated: Isolated) -> Row:
    """Compare both passes on a model."""
    read = isolated.run(model, "nop")
    theirs = isolated.run(model, name)
    own = ours.optimize(model, [name], fixed_point=True)
    judge = _positional(name, model) if name in INTERFACE_PASSES else functools.partial(_oracle, name, model)
    before, after = Model.load(model), Model.load(own)
    found = Row(name, live_nodes(before), None, live_nodes(after), (False, _differs(own, model)), "", judge(own), None)
    if isinstance(theirs, str):
        found.their_numbers = theirs
    else:
        view = Model.load(theirs)
        found.theirs, found.fired = live_nodes(view), (_differs(theirs, read), found.fired[1])
        found.their_numbers, found.same = judge(theirs), isomorphic(view, after)
    return found


def _differs(one: onnx.ModelProto | str, two: onnx.ModelProto | str) -> bool:
    return _contents(one) != _contents(two)


def _contents(model: onnx.ModelProto | str) -> bytes:
    if isinstance(model, str):
        return b""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    copy.producer_name = copy.producer_version = ""
    return copy.SerializeToString(deterministic=True)


def _oracle(name: str, model: onnx.ModelProto, result: onnx.ModelProto) -> str:
    numerics = registry().rule_class(name).numerics if name in registry() else Numerics.EXACT
    return oracle_status(compare(model, result, numerics=str(numerics)))


def _positional(name: str, model: onnx.ModelProto) -> Callable[[onnx.ModelProto], str]:
    """A judge for passes that change the interface: equal outputs for equal inputs, by position."""

    def judge(result: onnx.ModelProto) -> str:
        if name in ("split_init", "split_predict", "lift_lexical_references"):
            try:
                onnx.checker.check_model(result)
            except onnx.checker.ValidationError:
                return "invalid"
            return "valid"
        expected, found = _answers(model), _answers(result)
        return "equal" if all(map(np.array_equal, expected, found)) else "mismatch"

    return judge


def _answers(model: onnx.ModelProto) -> list[Any]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {}
    for number, info in enumerate(session.get_inputs()):
        kind = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}[info.type]
        feeds[info.name] = (np.arange(np.prod(info.shape)).reshape(info.shape) - number - 1).astype(kind)
    found: list[Any] = session.run(None, feeds)
    return found


def run() -> str:
    """Compare all passes, write the page and return it."""
    isolated = Isolated()
    try:
        rows = [row(name, model, isolated) for name, model in models().items()]
    finally:
        isolated.close()
    fewer = sum(each.theirs is None or each.ours < each.theirs for each in rows)
    more = [each.name for each in rows if each.theirs is not None and each.ours > each.theirs]
    text = "\n\n".join(
        [
            "# onnxoptimizer's passes beside graphopt's",
            "Written by `python -m benchmarks onnxoptimizer-passes`. Each row is one small model "
            "(`tests/peers/onnxoptimizer`). The pass runs alone until it changes nothing more; onnxoptimizer's pass "
            "is followed by eliminate_deadend. Nodes are counted without those on constants, which need not run "
            "every time. Outputs are compared with those of the original model, with ONNX Runtime's optimizations "
            "off, as exactly as graphopt's pass states. `invalid` means that the ONNX checker rejects the result.",
            table(_HEAD, (each.cells() for each in rows)),
            f"{len(rows)} passes; the same graph for {sum(each.same is True for each in rows)}, fewer nodes with "
            f"graphopt for {fewer}, more for {len(more)}{': ' + ', '.join(more) if more else ''}.",
        ]
    )
    PAGE.write_text(text + "\n")
    return text
