"""The problems of elementwise: for each chain some that are small and ragged, one for the emulated device, and one that is benched."""

from __future__ import annotations

from harness.spec import Problem

from .chains import CHAINS

# Of the chains that are benched at a small size, too: what starts a kernel counts there.
_SMALL = ("add", "gelu_bias", "swiglu", "bias_dropout_residual")


def _problem(chain: str, suite: str, rows: int, columns: int, dtype: str, padding: int = 0, offset: int = 0) -> Problem:
    return Problem(
        {"rows": rows, "columns": columns},
        {"chain": chain, "dtype": dtype},
        {"in0": padding, "out0": padding} if padding else {},
        frozenset(suite.split()),
        {"in0": offset} if offset else {},
    )


def _list_problems(chain: str) -> tuple[Problem, ...]:
    return (
        _problem(chain, "verify", 1, 1, "float32"),
        _problem(chain, "verify", 3, 129, "bfloat16"),
        _problem(chain, "verify", 17, 64, "float16"),
        _problem(chain, "verify", 5, 72, "bfloat16", padding=8),
        _problem(chain, "verify", 1, 1027, "float32", offset=1),
        _problem(chain, "verify", 9, 33, "float32", padding=3),
        _problem(chain, "verify", 5, 13601, "float16", padding=1),  # more than is spread over small blocks
        _problem(chain, "emulated", 128, 1000, "bfloat16"),
        _problem(chain, "bench sweep", 8192, 8192, "bfloat16"),
    )


PROBLEMS = (
    *(problem for chain in CHAINS for problem in _list_problems(chain.name)),
    *(_problem(name, "bench", 128, 1024, dtype) for name in _SMALL for dtype in ("float32", "bfloat16")),
    *(_problem(name, "bench", 16384, 4096, "float32") for name in _SMALL),
    # Rows that begin anywhere, enough of them for segments of several places a lane; what is narrow or has several outputs has none.
    _problem("relu", "verify", 600, 460, "bfloat16", padding=1),
    _problem("gelu_bias", "verify", 600, 460, "float32", padding=1),
    _problem("sgd", "verify", 600, 460, "bfloat16", padding=1),
    _problem("sgd", "verify", 5000, 57, "bfloat16", padding=1),
    _problem("relu", "verify", 2400, 455, "float16", padding=1),
    _problem("gelu_bias", "bench", 32768, 455, "float16", padding=1),
    _problem("sgd", "bench", 1758, 1459, "bfloat16", padding=3),
    _problem("silu_grad", "bench", 200000, 57, "bfloat16", padding=1),
    # One long row, not of whole packs.
    _problem("silu_grad", "bench", 1, 1847581, "bfloat16"),
    _problem("to_float16", "bench", 1, 126085, "float16"),
)
