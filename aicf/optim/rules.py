"""SGD, Adam, AdamW and Lion: which op updates a parameter, and which state it needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from aicf.opset import Attr
from aicf.optim.optimizer import Optimizer, Rate


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum (Nesterov's where asked for) and weight decay as part of the gradient."""

    op = "SGD"
    slots: ClassVar[Mapping[str, str]] = {"momentum": "momentum"}

    def __init__(
        self, params: Iterable[Any], lr: Rate = 1e-2, *, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, lr, {"momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay})

    def find_roles(self, options: Mapping[str, Attr]) -> tuple[str, ...]:
        """Return the momentum, where there is one."""
        return ("momentum",) if options["momentum"] else ()


class Adam(Optimizer):
    """Adam, with weight decay as part of the gradient."""

    op = "Adam"
    slots: ClassVar[Mapping[str, str]] = {"exp_avg": "m", "exp_avg_sq": "v"}
    _decoupled = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: Rate = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        options = {"beta1": betas[0], "beta2": betas[1], "eps": eps, "weight_decay": weight_decay, "decoupled": self._decoupled}
        super().__init__(params, lr, options)


class AdamW(Adam):
    """Adam with weight decay apart from the gradient (I. Loshchilov and F. Hutter, 2019)."""

    _decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: Rate = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(params, lr, betas=betas, eps=eps, weight_decay=weight_decay)


class Lion(Optimizer):
    """Lion: the sign of an interpolated momentum (X. Chen et al., 2023)."""

    op = "Lion"
    slots: ClassVar[Mapping[str, str]] = {"momentum": "m"}

    def __init__(
        self, params: Iterable[Any], lr: Rate = 1e-4, *, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, lr, {"beta1": betas[0], "beta2": betas[1], "weight_decay": weight_decay})
