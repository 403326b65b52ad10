"""Write protection of a model while a pass runs: only the gate, the `Rewriter`, may change it.

A failed pass is undone by the journal, which records only the changes by the gate. So the view refuses
any other change: objects that belong to a model are *sealed*, their lists and dicts refuse writes, and protos
are shown read-only. When no pass runs, all of them can be changed as usual.

Reading a sealed object costs nothing: sealing gives it another class of the same layout, which only refuses writes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar, cast

from google.protobuf.message import Message

from graphopt.errors import PassError

write = object.__setattr__
"""Sets an attribute of a sealed object, for the engine."""


class _State(threading.local):
    passes = 0
    """The number of nested passes that run in this thread."""


_state = _State()


@contextmanager
def sealed() -> Iterator[None]:
    """Protect models while a pass runs in this thread: they refuse writes other than through the gate."""
    _state.passes += 1
    try:
        yield
    finally:
        _state.passes -= 1


@contextmanager
def unsealed() -> Iterator[None]:
    """Lift the protection for work of the engine itself within a pass, such as type inference in a conversion."""
    passes, _state.passes = _state.passes, 0
    try:
        yield
    finally:
        _state.passes = passes


def is_sealed() -> bool:
    """Whether a pass runs in this thread."""
    return _state.passes > 0


def refuse(what: str) -> NoReturn:
    """Report that a pass tried to change something itself.

    Raises:
        PassError: always.
    """
    raise PassError(f"{what} cannot be changed while a pass runs; change the graph through the Rewriter")


def check_unsealed(what: str) -> None:
    """Refuse a change while a pass runs.

    Args:
        what: the name, in the message, of the object to be changed.

    Raises:
        PassError: a pass runs.
    """
    if _state.passes:
        refuse(what)


class Sealed:
    """A mixin that makes the sealed form of a class; it adds no attributes, so that the layout is the same."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        if _state.passes:
            refuse(f"{name} of {self!r}")
        write(self, name, value)

    def __delattr__(self, name: str) -> None:
        check_unsealed(f"{name} of {self!r}")
        object.__delattr__(self, name)


def _guarded(base: type, name: str) -> Any:
    plain = getattr(base, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _state.passes:
            refuse(f"this {base.__name__}")
        return plain(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, plain.__doc__
    return method


class SealedList(list[Any]):
    """A list of the view: the engine changes it with the methods of `list` itself."""

    __slots__ = ()

    append, extend, insert, pop, remove, clear, sort, reverse, __setitem__, __delitem__, __iadd__, __imul__ = (
        _guarded(list, name)
        for name in (
            "append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "__setitem__", "__delitem__",
            "__iadd__", "__imul__",
        )
    )  # fmt: skip


class SealedDict(dict[Any, Any]):
    """A dict of the view: the engine changes it with the methods of `dict` itself."""

    __slots__ = ()

    pop, popitem, clear, update, setdefault, __setitem__, __delitem__, __ior__ = (
        _guarded(dict, name)
        for name in ("pop", "popitem", "clear", "update", "setdefault", "__setitem__", "__delitem__", "__ior__")
    )


class ReadOnly:
    """A read-only wrapper of a protobuf message, which passes `isinstance` checks for the message's class."""

    __slots__ = ("_message",)

    _message: Message

    def __init__(self, message: Message) -> None:
        write(self, "_message", message)

    @property  # type: ignore[misc]  # so that `isinstance` sees the message
    def __class__(self) -> type:
        return type(self._message)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._message, name)
        if callable(found) and name not in _READING:
            refuse(f"a {type(self._message).__name__}")
        return _shown(found)

    def ListFields(self) -> list[tuple[Any, Any]]:  # noqa: N802 -- protobuf's name
        """The fields that are set, each with its value."""
        return [(field, _shown(value)) for field, value in self._message.ListFields()]

    def __setattr__(self, name: str, value: object) -> None:
        refuse(f"{name} of a {type(self._message).__name__}")

    def __delattr__(self, name: str) -> None:
        refuse(f"{name} of a {type(self._message).__name__}")

    def __eq__(self, other: object) -> bool:
        return bool(self._message == unwrapped(other))

    __hash__ = None  # type: ignore[assignment]  # like the message

    def __str__(self) -> str:
        return str(self._message)

    def __repr__(self) -> str:
        return repr(self._message)


_READING = frozenset({"HasField", "WhichOneof", "SerializeToString", "SerializePartialToString", "ByteSize"})


class ReadOnlySequence(Sequence[Any]):
    """A read-only wrapper of a repeated field."""

    __slots__ = ("_field",)

    def __init__(self, field: Sequence[Any]) -> None:
        self._field = field

    def __getitem__(self, index: Any) -> Any:
        found = self._field[index]
        return [_shown(each) for each in found] if isinstance(index, slice) else _shown(found)

    def __len__(self) -> int:
        return len(self._field)

    def __iter__(self) -> Iterator[Any]:
        return map(_shown, self._field)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Iterable) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # like the message

    def __repr__(self) -> str:
        return repr(self._field)


def _shown(value: Any) -> Any:
    if isinstance(value, Message):
        return ReadOnly(value)
    if hasattr(value, "MergeFrom"):  # a repeated field
        return ReadOnlySequence(value)
    return value


M = TypeVar("M", bound=Message)


def read_only(message: M) -> M:
    """A message as a read-only wrapper; see `ReadOnly`."""
    return cast(M, ReadOnly(message))


def shown(message: M) -> M:
    """The message itself, or a read-only wrapper while a pass runs."""
    return cast(M, ReadOnly(message)) if _state.passes else message


def unwrapped(value: Any) -> Any:
    """The message inside a read-only wrapper; any other value itself."""
    return value._message if type(value) is ReadOnly else value
