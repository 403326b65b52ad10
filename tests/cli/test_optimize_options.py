"""Sizes, functions and the layout of weights, from the command line of `graphopt optimize`."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import parser

from tests.cli.conftest import Run, small_model
from tests.cli.test_bad_input import assert_one_line


def shape(info: onnx.ValueInfoProto) -> list[int | str]:
    return [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim]


@pytest.mark.parametrize("option", [("--shape", "x=5,4"), ("--dim", "batch=5")])
def test_given_sizes_reach_the_interface(run: Run, model_file: Path, tmp_path: Path, option: tuple[str, str]) -> None:
    out = tmp_path / "out.onnx"
    done = run("optimize", model_file, out, *option, "--verify", "-q")
    assert done.exit_code == 0, done.output
    graph = onnx.load(out).graph
    assert (shape(graph.input[0]), shape(graph.output[0])) == ([5, 4], [5, 300])


def test_given_sizes_fold_what_depends_on_them(run: Run, tmp_path: Path) -> None:
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[n,m] x) => (float[a,b] y)'
        "{ s = Shape (x)  k = Constant <value_ints = [1,1]> ()  t = Mul (s, k)  e = Expand (x, t)  y = Relu (e) }"
    )
    onnx.save(model, tmp_path / "in.onnx")
    done = run("optimize", tmp_path / "in.onnx", tmp_path / "out.onnx", "--dim", "n=2", "--dim", "m=3", "-q")
    assert done.exit_code == 0, done.output
    assert [n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node] == ["Relu"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--shape", "x=2"), ("'x'", "rank 2")),
        (("--shape", "x"), ("input=1,3,224,224",)),
        (("--shape", "x=a,4"), ("input=1,3,224,224",)),
        (("--shape", "z=1,4"), ("no input 'z'", "x")),
        (("--shape", "x=1,5"), ("dimension 4 cannot become 5",)),
        (("--shape", "x=-1,4"), ("found -1",)),
        (("--dim", "n=1"), ("no symbolic dimension 'n'", "batch")),
        (("--dim", "batch=0"), ("batch=1",)),
        (("--dim", "batch"), ("batch=1",)),
        (("--shape", "x=2,4", "--dim", "batch=3"), ("'batch'", "both")),
        (("--external-threshold", "1"), ("without --external-data",)),
        (("--external-data", "auto", "--external-alignment", "0"), ("alignment",)),
        (("--external-data", "auto", "--external-threshold=-1"), ("threshold",)),
    ],
)
def test_wrong_sizes_are_refused(
    run: Run, model_file: Path, existing: Path, options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert_one_line(run("optimize", model_file, existing, *options), 2, *words)
    assert existing.read_bytes() == b"precious"


def test_external_threshold_and_alignment(run: Run, tmp_path: Path) -> None:
    model = small_model()
    bias = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(model.graph.initializer[0])[0] + 1, "bias")
    model.graph.initializer.append(bias)
    model.graph.node[2].CopyFrom(onnx.helper.make_node("Add", ["same", "bias"], ["y"]))
    onnx.save(model, tmp_path / "in.onnx")
    layout = ("--external-data", "w", "--external-threshold", "1201", "--external-alignment", "4096")
    assert run("optimize", tmp_path / "in.onnx", tmp_path / "out.onnx", *layout, "-q").exit_code == 0
    tensors = {t.name: t for t in onnx.load(tmp_path / "out.onnx", load_external_data=False).graph.initializer}
    outside = {name for name, t in tensors.items() if t.data_location == onnx.TensorProto.EXTERNAL}
    assert outside == {"w"}
    layout = ("--external-data", "v", "--external-threshold", "1", "--external-alignment", "4096")
    assert run("optimize", tmp_path / "in.onnx", tmp_path / "all.onnx", *layout, "-q").exit_code == 0
    entries = [t.external_data for t in onnx.load(tmp_path / "all.onnx", load_external_data=False).graph.initializer]
    offsets = sorted(int(e.value) for entry in entries for e in entry if e.key == "offset")
    assert offsets == [0, 8192]


@pytest.mark.parametrize("command", [("optimize",), ("convert", "--opset", "13")])
def test_several_models_have_no_file_of_weights_in_common(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    models = [tmp_path / name for name in ("a.onnx", "b.onnx")]
    for path in models:
        onnx.save(small_model(), path)
    out = tmp_path / "out"
    out.mkdir()
    options = ("--external-threshold", "0", "-q", "--external-data")
    assert_one_line(run(*command, *models, out, *options, "w"), 2, "several models")
    assert not list(out.iterdir())
    assert run(*command, *models, out, *options, "auto").exit_code == 0
    assert len(list(out.iterdir())) == 4


def test_inline_functions(run: Run, tmp_path: Path) -> None:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18, "local" : 1]> g (float[2] x) => (float[2] y) { y = local.f (x) }'
        '<domain: "local", opset_import: ["" : 18]> f (a) => (r) { b = Neg (a)  r = Exp (b) }'
    )
    onnx.save(model, tmp_path / "in.onnx")
    assert run("optimize", tmp_path / "in.onnx", tmp_path / "out.onnx", "-q").exit_code == 0
    assert len(onnx.load(tmp_path / "out.onnx").functions) == 1
    done = run("optimize", tmp_path / "in.onnx", tmp_path / "out.onnx", "--inline-functions", "--verify", "-q")
    assert done.exit_code == 0, done.output
    inlined = onnx.load(tmp_path / "out.onnx")
    assert [n.op_type for n in inlined.graph.node] == ["Neg", "Exp"]
    assert not inlined.functions


def test_initializers_that_are_inputs_are_told_of_and_taken_for_constants(run: Run, tmp_path: Path) -> None:
    model = parser.parse_model(
        '<ir_version: 3, opset_import: ["" : 9]> g (float[n,2] x, float[2,2] w, float[2] s) => (float[n,2] y)'
        "<float[2,2] w = {1, 2, 3, 4}, float[2] s = {2, 3}> { p = MatMul (x, w)  y = Mul (p, s) }"
    )
    given, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model, given)
    done = run("optimize", given, out)
    assert "2 initializers that callers may override" in done.stdout
    assert "--constant-initializers" in done.stdout
    done = run("optimize", given, out, "--constant-initializers", "--verify")
    assert done.exit_code == 0, done.output
    assert "override" not in done.stdout
    assert [n.op_type for n in onnx.load(out).graph.node] == ["MatMul"]
