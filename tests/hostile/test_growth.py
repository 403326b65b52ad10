"""The allowance for growth by folding holds for all runs together, not for each."""

from __future__ import annotations

import onnx
import pytest

from graphopt.manager import PassManager
from tests.hostile import models
from tests.same import assert_same_bytes

KEY = "graphopt.folding"
GROWING = models.growing()

FOLDING = "repeat({folding/*})"
"""Without the passes that would merge the results."""


def stated(model: onnx.ModelProto) -> str | None:
    return {prop.key: prop.value for prop in model.metadata_props}.get(KEY)


@pytest.mark.parametrize("name", GROWING)
def test_a_second_run_changes_nothing(name: str) -> None:
    manager = PassManager("basic")
    once = manager.run(GROWING[name]).model.SerializeToString()
    again = manager.run(once)
    assert_same_bytes(again.model.SerializeToString(), once, again.hits)


def test_what_is_spent_is_stated_and_stays_spent() -> None:
    manager = PassManager(passes=FOLDING)
    once = manager.run(models.many_small(100)).model
    spent, weights = (int(text) for text in (stated(once) or "").split(" added to "))
    assert 0 < spent <= 1 << 20
    assert weights < 1 << 12
    again = manager.run(once).model
    assert again == once


def test_without_the_entry_the_allowance_is_new() -> None:
    manager = PassManager(passes=FOLDING)
    once = manager.run(models.many_small(100)).model
    del once.metadata_props[:]
    again = manager.run(once).model
    assert again.ByteSize() > once.ByteSize() + (1 << 19)


@pytest.mark.parametrize("entry", ["", "much", "12", "-5 added to 3", "1 added to many"])
def test_an_entry_that_says_nothing_is_passed_over(entry: str) -> None:
    model = models.many_small(100)
    wanted = PassManager(passes=FOLDING).run(model).model.ByteSize()
    model.metadata_props.add(key=KEY, value=entry)
    assert abs(PassManager(passes=FOLDING).run(model).model.ByteSize() - wanted) < 100


def test_a_model_that_got_all_it_wanted_has_no_entry() -> None:
    model = models.many_small(3)
    assert stated(PassManager(passes=FOLDING).run(model).model) is None


def test_a_model_of_which_nothing_is_folded_stays_as_it_is() -> None:
    model = GROWING["Expand"]
    assert_same_bytes(PassManager("basic").run(model).model.SerializeToString(), model.SerializeToString())
