"""What every command has in common: values from a file, mistakes, quiet and verbose runs, completion."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy
import onnx
import pytest

import graphopt.verify
from graphopt.cli.app import COMMANDS
from tests.cli.conftest import Run


def test_values_come_from_a_file(run: Run, model_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "graphopt.toml"
    file.write_text('level = "extended"\ndim = "batch=2"\n[optimize]\nskip = ["eliminate_identity"]\n')
    done = run("optimize", model_file, tmp_path / "out.onnx", "--config", file, "--json")
    report = json.loads(done.stdout)
    assert "@extended" in report["pipeline"]
    assert report["after"]["nodes"] == 3
    given = run("optimize", model_file, tmp_path / "out.onnx", "--config", file, "--level", "basic", "--json")
    assert "@extended" not in json.loads(given.stdout)["pipeline"]
    assert run("inspect", model_file, "--config", file).exit_code == 0  # which has no level


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("level = ", "is not a TOML file"),
        ("[optimize]\nlevle = 'all'", "optimize has no option 'levle'; did you mean level?"),
        ("[optimize]\nlevel = 3", "unknown level '3'"),
        ("[optimize]\nlevel = true", "level: expected str, found True"),
        ("[optimize]\nlevel = ['all']", "level: expected str, found ['all']"),
        ("optimize = 3", "optimize: expected a table, found 3"),
        ("strict = 1", "strict: expected bool, found 1"),
        ("levle = 'all'", "no command has an option 'levle'; did you mean level?"),
        ("[optimise]\nlevel = 'all'", "there is no command 'optimise'; did you mean optimize?"),
        ("[corpus.rum]\nseed = 1", "there is no command 'corpus rum'; did you mean corpus run"),
        ("corpus.run = 3", "corpus run: expected a table, found 3"),
    ],
)
def test_a_wrong_file_is_refused(run: Run, model_file: Path, tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "graphopt.toml"
    file.write_text(text)
    done = run("optimize", model_file, tmp_path / "out.onnx", "--config", file)
    assert done.exit_code == 2
    assert complaint in done.stderr
    assert not (tmp_path / "out.onnx").exists()


def test_what_is_given_holds_in_place_of_what_is_in_a_file(run: Run, model_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "graphopt.toml"
    file.write_text('skip = ["eliminate_identity"]\n')
    command = "optimize", model_file, tmp_path / "out.onnx", "--config", file, "--json"
    assert json.loads(run(*command).stdout)["after"]["nodes"] == 3
    assert json.loads(run(*command, "--skip", "fuse_gelu").stdout)["after"]["nodes"] == 2


def test_a_command_of_two_words_has_a_table(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "graphopt.toml"
    for table in ("[corpus.run]", '["corpus run"]'):
        file.write_text(f"{table}\nshard = '0/0'\n")
        done = run("corpus", "run", "none.onnx", "--store", tmp_path / "store", "--config", file)
        assert "shard 0/0: expected i/n" in done.stderr


def test_commands_of_two_words_have_an_overview(run: Run) -> None:
    done = run("corpus", "--help")
    assert done.exit_code == 0
    assert "corpus gate" in done.stdout
    assert "optimize  " not in done.stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("optimise",), "unknown command 'optimise'; did you mean optimize?"),
        (("optimize", "a", "b", "--levle", "all"), "unknown argument '--levle'; did you mean --level"),
        (("optimize", "a"), "expected IN and OUT, found one file; see graphopt optimize --help"),
        (("optimize",), "the following arguments are required: IN... OUT; see graphopt optimize --help"),
        (("optimize", "a", "b", "c"), "several models need a folder OUT, found nothing at c"),
        (("audit", "a", "--budget", "-1"), "--budget: expected at least 0, found -1"),
        (("audit", "a", "--timeout", "nan"), "--timeout: expected at least 0, found nan"),
        (("corpus", "run", "a", "--store", "b", "--memory", "nan"), "--memory: expected at least 0, found nan"),
        (("corpus", "run", "a", "--store", "b", "--disk", "inf"), "expected a number of GiB, found inf"),
        (("profile", "a", "--top", "many"), "error: --top: expected a whole number, found 'many'"),
        (("profile", "a", "--top"), "error: --top: expected one argument"),
        (("audit", "a", "--budget", "much"), "error: --budget: expected a number, found 'much'"),
        (("verify", "a", "b", "--seed", "-1"), "--seed: expected at least 0, found -1"),
        (("optimize", "a", "b", "--external-data", "c", "--external-alignment", "0"), "expected at least 1, found 0"),
        (("audit", "a", "--against", "onnxsimm"), "unknown peer 'onnxsimm' (did you mean onnxsim?)"),
        (("audit", "a", "--against", "none,onnxsim"), "expected `none` or peers, found both: none, onnxsim"),
        (("check", "a", "--fail-on", "nodes"), "expected --baseline, or --save first"),
        (("check", "a", "--save", "b", "--junit", "./b"), "--save and --junit both write ./b"),
        (("corpus", "run", "a"), "--store is missing: The file with all records"),
    ],
)
def test_mistakes_are_one_line_that_helps(run: Run, words: tuple[str, ...], complaint: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert complaint in done.stderr


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("optimize", "model.onnx", "other.onnx", ""), "IN... OUT"),
        (("check", ""), "MODEL..."),
        (("diff", "model.onnx", ""), "B"),
        (("audit", "model.onnx", "--keep", ""), "--keep"),
        (("optimize", "model.onnx", "out.onnx", "--skip", ""), "--skip"),
        (("inspect", "model.onnx", "--config", ""), "--config"),
    ],
)
def test_a_variable_that_is_not_set_is_no_folder(
    run: Run, model_file: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], what: str
) -> None:
    other = model_file.with_name("other.onnx")
    other.write_bytes(model_file.read_bytes())
    monkeypatch.chdir(model_file.parent)
    done = run(*words)
    assert done.exit_code == 2
    assert done.stderr == f"graphopt: error: {what}: expected a value, found an empty text\n"
    assert other.read_bytes() == model_file.read_bytes()


@pytest.mark.parametrize(
    ("option", "other"),
    [
        (("--data", "inputs.npz"), "--verify"),
        (("--seed", "3"), "--verify"),
        (("--timeout", "3"), "--verify"),
        (("--external-threshold", "3"), "--external-data"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    run: Run, model_file: Path, tmp_path: Path, option: tuple[str, str], other: str
) -> None:
    out, file = tmp_path / "out.onnx", tmp_path / "graphopt.toml"
    done = run("optimize", model_file, out, *option)
    assert done.exit_code == 2
    assert done.stderr == f"graphopt: error: {option[0]} does nothing without {other}\n"
    assert not out.exists()
    file.write_text("seed = 3\ntimeout = 3.0\nexternal-threshold = 3\n")  # which wait for what needs them
    assert run("optimize", model_file, out, "--config", file).exit_code == 0


def test_several_names_may_have_commas_between(run: Run, model_file: Path, tmp_path: Path) -> None:
    command = "optimize", model_file, tmp_path / "out.onnx", "--json"
    assert json.loads(run(*command, "--skip", "fuse_gelu, eliminate_identity").stdout)["after"]["nodes"] == 3
    assert run(*command, "--skip", "fuse_gelu,").stderr.endswith("--skip: expected a value, found an empty text\n")
    assert "unknown level 'turbo'" in run("audit", model_file, "--level", "basic,turbo").stderr
    assert "unknown part 'turbo'" in run("profile", model_file, "--only", "levels,turbo").stderr
    assert "unknown pass 'fuse_turbo'" in run("fuzz", "--pass", "fuse_gelu,fuse_turbo", "--models", "1").stderr


def test_what_follows_two_dashes_is_no_option(
    run: Run, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("optimize", "-q", "--", model_file, "-out.onnx").exit_code == 0
    assert run("inspect", "--quiet", "--", "-out.onnx").exit_code == 0
    assert run("inspect", "--", "-out.onnx", "--quiet").stderr == "graphopt: error: --quiet not found\n"


def test_quiet_prints_nothing_and_verbose_what_is_logged(run: Run, model_file: Path) -> None:
    assert run("explain", model_file, "--quiet").output == ""
    assert json.loads(run("explain", model_file, "--quiet", "--json").stdout)["steps"]
    done = run("optimize", model_file, model_file, "-v", "-q")
    assert done.stderr.startswith("graphopt: 3 -> 2 nodes, 1 rewrite ")
    assert "eliminate_identity: 1" in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(run: Run, name: str) -> None:
    done = run(*name.split(), "--help")
    assert done.exit_code == 0
    assert all(option in done.stdout for option in COMMANDS[name].options)


def test_several_models_go_into_a_folder(run: Run, model_file: Path, tmp_path: Path) -> None:
    other, out = model_file.with_name("other.onnx"), tmp_path / "out"
    other.write_bytes(model_file.read_bytes())
    out.mkdir()
    done = run("optimize", model_file, other, out, "--json")
    assert [each["after"]["nodes"] for each in json.loads(done.stdout)] == [2, 2]
    assert sorted(path.name for path in out.iterdir()) == ["other.onnx", "small.onnx"]
    assert run("optimize", model_file, other, out).stdout.startswith(f"{model_file}\n3 -> 2 nodes")
    same = run("optimize", model_file, model_file, out)
    assert (same.exit_code, "small.onnx: several models need different names" in same.stderr) == (2, True)


def test_inspect_says_what_a_model_is(run: Run, model_file: Path) -> None:
    shown = run("inspect", model_file).stdout
    assert "x: float[batch,4]" in shown
    assert "MatMul 1, Identity 1, Relu 1" in shown
    report = json.loads(run("inspect", model_file, "--json").stdout)
    assert (report["parameters"], report["weights"], report["symbols"]) == (1200, {"float": 4800}, ["batch"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_every_command_and_option(run: Run, shell: str) -> None:
    script = run("completion", shell).stdout
    for name, command in COMMANDS.items():
        assert all(word in script for word in name.split())
        assert all(option.lstrip("-") in script for option in command.options)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash to complete in")
@pytest.mark.parametrize(
    ("line", "expected"), [("graphopt opt", "optimize"), ("graphopt optimize --exte", "--external-data")]
)
def test_bash_completes(run: Run, line: str, expected: str) -> None:
    script = run("completion", "bash").stdout
    words = line.split()
    ask = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _graphopt; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, timeout=30, check=True)
    assert expected in done.stdout.split()


SHARED = (
    "--shape",
    "--dim",
    "--opset",
    "--target",
    "--numerics",
    "--data",
    "--seed",
    "--threads",
    "--timeout",
    "--json",
)
OWN = {("convert", "--opset"), ("fuzz", "--seed")}
"""Where a name stands for what only that command has: the version to convert to, a text."""
WITH_SIZES = (
    "optimize",
    "convert",
    "check",
    "explain",
    "bisect",
    "verify",
    "audit",
    "audit-passes",
    "profile",
    "layout",
)


@pytest.mark.parametrize("option", SHARED)
def test_an_option_means_the_same_in_every_command(option: str) -> None:
    meanings = {
        (parameter.kind, parameter.many, parameter.stated.help.replace("optimizer or comparison", "comparison"))
        for name, command in COMMANDS.items()
        for parameter in command.parameters
        if option in parameter.names and (name, option) not in OWN
    }
    assert len(meanings) == 1


@pytest.mark.parametrize("name", WITH_SIZES)
def test_commands_that_run_models_take_sizes(name: str) -> None:
    assert {"--shape", "--dim"} <= set(COMMANDS[name].options)


@pytest.mark.parametrize("name", ["optimize", "convert", "verify", "audit", "corpus run", "check", "bisect", "profile"])
def test_commands_that_run_models_take_a_seed(name: str) -> None:
    assert "--seed" in COMMANDS[name].options


@pytest.mark.parametrize("name", ["corpus run", "fuzz"])
def test_commands_that_run_levels_take_numerics_and_a_target(run: Run, tmp_path: Path, name: str) -> None:
    given = {"corpus run": (tmp_path, "--store", tmp_path / "s.db", "--no-latency"), "fuzz": ("--models", "1")}[name]
    assert "'mars'" in run(*name.split(), *given, "--target", "mars").stderr
    assert "'none'" in run(*name.split(), *given, "--numerics", "none").stderr


@pytest.mark.parametrize("words", [("optimize",), ("convert", "--opset", "18")])
def test_inputs_of_ones_own_are_compared(run: Run, model_file: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    numpy.savez(tmp_path / "own.npz", x=numpy.ones((2, 4), numpy.float32))
    name, *more = words
    given = (name, model_file, tmp_path / "out.onnx", *more, "--verify", "--seed", "3", "--data")
    assert run(*given, tmp_path / "own.npz").exit_code == 0
    numpy.savez(tmp_path / "other.npz", y=numpy.ones((2, 4), numpy.float32))
    wrong = run(*given, tmp_path / "other.npz")
    assert wrong.exit_code
    assert "x" in wrong.stderr


def test_several_models_are_converted_into_a_folder(run: Run, model_file: Path, tmp_path: Path) -> None:
    other, out = tmp_path / "other.onnx", tmp_path / "out"
    other.write_bytes(model_file.read_bytes())
    out.mkdir()
    done = run("convert", model_file, other, out, "--opset", "16", "--verify", "--shape", "x=2,4", "--json")
    assert [each["after"]["opsets"][""] for each in json.loads(done.stdout)] == [16, 16]
    assert sorted(path.name for path in out.iterdir()) == sorted([model_file.name, "other.onnx"])
    assert onnx.load(out / "other.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2


@pytest.mark.parametrize("words", [("optimize",), ("convert", "--opset", "16")], ids=str)
@pytest.mark.parametrize("as_json", [True, False])
def test_of_several_models_one_that_is_broken_does_not_keep_the_others(
    run: Run, model_file: Path, tmp_path: Path, words: tuple[str, ...], as_json: bool
) -> None:
    broken, other, out = tmp_path / "broken.onnx", tmp_path / "other.onnx", tmp_path / "out"
    broken.write_bytes(b"no model")
    other.write_bytes(model_file.read_bytes())
    out.mkdir()
    (out / "broken.onnx").write_text("precious")
    done = run(*words, broken, model_file, other, out, *(["--json"] if as_json else []))
    assert done.exit_code == 3
    assert sorted(path.name for path in out.iterdir()) == sorted(["broken.onnx", model_file.name, "other.onnx"])
    assert (out / "broken.onnx").read_text() == "precious"
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("graphopt: error: ")
    assert "broken.onnx" in line
    if as_json:
        first, *others = json.loads(done.stdout)
        assert first == {"model": str(broken), "error": line.removeprefix("graphopt: error: ")}
        assert [each["model"] for each in others] == [str(model_file), str(other)]
        assert [each["schema"] for each in others] == [1, 1]
    else:
        assert "other.onnx" in done.stdout


def test_a_refused_conversion_names_the_model_of_several(run: Run, model_file: Path, tmp_path: Path) -> None:
    text = '<ir_version: 9, opset_import: ["" : 20]> g (string[1] x) => (string[1] y) { y = StringConcat (x, x) }'
    newer, out = tmp_path / "newer.onnx", tmp_path / "out"
    newer.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    out.mkdir()
    done = run("convert", newer, model_file, out, "--opset", "16")
    assert done.exit_code == 3
    assert f"{newer}: cannot convert to opset 16: StringConcat" in done.stderr
    assert [path.name for path in out.iterdir()] == [model_file.name]


def test_models_that_convert_to_other_results_are_told_of(
    run: Run, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, out = tmp_path / "other.onnx", tmp_path / "out"
    other.write_bytes(model_file.read_bytes())
    out.mkdir()
    found = iter(["mismatch", "equal"])
    monkeypatch.setattr(
        graphopt.verify, "compare", lambda *args, **options: graphopt.verify.Report(next(found), "exact", 0)
    )
    done = run("convert", model_file, other, out, "--opset", "16", "--verify", "--json")
    assert done.exit_code == 1
    assert [each["verification"]["status"] for each in json.loads(done.stdout)] == ["mismatch", "equal"]
    assert [path.name for path in out.iterdir()] == ["other.onnx"]


def test_a_number_may_be_a_number_in_a_file(run: Run, model_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "graphopt.toml"
    file.write_text("threads = 1\nseed = 4\nbudget = 0\n")
    for words in (("profile", model_file, "--only", "levels", "--rounds", "2"), ("fuzz", "--models", "1")):
        done = run(
            *words,
            "--config",
            file,
            "--quiet",
            "--level" if words[0] == "fuzz" else "--json",
            *(["basic"] * (words[0] == "fuzz")),
        )
        assert done.exit_code == 0, done.output


def test_usage_names_each_argument_once(run: Run) -> None:
    assert "MODEL..." in run("inspect", "--help").stdout
    assert "[MODEL" not in run("inspect", "--help").stdout
    assert "[default: ]" not in "".join(run(*name.split(), "--help").stdout for name in COMMANDS)


@pytest.mark.parametrize("name", ["check", "bisect", "explain", "audit"])
def test_commands_that_run_passes_take_what_optimize_takes(name: str) -> None:
    assert {"--opset", "--target", "--numerics", "--level"} <= set(COMMANDS[name].options)


@pytest.mark.parametrize("words", [("bisect", "--timeout", "60"), ("check", "--threads", "1", "--fail-on", "numerics")])
def test_sizes_and_versions_carry_over(run: Run, model_file: Path, words: tuple[str, ...]) -> None:
    name, *more = words
    done = run(name, model_file, "--shape", "x=2,4", "--opset", "18", "--numerics", "rounding", *more)
    assert done.exit_code == 0, done.output
    wrong = run(name, model_file, "--shape", "nothing=2,4")
    assert wrong.exit_code == 2
    assert "nothing" in wrong.stderr


def test_an_option_may_be_called_as_a_command_is(run: Run, model_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "graphopt.toml"
    file.write_text("passes = 'eliminate_identity'\nverify = true\n")
    done = run("optimize", model_file, tmp_path / "out.onnx", "--config", file, "--json")
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["pipeline"] == "eliminate_identity"
    assert report["verification"]["status"] == "equal"
