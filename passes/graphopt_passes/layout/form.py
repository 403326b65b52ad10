"""The blocked form of a node: what it reads and gives, what it costs, and how it is built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from graphopt.ir import Node, Value
from graphopt_passes.layout.activations import Activation
from graphopt_passes.layout.cost import Costs, Price, pixels
from graphopt_passes.layout.emitter import Built, Emitter
from graphopt_passes.layout.known import Sizes
from graphopt_passes.layout.lanes import Lanes
from graphopt_passes.layout.weights import Layout


@dataclass(eq=False)
class Form(ABC):
    """How one node can run on blocked values.

    Attributes:
        label: what it is called in plans and events.
        mixes: whether its results are sums over all lanes of the first operand, so that padding lanes, though their
            weights are zero, must be bounded. Otherwise a lane of the result depends on the same lane of operands.
        convolves: whether it becomes a convolution that can take in an activation.
        takes_sum: whether that takes in a residual sum before it, too.
        node: the node.
        operands: inputs that are read blocked.
        gives: layout of each output, if the operands are blocked as expected; empty when it is not blocked.
        sizes: batch, height and width of the outputs.
        lanes: what padding lanes of the outputs hold, when those of the operands hold what is known of them.
        plain: whether the first operand may stay in NCHW at no cost.
        by_plain: whether the first operand is read by way of NCHW, since its padding lanes may hold anything, or take
            longer than the reorder.
        fused: whether a convolution would take it in: as an `activation`, or as a `residual` sum.
        residual: what it adds to its result by itself.
        activation: what the node is as an activation that a blocked convolution can take in.
        is_active: whether it applies an activation by itself.
        is_sum: whether it is a sum of two images, which a convolution can take in.
    """

    label: ClassVar[str]
    mixes: ClassVar[bool] = False
    convolves: ClassVar[bool] = False
    takes_sum: ClassVar[bool] = False

    node: Node
    operands: list[Value]
    gives: list[Layout]
    sizes: Sizes
    lanes: Lanes
    plain: bool = field(default=False, init=False)
    by_plain: bool = field(default=False, init=False)
    fused: str = field(default="", init=False)
    residual: Value | None = field(default=None, init=False)
    activation: Activation | None = field(default=None, init=False)
    is_active: bool = field(default=False, init=False)
    is_sum: bool = field(default=False, init=False)

    @property
    def title(self) -> str:
        """What is said of it in plans and events."""
        return self.label

    @property
    def usual(self) -> bool | None:
        """Whether the runtime's own optimizer blocks it, whatever it costs; None where that does not matter."""
        return None

    @property
    def companion(self) -> Node | None:
        """Another node that it computes, too, and that goes with it."""
        return None

    @abstractmethod
    def build(self, emit: Emitter, group: Group) -> Built:
        """Make the blocked operators.

        Args:
            emit: makes operators and brings values from one form to the other.
            group: the form with all that goes into it.

        Returns:
            The blocked results with their layouts, or a plain result.
        """

    def price(self, costs: Costs) -> Price:
        """Time in NCHW and in blocks, without reorders: by default that of a pass over operands and result."""
        return self.passes(costs, 1 + len(self.operands))

    def second_pass(self, costs: Costs) -> float:
        """Time that a convolution in NCHW takes for its activation, over what it has just written."""
        return _SECOND_PASS * (self.passes(costs, 2)[0] - costs.rates.start)

    def extra_for_blocks(self, costs: Costs) -> float:
        """What it costs more when a first operand that may stay in NCHW comes blocked."""
        return 0.0

    def total_price(self, costs: Costs) -> Price:
        """The price with what enters anew for this node alone."""
        plain, blocked = self.price(costs)
        return plain, blocked + costs.enter(self.operands[0]) if self.by_plain and not self.plain else blocked

    def elements(self) -> float:
        """How many numbers the result has."""
        channels = sum(self.gives[0])
        return channels * pixels(self.sizes, channels)

    def passes(self, costs: Costs, times: float) -> Price:
        """Time of passing so often over as much memory as the result takes."""
        elements = self.elements()
        return costs.passes(elements, elements * costs.waste(self.gives[0]), times)


_SECOND_PASS = 0.3
"""What a pass over values in the cache takes of what one from memory takes."""


@dataclass(slots=True)
class Group:
    """Nodes that become one blocked node.

    Attributes:
        form: the form of the first of them.
        last: the last of them; its outputs are replaced.
        lanes: what padding lanes of these outputs hold.
        residual: what a residual sum adds.
        activation: what the convolution applies at the end.
        gain: microseconds that the blocked form saves, reorders not counted.
    """

    form: Form
    last: Node
    lanes: Lanes
    residual: Value | None = None
    activation: Activation | None = None
    gain: float = 0.0

    def __str__(self) -> str:
        parts = [self.form.title]
        if self.residual is not None:
            parts.append("with residual")
        if self.activation is not None:
            parts.append(f"with {self.activation[0]}")
        return f"{' '.join(parts)}; saves about {self.gain:.1f} us"


class Convolving(Form):
    """A form that becomes a blocked convolution."""

    convolves = True
    takes_sum = True

    def convolve(
        self,
        emit: Emitter,
        group: Group,
        inputs: Sequence[Value | None],
        layout: Layout,
        *,
        count: int = 1,
        **attrs: Any,
    ) -> Built:
        """The convolution, with the residual and the activation that it takes in.

        Args:
            emit: makes it.
            group: what goes into it.
            inputs: image, weight, and bias if there is one.
            layout: of its result.
            count: number of groups of channels.
            **attrs: its other attributes.
        """
        residual = emit.enter(group.residual, layout).value if group.residual is not None else None
        x, weight, *bias = inputs
        operands = (x, weight, bias[0] if bias else None, residual)
        return [(emit.op("Conv", *operands, group=count, **attrs | activated(group)), layout)]


def activated(group: Group) -> dict[str, Any]:
    """The attributes that tell a blocked convolution its activation."""
    if group.activation is None:
        return {}
    name, parameters = group.activation
    return {"activation": name, "activation_params": parameters or None}
