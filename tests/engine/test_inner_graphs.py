"""Every pass of a level works inside of branches, bodies and functions too, at any depth."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper, parser

from graphopt import optimize
from graphopt.ir import Model
from graphopt.manager import PassManager
from graphopt.rewrite import Options
from graphopt.verify import assert_equivalent

HEAD = '<ir_version: 10, opset_import: ["" : 18, "local" : 1]> '
WASTE = "{0}1 = Identity ({1})  {0}2 = Transpose <perm = [1,0]> ({0}1)  {0}3 = Transpose <perm = [1,0]> ({0}2)  {2} = Neg ({0}3)"
"""Four nodes of which one is needed: prefix, what they read, what they put out."""

PLACES = {
    "main graph": "g (float[2,2] x) => (float[2,2] y) { " + WASTE.format("a", "x", "y") + " }",
    "branches": "g (float[2,2] x, bool d) => (float[2,2] y) { y = If (d) <then_branch = t () => (float[2,2] p) { "
    + WASTE.format("a", "x", "p") + " }, else_branch = f () => (float[2,2] q) { " + WASTE.format("b", "x", "q") + " }> }",
    "loop": "g (float[2,2] x, int64 m, bool c) => (float[2,2] y) { y = Loop (m, c, x) <body = b (int64 i, bool ci,"
    " float[2,2] s) => (bool co, float[2,2] so) { co = Identity (ci)  " + WASTE.format("a", "s", "so") + " }> }",
    "scan": "g (float[2,2] x, float[N,2,2] w) => (float[2,2] y) { y = Scan <num_scan_inputs = 1, body = b (float[2,2] s,"
    " float[2,2] e) => (float[2,2] so) { u = Add (s, e)  " + WASTE.format("a", "u", "so") + " }> (x, w) }",
    "branch in a loop": "g (float[2,2] x, int64 m, bool c, bool d) => (float[2,2] y) { y = Loop (m, c, x) <body = b ("
    "int64 i, bool ci, float[2,2] s) => (bool co, float[2,2] so) { co = Identity (ci)  so = If (d) <then_branch = t ()"
    " => (float[2,2] p) { " + WASTE.format("a", "s", "p") + " }, else_branch = f () => (float[2,2] q) { "
    + WASTE.format("b", "x", "q") + " }> }> }",
    "function": 'g (float[2,2] x) => (float[2,2] y) { y = local.f (x) } <domain: "local", opset_import: ["" : 18]> '
    "f (u) => (v) { " + WASTE.format("a", "u", "v") + " }",
    "branch in a function": "g (float[2,2] x, bool d) => (float[2,2] y) { y = local.f (x, d) } "
    '<domain: "local", opset_import: ["" : 18]> f (u, d) => (v) { v = If (d) <then_branch = t () => (float[2,2] p) { '
    + WASTE.format("a", "u", "p") + " }, else_branch = e () => (float[2,2] q) { " + WASTE.format("b", "u", "q") + " }> }",
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_waste_goes_everywhere(place: str) -> None:
    model = parser.parse_model(HEAD + PLACES[place])
    result = PassManager("basic", strict=True, check=True).run(model)
    ops = result.after.ops
    assert ops["Neg"] == result.before.ops["Neg"]
    assert not ops.get("Transpose")
    assert ops.get("Identity", 0) == PLACES[place].count("co = Identity")
    assert_equivalent(model, result.model)


@pytest.mark.parametrize("limit", [0, 5, 6])
def test_the_limit_of_unrolling_is_kept(limit: int) -> None:
    """Two rounds of three nodes."""
    text = (
        "g (float[2] x) => (float[2] y) <int64 m = {2}, bool c = {1}> { y = Loop (m, c, x) <body = b (int64 i, bool ci,"
        " float[2] s) => (bool co, float[2] so) { co = Identity (ci)  a = Sin (s)  so = Exp (a) }> }"
    )
    manager = PassManager(passes="eliminate_loop_with_const_trip_count", options=Options(unroll_limit=limit))
    assert ("Loop" in manager.run(parser.parse_model(HEAD + text)).after.ops) == (limit < 6)


def test_functions_that_multiply_do_not_drown_inference() -> None:
    """Inference goes into a function at every call: of these it would see 2**40 nodes."""
    head = '<domain: "local", opset_import: ["" : 18, "local" : 1]> '
    functions = [head + "f0 (a) => (r) { r = Neg (a) }"]
    functions += [head + f"f{k} (a) => (r) {{ b = local.f{k - 1} (a)  r = local.f{k - 1} (b) }}" for k in range(1, 41)]
    model = parser.parse_model(HEAD + "g (float[2] x) => (float[2] y) { y = local.f40 (x) } " + " ".join(functions))
    result = PassManager(strict=True).run(model)
    assert len(result.model.functions) == 41
    assert Model.load(result.model).graph.first is not None


@pytest.mark.parametrize(("side", "moved"), [(512, True), (513, False)])
def test_large_constants_stay_outside_of_bodies(side: int, *, moved: bool) -> None:
    """Those of the main graph alone can be in a file beside the model."""
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1,{side}] x, int64 n) => (float[1,{side}] y)
        {{ y = Loop (n, "", x) <body = b (int64 i, bool ci, float[1,{side}] s) => (bool co, float[1,{side}] o)
            {{ co = Identity (ci)  o = MatMul (s, w) }}> }}""")
    model.graph.initializer.append(numpy_helper.from_array(np.eye(side, dtype=np.float32), "w"))
    result = optimize(model, passes=["move_constants_into_bodies"])
    inside = [tensor.name for tensor in result.graph.node[0].attribute[0].g.initializer]
    assert (inside, len(result.graph.initializer)) == ((["w"], 0) if moved else ([], 1))
