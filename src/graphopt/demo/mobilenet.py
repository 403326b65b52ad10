"""MobileNetV2, width 1.0."""

from __future__ import annotations

import onnx

from graphopt.demo.exporter import Activation, Exporter

_CLASSES = 1000
_SIZE = 224
_SEED = 1801_04381
# Expansion, output channels, repeats and first stride of each stage.
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_v2() -> onnx.ModelProto:
    """MobileNetV2 for 224x224 images: 52 convolutions with their BatchNorms, ReLU6 as Clip, batch size symbolic."""
    net = Exporter("mobilenet_v2", _SEED)
    x = _conv_bn_clip(net, "features.0", net.image(), 32, kernel=3, stride=2)
    index = 1
    for expansion, channels, repeats, first_stride in _STAGES:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            x = _inverted_residual(net, f"features.{index}", x, channels, expansion=expansion, stride=stride)
            index += 1
    x = _conv_bn_clip(net, f"features.{index}", x, 1280, kernel=1)
    net.classifier(x, "classifier.1", _CLASSES, dropout=0.2)
    return net.model(_CLASSES, _SIZE)


def _conv_bn_clip(
    net: Exporter, path: str, x: Activation, channels: int, *, kernel: int, stride: int = 1, groups: int = 1
) -> Activation:
    x = net.conv(f"{path}.0", x, channels, kernel=kernel, stride=stride, groups=groups)
    return net.relu6(f"{path}.2", net.batch_norm(f"{path}.1", x))


def _inverted_residual(
    net: Exporter, path: str, x: Activation, channels: int, *, expansion: int, stride: int
) -> Activation:
    """Expand with a 1x1 convolution, filter depthwise, project without an activation; add the input if shapes agree."""
    shortcut, wide, place = x, x.channels * expansion, 0
    if expansion != 1:
        x = _conv_bn_clip(net, f"{path}.conv.0", x, wide, kernel=1)
        place = 1
    x = _conv_bn_clip(net, f"{path}.conv.{place}", x, wide, kernel=3, stride=stride, groups=wide)
    x = net.conv(f"{path}.conv.{place + 1}", x, channels, kernel=1)
    x = net.batch_norm(f"{path}.conv.{place + 2}", x)
    if stride == 1 and shortcut.channels == channels:
        return net.add(path, shortcut, net.identity(f"{path}.drop_path", x))
    return x
