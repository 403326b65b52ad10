"""Sizes that become constant in a body that may never run, where what is declared says otherwise."""

from __future__ import annotations

import onnx
import pytest

from graphopt import PassManager

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
