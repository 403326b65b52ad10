"""Convolutional graphs, and the pass run over them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from graphopt import Options, PassManager
from graphopt.results import Result

PASS = "convert_layout_nchwc"


def convert(
    model: onnx.ModelProto,
    target: str | None = None,
    *,
    force: bool = True,
    limit: int | None = None,
    check: bool = True,
) -> Result:
    options = Options(extra={PASS: {"force": force}})
    settings = {"strict": True, "check": check, "explain": True, "limit": limit}
    return PassManager(passes=PASS, target=target, options=options, **settings).run(model)


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def run_if_finite(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """The results; None where some value of the model is infinite or NaN, of which the plan does not speak."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    outputs = {out.name for out in model.graph.output}
    floats = [node for node in model.graph.node if node.op_type != "QuantizeLinear"]
    made = [name for node in floats for name in node.output if name not in outputs]
    shown.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in made)
    found = run(shown, feeds)
    return found[: len(outputs)] if all(np.isfinite(array).all() for array in found) else None


def assert_close(expected: list[np.ndarray], found: list[np.ndarray]) -> None:
    assert len(expected) == len(found)
    for a, b in zip(expected, found, strict=True):
        assert a.shape == b.shape
        scale = max(float(np.abs(a).max(initial=0)), 1e-3)
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=2e-4 * scale)


def blocked_ops(model: onnx.ModelProto) -> list[str]:
    graphs = [model.graph]
    for graph in graphs:
        graphs += [a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return [node.op_type for graph in graphs for node in graph.node if node.domain == "com.microsoft.nchwc"]


@dataclass
class Image:
    name: str
    channels: int
    height: int
    width: int


@dataclass
class Builder:
    seed: int
    opset: int = 17
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    images: list[Image] = field(default_factory=list)
    numbers: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def weight(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = array
        return name

    def random(self, *shape: int, scale: float = 1.0) -> str:
        return self.weight((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def op(self, op: str, *inputs: str, outputs: int = 1, **attrs: object) -> list[str]:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attrs))
        return names

    def number(self) -> str:
        """A scalar that comes at run time."""
        self.numbers += 1
        return f"number{self.numbers}"

    def image(self, name: str, channels: int, height: int, width: int) -> Image:
        made = Image(name, channels, height, width)
        self.images.append(made)
        return made

    def model(self, outputs: list[Image], batch: int, *, dynamic: bool) -> onnx.ModelProto:
        first = self.images[0]
        dims = ["N", first.channels, "H", "W"] if dynamic else [batch, first.channels, first.height, first.width]
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
        scalars = [helper.make_tensor_value_info(f"number{n + 1}", TensorProto.FLOAT, []) for n in range(self.numbers)]
        outs = [helper.make_tensor_value_info(o.name, TensorProto.FLOAT, [None] * 4) for o in outputs]
        tensors = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(self.nodes, "g", [x, *scalars], outs, tensors)
        domains = {"": self.opset} | {node.domain: 1 for node in self.nodes if node.domain}
        imports = [helper.make_opsetid(*each) for each in domains.items()]
        return helper.make_model(graph, opset_imports=imports, ir_version=9)


def in_branch(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same computation in a branch that is taken, with the image and all weights captured."""
    graph = model.graph
    results = [output.name for output in graph.output]
    then = helper.make_graph(list(graph.node), "then", [], list(graph.output))
    others = [helper.make_tensor_value_info(f"{name}_else", TensorProto.FLOAT, [None] * 4) for name in results]
    copies = [helper.make_node("Identity", [graph.input[0].name], [other.name]) for other in others]
    otherwise = helper.make_graph(copies, "else", [], others)
    names = [f"{name}_out" for name in results]
    node = helper.make_node("If", ["is_taken"], names, then_branch=then, else_branch=otherwise)
    taken = helper.make_tensor_value_info("is_taken", TensorProto.BOOL, [])
    outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * 4) for name in names]
    whole = helper.make_graph([node], "g", [*graph.input, taken], outs, list(graph.initializer))
    return helper.make_model(whole, opset_imports=model.opset_import, ir_version=9)
