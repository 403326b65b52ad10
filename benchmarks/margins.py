"""The cost of planning the blocked layout with the rates of another machine, with and without the margin of its error.

Each network runs unchanged under ORT_ENABLE_ALL and, with the runtime's optimizer off, as the result of level `all` by
the rates of several machines, each set as stated and with an error of 0. All alternate on one thread; times are CPU
times, the least of all rounds.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.atlas import in_turn
from benchmarks.skeleton import load_skeleton, sample_inputs
from benchmarks.table import grid
from graphopt import Options, PassManager
from graphopt.system.machine import Target, host
from graphopt.system.sessions import open_session
from graphopt_passes.layout.timing import LayoutRates, built_in, rates_of

PAGE = Path(__file__).resolve().parent.parent / "docs" / "layout.md"
BEGIN, END = "<!-- rates of `python -m benchmarks margins` -->", "<!-- end of rates -->"
_PASS = "convert_layout_nchwc"
_LEAST_ROUNDS = 5
NETWORKS = (
    "made/lenet5", "made/mnist_8", "made/few_channels", "made/narrow_chain", "made/dense_blocks", "made/rdn",
    "made/sr_dense_odd", "made/res2net", "made/inception_resnet", "made/fast_scnn", "made/attention_unet",
    "made/blaze_face", "made/cmt", "made/zero_dce", "ts/squeezenet1_1", "ts/googlenet", "ts/mobilenetv3_small_100",
    "ts/shufflenet_v2_x1_0", "ts/efficientnet_b0", "ts/convnext_atto", "ts/yolo_pan", "ts/regnety_002",
)  # fmt: skip
"""Networks with few, odd or concatenated channels, and some ordinary ones."""


def machines() -> Iterator[tuple[str, LayoutRates]]:
    """The rates to plan by: this machine's, unchanged and with all blocked kernels slower, and other machines'."""
    here = rates_of(host())
    yield "this machine", here
    for name in ("avx512-zen4", "avx512-zen5", "avx512-xeon", "avx2", "neon"):
        target = Target.parse(name)
        if (target.name, target.core) != (host().name, host().core):
            yield name, built_in(target)


def run(seconds: float) -> None:
    """Measure all networks, and write the table."""
    rows = []
    for name in NETWORKS:
        rows.append(measure(name, seconds))
        results.save("margins", rows)
        print(rows[-1], flush=True)
    write()


def measure(name: str, seconds: float) -> dict[str, Any]:
    """One network: for each machine's rates its time relative to the runtime's, without the margin and with it."""
    model = load_skeleton(name)
    feed = sample_inputs(name, model, batch=1)
    made, keys = {}, []
    for machine, rates in machines():
        for error in (0.0, rates.error):
            options = Options(extra={_PASS: {"rates": dataclasses.replace(rates, error=error)}})
            file = PassManager("all", options=options).run(model).model.SerializeToString()
            made.setdefault(file, len(made))
            keys.append((machine, made[file]))
    sessions = [open_session(model, level="all"), *(open_session(file) for file in made)]
    first, *others = in_turn(sessions, feed, seconds, _LEAST_ROUNDS)
    shares: dict[str, list[float]] = {}
    for machine, at in keys:
        shares.setdefault(machine, []).append(round(others[at] / first, 3))
    return {"network": name, "shares": shares}


def write() -> None:
    """Write the table into the layout page."""
    stored = results.load("margins")
    assert stored is not None, "nothing was measured yet"
    data, machine = stored["data"], stored["machine"]
    rows = []
    for name in data[0]["shares"]:
        pairs = [(row["network"].partition("/")[2], row["shares"][name]) for row in data]
        cells = [name]
        for at in (0, 1):
            worst = max(pairs, key=lambda pair: pair[1][at])
            cells += [f"{results.geometric_mean(share[at] for _, share in pairs):.3f}"]
            cells += [str(sum(share[at] > 1.01 for _, share in pairs)), f"{worst[1][at]:.2f} ({worst[0]})"]
        rows.append(tuple(cells))
    titles = ("rates of", "without margin", "above 1.01", "greatest", "with margin", "above 1.01", "greatest")
    text = (
        f"{len(data)} networks on {machine['processor']}, one thread, onnxruntime "
        f"{machine['packages']['onnxruntime']}, {machine['day']}, at {machine['revision']}: geometric mean of their "
        "time relative to ORT_ENABLE_ALL, planned with the rates of several machines, without and with the margin for "
        "the error of the rates; how many networks are above 1.01; and the greatest (`python -m benchmarks margins`)."
    )
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(
        f"{before}{BEGIN}\n\n{textwrap.fill(text, 120)}\n\n{grid(titles, rows)}\n\n{END}{rest.partition(END)[2]}"
    )
