"""The zoo: the architectures of benchmarks and tests, and how each is built.

Reading the registry needs no torch; building a network does. Weights are never downloaded: they are seeded, and
`benchmarks.weights` gives them the statistics of a trained network, so that a wrong rewrite changes the numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

DRESSES = {
    "ts": "TorchScript exporter (dynamo=False) with its defaults",
    "dynamo_raw": "torch.export exporter with optimize=False",
    "dynamo": "torch.export exporter with its defaults",
}


@dataclass(frozen=True, slots=True)
class Input:
    """One network input: its contents, and its symbolic axes if the export is dynamic."""

    name: str
    shape: tuple[int, ...]
    kind: str = "image"  # image: floats; ids: integers below `bound`; mask: ones with a padded tail
    bound: int = 0
    symbols: tuple[tuple[int, str], ...] = ((0, "batch"),)


@dataclass(frozen=True, slots=True)
class Entry:
    """One architecture of the zoo, or a variant of one."""

    name: str
    origin: str
    build: Callable[[], nn.Module]
    inputs: tuple[Input, ...]
    dynamic: bool = False
    opset: int | None = None  # the exporter's default, except for variants of an older opset
    unfused: bool = False  # TorchScript only: keep BatchNorm and constant chains as traced
    dresses: tuple[str, ...] = tuple(DRESSES)


def _image(size: int | tuple[int, int] = 224, channels: int = 3) -> tuple[Input, ...]:
    height, width = (size, size) if isinstance(size, int) else size
    return (Input("image", (1, channels, height, width)),)


def _tokens(bound: int, length: int, *, mask: bool) -> tuple[Input, ...]:
    symbols = ((0, "batch"), (1, "sequence"))
    ids = Input("ids", (1, length), "ids", bound, symbols)
    return (ids, Input("mask", (1, length), "mask", 0, symbols)) if mask else (ids,)


def prepare_torchvision() -> None:
    """Declare the two C++ operators that torchvision needs at import and a CPU-only install lacks."""
    import torch

    for name in ("torchvision::nms", "torchvision::qnms"):
        try:
            torch.library.define(name, "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        except RuntimeError:  # a second call, or a torchvision that has them
            return


def _timm(name: str, *, fused: bool = True) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        prepare_torchvision()
        import timm

        timm.layers.set_fused_attn(fused)
        return timm.create_model(name, pretrained=False)

    return build


def _torchvision(path: str, field: str | None = None, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        prepare_torchvision()
        import torchvision

        from benchmarks.nets import PickOne

        target: Any = torchvision.models
        for part in path.split("."):
            target = getattr(target, part)
        net = target(weights=None, **options)
        argument = "input" if "lraspp" in path else "x"
        return PickOne(net, field, argument) if field else net

    return build


def _transformers(model: str, config: str, field: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        prepare_torchvision()
        import transformers

        from benchmarks.nets import PickMasked, PickOne

        settings = getattr(transformers, config)(**options)
        net = getattr(transformers, model)(settings)
        if config == "CLIPVisionConfig":
            return PickOne(net, field, "pixel_values")
        return PickMasked(net, field)

    return build


def _own(name: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from benchmarks import nets

        return getattr(nets, name)(**options)

    return build


def _landmarks() -> nn.Module:
    prepare_torchvision()
    import torchvision

    from benchmarks.nets import GlobalDepthwiseHead

    return GlobalDepthwiseHead(torchvision.models.mobilenet_v2(weights=None).features)


_TIMM_224 = """
    mobilenetv2_100 mobilenetv3_small_100 mobilenetv3_large_100 efficientnet_b0 resnet18 resnet50 densenet121
    ghostnet_100 repvgg_a0 mobileone_s0 convnext_atto vit_tiny_patch16_224 dla34 regnety_002 rexnet_100
    tf_efficientnet_b0 resnext50_32x4d levit_128s fastvit_t8 hrnet_w18_small pvt_v2_b0 poolformer_s12
    efficientvit_b0 resmlp_12_224 edgenext_xx_small nf_resnet26 mixnet_s xcit_nano_12_p16_224
"""

_DYNAMIC = """
    mobilenetv2_100 mobilenetv3_small_100 efficientnet_b0 resnet50 shufflenet_v2_x1_0 vit_tiny_patch16_224
    swin_tiny mobilevit_xs convnext_atto unet yolo_pan bert distilbert gpt2 llama t5_encoder crnn
"""

_BERT = {
    "vocab_size": 2000, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
    "intermediate_size": 1024, "max_position_embeddings": 256,
}  # fmt: skip
_DISTILBERT = {
    "vocab_size": 2000, "dim": 256, "n_layers": 4, "n_heads": 4, "hidden_dim": 1024,
    "max_position_embeddings": 256,
}  # fmt: skip
_GPT2 = {"vocab_size": 2000, "n_embd": 256, "n_layer": 4, "n_head": 4, "n_positions": 256, "use_cache": False}
_LLAMA = {
    "vocab_size": 2000, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 256, "use_cache": False,
}  # fmt: skip
_CLIP = {
    "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4,
    "image_size": 224, "patch_size": 32,
}  # fmt: skip
_T5 = {
    "vocab_size": 2000, "d_model": 256, "d_kv": 64, "d_ff": 688, "num_layers": 4, "num_heads": 4,
    "feed_forward_proj": "gated-gelu",
}  # fmt: skip


def _entries() -> list[Entry]:
    masked = _tokens(2000, 64, mask=True)
    found = [Entry(name, "timm", _timm(name), _image()) for name in _TIMM_224.split()]
    found += [
        Entry("swin_tiny", "timm", _timm("swin_tiny_patch4_window7_224"), _image()),
        Entry("inception_v3", "timm", _timm("inception_v3"), _image(299)),
        Entry("mobilevit_xs", "timm", _timm("mobilevit_xs"), _image(256)),
        Entry("googlenet", "torchvision", _torchvision("googlenet", aux_logits=False, init_weights=False), _image()),
        Entry("shufflenet_v2_x1_0", "torchvision", _torchvision("shufflenet_v2_x1_0"), _image()),
        Entry("squeezenet1_1", "torchvision", _torchvision("squeezenet1_1"), _image()),
        Entry("vgg11_bn", "torchvision", _torchvision("vgg11_bn"), _image()),
        Entry(
            "deeplabv3_mobilenet_v3_large", "torchvision",
            _torchvision("segmentation.deeplabv3_mobilenet_v3_large", "out", weights_backbone=None), _image(),
        ),
        Entry(
            "lraspp_mobilenet_v3_large", "torchvision",
            _torchvision("segmentation.lraspp_mobilenet_v3_large", "out", weights_backbone=None), _image(),
        ),
        Entry("bert", "transformers", _transformers("BertModel", "BertConfig", "last_hidden_state", **_BERT), masked),
        Entry(
            "distilbert", "transformers",
            _transformers("DistilBertModel", "DistilBertConfig", "last_hidden_state", **_DISTILBERT), masked,
        ),
        Entry("gpt2", "transformers", _transformers("GPT2LMHeadModel", "GPT2Config", "logits", **_GPT2), masked),
        Entry("llama", "transformers", _transformers("LlamaForCausalLM", "LlamaConfig", "logits", **_LLAMA), masked),
        Entry(
            "clip_vision", "transformers",
            _transformers("CLIPVisionModel", "CLIPVisionConfig", "last_hidden_state", **_CLIP), _image(),
        ),
        Entry(
            "t5_encoder", "transformers",
            _transformers("T5EncoderModel", "T5Config", "last_hidden_state", **_T5), masked,
        ),
        Entry("crnn", "own", _own("Crnn"), _image((32, 128), 1)),
        Entry("gru_tagger", "own", _own("GruTagger"), _tokens(2000, 24, mask=False)),
        Entry("mobilenetv2_landmarks", "own", _landmarks, _image()),
        Entry("conv_alone", "own", _own("ConvPool", pool=False), _image(), opset=13, dresses=("ts",)),
        Entry("conv_maxpool", "own", _own("ConvPool", pool=True), _image(), opset=13, dresses=("ts",)),
        Entry("yolo_pan", "own", _own("Detector"), _image(320)),
        Entry("unet", "own", _own("UNet"), _image(128)),
        Entry("subpixel", "own", _own("SubPixel"), _image(96, 1)),
    ]  # fmt: skip
    base = {entry.name: entry for entry in found}
    for name in _DYNAMIC.split():
        found.append(replace(base[name], name=f"{name}_dyn", dynamic=True))
    for name in ("mobilenetv2_100", "resnet50", "densenet121", "yolo_pan", "repvgg_a0", "bert", "swin_tiny"):
        found.append(replace(base[name], name=f"{name}_unfused", unfused=True, dresses=("ts",)))
    eager = {  # the exporter supports fused attention from opset 14 on
        "bert": _transformers("BertModel", "BertConfig", "last_hidden_state", **_BERT, attn_implementation="eager"),
        "vit_tiny_patch16_224": _timm("vit_tiny_patch16_224", fused=False),
    }
    for name, opset in (("bert", 12), ("mobilenetv3_large_100", 11), ("resnet18", 9), ("vit_tiny_patch16_224", 13)):
        build = eager.get(name, base[name].build)
        found.append(replace(base[name], name=f"{name}_opset{opset}", build=build, opset=opset, dresses=("ts",)))
    return found


ZOO: dict[str, Entry] = {entry.name: entry for entry in _entries()}


def select(names: list[str] | None = None) -> list[Entry]:
    """The entries of the given names, or all; an unknown name is an error."""
    if not names:
        return list(ZOO.values())
    unknown = [name for name in names if name not in ZOO]
    if unknown:
        raise KeyError(f"not in the zoo: {', '.join(unknown)}; the zoo has {', '.join(ZOO)}")
    return [ZOO[name] for name in names]
