"""Networks that tell what is in an image, and detectors."""

from __future__ import annotations

import numpy as np

from benchmarks.architectures.net import Net


def lenet5(n: Net) -> tuple[str, ...]:
    """LeNet-5: tanh, average pools, three dense layers."""
    n.act = "Tanh"
    x = n.pool(n.conv(n.input(1, 1, 28, 28), 6, 5), kind="AveragePool")
    x = n.pool(n.conv(x, 16, 5, pad=False), kind="AveragePool")
    return (n.dense(n.dense(n.dense(n("Flatten", x), 120, "Tanh"), 84, "Tanh"), 10),)


def mnist_8(n: Net) -> tuple[str, ...]:
    """The digits network of the ONNX model zoo: 8 and 16 channels of 5x5."""
    x = n.pool(n.conv(n.input(1, 1, 28, 28), 8, 5))
    return (n.dense(n("Flatten", n.pool(n.conv(x, 16, 5), 3, 3)), 10),)


def few_channels(n: Net) -> tuple[str, ...]:
    """Layers of 6, 10 and 12 channels at a large image."""
    x = n.conv(n.input(1, 3, 96, 96), 6)
    for channels in (6, 10, 12):
        x = n.add(n.conv(n.conv(x, channels), channels, act=""), n.conv(x, channels, 1, act=""), "Relu")
    return (n.classes(x, 10),)


def narrow_chain(n: Net) -> tuple[str, ...]:
    """A chain of 24 channels, which fill one and a half blocks."""
    x = n.conv(n.input(1, 3, 112, 112), 24, 3, 2)
    for _ in range(8):
        x = n.conv(x, 24)
    return (n.classes(x, 10),)


def network_in_network(n: Net) -> tuple[str, ...]:
    """Network in Network for CIFAR."""
    x = n.input(1, 3, 32, 32)
    for first, second, third in ((192, 160, 96), (192, 192, 192), (192, 192, 10)):
        x = n.conv(n.conv(n.conv(x, first, 5 if first != third else 3), second, 1), third, 1)
        x = n.pool(x, 3, 2, pad=1) if third != 10 else x
    return (n("Flatten", n("GlobalAveragePool", x)),)


def vgg_cifar(n: Net) -> tuple[str, ...]:
    """VGG-13 for CIFAR."""
    x = n.input(1, 3, 32, 32)
    for channels in (64, 128, 256, 512):
        x = n.pool(n.conv(n.conv(x, channels), channels))
    return (n.classes(x, 10),)


def _basic(n: Net, x: str, channels: int, stride: int = 1) -> str:
    short = x if stride == 1 and n.shape(x)[1] == channels else n.conv(x, channels, 1, stride, act="")
    return n.add(n.conv(n.conv(x, channels, 3, stride), channels, act=""), short, "Relu")


def resnet20_cifar(n: Net) -> tuple[str, ...]:
    """ResNet-20 of 16 to 64 channels at 32x32."""
    x = n.conv(n.input(1, 3, 32, 32), 16)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        x = _basic(n, _basic(n, _basic(n, x, channels, stride), channels), channels)
    return (n.classes(x, 10),)


def wide_resnet(n: Net) -> tuple[str, ...]:
    """A wide residual network whose norms and activations come first."""
    x = n.conv(n.input(1, 3, 32, 32), 16, act="")
    for channels, stride in ((64, 1), (128, 2), (256, 2)):
        y = n.activate(n.norm(x))
        x = n.add(n.conv(n.conv(y, channels, 3, stride), channels, act=""), n.conv(y, channels, 1, stride, act=""))
        x = n.add(n.conv(n.conv(n.activate(n.norm(x)), channels), channels, act=""), x)
    return (n.classes(n.activate(n.norm(x)), 10),)


def sknet(n: Net) -> tuple[str, ...]:
    """Selective kernels: two branches weighed against one another by a softmax over both."""
    x = n.pool(n.conv(n.input(1, 3, 112, 112), 64, 7, 2), 3, 2, pad=1)
    for channels, stride in ((64, 1), (128, 2), (256, 2)):
        y = n.conv(x, channels, 1)
        one = n.conv(y, channels, 3, stride, group=32)
        two = n.conv(y, channels, 3, stride, group=32, dilation=2)
        z = n.conv(n("GlobalAveragePool", n("Add", one, two)), 32, 1)
        gate = n.reshape(n.concat(n.conv(z, channels, 1, act=""), n.conv(z, channels, 1, act="")), 1, 2, channels, 1, 1)
        parts = n.split(n("Softmax", gate, axis=1), 2)
        first, second = (n("Squeeze", part, n.ints(1)) for part in parts)
        y = n("Add", n("Mul", one, first), n("Mul", two, second))
        x = n.add(n.conv(y, channels, 1, act=""), n.conv(x, channels, 1, stride, act=""), "Relu")
    return (n.classes(x),)


def sknet_stacked(n: Net) -> tuple[str, ...]:
    """Selective kernels as timm has them: branches stacked on an axis of their own, weighed and summed."""
    x = n.conv(n.conv(n.input(1, 3, 96, 96), 32, 3, 2), 64, 3, 2)
    for channels in (64, 96):
        y = n.conv(x, channels, 1)
        halves = [n("Unsqueeze", n.conv(y, channels, 3, dilation=d, group=8), n.ints(1)) for d in (1, 2)]
        both = n.concat(*halves)
        s = n.mean(n("ReduceSum", both, n.ints(1), keepdims=0), 2, 3, keep=True)
        gate = n.conv(n.conv(s, 32, 1), 2 * channels, 1, act="")
        gate = n("Softmax", n.reshape(gate, 1, 2, channels, 1, 1), axis=1)
        y = n("ReduceSum", n("Mul", both, gate), n.ints(1), keepdims=0)
        x = n.add(n.conv(y, channels, 1, act=""), n.conv(x, channels, 1, act=""), "Relu")
    return (n.classes(x),)


def cbam(n: Net) -> tuple[str, ...]:
    """Attention of channels and of pixels behind residual blocks."""
    x = n.conv(n.conv(n.input(1, 3, 112, 112), 32, 3, 2), 32)
    for channels, stride in ((32, 1), (64, 2), (128, 2)):
        y = n.squeeze(n.conv(n.conv(x, channels, 3, stride), channels, act=""), 16)
        both = n.concat(n.mean(y, 1, keep=True), n("ReduceMax", y, axes=[1], keepdims=1))
        y = n("Mul", y, n.conv(both, 1, 7, act="Sigmoid"))
        x = n.add(y, n.conv(x, channels, 1, stride, act=""), "Relu")
    return (n.classes(x),)


def res2net(n: Net) -> tuple[str, ...]:
    """Channels in four groups, each of which reads what the one before made."""
    x = n.pool(n.conv(n.input(1, 3, 112, 112), 64, 7, 2), 3, 2, pad=1)
    for width in (26, 52):
        parts = n.split(n.conv(x, 4 * width, 1), 4)
        made = [n.conv(parts[0], width)]
        for part in parts[1:3]:
            made.append(n.conv(n("Add", part, made[-1]), width))
        y = n.conv(n.concat(*made, parts[3]), 4 * width, 1, act="")
        x = n.add(y, n.conv(x, 4 * width, 1, act=""), "Relu")
    return (n.classes(x),)


def shufflenet_v1(n: Net) -> tuple[str, ...]:
    """Grouped 1x1 convolutions with channel shuffles between them."""
    x = n.pool(n.conv(n.input(1, 3, 224, 224), 24, 3, 2), 3, 2, pad=1)
    for channels in (240, 480):
        y = n.conv(x, channels // 4, 1, group=1 if channels == 240 else 3)
        _, wide, height, width = n.shape(y)
        y = n.transpose(n.reshape(y, 1, 3, wide // 3, height, width), 0, 2, 1, 3, 4)
        y = n.depthwise(n.reshape(y, 1, wide, height, width), 3, 2, act="")
        y = n.conv(y, channels - n.shape(x)[1], 1, group=3, act="")
        x = n.activate(n.concat(n.pool(x, 3, 2, "AveragePool", 1), y))
        for _ in range(2):
            y = n.depthwise(n.conv(x, channels // 4, 1, group=3), act="")
            x = n.add(x, n.conv(y, channels, 1, group=3, act=""), "Relu")
    return (n.classes(x),)


def mobilenet_v1(n: Net) -> tuple[str, ...]:
    """Depthwise and 1x1 convolutions in turn, half as wide as the full one."""
    n.act = "Relu6"
    x = n.conv(n.input(1, 3, 160, 160), 16, 3, 2)
    for channels, stride in ((32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        x = n.conv(n.depthwise(x, 3, stride), channels, 1)
    return (n.classes(x),)


def xception(n: Net) -> tuple[str, ...]:
    """Separable convolutions with the activation in front."""
    x = n.conv(n.conv(n.input(1, 3, 149, 149), 32, 3, 2), 64)
    for channels in (128, 256, 512):
        y = n.conv(n.depthwise(n.activate(x) if channels > 128 else x, act=""), channels, 1, act="")
        y = n.conv(n.depthwise(n.activate(y), act=""), channels, 1, act="")
        x = n.add(n.pool(y, 3, 2, pad=1), n.conv(x, channels, 1, 2, act=""))
    return (n.classes(n.activate(x)),)


def inception_resnet(n: Net) -> tuple[str, ...]:
    """Branches of 1x1, 3x3 and 7x1 convolutions, scaled and added."""
    x = n.conv(n.pool(n.conv(n.conv(n.input(1, 3, 149, 149), 32, 3, 2), 64), 3, 2), 192, 3, 2)
    for _ in range(3):
        one = n.conv(x, 32, 1)
        two = n.conv(n.conv(x, 32, 1), 48)
        three = n.conv(n.conv(n.conv(x, 32, 1), 40, (1, 7)), 56, (7, 1))
        y = n.conv(n.concat(one, two, three), 192, 1, act="")
        x = n.add(x, n("Mul", y, n.const(0.17)), "Relu")
    return (n.classes(x),)


def csp_darknet(n: Net) -> tuple[str, ...]:
    """Cross-stage blocks with leaky activations, as YOLOv4 has them."""
    n.act = "LeakyRelu"
    x = n.conv(n.input(1, 3, 160, 160), 32)
    for channels in (64, 128, 256):
        x = n.conv(x, channels, 3, 2)
        y = n.conv(x, channels // 2, 1)
        for _ in range(2):
            y = n.add(y, n.conv(n.conv(y, channels // 2, 1), channels // 2))
        x = n.conv(n.concat(n.conv(y, channels // 2, 1), n.conv(x, channels // 2, 1)), channels, 1)
    return (n.classes(x),)


def tiny_yolo(n: Net) -> tuple[str, ...]:
    """The small YOLOv3: leaky activations, pools, two scales."""
    n.act = "LeakyRelu"
    x, route = n.input(1, 3, 224, 224), ""
    for channels in (16, 32, 64, 128, 256):
        route = n.conv(x, channels)
        x = n.pool(route)
    y = n.conv(n.conv(x, 512), 128, 1)
    low = n.conv(n.conv(y, 256), 75, 1, act="")
    z = n.concat(n.resize(n.conv(y, 64, 1), 2), route)
    return low, n.conv(n.conv(z, 128), 75, 1, act="")


def ssd_mobile(n: Net) -> tuple[str, ...]:
    """Boxes and classes from four scales, joined as rows."""
    n.act = "Relu6"
    x, boxes, scores = n.conv(n.input(1, 3, 192, 192), 16, 3, 2), [], []
    for channels in (32, 64, 128, 256):
        x = n.conv(n.depthwise(n.conv(n.depthwise(x, 3, 2), channels, 1)), channels, 1)
        for found, each in ((boxes, 4), (scores, 21)):
            y = n.transpose(n.conv(n.depthwise(x), 6 * each, 1, act=""), 0, 2, 3, 1)
            found.append(n.reshape(y, 1, -1, each))
    return n.concat(*boxes), n("Softmax", n.concat(*scores), axis=2)


def feature_pyramid(n: Net) -> tuple[str, ...]:
    """A pyramid from the top down, and heads that share weights (RetinaNet)."""
    x, levels = n.conv(n.input(1, 3, 192, 192), 32, 3, 2), []
    for channels in (64, 128, 256):
        x = _basic(n, x, channels, 2)
        levels.append(x)
    top = n.conv(levels[-1], 64, 1, act="")
    merged = [top]
    for level in (levels[1], levels[0]):
        top = n("Add", n.conv(level, 64, 1, act=""), n.resize(top, 2))
        merged.append(top)
    kernel, bias, last = n.weight(64, 64, 3, 3), n.weight(64, spread=0.1), n.weight(36, 64, 3, 3)
    made = []
    for level in merged:
        y = n.activate(n("Conv", level, kernel, bias, pads=[1] * 4))
        made.append(n.reshape(n.transpose(n("Conv", y, last, pads=[1] * 4), 0, 2, 3, 1), 1, -1, 4))
    return (n.concat(*made),)


def blaze_face(n: Net) -> tuple[str, ...]:
    """5x5 depthwise blocks whose shortcut is padded with empty channels."""
    x = n.conv(n.input(1, 3, 128, 128), 24, 5, 2)
    for channels, stride in ((24, 1), (28, 1), (32, 2), (36, 1), (42, 1), (48, 2), (56, 1), (64, 1)):
        y = n.conv(n.depthwise(x, 5, stride, act=""), channels, 1, act="")
        short = n.pool(x) if stride == 2 else x
        more = channels - n.shape(short)[1]
        short = n("Pad", short, n.ints(0, 0, 0, 0, 0, more, 0, 0)) if more else short
        x = n.add(y, short, "Relu")
    return n.reshape(n.transpose(n.conv(x, 2, 1, act=""), 0, 2, 3, 1), 1, -1, 1), n.conv(x, 32, 1, act="")


def dense_blocks(n: Net) -> tuple[str, ...]:
    """Dense connections with norms in front, twelve channels each."""
    x = n.conv(n.input(1, 3, 64, 64), 24, act="")
    for _ in range(2):
        for _ in range(6):
            y = n.conv(n.activate(n.norm(x)), 48, 1)
            x = n.concat(x, n.conv(y, 12, act=""))
        x = n.pool(n.conv(n.activate(n.norm(x)), n.shape(x)[1] // 2, 1, act=""), kind="AveragePool")
    return (n.classes(n.activate(n.norm(x))),)


def conv_mixer(n: Net) -> tuple[str, ...]:
    """Patches, then large depthwise and 1x1 convolutions with Gelu and norms behind it."""
    x = n.norm(n.activate(n.conv(n.input(1, 3, 112, 112), 192, 7, 7, pad=False, act=""), "Gelu"))
    for _ in range(4):
        x = n("Add", n.norm(n.activate(n.depthwise(x, 9, act=""), "Gelu")), x)
        x = n.norm(n.activate(n.conv(x, 192, 1, act=""), "Gelu"))
    return (n.classes(x),)


def keypoints(n: Net) -> tuple[str, ...]:
    """Heat maps by transposed convolutions, and the place of each one's maximum (simple baselines)."""
    x = n.conv(n.input(1, 3, 128, 96), 32, 3, 2)
    for channels in (64, 128, 256):
        x = _basic(n, x, channels, 2)
    for _ in range(3):
        x = n.deconv(x, 64)
    y = n.reshape(n.conv(x, 17, 1, act=""), 1, 17, -1)
    return n("ArgMax", y, axis=2, keepdims=0), n("ReduceMax", y, axes=[2], keepdims=0)


def text_detector(n: Net) -> tuple[str, ...]:
    """A pyramid joined by concatenation, and two deconvolutions that make a map (differentiable binarization)."""
    x, levels = n.conv(n.input(1, 3, 160, 160), 16, 3, 2, act="HardSwish"), []
    for channels in (24, 40, 96):
        y = n.depthwise(n.conv(x, 3 * channels, 1, act="HardSwish"), 5, 2, act="HardSwish")
        x = n.conv(n.squeeze(y, 4, "HardSigmoid"), channels, 1, act="")
        levels.append(n.conv(x, 24, 1, act=""))
    wide = [n.resize(n.conv(level, 24), 2**at) if at else n.conv(level, 24) for at, level in enumerate(levels)]
    y = n.deconv(n.conv(n.concat(*reversed(wide)), 18), 18, 2)
    return (n.activate(n.deconv(y, 1, 2, act=""), "Sigmoid"),)


def face_embedding(n: Net) -> tuple[str, ...]:
    """Slopes for each channel, a depthwise layer over the whole map, and rows of length 1."""
    n.act = "PRelu"
    x = n.depthwise(n.conv(n.input(1, 3, 112, 112), 64, 3, 2))
    for channels, stride in ((64, 2), (64, 1), (128, 2), (128, 1), (128, 2)):
        y = n.depthwise(n.conv(x, 2 * channels, 1), 3, stride)
        y = n.conv(y, channels, 1, act="")
        x = n("Add", x, y) if n.shape(x) == n.shape(y) else y
    y = n.conv(n.conv(x, 512, 1), 512, 7, group=512, pad=False, act="")
    y = n.dense(n("Flatten", y), 128)
    length = n("ReduceL2", y, axes=[1], keepdims=1)
    return (n("Div", y, n("Max", length, n.const(np.float32(1e-12)))),)


CLASSIFIERS = (
    lenet5, mnist_8, few_channels, narrow_chain, network_in_network, vgg_cifar, resnet20_cifar, wide_resnet, sknet,
    sknet_stacked, cbam, res2net, shufflenet_v1, mobilenet_v1, xception, inception_resnet, csp_darknet, tiny_yolo,
    ssd_mobile, feature_pyramid, blaze_face, dense_blocks, conv_mixer, keypoints, text_detector, face_embedding,
)  # fmt: skip
