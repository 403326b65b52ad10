"""What the code says more than once, or at length, does not grow."""

import pytest

from benchmarks.counts import COUNTS, Sources


@pytest.fixture(scope="module")
def sources() -> Sources:
    return Sources()


@pytest.mark.parametrize("key", COUNTS)
def test_there_are_as_many_as_there_may_be(key: str, sources: Sources) -> None:
    count = COUNTS[key]
    assert count.least <= count.of(sources) <= count.most, (
        f"{count.what}: `python -m benchmarks counts --places {key}` says where"
    )
