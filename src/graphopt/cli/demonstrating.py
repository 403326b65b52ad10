"""`graphopt demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from graphopt.cli.arguments import Argument, Option
from graphopt.cli.console import plain_table, progress, show, show_json
from graphopt.cli.options import Json
from graphopt.errors import UsageError
from graphopt.system.files import scratch

if TYPE_CHECKING:
    from graphopt.audit import Audit
    from graphopt.audit.record import Row

_SHOWN = {
    "mobilenet_v3": "torch.export",
    "mobilenet_v2": "training form",
    "mobilenet_v2_int8": "quantized",
}
"""The networks of a demo without a name, and the peculiarity of each."""

_MODELS = (*_SHOWN, "resnet18", "conv_alone", "conv_maxpool")
_LEVELS = ("basic", "all")
_AGAINST = ("onnxoptimizer", "onnxsim", "onnxslim", "onnxscript", "ort-all")


def demo(
    name: Annotated[
        str | None, Argument(metavar="[NAME]", help=f"One of {', '.join(_MODELS)}; three of them when left out.")
    ] = None,
    budget: Annotated[float, Option(help="Seconds of timing for each network.", min=0)] = 6.0,
    write: Annotated[str | None, Option(help="Only write the model NAME to this file.")] = None,
    long: Annotated[bool, Option("--long", help="Also show the whole audit of each network.")] = False,
    as_json: Json = False,
) -> None:
    """Compare all installed optimizers on three networks, or one: nodes left, and speed."""
    if name is not None and name not in _MODELS:
        raise UsageError(f"unknown demo model {name!r}; expected one of {', '.join(_MODELS)}")
    if write is not None:
        if name is None:
            raise UsageError(f"--write needs a NAME, one of {', '.join(_MODELS)}")
        _write(name, write)
        return
    audits = _audits([name] if name is not None else list(_SHOWN), budget)
    if as_json:
        reports = [found.to_dict() for found in audits.values()]
        show_json(reports if name is None else reports[0])
        return
    if long or name is not None:
        for found in audits.values():
            show(found)
    if name is None:
        show(_table(audits), "", *_sentences(audits))


def _write(name: str, place: str) -> None:
    from graphopt.ir import Model

    Model.load(_built(name)).save(place)
    show(f"wrote {place}")


def _built(name: str) -> Any:
    from graphopt import demo as models

    return getattr(models, name)()


def _audits(names: list[str], budget: float) -> dict[str, Audit]:
    from graphopt.audit import audit
    from graphopt.audit.rivals import installed
    from graphopt.ir import Model

    against = [peer for peer in installed() if peer in _AGAINST] if len(names) > 1 else None
    levels = _LEVELS if len(names) > 1 else ("basic", "extended", "all")
    found = {}
    with scratch() as folder, progress("building") as told:
        for number, name in enumerate(names):

            def tell(what: str, part: float, done: int = number, of: str = name) -> None:
                told(f"{of}: {what}", (done + part) / len(names))

            tell("building", 0)
            path = Path(folder) / f"{name}.onnx"
            Model.load(_built(name)).save(path)
            found[name] = audit(path, levels=levels, against=against, budget=budget, progress=tell)
    return found


def _table(audits: dict[str, Audit]) -> Any:
    """One table for all networks: nodes left, and the speed-up over ONNX Runtime alone; fits into 80 columns."""
    from graphopt.audit import columns

    heads = [head for name in audits for head in (_SHOWN[name], "speed")]
    table = plain_table("nodes left", *heads)
    table.columns[0].no_wrap = True
    rows = dict.fromkeys(row.name for found in audits.values() for row in found.rows)
    for title in rows:
        cells = []
        for found in audits.values():
            row = next((row for row in found.rows if row.name == title), None)
            if row is None or row.contents is None:
                cells += [columns.ABSENT if row is None else row.status, ""]
            else:
                cells += [f"{row.contents.nodes:,}", _speed(row, found)]
        own = title.startswith("graphopt")
        table.add_row(title, *cells, style="bold" if own else "")
    return table


def _speed(row: Row, found: Audit) -> str:
    from graphopt.audit import columns

    text = columns.against(row, found.threads[0], found)
    return "tie" if text.endswith(" tie") else text


def _sentences(audits: dict[str, Audit]) -> list[str]:
    from graphopt.audit.verdict import sentence

    said = [f"{name} ({_SHOWN[name]}): {sentence(found)}" for name, found in audits.items()]
    base = next(iter(audits.values())).baseline
    return [*said, "", f"speed: against {base!r}; --long shows everything, NAME one network"]
