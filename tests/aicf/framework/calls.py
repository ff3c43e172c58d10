"""One call or more of every op of the opset, with inputs on which it is smooth: what gradient checks and graphs are made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aicf.opset import Attr
from aicf.opset.elementwise import FUNCTIONS

_rng = np.random.default_rng(7)


def normal(*shape: int) -> Any:
    return _rng.normal(size=shape)


def positive(*shape: int) -> Any:
    return _rng.uniform(0.5, 2.0, size=shape)


def apart(*shape: int) -> Any:
    """Numbers no two of which are near each other or near zero: maxima and kinks stay where they are under small steps."""
    count = int(np.prod(shape))
    return (_rng.permutation(count) - count / 2 + 0.25).reshape(shape)


@dataclass
class Call:
    op: str
    inputs: list[Any]
    attrs: dict[str, Attr] = field(default_factory=dict)
    label: str = ""

    def __str__(self) -> str:
        return f"{self.op}-{self.label}" if self.label else self.op


SPECIAL: dict[str, list[Any]] = {
    "log": [positive(3, 4)],
    "log1p": [positive(3, 4)],
    "sqrt": [positive(3, 4)],
    "rsqrt": [positive(3, 4)],
    "div": [normal(3, 4), positive(4)],
    "pow": [positive(3, 4), normal(4)],
    "max": [apart(3, 4), apart(3, 4) + 0.3],
    "min": [apart(3, 4), apart(3, 4) + 0.3],
    "where": [normal(3, 4) > 0, normal(3, 4), normal(4)],
    "abs": [apart(3, 4)],
    "relu": [apart(3, 4)],
}


def elementwise_calls() -> list[Call]:
    defaults = {1: [normal(3, 4)], 2: [normal(3, 4), normal(3, 1)]}
    return [
        Call("Elementwise", SPECIAL.get(name, defaults.get(row.arity, [])), {"function": name}, name) for name, row in FUNCTIONS.items()
    ]


X, W, B = normal(2, 3, 4), normal(5, 4), normal(5)
LABELS = np.array([1, 0, -100, 2])
CALLS = [
    *elementwise_calls(),
    Call("Cast", [normal(3)], {"dtype": "float64"}),
    *(
        Call("Reduce", [apart(3, 4, 2)], {"function": f, "axes": a, "keep": k}, f"{f}-{a}")
        for f in ("sum", "mean", "max", "min")
        for a, k in ((None, False), (1, True), ((0, 2), False))
    ),
    Call("Reduce", [apart(3, 4)], {"function": "argmax", "axes": 1}, "argmax"),
    Call("SumSquares", [normal(3, 4), normal(5)]),
    Call("Reshape", [normal(3, 4)], {"shape": (2, 6)}),
    Call("Detach", [normal(3)]),
    Call("Permute", [normal(2, 3, 4)], {"order": (2, 0, 1)}),
    Call("Broadcast", [normal(3, 1)], {"shape": (2, 3, 4)}),
    Call("Slice", [normal(3, 4)], {"starts": (1, 0), "stops": (3, 2)}),
    Call("Pad", [normal(2, 3)], {"before": (0, 1), "after": (2, 0)}),
    Call("Concat", [normal(2, 3), normal(2, 1)], {"axis": 1}),
    Call("Copy", [normal(3)]),
    Call("Full", [], {"value": 2.5, "dtype": "float64", "shape": (2, 3)}),
    Call("Linear", [X, W, B]),
    Call("Linear", [X, W, None], label="no-bias"),
    *(Call("Linear", [X, W.T.copy(), B], {"act": act, "keep_z": act != "none", "w_layout": "kn"}, f"kn-{act}") for act in ("none", "silu")),
    *(Call("Linear", [X, W, B], {"act": act, "keep_z": True}, act) for act in ("relu", "gelu_tanh", "gelu_erf", "silu")),
    Call("LinearGrad", [normal(2, 3, 5), X, W, None, None], {"wants": "x w"}),
    Call("LinearGrad", [normal(2, 3, 5), X, W, None, normal(5, 4)], {"wants": "x w"}, "total"),
    Call("MatMul", [normal(2, 3, 4), normal(4, 5)]),
    Call("MatMul", [normal(4, 3), normal(2, 4, 5)], {"transpose_a": True}, "ta"),
    Call("MatMul", [normal(3, 4), normal(5, 4)], {"transpose_b": True}, "tb"),
    Call("MatMul", [normal(4, 3), normal(5, 4)], {"transpose_a": True, "transpose_b": True}, "ta-tb"),
    Call("Softmax", [normal(3, 4)]),
    Call("LogSoftmax", [normal(3, 4)]),
    Call("SoftmaxGrad", [normal(3, 4), positive(3, 4)]),
    Call("SoftmaxGrad", [normal(3, 4), normal(3, 4)], {"log": True}, "log"),
    Call("LayerNorm", [normal(3, 4), positive(4), normal(4)]),
    Call("LayerNorm", [normal(3, 4), None, None], label="plain"),
    Call("RMSNorm", [normal(3, 4), positive(4)]),
    Call("RMSNorm", [normal(3, 4), None], label="plain"),
    Call("LayerNormGrad", [normal(2, 3, 4), normal(2, 3, 4), positive(4), normal(2, 3, 1), positive(2, 3, 1)]),
    Call("LayerNormGrad", [normal(3, 4), normal(3, 4), None, normal(3, 1), positive(3, 1)], label="plain"),
    Call("RMSNormGrad", [normal(2, 3, 4), normal(2, 3, 4), positive(4), positive(2, 3, 1)]),
    Call("RMSNormGrad", [normal(3, 4), normal(3, 4), None, positive(3, 1)], label="plain"),
    Call("Embedding", [normal(5, 3), np.array([[1, 4], [1, 0]])]),
    Call("ScatterAdd", [normal(2, 2, 3), np.array([[1, 4], [1, 0]])], {"rows": 5}),
    Call("Dropout", [normal(5, 7), np.array([3, 8], np.uint64)], {"p": 0.4, "skip": 2}),
    Call("CrossEntropy", [normal(4, 3), LABELS]),
    Call("CrossEntropy", [normal(4, 3), LABELS], {"reduction": "sum", "label_smoothing": 0.1}, "smoothed"),
    Call("cross_entropy", [normal(4, 3), LABELS]),
    Call("softmax", [normal(3, 4), None, None, None]),
    Call("softmax", [normal(3, 4), np.float32(0.5), np.arange(12).reshape(3, 4) % 5 > 0, None], {"mask": "boolean"}, "boolean"),
    Call("softmax", [normal(3, 4), None, None, np.int64(2)], {"mask": "causal"}, "causal"),
    Call("softmax", [normal(3, 4), np.float32(2.0), None, None], {"log": True}, "log"),
    Call("softmax_backward", [normal(3, 4), positive(3, 4), np.float32(0.5)]),
    Call("softmax_backward", [normal(3, 4), normal(3, 4), None], {"log": True}, "log"),
    Call("transpose", [normal(3, 4)]),
    *(
        Call("gemm_bias_act", [normal(3, 4), W, B], {"b_layout": "nk", "act": a, "save_z": True}, f"nk-{a}")
        for a in ("none", "relu", "silu")
    ),
    Call("gemm_bias_act", [normal(3, 4), normal(4, 5), None], label="kn"),
    *(
        Call(
            "gemm_backward",
            [normal(3, 5), w, normal(3, 4), None, total],
            {"w_layout": layout, "with_dbias": True, "accumulate": total is not None},
            label,
        )
        for label, layout, w, total in (
            ("nk", "nk", W, None),
            ("kn", "kn", normal(4, 5), None),
            ("total", "kn", normal(4, 5), normal(4, 5)),
        )
    ),
    *(Call("gemm_backward", [normal(3, 4), None, None, apart(3, 4), None], {"act": act}, act) for act in ("relu", "gelu_tanh", "silu")),
]
