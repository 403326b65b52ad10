"""Make skeletons of exported models: `python -m benchmarks skeletons`.

Replacing each weight with noise of the same mean and variance keeps a layer's scale only on average; after fifty
layers the outputs would vanish, overflow, or no longer depend on the input, and comparisons would be meaningless. So
the graph is evaluated node by node, once with the true weights and once with the drawn ones, and each drawn layer gets
the gain and the biases that give every channel the true mean and the layer its true variance. Gains go into the
recipes; biases are stored, rounded to eight bits of mantissa.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from benchmarks.export import exported
from benchmarks.skeleton import (
    FOLDER,
    KNOTS,
    MARK,
    is_recipe,
    refill,
    sample_inputs,
    save_skeleton,
    tensors,
)

SMALL = 64  # elements; smaller tensors are kept unchanged
FEEDS = 3
_LINEAR = {"Conv": 1, "ConvTranspose": 1, "BatchNormalization": 1, "Gemm": -1, "MatMul": -1, "Add": -1}  # channel axis
_BIAS = {"Conv": 2, "ConvTranspose": 2, "BatchNormalization": 2, "Gemm": 2, "MatMul": -1, "Add": 1}
_THROUGH = {"Transpose", "Reshape", "Identity", "Cast", "Unsqueeze", "Squeeze"}
Env = dict[str, Any]
Moments = tuple[np.ndarray, float]


def make_skeleton(key: str, source: Path, target: Path) -> dict[str, Any]:
    """Write the skeleton of the model at `source`, and check that its outputs are sane; returns its record."""
    original = onnx.load(source)
    feeds = [sample_inputs(key, original, batch=1, seed=seed) for seed in range(FEEDS)]
    drawn = ModelProto()
    drawn.CopyFrom(original)
    for seed, tensor in enumerate(tensors(drawn)):
        describe(tensor, seed)
    reference, wanted = observe(original, feeds)
    Tuner(drawn, wanted).tune(feeds)
    size = save_skeleton(drawn, target)
    refill(drawn)
    answers = [run_once(drawn, feed) for feed in feeds]
    got, want = ([_variation(column) for column in zip(*rows, strict=True)] for rows in (answers, reference))
    ratio = [one / max(two, 1e-12) for one, two in zip(got, want, strict=True)]
    if not all(np.isfinite(ratio)) or not all(0.1 < one < 10 for one in ratio):
        target.unlink()
        raise ValueError(f"the answers of the refilled model vary {ratio} times as much as the true ones")
    return {"name": key, "bytes": size, "variation": [round(one, 2) for one in ratio]}


def _variation(answers: Sequence[np.ndarray]) -> float:
    """The variation of the outputs over different inputs."""
    return float(np.std(np.stack(answers).astype(np.float64), axis=0).mean())


def make_all(keys: list[str] | None, *, force: bool) -> None:
    """Make the skeleton of every export without one, or of the exports `dress/name`."""
    for dress, name, source in exported():
        key = f"{dress}/{name}"
        target = FOLDER / f"{key}.onnx.gz"
        if (keys and key not in keys) or (target.exists() and not force and not keys):
            continue
        try:
            print(make_skeleton(key, source, target), flush=True)
        except Exception as error:
            print(f"{key}: no skeleton: {error}", flush=True)


def describe(tensor: TensorProto, seed: int) -> None:
    """Turn a large random float tensor into a recipe; leave all others unchanged."""
    count = int(np.prod(tensor.dims))
    if count < SMALL or tensor.data_type not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
        return
    array = numpy_helper.to_array(tensor)
    data = array.tobytes()
    if len(zlib.compress(data[: 1 << 20], 6)) < 0.4 * min(len(data), 1 << 20) or not np.isfinite(array).all():
        return  # masks, position tables, constants: their values matter, and they compress well
    recipe = {"location": MARK, "seed": str(seed)}
    if array.ndim < 2 or min(array.shape) == array.size // max(array.shape) == 1:
        knots = np.quantile(array.astype(np.float64), np.linspace(0, 1, KNOTS))
        recipe["knots"] = " ".join(f"{knot:.5g}" for knot in knots)
    else:
        recipe["mean"] = f"{array.mean(dtype=np.float64):.5g}"
        recipe["std"] = f"{array.std(dtype=np.float64):.5g}"
    for field in ("raw_data", "float_data", "double_data", "int32_data"):
        tensor.ClearField(field)
    _write(tensor, recipe)


def _write(tensor: TensorProto, recipe: dict[str, str]) -> None:
    tensor.ClearField("external_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in recipe.items():
        tensor.external_data.add(key=key, value=value)


class Walker:
    """Evaluates the main graph of a model node by node, for several inputs in parallel."""

    def __init__(self, model: ModelProto, feeds: list[dict[str, np.ndarray]]) -> None:
        self.model = model
        self.consts: Env = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self.envs: list[Env] = [dict(feed) for feed in feeds]

    def run(self, visit: Callable[[int, NodeProto], list[Env] | None]) -> list[list[np.ndarray]]:
        """Evaluate all nodes; `visit` may give a node's outputs itself. Returns the model's outputs for each feed."""
        graph = self.model.graph
        keep = {value.name for value in graph.output}
        last = {name: at for at, node in enumerate(graph.node) for name in _reads(node)}
        for at, node in enumerate(graph.node):
            answers = visit(at, node)
            if answers is None:
                answers = self.evaluate(node)
            if len(answers) == 1:
                self.consts.update(answers[0])
            else:
                for env, answer in zip(self.envs, answers, strict=True):
                    env.update(answer)
            for name in _reads(node):
                if last[name] == at and name not in keep:
                    for env in self.envs:
                        env.pop(name, None)
        return [[env.get(value.name, self.consts.get(value.name)) for value in graph.output] for env in self.envs]

    def evaluate(self, node: NodeProto) -> list[Env]:
        """The outputs of one node for each feed, or once if none of its inputs depends on the feed."""
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            return [{node.output[0]: numpy_helper.to_array(node.attribute[0].t)}]
        reads = sorted(name for name in _reads(node) if name in self.envs[0] or name in self.consts)
        envs = self.envs if any(name in self.envs[0] for name in reads) else [{}]
        feeds = [{name: env[name] if name in env else self.consts[name] for name in reads} for env in envs]
        outputs = [name for name in node.output if name]
        graph = helper.make_graph(
            [node],
            "one",
            [_value_info(name, feeds[0][name]) for name in reads],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
        )
        single = helper.make_model(
            graph,
            opset_imports=list(self.model.opset_import),
            ir_version=self.model.ir_version,
            functions=list(self.model.functions),
        )
        session = _session(single)
        return [dict(zip(outputs, session.run(None, feed), strict=True)) for feed in feeds]


def _reads(node: NodeProto) -> set[str]:
    found = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                found |= _reads(inner)
            found |= {value.name for value in graph.output}
    return found


def _value_info(name: str, value: Any) -> Any:
    if isinstance(value, list):
        item = helper.np_dtype_to_tensor_dtype(value[0].dtype)
        return helper.make_tensor_sequence_value_info(name, item, None)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def _session(model: ModelProto) -> ort.InferenceSession:
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 3
    settings.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])


def run_once(model: ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of the whole model."""
    return _session(model).run(None, feed)


def _moments(answers: list[Env], node: NodeProto) -> Moments:
    """The mean of each channel, and the deviation around it, over all feeds."""
    arrays = [next(iter(answer.values())).astype(np.float64) for answer in answers]
    axis = _LINEAR[node.op_type]
    columns = [np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1) for array in arrays]
    merged = np.concatenate(columns, 1)
    return merged.mean(1), float(merged.var(1).mean())


def observe(model: ModelProto, feeds: list[dict[str, np.ndarray]]) -> tuple[list[list[np.ndarray]], dict[int, Moments]]:
    """The true outputs, and the true moments after each linear node."""
    wanted: dict[int, Moments] = {}
    walker = Walker(model, feeds)

    def visit(at: int, node: NodeProto) -> list[Env] | None:
        answers = walker.evaluate(node)
        if node.op_type in _LINEAR and len(answers) > 1 and next(iter(answers[0].values())).ndim > 1:
            wanted[at] = _moments(answers, node)
        return answers

    return walker.run(visit), wanted


class Tuner:
    """Gives the recipes of a model the gains, and its layers the biases, that restore the true moments."""

    def __init__(self, drawn: ModelProto, wanted: dict[int, Moments]) -> None:
        self.wanted = wanted
        self.recipes = {tensor.name: tensor for tensor in drawn.graph.initializer if is_recipe(tensor)}
        self.makers: dict[str, NodeProto] = {}
        for node in drawn.graph.node:
            self.makers.update(dict.fromkeys(node.output, node))
            if node.op_type == "Constant" and node.attribute[0].name == "value" and is_recipe(node.attribute[0].t):
                self.recipes[node.output[0]] = node.attribute[0].t
        self.filled = ModelProto()
        self.filled.CopyFrom(drawn)
        refill(self.filled)
        self.done: set[str] = set()

    def tune(self, feeds: list[dict[str, np.ndarray]]) -> None:
        """Walk the drawn model and correct each layer before its readers are evaluated."""
        self.walker = Walker(self.filled, feeds)
        self.walker.run(self._visit)

    def _visit(self, at: int, node: NodeProto) -> list[Env] | None:
        if at not in self.wanted:
            return None
        if node.op_type != "Add":
            self._gain(at, node)
        slot = _BIAS[node.op_type]
        for place in (0, 1) if node.op_type == "Add" else (slot,):
            if len(node.input) > place >= 0:
                self._shift(at, node, node.input[place])
        return None

    def _take(self, name: str) -> TensorProto | None:
        """The recipe of which `name` is a reshaped or transposed copy, once."""
        while name not in self.recipes:
            node = self.makers.get(name)
            if node is None or node.op_type not in _THROUGH:
                return None
            name = node.input[0]
        if name in self.done:
            return None
        self.done.add(name)
        return self.recipes[name]

    def _gain(self, at: int, node: NodeProto) -> None:
        weight = self._take(node.input[1])
        if weight is None:
            return
        got = _moments(self.walker.evaluate(node), node)[1]
        want = self.wanted[at][1]
        if got > 0 and want > 0:
            gain = float(np.clip((want / got) ** 0.5, 0.02, 50.0))
            consts = self.walker.consts
            consts[node.input[1]] = (consts[node.input[1]] * gain).astype(consts[node.input[1]].dtype)
            _scale(weight, gain)

    def _shift(self, at: int, node: NodeProto, name: str) -> None:
        consts = self.walker.consts
        mean = self.wanted[at][0]
        if name not in consts or consts[name].size != mean.size or consts[name].dtype != np.float32:
            return
        bias = self._take(name)
        if bias is None:
            return
        missing = mean - _moments(self.walker.evaluate(node), node)[0]
        exact = consts[name].reshape(-1) + missing.astype(np.float32)
        short = (exact.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        consts[name] = short.reshape(consts[name].shape)
        bias.ClearField("external_data")
        bias.ClearField("data_location")
        bias.raw_data = short.tobytes()


def _scale(tensor: TensorProto, gain: float) -> None:
    recipe = {entry.key: entry.value for entry in tensor.external_data}
    for field in ("knots", "mean", "std"):
        if field in recipe:
            recipe[field] = " ".join(f"{float(part) * gain:.5g}" for part in recipe[field].split())
    _write(tensor, recipe)
