"""What the code says more than once, or at length, does not grow."""

import pytest

from benchmarks.counts import COUNTS, Sources


@pytest.fixture(scope="module")
def sources() -> Sources:
    return Sources()


@pytest.mark.parametrize("key", COUNTS)
def test_there_are_no_more_than_before(key: str, sources: Sources) -> None:
    what, most, find = COUNTS[key]
    places = find(sources)
    assert len(places) <= most, f"{what}: `python -m benchmarks counts --places {key}` says where"
