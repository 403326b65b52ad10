"""`graphopt layout`: the plan of the blocked layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphopt.cli.console import read_source, show, show_json
from graphopt.cli.options import Json, Opset, Sizes, Target
from graphopt.cli.options import Model as Given

if TYPE_CHECKING:
    from graphopt.ir import Model

_PASS = "convert_layout_nchwc"
_BLOCKED = ("Conv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool")
_TITLES = ("node", "operator", "becomes", "NCHW us", "blocked us")


def layout(
    model: Given,
    *,
    target: Target = None,
    opset: Opset = None,
    sizes: Sizes,
    as_json: Json = False,
) -> None:
    """Show which nodes would use the blocked layout, which not and why, with the estimated times of both forms."""
    from rich.text import Text

    from graphopt.manager import PassManager

    first = PassManager(
        "basic", strict=True, opset=opset, shapes=sizes.shapes, dims=sizes.dims, inline_functions=True
    )  # like level `all`, whose plan this is
    clean = first.run(read_source(model)).view  # a view: unneeded weights are not read
    result = PassManager(passes=f"convert_gemm_to_conv,{_PASS}", target=target, explain=True).run(clean)
    plan = result.log.findings.get(_PASS, [])
    if as_json:
        show_json([dict(zip(_TITLES, row, strict=True)) for row in plan])
        return
    if not plan:
        show(f"nothing here has a blocked form: {_nothing(clean)}")
        return
    show(Text("  NCHW us  blocked us", style="bold"))
    for node, operator, becomes, plain, blocks in plan:
        show(Text(f"{plain:>9}  {blocks:>10}  {operator}({node}): {becomes}"))
    blocked = sum(row[2].startswith("blocked") for row in plan)
    show(f"{blocked} of {len(plan)} nodes in blocks")
    show("us: microseconds on one thread, estimated, without reorders")


def _nothing(model: Model) -> str:
    """Why no node of a model has a blocked form."""
    found = [node for node in model.nodes() if node.op in _BLOCKED]
    if not found:
        return "no convolutions or pools"
    if all(node.graph.in_function for node in found):
        return "all convolutions and pools are in functions that cannot be inlined, and types are not known there"
    return "no convolution or pool is known to be of float32 over images"
