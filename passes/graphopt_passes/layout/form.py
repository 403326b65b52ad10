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
        label: its name in plans and events.
        mixes: whether its results are sums over all lanes of the first operand, so that padding lanes must be bounded.
            Otherwise a lane of the result depends on the same lane of operands.
        convolves: whether it becomes a convolution that can absorb an activation.
        takes_sum: whether that convolution can absorb a residual sum before the activation, too.
        node: the node.
        operands: inputs that are read blocked.
        gives: expected layout of each output; empty if it is not blocked.
        sizes: batch, height and width of the outputs.
        lanes: bounds on the padding lanes of the outputs.
        plain: whether the first operand may stay in NCHW at no cost.
        by_plain: whether the first operand is read by way of NCHW, which clears its padding lanes.
        fused: how a convolution would absorb it: as an `activation`, or as a `residual` sum; empty if it would not.
        residual: a value that it adds to its result by itself.
        activation: the node as an activation that a blocked convolution can absorb.
        is_active: whether it applies an activation by itself.
        is_sum: whether it is a sum of two images, which a convolution can absorb.
        usual: whether the runtime's own optimizer blocks it; None if that does not matter.
        companion: another node that it computes, too, and replaces.
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
        """Its description in plans and events."""
        return self.label

    @abstractmethod
    def build(self, emit: Emitter, group: Group) -> Built:
        """Build the blocked results with their layouts, or a plain result."""

    def price(self, costs: Costs) -> Price:
        """Time in NCHW and in blocks, without reorders; by default that of a pass over operands and result."""
        return self.passes(costs, 1 + len(self.operands))

    def second_pass(self, costs: Costs) -> float:
        """Time in NCHW of an activation over a result that a convolution has just written."""
        return _SECOND_PASS * (self.passes(costs, 2)[0] - costs.rates.start)

    def extra_for_blocks(self, costs: Costs) -> float:
        """The added cost if a first operand that may stay in NCHW is blocked."""
        return 0.0

    def total_price(self, costs: Costs) -> Price:
        """The price, with the reorder of a first operand that is read by way of NCHW."""
        plain, blocked = self.price(costs)
        return plain, blocked + costs.enter(self.operands[0]) if self.by_plain and not self.plain else blocked

    def elements(self) -> float:
        channels = sum(self.gives[0])
        return channels * pixels(self.sizes, channels)

    def passes(self, costs: Costs, times: float) -> Price:
        """Time of `times` passes over as much memory as the result takes."""
        elements = self.elements()
        return costs.passes(elements, elements * costs.waste(self.gives[0]), times)


@dataclass(eq=False)
class Written(Form):
    """A form that is built and priced by given functions.

    Attributes:
        name: its name in plans and events.
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
    """A price function, from microseconds for each of `count` cells of each element of the result."""

    def price(form: Form, costs: Costs) -> Price:
        cells, start = count * form.elements(), costs.rates.start
        return cells * plain + start, cells * costs.waste(form.gives[0]) * blocked + start

    return price


def on_view(form: Form, costs: Costs) -> Price:
    """The price of a pass over operand and result, and in blocks of two `Reshape`."""
    plain, blocked = form.passes(costs, 2)
    return plain, blocked + RESHAPES * costs.rates.start


_SECOND_PASS = 0.3
"""The time of a pass over values in the cache, relative to one over memory."""


@dataclass(slots=True)
class Group:
    """Nodes that become one blocked node.

    Attributes:
        form: the form of the first node.
        last: the last node; its outputs are replaced.
        lanes: bounds on the padding lanes of these outputs.
        residual: the value that a residual sum adds.
        activation: the activation that the convolution applies at the end.
        gain: microseconds that the blocked form saves, reorders not counted.
        inside: whether only blocked nodes read these outputs, and as blocks.
    """

    form: Form
    last: Node
    lanes: Lanes
    residual: Value | None = None
    activation: Activation | None = None
    gain: float = 0.0
    inside: bool = False

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
        """A convolution of an image with a weight, and a bias if there is one, in `count` groups of channels.

        It absorbs the residual and the activation of its group.
        """
        residual = emit.enter(group.residual, layout).value if group.residual is not None else None
        x, weight, *bias = inputs
        operands = (x, weight, bias[0] if bias else None, residual)
        return [(emit.op("Conv", *operands, group=count, **attrs | activated(group)), layout)]


def activated(group: Group) -> dict[str, Any]:
    """The attributes that state the activation of a blocked convolution."""
    if group.activation is None:
        return {}
    name, parameters = group.activation
    return {"activation": name, "activation_params": parameters or None}
