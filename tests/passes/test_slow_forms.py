"""Other forms of slow operators, written wherever they are right, at sizes and numbers that their cases do not have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto

from benchmarks.atlas import BATCHES, NEVER_EMPTY, extremes
from graphopt import Options, PassManager
from graphopt.pipeline import registry
from graphopt.pipeline.tuning import tuner
from graphopt.rewrite import Numerics
from graphopt.system import tuned
from graphopt.system.machine import host
from graphopt.system.sessions import open_session
from graphopt.testing import Case, cases
from graphopt_passes.algorithm import probes, work
from graphopt_passes.algorithm.work import Weighed
from tests.versions import NEW_RUNTIME

GOLDEN = Path(__file__).parents[1] / "golden"
WEIGHED = [name for name in registry().names() if issubclass(registry().rule_class(name), Weighed)]
NAMES = [*WEIGHED, "convert_conv_3d_to_2d"]
FLOATS = {TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.FLOAT16: np.float16}


def models(name: str) -> list[ModelProto]:
    """The models of the golden cases of a pass, each as it is and with a first axis of any size."""
    found = []
    for path in cases(GOLDEN / name):
        model = Case.read(path).model()
        if not any(node.op_type == "If" for node in model.graph.node):
            found += [model, open_batch(model)]
    return found


def open_batch(model: ModelProto) -> ModelProto:
    """A model whose inputs, where they have axes, all have a first one of the same unknown size."""
    opened = ModelProto.FromString(model.SerializeToString())
    for info in opened.graph.input:
        dims = info.type.tensor_type.shape.dim
        if len(dims) > 1:
            dims[0].Clear()
            dims[0].dim_param = "any_batch"
    for info in opened.graph.output:
        kind = info.type.tensor_type.elem_type
        info.type.Clear()
        info.type.tensor_type.elem_type = kind
    return opened


def feed(model: ModelProto, batch: int, others: tuple[float, ...] = ()) -> dict[str, np.ndarray]:
    """Numbers for all inputs; names of sizes stand for few elements."""
    random = np.random.default_rng(batch)
    made = {}
    for info in model.graph.input:
        kind = info.type.tensor_type
        dims = [
            dim.dim_value if dim.HasField("dim_value") else batch if dim.dim_param == "any_batch" else 6
            for dim in kind.shape.dim
        ]
        if kind.elem_type in FLOATS:
            array = random.standard_normal(dims) * 3
            if others and array.size:
                places = random.integers(0, array.size, max(array.size // 50, 1))
                array.reshape(-1)[places] = random.choice(others, len(places))
            made[info.name] = array.astype(FLOATS[kind.elem_type])
        else:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            made[info.name] = random.integers(0, 2, dims).astype(dtype)
    return made


def batches(model: ModelProto) -> tuple[int, ...]:
    """The sizes of the first axes to try."""
    if not any(dim.dim_param == "any_batch" for info in model.graph.input for dim in info.type.tensor_type.shape.dim):
        return (1,)
    return BATCHES[1:] if any(node.op_type in NEVER_EMPTY for node in model.graph.node) else BATCHES


def same(numerics: Numerics, expected: np.ndarray, found: np.ndarray) -> bool:
    """Whether results agree as closely as a pass promises."""
    if not expected.size and not found.size:
        return True  # several reductions of the runtime forget to reduce the shape of nothing
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return False
    if numerics == Numerics.EXACT or expected.dtype.kind != "f":
        return np.array_equal(expected, found, equal_nan=expected.dtype.kind == "f")
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
    return np.allclose(expected, found, rtol=2e-5, atol=2e-6 * min(scale, 1e3), equal_nan=True)


def outcome(model: ModelProto, numbers: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """What a model gives; None where the runtime refuses these sizes."""
    try:
        made = open_session(model).run(None, numbers)
    except Exception:  # of whatever kind the runtime raises
        return None
    return None if any(each is None for each in made) else made  # as QLinearSoftmax of nothing gives before 1.32


@pytest.mark.parametrize("name", NAMES)
def test_forms_agree(name: str) -> None:
    """Forced, each form gives the same for no, one and many images, and for numbers at the edges of what there is."""
    if name == "convert_arg_max_to_top_k" and not NEW_RUNTIME:
        pytest.skip("ONNX Runtime before 1.32 ends the process at TopK of no images")
    rule = registry().rule_class(name)
    numerics = rule.numerics
    manager = PassManager(
        passes=name, options=Options(extra={name: {"force": True}}), numerics="fast", strict=True, target="avx512"
    )
    fired = compared = 0
    for model in models(name):
        result = manager.run(model)
        if not result.hits:
            continue
        fired += 1
        for batch in batches(model):
            for others in ((), extremes(rule)):
                numbers = feed(model, batch, others)
                expected = outcome(model, numbers)
                if expected is None:
                    continue
                found = outcome(result.model, numbers)
                assert found is not None, f"batch {batch}: {onnx.printer.to_text(result.model)}"
                for one, two in zip(expected, found, strict=True):
                    assert same(numerics, one, two), f"batch {batch}: {onnx.printer.to_text(model)}"
                compared += 1
    assert fired >= 2
    assert compared >= 2


def test_measured_rates_take_the_place_of_those_built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tuned.VARIABLE, str(tmp_path))
    monkeypatch.setattr(probes, "PROBES", probes.PROBES[:2])
    measured = tuner(work.TUNED).measure(host(), lambda what, part: None)
    assert set(measured["rates"]) == {"kernel", "element"}
    tuned.keep(work.TUNED, host(), measured)
    rates = work.rates_of(host())
    assert rates == {**work.built_in(host()), **measured["rates"]}
    tuned.keep(work.TUNED, host(), {"rates": {**measured["rates"], "element": 1e6, "move": -1, "new": 1.0}})
    assert work.rates_of(host()) == {**work.built_in(host()), **measured["rates"], "element": 1e6}


def test_each_probe_is_of_a_kind_of_work() -> None:
    kinds = [probe.kind for probe in probes.PROBES]
    assert len(kinds) == len(set(kinds))
    assert set(kinds) <= set(work.RATES)
    for at, probe in enumerate(probes.PROBES):
        assert {kind for kind, _ in probe.less} <= set(kinds[:at])
        assert open_session(probe.model())


@pytest.mark.parametrize("length", [20, 50, 400])
def test_spectra_are_closer_to_the_truth(length: int) -> None:
    """The runtime's own errors are the larger ones where a length is no power of 2."""
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 17]> g (float[64,{length},1] x) => (float[64,{length // 2 + 1},2] y) '
        "{ y = DFT <axis = 1, onesided = 1> (x) }"
    )
    result = PassManager(passes="convert_dft_to_product", numerics="fast", strict=True).run(model)
    assert result.hits
    numbers = np.random.default_rng(0).standard_normal((64, length, 1)).astype(np.float32)
    truth = np.fft.rfft(numbers[..., 0].astype(np.float64))
    errors = []
    for each in (result.model, model):
        (found,) = open_session(each).run(None, {"x": numbers})
        errors.append(np.abs(found[..., 0] + 1j * found[..., 1] - truth).max())
    assert errors[0] < errors[1]
