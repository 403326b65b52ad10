"""`graphopt explain` and `graphopt bisect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from graphopt.cli.arguments import Argument, Exit, Option
from graphopt.cli.console import check_place, progress, read_source, show, show_json, write_page
from graphopt.cli.sizes import parse_dims, parse_shapes
from graphopt.errors import ModelError, UsageError

if TYPE_CHECKING:
    from graphopt.audit.bisection import Fault
    from graphopt.audit.settings import Settings

Source = Annotated[str, Argument(metavar="MODEL", help="The model; `-` reads standard input.")]
Level = Annotated[str, Option(help="basic, extended, layout or all.")]
Passes = Annotated[str | None, Option(help="A pipeline, or pass names, in place of the level's.")]
Skip = Annotated[list[str] | None, Option(help="A pass to leave out; may be repeated.")]
Numerics = Annotated[str, Option(help="exact, rounding or fast.")]
Json = Annotated[bool, Option("--json", help="Report as JSON.")]


def explain(
    model: Source,
    *,
    node: Annotated[list[str] | None, Option(help="Tell the story of this node or value; may be repeated.")] = None,
    measure: Annotated[bool, Option("--measure", help="Measure what each pass is worth, by leaving it out.")] = False,
    level: Level = "basic",
    passes: Passes = None,
    skip: Skip = None,
    numerics: Numerics = "rounding",
    machine: Annotated[str | None, Option("--target", help="The machine for layout passes; default: host.")] = None,
    shape: Annotated[list[str] | None, Option(help="Fix an input's shape, like input=1,3,224,224.")] = None,
    dim: Annotated[list[str] | None, Option(help="Fix a symbolic dimension, like batch=1.")] = None,
    opset: Annotated[int | None, Option(help="Bring the model to this opset first.")] = None,
    html: Annotated[str | None, Option(help="Write a self-contained HTML report to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Tell what was done to a model, in order, and why not more: near misses with their reasons."""
    from graphopt.audit.explaining import explain as explained
    from graphopt.audit.explaining import explain_with_graphs
    from graphopt.audit.gains import measure_gains
    from graphopt.audit.settings import Settings
    from graphopt.audit.storytelling import render_explanation, render_story
    from graphopt.manager import PassManager

    manager = PassManager(
        level, passes=passes, skip=skip or [], numerics=numerics, target=machine, shapes=parse_shapes(shape or []),
        dims=parse_dims(dim or []), opset=opset,
    )  # fmt: skip
    settings = Settings.of(manager)
    check_place(html)
    given = manager.prepared(read_source(model))
    drawing = None
    if html is None:
        found = explained(given, settings)
    else:
        found, drawing = explain_with_graphs(given, settings)
    if measure:
        with progress("measuring what each pass is worth") as told:
            measure_gains(found, given, settings, progress=told)
    if html is not None:
        from graphopt.audit.html import explanation_html

        write_page(html, explanation_html(Path(model).name, found, drawing))
    if node:
        stories = [found.story(name) for name in node]
        if as_json:
            show_json([story.to_dict() for story in stories])
        else:
            show(*(part for story in stories for part in render_story(story)))
    elif as_json:
        show_json(found.to_dict())
    else:
        show(*render_explanation(found))


def _settings(level: str, passes: str | None, skip: list[str] | None, numerics: str) -> Settings:
    from graphopt.audit.settings import Settings
    from graphopt.manager import PassManager

    return Settings.of(PassManager(level, passes=passes, skip=skip or [], numerics=numerics))


def bisect(
    model: Source,
    *,
    peer: Annotated[str | None, Option(help="Look at this peer's passes (ort-all: its transformers).")] = None,
    suspect: Annotated[
        list[str] | None, Option("--pass", help="With --peer: only this pass; may be repeated, in order.")
    ] = None,
    level: Level = "basic",
    passes: Passes = None,
    skip: Skip = None,
    numerics: Numerics = "rounding",
    output: Annotated[
        str, Option("--output", "-o", help="Where to write the smallest model that shows it.")
    ] = "fault.onnx",
    data: Annotated[str | None, Option(help="An .npz file with inputs on which the difference shows.")] = None,
    dim: Annotated[list[str] | None, Option(help="Size of a symbolic dimension, like batch=1.")] = None,
    seed: Annotated[int, Option(help="Seed of the generated inputs.")] = 0,
    as_json: Json = False,
) -> None:
    """Find the one rewrite that makes the result differ, and the smallest model that shows it. Exit code 1: found."""
    from graphopt.audit.bisection import bisect as search
    from graphopt.audit.blame import blame
    from graphopt.audit.feeds import load_data

    if suspect and peer is None:
        raise UsageError("--pass names passes of another optimizer: give --peer, or --passes for graphopt's own")
    check_place(output)
    feed = load_data(Path(data)) if data is not None else None
    given = read_source(model)
    options: dict[str, Any] = {"numerics": numerics, "seed": seed, "dims": parse_dims(dim or []), "feed": feed}
    with progress(f"bisecting {model}") as told:
        if peer is not None:
            fault = blame(given, peer, only=suspect or (), progress=told, **options)
        else:
            fault = search(given, _settings(level, passes, skip, numerics), progress=told, **options)
    if fault is None:
        show_json({"fault": None}) if as_json else show("the result agrees with the original: nothing to find")
        return
    _write(fault, output)
    if as_json:
        written = output if fault.reproduction is not None else None
        show_json({"fault": {**fault.to_dict(), "reproduction": written}})
    else:
        _show(fault, output)
    raise Exit(1)


def _write(fault: Fault, output: str) -> None:
    import onnx

    if fault.reproduction is None:
        return
    try:
        onnx.save(fault.reproduction, output)
    except OSError as error:
        raise ModelError(f"cannot write {output}: {error.strerror or error}") from None


def _show(fault: Fault, output: str) -> None:
    show(*fault.parts())
    if fault.reproduction is not None:
        show(f"{output}: {fault.nodes} nodes that show it; found with {fault.tests} comparisons")
