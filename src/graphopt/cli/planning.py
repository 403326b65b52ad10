"""`graphopt layout`: the plan of the blocked layout."""

from __future__ import annotations

from typing import Annotated

from graphopt.cli.arguments import Argument, Option
from graphopt.cli.console import read_source, show, show_json

_PASS = "convert_layout_nchwc"
_TITLES = ("node", "operator", "becomes", "NCHW us", "blocked us")


def layout(
    model: Annotated[str, Argument(metavar="MODEL", help="The model; `-` reads standard input.")],
    *,
    target: Annotated[str | None, Option(help="The machine to plan for; default: host.")] = None,
    as_json: Annotated[bool, Option("--json", help="Report as JSON.")] = False,
) -> None:
    """Show what would be computed in blocked layout, what not and why, with the estimated times of both forms."""
    from rich.text import Text

    from graphopt.manager import PassManager

    clean = PassManager("basic", strict=True).run(read_source(model)).model
    result = PassManager(passes=f"convert_gemm_to_conv,{_PASS}", target=target, explain=True).run(clean)
    plan = result.log.findings.get(_PASS, [])
    if as_json:
        show_json([dict(zip(_TITLES, row, strict=True)) for row in plan])
        return
    if not plan:
        show("nothing here has a blocked form: no convolutions or pools of float32 over images")
        return
    show(Text("  NCHW us  blocked us", style="bold"))
    for node, operator, becomes, plain, blocks in plan:
        show(Text(f"{plain:>9}  {blocks:>10}  {operator}({node}): {becomes}"))
    blocked = sum(row[2].startswith("blocked") for row in plan)
    show(f"{blocked} of {len(plan)} nodes in blocks")
    show("us: microseconds on one thread, estimated, without reorders")
