"""What of a model passes can see but not write to: while one runs, only the gate changes anything.

A pass that fails is undone by the journal, which knows what the gate did and nothing else. So the view does not take
any other change: objects that belong to a model are *sealed*, their lists and dicts refuse to be changed, and protos
are shown read-only. Outside of a run all of them can be changed as usual.

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
"""How the engine changes an attribute of a sealed object."""


class _State(threading.local):
    passes = 0
    """How many passes run in this thread, one inside of the other."""


_state = _State()


@contextmanager
def sealed() -> Iterator[None]:
    """While a pass runs in this thread: what belongs to models refuses writes that do not come through the gate."""
    _state.passes += 1
    try:
        yield
    finally:
        _state.passes -= 1


@contextmanager
def unsealed() -> Iterator[None]:
    """For what the engine itself does in the middle of a pass, such as a conversion, which infers types."""
    passes, _state.passes = _state.passes, 0
    try:
        yield
    finally:
        _state.passes = passes


def is_sealed() -> bool:
    """Whether a pass runs in this thread."""
    return _state.passes > 0


def refuse(what: str) -> NoReturn:
    """Say that a pass changed something by itself.

    Raises:
        PassError: always.
    """
    raise PassError(f"{what} cannot be changed while a pass runs; change the graph through the Rewriter")


def check_unsealed(what: str) -> None:
    """Refuse a change in the middle of a pass.

    Args:
        what: how the message calls what would be changed.

    Raises:
        PassError: a pass runs.
    """
    if _state.passes:
        refuse(what)


class Sealed:
    """Mixed into a class, the sealed form of it; without attributes of its own, so that the layout is the same."""

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
    """A protobuf message that can be read and not changed. It passes for one in `isinstance`."""

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
    """A repeated field that can be read and not changed."""

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
    """A message as passes may see it; see `ReadOnly`."""
    return cast(M, ReadOnly(message))


def shown(message: M) -> M:
    """A message itself, or read-only while a pass runs."""
    return cast(M, ReadOnly(message)) if _state.passes else message


def unwrapped(value: Any) -> Any:
    """The message itself where a value is a read-only one."""
    return value._message if type(value) is ReadOnly else value
