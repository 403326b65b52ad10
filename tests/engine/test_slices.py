"""`FileSlice.view`: large runs of bytes are mapped, as long as descriptors and the file system allow it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from graphopt.errors import ModelError
from graphopt.ir import Tensor, slices
from graphopt.ir.slices import FileSlice, is_mapped

LENGTH = 1001


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(slices, "_READ_LIMIT", LENGTH - 1)
    path = tmp_path / "data"
    path.write_bytes(np.arange(LENGTH + 9, dtype=np.uint32).astype(np.uint8).tobytes())
    return path


def test_many_bytes_are_mapped_wherever_they_begin(data: Path) -> None:
    view = FileSlice(data, 9, LENGTH).view()
    assert is_mapped(view[3:].view())
    assert not view.flags.writeable
    assert view.tobytes() == data.read_bytes()[9:]
    assert not is_mapped(FileSlice(data, 9, 100).view())
    assert not is_mapped(view.copy())


def test_many_views_hold_few_descriptors(data: Path) -> None:
    held = [FileSlice(data, 5, LENGTH).view() for _ in range(slices._MOST_MAPS + 3)]
    assert sum(map(is_mapped, held)) == slices._MOST_MAPS
    assert all(np.array_equal(view, held[0]) for view in held)
    held.clear()
    assert is_mapped(FileSlice(data, 5, LENGTH).view())


def test_what_cannot_be_mapped_is_read(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no such device")

    monkeypatch.setattr(slices, "mmap", refuse)
    assert FileSlice(data, 9, LENGTH).view().tobytes() == data.read_bytes()[9:]


def test_a_short_file_is_told(data: Path) -> None:
    with pytest.raises(ModelError, match="cannot read"):
        FileSlice(data, 10, LENGTH).view()
    data.unlink()
    with pytest.raises(ModelError, match="No such file"):
        FileSlice(data, 0, LENGTH).view()


def test_a_file_that_is_gone_is_told_in_words(data: Path) -> None:
    part = FileSlice(data, 0, 8)
    data.unlink()
    reading = [part.view, lambda: part.read_into(np.empty(8, np.uint8)), lambda: list(part.chunks(4, 1))]
    for read in reading:
        with pytest.raises(ModelError, match=r"cannot read 8 bytes at 0 of .*: No such file or directory$"):
            read()
    tensor = Tensor(onnx.TensorProto.FLOAT, (1 << 20,), source=FileSlice(data, 0, 1 << 22))
    with pytest.raises(ModelError, match="cannot read tensor data file .*: No such file or directory$"):
        tensor.sample()
