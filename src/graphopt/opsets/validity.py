"""Whether a model passes the standard's full check, as what comes of a conversion has to where the model did."""

from __future__ import annotations

import textwrap

import onnx
from onnx import helper

from graphopt.analysis.skeleton import may_be_inferred
from graphopt.ir import Model
from graphopt.ir.flush import stored, without_initializers

_READ_BYTES = 1024
"""What the check reads of initializers, which are lists of axes and of sizes, is never larger."""

_SHOWN = 300
_PREFIX = "[ShapeInferenceError] Inference error(s): "


class FlawedError(Exception):
    """A model does not pass the check; the message is what was found."""


def is_valid(model: Model) -> bool:
    """Whether a model passes the check."""
    try:
        check(model)
    except FlawedError:
        return False
    return True


def check(model: Model) -> None:
    """Have a model checked, unless that could end the process, or take without end.

    Args:
        model: the model. Its weights are shown as inputs: the check would copy them to no purpose, and takes no more
            than two gigabytes.

    Raises:
        FlawedError: it does not pass.
    """
    if not may_be_inferred(model):
        return
    try:
        onnx.checker.check_model(_without_weights(model), full_check=True)
    except Exception as error:  # the checker raises several unrelated types
        text = " ".join(str(error).split()).removeprefix(_PREFIX)
        raise FlawedError(textwrap.shorten(text, _SHOWN)) from error


def _without_weights(model: Model) -> onnx.ModelProto:
    weights = {
        value.name: value.tensor
        for value in stored(model.graph)
        if value.tensor is not None and not value.is_sparse and value.tensor.nbytes > _READ_BYTES
    }
    proto = without_initializers(model, set(weights))
    known = {value.name for value in proto.graph.input}
    for name, tensor in weights.items():
        if name not in known:
            proto.graph.input.append(helper.make_tensor_value_info(name, tensor.dtype, tensor.dims))
    return proto
