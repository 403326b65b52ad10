"""Data classes that are quick to define, for modules that a first call imports.

The decorator of the standard library compiles the source of up to six methods per class: half a millisecond per class,
and a call in a new process defines eighty classes, half of which it never instantiates. Here all methods are shared
except `__init__`, which is compiled when the first object is made. Fields, their checks, slots, `replace` and
`asdict` are the standard library's.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        cls: type | None = None,
        /,
        *,
        init: bool = True,
        eq: bool = True,
        frozen: bool = False,
        slots: bool = False,
        kw_only: bool = False,
    ) -> Any:
        """Make a data class: like `dataclasses.dataclass` with a part of its options, and the same behaviour."""
        if cls is None:
            return lambda it: dataclass(it, init=init, eq=eq, frozen=frozen, slots=slots, kw_only=kw_only)
        if frozen and not cls.__dict__.keys().isdisjoint(_FROZEN):
            raise TypeError(f"{cls.__name__} is frozen and says itself how its attributes are set")
        if cls.__doc__ is None:
            cls.__doc__ = cls.__name__  # otherwise the standard library computes the signature for it
        given = set(cls.__dict__)
        annotations = cls.__dict__.get("__annotations__", {})  # noqa: RUF063 -- it is changed, and no copy of it
        stated = _plain_text(annotations)
        annotations.update(dict.fromkeys(stated, Any))
        made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
        annotations.update(stated)
        for name, text in stated.items():
            made.__dataclass_fields__[name].type = text
        if init:
            made.__init__, made.__signature__ = _waiting(made, frozen), _Signature()
        if eq and not _has_hash(cls):
            made.__hash__ = _hash(made) if frozen else None
        for name, method in _methods(made, eq, frozen, slots).items():
            if name not in given:
                setattr(made, name, method)
        return made


def _plain_text(annotations: Mapping[str, Any]) -> dict[str, str]:
    """The annotations if all are text without the standard library's own marks, otherwise an empty dict.

    The standard library searches each text for these marks, so the texts are replaced while it makes the class.
    """
    try:
        texts = " ".join(annotations.values())
    except TypeError:  # an annotation is not text
        return {}
    return {} if "ClassVar" in texts or "InitVar" in texts or "KW_ONLY" in texts else dict(annotations)


def _methods(cls: type, eq: bool, frozen: bool, slots: bool) -> dict[str, Callable[..., Any]]:
    """The methods that a class gets unless it defines them itself."""
    compared = {"__eq__": _equal(cls)} if eq else {}
    pickled = _PICKLED if frozen and slots else {}
    return {"__repr__": _repr, **compared, **(_FROZEN if frozen else {}), **pickled}


def _has_hash(cls: type) -> bool:
    """Whether a class defines `__hash__` itself; Python sets it to None if the class only defines `__eq__`."""
    return cls.__dict__.get("__hash__") is not None or ("__hash__" in cls.__dict__ and "__eq__" not in cls.__dict__)


def _waiting(cls: type, frozen: bool) -> Callable[..., None]:
    """An `__init__` that replaces itself with the real one on the first call."""

    def ready() -> Callable[..., None]:
        real = cls.__init__ = _init(cls, frozen)  # type: ignore[misc]  # that is the point
        return real

    def init(self: Any, /, *words: Any, **named: Any) -> None:
        ready()(self, *words, **named)

    init.ready = ready  # type: ignore[attr-defined]
    return init


class _Signature:
    """The `__signature__` of a class, for `inspect.signature`: that of the real `__init__`."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        init = owner.__init__  # type: ignore[misc]  # also that of a class that derives from a record
        signature = inspect.signature(init.ready() if hasattr(init, "ready") else init)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


class _Factory:
    """The default of an argument with a default factory."""

    def __repr__(self) -> str:
        return "<factory>"


def _init(cls: type, frozen: bool) -> Callable[..., None]:
    """The `__init__` that sets the fields, compiled from the source that a person would write."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": _Factory()}
    plain: list[str] = ["self"]
    named: list[str] = []
    lines: list[str] = []
    for field in fields(cls):
        default = value = _default(field, known)
        if field.default_factory is not MISSING:
            default, value = "_missing", f"{default}()"
        if field.init:
            (named if field.kw_only else plain).append(f"{field.name}={default}" if default else field.name)
            value = f"{value} if {field.name} is _missing else {field.name}" if default == "_missing" else field.name
        if value:
            lines.append(_setting(cls, field.name, value, known) if frozen else f"self.{field.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    words = ", ".join([*plain, *(["*"] if named else []), *named])
    exec(f"def __init__({words}):\n " + "\n ".join(lines or ["pass"]), known)  # as the standard library does
    types = {field.name: field.type for field in fields(cls) if field.init}
    known["__init__"].__annotations__ = {**types, "return": None}
    known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return known["__init__"]  # type: ignore[no-any-return]


def _setting(cls: type, name: str, value: str, known: dict[str, Any]) -> str:
    """A statement that sets an attribute of a frozen class; directly by its slot, if it has one, which is faster."""
    slot = getattr(cls, name, None)
    if not isinstance(slot, MemberDescriptorType):
        return f"_set(self, {name!r}, {value})"
    known[f"_set_{name}"] = slot.__set__
    return f"_set_{name}(self, {value})"


def _default(field: Field[Any], known: dict[str, Any]) -> str:
    """The name of a field's default or default factory in `known`, "" if it has neither."""
    value = field.default if field.default_factory is MISSING else field.default_factory
    if value is MISSING:
        return ""
    known[f"_default_{field.name}"] = value
    return f"_default_{field.name}"


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return f"{type(self).__qualname__}({shown})"


def _equal(cls: type) -> Callable[[Any, object], bool]:
    key = _reader([field.name for field in fields(cls) if field.compare])

    def equal(self: Any, other: object) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    return equal


def _hash(cls: type) -> Callable[[Any], int]:
    key = _reader([field.name for field in fields(cls) if (field.compare if field.hash is None else field.hash)])

    def hashed(self: Any) -> int:
        return hash(key(self))

    return hashed


def _reader(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that returns these attributes as a tuple, for any number of them."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda each: tuple([getattr(each, name) for name in names])


def _refuse(self: Any, name: str, *value: Any) -> None:
    """Refuse to set or delete attributes, except those that a subclass of a frozen class has besides the fields."""
    kind = type(self)
    if "__dataclass_fields__" in kind.__dict__ or name in kind.__dataclass_fields__:
        raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")
    (object.__setattr__ if value else object.__delattr__)(self, name, *value)


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_FROZEN: dict[str, Callable[..., Any]] = {"__setattr__": _refuse, "__delattr__": _refuse}
_PICKLED: dict[str, Callable[..., Any]] = {"__getstate__": _state, "__setstate__": _restore}
"""The methods to copy and pickle a frozen class with slots, since the usual way sets attributes."""
