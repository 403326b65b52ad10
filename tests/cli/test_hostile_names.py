"""What a model calls its parts is shown as text, and nothing of it acts on the terminal or on a page."""

from __future__ import annotations

import io
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from rich.table import Table
from rich.text import Text

from graphopt.audit.markdown import table as markdown_table
from graphopt.cli.app import TRACEBACK
from graphopt.printable import console, markdown, printable
from graphopt.terminal import Lines
from tests.cli.conftest import Run

HOSTILE = "\x1b]0;owned\x07\x1b[31m\u202egnp.exe\u2066\r\nsecond\x9b2J[red]n[/red]</script><b>|`\u2028\0"
ACTIVE = set("\x1b\x07\u202e\u2066\r\x9b\u2028\0")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A model all of whose names are hostile."""
    name = {k: f"{k}{HOSTILE}" for k in ("x", "y", "a", "b", "n", "g", "d", "w")}
    nodes = [
        helper.make_node("Identity", [name["x"]], [name["a"]], name=name["n"]),
        helper.make_node("Neg", [name["a"]], [name["b"]], name=name["n"] + "2"),
        helper.make_node("Strange" + HOSTILE, [name["b"]], [name["y"]], name=name["n"] + "3", domain=name["d"]),
        helper.make_node("Add", [name["b"], name["w"]], [name["y"] + "2"]),
    ]
    x = helper.make_tensor_value_info(name["x"], TensorProto.FLOAT, [name["d"], 2])
    outs = [helper.make_value_info(name["y"] + end, onnx.TypeProto()) for end in ("", "2")]
    weight = helper.make_tensor(name["w"], TensorProto.FLOAT, [1], [0.0])
    graph = helper.make_graph(nodes, name["g"], [x], outs, [weight])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(name["d"], 1)]
    path = tmp_path / "hostile.onnx"
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    helper.set_model_props(model, {HOSTILE: HOSTILE})
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ("optimize", "{}", "{}.out", "--events"), ("optimize", "{}", "{}.out", "--json"), ("optimize", "{}", "{}.out", "--verify"),
        ("explain", "{}"), ("explain", "{}", "--json"), ("explain", "{}", "--node", "n" + HOSTILE), ("diff", "{}", "{}.small"),
        ("diff", "{}", "{}.small", "--json"), ("verify", "{}", "{}"), ("verify", "{}", "{}.small"), ("layout", "{}"),
        ("audit", "{}", "--against", "none", "--rounds", "1", "--budget", "0"),
    ],
    ids=lambda arguments: " ".join(arguments[:1] + arguments[2:])[:30].encode("unicode_escape").decode(),
)  # fmt: skip
def test_names_are_shown_as_text(run: Run, hostile: Path, arguments: tuple[str, ...]) -> None:
    small = onnx.load(hostile)
    del small.graph.node[0]
    small.graph.node[0].input[0] = small.graph.input[0].name
    Path(f"{hostile}.small").write_bytes(small.SerializeToString())
    result = run(*(part.replace("{}", str(hostile)) for part in arguments))
    assert result.exit_code in (0, 1, 2, 3), result.output
    assert not ACTIVE & set(result.stdout + result.stderr)
    assert not any(line.startswith("second") for line in (result.stdout + result.stderr).splitlines())
    if "--json" not in arguments and "[red]" in result.stdout:
        assert "[/red]" in result.stdout


def test_names_on_a_page(run: Run, hostile: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run("explain", hostile, "--html", page).exit_code == 0
    text = page.read_text()
    assert not ACTIVE & set(text)
    assert "<b>|" not in text
    assert "[red]n" in text


def test_every_kind_of_character_that_does_not_show() -> None:
    hidden = [chr(n) for n in range(0x110000) if not chr(n).isprintable()]
    shown = printable("".join(hidden))
    assert shown.isprintable()
    assert printable("\x1b[0m\u202e") == r"\x1b[0m\u202e"
    assert printable("a\nb", lines=True) == "a\nb"
    assert printable("naïve 名 → µ") == "naïve 名 → µ"


def test_a_console_shows_text_as_it_is() -> None:
    out = console(file=io.StringIO(), width=200)
    table = Table("head" + HOSTILE, title=HOSTILE)
    table.add_row("cell" + HOSTILE)
    table.add_row(Text("text" + HOSTILE))
    for part in (HOSTILE, Text(HOSTILE), table, Lines("one\ntwo")):
        out.print(part)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert not ACTIVE & set(text)
    assert not any(line.lstrip(" │┃").startswith("second") for line in text.splitlines())
    assert text.count("[red]n[/red]") == 6
    assert text.endswith("one\ntwo\n")


def test_cells_of_markdown() -> None:
    assert markdown("a|b\n<i>[x](y)") == r"a\|b\n&lt;i>[x]\(y)"
    assert markdown_table(["", "h"], [("a\nb", "c")]).count("\n") == 2


def test_a_bug_is_one_line(run: Run, model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by\nzero \x1b[31m")

    monkeypatch.setattr("graphopt.audit.difference.diff", broken)
    result = run("diff", model_file, model_file)
    assert result.exit_code == 4
    assert result.stderr.count("\n") == 1
    assert "bug of graphopt (ZeroDivisionError: by zero" in result.stderr
    assert f"{TRACEBACK}=1" in result.stderr
    assert "\x1b" not in result.stderr
    monkeypatch.setenv(TRACEBACK, "1")
    assert isinstance(run("diff", model_file, model_file).exception, ZeroDivisionError)


def test_out_of_memory_is_one_line(run: Run, model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hungry(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("graphopt.audit.difference.diff", hungry)
    result = run("diff", model_file, model_file)
    assert (result.exit_code, result.stderr) == (4, "graphopt: error: out of memory\n")


@pytest.mark.parametrize("command", ["optimize", "explain", "diff", "verify", "layout", "bisect", "profile", "audit"])
def test_links_in_a_circle(run: Run, tmp_path: Path, model_file: Path, command: str) -> None:
    loop = tmp_path / "loop.onnx"
    loop.symlink_to(loop)
    more = {
        "optimize": [tmp_path / "o.onnx"],
        "diff": [model_file],
        "verify": [model_file],
        "bisect": ["-o", tmp_path / "f.onnx"],
    }
    result = run(command, loop, *more.get(command, []))
    assert result.exit_code == 3, result.output
    assert result.stderr.count("\n") == 1
    assert "loop.onnx" in result.stderr
    assert "bug" not in result.stderr
