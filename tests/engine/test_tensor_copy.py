"""`Tensor.copy`: an array of the caller's own, whatever the tensor's data is in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from graphopt.errors import ModelError
from graphopt.ir.slices import FileSlice
from graphopt.ir.tensor import Tensor

DATA = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("kind", ["array", "proto", "file"])
def test_a_copy_may_be_changed(kind: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"head" + DATA.tobytes())
    tensor = {
        "array": Tensor.from_array(DATA.copy()),
        "proto": Tensor(TensorProto.FLOAT, DATA.shape, proto=numpy_helper.from_array(DATA)),
        "file": Tensor(TensorProto.FLOAT, DATA.shape, source=FileSlice(tmp_path / "data", 4, DATA.nbytes)),
    }[kind]
    copy = tensor.copy()
    assert np.array_equal(copy, DATA)
    copy *= 2
    assert np.array_equal(tensor.array(), DATA)


def test_a_copy_of_nothing_and_of_one_number(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(DATA.tobytes())
    assert Tensor(TensorProto.FLOAT, (0, 3), source=FileSlice(tmp_path / "data", 0, 0)).copy().shape == (0, 3)
    assert Tensor(TensorProto.FLOAT, (), source=FileSlice(tmp_path / "data", 4, 4)).copy() == 1


def test_a_short_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(DATA.tobytes())
    with pytest.raises(ModelError, match="the file ends after 92 of them"):
        Tensor(TensorProto.FLOAT, (24,), source=FileSlice(tmp_path / "data", 4, 96)).copy()


@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<u2"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (33, 65), (1000, 3)])
def test_a_view_is_looked_at_as_it_lies(dtype: str, shape: tuple[int, int]) -> None:
    data = np.arange(1, shape[0] * shape[1] + 1).astype(dtype).reshape(shape)
    for view in (data.T, data[::-1], data[:, ::2], np.broadcast_to(data[:1], shape)):
        tensor, written = Tensor.from_array(view), Tensor.from_array(np.ascontiguousarray(view))
        assert tensor.sample() == written.sample()
        assert tensor.least() == written.least()
        assert tensor.array().flags.c_contiguous == view.flags.c_contiguous
        assert tensor.key() == written.key()
