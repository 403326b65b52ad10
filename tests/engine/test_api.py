"""The functions of `graphopt.api`: every kind of source, results that show themselves, what is logged."""

from __future__ import annotations

import inspect
import json
import logging
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest

import graphopt
from graphopt import Level, Numerics, PassManager, api, demo
from graphopt.errors import ModelError, UsageError
from graphopt.ir import Model
from graphopt.manager import RunSettings
from graphopt.pipeline import run as running
from graphopt.verify import assert_equivalent
from tests.cli.conftest import small_model


class ONNXProgram:
    """As torch has it: an `onnx_ir.Model`, and the proto of it."""

    def __init__(self, model: onnx_ir.Model) -> None:
        self.model = model

    @property
    def model_proto(self) -> onnx.ModelProto:
        return onnx_ir.to_proto(self.model)


def large() -> onnx.ModelProto:
    """Relu(Identity(x @ w)), with more than 4 KiB of weights that no pass touches."""
    return small_model()


def as_file(model: onnx.ModelProto, folder: Path) -> Path:
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


KINDS: dict[str, Callable[[onnx.ModelProto, Path], Any]] = {
    "path": as_file,
    "text": lambda model, folder: str(as_file(model, folder)),
    "bytes": lambda model, folder: model.SerializeToString(),
    "proto": lambda model, folder: model,
    "ir": lambda model, folder: onnx_ir.from_proto(model),
    "program": lambda model, folder: ONNXProgram(onnx_ir.from_proto(model)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_function_takes_every_kind(kind: str, tmp_path: Path) -> None:
    model = large()
    source = KINDS[kind](model, tmp_path)
    assert api.explain(source).nodes == (3, 2)
    assert api.bisect(source) is None
    assert api.verify(source, model).ok
    assert api.inspect(source).nodes == 3
    assert api.optimize_file(source, tmp_path / "out.onnx").changed
    assert api.verify(model, tmp_path / "out.onnx").status == "equal"


@pytest.mark.parametrize("kind", ["ir", "program", "bytes"])
def test_measuring_functions_take_every_kind(kind: str, tmp_path: Path) -> None:
    source = KINDS[kind](large(), tmp_path)
    audit = api.audit(source, levels=("basic",), against=[], budget=0.05, verify=False)
    assert audit.row("graphopt basic").ok
    assert api.profile(source, parts=("levels",), rounds=2, budget=0.05, graphopt=False).levels


def test_models_of_onnx_ir_share_their_weights() -> None:
    model = onnx_ir.from_proto(large())
    weight = onnx_ir.tensor(np.full((4, 300), 2.0, np.float32), name="w")
    model.graph.initializers["w"].const_value = weight
    found = graphopt.optimize(model)
    assert isinstance(found, onnx_ir.Model)
    assert [node.op_type for node in found.graph] == ["MatMul", "Relu"]
    kept = found.graph.initializers["w"].const_value
    assert np.shares_memory(kept.numpy(), weight.numpy())
    assert model.graph.initializers["w"].const_value is weight  # and the given model is as it was
    assert len(model.graph) == 3
    assert api.verify(model, found).status == "equal"


@pytest.mark.parametrize("how", ["missing", "behind a link"])
def test_weights_that_onnx_ir_does_not_read_are_told(tmp_path: Path, how: str) -> None:
    (tmp_path / "sub").mkdir()
    path = tmp_path / "sub" / "m.onnx"
    onnx.save(large(), path, save_as_external_data=True, location="w.data", size_threshold=0)
    model = onnx_ir.load(path)
    (tmp_path / "sub" / "w.data").rename(tmp_path / "blob")
    if how != "missing":
        (tmp_path / "sub" / "w.data").symlink_to(tmp_path / "blob")
    with pytest.raises(ModelError, match="tensor 'w': onnx-ir cannot read its data"):
        graphopt.optimize(model)
    with pytest.raises(ModelError, match="tensor 'w': onnx-ir cannot read its data"):
        api.verify(model, model)


def test_weights_of_onnx_ir_in_a_file_are_run(tmp_path: Path) -> None:
    onnx.save(large(), tmp_path / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    model = onnx_ir.load(tmp_path / "m.onnx")
    assert api.verify(model, large()).ok
    assert api.profile(model, parts=("levels",), rounds=2, budget=0.05, graphopt=False).levels


def test_data_of_bodies_and_attributes_of_onnx_ir_is_read(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 18, "l": 1]>
        g (bool c, float[2] x) => (float[2] y) {
          z = If (c) <then_branch = a () => (float[2] o) <float[2] w = {1, 2}> { o = Add (x, w) },
                      else_branch = b () => (float[2] e) { v = Constant <value = float[2] {3, 4}> () e = Mul (x, v) }>
          y = l.f (z)
        }
        <domain: "l", opset_import: ["": 18]> f (x) => (y) { v = Constant <value = float[2] {5, 6}> () y = Sub (x, v) }
    """)
    then, other = (attribute.g for attribute in model.graph.node[0].attribute)
    tensors = then.initializer[0], other.node[0].attribute[0].t, model.functions[0].node[0].attribute[0].t
    (tmp_path / "data").mkdir()
    for number, tensor in enumerate(tensors):
        (tmp_path / "data" / str(number)).write_bytes(onnx.numpy_helper.to_array(tensor).tobytes())
        for field in ("raw_data", "float_data"):
            tensor.ClearField(field)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=f"data/{number}")
    onnx.save(model, tmp_path / "m.onnx")
    result = graphopt.optimize(onnx_ir.load(tmp_path / "m.onnx"), "extended", verify=True)
    assert api.verify(tmp_path / "m.onnx", onnx_ir.to_proto(result)).ok


def test_what_weights_of_onnx_ir_state_beside_their_data_stays() -> None:
    model = onnx_ir.from_proto(large())
    notes = {"doc_string": "learned", "metadata_props": {"by": "me"}}
    model.graph.initializers["w"].const_value = onnx_ir.Tensor(np.full((4, 300), 2.0, np.float32), name="w", **notes)
    found = graphopt.optimize(model)
    held = found.graph.initializers["w"].const_value
    assert (held.doc_string, dict(held.metadata_props)) == ("learned", {"by": "me"})
    proto = graphopt.PassManager().run(model).model.graph.initializer[0]
    assert (proto.doc_string, [(p.key, p.value) for p in proto.metadata_props]) == ("learned", [("by", "me")])


def test_weights_of_onnx_ir_before_ir_4_stay_weights() -> None:
    proto = large()
    proto.ir_version = 3
    proto.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [4, 300]))
    result = onnx_ir.to_proto(graphopt.optimize(onnx_ir.from_proto(proto)))
    assert [node.op_type for node in result.graph.node] == ["MatMul", "Relu"]
    assert [tensor.name for tensor in result.graph.initializer] == ["w"]
    onnx.checker.check_model(result, full_check=True)


def test_weights_of_onnx_ir_that_change_are_new() -> None:
    proto = demo.conv_maxpool()
    found = graphopt.optimize(onnx_ir.from_proto(proto))
    expected = graphopt.optimize(proto)
    assert onnx_ir.to_proto(found).graph.node == expected.graph.node
    arrays = {t.name: onnx.numpy_helper.to_array(t) for t in expected.graph.initializer}
    assert arrays.keys() == found.graph.initializers.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found.graph.initializers[name].const_value.numpy(), array)


def test_a_program_comes_back_as_one() -> None:
    program = ONNXProgram(onnx_ir.from_proto(large()))
    found = graphopt.optimize(program)
    assert isinstance(found, ONNXProgram)
    assert (len(program.model.graph), len(found.model.graph)) == (3, 2)
    assert graphopt.optimize(program, inplace=True) is program
    assert len(program.model.graph) == 2


@pytest.mark.parametrize("source", [3, None, object(), ["model.onnx"]])
def test_other_kinds_are_refused(source: object) -> None:
    with pytest.raises(UsageError, match=r"expected a path, .* an onnx_ir.Model or an ONNXProgram, found"):
        graphopt.optimize(source)  # type: ignore[call-overload]


def test_choices_take_strings() -> None:
    assert Level("extended") is Level.of("EXTENDED") is Level.EXTENDED
    assert Numerics("fast") is Numerics.of(Numerics.FAST)
    with pytest.raises(UsageError, match="unknown level 'bsic'; expected one of basic, extended, layout, all"):
        Level.of("bsic")


@pytest.mark.parametrize("inplace", [False, True])
def test_what_is_done_to_a_view_is_verified(monkeypatch: pytest.MonkeyPatch, inplace: bool) -> None:
    result = PassManager(verify=True).run(Model.load(small_model(), inplace=inplace))
    assert result.changed
    assert result.verification is not None
    compared: list[Any] = []
    monkeypatch.setattr(PassManager, "_verify", lambda _, before, result: compared.extend((before, result.model)))
    PassManager(verify=True).run(Model.load(small_model(), inplace=inplace))
    assert compared[0] == small_model()
    assert compared[1] != small_model()


@pytest.mark.parametrize(
    "settings", [{"dims": {"N": 1}}, {"shapes": {"x": [1]}}, {"constant_initializers": True}, {"opaque_weights": "all"}]
)
def test_a_loaded_model_is_not_loaded_otherwise(settings: Any) -> None:
    with pytest.raises(UsageError, match="found a view, which is loaded already"):
        PassManager(**settings).run(Model.load(small_model()))


def test_results_print_and_become_json_html_and_a_notebook_view() -> None:
    model = large()
    run = PassManager().run(model)
    results = [run, api.explain(model), api.verify(model, run.model), api.inspect(model)]
    for result in results:
        assert json.loads(result.to_json()) == json.loads(json.dumps(result.to_dict()))
        assert str(result).strip()
        assert result.to_html().startswith("<!doctype html>")
        assert "<script" not in result._repr_html_()
    assert "3 -> 2 nodes" in str(run)


def test_nothing_is_typed_any() -> None:
    for name in api.__all__:
        hints = inspect.signature(getattr(api, name)).parameters.values()
        assert not [p.name for p in hints if p.annotation in {"Any", inspect.Parameter.empty}], name


def test_settings_are_those_of_the_pass_manager() -> None:
    assert set(RunSettings.__annotations__) == set(inspect.signature(PassManager).parameters) - {"level"}


def test_what_was_done_and_left_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO, "graphopt")
    manager = PassManager()
    clean = manager.run(large()).model
    manager.run(clean)
    assert [r.levelname for r in caplog.records] == ["INFO", "INFO"]
    assert caplog.messages[0].startswith("3 -> 2 nodes, 1 rewrite ")
    assert caplog.messages[1] == "no pass found anything to do"
    PassManager(opset=13).run(clean)
    assert caplog.messages[2] == caplog.messages[1]  # the opset did change

    def fail(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    caplog.clear()
    monkeypatch.setattr(type(manager.plan.rule("eliminate_identity")), "rewrite", fail)
    PassManager(passes="eliminate_identity").run(large())
    first = next(r for r in caplog.records if r.levelname == "WARNING")
    assert first.getMessage().startswith("pass eliminate_identity failed at ")
    assert first.getMessage().endswith("and was undone: by zero")


def test_each_run_tells_of_itself_whether_it_settled(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "graphopt")
    monkeypatch.setattr(running, "_ROUNDS", 1)
    manager = PassManager(passes="repeat(eliminate_identity)")
    clean = manager.run(large()).model
    assert [message for message in caplog.messages if "still changing" in message]
    caplog.clear()
    manager.run(clean)
    assert not caplog.messages


def test_inspection_tells_what_a_model_needs() -> None:
    model = graphopt.optimize(demo.mobilenet_v2(), "all", target="avx512")
    found = api.inspect(model)
    assert any(need.startswith("ONNX Runtime: operators of") for need in found.needs)
    assert "a machine of kind avx512/nchwc16" in found.needs
    raw = api.inspect(demo.mobilenet_v2())
    assert raw.needs == []
    graph = demo.mobilenet_v2().graph
    constants = [node.attribute[0].t for node in graph.node if node.op_type == "Constant"]
    assert raw.parameters == sum(np.prod(t.dims, dtype=int) for t in (*graph.initializer, *constants))
    assert raw.peak is not None


def test_inspection_names_operators_and_counts_bodies() -> None:
    """Operators of other domains are called once by them, also those of a domain that has functions."""
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17, "my" : 1, "com.microsoft" : 1]>
        g (float[4] x, bool c) => (float[4] y) {
            w = Constant <value = float[4] {1, 2, 3, 4}> ()
            a = my.Double (x)  b = com.microsoft.Gelu (a)  d = my.Custom (b)
            e = If (c) <then_branch = t () => (float[4] p) { p = Add (w, a) },
                        else_branch = f () => (float[4] q) { q = Neg (a) }>
            y = Add (d, e)
        }
        <domain: "my", opset_import: ["" : 17]> Double (x) => (y) { y = Add (x, x) }""")
    found = api.inspect(model)
    assert found.operators == {
        "Add": 3, "Constant": 1, "my::Double": 1, "com.microsoft::Gelu": 1, "my::Custom": 1, "If": 1, "Neg": 1,
    }  # fmt: skip
    assert found.needs == ["ONNX Runtime: operators of com.microsoft", "libraries of operators of my"]
    assert (found.parameters, found.outputs) == (4, {"y": "float[4]"})
    assert dict(found.rows())["nodes"] == "9, those of 2 bodies of control flow and 1 function included"


def test_a_sparse_default_is_no_required_input() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[3] x, float[3] s) => (float[3] y) { y = Add (x, s) }""")
    values, places = np.asarray([5, 7], np.float32), np.asarray([0, 2], np.int64)
    sparse = onnx.helper.make_sparse_tensor(
        onnx.numpy_helper.from_array(values, "s"), onnx.numpy_helper.from_array(places), [3]
    )
    model.graph.sparse_initializer.append(sparse)
    found = api.inspect(model)
    assert (list(found.inputs), list(found.optional_inputs)) == (["x"], ["s"])


def test_memory_counts_what_a_body_reads_until_then() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        g (float[1] x, bool c) => (float[1000] y) {
            n = Constant <value = int64[1] {1000}> ()
            a = Expand (x, n)  b = Neg (a)  d = Neg (b)  e = Neg (d)
            y = If (c) <then_branch = t () => (float[1000] p) { p = Add (e, a) },
                        else_branch = f () => (float[1000] q) { q = Neg (e) }>
        }""")
    assert api.inspect(model).peak == 3 * 4000 + 1


def test_shapes_and_opsets_hold_in_every_function() -> None:
    """`explain` and `bisect` begin with what `optimize` begins with."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 13]>
        g (float[n, 3] x) => (float[n, 3] y) { s = Shape(x)  e = Expand(x, s)  r = Reshape(e, s)  y = Relu(r) }
    """)
    loose, fixed = api.explain(model), api.explain(model, dims={"n": 2}, opset=17)
    result = PassManager(dims={"n": 2}, opset=17).run(model)
    assert [str(step.event) for step in fixed.steps] == [str(event) for event in result.events]
    assert fixed.nodes[1] == len(result.model.graph.node) <= loose.nodes[1]
    assert api.bisect(model, dims={"n": 2}, opset=17) is None
    assert api.bisect(model, shapes={"x": [2, 3]}) is None
    counted = PassManager(dims={"n": np.int64(2)}, opset=np.int64(17), limit=np.int32(99)).run(model)  # as numpy counts
    assert counted.model == result.model


@pytest.mark.parametrize(
    "called", [*(getattr(api, name) for name in api.__all__), PassManager, PassManager.compare, assert_equivalent]
)
def test_every_keyword_has_a_type(called: Any) -> None:
    stated = inspect.signature(called).parameters.values()
    assert all(each.annotation is not inspect.Parameter.empty or each.name == "self" for each in stated)
    more = [each.annotation for each in stated if each.kind is inspect.Parameter.VAR_KEYWORD]
    assert all(annotation.startswith("Unpack[") for annotation in more)


ONE = small_model()
ARRAY = np.ones((2, 4), np.float32)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: api.verify(ONE, ONE, inputs=[ARRAY]), "inputs: expected arrays by name, found ndarray"),
        (lambda: api.verify(ONE, ONE, timeout="3"), "timeout: expected a number of at least 0, found '3'"),
        (lambda: api.verify(ONE, ONE, seed=-1), "seed: expected a whole number of at least 0, found -1"),
        (lambda: api.audit(ONE, levels="all", against="nobody"), "unknown peer 'nobody'"),
        (lambda: api.audit(ONE, budget=True), "budget: expected a number of at least 0, found True"),
        (lambda: api.audit(ONE, numerics="loose"), "unknown numerics 'loose'"),
        (lambda: api.bisect(ONE, inputs={"y": ARRAY}), "inputs: no array 'x'; found y"),
        (lambda: api.profile(ONE, inputs={"y": ARRAY}), "inputs: no array 'x'; found y"),
        (lambda: api.profile(ONE, parts="level"), "unknown part 'level'; expected some of levels"),
        (lambda: api.profile(ONE, threads=0), "threads: expected a whole number of at least 1, found 0"),
        (lambda: api.profile(ONE, threads=99999), "threads: at most 1024 expected, found 99999"),
        (lambda: api.audit(ONE, threads=[1, 99999]), "threads: at most 1024 expected, found 99999"),
        (lambda: api.audit(ONE, threads="2"), "threads: expected a whole number of at least 1, found '2'"),
        (lambda: api.audit(ONE, threads=[]), "threads: one or more counts expected, found none"),
        (lambda: graphopt.fuzz(levels=3.5), "levels: expected one or several, found float"),
        (lambda: graphopt.fuzz(jobs=0), "jobs: expected a whole number of at least 1, found 0"),
        (lambda: graphopt.fuzz(ops="Cnov"), "ops: expected operators of the standard, found 'Cnov'"),
        (lambda: api.verify(ONE, ONE, inputs=5), "inputs: expected arrays by name, found int"),
        (lambda: api.verify(ONE, ONE, inputs={5: ARRAY}), "inputs: no array 'x'; found 5"),
        (
            lambda: api.verify(ONE, ONE, shapes={"x": 5}),
            "input 'x': expected a shape such as [1, 3, 224, 224], found 5",
        ),
        (lambda: api.audit(ONE, against=5), "unknown peer 5"),
        (lambda: graphopt.convert(ONE, runtime=["tract"]), "unknown runtime ['tract']"),
        (lambda: graphopt.ExternalData(location=5), "external data: the name of a file expected, found 5"),
        (lambda: graphopt.Options(extra=5), "extra: expected a mapping from passes to settings, found int"),
        (lambda: PassManager(passes="repeat(" * 2000 + "nop" + ")" * 2000), "at most 32 times repeat("),
    ],
)
def test_wrong_arguments_are_told_in_one_line(call: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(UsageError) as told:
        call()
    assert complaint in str(told.value)
    assert "\n" not in str(told.value)


def test_a_session_of_random_models_shows_itself() -> None:
    found = graphopt.fuzz(levels="basic", models=1, ops="Relu")
    assert json.loads(found.to_json())["models"] == found.models
    assert "of seed 0" in str(found)
    assert "<table" in found.to_html()
    assert "graphopt basic" in found._repr_html_()


@pytest.mark.parametrize(
    ("declared", "shown"),
    [("batch,2,total,8", "batch,2,total,8"), ("batch,2,,8", "batch,2,?,8"), ("B,,total,", "B,2,total,8"), ("n,m", "batch,2,?,8")],
)  # fmt: skip
def test_inspect_shows_the_names_of_the_model_and_none_that_inference_made(declared: str, shown: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[batch,2,past,8] x, float[batch,2,seq,8] y) '
        f"=> (float[{','.join(d or '?' for d in declared.split(','))}] z) {{ z = Concat <axis = 2> (x, y) }}"
    )
    found = api.inspect(model)
    assert found.outputs == {"z": f"float[{shown}]"}
    assert not any("unk" in name for name in found.symbols)


def test_a_manager_goes_to_another_process_and_errors_come_back() -> None:
    manager, model = graphopt.PassManager("extended", skip=["fuse_gelu"]), large()
    ran = manager.run(model)
    again = pickle.loads(pickle.dumps(manager))  # after a run, when it holds what passes try
    assert again.plan.skip == {"fuse_gelu"}
    assert again.run(model).model == ran.model
    newer = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 20]> g (string[1] x) => (string[1] y) { y = StringConcat (x, x) }'
    )
    with pytest.raises(graphopt.ConversionError) as caught:
        graphopt.convert(newer, 16)
    copied = pickle.loads(pickle.dumps(caught.value))
    assert str(copied) == str(caught.value)
    assert copied.refusals == caught.value.refusals


def test_the_face_is_there_without_a_second_import() -> None:
    script = "import graphopt; assert graphopt.api.verify and 'api' in graphopt.__all__"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
