"""Windows of blocked convolutions that reach beyond the edges of an image."""

from __future__ import annotations

from onnx import TensorProto

from graphopt.operators import Pad
from graphopt.operators.window import KernelAxis
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter
from graphopt.system.machine import BLOCKS, Target
from graphopt_passes.algorithm import work
from graphopt_passes.layout import timing
from graphopt_passes.layout.blocks import DOMAIN, ForBlocks

MEASURED = ("avx512",)
"""The targets whose kernels were measured."""

WIDTH = 5
"""The least width of a kernel that gains: in narrower ones, a larger share of a window at the edge is skipped."""

_LONGER = 0.5
"""How much longer a position takes that is computed alone, as a part of its time: 0.5 to 1.3 in most measurements."""

_LEAST = 0.02
"""The least gain, as a part of the time."""


class ConvertConvPadsToPad(ForBlocks, OpRule):
    """Pad the rows of an image with a `Pad` before a blocked convolution with wide windows.

    The kernel computes up to six positions of a row together, but positions whose window reaches beyond the left or
    right edge one by one. Convolutions take 0.59 (1x127 in 16 groups, 768 to 768 channels, 199 positions) to 0.94 (5x5,
    64 to 64 at 56x56) of the time (Zen 5). An infinite weight times the zeros of the padding is NaN.

    `Options(extra={"convert_conv_pads_to_pad": {"force": True}})` pads whatever it costs.
    """

    ops = (f"{DOMAIN}::Conv",)
    finite = True

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, block = node.operand(0), rw.target.block
        *above, across = KernelAxis.of(node)
        if len(above) != 1:
            raise Decline("{} is not an image", x.name)
        alone = _alone(across)
        if across.cells < WIDTH or not alone:
            raise Decline
        batch, channels, height, width = x.dims()[0], x.size(1), x.size(2), across.size
        if x.dtype != TensorProto.FLOAT or block not in BLOCKS or channels % block:
            raise Decline("{} is not in blocks", x.name)
        if 0 in (batch, height):
            raise Decline("{} is empty", x.name)
        if not rw.options.forces(self.name):
            _weigh(node, across, alone, rw)
        rows = rw.op("Reshape", x, shape=(-1, width * block))
        padded = Pad(rows, (0, across.before * block), (0, across.after * block)).write(rw)
        wider = width + across.before + across.after
        known = isinstance(batch, int)
        image = rw.op("Reshape", padded, shape=(batch if known else -1, channels, height, wider))
        pads = node.attr("pads")
        return rw.replace(node, [rw.again(node, image, *node.inputs[1:], pads=(pads[0], 0, pads[2], 0))])


def _alone(axis: KernelAxis) -> int:
    """How many positions of a row have a window that reaches beyond an edge."""
    span = (axis.cells - 1) * axis.dilation
    whole = axis.size + axis.before + axis.after - span
    inside = axis.size - span - (-axis.before % axis.stride)
    return max(-(-whole // axis.stride), 0) - max(-(-inside // axis.stride), 0)


def time_to_pad(elements: float, target: Target) -> float:
    """Microseconds of a `Pad` and the two `Reshape` around it."""
    return work.price({"kernel": 3, "element": elements}, work.rates_of(target))


def _weigh(node: Node, across: KernelAxis, alone: int, rw: Rewriter) -> None:
    """Decline unless the positions that are computed alone cost more than a `Pad`."""
    x, result, group = node.operand(0), node.result, int(node.attr("group", 1))
    channels, outputs, target = x.size(1), result.size(1), rw.target
    if group == channels:
        raise Decline("a depthwise convolution computes each position alone")
    if target.name not in MEASURED:
        raise Decline("the kernels of target {} were not measured", target.name)
    images = batch if isinstance(batch := x.dims()[0], int) else 1
    size = result.size(2), result.size(3)
    cells = node.operand(1).size(2), across.cells
    _, time = timing.convolution(
        channels, outputs, cells, size, target, batch=images, stride=across.stride, group=group
    )
    elements = images * channels * x.size(2) * (across.size + across.before + across.after)
    gain = time * _LONGER * alone / max(size[1], 1) - time_to_pad(elements, target)
    if gain < _LEAST * time:
        raise Decline("{} positions of a row that are computed alone cost less than a Pad", alone)
