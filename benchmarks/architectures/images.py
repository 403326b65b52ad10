"""Networks that make images: segmentation, restoration, style."""

from __future__ import annotations

from benchmarks.architectures.net import Net


def style_transfer(n: Net) -> tuple[str, ...]:
    """Mirrored edges, instance norms, residual blocks, nearest upsampling (Johnson et al.)."""
    x = n.input(1, 3, 112, 112)
    for channels, kernel, stride in ((32, 9, 1), (64, 3, 2), (128, 3, 2)):
        x = n.activate(n.instance_norm(_mirrored(n, x, channels, kernel, stride)))
    for _ in range(3):
        y = n.activate(n.instance_norm(_mirrored(n, x, 128)))
        x = n("Add", x, n.instance_norm(_mirrored(n, y, 128)))
    for channels in (64, 32):
        x = n.activate(n.instance_norm(_mirrored(n, n.resize(x, 2), channels)))
    return (_mirrored(n, x, 3, 9),)


def _mirrored(n: Net, x: str, channels: int, kernel: int = 3, stride: int = 1) -> str:
    side = kernel // 2
    padded = n("Pad", x, n.ints(0, 0, side, side, 0, 0, side, side), mode="reflect")
    return n.conv(padded, channels, kernel, stride, act="", pad=False)


def cycle_gan(n: Net) -> tuple[str, ...]:
    """Instance norms and transposed convolutions of kernel 3."""
    x = n.activate(n.instance_norm(_mirrored(n, n.input(1, 3, 96, 96), 32, 7)))
    for channels in (64, 128):
        x = n.activate(n.instance_norm(n.conv(x, channels, 3, 2, act="")))
    for _ in range(3):
        y = n.activate(n.instance_norm(_mirrored(n, x, 128)))
        x = n("Add", x, n.instance_norm(_mirrored(n, y, 128)))
    for channels in (64, 32):
        x = n.activate(n.instance_norm(n.deconv(x, channels, 3, act="")))
    return (n.activate(_mirrored(n, x, 3, 7), "Tanh"),)


def pix2pix(n: Net) -> tuple[str, ...]:
    """A U-Net of 4x4 convolutions with strides."""
    x, kept = n.input(1, 3, 64, 64), []
    for at, channels in enumerate((32, 64, 128, 128)):
        pads = n("Pad", n.activate(x, "LeakyRelu") if at else x, n.ints(0, 0, 1, 1, 0, 0, 1, 1))
        x = n.conv(pads, channels, 4, 2, act="", pad=False)
        kept.append(x)
    for channels in (128, 64, 32):
        x = n.concat(n.deconv(n.activate(x), channels, act=""), kept[-2])
        kept.pop()
    return (n.deconv(n.activate(x), 3, act="Tanh"),)


def dcgan(n: Net) -> tuple[str, ...]:
    """A generator from 100 numbers to an image."""
    x = n.reshape(n.dense(n.input(1, 100), 256 * 16), 1, 256, 4, 4)
    for channels in (128, 64, 32):
        x = n.deconv(x, channels)
    return (n.deconv(x, 3, act="Tanh"),)


def fsrcnn(n: Net) -> tuple[str, ...]:
    """Few channels with slopes, and a 9x9 transposed convolution at the end."""
    n.act = "PRelu"
    x = n.conv(n.conv(n.input(1, 1, 80, 80), 56, 5), 12, 1)
    for _ in range(4):
        x = n.conv(x, 12)
    return (n.deconv(n.conv(x, 56, 1), 1, 9, 3, act=""),)


def edsr(n: Net) -> tuple[str, ...]:
    """Residual blocks scaled by a number, and pixels from channels."""
    first = x = n.conv(n.input(1, 3, 48, 48), 64, act="")
    for _ in range(4):
        y = n.conv(n.conv(x, 64), 64, act="")
        x = n("Add", x, n("Mul", y, n.const(0.1)))
    x = n("Add", n.conv(x, 64, act=""), first)
    x = n("DepthToSpace", n.conv(x, 256, act=""), blocksize=2, mode="CRD")
    return (n.conv(x, 3, act=""),)


def rdn(n: Net) -> tuple[str, ...]:
    """Dense concatenations of 32 channels with a residual around each block."""
    first = x = n.conv(n.conv(n.input(1, 3, 48, 48), 32, act=""), 32, act="")
    made = []
    for _ in range(3):
        y = x
        for _ in range(4):
            y = n.concat(y, n.conv(y, 32))
        x = n("Add", n.conv(y, 32, 1, act=""), x)
        made.append(x)
    x = n("Add", n.conv(n.conv(n.concat(*made), 32, 1, act=""), 32, act=""), first)
    return (n.conv(n("DepthToSpace", n.conv(x, 128, act=""), blocksize=2, mode="CRD"), 3, act=""),)


def rrdb(n: Net) -> tuple[str, ...]:
    """Dense blocks within residual blocks, leaky, scaled by 0.2 (ESRGAN)."""
    n.act = "LeakyRelu"
    first = x = n.conv(n.input(1, 3, 40, 40), 32, act="")
    for _ in range(3):
        parts = [x]
        for _ in range(4):
            parts.append(n.conv(n.concat(*parts) if len(parts) > 1 else x, 16))
        x = n("Add", n("Mul", n.conv(n.concat(*parts), 32, act=""), n.const(0.2)), x)
    x = n("Add", n.conv(x, 32, act=""), first)
    return (n.conv(n.conv(n.conv(n.resize(x, 2), 32), 32), 3, act=""),)


def sr_dense_odd(n: Net) -> tuple[str, ...]:
    """Dense concatenations of 12 channels, which never fill blocks, at a large image."""
    x = n.conv(n.input(1, 1, 96, 96), 12)
    for _ in range(6):
        x = n.concat(x, n.conv(x, 12))
    return (n("DepthToSpace", n.conv(n.conv(x, 24, 1), 4, act=""), blocksize=2),)


def vdsr(n: Net) -> tuple[str, ...]:
    """Ten layers on one channel, added to what came in."""
    first = x = n.input(1, 1, 80, 80)
    for _ in range(9):
        x = n.conv(x, 48)
    return (n("Add", n.conv(x, 1, act=""), first),)


def dncnn(n: Net) -> tuple[str, ...]:
    """The noise of an image, by layers with norms of their own."""
    first = x = n.input(1, 3, 64, 64)
    x = n.conv(x, 64)
    for _ in range(5):
        x = n.activate(n.norm(n.conv(x, 64, act="")))
    return (n("Sub", first, n.conv(x, 3, act="")),)


def imdn(n: Net) -> tuple[str, ...]:
    """Information distillation: a quarter of the channels is kept at each step."""
    n.act = "LeakyRelu"
    first = x = n.conv(n.input(1, 3, 64, 64), 48, act="")
    for _ in range(2):
        y, kept = x, []
        for _ in range(3):
            part, y = n.many(2, "Split", n.conv(y, 48), n.ints(12, 36), axis=1)
            kept.append(part)
        y = n.squeeze(n.concat(*kept, n.conv(y, 12, act="")))
        x = n("Add", n.conv(y, 48, 1, act=""), x)
    x = n("Add", n.conv(x, 48, act=""), first)
    return (n("DepthToSpace", n.conv(x, 12, act=""), blocksize=2, mode="CRD"),)


def zero_dce(n: Net) -> tuple[str, ...]:
    """Curves that light up an image, applied again and again."""
    image = n("Sigmoid", n.input(1, 3, 96, 96))
    one = n.conv(image, 32)
    two = n.conv(one, 32)
    three = n.conv(two, 32)
    four = n.conv(three, 32)
    five = n.conv(n.concat(three, four), 32)
    six = n.conv(n.concat(two, five), 32)
    curves = n.split(n.conv(n.concat(one, six), 24, act="Tanh"), 8)
    for curve in curves:
        square = n("Mul", image, image)
        image = n("Add", image, n("Mul", curve, n("Sub", square, image)))
    return (image,)


def naf_net(n: Net) -> tuple[str, ...]:
    """Norms along channels and gates that multiply halves, without activations."""
    x = n.conv(n.input(1, 3, 64, 64), 32, act="")
    for _ in range(3):
        y = n.depthwise(n.conv(_channel_norm(n, x), 64, 1, act=""), act="")
        y = n("Mul", *n.split(y, 2))
        y = n("Mul", y, n.conv(n("GlobalAveragePool", y), 32, 1, act=""))
        x = n("Add", x, n.conv(y, 32, 1, act=""))
        y = n("Mul", *n.split(n.conv(_channel_norm(n, x), 64, 1, act=""), 2))
        x = n("Add", x, n.conv(y, 32, 1, act=""))
    return (n.conv(x, 3, act=""),)


def _channel_norm(n: Net, x: str) -> str:
    return n.transpose(n.layer_norm(n.transpose(x, 0, 2, 3, 1)), 0, 3, 1, 2)


def enet(n: Net) -> tuple[str, ...]:
    """Bottlenecks with asymmetric and dilated kernels and slopes."""
    n.act = "PRelu"
    image = n.input(1, 3, 128, 128)
    x = n.concat(n.conv(image, 13, 3, 2), n.pool(image))
    for channels, dilation in ((64, 1), (64, 2), (128, 4), (128, 8)):
        stride = 1 if n.shape(x)[1] == channels else 2
        y = n.conv(x, channels // 4, 3, stride)
        y = n.conv(y, channels // 4, dilation=dilation)
        y = n.conv(n.conv(n.conv(y, channels // 4, (5, 1), act=""), channels // 4, (1, 5)), channels, 1, act="")
        x = n.activate(n("Add", y, x if stride == 1 else n.conv(x, channels, 1, 2, act="")))
    return (n.deconv(n.deconv(x, 16), 8, 4, 4, act=""),)


def fast_scnn(n: Net) -> tuple[str, ...]:
    """Separable layers, pools at four scales, two branches that meet."""
    x = n.conv(n.input(1, 3, 192, 192), 32, 3, 2)
    for channels in (48, 64):
        x = n.conv(n.depthwise(x, 3, 2, act=""), channels, 1)
    high = y = x
    for channels, stride in ((64, 2), (96, 1), (128, 1)):
        z = n.conv(n.depthwise(n.conv(y, 6 * n.shape(y)[1], 1), 3, stride), channels, 1, act="")
        y = n("Add", y, z) if n.shape(y) == n.shape(z) else z
    side = n.shape(y)[2]
    parts = [y]
    for bins in (1, 2, 6):
        small = n.conv(n.pool(y, side // bins, side // bins, "AveragePool"), 32, 1)
        parts.append(n.resize(small, side / n.shape(small)[2], "linear"))
    y = n.conv(n.concat(*parts), 128, 1)
    y = n.conv(n.depthwise(n.resize(y, 2, "linear"), act="Relu"), 128, 1, act="")
    y = n.activate(n("Add", y, n.conv(high, 128, 1, act="")))
    return (n.resize(n.conv(n.conv(n.depthwise(y), 128, 1), 19, 1, act=""), 8, "linear"),)


def attention_unet(n: Net) -> tuple[str, ...]:
    """A U-Net whose skips are weighed for each pixel."""
    x, kept = n.input(1, 1, 96, 96), []
    for channels in (16, 32, 64):
        x = n.conv(n.conv(x, channels), channels)
        kept.append(x)
        x = n.pool(x)
    x = n.conv(x, 128)
    for channels in (64, 32, 16):
        x, skip = n.conv(n.resize(x, 2), channels), kept.pop()
        both = n("Add", n.conv(x, channels // 2, 1, act=""), n.conv(skip, channels // 2, 1, act=""))
        gate = n.conv(n.activate(both), 1, 1, act="Sigmoid")
        x = n.conv(n.conv(n.concat(n("Mul", skip, gate), x), channels), channels)
    return (n.conv(x, 1, 1, act="Sigmoid"),)


def linknet(n: Net) -> tuple[str, ...]:
    """A decoder of 1x1 and transposed layers that adds the encoder's."""
    x, kept = n.pool(n.conv(n.input(1, 3, 160, 160), 32, 7, 2), 3, 2, pad=1), []
    for channels in (32, 64, 128):
        x = n.conv(n.conv(x, channels, 3, 1 if channels == 32 else 2), channels)
        kept.append(x)
    for channels in (64, 32):
        x = n.conv(n.deconv(n.conv(x, n.shape(x)[1] // 4, 1), n.shape(x)[1] // 4, 3), channels, 1)
        kept.pop()
        x = n("Add", x, kept[-1])
    return (n.deconv(n.conv(n.deconv(x, 32, 3), 32), 8, 2, act=""),)


def depth_decoder(n: Net) -> tuple[str, ...]:
    """A small decoder with mirrored edges, ELU and nearest upsampling (monodepth)."""
    x, kept = n.conv(n.input(1, 3, 96, 160), 32, 7, 2), []
    for channels in (32, 64, 128):
        kept.append(x)
        x = n.conv(n.conv(x, channels, 3, 2), channels)
    for channels in (64, 32, 16):
        x = n.activate(_mirrored(n, x, channels), "Elu")
        x = n.concat(n.resize(x, 2), kept.pop())
        x = n.activate(_mirrored(n, x, channels), "Elu")
    return (n.activate(_mirrored(n, n.resize(x, 2), 1), "Sigmoid"),)


def matting(n: Net) -> tuple[str, ...]:
    """Halves with batch and instance norms, joined, and linear upsampling (MODNet)."""
    x, kept = n.conv(n.input(1, 3, 128, 128), 16, 3, 2, act="Relu6"), []
    for channels in (24, 32, 64):
        kept.append(x)
        x = n.conv(n.depthwise(n.conv(x, 4 * channels, 1, act="Relu6"), 3, 2, "Relu6"), channels, 1, act="")
    for skip in reversed(kept):
        y = n.conv(n.resize(x, 2, "linear"), 32, act="")
        first, second = n.split(y, 2)
        y = n.activate(n.concat(n.norm(first), n.instance_norm(second)))
        x = n.conv(n.concat(y, skip), 32)
    return (n.activate(n.conv(n.resize(x, 2, "linear"), 1, act=""), "Sigmoid"),)


IMAGES = (
    style_transfer, cycle_gan, pix2pix, dcgan, fsrcnn, edsr, rdn, rrdb, sr_dense_odd, vdsr, dncnn, imdn, zero_dce,
    naf_net, enet, fast_scnn, attention_unet, linknet, depth_decoder, matting,
)  # fmt: skip
