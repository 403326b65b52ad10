"""How the process of a command begins and ends: without what a short run has no use for.

A library must not do this to whoever imports it; the process of a command is the command's own.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any, NoReturn

_UNUSED: dict[str, dict[str, Any]] = {
    "google.protobuf.internal.python_message": {},  # messages in plain Python, also where they are compiled
    "google.protobuf.text_encoding": {},
    "numpy._core._add_newdocs": {},  # documentation, as is the next
    "numpy._core._add_newdocs_scalars": {},
    "numpy._core._internal": {},  # buffers of others, and what `ctypes` makes of arrays
    "numpy._typing": {"NDArray": list},  # what annotates the results of linear algebra
    **{name: {} for name in ("calendar", "copy", "fnmatch", "ipaddress", "linecache", "pickle", "platform")},
    **{name: {} for name in ("textwrap", "tokenize")},
}
"""What numpy, protobuf and the standard library import and a run does not use; of each, what they ask of it at once."""


def open_streams() -> None:
    """Replace standard streams that were closed when the process began.

    Otherwise files get their numbers, and what native code prints goes into a model. Reading the input, or writing to
    the output, fails then as it does elsewhere; complaints go nowhere.
    """
    unusable = (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_RDWR))
    for name, mode, flags in unusable:
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, flags)  # the lowest number that is free: its own
            setattr(sys, name, os.fdopen(handle, mode, encoding="utf-8", errors="replace"))


def import_in_parts() -> None:
    """Let parts of onnx, and what is imported for nothing, run when something asks for them, rather than all at once.

    Whoever imports onnx gets the reader of text and JSON, model composition, the packer of archives and the parser of
    e-mails, half of what an import takes; a fifth of what numpy's takes is its documentation, and types to annotate
    with. From now on a part is there as soon as it is asked for, and what is no part of onnx brings the whole. What is
    imported already, or is no plain module, stays as it is.
    """
    sys.meta_path.insert(0, _Unused)
    if "onnx" in sys.modules:
        return
    spec = PathFinder.find_spec("onnx")
    if spec is None or not isinstance(spec.loader, SourceFileLoader) or not spec.submodule_search_locations:
        return
    package = module_from_spec(spec)
    package.__class__ = _InParts
    sys.modules["onnx"] = package


class _Waiting(ModuleType):
    """A plain module whose code runs when something is asked for that is not there yet."""

    def __getattr__(self, name: str) -> Any:
        self.__class__ = ModuleType  # type: ignore[assignment]  # a class of its own no longer
        SourceFileLoader.exec_module(self.__loader__, self)  # type: ignore[arg-type]
        return getattr(self, name)


class _Unused(SourceFileLoader):
    """Finds what is imported for nothing, and leaves it waiting."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Where such a module is, for the first time; nothing for others."""
        spec = PathFinder.find_spec(name, path) if name in _UNUSED and target is None else None
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = cls(spec.loader.name, spec.loader.path)
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing yet."""
        vars(module).update(_UNUSED[module.__name__])
        module.__class__ = _Waiting


class _InParts(_Waiting):
    """The package onnx, its `__init__` not run."""

    def __getattr__(self, name: str) -> Any:
        protos = import_module("onnx.onnx_pb")
        if hasattr(protos, name):
            setattr(self, name, getattr(protos, name))
            return getattr(protos, name)
        if PathFinder.find_spec(f"onnx.{name}", self.__path__) is not None:
            return import_module(f"onnx.{name}")
        return super().__getattr__(name)


def end(code: int) -> NoReturn:
    """End the process, as Python does but for taking everything in it apart, object by object.

    That is a fifth of a short run. What the standard library does where it starts a process by a fork: what was
    registered for the end is called, what was written goes out, and the system has the rest back at once.
    """
    if threading.active_count() == 1:
        atexit._run_exitfuncs()
        try:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        except (OSError, ValueError):  # Python says what became of it
            sys.exit(code)
        os._exit(code)
    sys.exit(code)
