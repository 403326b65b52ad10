"""Commands from function signatures: options, help, values from a configuration file, and shell completion.

A parameter is annotated with `Argument` or `Option`; its type determines the kind and number of its values, its
default applies if it is left out. Options shared by several commands are an `OptionGroup`, declared once. The standard
library parses: a third-party parser takes longer to import than most models take to optimize.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import typing
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any, NoReturn

from graphopt.errors import ModelError, UsageError
from graphopt.records import dataclass


class Exit(Exception):  # noqa: N818 -- an answer, not an error
    """Ends a command with an exit code after all its output.

    Args:
        code: the code.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Argument:
    """A positional parameter.

    Attributes:
        help: its description.
        metavar: its name in the usage line.
    """

    help: str
    metavar: str | None = None


@dataclass(frozen=True, slots=True, init=False)
class Option:
    """A named parameter.

    Attributes:
        names: its spellings, `--like-this`; derived from the parameter's name if empty.
        help: its description.
        min: the least number that it accepts.
        choices: the choices that a shell completes; the command itself checks values.
        needs: the parameter without which it has no effect, for commands that have that parameter.
        commas: whether one value may be a list separated by commas.
    """

    names: tuple[str, ...]
    help: str
    min: float | None
    choices: tuple[str, ...]
    needs: str
    commas: bool

    def __init__(
        self, *names: str, help: str, min: float | None = None, choices: Sequence[str] = (), needs: str = "",
        commas: bool = False,
    ) -> None:  # fmt: skip
        stated = {"names": names, "help": help, "min": min, "choices": tuple(choices), "needs": needs, "commas": commas}
        for name, value in stated.items():
            object.__setattr__(self, name, value)


class OptionGroup:
    """Options that belong together: a dataclass of annotated fields, which a command takes as one parameter."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a command.

    Attributes:
        name: its name in the function.
        stated: its annotation.
        kind: `str`, `int`, `float` or `bool`.
        many: whether it may be given several times.
        default: its value if it is left out.
        required: whether it must be given.
        group: the parameter of the function of which it is a field; "" if it is a parameter itself.
    """

    name: str
    stated: Argument | Option
    kind: type
    many: bool = False
    default: Any = None
    required: bool = False
    group: str = ""

    @classmethod
    def of(cls, name: str, hint: Any, default: Any, group: str = "") -> Parameter:
        """The parameter of an annotated function parameter or group field."""
        annotated = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Argument | Option)]
        if not annotated:
            raise TypeError(f"parameter {name!r} of a command needs an Argument or an Option, found {hint}")
        plain = typing.get_args(hint)[0]
        kinds = [each for each in typing.get_args(plain) if each is not NoneType]
        if kinds and typing.get_origin(plain) is not list:
            plain = kinds[0]
        many = typing.get_origin(plain) is list
        kind = typing.get_args(plain)[0] if many else plain
        required = default is inspect.Parameter.empty
        return cls(name, annotated[0], kind, many, None if required else default, required, group)

    @property
    def names(self) -> tuple[str, ...]:
        """The spellings of an option; empty for an argument."""
        if isinstance(self.stated, Argument):
            return ()
        return self.stated.names or ("--" + self.name.replace("_", "-"),)

    @property
    def shown(self) -> str:
        """Its name in messages."""
        if isinstance(self.stated, Option):
            return self.names[0]
        return self.stated.metavar or self.name

    @property
    def key(self) -> str:
        """Its name in a configuration file: that of the option without leading dashes."""
        return max(self.names, key=len).removeprefix("--")

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Add it to the standard library's parser."""
        shown = self.stated.help.replace("%", "%%")
        if isinstance(self.stated, Argument):
            nargs = ("+" if self.required else "*") if self.many else None if self.required else "?"
            parser.add_argument(self.name, nargs=nargs, default=self.default, metavar=self.stated.metavar, help=shown)
        elif self.kind is bool:
            parser.add_argument(
                *self.names, dest=self.name, action="store_true", default=bool(self.default), help=shown
            )
        else:
            parser.add_argument(
                *self.names, dest=self.name, type=self.read, default=self.default, help=shown + self._default_note(),
                action="append" if self.many else "store", metavar=self.kind.__name__.upper().replace("STR", "TEXT"),
            )  # fmt: skip

    def _default_note(self) -> str:
        return "" if self.default in (None, "") else f" [default: {self.default}]"

    def read(self, text: str) -> Any:
        """Convert a value of the command line."""
        try:
            return self.kind(text)
        except ValueError:
            number = "a whole number" if self.kind is int else "a number"
            raise argparse.ArgumentTypeError(f"expected {number}, found {text!r}") from None

    def apart(self, value: Any) -> Any:
        """A value with comma-separated lists split, if the option allows them."""
        if not (isinstance(self.stated, Option) and self.stated.commas and value):
            return value
        return [part.strip() for text in value for part in text.split(",")]

    def check(self, value: Any) -> None:
        """Reject numbers that are too small, empty text, and a missing required option.

        Empty text usually comes from an unset shell variable. As a path it would be the current folder, whose models
        would be read, or replaced.
        """
        if self.required and value is None and isinstance(self.stated, Option):
            raise UsageError(f"{self.names[0]} is missing: {self.stated.help}")
        if value != self.default and "" in (value if self.many else [value]):
            raise UsageError(f"{self.shown}: expected a value, found an empty text")
        least = self.stated.min if isinstance(self.stated, Option) else None
        if least is not None and value is not None and not value >= least:  # also rejects NaN
            raise UsageError(f"{self.names[0]}: expected at least {least:g}, found {value:g}")

    def from_file(self, value: Any, where: str) -> Any:
        """Convert a value of a configuration file: brackets around one value and quotes around a number are optional.

        Raises:
            UsageError: it is of another kind.
        """
        given = value if isinstance(value, list) else [value]
        whole = self.kind in (float, str) and all(type(each) is int for each in given)
        if (isinstance(value, list) and not self.many) or not (whole or all(type(each) is self.kind for each in given)):
            expected = f"a list of {self.kind.__name__}" if self.many else self.kind.__name__
            raise UsageError(f"{where}: expected {expected}, found {value!r}")
        return [self.kind(each) for each in given] if self.many else self.kind(value)


class _Formatter(argparse.HelpFormatter):
    """Shows arguments as declared: `MODEL...` already says that more may follow."""

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        if not action.option_strings and isinstance(action.metavar, str):
            return action.metavar
        return super()._format_args(action, default_metavar)


class _Unshown(_Formatter):
    """For command lines without help: asking for the terminal's width would import a reader of archives."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80)


class _Parser(argparse.ArgumentParser):
    """Leaves the handling of errors to the caller."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message.removeprefix('argument ')}; see {self.prog} --help")


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        name: its name on the command line.
        place: `module:function` that runs it; imported when needed.
    """

    name: str
    place: str

    @cached_property
    def function(self) -> Any:
        """The function that runs it."""
        module, _, name = self.place.partition(":")
        return getattr(importlib.import_module(module), name)

    @cached_property
    def parameters(self) -> list[Parameter]:
        """Its parameters in order, with groups expanded."""
        found = []
        for name, (hint, default) in _stated(self.function).items():
            if name in self.groups:
                fields = _stated(self.groups[name]).items()
                found += [Parameter.of(field, *stated, name) for field, stated in fields]
            else:
                found.append(Parameter.of(name, hint, default))
        return found + list(COMMON)

    @cached_property
    def groups(self) -> dict[str, type[OptionGroup]]:
        """Its parameters that are groups."""
        stated = _stated(self.function).items()
        return {name: hint for name, (hint, _) in stated if isinstance(hint, type) and issubclass(hint, OptionGroup)}

    @property
    def options(self) -> list[str]:
        """Every option in all spellings."""
        return [name for parameter in self.parameters for name in parameter.names]

    @property
    def text(self) -> str:
        """Its description."""
        return inspect.getdoc(self.function) or ""

    def parse(self, words: Sequence[str]) -> dict[str, Any]:
        """The values of all parameters.

        Args:
            words: the words after the command's name.

        Raises:
            UsageError: the words do not match its parameters.
            ModelError: the configuration file cannot be read.
            SystemExit: help was requested and shown.
        """
        shown = bool({"-h", "--help"} & set(words))
        parser = _Parser(
            prog=f"graphopt {self.name}", description=self.text, add_help=False, allow_abbrev=False,
            formatter_class=_Formatter if shown else _Unshown,
        )  # fmt: skip
        parser.add_argument("-h", "--help", action="help", help="Show this help and exit.")
        if not shown:
            parser.usage = ""  # otherwise it is formatted for every command line, and never shown
        for parameter in self.parameters:
            parameter.add_to(parser)
        words = _marked(words)
        given, unknown = parser.parse_known_intermixed_args(words)
        for word in sorted(unknown, key=lambda word: not word.startswith("-")):
            self._refuse(word)  # report an option rather than the value meant for it
        named = {each.name for each in self.parameters if getattr(given, each.name) not in (None, each.default)}
        if given.config is not None:
            COMMON[0].check(given.config)
            stated = self._from_file(given.config)
            # The parser would append to a default that is a list; given values must replace it.
            lists = {name: value for name, value in stated.items() if isinstance(value, list)}
            parser.set_defaults(**{name: value for name, value in stated.items() if name not in lists})
            given = parser.parse_intermixed_args(words)
            for name, value in lists.items():
                if getattr(given, name) is None:
                    setattr(given, name, value)
        values = {name: _unmarked(value) for name, value in vars(given).items()}
        for parameter in self.parameters:
            values[parameter.name] = parameter.apart(values[parameter.name])
            parameter.check(values[parameter.name])
            if parameter.name in named:
                self._check_company(parameter, values)
        for name, group in self.groups.items():
            fields = [parameter.name for parameter in self.parameters if parameter.group == name]
            values[name] = group(**{field: values.pop(field) for field in fields})
        return values

    def _check_company(self, given: Parameter, values: Mapping[str, Any]) -> None:
        """Reject an option of the command line without the option that it needs; in a file it may stand alone."""
        needed = given.stated.needs if isinstance(given.stated, Option) else ""
        if needed in values and not values[needed]:
            other = next(each for each in self.parameters if each.name == needed)
            raise UsageError(f"{given.shown} does nothing without {other.shown}")

    def _refuse(self, word: str) -> NoReturn:
        word = _unmarked(word)
        hint = _meant(word.partition("=")[0], self.options) or f"; see graphopt {self.name} --help"
        raise UsageError(f"unknown argument {word!r}{hint}")

    def _from_file(self, path: str) -> dict[str, Any]:
        options = {parameter.key: parameter for parameter in self.parameters if parameter.names}
        found = {}
        shared, tables = _parted(_settings(path), path)
        own = tables.get(self.name, {})
        _check_known(own, options, f"{path}: {self.name} has no option")
        if not shared.keys() <= options.keys():  # otherwise the other commands need not be imported
            _check_known(shared, _all_keys(), f"{path}: no command has an option")
        # Values before any table are for every command with such an option.
        shared = {key: value for key, value in shared.items() if key in options}
        for key, value in (shared | own).items():
            found[options[key].name] = options[key].from_file(value, f"{path}: {key}")
        return found


_MARK = "\0"
"""Marks words after `--`; words of a command line cannot contain it."""


def _marked(words: Sequence[str]) -> list[str]:
    """The words of a command line, with those after `--` marked so that the parser does not read them as options."""
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], *(_MARK + word for word in words[end + 1 :])]


def _unmarked(value: Any) -> Any:
    """A value without the marks of `_marked`."""
    if isinstance(value, list):
        return [_unmarked(each) for each in value]
    return value.removeprefix(_MARK) if isinstance(value, str) else value


def _stated(called: Any) -> dict[str, tuple[Any, Any]]:
    """The annotation and default of each parameter of a function or dataclass."""
    hints = typing.get_type_hints(called, include_extras=True)
    return {name: (hints[name], each.default) for name, each in inspect.signature(called).parameters.items()}


COMMON = (
    Parameter("config", Option("--config", help="A TOML file with values for options not given."), str),
    Parameter("verbose", Option("--verbose", "-v", help="Show the log on standard error."), bool),
    Parameter("quiet", Option("--quiet", "-q", help="No progress and no report, only the exit code."), bool),
)
"""Parameters of every command."""


def _settings(path: str) -> Mapping[str, Any]:
    import tomllib

    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a TOML file: {error}") from None


def _parted(stated: Mapping[str, Any], path: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The values for all commands, and the table of each; that of `corpus run` may be `[corpus.run]`."""
    from graphopt.cli.app import COMMANDS

    shared, tables = dict[str, Any](), dict[str, Any]()
    groups = {group for group, of, _ in (name.partition(" ") for name in COMMANDS) if of}
    for key, value in stated.items():
        if key in groups and isinstance(value, dict):
            tables |= {f"{key} {inner}": each for inner, each in value.items()}
        elif isinstance(value, dict) or (key in COMMANDS and key not in _all_keys()):  # `passes` is either
            tables[key] = value
        else:
            shared[key] = value
    _check_known(tables, list(COMMANDS), f"{path}: there is no command")
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {name}: expected a table, found {table!r}")
    return shared, tables


def _all_keys() -> list[str]:
    """The keys of all commands' options in a configuration file; this imports every command."""
    from graphopt.cli.app import COMMANDS

    return [parameter.key for each in COMMANDS.values() for parameter in each.parameters if parameter.names]


def _check_known(given: Collection[str], known: Collection[str], complaint: str) -> None:
    for name in given:
        if name not in known:
            raise UsageError(f"{complaint} {name!r}{_meant(name, known)}")


def _meant(name: str, known: Collection[str]) -> str:
    """The known names close to an unknown one, as the end of a message; empty if there are none."""
    import difflib

    close = difflib.get_close_matches(name, list(dict.fromkeys(known)), 2)
    return f"; did you mean {' or '.join(close)}?" if close else ""
