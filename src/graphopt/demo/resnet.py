"""ResNet-18."""

from __future__ import annotations

import onnx

from graphopt.demo.exporter import Activation, Exporter

_CLASSES = 1000
_SIZE = 224
_SEED = 1512_03385
_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels and first stride
_BLOCKS = 2


def resnet18() -> onnx.ModelProto:
    """ResNet-18 for 224x224 images: 20 convolutions with their BatchNorms, batch size symbolic."""
    net = Exporter("resnet18", _SEED)
    x = net.conv("conv1", net.image(), 64, kernel=7, stride=2)
    x = net.max_pool("maxpool", net.relu("relu", net.batch_norm("bn1", x)))
    for stage, (channels, first_stride) in enumerate(_STAGES, start=1):
        for block in range(_BLOCKS):
            x = _basic_block(net, f"layer{stage}.{block}", x, channels, stride=first_stride if block == 0 else 1)
    net.classifier(x, "fc", _CLASSES, dropout=0.0)
    return net.model(_CLASSES, _SIZE)


def _basic_block(net: Exporter, path: str, x: Activation, channels: int, *, stride: int) -> Activation:
    """Two 3x3 convolutions with a shortcut, which is a 1x1 convolution if the shape changes."""
    shortcut = x
    x = net.conv(f"{path}.conv1", x, channels, kernel=3, stride=stride)
    x = net.relu(f"{path}.relu", net.batch_norm(f"{path}.bn1", x))
    x = net.batch_norm(f"{path}.bn2", net.conv(f"{path}.conv2", x, channels, kernel=3))
    if stride != 1 or shortcut.channels != channels:
        shortcut = net.conv(f"{path}.downsample.0", shortcut, channels, kernel=1, stride=stride)
        shortcut = net.batch_norm(f"{path}.downsample.1", shortcut)
    return net.relu(f"{path}.relu", net.add(path, net.identity(f"{path}.drop_path", x), shortcut))
