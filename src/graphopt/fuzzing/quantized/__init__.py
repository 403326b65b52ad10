"""Random quantized networks: of quantize and dequantize operators, of integer operators, and of dynamic scales.

With `exact` all scales are powers of two, so that float and integer computations must agree bit for bit.
"""

from __future__ import annotations

from graphopt.fuzzing.quantized.growing import Grown
from graphopt.fuzzing.quantized.integers import random_dynamic, random_operators
from graphopt.fuzzing.quantized.pairs import random_qdq, random_single

__all__ = ["Grown", "random_dynamic", "random_operators", "random_qdq", "random_single"]
