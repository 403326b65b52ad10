"""The comparison that other tests rest on."""

import pytest

from tests.same import assert_same_bytes


@pytest.mark.parametrize(
    ("found", "place"),
    [
        (b"x" * 50 + b"y" + b"x" * (1 << 22), "from byte 50"),
        (b"x" * 10, "from byte 10"),
        (b"x" * 9 + b"y", "from byte 9"),
    ],
)
def test_a_difference_is_named_by_its_place(found: bytes, place: str) -> None:
    expected = b"x" * (len(found) + 3)
    assert_same_bytes(expected, bytes(expected))
    with pytest.raises(pytest.fail.Exception, match=place) as caught:
        assert_same_bytes(found, expected, "a model")
    assert len(str(caught.value)) < 600
