"""The beginning and end of a command's process, without steps that a short run does not need.

A library must not do this to its importer; a command owns its process.
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
    "google.protobuf.internal.python_message": {},  # messages in pure Python, imported even if compiled ones are used
    "google.protobuf.text_encoding": {},
    "numpy._core._add_newdocs": {},  # documentation, like the next
    "numpy._core._add_newdocs_scalars": {},
    "numpy._core._internal": {},  # foreign buffers, and arrays as `ctypes` objects
    "numpy._typing": {"NDArray": list},  # annotates the results of linear algebra
    **{name: {} for name in ("calendar", "copy", "fnmatch", "ipaddress", "linecache", "pickle", "platform")},
    **{name: {} for name in ("textwrap", "tokenize")},
}
"""Modules that numpy, protobuf and the standard library import and a run does not use, with names needed at import."""


def open_streams() -> None:
    """Replace standard streams that were closed at process start.

    Otherwise opened files get their descriptors, and native code would print into a model. Reading the input and
    writing to the output then fail as usual; error messages are discarded.
    """
    unusable = (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_RDWR))
    for name, mode, flags in unusable:
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, flags)  # the lowest free descriptor: its own
            setattr(sys, name, os.fdopen(handle, mode, encoding="utf-8", errors="replace"))


def import_in_parts() -> None:
    """Run parts of onnx, and unused imports, lazily when they are accessed.

    Importing onnx imports the reader of text and JSON, model composition, the archiver and the e-mail parser, half of
    the import time; a fifth of numpy's import time is its documentation and its types for annotations. With this a part
    is imported on first access, and a name outside the parts of onnx imports all of onnx. Modules that are already
    imported, or are not plain modules, stay as they are.
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
    """A plain module whose code runs on the first access to a missing attribute."""

    def __getattr__(self, name: str) -> Any:
        self.__class__ = ModuleType  # type: ignore[assignment]  # no longer a lazy module
        SourceFileLoader.exec_module(self.__loader__, self)  # type: ignore[arg-type]
        return getattr(self, name)


class _Unused(SourceFileLoader):
    """Finds unused imports, and defers them."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of such a module, on its first import; None for others."""
        spec = PathFinder.find_spec(name, path) if name in _UNUSED and target is None else None
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = cls(spec.loader.name, spec.loader.path)
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Defer running it."""
        vars(module).update(_UNUSED[module.__name__])
        module.__class__ = _Waiting


class _InParts(_Waiting):
    """The package onnx, with its `__init__` deferred."""

    def __getattr__(self, name: str) -> Any:
        protos = import_module("onnx.onnx_pb")
        if hasattr(protos, name):
            setattr(self, name, getattr(protos, name))
            return getattr(protos, name)
        if PathFinder.find_spec(f"onnx.{name}", self.__path__) is not None:
            return import_module(f"onnx.{name}")
        return super().__getattr__(name)


def end(code: int) -> NoReturn:
    """End the process like Python, but without deallocating every object, which takes a fifth of a short run.

    As in the standard library's forked processes: registered exit functions are called, streams are flushed, and the
    system reclaims the rest.
    """
    if threading.active_count() == 1:
        atexit._run_exitfuncs()
        try:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        except (OSError, ValueError):  # Python reports the error
            sys.exit(code)
        os._exit(code)
    sys.exit(code)
