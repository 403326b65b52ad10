"""What rules build nodes with."""

from __future__ import annotations

import onnx

from graphopt.ir import Model, Node
from graphopt.rewrite import Driver, Log, OpRule, Outcome, Rewriter


def test_an_operator_again_keeps_its_domain_and_its_attributes() -> None:
    class Twice(OpRule):
        """Multiply the opposite by itself."""

        name = "twice"
        ops = ("com.microsoft::FusedMatMul",)

        def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
            if node.attr("alpha", 1.0) == 1:
                return None
            x = rw.op("Neg", node.inputs[0])
            return rw.replace(node, [rw.again(node, x, x, alpha=1.0, transA=None)])

    head = '<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]>'
    body = "{ y = com.microsoft.FusedMatMul <alpha = 2.0, transA = 1, transB = 1> (x, x) }"
    model = Model.load(onnx.parser.parse_model(f"{head} g (float[2, 2] x) => (float[2, 2] y) {body}"))
    driver = Driver(model, Log(listen=True), check=True)
    driver.infer()
    driver.run_rules([Twice()])
    _, made = model.graph
    assert made.op == "com.microsoft::FusedMatMul"
    assert made.attrs == {"alpha": 1.0, "transB": 1}
