from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import graphopt
from tests.cli.conftest import Run, command, small_model


def ops(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def test_optimize(run: Run, model_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    done = run("optimize", model_file, out, "--verify", "--events")
    assert done.exit_code == 0, done.output
    assert ops(out) == ["MatMul", "Relu"]
    assert "3 -> 2 nodes" in done.stdout
    assert "eliminate_identity" in done.stdout
    assert "verified: equal" in done.stdout


def test_optimize_keeps_the_input(run: Run, model_file: Path, tmp_path: Path) -> None:
    before = model_file.read_bytes()
    run("optimize", model_file, tmp_path / "out.onnx")
    assert model_file.read_bytes() == before


def test_optimize_onto_itself(run: Run, model_file: Path) -> None:
    assert run("optimize", model_file, model_file, "--quiet").output == ""
    assert ops(model_file) == ["MatMul", "Relu"]


def test_optimize_with_nothing_allowed(run: Run, model_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    assert (
        run("optimize", model_file, out, "--passes", "eliminate_identity", "--skip", "eliminate_identity").exit_code
        == 0
    )
    assert out.read_bytes() == model_file.read_bytes()


def test_optimize_as_json(run: Run, model_file: Path, tmp_path: Path) -> None:
    done = run("optimize", model_file, tmp_path / "out.onnx", "--json", "--verify")
    report = json.loads(done.stdout)
    assert report["before"]["nodes"] == 3
    assert report["after"]["nodes"] == 2
    assert report["passes"] == {"eliminate_identity": 1}
    assert report["events"][0]["rule"] == "eliminate_identity"
    assert report["verification"]["ok"]


def test_a_result_that_differs_is_not_written(run: Run, model_file: Path, existing: Path, monkeypatch) -> None:
    import graphopt.verify

    monkeypatch.setattr(
        graphopt.verify, "compare", lambda *args, **options: graphopt.verify.Report("mismatch", "exact", 0)
    )
    for words in ("optimize", model_file, existing), ("convert", model_file, existing, "--opset", "21"):
        done = run(*words, "--verify")
        assert done.exit_code == 1
        assert "mismatch" in done.output
        assert "is not written" in done.stderr
        quiet = run(*words, "--verify", "--quiet")
        assert quiet.exit_code == 1
        assert "mismatch" not in quiet.output
        assert existing.read_bytes() == b"precious"


def test_external_data(run: Run, model_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    assert (
        run(
            "optimize", model_file, out, "--external-data", "weights.bin", "--external-threshold", "1024", "-q"
        ).exit_code
        == 0
    )
    assert (tmp_path / "weights.bin").stat().st_size == 4800
    assert out.stat().st_size < 1000
    assert run("verify", model_file, out, "--numerics", "exact").exit_code == 0


def test_pipes(tmp_path: Path) -> None:
    done = command("optimize", "-", "-", stdin=small_model().SerializeToString())
    assert done.returncode == 0
    assert [n.op_type for n in onnx.load_from_string(done.stdout).graph.node] == ["MatMul", "Relu"]
    assert b"3 -> 2 nodes" in done.stderr


@pytest.mark.parametrize("command_name", ["verify", "diff"])
def test_the_second_model_comes_through_a_pipe(model_file: Path, command_name: str) -> None:
    assert command(command_name, model_file, "-", stdin=model_file.read_bytes()).returncode == 0


def test_version_and_help(run: Run) -> None:
    done = command("--version")
    assert done.stdout.decode() == f"graphopt {graphopt.__version__}\n"
    assert run("--version").stdout.startswith("graphopt ")
    for name in ("optimize", "audit", "verify", "diff", "passes", "demo"):
        assert run(name, "--help").exit_code == 0


@pytest.mark.parametrize("columns", [40, 60])
def test_the_overview_fits_the_terminal(run: Run, columns: int) -> None:
    said = run("--help", env={"COLUMNS": str(columns)}).stdout
    assert max(map(len, said.splitlines())) <= columns


def test_starting_imports_nothing_heavy() -> None:
    import subprocess
    import sys

    code = "import sys, graphopt.cli.app; print([m for m in ('onnx', 'numpy', 'onnxruntime', 'rich.table') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_verify_equal(run: Run, model_file: Path) -> None:
    done = run("verify", model_file, model_file, "--dim", "batch=5")
    assert done.exit_code == 0
    assert "equal" in done.stdout
    assert "batch=5" in done.stdout


def test_verify_different(run: Run, model_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    onnx.save(small_model(weight=2.5), other)
    done = run("verify", model_file, other)
    assert done.exit_code == 1
    assert "mismatch" in done.stdout
    report = json.loads(run("verify", model_file, other, "--json").stdout)
    assert not report["ok"]


def test_verify_with_data(run: Run, model_file: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.ones((3, 4), np.float32))
    done = run("verify", model_file, model_file, "--data", tmp_path / "data.npz")
    assert done.exit_code == 0, done.output
    assert "given" in done.stdout


@pytest.mark.parametrize(
    ("opset", "said"),
    [
        (17, "0 of 1 nodes in blocks"),  # level `all`, whose plan this is, inlines functions
        (10, "all convolutions and pools are in functions that cannot be inlined"),  # `Softmax` meant something else
    ],
)
def test_layout_looks_into_functions(run: Run, tmp_path: Path, opset: int, said: str) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 17, "my" : 1]>
        g (float[1, 64, 56, 56] x) => (float[1, 64, 54, 54] y) {{ y = my.F(x) }}
        <domain: "my", opset_import: ["" : {opset}]> F (x) => (y) {{
            n = Constant <value = int64[4] {{64, 64, 3, 3}}> ()
            w = ConstantOfShape <value = float[1] {{0.5}}> (n)
            c = Conv(x, w)
            y = Softmax(c)
        }}""")
    onnx.save(model, tmp_path / "m.onnx")
    assert said in run("layout", tmp_path / "m.onnx", "--target", "avx512").stdout


def test_layout_reads_no_weights_that_it_does_not_need(
    run: Run, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphopt.Model, "flush", None)
    assert run("layout", model_file).exit_code == 0


def test_diff_of_equals(run: Run, model_file: Path) -> None:
    done = run("diff", model_file, model_file)
    assert done.exit_code == 0
    assert done.stdout.strip() == "no differences"


def test_diff(run: Run, model_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    changed = small_model(weight=2.5)
    del changed.graph.node[1]
    changed.graph.node[1].input[0] = "scaled"
    changed.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 5
    changed.metadata_props.add(key="author", value="me")
    onnx.save(changed, other)
    report = json.loads(run("diff", model_file, other, "--json").stdout)
    assert report["ops"] == {"Identity": [1, 0]}
    assert report["removed"] == ["same = Identity(scaled)"]
    assert report["changed"] == [{"value": "y", "before": "y = Relu(same)", "after": "y = Relu(scaled)"}]
    assert "breaking" in report["interface"][0]
    assert list(report["constants_changed"]) == ["w"]
    assert report["metadata"] == ["author"]
    done = run("diff", model_file, other)
    assert done.exit_code == 1
    assert "nodes removed (1)" in done.stdout


def test_passes(run: Run) -> None:
    assert "eliminate_identity" in run("passes").stdout
    page = run("passes", "eliminate_identity").stdout
    assert "elimination" in page
    assert "onnxoptimizer" in page
    record = json.loads(run("passes", "eliminate_identity", "--json").stdout)
    assert record["family"] == "elimination"
    families = {r["family"] for r in json.loads(run("passes", "--family", "elimination", "--json").stdout)}
    assert families == {"elimination"}


@pytest.mark.parametrize("width", [40, 80, 200])
def test_audit(run: Run, model_file: Path, width: int) -> None:
    done = run(
        "audit", model_file, "--against", "none", "--level", "basic", "--rounds", 3, "--dim", "batch=2",
        env={"COLUMNS": str(width)},
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "graphopt basic" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= width


def test_audit_as_json_and_markdown(run: Run, model_file: Path, tmp_path: Path) -> None:
    arguments = ("audit", model_file, "--against", "none", "--level", "basic", "--rounds", 3, "--no-verify")
    report = json.loads(run(*arguments, "--json", "--keep", tmp_path / "kept").stdout)
    assert [row["name"] for row in report["rows"]] == ["raw, ORT off", "raw, ORT all", "graphopt basic"]
    assert report["inputs"] == {"x": [1, 4]}
    assert (tmp_path / "kept" / "graphopt_basic.onnx").is_file()
    text = run(*arguments, "--markdown").stdout
    assert text.startswith("## small.onnx")
    assert "| graphopt basic |" in text


def test_what_an_audit_keeps_goes_where_it_is_told(
    run: Run, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ("audit", "--against", "none", "--level", "basic", "--budget", "0", "--no-verify", "--quiet")
    done = run(*arguments, model_file, "--keep", "kept")
    assert done.exit_code == 0, done.output
    kept = tmp_path / "kept" / "graphopt_basic.onnx"
    before = kept.read_bytes()
    done = run(*arguments, kept, "--keep", "kept")
    assert done.exit_code == 2
    assert "is the model itself" in done.stderr
    assert kept.read_bytes() == before


def test_demo_writes_its_model(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "demo.onnx"
    assert run("demo", "conv_maxpool", "--write", out).exit_code == 0
    assert ops(out)[:1] == ["Conv"]


def test_an_audit_says_which_sizes_it_did_not_use(run: Run, model_file: Path) -> None:
    done = run("audit", model_file, "--against", "none", "--budget", "0.1", "--dim", "btach=3", "--json", "-q")
    assert any("'btach'" in note for note in json.loads(done.stdout)["notes"])


def test_a_model_that_nothing_runs_is_not_called_right(run: Run, tmp_path: Path) -> None:
    model = small_model()
    model.graph.node[0].op_type, model.graph.node[0].domain = "Own", "acme"
    model.opset_import.add(domain="acme", version=1)
    path = tmp_path / "own.onnx"
    onnx.save(model, path)
    found = run("bisect", path)
    assert found.exit_code == 3
    assert "cannot be compared" in found.stderr
    found = run("optimize", path, tmp_path / "out.onnx", "--verify", "-q")
    assert found.exit_code == 1
    assert "the result cannot be compared" in found.stderr
    assert run("profile", path, "--budget", "0.1").exit_code in (3, 4)


def test_a_profile_of_what_does_not_load_is_one_line(run: Run, tmp_path: Path) -> None:
    model = small_model()
    model.ir_version = 99
    path = tmp_path / "future.onnx"
    onnx.save(model, path)
    found = run("profile", path, "--budget", "0.1")
    assert found.exit_code == 3
    assert "future.onnx: onnxruntime: " in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1
    assert found.stderr.startswith("graphopt: error: ")


def test_inspect_writes_a_page(run: Run, model_file: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run("inspect", model_file, "--html", page, "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["nodes"] == 3  # what is for programs stays as it is
    assert done.stderr.strip().replace("\n", "") == f"wrote {page}"
    assert 'id="graph-data"' in page.read_text()
    assert run("inspect", model_file, model_file, "--html", page).exit_code == 2
    assert run("inspect", model_file, "--html", tmp_path).exit_code == 3


@pytest.mark.parametrize("changed", [("a", "b"), ("gives", "s"), ("takes", "q, p"), ("alpha", "2.0")])
def test_diff_sees_what_bodies_and_functions_take_and_give(run: Run, tmp_path: Path, changed: tuple[str, str]) -> None:
    for name, stated in (("old", {}), ("new", dict([changed]))):
        told = {"a": "a", "gives": "r", "takes": "p, q", "alpha": "1.0"} | stated
        model = onnx.parser.parse_model(
            '<ir_version: 9, opset_import: ["" : 17, "l" : 1]>'
            "g (bool c, float[4] x) => (float[4] y, float[4] z) {"
            f"y = If (c) <then_branch = t () => (float[4] {told['a']}) {{ a = Neg(x)  b = Exp(x) }},"
            "else_branch = e () => (float[4] d) { d = Abs(x) }>  z = l.f(x, y) }"
            f'<domain: "l", opset_import: ["" : 17]> f <alpha: float = {told["alpha"]}> ({told["takes"]})'
            f"=> ({told['gives']}) {{ r = Sub(p, q)  s = Add(p, q) }}"
        )
        onnx.save(model, tmp_path / f"{name}.onnx")
    assert run("diff", tmp_path / "old.onnx", tmp_path / "old.onnx").exit_code == 0
    done = run("diff", tmp_path / "old.onnx", tmp_path / "new.onnx")
    assert (done.exit_code, done.stdout.count(" gives ")) == (1, 2)


def test_diff_tells_attributes_and_what_no_result_depends_on(run: Run, tmp_path: Path) -> None:
    """It had a node changed into what reads the same, and no differences where names and documentation were gone."""
    paths = [tmp_path / "a.onnx", tmp_path / "b.onnx", tmp_path / "c.onnx"]
    for path, axis, remark in zip(paths, (0, 1, 0), ("of a", "of a", ""), strict=True):
        model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 17]>
            g (float[2, 3] x) => (float[2, 3] y) {{ y = Softmax <axis = {axis}> (x) }}""")
        model.graph.node[0].doc_string = model.producer_name = remark
        onnx.save(model, path)
    change = json.loads(run("diff", *paths[:2], "--json").stdout)["changed"]
    assert change == [{
        "value": "y", "before": "y = Softmax(x) <axis = 0>", "after": "y = Softmax(x) <axis = 1>",
    }]  # fmt: skip
    done = run("diff", paths[0], paths[2])
    assert done.exit_code == 1
    assert "producer name: of a -> none" in done.stdout
    assert "documentation strings: 1 gone, 0 new" in done.stdout


def test_diff_sees_sparse_constants(run: Run, tmp_path: Path) -> None:
    for name, number in (("old", 1.0), ("new", 2.0)):
        model = onnx.parser.parse_model(
            '<ir_version: 9, opset_import: ["" : 17]> g (float[3] x) => (float[3] y) { y = Add (x, w) }'
        )
        values = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [1], [number])
        indices = onnx.helper.make_tensor("", onnx.TensorProto.INT64, [1], [2])
        model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [3]))
        onnx.save(model, tmp_path / f"{name}.onnx")
    assert run("diff", tmp_path / "old.onnx", tmp_path / "old.onnx").exit_code == 0
    done = run("diff", tmp_path / "old.onnx", tmp_path / "new.onnx")
    assert (done.exit_code, done.stdout.count("w: sparse")) == (1, 1)
