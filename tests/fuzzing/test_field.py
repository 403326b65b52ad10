"""Sessions against other optimizers: every golden case of a pass like theirs in turn, harder numbers, faults traced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from graphopt.errors import UsageError
from graphopt.fuzzing.building import Builder, Sample
from graphopt.fuzzing.drawing import Draw
from graphopt.fuzzing.field import Turns, harden, rules_like
from graphopt.fuzzing.localizing import TOGETHER, localize, shown_by
from graphopt.fuzzing.models import finish
from graphopt.fuzzing.oddities import ODDITIES
from graphopt.fuzzing.seedlings import golden
from graphopt.fuzzing.stock import FragmentName
from graphopt.fuzzing.subjects import NO_PASS, Optimized, OwnSubject, PeerSubject, subject_of
from graphopt.fuzzing.templates import FOR_PEERS, Writer
from graphopt.fuzzing.variants import variant
from graphopt.fuzzing.verdicts import Judge, Verdict
from graphopt.fuzzing.working import FuzzSettings, Worker, fails
from graphopt.peers import NOTHING
from graphopt.verify.runners import open_runner
from graphopt.verify.source import Source

FAULTS = (
    ("onnxoptimizer", "eliminate_nop_dropout", "invalid", 11,
     "(float[2,3] x) => (float[2,3] y, bool[2,3] n) {d, m = Dropout <ratio: float = 0.0> (x) y = Relu (d) n = Not (m)}"),
    ("onnxoptimizer", "fuse_consecutive_log_softmax", "raised", 17,
     "(float[2,3] x) => (float[2,3] y) {s = Softmax (x) y = Log (s)}"),
    ("onnxoptimizer", "fuse_matmul_add_bias_into_gemm", "does not load", 17,
     "(int32[2,3] x) => (int32[2,2] y) <int32[3,2] w = {1,2,3,4,5,6}, int32[2] b = {1,2}> "
     "{m = MatMul (x, w) y = Add (m, b)}"),
    ("onnxoptimizer", "eliminate_slice_after_shape", "wrong", 17,
     "(float[2,3,4] x) => (int64[1] y) <int64[1] a = {0}, int64[1] b = {1}, int64[1] c = {0}> "
     "{s = Shape <start: int = 1> (x) y = Slice (s, a, b, c)}"),
    ("onnxoptimizer", "eliminate_if_with_const_cond", "crashed", 17,
     "(float[2] x) => (float[2] y) <bool c = {1}> {v = Relu (x) w = If (c) <then_branch = yes () => (float[2] k) "
     "<float[2] k = {1,2}> {}, else_branch = no () => (float[2] u) {u = Neg (v)}> y = Neg (w)}"),
    ("onnxsim", NO_PASS, "lost", 17,
     "(float[2] x, float[2] w) => (float[2] y) <float[2] w = {1,2}> {v = Identity (x) y = Add (v, w)}"),
    ("onnxslim", "dead_node_elimination", "lost", 17,
     "(float[2] x, float[2] z) => (float[2] y) {v = Identity (x) y = Relu (v)}"),
    ("onnxslim", "FusionGemm", "does not load", 17,
     "(int32[2,3] x) => (int32[2,2] y) <int32[3,2] w = {1,2,3,4,5,6}, int32[2] b = {1,2}> "
     "{m = MatMul (x, w) y = Add (m, b)}"),
    ("onnxscript", "FuseSuccessiveReluClip", "wrong", 17,
     "(float[4] x) => (float[4] y) <float a = {-3}, float b = {-1}> {c = Clip (x, a, b) y = Relu (c)}"),
    ("onnxscript", "FuseConvPad", "raised", 10,
     "(float[1,1,3,3] x) => (float[1,1,3,3] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}> "
     "{p = Pad <pads: ints = [0,0,1,1,0,0,1,1]> (x) y = Conv (p, w)}"),
)  # fmt: skip


def model(text: str, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: {6 if opset < 12 else 8}, opset_import: ["" : {opset}]> g {text}')


def sample_of(made: onnx.ModelProto) -> Sample:
    feed = {}
    for info in made.graph.input:
        if info.name not in {tensor.name for tensor in made.graph.initializer}:
            tensor = info.type.tensor_type
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            shape = [dim.dim_value for dim in tensor.shape.dim]
            feed[info.name] = (np.arange(np.prod(shape)) - 2).astype(dtype).reshape(shape)
    return Sample(made, [feed])


@pytest.mark.parametrize(("peer", "cause", "kind", "opset", "text"), FAULTS, ids=[f"{f[0]}-{f[1]}" for f in FAULTS])
def test_each_kind_of_fault_is_traced_to_the_pass(peer: str, cause: str, kind: str, opset: int, text: str) -> None:
    try:
        subject = subject_of(peer)
    except UsageError as absent:
        pytest.skip(str(absent))
    assert isinstance(subject, PeerSubject)
    try:
        sample = sample_of(model(text, opset))
        judge = Judge(sample)
        verdict = judge.of(subject, subject.optimize(sample.model), again=False, once_more=False)
        if verdict is None:
            pytest.skip(f"{peer} {subject.peer.version} has no such fault")
        assert verdict.kind == kind
        assert localize(sample, subject, verdict) == cause
        assert shown_by(cause, judge, subject, verdict)
        assert fails(sample, subject, verdict, cause)
        alone = [name for name in subject.passes() if shown_by(name, judge, subject, verdict)]
        assert alone == list(subject.passes()) if cause == NO_PASS else cause in alone[:1]
    finally:
        subject.close()


class Pretended(PeerSubject):
    """An optimizer that is wrong where one of its passes finds what another left."""

    def __init__(self, *wrong: str) -> None:
        self.wrong = wrong
        self.name = "pretended"

    def passes(self) -> tuple[str, ...]:
        return ("relu_to_abs", "drop_abs", "nothing")

    def run_pass(self, model: onnx.ModelProto, name: str) -> Optimized:
        made = onnx.ModelProto.FromString(model.SerializeToString())
        for node in made.graph.node:
            if (name, node.op_type) == ("relu_to_abs", "Relu") and "relu_to_abs" in self.wrong:
                node.op_type = "Abs"
            elif (name, node.op_type) == ("relu_to_abs", "Relu"):
                node.doc_string = "seen"
            elif name == "drop_abs" and node.doc_string == "seen":
                node.op_type = "Identity"
        return Optimized(made)


def test_a_fault_of_several_passes_is_said_to_be_one() -> None:
    sample = sample_of(model("(float[4] x) => (float[4] y) {v = Neg (x) y = Relu (v)}"))
    verdict = Verdict("wrong", "output 0 differs")
    assert localize(sample, Pretended("relu_to_abs"), verdict) == "relu_to_abs"
    assert localize(sample, Pretended(), verdict) == f"{TOGETHER}, drop_abs behind others"
    other = Verdict("lost", "input x is missing")
    assert localize(sample, Pretended(), other) == f"{TOGETHER}: input x is missing"
    assert localize(sample, Pretended("relu_to_abs"), Verdict("hung", "")) == ""


def test_all_passes_of_a_run_are_asked_for_by_their_names() -> None:
    assert Pretended().names("nothing")
    assert Pretended().names(NO_PASS)
    assert not Pretended().names(NOTHING)
    assert not Pretended().names("another")


@pytest.fixture(scope="module")
def rounds() -> Turns:
    return Turns("turns", {each.name: each for each in golden()}, ["onnxoptimizer"])


def drawn(rounds: Turns) -> Iterator[list[str]]:
    number = 0
    while True:
        yield rounds.draw(number)
        number += 1


def test_every_golden_case_comes_once_before_any_comes_again(rounds: Turns) -> None:
    seen: Counter[str] = Counter()
    for names in drawn(rounds):
        if len(seen) == len(rounds.cases):
            assert all(str(FragmentName.read(name)) == name for name in names)
            break
        seen.update(names)
    assert set(seen) == set(rounds.cases)
    assert set(seen.values()) == {1}


def test_passes_take_turns_and_fire_as_often_as_they_decline(rounds: Turns) -> None:
    rules = rules_like(["onnxoptimizer"])
    assert {"eliminate_nop_pad", "fuse_bn_into_conv"} <= rules
    assert "fuse_qdq_into_op" not in rules
    early = [name for number in range(60) for name in rounds.draw(number)]
    counts = Counter(rounds.cases[name].rule for name in early)
    assert set(counts) == {each.rule for each in rounds.cases.values()} <= rules
    assert max(counts.values()) <= 3 * min(counts.values())
    fires = sum(rounds.cases[name].fires for name in early)
    assert 0.35 < fires / len(early) < 0.65


def test_cases_in_one_model_go_together(rounds: Turns) -> None:
    for number in range(200):
        assert len({(rounds.cases[name].context, rounds.cases[name].opset) for name in rounds.draw(number)}) <= 1


def test_the_order_depends_on_the_seed_alone() -> None:
    cases = {each.name: each for each in golden(("eliminate_nop_pad", "fuse_gelu", "fuse_pad_into_conv"))}
    far = [2 * len(cases) + n for n in range(12)]
    one, other, another = (Turns(seed, cases, ["onnxsim"]) for seed in ("a", "a", "b"))
    chosen = [[[rounds.draw(n) for n in (*range(12), *far)]] for rounds in (one, other, another)]
    assert chosen[0] == chosen[1] != chosen[2]
    later = [name for n in far for name in one.draw(n)]
    assert any(FragmentName.read(name).steps for name in later)  # changed, once all were there as they are


def test_what_a_number_gives_can_be_sown() -> None:
    worker = Worker(FuzzSettings("field", ("onnxoptimizer",)))
    try:
        assert worker.turns is not None
        drawn = ((number, worker.turns.draw(number)) for number in range(8))
        number, sow = next(each for each in drawn if worker.draw(*each) is not None)  # of some numbers nothing comes
        one, other = (worker.draw(number, sow) for _ in range(2))
        assert one is not None
        assert other is not None
        assert set(one.planted) <= set(sow)
        assert len(one.feeds) >= 3
        assert one.model.SerializeToString(deterministic=True) == other.model.SerializeToString(deterministic=True)
    finally:
        worker.close()
    mixed = Worker(FuzzSettings("field", ("graphopt basic", "onnxoptimizer")))
    assert mixed.turns is None  # what graphopt is given does not depend on the peers beside it
    assert not mixed.wishes.field
    mixed.close()


def test_inputs_become_constants_and_constants_other_forms() -> None:
    text = (
        "(float[2,3] x, string[2] s, int64[3] p) => (float[2,3] y, bool[2] e, float[2,3] g) "
        '<float k = {2}, string[2] t = {"a", "b"}> {m = Mul (x, k) y = Relu (m) e = Equal (s, t) '
        "g = Gather <axis: int = 1> (x, p)}"
    )
    feed = {"x": np.float32([[1, -2, 3], [4, 5, -6]]), "s": np.array(["a", "c"], object), "p": np.int64([2, 0, 1])}
    forms: Counter[str] = Counter()
    inputs = set()
    for number in range(60):
        sample = Sample(model(text, 19), [dict(feed)])
        sample.model.ir_version = 9
        expected = open_runner(Source(sample.model, "before")).run(feed)
        harden(sample, Draw(f"forms {number}"), as_it_is=False)
        onnx.checker.check_model(sample.model, full_check=True)
        names = {info.name for info in sample.model.graph.input}
        inputs.add(len(names))
        assert all(set(given) == names for given in sample.feeds)
        forms.update(node.attribute[0].name for node in sample.model.graph.node if node.op_type == "Constant")
        found = open_runner(Source(sample.model, "after")).run(sample.feeds[0])
        np.testing.assert_array_equal(found[1], expected[1])
        np.testing.assert_array_equal(found[2], expected[2])
    assert inputs == {0, 1, 2, 3}
    assert {"value", "value_float", "value_ints", "value_strings"} <= set(forms)


def test_a_golden_case_is_left_as_it_is_but_run_on_more() -> None:
    text = (
        "(float[4,3] x, int64[4,3] n) => (float[4,3] y) <float[3] k = {1,2,3}> "
        "{c = Cast <to: int = 1> (n) a = Add (x, k) y = Mul (a, c)}"
    )
    large = zero = 0
    for number in range(20):
        sample = Sample(model(text, 17), [{"x": np.full((4, 3), 0.5, np.float32), "n": np.full((4, 3), 2)}])
        before = sample.model.SerializeToString(deterministic=True)
        harden(sample, Draw(f"more {number}"), as_it_is=True)
        assert sample.model.SerializeToString(deterministic=True) == before
        assert len(sample.feeds) == 3
        large += bool(np.all(sample.feeds[1]["x"] >= 5) and np.all(sample.feeds[1]["n"] >= 20))
        rows = sample.feeds[2]["x"]
        zero += bool(np.any(np.all(rows == 0, axis=0)) or np.any(np.all(rows == 0, axis=1)))
        np.testing.assert_array_equal(sample.feeds[2]["n"], 2)
    assert (large, zero) == (20, 20)


@pytest.mark.parametrize("name", sorted(FOR_PEERS))
def test_structures_for_peers_are_built_whole(name: str) -> None:
    for opset in (9, 17, 21):
        b = Builder(Draw(f"{name}/{opset}"), opset)
        assert FOR_PEERS[name](Writer(b)) == b.order[-1]
        assert Judge(finish(b)).expected


def test_a_fault_that_was_seen_before_is_asked_of_its_pass_first(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(FuzzSettings("causes", ("graphopt basic",)))
    traced = []

    def traces(*given: object) -> str:
        traced.append(given)
        return "relu_to_abs" if len(traced) == 1 else "another"

    monkeypatch.setattr("graphopt.fuzzing.working.localize", traces)
    verdict = Verdict("wrong", "output 0: 1 of 4 elements differ")
    subject = Pretended("relu_to_abs")
    shows = sample_of(model("(float[4] x) => (float[4] y) {v = Neg (x) y = Relu (v)}"))
    shows_not = sample_of(model("(float[4] x) => (float[4] y) {v = Neg (x) y = Abs (v)}"))
    causes = [worker._cause(each, subject, verdict) for each in (shows, shows, shows_not)]
    assert causes == ["relu_to_abs", "relu_to_abs", "another"]
    assert len(traced) == 2
    own = OwnSubject("basic")
    assert [worker._cause(shows, own, verdict) for _ in range(2)] == ["another"] * 2  # ours are traced each time
    assert len(traced) == 4
    worker.close()


def changed(kind: str, text: str, seed: int) -> onnx.ModelProto | None:
    found = variant(model(text), seed, {kind: ODDITIES[kind]})
    return None if found is None else found[1]


def test_masks_are_named_and_read() -> None:
    text = "(float[2,3] x) => (float[2,3] y) {d = Dropout (x) y = Relu (d)}"
    made = [m for seed in range(8) if (m := changed("more outputs", text, seed)) is not None]
    assert len(made) == 8
    assert {len(m.graph.node) for m in made} == {2, 3}  # put out, or read by an operator
    for each in made:
        assert len(each.graph.node[0].output) == len(each.graph.output) == 2
        onnx.checker.check_model(each, full_check=True)
    assert changed("more outputs", "(float[2] x) => (float[2] y) {y = Relu (x)}", 0) is None


def test_sizes_become_equal_and_lists_change_wherever_they_stand() -> None:
    weights = ",".join(map(str, range(12)))
    conv = (
        f"(float[1,3,5,5] x) => (float[1,4,5,5] y) <float[4,3,1,1] w = {{{weights}}}, float[5] k = {{1,2,3,4,5}}> "
        "{c = Conv (x, w) y = Mul (c, k)}"
    )
    shapes = set()
    for seed in range(30):
        made = changed("equal sizes", conv, seed)
        if made is not None:
            shapes.add(
                (made.graph.output[0].type.tensor_type.shape.dim[1].dim_value, made.graph.initializer[1].dims[0])
            )
    assert any(channels == width for channels, width in shapes)
    reduced = """(float[2,3,4] x) => (float[?,?,?] y) <int64[1] a = {1}, int64[1] b = {1}>
      {r = ReduceSum <keepdims: int = 0> (x, a) y = Unsqueeze (r, b)}"""
    lists = set()
    for seed in range(20):
        made = changed("equal lists", reduced, seed)
        if made is not None:
            first, other = (tuple(onnx.numpy_helper.to_array(t)) for t in made.graph.initializer)
            assert first == other
            lists.add(first)
    assert {(), (-2,)} <= lists


def test_words_and_magnitudes_take_the_place_of_numbers() -> None:
    text = "(float[2,3] x) => (float[3,4] y) <float[2,1] k = {1,2}> {c = Concat <axis: int = 1> (x, k) y = Transpose <perm: ints = [1,0]> (c)}"
    made = changed("strings", text.replace("[3,4]", "[4,2]"), 1)
    assert made is not None
    tensors = (made.graph.input[0].type.tensor_type, made.graph.output[0].type.tensor_type)
    assert {tensor.elem_type for tensor in tensors} == {onnx.TensorProto.STRING}
    assert onnx.numpy_helper.to_array(made.graph.initializer[0]).shape == (2, 1)
    sums = "(float[2] x) => (float[2] y) <float[2] k = {1,2}, float[2] l = {3,4}> {s = Add (x, k) y = Add (s, l)}"
    scaled = [m for seed in range(30) if (m := changed("magnitude", sums, seed)) is not None]
    arrays = [[onnx.numpy_helper.to_array(t).tolist() for t in m.graph.initializer] for m in scaled]
    assert any(first[0] > 1e19 and other[0] > 1e19 for first, other in arrays)
    assert any(first[0] > 1e19 and other == [3.0, 4.0] for first, other in arrays)
