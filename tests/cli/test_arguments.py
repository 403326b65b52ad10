"""What every command has in common: values from a file, mistakes, quiet and verbose runs, completion."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

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
        ("level = ", "is no TOML file"),
        ("[optimize]\nlevle = 'all'", "optimize has no option 'levle'; did you mean level?"),
        ("[optimize]\nlevel = 3", "level: expected str, found 3"),
        ("[optimize]\nlevel = ['all']", "level: expected str, found ['all']"),
        ("optimize = 3", "optimize: expected a table, found 3"),
        ("strict = 1", "strict: expected bool, found 1"),
    ],
)
def test_a_wrong_file_is_refused(run: Run, model_file: Path, tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "graphopt.toml"
    file.write_text(text)
    done = run("optimize", model_file, tmp_path / "out.onnx", "--config", file)
    assert done.exit_code == 2
    assert complaint in done.stderr
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("optimise",), "unknown command 'optimise'; did you mean optimize?"),
        (("optimize", "a", "b", "--levle", "all"), "unknown argument '--levle'; did you mean --level"),
        (("optimize", "a"), "expected IN and OUT, found one file; see graphopt optimize --help"),
        (("optimize",), "the following arguments are required: IN... OUT; see graphopt optimize --help"),
        (("optimize", "a", "b", "c"), "several models need a folder OUT, and c is none"),
        (("audit", "a", "--budget", "-1"), "--budget: expected at least 0, found -1"),
        (("profile", "a", "--top", "many"), "invalid int value: 'many'"),
    ],
)
def test_mistakes_are_one_line_that_helps(run: Run, words: tuple[str, ...], complaint: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert complaint in done.stderr


def test_quiet_prints_nothing_and_verbose_what_is_logged(run: Run, model_file: Path) -> None:
    assert run("explain", model_file, "--quiet").output == ""
    assert json.loads(run("explain", model_file, "--quiet", "--json").stdout)["steps"]
    done = run("optimize", model_file, model_file, "-v", "-q")
    assert done.stderr.startswith("graphopt: 3 -> 2 nodes, 1 rewrites")
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
    assert (same.exit_code, "small.onnx: several models need a name of their own" in same.stderr) == (2, True)


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
OWN = {("convert", "--opset"), ("profile", "--threads"), ("fuzz", "--seed")}
"""Where a name stands for what only that command has: the version to convert to, one number of threads, a text."""
WITH_SIZES = ("optimize", "check", "explain", "bisect", "verify", "audit", "audit-passes", "profile", "layout")


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
