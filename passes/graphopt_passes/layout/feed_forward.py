"""Feed-forward blocks of transformers, written as 1x1 convolutions."""

from __future__ import annotations

from math import inf

from graphopt.ir.types import element_count
from graphopt.operators.product import PRODUCTS, LayerProduct, ends
from graphopt.operators.transpose import FIRST, LAST
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter
from graphopt_passes.layout import timing
from graphopt_passes.layout.blocks import ForBlocks
from graphopt_passes.layout.layer_products import Between, check_blocked

_GAINING = {"zen5": (2 << 20, 1024)}
_GAINING_ELSEWHERE = (4 << 20, 128)
"""The least bytes of weights and the most rows of a block that gains, on measured cores and on others.

With more rows products run at the core's peak either way, as long as what is between them stays in the cache.
"""

_WIDE = {"zen5": 4 << 20}
"""The least bytes between the products from which a block of any size gains, on measured cores.

A product writes each result several times, once for each part of the sum, and its bias before.
"""


class ConvertFeedForwardToConv(ForBlocks, OpRule):
    """Replace two products of rows, and the operators between them, with 1x1 convolutions over an image of the rows.

    The runtime's product of few rows with large weights runs at half its peak or less; its blocked convolution does
    not. Between the two, elementwise operators with numbers, or gates (products of the same rows that are multiplied),
    stay in blocks. Blocks of 512 and 2048 channels take 0.66 of the time at 16 rows, 0.93 at 256, and those of 96 and
    384 channels 0.91 at 3136 rows, 0.73 at 6400 (Zen 5).

    `Options(extra={"convert_feed_forward_to_conv": {"force": True}})` converts blocks of any size.
    """

    ops = (*PRODUCTS, "Add")
    needs = (PRODUCTS,)
    constant = True  # the weight, or the bias

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        last = LayerProduct.of(node.result)
        if not ends(node):
            raise Decline
        between = Between.of(last.x, last.nodes[0], LayerProduct.of)
        first = list(between.first.values())
        x = first[0].x
        if any(product.x is not x for product in first):
            raise Decline("the products before {} do not read the same rows", last.x.name)
        rows = _check(node, [*first, last], rw, force=rw.options.forces(self.name))
        image = rw.op("Transpose", rw.op("Reshape", x, shape=(1, 1, rows, first[0].inputs)), perm=FIRST)
        made = between.over({value: product.over(image, rw) for value, product in between.first.items()}, rw)
        result = rw.op("Transpose", last.over(made[last.x], rw), perm=LAST)
        return rw.replace(node, [rw.op("Reshape", result, shape=tuple(node.result.sizes()))])


def _check(node: Node, products: list[LayerProduct], rw: Rewriter, *, force: bool) -> int:
    """The number of rows; declines if the block cannot be converted, or would not gain."""
    x, target = products[0].x, rw.target
    dims = x.dims()
    if len(dims) < 2 or not all(isinstance(dim, int) and dim > 0 for dim in dims):
        raise Decline("the number of rows of {} is not known", x.name)
    rows = element_count(dims[:-1])
    check_blocked(node, products, rw)
    if force:
        return rows
    weights = sum(4 * product.inputs * product.outputs for product in products)
    least, most = _GAINING.get(target.core, _GAINING_ELSEWHERE)
    if target.name != "avx512":
        raise Decline("the kernels of target {} were not measured", target.name)
    between = 4 * rows * products[-1].inputs
    if between >= _WIDE.get(target.core, inf):
        return rows
    if weights < least:
        raise Decline("its weights have {} bytes, less than {}", weights, least)
    if rows > most:
        raise Decline("{} has {} rows, more than {}", x.name, rows, most)
    for product in products:
        plain, blocked = timing.convolution(product.inputs, product.outputs, (1, 1), (1, rows), target)
        if blocked >= plain:
            raise Decline("a convolution takes {:.0f} us in blocks, {:.0f} us in NCHW", blocked, plain)
    return rows
