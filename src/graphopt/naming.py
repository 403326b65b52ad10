"""Names of passes."""

import re

_WORD = re.compile(r"(?<!^)(?=[A-Z])|(?<=[a-z])(?=\d[a-z])")


def pass_name(of_class: str) -> str:
    """The name of a pass, from that of its class: `convert_conv_1d_to_2d` for `ConvertConv1dTo2d`."""
    return _WORD.sub("_", of_class).lower()
