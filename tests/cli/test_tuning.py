"""`graphopt tune`: tuners are found, figures are kept, shown, forgotten, and used."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from graphopt import Options, PassManager, demo
from graphopt.cli.app import run
from graphopt.errors import ModelError, UsageError
from graphopt.pipeline.tuning import tuner, tuners
from graphopt.system import tuned
from graphopt.system.machine import Target, cache_bytes, host
from graphopt_passes.layout import calibration, timing
from graphopt_passes.layout.tuning import CASES, ConvolutionTimes, LayoutTuner, Timed, fit

NAME = "convert_layout_nchwc"
ZEN = Target("avx512", 16)


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(tuned.VARIABLE, str(tmp_path))
    return tmp_path


def test_passes_name_their_tuners() -> None:
    assert isinstance(tuner(NAME), LayoutTuner)
    assert NAME in tuners()
    with pytest.raises(UsageError, match="cannot be tuned; expected one of"):
        tuner("eliminate_identity")


def test_figures_of_several_passes_share_a_file(tables: Path) -> None:
    tuned.keep("one", ZEN, {"a": 1})
    path = tuned.keep("two", ZEN, {"b": 2})
    assert path.parent == tables
    assert tuned.figures("one", ZEN) == {"a": 1}
    assert tuned.figures("two", ZEN) == {"b": 2}
    assert tuned.figures("two", Target("avx2", 8)) is None
    tuned.forget(["one"], ZEN)
    assert tuned.figures("one", ZEN) is None
    assert tuned.figures("two", ZEN) == {"b": 2}


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", '{"format": 99, "passes": {"one": {"a": 1}}}', '{"format": 1}', '{"format": 1, "passes": []}',
        '{"format": 1, "passes": {"one": []}}', '{"format": 1, "passes": {"one": {"rates": []}}}',
        '{"format": 1, "passes": {"one": {"rates": null}}}',
    ],
)  # fmt: skip
def test_a_broken_file_counts_as_none(tables: Path, text: str) -> None:
    path = tuned.place(ZEN)
    assert path is not None
    path.write_text(text)
    assert tuned.figures("one", ZEN) is None
    tuned.keep("two", ZEN, {"b": 2})
    assert tuned.figures("two", ZEN) == {"b": 2}


def test_a_rate_that_is_infinite_is_none(tables: Path) -> None:
    rates = timing.ZEN5.stated()
    name = next(name for name, rate in rates.items() if isinstance(rate, float))
    assert timing.ZEN5.read(rates) == timing.ZEN5
    assert timing.ZEN5.read({**rates, name: float("inf")}) is None


def test_off_means_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tuned.VARIABLE, "off")
    assert tuned.figures(NAME, ZEN) is None
    with pytest.raises(ModelError, match="is off"):
        tuned.keep(NAME, ZEN, {})


@pytest.mark.skipif(host().block == 1, reason="this machine's runtime has no blocked kernels to measure")
def test_the_command_measures_keeps_shows_and_forgets(tables: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("graphopt_passes.layout.tuning.CASES", (Timed(32, 32, 3, 8), Timed(32, 32, 3, 8, group=32)))
    assert run(["tune", "--layout", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["target"] == str(host())
    assert Path(shown["file"]).parent == tables
    stated = tuned.figures(NAME, host())
    assert stated == shown["passes"][NAME]
    assert timing.rates_of(host()) == timing.built_in(host()).read(stated["rates"])
    assert run(["tune", NAME, "--show"]) == 0
    assert "measured here" in capsys.readouterr().out
    assert run(["tune", NAME, "--reset"]) == 0
    assert "built in" in capsys.readouterr().out
    monkeypatch.setenv(tuned.VARIABLE, "off")
    assert timing.rates_of(host()) == timing.built_in(host())


def test_the_pass_chooses_by_what_was_measured(tables: Path) -> None:
    model = demo.conv_maxpool()
    slow = dataclasses.replace(timing.built_in(ZEN), blocked=(1.0, 1.0, 1.0))
    assert blocked(PassManager(passes=NAME, target="avx512").run(model).model)
    stated = PassManager(passes=NAME, target="avx512", options=Options(extra={NAME: {"rates": slow}}))
    assert not blocked(stated.run(model).model)
    tuned.keep(NAME, ZEN, {"rates": slow.stated(), "cases": []})
    assert not blocked(PassManager(passes=NAME, target="avx512").run(model).model)
    assert blocked(PassManager(passes=NAME, target="avx2").run(model).model)


def blocked(model: onnx.ModelProto) -> bool:
    return any(node.domain == "com.microsoft.nchwc" for node in model.graph.node)


def test_the_plan_tells_what_becomes_of_each_node(tmp_path: Path, capsys: Any) -> None:
    onnx.save(demo.conv_maxpool(), tmp_path / "model.onnx")
    assert run(["layout", str(tmp_path / "model.onnx"), "--target", "avx512", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["operator"], row["becomes"]) for row in rows] == [
        ("Conv", "blocked: conv"),
        ("MaxPool", "blocked: pool"),
    ]
    assert all(float(row["NCHW us"]) > float(row["blocked us"]) > 0 for row in rows)
    assert run(["layout", str(tmp_path / "model.onnx"), "--target", "avx2"]) == 0
    assert "2 of 2 nodes in blocks" in capsys.readouterr().out


def test_a_fit_finds_the_rates_behind_the_times() -> None:
    truth = timing.LayoutRates(
        (30e3, 50e3, 60e3), 40e3, 30e3, 12e3, 30e3, 200.0, 20e3, 20e3, 40e3, 20e3, (3e3, 1.5e3), 0.4, 15e3, 1.5, 0.1
    )  # fmt: skip
    taken = []
    for case in CASES:
        shape = case.shape(16)
        leave = 4 * shape.lanes_out * shape.positions / truth.reorder + truth.start
        taken.append(ConvolutionTimes(timing.plain(shape, truth), timing.blocked(shape, 16, truth), 0.0, leave))
    found = fit(CASES, taken, 16, timing.ZEN4)
    for case, times in zip(CASES, taken, strict=True):
        shape = case.shape(16)
        assert timing.plain(shape, found) == pytest.approx(times.plain, rel=0.05)
        assert timing.blocked(shape, 16, found) == pytest.approx(times.blocked, rel=0.05)
    assert found.reorder == pytest.approx(truth.reorder)


@pytest.mark.skipif(host().block == 1, reason="this machine's runtime has no blocked kernels to measure")
def test_the_first_use_calibrates_once_and_keeps_what_it_found(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = timing.rates_of(host())
    path = tuned.calibrated_place(host())
    assert path is not None
    stated = json.loads(path.read_text())["passes"][NAME]["rates"]
    assert timing.built_in(host()).read(stated) == first
    path.write_text(path.read_text().replace(f'"error": {first.error}', '"error": 0.375'))
    tuned._calibrate.cache_clear()
    assert timing.rates_of(host()).error == 0.375, "what is kept is measured anew"
    tuned.keep(NAME, host(), {"rates": dataclasses.replace(first, error=0.25).stated()})
    assert timing.rates_of(host()).error == 0.25, "what `graphopt tune` measured goes first"
    tuned.forget([NAME], host())
    assert NAME not in json.loads(path.read_text())["passes"]


@pytest.mark.skipif(host().block == 1, reason="this machine's runtime has no blocked kernels to measure")
def test_a_calibration_of_an_earlier_form_is_measured_anew(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = dataclasses.replace(timing.built_in(host()), error=0.375)
    monkeypatch.setattr(calibration, "calibrate", lambda target: {"rates": rates.stated()})
    path = tuned.calibrated_place(host())
    assert path is not None
    tuned._calibrate.cache_clear()
    tuned._write(path, host(), {NAME: {"rates": {"copy": 1.0}}, "other": {"rates": {"each": 2.0}}})
    assert timing.rates_of(host()) == rates
    kept = json.loads(path.read_text())["passes"]
    assert kept[NAME]["rates"]["error"] == 0.375
    assert kept["other"] == {"rates": {"each": 2.0}}


def test_a_core_that_is_named_has_its_own_rates(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "calibrate", lambda target: pytest.fail("measured"))
    other = next(core for core in ("xeon", "zen4") if core != host().core)
    named = Target.parse(f"avx512-{other}")
    tuned.keep(NAME, ZEN, {"rates": dataclasses.replace(timing.ZEN5, error=0.375).stated()})
    assert timing.rates_of(named) == timing.built_in(named)
    assert timing.rates_of(ZEN).error == 0.375


def test_without_a_place_to_keep_it_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(tuned.VARIABLE, str(tmp_path / "file" / "folder"))
    monkeypatch.setattr(calibration, "calibrate", lambda target: pytest.fail("measured"))
    monkeypatch.setattr(tuned.os, "access", lambda *given: False)
    assert timing.rates_of(host()) == timing.built_in(host())


def test_a_runtime_that_fails_leaves_the_built_in_rates(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(target: Target) -> None:
        raise RuntimeError("no kernels")

    monkeypatch.setattr(calibration, "calibrate", fail)
    assert timing.rates_of(host()) == timing.built_in(host())
    assert not any(tables.iterdir())


def test_rates_within_the_error_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    given = timing.ZEN4
    for factor, same in ((1.05, True), (1.4, False)):
        truth = dataclasses.replace(given, plain=given.plain * factor)
        monkeypatch.setattr(calibration, "time_cases", lambda cases, *rest, truth=truth: _times(cases, truth))
        found = calibration.calibrate(Target("avx512", 16, "zen4"))["rates"]
        assert (found["plain"] == given.plain) is same
        assert found["depthwise"] == given.depthwise


def _times(cases: tuple[Timed, ...], truth: timing.LayoutRates) -> list[ConvolutionTimes]:
    shapes = [case.shape(16) for case in cases]
    leave = [4 * shape.lanes_out * shape.positions / truth.reorder + truth.start for shape in shapes]
    pairs = [(timing.plain(shape, truth), timing.blocked(shape, 16, truth)) for shape in shapes]
    return [ConvolutionTimes(*pair, 0.0, time) for pair, time in zip(pairs, leave, strict=True)]


@pytest.mark.parametrize("name", ["avx2", "avx512", "avx512-xeon", "avx512-zen4", "avx512-zen5", "neon", "sse2", "lsx"])
def test_every_target_has_rates(name: str) -> None:
    rates = timing.rates_of(Target.parse(name))
    assert rates.error > 0
    shape = Timed(64, 64, 3, 28).shape(16)
    assert 0.5 < timing.plain(shape, rates) / timing.blocked(shape, 16, rates) < 3


def test_caches_are_read_where_the_system_states_them(tmp_path: Path) -> None:
    for at, (level, size, cores) in enumerate(((1, "48K", "0"), (2, "1024K", "0"), (3, "32M", "0-1"))):
        place = tmp_path / f"index{at}"
        place.mkdir()
        for name, text in (("level", str(level)), ("size", size), ("shared_cpu_list", cores)):
            (place / name).write_text(f"{text}\n")
    assert cache_bytes(tmp_path) == (1 << 20) + (32 << 20) // 8
    assert cache_bytes(tmp_path / "none") is None


def test_only_this_machine_can_be_measured() -> None:
    other = Target("avx2", 8) if host().block == 16 else ZEN
    with pytest.raises(UsageError, match="cannot be measured here"):
        LayoutTuner().measure(other, lambda what, part: None)
