"""What users reported of the standard's converter, from the descriptions; and what other runtimes take."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest

from benchmarks import conversion_networks as networks
from benchmarks import results
from benchmarks.skeleton import names
from graphopt.errors import UsageError
from graphopt.opsets import convert, runtimes
from graphopt.verify import compare

PAGE = (Path(__file__).parents[2] / "docs" / "convert.md").read_text()

CONV = """
<ir_version: 3, opset_import: ["" : {opset}]>
g (float[1,3,8,8] x, float[4,3,3,3] w, float[4] s) => (float[1,4,1,1] y) {{
  c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w)
  b = BatchNormalization (c, s, s, s, s)
  r = Relu (b)
  y = GlobalAveragePool (r)
}}
"""
"""A block of MobileNetV2, which stopped at "No Adapter For Conv" (onnx issues 3050 and 2673)."""

RESIZE = """
<ir_version: 6, opset_import: ["" : 11]>
g (float[1,2,4,4] x) => (float[1,2,8,8] y)
<float[0] roi = {}, float[4] scales = {1.0, 1.0, 2.0, 2.0}>
{
  y = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, roi, scales)
}
"""
"""Nearest neighbours as torch exports them: "No Adapter From Version $11 for Resize" (onnx issue 3805)."""

POOL = """
<ir_version: 4, opset_import: ["" : 9]>
g (float[1,2,7,7] x) => (float[1,2,3,3] y) { y = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (x) }
"""
"""AlexNet: "No Adapter For Current Version $9 for MaxPool" (onnx issue 3362)."""

IDENTITY = """
<ir_version: 8, opset_import: ["" : 16]>
g (float[2,3] x) => (float[2,3] y) { y = Identity (x) }
"""
"""No adapter from version 16 for Identity (onnx issue 5988)."""

GATHER = """
<ir_version: 6, opset_import: ["" : 11]>
g (float[2,3] x, int64[2] i) => (float[2,2] y) { y = Gather <axis = -1> (x, i) }
"""
"""No adapter from version 11 for Gather (onnx issue 5290)."""

GRID = """
<ir_version: 9, opset_import: ["" : 20]>
g (float[1,2,4,4] x, float[1,3,3,2] grid) => (float[1,2,3,3] y) { y = GridSample <mode = "linear"> (x, grid) }
"""
"""No adapter from version 20 for GridSample (ONNX Runtime's issue 23112)."""

TORCH = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[2,5,6] x) => (float[2,5,1] m, float[2,5,2] a, float[2,5,2] b, float[2,5,2] c, float[2,9,6] p)
<int64[1] last = {-1}, int64[2] pads = {2, 2}, int64[1] middle = {1}>
{
  m = ReduceMean <keepdims = 1> (x, last)
  a, b, c = Split <axis = -1, num_outputs = 3> (x)
  p = Pad (x, pads, , middle)
}
"""
"""Opset 18 as torch's exporter writes it, which does not go down to 17 (onnx issue 6811)."""

REPORTS = {
    "conv up": (CONV.format(opset=7), 12), "conv down": (CONV.format(opset=11), 9), "resize": (RESIZE, 9),
    "max pool": (POOL, 11), "identity": (IDENTITY, 15), "gather": (GATHER, 10), "grid sample": (GRID, 16), "grid sample by default": (GRID.replace(' <mode = "linear">', ""), 16),
    "torch": (TORCH, 17),
}  # fmt: skip


@pytest.mark.parametrize("name", REPORTS)
def test_what_users_could_not_convert(name: str) -> None:
    text, target = REPORTS[name]
    model = onnx.parser.parse_model(text)
    after = convert(model, opset=target)
    assert after.opset_import[0].version == target
    onnx.checker.check_model(after, full_check=True)
    assert compare(model, after).ok


def test_the_page_lists_the_runtimes_that_are_known() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) to (\d+) \| (.+) \|$", PAGE, re.MULTILINE)
    known = [(name, str(each.oldest), str(each.newest), each.of) for name, each in runtimes().items()]
    assert rows == known
    assert all(each.source.startswith("https://") for each in runtimes().values())


def test_the_page_has_the_networks_that_were_converted() -> None:
    stored = results.load("conversion_networks")
    assert stored is not None
    rows = stored["data"]
    assert networks.table(rows) in PAGE
    assert {row["model"] for row in rows} == set(names())
    found = networks.counts(rows)
    assert found["there right"] == found["back right"] == found["conversions"]
    assert found["nothing written out, another graph"] == 0


def test_a_model_goes_into_what_a_runtime_takes_and_stays_where_it_is_taken() -> None:
    model = onnx.parser.parse_model(GRID)
    assert convert(model, runtime="openvino").opset_import[0].version == 19
    assert convert(model, runtime="tensorrt").opset_import[0].version == 20
    assert convert(onnx.parser.parse_model(CONV.format(opset=7)), runtime="tract").opset_import[0].version == 9


def test_runtimes_that_nobody_knows_are_refused() -> None:
    model = onnx.parser.parse_model(GRID)
    with pytest.raises(UsageError, match="tensorrt"):
        convert(model, runtime="toaster")
    with pytest.raises(UsageError, match="both"):
        convert(model, opset=13, runtime="tract")


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of the page as it stands; of torch's export only that it is followed by a conversion."""
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(TORCH), "model.onnx")
    onnx.save(onnx.parser.parse_model(TORCH), "network.onnx")
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scope: dict[str, object] = {"onnx": onnx}
    for block in blocks:
        exec("\n".join(line for line in block.splitlines() if not line.startswith("torch.")), scope)
    assert onnx.load("network.onnx").opset_import[0].version == 17
    assert scope["older"].opset_import[0].version == 13  # type: ignore[attr-defined]
