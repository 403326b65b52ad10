"""Moving transposes keeps the numbers of random programs, and leaves little to transpose where networks have many."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.manager import PassManager
from tests.passes.layout_models import run
from tests.passes.transposed_programs import Program

SEEDS = 400
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs_keep_their_numbers(part: int) -> None:
    fired = 0
    for seed in range(part, SEEDS, PARTS):
        program = Program(seed)
        for _ in range(program.rng.randint(5, 14)):
            program.step()
        model = program.model()
        result = PassManager(passes="move_transposes", strict=True, check=True).run(model)
        if not result.changed:
            continue
        fired += 1
        feeds = {n: program.numbers.standard_normal(s).astype(np.float32) for n, s in program.inputs.items()}
        for before, after in zip(_results(model, feeds), _results(result.model, feeds), strict=True):
            np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}")
    assert fired >= SEEDS // PARTS // 8


def _results(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [np.asarray(value) for value in run(model, feeds)]


class _ChannelsLast:
    """A network whose exporter transposed around every operator that wants channels first."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.numbers = np.random.default_rng(0)

    def op(self, op_type: str, *inputs: str | np.ndarray, **attrs: object) -> str:
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        self.nodes.append(helper.make_node(op_type, names, [f"v{len(self.nodes)}"], **attrs))
        return str(self.nodes[-1].output[0])

    def _constant(self, array: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(array, f"c{len(self.constants)}"))
        return str(self.constants[-1].name)

    def conv(self, x: str, channels: int, out: int, size: int, group: int = 1) -> str:
        """A convolution and its normalization."""
        weight = self.numbers.standard_normal((out, channels // group, size, size)).astype(np.float32)
        x = self.op("Transpose", x, perm=[0, 3, 1, 2])
        x = self.op("Conv", x, weight, auto_pad="SAME_UPPER", group=group)
        x = self.op("Transpose", x, perm=[0, 2, 3, 1])
        x = self.op("Mul", x, self.numbers.random(out).astype(np.float32))
        return self.op("Add", x, self.numbers.standard_normal(out).astype(np.float32))

    def gate(self, x: str, channels: int) -> str:
        """Squeeze and excitation."""
        y = self.op("ReduceMean", x, axes=[1, 2], keepdims=1)
        y = self.op("Relu", self.conv(y, channels, 4, 1))
        return self.op("Mul", x, self.op("Sigmoid", self.conv(y, 4, channels, 1)))

    def model(self, batch: int | str) -> onnx.ModelProto:
        """Blocks with gates and residuals, a resized branch that is joined, and a classifier."""
        x = self.op("Relu", self.conv("x", 3, 8, 3))
        for _ in range(3):
            y = self.op("Relu", self.conv(x, 8, 16, 1))
            y = self.gate(self.op("Relu", self.conv(y, 16, 16, 3, 16)), 16)
            x = self.op("Add", x, self.conv(y, 16, 8, 1))
        y = self.op("Transpose", x, perm=[0, 3, 1, 2])
        y = self.op("Resize", y, "", np.array([1, 1, 2, 2], np.float32), mode="nearest")
        y = self.op("Transpose", y, perm=[0, 2, 3, 1])
        y = self.op("Concat", y, self.conv(y, 8, 8, 3), axis=3)
        z = self.op("MatMul", self.op("ReduceMean", x, axes=[1, 2], keepdims=0), np.ones((8, 5), np.float32))
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 12, 12, 3])]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in (y, z)]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("batch", [1, "n"])
def test_network_with_channels_last(batch: int | str) -> None:
    """One transpose for the input and one for the output are left, and every normalization is in its convolution."""
    model = _ChannelsLast().model(batch)
    result = PassManager("basic").run(model)
    kinds = [node.op_type for node in result.model.graph.node]
    assert kinds.count("Transpose") == 2
    assert kinds.count("Reshape") == 0
    assert (kinds.count("Mul"), kinds.count("Add")) == (3, 3)
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 12, 12, 3)).astype(np.float32)}
    for before, after in zip(_results(model, feeds), _results(result.model, feeds), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-3 * float(np.abs(before).max()))
