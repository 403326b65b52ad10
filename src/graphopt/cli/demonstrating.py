"""`graphopt demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from graphopt.cli.arguments import Argument, Option
from graphopt.cli.auditing import report
from graphopt.cli.console import progress, show
from graphopt.errors import UsageError
from graphopt.system.files import scratch

_MODELS = ("mobilenet_v2", "resnet18", "conv_alone", "conv_maxpool")


def demo(
    name: Annotated[str, Argument(metavar="[NAME]", help=f"One of {', '.join(_MODELS)}.")] = "mobilenet_v2",
    budget: Annotated[float, Option(help="Seconds of timing.", min=0)] = 20.0,
    write: Annotated[str | None, Option(help="Only write the model to this file.")] = None,
    as_json: Annotated[bool, Option("--json", help="Report as JSON.")] = False,
) -> None:
    """Build a demo model in the raw form that exporters leave, and audit it against every installed optimizer."""
    if name not in _MODELS:
        raise UsageError(f"unknown demo model {name!r}; expected one of {', '.join(_MODELS)}")
    from graphopt import demo as models
    from graphopt.ir import Model

    model = Model.load(getattr(models, name)())
    if write is not None:
        model.save(write)
        show(f"wrote {write}")
        return
    from graphopt.audit import audit

    with scratch() as folder:
        path = Path(folder) / f"{name}.onnx"
        model.save(path)
        with progress(f"auditing {name}") as told:
            found = audit(path, budget=budget, progress=told)
    report(found, as_json=as_json, as_markdown=False)
