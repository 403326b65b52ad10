"""Every kind of bad input gives one clear line, the right exit code, and damages nothing."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.cli.conftest import Run, command, small_model

PRECIOUS = b"precious"


def assert_one_line(result, code: int, *words: str) -> None:
    assert result.exit_code == code, result.output
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("graphopt: error: ")
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ("empty",)),
        (b"not a model at all", ("no ONNX model",)),
        (small_model().SerializeToString()[:-400], ("truncated",)),
        (onnx.TensorProto(name="t", dims=[1], data_type=1).SerializeToString(), ("no ONNX model",)),
    ],
    ids=["empty", "text", "truncated", "tensor"],
)
def test_bad_file(run: Run, tmp_path: Path, existing: Path, content: bytes, words: tuple[str, ...]) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(content)
    assert_one_line(run("optimize", bad, existing), 3, "bad.onnx", *words)
    assert existing.read_bytes() == PRECIOUS
    assert_one_line(run("audit", bad), 3, "bad.onnx")
    assert_one_line(run("diff", bad, bad), 3, "bad.onnx")
    assert_one_line(run("verify", bad, bad), 3)


def test_missing_file(run: Run, tmp_path: Path, existing: Path) -> None:
    missing = tmp_path / "missing.onnx"
    assert_one_line(run("optimize", missing, existing), 3, "missing.onnx", "not found")
    assert existing.read_bytes() == PRECIOUS
    assert_one_line(run("audit", missing), 3, "missing.onnx")
    assert_one_line(run("verify", missing, missing), 3, "missing.onnx")


def test_folder_in_place_of_a_file(run: Run, tmp_path: Path, existing: Path) -> None:
    assert_one_line(run("optimize", tmp_path, existing), 3, "folder")


def test_missing_external_file(run: Run, tmp_path: Path, existing: Path) -> None:
    path = tmp_path / "outside.onnx"
    onnx.save(small_model(external=True), path)
    (tmp_path / "small.data").unlink()
    assert_one_line(run("optimize", path, existing), 3, "small.data")
    assert_one_line(run("verify", path, path), 3, "small.data")
    assert existing.read_bytes() == PRECIOUS
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_truncated_external_file(run: Run, tmp_path: Path, existing: Path) -> None:
    path = tmp_path / "outside.onnx"
    onnx.save(small_model(external=True), path)
    (tmp_path / "small.data").write_bytes(b"short")
    assert_one_line(run("optimize", path, existing), 3, "small.data")
    assert_one_line(run("verify", path, path), 3, "small.data")
    assert existing.read_bytes() == PRECIOUS


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--passes", "eliminate_identiti"), ("unknown pass", "eliminate_identity")),
        (("--skip", "no_such_pass"), ("unknown pass", "no_such_pass")),
        (("--passes", "repeat({a"), ("pipeline",)),
        (("--passes", " "), ("no passes",)),
        (("--level", "turbo"), ("unknown level", "basic")),
        (("--numerics", "sloppy"), ("unknown numerics", "rounding")),
        (("--target", "z80"), ("unknown target", "host")),
    ],
)
def test_wrong_settings(run: Run, model_file: Path, existing: Path, arguments: tuple[str, ...], words) -> None:
    assert_one_line(run("optimize", model_file, existing, *arguments), 2, *words)
    assert existing.read_bytes() == PRECIOUS


def test_model_of_another_target(run: Run, tmp_path: Path, existing: Path) -> None:
    model = small_model()
    model.metadata_props.add(key="graphopt.target", value="imaginary/nchwc32")
    path = tmp_path / "other.onnx"
    onnx.save(model, path)
    assert_one_line(run("optimize", path, existing), 3, "imaginary/nchwc32")
    assert existing.read_bytes() == PRECIOUS


@pytest.mark.parametrize("target", ["no/such/folder/out.onnx", "/proc/out.onnx"])
def test_place_that_cannot_be_written(run: Run, model_file: Path, target: str) -> None:
    assert_one_line(run("optimize", model_file, target), 3, "cannot write", target)


@pytest.mark.parametrize("name", ["out.textproto", "out.PBTXT", "out.json", "out.onnxtxt"])
@pytest.mark.parametrize("command", [("optimize",), ("convert", "--opset", "18")])
def test_output_whose_name_promises_text(
    run: Run, model_file: Path, tmp_path: Path, name: str, command: tuple[str, ...]
) -> None:
    assert_one_line(run(*command, model_file, tmp_path / name), 3, "cannot write", "in binary")
    assert not (tmp_path / name).exists()


def test_output_that_is_a_folder(run: Run, model_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    assert_one_line(run("optimize", model_file, folder), 3, "cannot write")
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--shape", "x"), ("shape",)),
        (("--shape", "x=a,b"), ("shape",)),
        (("--shape", "z=1,4"), ("no input 'z'", "x")),
        (("--shape", "x=1,5"), ("axis 1",)),
        (("--shape", "x=1,4,1"), ("shape",)),
        (("--dim", "batch"), ("dimension",)),
        (("--dim", "batch=0"), ("dimension",)),
        (("--dim=batch=1", "--dim=batch=2"), ("'batch' was given another size before, 1",)),
        (("--shape=x=1,4", "--shape=x=2,4"), ("input 'x' was given another shape before",)),
        (("--threads", "one"), ("threads",)),
        (("--threads", "0"), ("threads",)),
        (("--rounds", "0"), ("rounds",)),
        (("--against", "nobody"), ("unknown peer 'nobody'",)),
        (("--level", "turbo"), ("unknown level",)),
        (("--metric", "os:getcwd"), ("needs data",)),
    ],
)
def test_wrong_audit_settings(run: Run, model_file: Path, arguments: tuple[str, ...], words) -> None:
    assert_one_line(run("audit", model_file, *arguments), 2, *words)


def test_audit_of_a_model_that_does_not_run(run: Run, tmp_path: Path) -> None:
    model = small_model()
    model.graph.node[0].op_type = "NoSuchOperator"
    path = tmp_path / "strange.onnx"
    onnx.save(model, path)
    assert_one_line(run("audit", path, "--against", "none"), 3, "NoSuchOperator")


def test_unknown_pass_family_and_level(run: Run) -> None:
    assert_one_line(run("passes", "eliminate_identiti"), 2, "did you mean")
    assert_one_line(run("passes", "--family", "magic"), 2, "unknown family", "elimination")
    assert_one_line(run("passes", "--level", "magic"), 2, "unknown level")


def test_unknown_demo(run: Run) -> None:
    assert_one_line(run("demo", "alexnet"), 2, "mobilenet_v2")


def test_two_things_on_standard_output(run: Run, model_file: Path) -> None:
    assert_one_line(run("optimize", model_file, "-", "--json"), 2, "standard output")
    assert_one_line(run("optimize", model_file, "-", "--external-data", "auto"), 2, "--external-data")


def test_unknown_option_and_command(run: Run, model_file: Path) -> None:
    assert run("optimize", model_file, "out", "--turbo").exit_code == 2
    assert run("optimise").exit_code == 2


def test_nothing_but_the_line_in_a_real_process(tmp_path: Path) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"\x08")
    done = command("optimize", bad, tmp_path / "out.onnx")
    assert done.returncode == 3
    assert done.stdout == b""
    assert done.stderr.decode().count("\n") == 1
    assert "Traceback" not in done.stderr.decode()
    assert not (tmp_path / "out.onnx").exists()


def test_a_device_without_end_is_not_read_for_ever(run: Run, existing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphopt.ir.files._LARGEST", 4 << 20)
    assert_one_line(run("optimize", "/dev/zero", existing), 3, "/dev/zero", "above 2 GiB")
    assert existing.read_bytes() == PRECIOUS


def test_bad_standard_input() -> None:
    done = command("optimize", "-", "-", stdin=b"garbage")
    assert done.returncode == 3
    assert done.stdout == b""
    assert b"graphopt: error: " in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("audit", "--keep", "/proc/no/folder", "--against", "none"), 3, ("/proc/no",)),
        (("audit", "--html", "no/such/folder/x.html"), 3, ("no/such/folder",)),
        (("explain", "--html", "no/such/folder/x.html"), 3, ("no/such/folder",)),
        (("bisect", "--output", "no/such/folder/x.onnx"), 3, ("no/such/folder",)),
        (("bisect", "--pass", "eliminate_identity"), 2, ("--peer",)),
    ],
)
def test_places_are_looked_at_before_the_work(
    run: Run, model_file: Path, arguments: tuple[str, ...], code: int, words: tuple[str, ...]
) -> None:
    command_name, *options = arguments
    assert_one_line(run(command_name, model_file, *options), code, *words)


WRITING = [
    ("audit", "--html"), ("bisect", "--output"), ("check", "--save"), ("check", "--junit"), ("explain", "--html"),
    ("inspect", "--html"),
]  # fmt: skip
"""Commands that write a file beside the report."""


@pytest.mark.parametrize("arguments", WRITING, ids=str)
def test_what_is_read_is_not_replaced(run: Run, model_file: Path, tmp_path: Path, arguments: tuple[str, str]) -> None:
    before = model_file.read_bytes()
    link = tmp_path / "link.onnx"
    link.symlink_to(model_file)
    command_name, option = arguments
    assert_one_line(run(command_name, model_file, option, link), 2, "would be replaced")
    assert model_file.read_bytes() == before


@pytest.mark.parametrize("arguments", WRITING, ids=str)
def test_weights_and_inputs_that_are_read_are_not_replaced(
    run: Run, tmp_path: Path, arguments: tuple[str, str]
) -> None:
    command_name, option = arguments
    path, weights, data = tmp_path / "outside.onnx", tmp_path / "small.data", tmp_path / "data.npz"
    onnx.save(small_model(external=True), path)
    np.savez(data, x=np.ones((2, 3), np.float32))
    before = weights.read_bytes(), data.read_bytes()
    assert_one_line(run(command_name, path, option, weights), 2, "would be replaced")
    if command_name not in ("inspect", "explain"):
        assert_one_line(run(command_name, path, "--data", data, option, data), 2, "would be replaced")
    assert (weights.read_bytes(), data.read_bytes()) == before


@pytest.mark.parametrize("words", [("optimize",), ("convert", "--opset", "17")], ids=str)
def test_inputs_to_compare_with_are_not_replaced(
    run: Run, model_file: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    data = tmp_path / "data.npz"
    np.savez(data, x=np.ones((2, 3), np.float32))
    before = data.read_bytes()
    assert_one_line(run(*words, model_file, data, "--verify", "--data", data), 2, "would be replaced")
    assert data.read_bytes() == before


def test_a_report_does_not_replace_the_baseline(run: Run, model_file: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    baseline.write_text("{}")
    assert_one_line(run("check", model_file, "--baseline", baseline, "--junit", baseline), 2, "would be replaced")


CYCLE = """
<ir_version: 8, opset_import: ["" : 13]>
g (float[2] x) => (float[2] y) { a = Relu (b)  b = Relu (a)  y = Add (a, x) }
"""


@pytest.mark.parametrize("command_name", ["optimize", "convert", "explain", "inspect", "diff", "bisect", "layout"])
def test_a_broken_graph_is_told_by_its_file(run: Run, model_file: Path, tmp_path: Path, command_name: str) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(onnx.parser.parse_model(CYCLE).SerializeToString())
    more = {"optimize": [tmp_path], "convert": [tmp_path, "--opset", "12"]}
    several = command_name in ("optimize", "convert", "inspect", "diff")
    (tmp_path / "in").mkdir()
    first = model_file.rename(tmp_path / "in" / model_file.name)
    words = [*([first] if several else []), path, *more.get(command_name, [])]
    assert_one_line(run(command_name, *words), 3, "broken.onnx: ", "cycle")


@pytest.mark.parametrize(
    "words", [("verify", "-", "-"), ("diff", "-", "-"), ("inspect", "-", "-"), ("profile", "-", "-")]
)
def test_standard_input_is_read_once(run: Run, words: tuple[str, ...]) -> None:
    assert_one_line(run(*words), 2, "standard input holds one model")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("passes", "eliminate_identity", "--peers"), ("NAME", "--peers")),
        (("passes", "--peers", "--write", "pages"), ("--peers", "--write")),
        (("passes", "--markdown"), ("--markdown", "NAME")),
        (("passes", "eliminate_identity", "--family", "folding"), ("NAME", "--family")),
        (("passes", "--peers", "--level", "all"), ("--peers", "--level")),
        (("fuzz", "--after", "report.json"), ("--after", "--passes-until")),
        (("passes", "eliminate_identity", "--json", "--markdown"), ("--json", "--markdown")),
        (("check", "model.onnx", "--json", "--markdown"), ("--json", "--markdown")),
        (("fuzz", "--level", "turbo"), ("unknown level 'turbo'", "convert")),
    ],
    ids=str,
)
def test_options_that_exclude_each_other(run: Run, words: tuple[str, ...], said: tuple[str, ...]) -> None:
    assert_one_line(run(*words), 2, *said)


def test_folder_that_cannot_be_made(run: Run) -> None:
    assert_one_line(run("passes", "--write", "/proc/no"), 3, "/proc/no")


@pytest.mark.parametrize(
    "words",
    [("passes", "--write"), ("audit", "MODEL", "--against", "none", "--keep"), ("fuzz", "--models", "1", "--corpus")],
    ids=str,
)
def test_file_in_place_of_a_folder(run: Run, model_file: Path, existing: Path, words: tuple[str, ...]) -> None:
    done = run(*(model_file if word == "MODEL" else word for word in words), existing)
    assert_one_line(done, 3, f"cannot use {existing}: it is not a folder")
    assert existing.read_bytes() == PRECIOUS


def _lone_array() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(4, np.float32))
    return buffer.getvalue()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", b"text", _lone_array()])
def test_data_that_is_no_archive(run: Run, model_file: Path, tmp_path: Path, content: bytes) -> None:
    data = tmp_path / "data.npz"
    data.write_bytes(content)
    assert_one_line(run("bisect", model_file, "--data", data), 3, "data.npz", "expected an .npz file")


@pytest.mark.parametrize("command", ["audit", "bisect", "check", "profile", "verify", "optimize", "convert"])
def test_data_that_is_not_there(run: Run, model_file: Path, command: str) -> None:
    more = {
        "verify": [model_file],
        "optimize": ["out.onnx", "--verify"],
        "convert": ["out.onnx", "--opset", "13", "--verify"],
    }
    words = [model_file, *more.get(command, []), "--data", "missing.npz"]
    assert_one_line(run(command, *words), 3, "missing.npz")


def test_models_of_the_runtimes_own_format_are_told(run: Run, tmp_path: Path, existing: Path) -> None:
    path = tmp_path / "model.ort"
    path.write_bytes(b"\x18\x00\x00\x00ORTM" + bytes(100))
    assert_one_line(run("optimize", path, existing), 3, "ONNX Runtime's own format")
    assert_one_line(run("verify", path, path), 3, "ONNX Runtime's own format")
