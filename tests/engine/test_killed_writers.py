"""A model and its data fit whenever a run is killed, and whoever else writes; `tests.engine.killing` does it at length."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from graphopt.errors import ModelError
from graphopt.ir import ExternalData, Model, saving
from tests.engine.killing import MODES, kill, number_of, numbered, race, write

OWN = re.compile(r"m\.onnx\.[0-9a-f]{16}\.data")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("writers", [1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_a_killed_run_leaves_a_model_that_fits(tmp_path: Path, mode: str, writers: int) -> None:
    assert kill(tmp_path, mode, 5, writers)["fits"] == 5


@pytest.mark.parametrize("mode", MODES)
def test_two_writers_leave_a_model_that_fits(tmp_path: Path, mode: str) -> None:
    race(tmp_path, mode, 8)


def test_data_is_named_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    found = set()
    for number in (1, 2, 1):
        write(path, "content", number)
        assert number_of(path) == number
        model, data = names(tmp_path)
        assert model == "m.onnx"
        assert OWN.fullmatch(data)
        found.add((data, path.read_bytes()))
    assert len(found) == 2, "equal models are equal bytes"
    write(path, "inline", 3)
    assert names(tmp_path) == ["m.onnx"], "data that was written for a model goes with it"


def test_data_that_is_not_ours_or_not_ours_alone_stays(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write(path, "content", 1)
    (tmp_path / "copy.onnx").write_bytes(path.read_bytes())
    theirs = ["m.onnx.data", "m.onnx_data", "m.onnx.0123456789abcdeg.data", "o.onnx.0123456789abcdef.data"]
    for name in theirs:
        (tmp_path / name).write_bytes(b"precious")
    write(path, "content", 2)
    assert (number_of(path), number_of(tmp_path / "copy.onnx")) == (2, 1)
    assert all((tmp_path / name).read_bytes() == b"precious" for name in theirs)
    (tmp_path / "copy.onnx").unlink()
    write(path, "content", 3)
    assert len(names(tmp_path)) == 2 + len(theirs)


def test_data_is_kept_where_it_takes_long_to_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "_SEARCHED", 100)
    write(tmp_path / "m.onnx", "content", 1)
    (tmp_path / "large").write_bytes(bytes(200))
    write(tmp_path / "m.onnx", "content", 2)
    assert len(names(tmp_path)) == 4


def test_a_name_that_was_asked_for_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    for number in (1, 2, 3):
        write(path, "named", number)
        assert names(tmp_path) == ["m.onnx", "w.bin"]
        assert number_of(path) == number


@pytest.mark.parametrize("step", range(1, 5))
def test_every_step_towards_a_name_that_is_in_use_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    write(tmp_path / "m.onnx", "named", 1)
    publish, done = saving.Draft.publish, []

    def stop(self: saving.Draft, *args: object, **settings: object) -> None:
        if len(done) == step:
            raise KeyboardInterrupt
        done.append(self)
        publish(self, *args, **settings)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(saving.Draft, "publish", stop)
        if step < 4:
            with pytest.raises(KeyboardInterrupt):
                write(tmp_path / "m.onnx", "named", 2)
        else:
            write(tmp_path / "m.onnx", "named", 2)
    assert number_of(tmp_path / "m.onnx") == (1 if step == 1 else 2)
    write(tmp_path / "m.onnx", "named", 3)
    assert names(tmp_path) == ["m.onnx", "w.bin"]


@pytest.mark.parametrize("layout", [None, ExternalData(threshold=0), ExternalData("w.bin", threshold=0)])
def test_in_place_the_model_in_memory_follows(tmp_path: Path, layout: ExternalData | None) -> None:
    path = tmp_path / "m.onnx"
    write(path, "content", 5)
    model = Model.load(path)
    model.graph.changed = True
    model.save(path, layout)
    assert number_of(path) == 5
    model.save(tmp_path / "again.onnx")
    assert number_of(tmp_path / "again.onnx") == 5


def test_a_model_whose_data_was_replaced_meanwhile_is_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write(path, "named", 1)
    model = Model.load(path)
    write(path, "named", 2)
    model.graph.changed = True
    with pytest.raises(ModelError, match="changed after the model was loaded"):
        model.save(tmp_path / "out.onnx")
    with pytest.raises(ModelError, match="changed after the model was loaded"):
        model.graph.values["w0"].const()
    assert not (tmp_path / "out.onnx").exists()


def test_a_link_to_a_model(tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", "content", 1)
    (tmp_path / "link.onnx").symlink_to("m.onnx")
    write(tmp_path / "link.onnx", "content", 2)
    assert (tmp_path / "link.onnx").is_symlink()
    assert (number_of(tmp_path / "m.onnx"), number_of(tmp_path / "link.onnx")) == (2, 2)
    assert len(names(tmp_path)) == 3
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "far.onnx").symlink_to(Path("..") / "m.onnx")
    with pytest.raises(ModelError, match="weights cannot be beside both"):
        write(tmp_path / "sub" / "far.onnx", "content", 3)
    write(tmp_path / "sub" / "far.onnx", "inline", 3)
    assert number_of(tmp_path / "m.onnx") == 3
    assert names(tmp_path / "sub") == ["far.onnx"]


def test_a_device_takes_a_whole_model_and_no_data(tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", "content", 1)
    (tmp_path / "null.onnx").symlink_to("/dev/null")
    Model.load(tmp_path / "m.onnx").save(tmp_path / "null.onnx")
    with pytest.raises(ModelError, match="beside something that is not a file"):
        write(tmp_path / "null.onnx", "named", 1)
    assert len(names(tmp_path)) == 3
    Model.load(tmp_path / "m.onnx").save("/dev/null")


def test_a_name_as_long_as_it_can_be(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 120 + ".onnx")
    for number in (1, 2):
        write(path, "content", number)
        assert number_of(path) == number
    assert len(names(tmp_path)) == 2


def test_many_weights_keep_their_places(tmp_path: Path) -> None:
    model = numbered(0)
    for index, tensor in enumerate(model.graph.initializer):
        tensor.CopyFrom(numpy_helper.from_array(np.full(5000 + index, index, np.float32), tensor.name))
    Model.load(model).save(tmp_path / "m.onnx", ExternalData("w.bin", threshold=0, alignment=4096))
    for _ in range(2):
        Model.load(model).save(tmp_path / "m.onnx", ExternalData("w.bin", threshold=0, alignment=4096))
    found = onnx.load(tmp_path / "m.onnx").graph.initializer
    assert [t.raw_data for t in found] == [t.raw_data for t in model.graph.initializer]
