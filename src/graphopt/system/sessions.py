"""Sessions of ONNX Runtime: quiet, on the CPU, sequential, with other settings by the caller."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphopt.errors import UsageError
from graphopt.system.extras import require

LEVELS = {
    "none": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT", "all": "ORT_ENABLE_ALL",
}  # fmt: skip
"""The runtime's optimization levels: graphopt's names and the runtime's."""

LIBRARIES = "GRAPHOPT_CUSTOM_OPS"
"""The environment variable that names libraries of custom operators, for every session in every process."""

ALONE = {"session.force_spinning_stop": "1"}
"""For sessions that run in turn: threads of the last session must not spin on the cores of the next."""

_KERNEL = "_kernel_time"
_EXTERNAL_FILE = "session.optimized_model_external_initializers_file_name"
_EXTERNAL_MINIMUM = "session.optimized_model_external_initializers_min_size_in_bytes"
_EXTERNAL_FROM = "1024"


def open_session(
    model: Any, *, level: str = "none", threads: int = 1, config: Mapping[str, str] | None = None,
    profile: Path | None = None, save_as: str | Path | None = None, disabled: Sequence[str] = (), verbose: bool = False,
    reuse: bool = True,
) -> Any:  # fmt: skip
    """Create a session.

    Args:
        model: a path, serialized bytes or a proto.
        level: one of `LEVELS`; nothing is optimized by default.
        threads: number of threads per operator. Operators run one after the other.
        config: session configuration entries.
        profile: path of a profile to write, without its suffix; see `kernel_events`.
        save_as: path for writing the optimized model.
        disabled: optimizers to disable.
        verbose: log everything to standard error, instead of nothing.
        reuse: let values share memory whose sizes, by onnx's inference, are equal.

    Raises:
        Exception: an exception of the runtime; these share no base class.
    """
    ort = require("onnxruntime")

    options = ort.SessionOptions()
    for library in filter(None, os.environ.get(LIBRARIES, "").split(os.pathsep)):
        try:
            options.register_custom_ops_library(library)
        except Exception as error:  # the runtime's exceptions share no base class
            raise UsageError(f"{LIBRARIES}: {library} cannot be loaded: {error}") from None
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[level])
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 0 if verbose else 4
    options.log_verbosity_level = 4 if verbose else 0
    options.enable_mem_reuse = reuse
    for key, value in (config or {}).items():
        options.add_session_config_entry(key, value)
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    if save_as:
        options.optimized_model_filepath = str(save_as)
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    elif isinstance(model, os.PathLike):
        model = os.fspath(model)
    more = {"disabled_optimizers": list(disabled)} if disabled else {}
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"], **more)


def weights_beside(name: str) -> dict[str, str]:
    """Configuration entries that put the weights of the model at `save_as` into a file of this name next to it.

    Otherwise external weights stay references to files next to the original.
    """
    return {_EXTERNAL_FILE: name, _EXTERNAL_MINIMUM: _EXTERNAL_FROM}


def kernel_events(session: Any) -> list[dict[str, Any]]:
    """The kernel events in a session's profile: one for each run of a node, with its `name`, and `dur` in us.

    This ends the profile.
    """
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    found = [event for event in events if event.get("cat") == "Node" and event["name"].endswith(_KERNEL)]
    return [{**event, "name": event["name"].removesuffix(_KERNEL)} for event in found]
