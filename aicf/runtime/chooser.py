"""The frozen kernels of the open device, as passes see them: what can be fused, and which kernel serves each node."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace

from aicf.backends.calls import FrozenCall
from aicf.backends.frozen import open_calls
from aicf.errors import NotFrozenError, SelectionError
from aicf.ir import Node
from aicf.opset import Attrs, Builder, Type, find_op
from aicf.passes.context import Choice


class FrozenChooser:
    """Asks the registry for the device that is open."""

    def __init__(self, *, deterministic: bool) -> None:
        self._calls = open_calls(deterministic=deterministic)

    @property
    def knowledge(self) -> Hashable:
        """What its answers depend on: while this is equal, so are they."""
        return self._calls, self._calls.num_refused

    def predict_us(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> float | None:
        """Return the time of the kernels that a call is lowered to; infinity where one is missing, None where one is unknown."""
        pricing = _Pricing(self)
        pricing.call(op, types, attrs)
        return pricing.total_us

    def price(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> float | None:
        """Return a frozen call's time, infinity where no kernel serves it."""
        try:
            return self._calls.find(op, types, attrs).predicted_us
        except (SelectionError, NotFrozenError):
            return math.inf

    def prepare(self, nodes: Sequence[Node]) -> Sequence[str]:
        """Build and load the kernels of nodes; those that cannot be are refused, and the next legal ones are built in their place."""
        said: list[str] = []
        while failures := self._calls.build([self._find(node) for node in nodes]):
            said += [self._calls.refuse(call, error) for call, error in failures]
        return said

    def _find(self, node: Node) -> FrozenCall:
        return self._calls.find(node.op, [None if v is None else v.type for v in node.inputs], node.attrs)

    def choose(self, node: Node) -> Choice:
        """Return the kernel for a node."""
        return replace(make_choice(self._find(node)), op=node.op)


def make_choice(call: FrozenCall) -> Choice:
    """Return a call's kernel as plans keep it."""
    handle = call.handle
    return Choice(handle.op, handle.kernel, call.seal, call.predicted_us, handle.workspace_bytes, handle.reason)


class _Pricing(Builder):
    """Runs lowering rules on types alone and adds up what their frozen calls take."""

    def __init__(self, chooser: FrozenChooser) -> None:
        self._chooser = chooser
        self.total_us: float | None = 0.0

    def type_of(self, value: Type) -> Type:
        """Return the type, which is all there is."""
        return value

    def call(self, op: str, inputs: Sequence[Type | None], attrs: Attrs) -> tuple[Type, ...]:
        """Add a call's time, or its lowering's; returns its outputs' types."""
        known = find_op(op)
        filled = known.fill(attrs)
        if known.is_frozen:
            self._add(self._chooser.price(op, inputs, filled))
        elif not known.is_view and op not in ("Full", "Copy") and (known.lower is None or known.lower(self, inputs, filled) is None):
            self._add(math.inf)
        return known.find_types(inputs, filled)

    def _add(self, us: float | None) -> None:
        if us is None:
            self.total_us = self.total_us if self.total_us is not None and math.isinf(self.total_us) else None
        elif math.isinf(us):
            self.total_us = math.inf
        elif self.total_us is not None:
            self.total_us += us
