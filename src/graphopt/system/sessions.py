"""Sessions of ONNX Runtime: quiet, on the CPU, sequential, and otherwise as each caller says."""

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
"""The runtime's levels of optimization, as graphopt and the runtime call them."""

LIBRARIES = "GRAPHOPT_CUSTOM_OPS"
"""The environment variable that names libraries of custom operators, for every session in every process."""

ALONE = {"session.force_spinning_stop": "1"}
"""For sessions that take turns: the threads of one that has just run must not spin on the core of the next."""

_KERNEL = "_kernel_time"
_EXTERNAL_FILE = "session.optimized_model_external_initializers_file_name"
_EXTERNAL_MINIMUM = "session.optimized_model_external_initializers_min_size_in_bytes"
_EXTERNAL_FROM = "1024"


def open_session(
    model: Any, *, level: str = "none", threads: int = 1, config: Mapping[str, str] | None = None,
    profile: Path | None = None, save_as: str | Path | None = None, disabled: Sequence[str] = (), verbose: bool = False,
) -> Any:  # fmt: skip
    """A session.

    Args:
        model: a path, serialized bytes or a proto.
        level: one of `LEVELS`; nothing is optimized by default.
        threads: that work on one operator. Operators run one after the other.
        config: session configuration entries.
        profile: where to write a profile, without its suffix; see `kernel_events`.
        save_as: where to write the model as it runs.
        disabled: optimizers to leave out.
        verbose: log everything to standard error, instead of nothing.

    Raises:
        Exception: of whatever kind the runtime raises; they share no base class.
    """
    ort = require("onnxruntime")

    options = ort.SessionOptions()
    for library in filter(None, os.environ.get(LIBRARIES, "").split(os.pathsep)):
        try:
            options.register_custom_ops_library(library)
        except Exception as error:  # of the runtime's many kinds
            raise UsageError(f"{LIBRARIES}: {library} cannot be loaded: {error}") from None
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[level])
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 0 if verbose else 4
    options.log_verbosity_level = 4 if verbose else 0
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
    """Configuration with which what `save_as` writes has its weights in a file of this name beside it.

    Otherwise weights that are in files stay references to these, which are beside the original.
    """
    return {_EXTERNAL_FILE: name, _EXTERNAL_MINIMUM: _EXTERNAL_FROM}


def kernel_events(session: Any) -> list[dict[str, Any]]:
    """What the profile of a session says of kernels: an event for each run of a node, `name` the node's, `dur` in us.

    The profile ends with it.
    """
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    found = [event for event in events if event.get("cat") == "Node" and event["name"].endswith(_KERNEL)]
    return [{**event, "name": event["name"].removesuffix(_KERNEL)} for event in found]
