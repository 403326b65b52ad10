"""Weights in files: nothing is lost, whichever tensors they belong to, wherever they go, links included."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt import ExternalData, Model, ModelError, PassManager, UsageError, optimize, optimize_file
from graphopt.verify import compare
from tests.cli.conftest import Run

RNG = np.random.default_rng(5)


def matrix(name: str, rows: int = 8, columns: int = 8) -> onnx.TensorProto:
    return numpy_helper.from_array(RNG.standard_normal((rows, columns)).astype(np.float32), name)


def model() -> onnx.ModelProto:
    """Weights as an initializer, as a constant, and in a body."""
    found = helper.make_tensor_value_info
    then = helper.make_graph(
        [helper.make_node("MatMul", ["b", "inner"], ["t"])], "then", [], [found("t", 1, [2, 8])], [matrix("inner")]
    )
    other = helper.make_graph([helper.make_node("Neg", ["b"], ["e"])], "other", [], [found("e", 1, [2, 8])])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Constant", [], ["k"], value=matrix("k")),
        helper.make_node("Identity", ["a"], ["same"]),
        helper.make_node("MatMul", ["same", "k"], ["b"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    inputs = [found("x", TensorProto.FLOAT, [2, 8]), found("c", TensorProto.BOOL, [])]
    graph = helper.make_graph(
        nodes, "g", inputs, [found("y", 1, [2, 8])], [matrix("unused"), matrix("w"), matrix("more")]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def saved(path: Path, **settings: object) -> onnx.ModelProto:
    """Write the model with its weights beside it; return it whole."""
    whole = model()
    copy = onnx.ModelProto.FromString(whole.SerializeToString())
    settings = {"location": "w.bin", "size_threshold": 0, "convert_attribute": True, **settings}
    onnx.save(copy, path, save_as_external_data=True, **settings)
    return whole


def assert_same(a: object, b: object) -> None:
    report = compare(a, b)
    assert report.ok, report.summary()


@pytest.mark.parametrize("one_file", [True, False])
def test_weights_of_bodies_and_constants_come_along(tmp_path: Path, one_file: bool) -> None:
    whole = saved(tmp_path / "m.onnx", all_tensors_to_one_file=one_file, location="w.bin" if one_file else None)
    (tmp_path / "out").mkdir()
    result = optimize_file(tmp_path / "m.onnx", tmp_path / "out" / "m.onnx")
    assert_same(whole, tmp_path / "out" / "m.onnx")
    assert_same(whole, result.model)


def test_an_unchanged_model_takes_its_weights_along(tmp_path: Path) -> None:
    whole = saved(tmp_path / "m.onnx")
    (tmp_path / "out").mkdir()
    Model.load(tmp_path / "m.onnx").save(tmp_path / "out" / "m.onnx")
    assert_same(whole, tmp_path / "out" / "m.onnx")


def test_a_model_from_a_path_is_whole(tmp_path: Path) -> None:
    whole = saved(tmp_path / "m.onnx")
    found = optimize(tmp_path / "m.onnx", verify=True)
    assert not any(t.data_location for t in found.graph.initializer)
    assert_same(whole, found)


def test_standard_output_gets_a_whole_model(run: Run, tmp_path: Path) -> None:
    whole = saved(tmp_path / "m.onnx")
    done = run("optimize", tmp_path / "m.onnx", "-", "-q")
    assert done.exit_code == 0
    assert_same(whole, done.stdout_bytes)


@pytest.mark.parametrize("name", ["w.bin", "other.bin"])
def test_over_its_own_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.onnx"
    whole = saved(path)
    result = optimize_file(path, path, external_data=ExternalData(name, threshold=0))
    assert_same(whole, path)
    assert_same(whole, result.model)
    result.save(tmp_path / "again.onnx")
    assert_same(whole, tmp_path / "again.onnx")


def test_over_its_own_file_of_large_weights(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    x = helper.make_tensor_value_info("x", 1, [2, 1200])
    y = helper.make_tensor_value_info("y", 1, [2, 1200])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Identity", ["a"], ["y"])]
    weights = [matrix("unused", 1200, 50), matrix("w", 1200, 1200)]
    whole = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    onnx.save(whole, path)
    result = optimize_file(path, path)
    assert_same(whole, path)
    assert_same(whole, result.model)


def test_weights_below_the_threshold_are_kept(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", 1, [1, 1200])
    y = helper.make_tensor_value_info("y", 1, [1, 5000])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"])]
    whole = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], [matrix("w", 1200, 5000), matrix("b", 1, 5000)]),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=9,
    )  # fmt: skip
    onnx.save(whole, tmp_path / "m.onnx")  # large enough for its weights to stay in the file
    optimize_file(tmp_path / "m.onnx", tmp_path / "out.onnx", external_data=ExternalData("w.bin", threshold=1_000_000))
    assert_same(whole, tmp_path / "out.onnx")


@pytest.mark.parametrize("name", ["w.bin", "m.onnx"])
def test_files_of_the_input_are_not_replaced(run: Run, tmp_path: Path, name: str) -> None:
    saved(tmp_path / "m.onnx")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    done = run("optimize", tmp_path / "m.onnx", tmp_path / "out.onnx", "--external-data", name)
    assert done.exit_code == 3
    assert "would replace" in done.stderr
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_model_that_cannot_be_written_leaves_the_old_weights(tmp_path: Path) -> None:
    saved(tmp_path / "m.onnx")
    (tmp_path / "out.onnx").mkdir()
    (tmp_path / "out.onnx.data").write_bytes(b"precious")
    with pytest.raises(ModelError, match="folder"):
        optimize_file(tmp_path / "m.onnx", tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx.data").read_bytes() == b"precious"


def hub(folder: Path) -> tuple[onnx.ModelProto, Path]:
    """A model as the cache of a model hub has it: links to files of other names, all in one folder."""
    whole = saved(folder / "m.onnx", location="m.onnx_data")
    (folder / "blobs").mkdir()
    snapshot = folder / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for number, name in enumerate(("m.onnx", "m.onnx_data")):
        shutil.move(folder / name, folder / "blobs" / str(number))
        (snapshot / name).symlink_to(Path("..") / ".." / "blobs" / str(number))
    return whole, snapshot / "m.onnx"


def test_links_of_a_model_hub_are_followed(tmp_path: Path) -> None:
    whole, path = hub(tmp_path)
    optimize_file(path, tmp_path / "out.onnx")
    assert_same(whole, tmp_path / "out.onnx")


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    saved(tmp_path / "m.onnx")
    (tmp_path / "in").mkdir()
    shutil.move(tmp_path / "m.onnx", tmp_path / "in" / "m.onnx")
    (tmp_path / "in" / "w.bin").symlink_to(Path("..") / "w.bin")
    with pytest.raises(ModelError, match="outside the model's folder"):
        Model.load(tmp_path / "in" / "m.onnx")


@pytest.mark.parametrize("location", ["a\0b", "x" * 300])
def test_locations_that_name_no_file(tmp_path: Path, location: str) -> None:
    saved(tmp_path / "m.onnx")
    proto = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = location
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="is not a file"):
        Model.load(tmp_path / "m.onnx")


@pytest.mark.parametrize("length", [240, 250])
def test_long_file_names(tmp_path: Path, length: int) -> None:
    path = tmp_path / ("x" * length)
    optimize_file(model(), path)
    assert path.is_file()


@pytest.mark.parametrize("name", ["out\udcff", "a" + "ü" * 105], ids=["no text", "cut inside of a letter"])
def test_names_that_no_model_can_state(tmp_path: Path, name: str) -> None:
    whole = saved(tmp_path / "m.onnx")
    optimize_file(tmp_path / "m.onnx", tmp_path / f"{name}.onnx")
    assert_same(whole, tmp_path / f"{name}.onnx")
    with pytest.raises(ModelError, match="a model can only name files in UTF-8"):
        optimize_file(tmp_path / "m.onnx", tmp_path / "n.onnx", external_data=ExternalData("w\udcff.bin"))


@pytest.mark.parametrize("source", [None, 5, [], model().graph, open], ids=lambda s: type(s).__name__)
def test_what_is_no_model(source: object) -> None:
    with pytest.raises(UsageError, match="expected a path, .* or an ONNXProgram, found"):
        optimize(source)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, os.devnull])
def test_names_that_no_model_has(name: str) -> None:
    with pytest.raises(ModelError):
        optimize(name)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"passes": 5}, "passes: expected"), ({"passes": [5]}, "passes: expected"), ({"skip": 5}, "skip: expected"),
        ({"skip": [5]}, "skip: expected"), ({"limit": "x"}, "limit: expected"), ({"limit": -1}, "limit: expected"),
        ({"options": 5}, "options: expected"), ({"target": 7}, "target: expected"), ({"dims": 5}, "dims: expected"),
        ({"shapes": {"x": 5}}, "expected a shape"), ({"shapes": {"x": ["n", 8]}}, "whole numbers"),
        ({"shapes": {"x": [2.5, 8]}}, "whole numbers"), ({"dims": {"n": -1}}, "whole numbers"),
        ({"dims": {"n": True}}, "whole numbers"), ({"dims": {"n": 1 << 70}}, "whole numbers"),
    ],
)  # fmt: skip
def test_arguments_of_a_wrong_kind(settings: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        optimize(model(), **settings)


def test_inplace_gives_the_given_proto() -> None:
    for settings in ({}, {"verify": True}, {"shapes": {"x": [2, 8]}}):
        given = model()
        assert PassManager(**settings).run(given, inplace=True).model is given
        assert "Identity" not in {node.op_type for node in given.graph.node}
