"""Constant weights of linear operators as rows: one per output, with the weights of the terms that it sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.operators.affine import Affine
from graphopt.records import dataclass

WEIGHED: dict[str, tuple[int, ...]] = {
    "Conv": (1,), "com.microsoft::FusedConv": (1,), "ConvTranspose": (1,), "Gemm": (0, 1),
    "com.microsoft::FusedGemm": (0, 1), "MatMul": (0, 1), "BatchNormalization": (1,), "LSTM": (1, 2), "GRU": (1, 2),
    "RNN": (1, 2),
}  # fmt: skip
"""Operators that multiply their input with weights, and the input indices of these."""

_NOTHING = np.zeros(0)


@dataclass(frozen=True, slots=True)
class Rows:
    """The weights of an operator by output.

    Attributes:
        array: the weights with four axes, of which the first and the third index the outputs.
        scale: the factor of each output's sum, by both axes, for inputs of magnitude 1.
        bias: the magnitude of each output's bias, by both axes; 0 if it is not known.
    """

    array: np.ndarray[Any, Any]
    scale: np.ndarray[Any, Any]
    bias: np.ndarray[Any, Any]

    def sums(self, chosen: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The sum of the magnitudes of each output's chosen weights."""
        magnitudes = np.where(chosen, np.abs(self.array), 0)
        return np.asarray(magnitudes.sum(axis=(1, 3), dtype=np.float64) * self.scale)

    def largest(self, without: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The largest magnitude of each output's weights, except those in `without`."""
        magnitudes = np.where(without, 0, np.abs(self.array))
        return np.asarray(magnitudes.max(axis=(1, 3), initial=0).astype(np.float64) * self.scale)

    def spread(self, outputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Broadcast one boolean per output to one per weight."""
        return outputs[:, None, :, None]


def read_rows(node: Node, index: int) -> Rows:
    """The constant weights at an input of an operator in `WEIGHED`; declines if there are none."""
    array = node.operand(index).array()
    if not array.size:
        raise Decline("{} is empty", node.operand(index).name)
    return _READERS[node.op_type](node, index, array)


def constant(node: Node, index: int) -> np.ndarray[Any, Any]:
    """The constant at an optional input; empty if it is omitted or not constant."""
    value = node.input(index)
    array = value.const() if value is not None else None
    return _NOTHING if array is None else array


def _of_conv(node: Node, index: int, array: np.ndarray[Any, Any]) -> Rows:
    if array.ndim < 3:
        raise Decline("the weight of {} has rank {}", node.op, array.ndim)
    return _plain(array.reshape(1, 1, len(array), -1), constant(node, 2))


def _of_conv_transpose(node: Node, index: int, array: np.ndarray[Any, Any]) -> Rows:
    group = node.attr("group", 1)
    if array.ndim < 3:
        raise Decline("the weight of {} has rank {}", node.op, array.ndim)
    if group < 1 or len(array) % group:
        raise Decline("{} input channels are not a multiple of {} groups", len(array), group)
    rows = array.reshape(group, len(array) // group, array.shape[1], -1)
    return _plain(rows, constant(node, 2))


def _of_gemm(node: Node, index: int, array: np.ndarray[Any, Any]) -> Rows:
    if array.ndim != 2:
        raise Decline("the weight of Gemm has rank {}", array.ndim)
    first = bool(node.attr("transA" if index == 0 else "transB", 0)) == (index == 1)
    rows = array.reshape(1, 1, *array.shape) if first else array.reshape(1, *array.shape, 1)
    bias = np.abs(constant(node, 2))
    if bias.size:
        least = bias.reshape((1,) * (2 - bias.ndim) + bias.shape).min(axis=1 if index == 0 else 0)
        if least.shape not in ((1,), rows.shape[2:3]):
            raise Decline("the bias of Gemm has shape {}", bias.shape)
        bias = np.broadcast_to(least, (rows.shape[2],)) * float(node.attr("beta", 1.0))
    return _plain(rows, bias, abs(float(node.attr("alpha", 1.0))))


def _of_matmul(node: Node, index: int, array: np.ndarray[Any, Any]) -> Rows:
    if array.ndim < 2 or index == 0:
        return _plain(array.reshape(1, 1, -1, array.shape[-1]) if array.ndim else array.reshape(1, 1, 1, 1))
    return _plain(array.reshape(-1, *array.shape[-2:], 1))


def _of_batchnorm(node: Node, index: int, array: np.ndarray[Any, Any]) -> Rows:
    Affine.of_normalization(node)  # declines in training mode, and for computed parameters
    bias, mean, variance = (np.abs(node.operand(place).array().astype(np.float64)) for place in (2, 3, 4))
    factor = 1 / np.sqrt(variance + np.float64(np.float32(node.attr("epsilon"))))
    factor *= np.maximum(mean, 1)  # the weight also multiplies the mean, whose product is part of the shift
    return Rows(array.reshape(1, 1, -1, 1), factor.reshape(1, -1), bias.reshape(1, -1))


def _of_recurrence(node: Node, index: int, array: np.ndarray[Any, Any]) -> Rows:
    if array.ndim != 3:
        raise Decline("the weight of {} has rank {}", node.op, array.ndim)
    number = array.shape[0] * array.shape[1]
    bias = constant(node, 3)
    if bias.size == 2 * number:  # one bias of the input, and one of the state
        bias = bias.reshape(array.shape[0], 2, -1).astype(np.float64).sum(axis=1)
    return _plain(array.reshape(1, 1, number, -1), bias)


def _plain(array: np.ndarray[Any, Any], bias: np.ndarray[Any, Any] = _NOTHING, scale: float = 1.0) -> Rows:
    """Rows with a common scale, and a bias if it has one number per output."""
    outputs = (array.shape[0], array.shape[2])
    if bias.size != outputs[0] * outputs[1]:
        bias = np.zeros(outputs)
    return Rows(array, np.full(outputs, scale), np.abs(bias).astype(np.float64).reshape(outputs))


_READERS: dict[str, Callable[[Node, int, np.ndarray[Any, Any]], Rows]] = {
    "Conv": _of_conv, "FusedConv": _of_conv, "ConvTranspose": _of_conv_transpose, "Gemm": _of_gemm,
    "FusedGemm": _of_gemm, "MatMul": _of_matmul, "BatchNormalization": _of_batchnorm, "LSTM": _of_recurrence,
    "GRU": _of_recurrence, "RNN": _of_recurrence,
}  # fmt: skip
