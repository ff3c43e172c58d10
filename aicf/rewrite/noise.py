"""The gradient noise scale: how many rows a batch would need for its gradient to be half signal, by the rows of one batch.

The gradient of a linear layer's weight is a sum over rows of the products of what comes in, x, and the gradient of what goes out, dy. Each
row's has the square |x|² |dy|². With B rows, their sum R, and g² the square of the whole gradient, tr(noise) / |gradient|² is estimated,
without bias in numerator and denominator, by (B R - g²) / (g² - R), over the weights of all linear layers that see the same number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from aicf.tensor import Tensor, apply
from aicf.train.step_recipe import Computed


def find_rows(computed: Computed) -> tuple[int, list[tuple[Tensor, Tensor, Tensor]]]:
    """Return the number of rows, and for each linear layer's weight that is trained its gradient, dy and x; none where there is none.

    A weight that is used twice has a gradient of more than one layer, and is left out. Where the loss is scaled, so are all
    gradients, and the noise scale, a ratio of their squares, is what it is.
    """
    found: dict[int, list[tuple[Tensor, Tensor, Tensor]]] = {}
    for gradient in computed.raw.values():
        node = computed.recorder.rewriter.find_producer(gradient.data, "LinearGrad")
        if node is None or any(v is not None for v in node.inputs[3:]) or gradient.data not in node.outputs:
            continue
        dy, x = (None if v is None else computed.recorder.wrap(v) for v in node.inputs[:2])
        if dy is not None and x is not None and "w" in str(node.attrs["wants"]).split():
            found.setdefault(math.prod(dy.shape[:-1]), []).append((gradient, dy, x))
    rows = next((n for n in found if n > 1), 0)
    return rows, found.get(rows, [])


def add_squares(layers: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Return the sum of the squares of these layers' weights' gradients, a scalar."""
    # One by one: lists of gradients that lie one behind the other are those of all parameters.
    return _add([apply("SumSquares", [gradient])[0] for gradient, _, _ in layers])


def add_row_squares(layers: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Return the sum of the squares of all rows' gradients of these layers' weights, a scalar."""
    return _add([(describe(dy, "sum_squares", "rows") * describe(x, "sum_squares", "rows")).sum() for _, dy, x in layers])


def describe(x: Tensor, function: str, keep: str = "none") -> Tensor:
    """Return a statistic of values in fp32, of all or by their units or rows; they are read as they are."""
    return apply("Statistic", [x], function=function, keep=keep)[0]


def _add(scalars: Sequence[Tensor]) -> Tensor:
    total = scalars[0]
    for each in scalars[1:]:
        total = total + each
    return total


def find_scale(rows: int, row_squares: float, square: float) -> float:
    """Return the noise scale in rows; infinity where the gradient is lost in the noise of its batch."""
    signal = square - row_squares
    return max(rows * row_squares - square, 0.0) / signal if signal > 0.0 else math.inf
