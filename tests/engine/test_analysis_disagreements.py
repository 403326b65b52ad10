"""Each disagreement about sizes is declared, described, still there, and believed by nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, parser, shape_inference

from graphopt.analysis import ShapeAnalysis, infer_types
from graphopt.analysis.disagreements import TABLE
from graphopt.ir import Model
from graphopt.manager import PassManager
from tests.property.test_runtime_sizes import claims, fits, run

PAGE = Path(__file__).parents[2] / "docs" / "runtime-differences.md"
SECTIONS = {
    section.partition("\n")[0]: match[1]
    for section in PAGE.read_text().split("\n## ")[1:]
    if (match := re.search(r"```\n(.*?)```", section, re.DOTALL))
}


def reproduction(title: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The model of a section and a feed: ones, or what the first line says, and 1 for sizes with a name."""
    text = SECTIONS[title]
    stated = {}
    if text.startswith("#"):
        line, _, text = text.partition("\n")
        stated = {name: int(number) for name, number in re.findall(r"(\w+) = (\d+)", line)}
    model = parser.parse_model(text)
    feed = {}
    for info in model.graph.input:
        tensor = info.type.tensor_type
        dims = [dim.dim_value if dim.HasField("dim_value") else 1 for dim in tensor.shape.dim]
        kind = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feed[info.name] = np.full(dims, stated.get(info.name, 1), kind)
    return model, feed


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")[:2]))


def test_the_page_has_a_section_with_a_model_for_each_entry() -> None:
    assert list(SECTIONS) == [entry.title for entry in TABLE]
    for entry in TABLE:
        section = PAGE.read_text().partition(f"\n## {entry.title}\n")[2].partition("\n## ")[0]
        assert re.findall(r"fixed in ONNX Runtime ([\d.]+\d)", section) == ([entry.until] if entry.until else [])


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.title)
def test_they_disagree_up_to_the_stated_version_and_graphopt_believes_neither(entry) -> None:
    model, feed = reproduction(entry.title)
    assert any(node.op_type in entry.ops for node in model.graph.node)
    results = run(model, feed)
    assert results is not None
    stated = _inferred(model)
    agree = all(fits(stated[i.name], a.shape) for i, a in zip(model.graph.output, results, strict=True))
    assert agree == (entry.until != "" and version(ort.__version__) >= version(entry.until)), stated
    for way, shapes in claims(model).items():
        for info, array in zip(model.graph.output, results, strict=True):
            assert fits(shapes.get(info.name), array.shape), f"{way}: {shapes[info.name]} is not {array.shape}"


def _inferred(model: onnx.ModelProto) -> dict[str, tuple[Any, ...] | None]:
    result = shape_inference.infer_shapes(model, data_prop=True)
    found: dict[str, tuple[Any, ...] | None] = {}
    for info in result.graph.output:
        dims = info.type.tensor_type.shape.dim
        known = info.type.tensor_type.HasField("shape")
        # A name that is the size of an input is 1 in these runs.
        found[info.name] = tuple(d.dim_value if d.HasField("dim_value") else 1 for d in dims) if known else None
    return found


def shapes_of(text: str) -> dict[str, Any]:
    view = Model.load(parser.parse_model(text))
    infer_types(view)
    return {name: value.shape for graph in view.graphs() for name, value in graph.values.items()}


POOLED = """<ir_version: 8, opset_import: ["": 11]> g (float[1,4,{size},9] x) => (y, z, r) <int64[2] k = {{1, -1}}> {{
  y = MaxPool <kernel_shape = [1, 3], strides = [3, 2], ceil_mode = 1> (x) z = Relu (y) s = Shape (z) r = Reshape (z, k) }}"""


def test_what_follows_from_a_size_in_doubt_is_unknown_too_and_nothing_else() -> None:
    found = shapes_of(POOLED.format(size=6))
    assert found["z"][:2] == (1, 4)
    assert not isinstance(found["z"][2], int)
    assert found["z"][3] == 4
    assert found["r"][0] == 1
    assert not isinstance(found["r"][1], int)
    assert shapes_of(POOLED.format(size=7))["r"] == (1, 4 * 3 * 4)


def test_doubts_inside_of_bodies_reach_outside() -> None:
    text = """<ir_version: 8, opset_import: ["": 16]> g (bool c, float[1,4,6,9] x) => (y, z) {
      y = If (c) <then_branch = a () => (o) { o = MaxPool <kernel_shape = [1, 3], strides = [3, 2], ceil_mode = 1> (x) },
                  else_branch = b () => (e) { e = MaxPool <kernel_shape = [1, 3], strides = [3, 2], ceil_mode = 1> (x) }>
      z = Neg (y) }"""
    found = shapes_of(text)
    assert found["z"][:2] == (1, 4)
    assert not isinstance(found["z"][2], int)


def test_doubts_inside_of_functions_reach_outside() -> None:
    text = """<ir_version: 8, opset_import: ["": 16, "f": 1]> g (float[1,4,6] x) => (y, z) {
      y = f.Half (x) z = f.Third <m = 1> (x) }
      <domain: "f", opset_import: ["": 16]> Half (x) => (y) { y = MaxPool <kernel_shape = [1], strides = [3], ceil_mode = 1> (x) }
      <domain: "f", opset_import: ["": 16]> Third <m> (x) => (y) { y = MaxPool <kernel_shape = [1], strides = [3], ceil_mode: int = @m> (x) }"""
    found = shapes_of(text)
    assert not any(isinstance(dim, int) for name in "yz" for dim in found[name] or ())


@pytest.mark.parametrize("opset", [1, 11, 12])
def test_an_empty_list_of_axes_is_in_doubt_as_an_attribute_too(opset: int) -> None:
    proto = parser.parse_model(
        f'<ir_version: 6, opset_import: ["": {opset}]> g (float[1,2,1] x) => (y) '
        "{ p = Squeeze <axes: ints = []> (x) y = Shape (p) }"
    )
    (shape,) = run(proto, {"x": np.ones((1, 2, 1), np.float32)})
    assert shape.tolist() == [2]
    view = Model.load(proto)
    infer_types(view)
    assert view.graph.values["p"].shape is None
    assert ShapeAnalysis(view).shape(view.graph.values["p"]) is None
    (shape,) = run(PassManager("basic").run(proto).model, {"x": np.ones((1, 2, 1), np.float32)})
    assert shape.tolist() == [2]


@pytest.mark.parametrize("opset", [7, 10, 11, 12])
def test_axes_from_the_back_count_where_the_standard_had_none(opset: int) -> None:
    proto = parser.parse_model(
        f'<ir_version: 6, opset_import: ["": {opset}]> g (float[2,3] x) => (y) '
        "{ a = Unsqueeze <axes = [-1]> (x) y = Unsqueeze <axes = [-1]> (a) }"
    )
    (result,) = run(PassManager("basic").run(proto).model, {"x": np.ones((2, 3), np.float32)})
    assert result.shape == (2, 3, 1, 1)


LOOPED = """<ir_version: 8, opset_import: ["": 13]> g (float[{n},3] x, int64 k) => (y, z) <bool c = {{1}}, int64 two = {{2}}> {{
  y = Loop ({trips}, c) <body = b (int64 i, bool d) => (e, t) {{ e = Identity (d) t = Relu (x) }}> z = Neg (y) }}"""


def test_a_loop_that_certainly_runs_keeps_the_sizes_of_what_it_stacks() -> None:
    assert shapes_of(LOOPED.format(n="N", trips="two"))["z"][1:] == ("N", 3)
    assert shapes_of(LOOPED.format(n="2", trips="two"))["z"][1:] == (2, 3)
    assert not any(isinstance(dim, int) for dim in shapes_of(LOOPED.format(n="2", trips="k"))["z"])


def test_a_constant_with_two_values_has_none() -> None:
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]> g (float[2] x) => (y) { c = Constant <value_floats = [1.0, 2.0]> () y = Add (x, c) }'
    )
    proto.graph.node[0].attribute.append(helper.make_attribute("value_float", 1.0))
    view = Model.load(proto)
    infer_types(view)
    value = view.graph.values["c"]
    assert not value.is_const
    assert value.shape is None
    assert ShapeAnalysis(view).data(value) is None
    assert value.dtype in (None, TensorProto.FLOAT)
