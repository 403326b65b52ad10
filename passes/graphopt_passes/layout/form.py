"""The blocked form of a node: operands and results, cost, and how it is built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, ClassVar

from graphopt.ir import Node, Value
from graphopt.records import dataclass
from graphopt_passes.layout.activations import Activation
from graphopt_passes.layout.cost import RESHAPES, Costs, Price, pixels
from graphopt_passes.layout.emitter import Built, Emitter
from graphopt_passes.layout.known import Sizes
from graphopt_passes.layout.lanes import Lanes
from graphopt_passes.layout.weights import Layout


@dataclass(eq=False)
class Form(ABC):
    """How one node can run on blocked values.

    Attributes:
        label: what it is called in plans and events.
        mixes: whether its results are sums over all lanes of the first operand, so that padding lanes must be bounded.
            Otherwise a lane of the result depends on the same lane of operands.
        convolves: whether it becomes a convolution that can take in an activation.
        takes_sum: whether that takes in a residual sum before it, too.
        node: the node.
        operands: inputs that are read blocked.
        gives: layout of each output as expected; empty when it is not blocked.
        sizes: batch, height and width of the outputs.
        lanes: what padding lanes of the outputs hold.
        plain: whether the first operand may stay in NCHW at no cost.
        by_plain: whether the first operand is read by way of NCHW, for its padding lanes.
        fused: whether a convolution would take it in: as an `activation`, or as a `residual` sum.
        residual: what it adds to its result by itself.
        activation: what the node is as an activation that a blocked convolution can take in.
        is_active: whether it applies an activation by itself.
        is_sum: whether it is a sum of two images, which a convolution can take in.
        usual: whether the runtime's own optimizer blocks it; None where that does not matter.
        companion: another node that it computes, too, and that goes with it.
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
    usual: bool | None = field(default=None, init=False)
    companion: Node | None = field(default=None, init=False)

    @property
    def title(self) -> str:
        """What is said of it in plans and events."""
        return self.label

    @abstractmethod
    def build(self, emit: Emitter, group: Group) -> Built:
        """Make the blocked results with their layouts, or a plain result."""

    def price(self, costs: Costs) -> Price:
        """Time in NCHW and in blocks, without reorders: that of a pass over operands and result."""
        return self.passes(costs, 1 + len(self.operands))

    def second_pass(self, costs: Costs) -> float:
        """Time of an activation in NCHW over what a convolution has just written."""
        return _SECOND_PASS * (self.passes(costs, 2)[0] - costs.rates.start)

    def extra_for_blocks(self, costs: Costs) -> float:
        """The cost added when a first operand that may stay in NCHW comes blocked."""
        return 0.0

    def total_price(self, costs: Costs) -> Price:
        """The price with what enters anew for this node alone."""
        plain, blocked = self.price(costs)
        return plain, blocked + costs.enter(self.operands[0]) if self.by_plain and not self.plain else blocked

    def elements(self) -> float:
        channels = sum(self.gives[0])
        return channels * pixels(self.sizes, channels)

    def passes(self, costs: Costs, times: float) -> Price:
        """Time of passing so often over as much memory as the result takes."""
        elements = self.elements()
        return costs.passes(elements, elements * costs.waste(self.gives[0]), times)


@dataclass(eq=False)
class Written(Form):
    """A form whose reader says how it is built.

    Attributes:
        name: what it is called in plans and events.
        make: makes the blocked operators.
        cost: its price, by default that of a pass over operands and result.
    """

    name: str
    make: Callable[[Emitter], Built]
    cost: Callable[[Form, Costs], Price] = Form.price

    @property
    def title(self) -> str:
        return self.name

    def price(self, costs: Costs) -> Price:
        return self.cost(self, costs)

    def build(self, emit: Emitter, group: Group) -> Built:
        return self.make(emit)


def by_element(plain: float, blocked: float, count: int = 1) -> Callable[[Form, Costs], Price]:
    """Microseconds for each of `count` cells of each element of the result."""

    def price(form: Form, costs: Costs) -> Price:
        cells, start = count * form.elements(), costs.rates.start
        return cells * plain + start, cells * costs.waste(form.gives[0]) * blocked + start

    return price


def on_view(form: Form, costs: Costs) -> Price:
    """A pass over operand and result, and two `Reshape`."""
    plain, blocked = form.passes(costs, 2)
    return plain, blocked + RESHAPES * costs.rates.start


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
        """A convolution of an image with a weight, and a bias if there is one, by `count` groups of channels.

        It takes in the residual and the activation of its group.
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
