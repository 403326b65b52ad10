"""Products that become convolutions: what asking about many of them costs."""

from __future__ import annotations

import onnx
import pytest

from graphopt import PassManager
from graphopt_passes.layout import heads

HEAD = '<ir_version: 9, opset_import: ["" : 18]>'


@pytest.mark.parametrize("blocked", [True, False])
def test_the_blocked_layout_is_planned_once_for_all_products(blocked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = []
    monkeypatch.setattr(heads, "would_block", lambda graph, rw: planned.append(graph) or blocked)
    weights = ", ".join(f"float[16,16] w{n} = {{{', '.join(['1'] * 256)}}}" for n in range(6))
    chain = " ".join(f"p{n} = MatMul (t{n}, w{n}) t{n + 1} = Softmax (p{n})" for n in range(6))
    model = onnx.parser.parse_model(
        f"{HEAD} g (float[1,16,1,1] x) => (float[1,16] t6) <{weights}, float[16,16,1,1] k = {{{', '.join(['1'] * 256)}}}>"
        f"{{ c = Conv (x, k) t0 = Flatten (c) {chain} }}"
    )
    monkeypatch.setattr(heads, "_SMALLEST", {True: 1, False: 1})
    result = PassManager(passes="convert_gemm_to_conv", target="avx2", strict=True).run(model)
    assert result.stats["convert_gemm_to_conv"].attempts >= 6
    assert len(planned) == 1
    assert result.hits.get("convert_gemm_to_conv", 0) == (6 if blocked else 0)
