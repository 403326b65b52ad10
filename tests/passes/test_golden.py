"""Every golden case, and that every pass has the cases it needs."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest

from graphopt.manager import PassManager
from graphopt.pipeline import registry
from graphopt.rewrite import FAMILIES, GraphPass, PatternRule
from graphopt.testing import Case, GoldenError, cases, run_case

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = list(cases(GOLDEN))


@pytest.mark.parametrize("path", FILES, ids=[f"{p.parent.name}/{p.stem}" for p in FILES])
def test_case(path: Path, request: pytest.FixtureRequest) -> None:
    case = Case.read(path)
    _skip_what_is_newer_than_onnx(case.model())
    try:
        run_case(case, bless=request.config.getoption("--bless"))
    except GoldenError as error:
        lacking = re.search(r"this ONNX Runtime has no \w+", str(error))
        if lacking is None or _version(ort.__version__) >= (1, 32):
            raise
        pytest.skip(f"{lacking[0]}: it is {ort.__version__}, 1.32 has it")


IN_SEVERAL_EVENTS = {"eliminate_dead_channels"}
"""Passes one rewrite of which is several events: one for each operator that reads the channels."""


def test_no_pass_goes_beyond_a_limit() -> None:
    """Bisection replays prefixes: no more rewrites than asked for, over however many graphs."""
    firing: dict[str, Case] = {}
    for path in FILES:
        name = path.parent.name
        if name not in firing and name not in IN_SEVERAL_EVENTS:
            case = Case.read(path)
            if int(case.head.get("FIRES") or 0) > 1:
                firing[name] = case
    assert len(firing) > 50
    for name, case in firing.items():
        result = PassManager(passes=case.passes, target=case.target, numerics="fast", limit=1).run(case.model())
        assert len(result.events) <= 1, name


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")[:2]))


def _skip_what_is_newer_than_onnx(model: onnx.ModelProto) -> None:
    newest = onnx.defs.onnx_opset_version()
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    if _version(onnx.__version__) < (1, 23) and (model.ir_version > onnx.IR_VERSION or opset > newest):
        pytest.skip(f"onnx {onnx.__version__} knows IR versions up to {onnx.IR_VERSION:d} and opsets up to {newest}")


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES}), ids=lambda folder: folder.name)
def test_results_are_the_same_where_nobody_asks_for_reasons(folder: Path) -> None:
    """Then values that do not fit are turned down while the operators of a pattern are looked for, not behind that."""
    for case in map(Case.read, cases(folder)):
        silent, loud = (
            PassManager(passes=case.passes, target=case.target, numerics="fast", strict=True, explain=asked).run(
                case.model()
            )
            for asked in (False, True)
        )
        assert silent.model.SerializeToString() == loud.model.SerializeToString(), case.path


def built_in() -> list[str]:
    return [name for name in registry().names() if registry().owner(name) == "graphopt"]


@pytest.mark.parametrize("name", built_in())
def test_pass_has_its_cases(name: str) -> None:
    """At least one case in which it fires, one that keeps, one with a shared and one with a captured value."""
    kinds = {path.stem.split("_")[0] for path in cases(GOLDEN / name)}
    wanted = {"fires", "keeps"}
    if not issubclass(registry().rule_class(name), GraphPass):
        wanted |= {"shared", "captured"}
    assert wanted <= kinds, f"{name} lacks golden cases of kind {sorted(wanted - kinds)}"


@pytest.mark.parametrize("name", built_in())
def test_pass_record(name: str) -> None:
    rule = registry().rule_class(name)
    assert rule.family in FAMILIES
    assert rule.summary().endswith((".", ":")), f"{name} needs a documentation whose first line is a sentence"
    assert rule.__name__ == "".join(part.capitalize() for part in name.split("_")), "class is the name in CamelCase"
    if issubclass(rule, PatternRule):
        rule().compiled.validate()


@pytest.mark.parametrize("name", built_in())
def test_case_files_name_their_pass(name: str) -> None:
    for path in cases(GOLDEN / name):
        case = Case.read(path)
        assert name in case.passes, f"{path} runs {case.passes}"
        assert ("KEEPS" in case.head) != ("FIRES" in case.head), f"{path} needs FIRES or KEEPS: run pytest --bless"
        if path.stem.startswith("fires"):
            assert int(case.head.get("FIRES", 0)) > 0, f"{path} does not fire"
        if path.stem.startswith("keeps"):
            assert "KEEPS" in case.head, f"{path} fires"
        assert case.head.get("KEEPS") != "no match", (
            f"{path}: add what differs from the pattern, `no match: difference`"
        )
