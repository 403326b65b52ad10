"""The quick decorator of data classes gives what the standard library's gives."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, replace
from typing import Any, ClassVar

import pytest

from graphopt import records

OPTIONS = [
    {"eq": eq, "frozen": frozen, "slots": slots, "kw_only": kw_only}
    for eq in (True, False)
    for frozen in (True, False)
    for slots in (True, False)
    for kw_only in (True, False)
]


def _family(make: Callable[..., Any], options: dict[str, bool]) -> tuple[type, type]:
    class Base:
        shared: ClassVar[int] = 3
        a: int
        b: list[int] = field(default_factory=list)
        c: float = field(default=1.5, compare=False, repr=False)
        made: dict[str, int] = field(default_factory=dict, init=False, hash=False)
        fixed: int = field(default=7, init=False)

    base = make(**options)(Base)

    class Derived(base):  # type: ignore[misc, valid-type]
        """Has a name of its own."""

        d: str = "d"

        def __post_init__(self) -> None:
            object.__setattr__(self, "fixed", 8)

    return base, make(**options)(Derived)


def _told(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except (TypeError, AttributeError) as error:
        return type(error), str(error) if not isinstance(error, TypeError) else ""


def _observed(cls: Any, options: dict[str, bool]) -> list[Any]:
    signature = str(inspect.signature(cls))
    one, two, three = _told(lambda: cls(a=1, b=(2,))), cls(a=1, b=(2,), c=9.0), cls(a=2)
    return [
        signature, str(inspect.signature(cls)), repr(one), one == two, one == three, one != two, one.__eq__(3), dataclasses.asdict(one), cls.__match_args__,
        repr(replace(one, a=5)), repr(copy.deepcopy(one)), cls(a=1).b is cls(a=1).b, cls.shared,
        cls.__hash__ is None, cls.__hash__ is object.__hash__, hasattr(cls, "__slots__"),
        options["eq"] and _told(lambda: hash(one)), options["eq"] and _told(lambda: hash(one) == hash(two)),
        _told(lambda: cls(1, [2]).b), _told(cls), _told(lambda: cls(a=1, unknown=2)),
        _told(lambda: setattr(two, "a", 4)), _told(lambda: delattr(two, "a")), _told(lambda: two.a),
        [getattr(one, each.name) for each in dataclasses.fields(cls)],
    ]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_classes_behave_as_those_of_the_standard_library(options: dict[str, bool]) -> None:
    pairs = zip(_family(records.dataclass, options), _family(dataclasses.dataclass, options), strict=True)
    for ours, theirs in pairs:
        assert _observed(ours, options) == _observed(theirs, options)


@records.dataclass(frozen=True, slots=True)
class Kept:
    a: int
    b: tuple[int, ...] = ()


@records.dataclass(frozen=True, slots=True)
class Own:
    a: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    def __hash__(self) -> int:
        return 5

    def __repr__(self) -> str:
        return "own"


def test_frozen_objects_are_kept_in_files() -> None:
    assert pickle.loads(pickle.dumps(Kept(1, (2,)))) == Kept(1, (2,)) == copy.copy(Kept(1, (2,)))
    with pytest.raises(FrozenInstanceError):
        Kept(1).a = 2  # type: ignore[misc]


def test_what_a_class_says_itself_stays() -> None:
    assert (repr(Own(1)), hash(Own(1)), Own(1) == Own(2), Own.__doc__) == ("own", 5, True, "Own")


def test_a_class_may_make_its_objects_itself() -> None:
    @records.dataclass(frozen=True, slots=True, init=False)
    class Named:
        names: tuple[str, ...]

        def __init__(self, *names: str) -> None:
            object.__setattr__(self, "names", names)

    assert repr(Named("a", "b")).endswith("Named(names=('a', 'b'))")


def test_how_attributes_are_set_is_not_said_twice() -> None:
    with pytest.raises(TypeError, match="says itself"):

        @records.dataclass(frozen=True)
        class _Both:
            def __setattr__(self, name: str, value: object) -> None:
                pass


def test_only_the_init_that_is_called_is_compiled() -> None:
    @records.dataclass(slots=True)
    class Late:
        a: int = 1

    before = Late.__init__
    assert Late().a == 1
    assert Late.__init__ is not before
    assert Late.__init__.__code__.co_varnames == ("self", "a")
