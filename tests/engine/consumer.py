# ruff: noqa: F841, T201
"""Calls of every function with every keyword, as somebody's program would have them; mypy reads this, nothing runs it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir

from graphopt import (
    ExternalData,
    Level,
    Numerics,
    Options,
    PassManager,
    Target,
    api,
    bisect,
    convert,
    explain,
    fuzz,
    inspect,
    optimize,
    optimize_file,
    profile,
)
from graphopt.results import Result


def told(what: str, part: float) -> None:
    print(what, part)


def called(p: Path, b: bytes, m: onnx.ModelProto, i: onnx_ir.Model) -> None:
    a1: onnx.ModelProto = optimize(p)
    a2: onnx.ModelProto = optimize(b, Level.ALL)
    a3: onnx.ModelProto = optimize(
        m,
        "extended",
        inplace=True,
        passes=["a"],
        skip=("b",),
        numerics="fast",
        target="host",
        verify=False,
        strict=True,
        explain=True,
        profile=True,
        check=True,
        limit=3,
        options=Options(),
        shapes={"x": [1, 2]},
        dims={"n": 1},
        inline_functions=True,
        opset=17,
        opaque_weights="all",
    )
    a4: onnx_ir.Model = optimize(i, numerics=Numerics.EXACT)
    r: Result = optimize_file(
        str(p),
        p,
        "all",
        external_data=ExternalData("w.data"),
        passes="x",
        skip=[],
        numerics=Numerics.FAST,
        target=Target.parse("host"),
        verify=True,
        strict=False,
        explain=False,
        profile=False,
        check=False,
        limit=None,
        options=None,
        shapes=None,
        dims=None,
        inline_functions=False,
        opset=None,
        opaque_weights=None,
    )
    v = api.verify(
        p,
        m,
        numerics=Numerics.EXACT,
        seed=1,
        sets=["ordinary"],
        inputs={"x": np.ones(3)},
        shapes={"x": [1]},
        dims={"n": 1},
        timeout=3.0,
    )
    v2 = api.verify(i, b, inputs=[{"x": np.ones(3)}])
    u = api.audit(
        m,
        {"x": PassManager()},
        ["basic"],
        None,
        threads=[1],
        rounds=1,
        budget=1.0,
        starts=1,
        shapes={"x": [1]},
        dims={"n": 1},
        data={"x": np.ones(1)},
        metric=None,
        numerics="exact",
        target=None,
        verify=True,
        seed=0,
        limits=None,
        keep=p,
        timed=False,
        isolate=False,
        progress=told,
    )
    u2 = api.audit(i, levels=[Level.BASIC, "all"], against=[])
    e = explain(
        i,
        Level.BASIC,
        passes="x",
        opset=17,
        shapes={"x": (1, 2)},
        numerics="fast",
        target="host",
        skip=["y"],
        opaque_weights="missing",
    )
    f = bisect(
        b, "all", seed=0, inputs={"x": np.ones(3)}, timeout=1.0, progress=told, skip=["x"], numerics=Numerics.FAST
    )
    q = profile(
        i,
        parts=["levels"],
        threads=1,
        thread_counts=[1, 2],
        graphopt=False,
        top=1,
        rounds=2,
        budget=1.0,
        shapes={"x": [1]},
        dims={"n": 1},
        inputs={"x": np.ones(3)},
        seed=0,
        progress=told,
    )
    z = fuzz(
        levels=["basic"],
        peers=[],
        passes=[],
        ops=["Add"],
        models=1,
        minutes=None,
        seed="0",
        first=0,
        corpus=p,
        jobs=1,
        reduce=False,
        explain=False,
        until=0,
        thin=1,
        sow=[],
        numerics=Numerics.FAST,
        target=None,
        progress=lambda s: None,
    )
    c: onnx.ModelProto = convert(m, 17, ml_opset=3, runtime=None, inplace=False)
    c1: onnx.ModelProto = convert(i, runtime="tensorrt")
    n = inspect(i)
    for each in (r, v, v2, u, u2, e, q, n, z):
        text: str = each.to_json()
        page: str = each.to_html()
        shown: str = each._repr_html_()
        print(each, text, page, shown)
    if f is not None:
        print(f, f.to_json(), f.to_html(), f._repr_html_())
