"""Sizes that become constant in a body that may never run, where what is declared says otherwise."""

from __future__ import annotations

import onnx
import pytest

from graphopt import PassManager
from graphopt.ir import Model
from graphopt.rewrite import Driver

DECLARED = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (bool c, float[4] x, float[n] z) => (float[?] y)
    <float[1] f = {{{size}}}, float[1] one = {{1}}>
    {{
        y = If (c) <
            then_branch = a () => (float[4] p) {{
                m = Mul (f, one)  s = Cast <to = 7> (m)  r = Reshape (z, s)  p = Neg (r)
            }},
            else_branch = b () => (float[4] q) {{ q = Neg (x) }}
        >
    }}
"""


@pytest.mark.parametrize(("size", "folded"), [(4, True), (6, False)])
@pytest.mark.parametrize("level", ["basic", "all"])
def test_an_output_keeps_the_shape_that_it_says(level: str, size: int, *, folded: bool) -> None:
    """Inference that is strict knows the size of a constant: of 6 elements none is a vector of 4."""
    model = onnx.parser.parse_model(DECLARED.format(size=size))
    onnx.checker.check_model(model, full_check=True)
    result = PassManager(level).run(model).model
    onnx.checker.check_model(result, full_check=level == "basic")
    ops = [node.op_type for attribute in result.graph.node[0].attribute for node in attribute.g.node]
    assert ("Cast" not in ops) == folded


REFUSED = """
    <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (bool c, float[1,2] x) => (float[1,2] y) { y = local.f (c, x) }
    <domain: "local", opset_import: ["" : 17]>
    f (c, x) => (y) {
        one = Constant <value = int64[1] {1}> ()
        a = Mul (one, one)
        y = If (c) <
            then_branch = t () => (float[1,2] p) { s = Squeeze (x, a)  p = Add (x, s) },
            else_branch = e () => (float[1,2] q) { q = Neg (x) }
        >
    }
"""


@pytest.mark.parametrize("settings", [{"level": "all"}, {"passes": "inline_functions,eliminate_nop_with_unit"}])
def test_a_branch_that_was_just_inlined_refuses_constants_too(settings: dict[str, str]) -> None:
    """Its values have no types yet."""
    model = onnx.parser.parse_model(REFUSED)
    onnx.checker.check_model(model, full_check=True)
    result = PassManager(**settings, strict=True).run(model)
    onnx.checker.check_model(result.model, full_check=True)
    assert result.hits["inline_functions"] == 1
    assert "Mul" in [node.op_type for node in result.model.graph.node]


def test_types_are_inferred_again_if_only_an_input_of_a_body_has_none() -> None:
    body = "b (int64 i, bool c, float[m] s) => (bool d, float[k] r) { d = Identity (c)  r = Neg (s) }"
    model = Model.load(
        onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
            g (float[2] x, int64 n) => (float[2] y) {{ y = Loop (n, "", x) <body = {body}> }}""")
    )
    driver = Driver(model)
    driver.infer()
    state = next(iter(model.graph.owners)).subgraphs["body"].inputs[2]
    state.type = None
    driver.rewriter.stale_types = True
    assert driver.refresh_types()
    assert state.shape == (2,)
