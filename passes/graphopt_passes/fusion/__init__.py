"""Passes that join operators."""

PASSES: dict[str, str] = {
    "fuse_consecutive_transposes": "fusion.transpose:FuseConsecutiveTransposes",
}
