"""Matrix products of tokens next to convolutions of the image of these tokens, written as 1x1 convolutions."""

from __future__ import annotations

from graphopt.ir.types import element_count
from graphopt.operators.product import PRODUCTS, LayerProduct, ends
from graphopt.operators.transpose import FIRST, LAST, Transpose
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter, Value
from graphopt.system.machine import Target
from graphopt_passes.layout import timing
from graphopt_passes.layout.activations import ELEMENTWISE
from graphopt_passes.layout.blocks import ForBlocks
from graphopt_passes.layout.layer_products import Between, check_blocked, regroups_rows


class ConvertPixelProductToConv(ForBlocks, OpRule):
    """Replace a matrix product over the pixels of an image, next to other convolutions, with a 1x1 convolution.

    Hybrid transformers widen tokens by a product, make an image of them for a depthwise convolution, and narrow the
    tokens of its result. As convolutions both products belong to the blocked region: only the narrow tokens are
    reordered, and biases cost nothing. Elementwise operators in between stay in blocks. A pvt_v2_b0 takes 0.82 of the
    time with four of its eight blocks converted (Zen 4).

    `Options(extra={"convert_pixel_product_to_conv": {"force": True}})` converts products of any size.
    """

    ops = ("Transpose", *PRODUCTS, "Add")
    needs = (("Conv",), ("Transpose",), PRODUCTS)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        force = rw.options.forces(self.name)
        if node.op == "Transpose":
            return _into_image(node, rw, force=force)
        return _out_of_image(node, rw, force=force)


def _into_image(node: Node, rw: Rewriter, *, force: bool) -> Outcome:
    """Products whose results become an image that convolutions read."""
    image = node.result
    if Transpose.of(node).perm != FIRST or image.is_output or not all(_filters(user, image) for user in image.users):
        raise Decline
    between = Between.of(node.operand(0), node, LayerProduct.of)
    products = list(between.first.values())
    batch, height, width, _ = node.operand(0).dims()
    _check(node, products, (batch, height, width), rw, force=force)
    made: dict[Value, Value] = {}
    for value, product in between.first.items():
        rows = _ungrouped(product.x, batch)
        pixels = rw.op("Reshape", rows, shape=(_size(batch), _size(height), _size(width), product.inputs))
        made[value] = product.over(rw.op("Transpose", pixels, perm=FIRST), rw)
    return rw.replace(node, [between.over(made, rw)[node.operand(0)]])


def _out_of_image(node: Node, rw: Rewriter, *, force: bool) -> Outcome:
    """A product of rows that are the pixels of a convolution's result."""
    if not ends(node):
        raise Decline
    last = LayerProduct.of(node.result)
    between = Between.of(last.x, last.nodes[0], lambda rows: _image_of(rows, node))
    image, *others = between.first.values()
    if any(other.dims() != image.dims() for other in others):
        raise Decline("the images in front of {} differ in shape", node.result.name)
    batch, _, height, width = image.dims()
    _check(node, [last], (batch, height, width), rw, force=force)
    dims = node.result.dims()
    if not all(isinstance(dim, int) for dim in dims[1:]) or (not isinstance(dims[0], int) and dims[0] != batch):
        raise Decline("the number of rows of {} is not known", node.result.name)
    made = between.over(dict(between.first), rw)
    rows = rw.op("Transpose", last.over(made[last.x], rw), perm=LAST)
    return rw.replace(node, [rw.op("Reshape", rows, shape=tuple(map(_size, dims)))])


def _filters(node: Node, image: Value) -> bool:
    """Whether a node is a convolution that reads `image` as its data."""
    return node.op == "Conv" and node.operand(0) is image and node.operand(1) is not image


def _image_of(rows: Value, reader: Node) -> Value:
    """The image, computed by a convolution, whose pixels are `rows`; declines if there is none."""
    node = rows.source("Transpose", reader=reader)
    if Transpose.of(node).perm != LAST:
        raise Decline
    image = node.operand(0)
    made = image.source("Conv", *ELEMENTWISE, reader=reader)
    while made.op != "Conv":
        made = made.operand(0).source("Conv", *ELEMENTWISE, reader=reader)
    return image


def _ungrouped(rows: Value, batch: object) -> Value:
    """Rows before they were regrouped, if a batch of unknown size must be copied from their shape."""
    while not isinstance(batch, int) and rows.dims()[0] != batch:
        regrouped = rows.producer
        if not regrouped or not regroups_rows(regrouped):
            raise Decline("the batch of {} is not known", rows.name)
        rows = regrouped.operand(0)
    return rows


def _size(dim: object) -> int:
    """A size as `Reshape` takes it; only the batch may be unknown, and is copied."""
    return dim if isinstance(dim, int) else 0


def _check(
    node: Node, products: list[LayerProduct], sizes: tuple[object, object, object], rw: Rewriter, *, force: bool
) -> None:
    """Decline if the products cannot be convolutions in blocks, or gain nothing as such."""
    if not all(isinstance(size, int) and size > 0 for size in sizes[1:]) or sizes[0] in (None, 0):
        raise Decline("the size of the image is not known")
    check_blocked(node, products, rw)
    if force:
        return
    target, positions = rw.target, element_count(sizes)
    before = sum(_as_product(product, positions, target) for product in products)
    sizes_of = ((product.inputs, product.outputs) for product in products)
    after = sum(timing.convolution(*each, (1, 1), (1, positions), target)[1] for each in sizes_of)
    wide, narrow = products[-1].outputs, sum(product.inputs for product in products)
    if node.op != "Transpose":
        wide, narrow = products[0].inputs, products[0].outputs
    before += timing.reorder(wide, positions, target)
    after += timing.reorder(narrow, positions, target)
    if after >= before * (1 - timing.rates_of(target).error):
        raise Decline("it takes {:.0f} us in blocks, {:.0f} us as products of rows", after, before)


def _as_product(product: LayerProduct, rows: int, target: Target) -> float:
    """Microseconds of a product of rows with weights that are packed already, and of the addition of its bias."""
    rates = timing.rates_of(target)
    stored = 4 * rows * product.outputs * (1 if product.bias is None else 2)
    return rows * product.inputs * product.outputs / rates.plain + stored / rates.store + rates.start
