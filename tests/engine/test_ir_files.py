"""Reading and writing files: external data, weights that stay in the file, bad files, nothing lost."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.errors import ModelError
from graphopt.ir import ExternalData, Model, files
from graphopt.manager import PassManager


def weights(count: int = 3, size: int = 1 << 12) -> onnx.ModelProto:
    """A chain of Add with one weight each."""
    rng = np.random.default_rng(0)
    names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
    nodes = [helper.make_node("Add", [names[i], f"w{i}"], [names[i + 1]]) for i in range(count)]
    tensors = [numpy_helper.from_array(rng.standard_normal(size).astype(np.float32), f"w{i}") for i in range(count)]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [size]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture
def lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small files be read like large ones."""
    monkeypatch.setattr(files, "_LIFT_FROM", 1)


def contents(model: onnx.ModelProto) -> dict[str, tuple[int, tuple[int, ...], bytes]]:
    """The initializers by name. (`onnx.load` leaves traces of where the data was, so protos do not compare.)"""
    return {t.name: (t.data_type, tuple(t.dims), t.raw_data) for t in model.graph.initializer}


def touch(model: Model) -> None:
    """Make the view believe that it changed."""
    model.graph.changed = True


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "empty"), (b"hello", "truncated, or no ONNX model"), (None, "not found")],
)
def test_bad_files_are_refused_by_name(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "bad.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=rf"bad\.onnx.*{message}"):
        Model.load(path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a folder"):
        Model.load(tmp_path)


@pytest.mark.usefixtures("lifted")
def test_a_truncated_large_file_is_refused(tmp_path: Path) -> None:
    data = weights(3, 1 << 14).SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match="truncated"):
        Model.load(path)


@pytest.mark.usefixtures("lifted")
def test_large_weights_stay_in_the_file(tmp_path: Path) -> None:
    source = weights(3, 1 << 14)
    path = tmp_path / "m.onnx"
    onnx.save(source, path)
    model = Model.load(path)
    assert model.lifted
    assert model.proto.ByteSize() < 2000
    assert model.flush() == source
    assert np.array_equal(model.graph.values["w1"].const(), numpy_helper.to_array(source.graph.initializer[1]))


@pytest.mark.usefixtures("lifted")
def test_lifted_weights_are_written_back(tmp_path: Path) -> None:
    source = weights(3, 1 << 14)
    onnx.save(source, tmp_path / "m.onnx")
    model = Model.load(tmp_path / "m.onnx")
    touch(model)
    model.save(tmp_path / "out.onnx")
    written = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert {t.name: t.raw_data for t in written.graph.initializer} == {
        t.name: t.raw_data for t in source.graph.initializer
    }
    assert written.graph.node == source.graph.node


@pytest.mark.usefixtures("lifted")
def test_a_file_can_be_written_over_itself(tmp_path: Path) -> None:
    source = weights(3, 1 << 14)
    path = tmp_path / "m.onnx"
    onnx.save(source, path)
    model = Model.load(path)
    touch(model)
    model.save(path)
    assert onnx.load(path).graph.initializer[2].raw_data == source.graph.initializer[2].raw_data


def test_without_a_change_the_file_is_copied(tmp_path: Path) -> None:
    data = weights().SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data)
    Model.load(tmp_path / "m.onnx").save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == data


@pytest.mark.parametrize("large", [False, True])
def test_what_came_into_the_file_since_is_not_taken_for_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    monkeypatch.setattr(files, "_LIFT_FROM", 1 if large else 1 << 30)
    path, source = tmp_path / "m.onnx", weights(3, 1 << 14)
    onnx.save(source, path)
    model = Model.load(path)
    onnx.save(weights(5), path)
    if large:  # its weights are gone with the file
        with pytest.raises(ModelError, match="changed after the model was loaded"):
            model.save(tmp_path / "out.onnx")
        assert not (tmp_path / "out.onnx").exists()
        return
    model.save(tmp_path / "out.onnx")
    assert onnx.load(tmp_path / "out.onnx") == source
    path.unlink()
    model.save(tmp_path / "again.onnx")
    assert onnx.load(tmp_path / "again.onnx") == source


def outside(tensor: TensorProto, dims: list[int]) -> None:
    """Let a tensor of floats have its data in a file."""
    tensor.data_type, tensor.data_location = TensorProto.FLOAT, TensorProto.EXTERNAL
    tensor.dims.extend(dims)
    tensor.external_data.add(key="location", value="w.bin")


@pytest.mark.parametrize("changed", [False, True])
def test_external_data_is_found_wherever_tensors_are(tmp_path: Path, changed: bool) -> None:
    data = np.arange(2, dtype=np.float32).tobytes()
    (tmp_path / "w.bin").write_bytes(data)
    source = weights(1, 4)
    source.opset_import.add(domain="my", version=1)
    node = source.graph.node.add(op_type="f", domain="my", output=["o"])
    sparse = node.attribute.add(name="s", type=onnx.AttributeProto.SPARSE_TENSORS).sparse_tensors.add(dims=[5])
    sparse.indices.CopyFrom(helper.make_tensor("", TensorProto.INT64, [2], [0, 1]))
    function = source.functions.add(name="f", domain="my", output=["b"])
    function.node.add(op_type="Constant", output=["b"]).attribute.add(name="value", ref_attr_name="t", type=4)
    training = source.training_info.add().algorithm.initializer.add(name="q")
    places = (sparse.values, function.attribute_proto.add(name="t", type=onnx.AttributeProto.TENSOR).t, training)
    for tensor in places:
        outside(tensor, [2])
    onnx.save(source, tmp_path / "m.onnx")
    model = Model.load(tmp_path / "m.onnx")
    if changed:
        touch(model)
    (tmp_path / "other").mkdir()
    model.save(tmp_path / "other" / "m.onnx")
    written = (tmp_path / "other" / "m.onnx").read_bytes()
    assert b"location" not in written
    assert written.count(data) == 3


def test_strings_are_not_found_in_other_files(tmp_path: Path) -> None:
    source = weights(1, 4)
    outside(source.graph.initializer.add(name="s"), [2])
    source.graph.initializer[-1].data_type = TensorProto.STRING
    (tmp_path / "w.bin").write_bytes(b"ab")
    onnx.save(source, tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="'s': strings cannot be external data"):
        Model.load(tmp_path / "m.onnx")


@pytest.mark.usefixtures("lifted")
def test_data_outside_counts_where_there_is_some_inside_too(tmp_path: Path) -> None:
    source = weights(1, 1 << 14)
    save_external(source, tmp_path / "m.onnx")
    both = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    both.graph.initializer[0].raw_data = bytes(1 << 16)
    (tmp_path / "m.onnx").write_bytes(both.SerializeToString())
    read = Model.load(tmp_path / "m.onnx").graph.values["w0"].const()
    np.testing.assert_array_equal(read, numpy_helper.to_array(source.graph.initializer[0]))


def test_the_weights_of_another_model_are_not_replaced(tmp_path: Path) -> None:
    layout, first, second = ExternalData("w.bin", threshold=0), weights(1), weights(2)
    Model.load(first).save(tmp_path / "a.onnx", layout)
    for _ in range(2):  # its own weights are replaced
        Model.load(first).save(tmp_path / "a.onnx", layout)
    with pytest.raises(ModelError, match=r"w\.bin would replace the weights of .*a\.onnx; choose another name"):
        Model.load(second).save(tmp_path / "b.onnx", layout)
    assert not (tmp_path / "b.onnx").exists()
    assert contents(onnx.load(tmp_path / "a.onnx")) == contents(first)
    Model.load(second).save(tmp_path / "b.onnx", ExternalData("bin", threshold=0))  # mentioned, as a part of a name
    Model.load(first).save(tmp_path / "b.onnx", ExternalData("bin", threshold=0))
    assert contents(onnx.load(tmp_path / "b.onnx")) == contents(first)


def test_a_link_in_circles_beside_it_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for number in range(2):
        source = weights(number + 1)
        for name, layout in (("whole.onnx", None), ("parts.onnx", ExternalData(threshold=0))):
            Model.load(source).save(tmp_path / name, layout)
            assert contents(onnx.load(tmp_path / name)) == contents(source)


@pytest.mark.parametrize("layout", [None, ExternalData(threshold=0)])
def test_before_ir_4_a_new_constant_is_a_node_in_every_layout(tmp_path: Path, layout: ExternalData | None) -> None:
    source = onnx.parser.parse_model("""
        <ir_version: 3, opset_import: ["" : 9]>
        g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {5, 6}> {
            a = Constant <value = float[2] {1, 2}> ()
            b = Mul (a, a)
            c = Add (x, w)
            y = Add (c, b)
        }""")
    PassManager(passes="fold_constants").run(source).save(tmp_path / "out.onnx", layout)
    onnx.checker.check_model(str(tmp_path / "out.onnx"), full_check=True)
    written = onnx.load(tmp_path / "out.onnx")
    assert [t.name for t in written.graph.initializer] == ["w"]
    assert [node.op_type for node in written.graph.node] == ["Constant", "Add", "Add"]


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="no such names on this system")
def test_a_model_from_a_pipe_can_be_written(tmp_path: Path) -> None:
    source = weights(1, 4)
    end, start = os.pipe()
    with open(start, "wb") as file:
        file.write(source.SerializeToString())
    with open(end, "rb"):
        model = Model.load(f"/dev/fd/{end}")
        model.save(tmp_path / "out.onnx")
    assert onnx.load(tmp_path / "out.onnx") == source


def save_external(source: onnx.ModelProto, path: Path) -> None:
    copy = onnx.ModelProto()
    copy.CopyFrom(source)
    onnx.save(copy, path, save_as_external_data=True, all_tensors_to_one_file=True, location="w.bin", size_threshold=0)


def data_name(path: Path) -> str:
    """The one file that a model's external data is in."""
    model = onnx.load(path, load_external_data=False)
    (name,) = {e.value for t in model.graph.initializer for e in t.external_data if e.key == "location"}
    return name


@pytest.mark.parametrize("changed", [False, True])
def test_external_data_is_streamed(tmp_path: Path, changed: bool) -> None:
    source = weights()
    save_external(source, tmp_path / "m.onnx")
    model = Model.load(tmp_path / "m.onnx")
    if changed:
        touch(model)
    (tmp_path / "out").mkdir()
    model.save(tmp_path / "out" / "n.onnx")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["n.onnx", data_name(tmp_path / "out" / "n.onnx")]
    assert contents(onnx.load(tmp_path / "out" / "n.onnx")) == contents(source)
    assert contents(onnx.load(tmp_path / "m.onnx")) == contents(source)


@pytest.mark.parametrize("location", [None, "w.bin"])
def test_external_data_of_nothing_is_no_file(tmp_path: Path, location: str | None) -> None:
    source = weights()
    external = ExternalData(location=location, threshold=1 << 30)
    Model.load(source).save(tmp_path / "m.onnx", external)
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
    assert contents(onnx.load(tmp_path / "m.onnx")) == contents(source)


def test_external_data_can_be_laid_out_on_request(tmp_path: Path) -> None:
    source = weights()
    model = Model.load(source)
    model.save(tmp_path / "n.onnx", ExternalData("sub.bin", threshold=100, alignment=4096))
    entries = [{e.key: e.value for e in t.external_data} for t in onnx.load(tmp_path / "n.onnx", load_external_data=False).graph.initializer]  # fmt: skip
    assert [int(e["offset"]) % 4096 for e in entries] == [0, 0, 0]
    assert contents(onnx.load(tmp_path / "n.onnx")) == contents(source)


@pytest.mark.parametrize("location", ["../out.bin", "/etc/passwd", ""])
def test_external_data_outside_of_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    source = weights(1)
    save_external(source, tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    model.graph.initializer[0].external_data[0].value = location
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="outside the model's folder"):
        Model.load(tmp_path / "m.onnx")


def test_a_missing_data_file_is_named(tmp_path: Path) -> None:
    save_external(weights(1), tmp_path / "m.onnx")
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match=r"external data file 'w\.bin' not found"):
        Model.load(tmp_path / "m.onnx")


def test_a_short_data_file_is_named(tmp_path: Path) -> None:
    save_external(weights(1), tmp_path / "m.onnx")
    (tmp_path / "w.bin").write_bytes(b"abc")
    with pytest.raises(ModelError, match="expected in 'w.bin', it has 3"):
        Model.load(tmp_path / "m.onnx")


def test_external_data_of_a_proto_needs_its_path(tmp_path: Path) -> None:
    save_external(weights(1), tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="load the model from its path"):
        Model.load(onnx.load(tmp_path / "m.onnx", load_external_data=False))


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"precious")
    model = Model.load(weights())

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(ModelError, match="No space left"):
        model.save(path)
    assert path.read_bytes() == b"precious"
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_writing_into_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="folder .* not found"):
        Model.load(weights()).save(tmp_path / "no" / "m.onnx")


def test_the_given_proto_is_changed_only_inplace() -> None:
    source = weights()
    before = source.SerializeToString()
    model = Model.load(source)
    touch(model)
    model.flush()
    assert source.SerializeToString() == before
    inplace = Model.load(source, inplace=True)
    touch(inplace)
    assert inplace.flush() is source
    assert source.SerializeToString() == before


@pytest.mark.skipif(os.name != "posix", reason="rights are of POSIX")
@pytest.mark.parametrize("mode", [0o644, 0o640])
def test_who_may_read_a_model_may_read_its_data(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "m.onnx"
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add (x, w) }'
    )
    path.write_bytes(proto.SerializeToString())
    path.chmod(mode)
    Model.load(path).save(path, ExternalData(threshold=0))
    assert [stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()] == [mode, mode]


def test_weights_that_passes_replace_stay_beside_the_model(tmp_path: Path) -> None:
    tensors = [numpy_helper.from_array(np.full(1 << 13, k + 1, np.float32), f"w{k}") for k in range(2)]
    nodes = [helper.make_node("Add", ["x", "w0"], ["a"]), helper.make_node("Add", ["a", "w1"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1 << 13]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    save_external(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx"
    )
    PassManager().run(tmp_path / "m.onnx").save(tmp_path / "out.onnx")
    (sums,) = onnx.load(tmp_path / "out.onnx", load_external_data=False).graph.initializer
    assert sums.data_location == TensorProto.EXTERNAL
    np.testing.assert_array_equal(numpy_helper.to_array(onnx.load(tmp_path / "out.onnx").graph.initializer[0]), 3)
    assert (tmp_path / "out.onnx").stat().st_size < 1 << 12
