"""Make skeletons of exported models: `python -m benchmarks skeletons`.

Replacing each weight by noise of the same mean and spread keeps a layer's scale only on average; over fifty layers
the answers would vanish or overflow, and comparing them would mean nothing. So the graph is walked node by node with
the true and with the drawn weights, and each drawn matrix gets the gain that gives its layer the true spread.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
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

SMALL = 64  # elements: what is smaller is kept as it is
_LINEAR = {"Conv": 1, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1, "BatchNormalization": 1}
_THROUGH = {"Transpose", "Reshape", "Identity", "Cast", "Unsqueeze", "Squeeze"}
Env = dict[str, Any]


def make_skeleton(key: str, source: Path, target: Path) -> dict[str, Any]:
    """Write the skeleton of the model at `source`, and check that its answers are sane; what was written."""
    original = onnx.load(source)
    feed = sample_inputs(key, original, batch=1)
    drawn = ModelProto()
    drawn.CopyFrom(original)
    for seed, tensor in enumerate(tensors(drawn)):
        describe(tensor, seed)
    wanted: dict[int, float] = {}
    reference = walk(original, feed, lambda at, env: _note(original, at, env, wanted))
    _tune(drawn, feed, wanted)
    size = save_skeleton(drawn, target)
    answers = _run(refill(drawn), feed)
    ratios = [_spread(got) / max(_spread(want), 1e-12) for got, want in zip(answers, reference, strict=True)]
    if not all(np.isfinite(got).all() for got in answers) or not all(0.02 < ratio < 50 for ratio in ratios):
        target.unlink()
        raise ValueError(f"{key}: the refilled model answers with {ratios} times the true spread")
    return {"name": key, "bytes": size, "spread": [round(ratio, 2) for ratio in ratios]}


def make_all(keys: list[str] | None, *, force: bool) -> None:
    """Make the skeleton of every export that has none yet, or of the exports called `dress/name`."""
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
    """Turn a large random float tensor into a recipe; leave every other one as it is."""
    count = int(np.prod(tensor.dims))
    if count < SMALL or tensor.data_type not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
        return
    array = numpy_helper.to_array(tensor)
    data = array.tobytes()
    if len(zlib.compress(data[: 1 << 20], 6)) < 0.4 * min(len(data), 1 << 20) or not np.isfinite(array).all():
        return  # masks, position tables, constants: they mean something, and they are small in the file
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


def walk(model: ModelProto, feed: dict[str, np.ndarray], visit: Callable[[int, Env], None]) -> list[np.ndarray]:
    """Evaluate the outer graph node by node, calling `visit` before each node; the outputs of the model."""
    graph = model.graph
    env: Env = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    env.update(feed)
    keep = {value.name for value in graph.output}
    last = {name: at for at, node in enumerate(graph.node) for name in _reads(node)}
    for at, node in enumerate(graph.node):
        visit(at, env)
        env.update(evaluate(model, node, env))
        for name in _reads(node):
            if last[name] == at and name not in keep and name in env:
                del env[name]
    return [env[value.name] for value in graph.output]


def _reads(node: NodeProto) -> set[str]:
    found = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                found |= _reads(inner)
            found |= {value.name for value in graph.output}
    return found


def evaluate(model: ModelProto, node: NodeProto, env: Env) -> Env:
    """The outputs of one node, by onnxruntime."""
    if node.op_type == "Constant" and node.attribute[0].name == "value":
        return {node.output[0]: numpy_helper.to_array(node.attribute[0].t)}
    reads = sorted(name for name in _reads(node) if name in env)
    outputs = [name for name in node.output if name]
    graph = helper.make_graph(
        [node],
        "one",
        [_value_info(name, env[name]) for name in reads],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    single = helper.make_model(
        graph, opset_imports=list(model.opset_import), ir_version=model.ir_version, functions=list(model.functions)
    )
    answers = _run(single, {name: env[name] for name in reads})
    return dict(zip(outputs, answers, strict=True))


def _value_info(name: str, value: Any) -> Any:
    if isinstance(value, list):
        item = helper.np_dtype_to_tensor_dtype(value[0].dtype)
        return helper.make_tensor_sequence_value_info(name, item, None)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def _run(model: ModelProto, feed: dict[str, Any]) -> list[Any]:
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 3
    settings.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return session.run(None, feed)


def _spread(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(array.astype(np.float64)))))


def _note(model: ModelProto, at: int, env: Env, wanted: dict[int, float]) -> None:
    node = model.graph.node[at]
    if node.op_type in _LINEAR and node.input[_LINEAR[node.op_type]] in env:
        answer = evaluate(model, node, env)[node.output[0]]
        wanted[at] = _spread(answer)


def _tune(drawn: ModelProto, feed: dict[str, np.ndarray], wanted: dict[int, float]) -> None:
    """Give each drawn matrix of `drawn` the gain that restores the spread its layer has in the original."""
    recipes = {tensor.name: tensor for tensor in drawn.graph.initializer if is_recipe(tensor)}
    makers: dict[str, NodeProto] = {}
    for node in drawn.graph.node:
        makers.update(dict.fromkeys(node.output, node))
        if node.op_type == "Constant" and node.attribute[0].name == "value" and is_recipe(node.attribute[0].t):
            recipes[node.output[0]] = node.attribute[0].t
    filled = ModelProto()
    filled.CopyFrom(drawn)
    refill(filled)
    done: set[str] = set()

    def visit(at: int, env: Env) -> None:
        node = filled.graph.node[at]
        if at not in wanted or wanted[at] == 0.0:
            return
        operand = node.input[_LINEAR[node.op_type]]
        root = _root(operand, makers, recipes)
        if root is None or root in done:
            return
        done.add(root)
        gain = 1.0
        true_weight = env[operand]
        for _ in range(3):  # the bias does not scale along, so one step may fall short
            env[operand] = (true_weight * gain).astype(true_weight.dtype)
            got = _spread(evaluate(filled, node, env)[node.output[0]])
            if not np.isfinite(got) or got == 0.0:
                break
            gain *= float(np.clip(wanted[at] / got, 0.1, 10.0))
        gain = float(np.clip(gain, 0.05, 20.0))
        env[operand] = (true_weight * gain).astype(true_weight.dtype)
        _scale(recipes[root], gain)

    walk(filled, feed, visit)


def _root(name: str, makers: dict[str, NodeProto], recipes: Iterable[str]) -> str | None:
    """The recipe that `name` is a reshaped or transposed copy of."""
    while name not in recipes:
        node = makers.get(name)
        if node is None or node.op_type not in _THROUGH:
            return None
        name = node.input[0]
    return name


def _scale(tensor: TensorProto, gain: float) -> None:
    recipe = {entry.key: entry.value for entry in tensor.external_data}
    for field in ("knots", "mean", "std"):
        if field in recipe:
            recipe[field] = " ".join(f"{float(part) * gain:.5g}" for part in recipe[field].split())
    _write(tensor, recipe)
