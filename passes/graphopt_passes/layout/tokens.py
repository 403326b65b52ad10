"""Images that transformers keep as rows of tokens: what moves between the two, said so that layouts see it."""

from __future__ import annotations

import numpy as np

from graphopt.ir import Node, Value
from graphopt.match import Mismatch
from graphopt.rewrite import Level, Numerics, OpRule, Outcome, Rewriter

_FIRST, _LAST = (0, 3, 1, 2), (0, 2, 3, 1)


class ConvertTokensToImage(OpRule):
    """Write tokens that become an image, and an image that becomes tokens, as a `Transpose` of four dimensions.

    [N, H*W, C] transposed and reshaped to [N, C, H, W] is [N, H, W, C] with its channels moved to the front, and back
    alike. The numbers move as before, but next to a convolution in blocked layout the `Transpose` of an image becomes
    part of the reorder that is there anyway.
    """

    name = "convert_tokens_to_image"
    ops = ("Reshape", "Transpose")
    level = Level.LAYOUT
    numerics = Numerics.EXACT
    opsets = "7-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for the pair that ends here."""
        middle = node.inputs[0] if node.inputs else None
        before = middle.producer if middle is not None else None
        if middle is None or before is None or before.graph is not node.graph or not before.inputs:
            return None
        source, result = before.inputs[0], node.outputs[0]
        if source is None or result is None:
            return None
        if node.op == "Reshape" and _swaps(before):
            return _into_image(node, source, middle, result, rw)
        if _swaps(node) and before.op == "Reshape":
            return _into_tokens(node, source, middle, result, rw)
        return None


def _swaps(node: Node) -> bool:
    return node.op == "Transpose" and node.attrs.get("perm") == (0, 2, 1)


def _into_image(node: Node, tokens: Value, middle: Value, image: Value, rw: Rewriter) -> Outcome:
    if not all(user.op == "Conv" and user.inputs[0] is image for user in image.users) or image.is_output:
        return None
    problem = _differs(tokens, image, middle)
    if problem is not None:
        return problem
    assert image.shape is not None
    rows = rw.op("Reshape", tokens, _target(image.shape[0], *image.shape[2:], image.shape[1]))
    return rw.replace(node, [rw.op("Transpose", rows, perm=_FIRST)])


def _into_tokens(node: Node, image: Value, middle: Value, tokens: Value, rw: Rewriter) -> Outcome:
    if image.producer is None or image.producer.op != "Conv":
        return None
    problem = _differs(tokens, image, middle)
    if problem is not None:
        return problem
    assert tokens.shape is not None
    rows = rw.op("Transpose", image, perm=_LAST)
    return rw.replace(node, [rw.op("Reshape", rows, _target(*tokens.shape))])


def _differs(tokens: Value, image: Value, middle: Value) -> Mismatch | None:
    """Why tokens [N, H*W, C] and an image [N, C, H, W] are not the same numbers, or what is between them must stay."""
    if tokens.shape is None or image.shape is None or len(tokens.shape) != 3 or len(image.shape) != 4:
        return Mismatch("{} and {} are no tokens and their image", tokens.name, image.name)
    batch, length, width = tokens.shape
    images, channels, height, across = image.shape
    if batch is None or batch == 0 or batch != images:
        return Mismatch("{} and {} may differ in batch", tokens.name, image.name)
    if not (isinstance(width, int) and isinstance(height, int) and isinstance(across, int) and width > 0):
        return Mismatch("the sizes of {} are not known", image.name)
    if channels != width or length != height * across or not length:
        return Mismatch("the channels of {} are not those of {}", image.name, tokens.name)
    return None if middle.one_use else Mismatch("{} has other readers", middle.name)


def _target(batch: object, *dims: object) -> np.ndarray:
    """The shape to reshape to; a batch that is not known stays as it is."""
    return np.array([batch if isinstance(batch, int) else 0, *dims], np.int64)
