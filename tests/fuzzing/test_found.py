"""What random models showed to be wrong at a level stays right: each is judged again, as it was when it was found."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from graphopt.fuzzing.building import Sample
from graphopt.fuzzing.drawing import Draw
from graphopt.fuzzing.embedding import numbers_for
from graphopt.fuzzing.subjects import LEVELS, Converter, OwnSubject
from graphopt.fuzzing.verdicts import Judge, NotUsableError
from tests.versions import NEW_INFERENCE, NEW_RUNTIME

FOUND = sorted((Path(__file__).parent / "found").glob("*.onnxtxt"))
SUBJECTS = {level: OwnSubject(level) for level in LEVELS}


@pytest.mark.parametrize("path", FOUND, ids=[path.stem for path in FOUND])
def test_what_was_found_is_mended(path: Path) -> None:
    lines = path.read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    model = onnx.parser.parse_model(text)
    sample = Sample(model, [numbers_for(model, Draw(f"{path.stem}/{n}"), special=n > 1) for n in range(4)])
    try:
        judge = Judge(sample)
    except NotUsableError as error:
        if NEW_INFERENCE and NEW_RUNTIME:
            raise
        pytest.skip(f"older packages do not take it: {error}")
    for subject in SUBJECTS.values():
        assert judge.of(subject, subject.optimize(model)) is None
    for target in [line.partition("# convert: ")[2] for line in lines if line.startswith("# convert: ")]:
        subject = Converter(int(target))
        assert judge.of(subject, subject.optimize(model)) is None
