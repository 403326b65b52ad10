"""How the process of a command begins and ends: without what a short run has no use for.

A library must not do this to whoever imports it; the process of a command is the command's own.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from importlib import import_module
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType
from typing import Any, NoReturn

_UNUSED = "google.protobuf.internal.python_message"
"""Messages in plain Python, and with them those as text: imported by protobuf even where its messages are compiled."""


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
    """Let parts of onnx and protobuf be imported when something asks for them, rather than all of them at once.

    Whoever imports onnx gets the reader of text and JSON, model composition, the packer of archives and the parser of
    e-mails, half of what an import takes. From now on a part is there as soon as it is asked for, and what is no part
    brings the whole. Where onnx is imported already, or is no plain package, it stays as it is.
    """
    if "onnx" in sys.modules:
        return
    spec = PathFinder.find_spec("onnx")
    if spec is None or not isinstance(spec.loader, SourceFileLoader) or not spec.submodule_search_locations:
        return
    _postpone(_UNUSED)
    package = module_from_spec(spec)
    package.__class__ = _InParts
    sys.modules["onnx"] = package


class _InParts(ModuleType):
    """The package onnx, its `__init__` not run."""

    def __getattr__(self, name: str) -> Any:
        protos = import_module("onnx.onnx_pb")
        if hasattr(protos, name):
            setattr(self, name, getattr(protos, name))
            return getattr(protos, name)
        if PathFinder.find_spec(f"onnx.{name}", self.__path__) is not None:
            return import_module(f"onnx.{name}")
        self.__class__ = ModuleType  # type: ignore[assignment]  # a class of its own no longer
        self.__loader__.exec_module(self)  # type: ignore[union-attr]  # a plain package's, see above
        return getattr(self, name)


def _postpone(name: str) -> None:
    """Let a module be loaded when something of it is asked for, as the documentation of `importlib` says."""
    try:
        spec = None if name in sys.modules else find_spec(name)
    except ModuleNotFoundError:  # of the package that it should be in
        return
    if spec is None or spec.loader is None:
        return
    spec.loader = LazyLoader(spec.loader)
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    parent, _, child = name.rpartition(".")
    setattr(sys.modules[parent], child, module)


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
