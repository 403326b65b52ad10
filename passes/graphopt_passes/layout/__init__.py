"""Passes that choose the memory layout of values."""

PASSES: dict[str, str] = {
    "convert_layout_nchwc": "layout.nchwc:ConvertLayoutNchwc",
}
