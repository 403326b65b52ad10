"""`graphopt explain` and `graphopt bisect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from graphopt.cli.arguments import Exit, Option
from graphopt.cli.console import check_place, progress, read_source, show, show_json, write_page
from graphopt.cli.options import Data, Html, Json, Model, Opaque, Passes, Patience, Seed, Sizes, feed
from graphopt.errors import UsageError

if TYPE_CHECKING:
    from graphopt.audit.bisection import Fault
    from graphopt.audit.explaining import Explanation

_PEER = 120.0
"""Seconds for a run of a peer, which may hang."""


def explain(
    model: Model,
    *,
    node: Annotated[list[str] | None, Option(help="Tell the story of this node or value; may be repeated.")] = None,
    measure: Annotated[bool, Option("--measure", help="Measure the gain of each pass, by leaving it out.")] = False,
    chosen: Passes,
    sizes: Sizes,
    opaque_weights: Opaque = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Explain the rewrites of a model, in order, and near misses with their reasons."""
    from graphopt.audit.explaining import explain as explained
    from graphopt.audit.explaining import explain_with_graphs
    from graphopt.audit.gains import measure_gains
    from graphopt.audit.settings import Settings

    manager = chosen.manager(sizes, opaque_weights=opaque_weights)
    settings = Settings.of(manager)
    check_place(html, model)
    given = manager.prepared(read_source(model))
    found, drawing = (explained(given, settings), None) if html is None else explain_with_graphs(given, settings)
    if measure:
        with progress("measuring what each pass is worth") as told:
            measure_gains(found, given, settings, progress=told)
    if html is not None:
        from graphopt.audit.html import explanation_html

        write_page(html, explanation_html(Path(model).name, found, drawing))
    _tell(found, node or [], as_json=as_json)


def _tell(found: Explanation, names: list[str], *, as_json: bool) -> None:
    """Print the whole explanation, or the stories of some nodes and values."""
    from graphopt.audit.storytelling import render_explanation, render_story

    stories = [found.story(name) for name in names]
    if as_json:
        show_json([story.to_dict() for story in stories] if names else found.to_dict())
    elif names:
        show(*(part for story in stories for part in render_story(story)))
    else:
        show(*render_explanation(found))


def bisect(
    model: Model,
    *,
    peer: Annotated[str | None, Option(help="Search this peer's passes (ort-all: its transformers).")] = None,
    suspect: Annotated[
        list[str] | None, Option("--pass", help="With --peer: only this pass; may be repeated, in order.", commas=True)
    ] = None,
    chosen: Passes,
    sizes: Sizes,
    output: Annotated[
        str, Option("--output", "-o", help="The file for the smallest model that shows it.")
    ] = "fault.onnx",
    data: Data = None,
    seed: Seed = 0,
    timeout: Patience = None,
    as_json: Json = False,
) -> None:
    """Find the one rewrite that makes the result differ, and the smallest model that shows it. Exit code 1: found."""
    from graphopt.audit.bisection import bisect as search
    from graphopt.audit.blame import blame

    if suspect and peer is None:
        raise UsageError("--pass names passes of another optimizer: give --peer, or --passes for graphopt's own")
    check_place(output, model, data)
    given, manager = read_source(model), chosen.manager(sizes)
    known: dict[str, Any] = {"numerics": chosen.numerics, "seed": seed, "feed": feed(data)}
    with progress(f"bisecting {model}") as told:
        prepared = manager.prepared(given)
        if peer is not None:
            seconds = _PEER if timeout is None else timeout
            fault = blame(prepared, peer, only=suspect or (), timeout=seconds, progress=told, **known)
        else:
            fault = search(prepared, manager, timeout=timeout, progress=told, **known)
    if fault is None:
        show_json({"fault": None}) if as_json else show("no rewrite makes the result differ: nothing to find")
        return
    _write(fault, output)
    if as_json:
        written = output if fault.reproduction is not None else None
        show_json({"fault": {**fault.to_dict(), "reproduction": written}})
    else:
        _show(fault, output)
    raise Exit(1)


def _write(fault: Fault, output: str) -> None:
    if fault.reproduction is None:
        return
    from graphopt.ir import Model as View

    View.load(fault.reproduction).save(output)


def _show(fault: Fault, output: str) -> None:
    show(*fault.parts())
    if fault.reproduction is not None:
        size = "1 node that shows it" if fault.nodes == 1 else f"{fault.nodes} nodes that show it"
        show(f"{output}: {size}; found with {fault.tests} comparisons")
