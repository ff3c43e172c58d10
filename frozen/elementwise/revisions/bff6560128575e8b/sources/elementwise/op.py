"""elementwise: chains of elementwise functions over [rows, columns], each an expression that a variant is built for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from harness.spec import (
    PLAIN,
    Arrays,
    Attribute,
    Axis,
    Condition,
    Constraint,
    Cost,
    Count,
    Kernel,
    Label,
    OneOf,
    Op,
    Problem,
    Role,
    Sampling,
    Strides,
    Tensor,
    Tunable,
    Uniform,
)
from harness.spec.expressions import MAX_INPUTS, MAX_OUTPUTS, Chain, Draws, Extent, evaluate, find_bounds

from .chains import CHAINS, NUMBERS
from .population import POPULATION
from .problems import PROBLEMS

FLOATS = ("float32", "bfloat16", "float16")
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "bool": 1}
_COUNTER_BYTES = 16
_SHARES = Uniform(0.0, 0.9)


def _find_chain(problem: Problem) -> Chain:
    return CHAINS[NUMBERS[str(problem.attributes.get("chain", CHAINS[0].name))]]


def _find_dtype(problem: Problem) -> str:
    return str(problem.attributes.get("dtype", "float32"))


def _name_inputs(chain: Chain, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
    return {operand.name: inputs[f"in{i}"] for i, operand in enumerate(chain.inputs)}


def _find_draws(chain: Chain, inputs: Arrays, problem: Problem) -> Draws | None:
    """Return seed, offset and the elements' numbers; a part of a problem brings the places that it was cut from."""
    if not chain.num_draws:
        return None
    rows = inputs.get("row_places", np.arange(problem.sizes["rows"]))
    columns = inputs.get("column_places", np.arange(problem.sizes["columns"]))
    whole = int(inputs.get("whole_columns", np.array([problem.sizes["columns"]]))[0])
    seed, offset = (int(v) for v in inputs["counter"])
    return Draws(seed, offset, rows.astype(np.int64)[:, np.newaxis] * whole + columns.astype(np.int64)[np.newaxis])


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the chain's outputs in float64; those that are bool as they are."""
    chain = _find_chain(problem)
    found = evaluate(chain, _name_inputs(chain, inputs), _find_draws(chain, inputs, problem))
    return {f"out{i}": found[operand.name] for i, operand in enumerate(chain.outputs)}


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the bounds that follow from the expression: each function's own roundings, carried through to the outputs and their dtype."""
    chain = _find_chain(problem)
    found = find_bounds(chain, _name_inputs(chain, inputs), _find_dtype(problem), _find_draws(chain, inputs, problem))
    return {f"out{i}": found[operand.name] for i, operand in enumerate(chain.outputs)}


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the rows or columns at ``places``, which are kept for what is drawn by an element's number."""
    chain, size, name = _find_chain(problem), ("rows", "columns")[axis], ("row_places", "column_places")[axis]
    cut: dict[str, NDArray[np.generic]] = dict(inputs)
    for i, operand in enumerate(chain.inputs):
        if operand.shape[axis] != 1:
            # Not by np.take, which would copy the whole of an array of zero strides first.
            cut[f"in{i}"] = inputs[f"in{i}"][places] if axis == 0 else inputs[f"in{i}"][:, places]
    cut[name] = np.asarray(inputs[name][places] if name in inputs else places, np.int64)
    cut.setdefault("whole_columns", np.array([problem.sizes["columns"]], np.int64))
    return cut, replace(problem, sizes=dict(problem.sizes) | {size: len(places)}, padding={}, offsets={})


def cost(problem: Problem) -> Cost:
    """Return a flop for each function of an element, with each input read once and each output written once."""
    chain, dtype = _find_chain(problem), _find_dtype(problem)
    rows, columns = problem.sizes["rows"], problem.sizes["columns"]
    counts = {Extent.FULL: rows * columns, Extent.ROWS: rows, Extent.COLUMNS: columns, Extent.ONE: 1}
    read = sum(ITEM_BYTES[o.find_dtype(dtype)] * counts[o.extent] for o in chain.inputs) + (_COUNTER_BYTES if chain.num_draws else 0)
    written = sum(ITEM_BYTES[o.find_dtype(dtype)] * counts[o.extent] for o in chain.outputs)
    return Cost(flops=float(max(chain.count_calls(), 1) * rows * columns), bytes_read=float(read), bytes_written=float(written))


def _make_tensor(index: int, is_output: bool) -> Tensor:
    def find(problem: Problem) -> tuple[bool, str, tuple[str | int, ...]]:
        chain = _find_chain(problem)
        operands = chain.outputs if is_output else chain.inputs
        if index >= len(operands):
            return False, "float32", ("rows", "columns")
        return True, operands[index].find_dtype(_find_dtype(problem)), operands[index].shape

    name = f"out{index}" if is_output else f"in{index}"
    return Tensor(
        name,
        lambda p: find(p)[2],
        Role.OUTPUT if is_output else Role.INPUT,
        lambda p: find(p)[1],
        present=lambda p: find(p)[0],
        strides=Strides.ROWS,
        values=lambda p: _SHARES if not is_output and _find_chain(p).has_share(index) else PLAIN,
    )


TENSORS = (
    *(_make_tensor(i, is_output=False) for i in range(MAX_INPUTS)),
    *(_make_tensor(i, is_output=True) for i in range(MAX_OUTPUTS)),
    # Seed and offset.
    Tensor("counter", (2,), Role.INPUT, "int64", present=lambda p: _find_chain(p).num_draws > 0, values=Uniform(-(2**62), 2**62)),
)

CHAIN = Tunable("chain", tuple(Label(number, chain.name) for number, chain in enumerate(CHAINS)), "the expression")
THREADS = Tunable("threads", (64, 128, 256, 512, 1024), "threads of a block")
PACKS = Tunable("packs", (1, 2, 4, 8), "16-byte packs of the first input that a thread loads before it uses one")
BLOCKS = Tunable(
    "blocks", (0, 2, 4, 8, 16), "blocks per multiprocessor, each of which goes on to the next packs; 0: as many as there are parts"
)
REGISTERS_FIT = Constraint(
    "registers_fit",
    "packs * threads must not exceed 2048: a thread keeps its packs in registers",
    lambda t: t["packs"] * t["threads"] <= 2048,
)
# Blocks are counted in 31 bits, and have 64 threads at least.
_MAX_ELEMS = 2**36
# Those that show the ladder: one array, values per column and what is drawn, several outputs.
_LADDER = ("relu", "bias_dropout_residual", "sgd")


def _serve(tunables: Mapping[str, int]) -> tuple[Condition, ...]:
    return (OneOf("chain", (CHAINS[tunables["chain"]].name,)), Count({"rows": 1, "columns": 1}, max=_MAX_ELEMS))


KERNELS = (
    Kernel(
        "naive",
        "a thread per element, which it finds by a division",
        (CHAIN, THREADS),
        (),
        tuple({"chain": NUMBERS[name], "threads": 256} for name in _LADDER),
        domain=_serve,
        tile=lambda t: {"columns": t["threads"]},
    ),
    Kernel(
        "vectorised",
        "16 bytes of the first input per thread; arrays without gaps are one long row",
        (CHAIN, THREADS),
        (),
        tuple({"chain": NUMBERS[name], "threads": 256} for name in _LADDER),
        domain=_serve,
        tile=lambda t: {"columns": t["threads"] * 4},
    ),
    Kernel(
        "streamed",
        "threads load several packs before they use one, and blocks go on to the next ones",
        (CHAIN, THREADS, PACKS, BLOCKS),
        (REGISTERS_FIT,),
        (
            *({"chain": number, "threads": 256, "packs": 2, "blocks": 0} for number in range(len(CHAINS))),
            # Several inputs bring as many bytes with a pack of each as one does with several.
            *({"chain": n, "threads": 256, "packs": 1, "blocks": 0} for n in range(len(CHAINS)) if len(CHAINS[n].inputs) > 1),
            {"chain": NUMBERS["relu"], "threads": 256, "packs": 4, "blocks": 8},
        ),
        domain=_serve,
        tile=lambda t: {"columns": t["threads"] * t["packs"] * 4},
    ),
)

OP = Op(
    name="elementwise",
    summary="chains of elementwise functions, fused from expressions",
    tensors=TENSORS,
    attributes=(Attribute("chain", tuple(c.name for c in CHAINS), CHAINS[0].name), Attribute("dtype", FLOATS, "float32", passed=False)),
    kernels=KERNELS,
    problems=PROBLEMS,
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    sampling=Sampling((0, 1), restrict),
    accumulate="float32",
    distributions=("normal", "uniform", "ties", "denormal", "largest_first", "largest_last", "largest_anywhere", "one_differs"),
    population=POPULATION,
    axes=(Axis("chain", {c.name: (OneOf("chain", (c.name,)),) for c in CHAINS}, part="group"),),
    chains=CHAINS,
)
