"""cross_entropy: the loss of logits and class indices, and its gradient, in one launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from harness.spec import (
    Arrays,
    Attribute,
    Axis,
    Choice,
    Constraint,
    Cost,
    Count,
    Facts,
    Indices,
    Kernel,
    OneOf,
    Op,
    Problem,
    Role,
    Sampling,
    Scalar,
    Tensor,
    Tie,
    Tunable,
)
from harness.spec.bounds import SMALLEST_NORMAL, ULPS, UNIT_ROUNDOFF, add_rounding, bound_sum, count_roundings, find_sum_factor

from .population import POPULATION

FLOATS = ("float32", "bfloat16", "float16")
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
LABEL_BYTES = 8
U = UNIT_ROUNDOFF["float32"]
EXP_ROUNDINGS = 2.0 * ULPS["expf"]
_MOST_AT_A_TIME = 1 << 18  # logits, of which a core's cache holds several copies
_MOST_THREADS = 1024  # of a block

SMOOTHING = Scalar("label_smoothing", 0.0, 0.0, 0.5)
# What a caller may have got wrong; the last is a class in 32 bits.
WRONG_LABELS = (-1, 2**31 - 1, 2**32)
# Which rows of the logits those given are, where a sample of them is judged; the labels are all there, as those that count are counted.
ROW_NUMBERS = "row_numbers"
IGNORE = Scalar("ignore_index", -100, dtype="int64", choices=(-100, 0, 1))


def _find_dtype(problem: Problem) -> str:
    return str(problem.attributes.get("dtype", "float32"))


def _has_dbias(problem: Problem) -> bool:
    return bool(problem.attributes.get("with_dbias", False))


def _read_smoothing(problem: Problem) -> float:
    return float(np.float32(problem.scalars.get("label_smoothing", SMOOTHING.default)))


def _read_ignored(problem: Problem) -> int:
    return int(problem.scalars.get("ignore_index", IGNORE.default))


def _find_label_values(problem: Problem) -> Indices:
    """Return what labels may be: classes, the one that is ignored, where that is none of them, and wrong ones.

    A wrong label makes the loss NaN, which hides what else is wrong with it: those come where the rows leave a remainder of 5 by 8.
    """
    ignored = _read_ignored(problem)
    also = () if 0 <= ignored < problem.sizes["classes"] else (ignored,)
    return Indices("classes", also=also, wrong=WRONG_LABELS if problem.sizes["rows"] % 8 == 5 else ())


def _weigh_rows(inputs: Arrays, problem: Problem) -> NDArray[np.float64]:
    """Return each row's weight in the loss: 0 where it is ignored."""
    counted = (np.asarray(inputs["labels"], np.int64) != _read_ignored(problem)).astype(np.float64)
    if problem.attributes.get("reduction", "mean") == "mean":
        with np.errstate(invalid="ignore"):
            counted = np.asarray(counted / counted.sum())
    return counted[inputs[ROW_NUMBERS]] if ROW_NUMBERS in inputs else counted


def _find_labels(inputs: Arrays, problem: Problem) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the label of each row of the logits, 0 where it is no class, and which of those are wrong: all but the ignored one."""
    labels = np.asarray(inputs["labels"], np.int64)
    labels = labels[inputs[ROW_NUMBERS]] if ROW_NUMBERS in inputs else labels
    is_class = (labels >= 0) & (labels < problem.sizes["classes"])
    return np.where(is_class, labels, 0), ~is_class & (labels != _read_ignored(problem))


def _split(problem: Problem) -> Iterator[slice]:
    """Yield slices of rows that are worked on at a time: of all logits of a large problem in float64 there would be tens of GiB."""
    step = max(1, _MOST_AT_A_TIME // problem.sizes["classes"])
    for begin in range(0, problem.sizes["rows"], step):
        yield slice(begin, begin + step)


def _find_target(labels: NDArray[np.int64], problem: Problem) -> NDArray[np.float64]:
    smoothing, classes = _read_smoothing(problem), problem.sizes["classes"]
    target = np.full((len(labels), classes), smoothing / classes)
    target[np.arange(len(labels)), labels] += 1.0 - smoothing
    return target


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the loss, the gradient of the logits where it is asked for, and the sums of its columns.

    The mean over no row is NaN, and so are the loss and a row's gradient where its label is neither a class nor the ignored one.
    """
    rows, classes = problem.sizes["rows"], problem.sizes["classes"]
    weights, (labels, is_wrong), losses = _weigh_rows(inputs, problem), _find_labels(inputs, problem), np.empty(rows)
    counted = np.nan_to_num(weights)[:, np.newaxis]
    gradient = np.empty((rows, classes)) if problem.attributes.get("with_gradient", True) else None
    for part in _split(problem):
        x, target = np.asarray(inputs["logits"][part], np.float64), _find_target(labels[part], problem)
        shifted = x - x.max(axis=1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        losses[part] = np.where(is_wrong[part], np.nan, -(target * logs).sum(axis=1))
        if gradient is not None:
            slopes = np.where(is_wrong[part, np.newaxis], np.nan, np.exp(logs) - target)
            gradient[part] = np.where(counted[part] > 0.0, slopes * counted[part], 0.0)
    results = {"loss": np.asarray((losses * weights).sum())}
    if gradient is not None:
        results["dlogits"] = gradient
    if _has_dbias(problem):
        results["dbias"] = results["dlogits"].sum(axis=0)
    return results


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the bounds of online and three-pass kernels, whose sums are in any order.

    As in softmax: with d = max - x, rounding d moves exp(-d) by u d, and steps of a moving maximum add up to d; the sum of exponentials,
    s, moves by u times the mean of d under the softmax besides. log s errs by the relative error of s and its own roundings.
    """
    rows, classes = problem.sizes["rows"], problem.sizes["classes"]
    weights, smoothing, dtype = np.nan_to_num(_weigh_rows(inputs, problem)), _read_smoothing(problem), _find_dtype(problem)
    (all_labels, _), losses, loss_errors = _find_labels(inputs, problem), np.empty(rows), np.empty(rows)
    bounds = {"dlogits": np.empty((rows, classes))} if "dlogits" in outputs else {}
    column_errors, column_magnitudes = np.zeros(classes), np.zeros(classes)
    for part in _split(problem):
        x, labels = np.asarray(inputs["logits"][part], np.float64), all_labels[part]
        highest = x.max(axis=1)
        distance = highest[:, np.newaxis] - x
        exponentials = np.exp(-distance)
        total = exponentials.sum(axis=1)
        mean_distance = (exponentials * distance).sum(axis=1) / total
        sum_roundings = mean_distance + (2.0 + EXP_ROUNDINGS) * count_roundings(classes, rows * classes) + EXP_ROUNDINGS
        logarithm = np.abs(np.log(total))
        magnitudes = np.abs(x).sum(axis=1)
        labelled = np.abs(x[np.arange(len(x)), labels])
        mean_error = bound_sum(magnitudes, classes, rows) / classes + 2.0 * U * magnitudes / classes
        loss_error = np.expm1(np.minimum(sum_roundings * U, 1.0)) + U * (2.0 * ULPS["logf"] * logarithm)
        loss_error += 3.0 * U * (np.abs(highest) + labelled + logarithm + smoothing * (labelled + magnitudes / classes))
        loss_errors[part] = loss_error + smoothing * mean_error
        losses[part] = np.abs(highest - x[np.arange(len(x)), labels] + np.log(total)) + smoothing * (labelled + magnitudes / classes)
        if "dlogits" not in outputs:
            continue
        softmax, target = exponentials / total[:, np.newaxis], _find_target(labels, problem)
        roundings = distance + sum_roundings[:, np.newaxis] + EXP_ROUNDINGS + 2.0
        error = np.expm1(np.minimum(roundings * U, 1.0)) * softmax + 5.0 * U * (softmax + target)
        error = error * weights[part, np.newaxis] + 2.0 * SMALLEST_NORMAL["float32"]
        bounds["dlogits"][part] = add_rounding(error, outputs["dlogits"][part], dtype)
        column_errors += error.sum(axis=0)
        column_magnitudes += ((softmax + target) * weights[part, np.newaxis]).sum(axis=0)
    summed = (losses * weights).sum()
    summing = (find_sum_factor(rows, 1) + 4.0 * U) * summed + SMALLEST_NORMAL["float32"]
    bounds["loss"] = np.asarray((loss_errors * weights).sum() + summing)
    if "dbias" in outputs:  # the sums are of what is not rounded yet
        bounds["dbias"] = add_rounding(column_errors + bound_sum(column_magnitudes, rows, classes), outputs["dbias"], dtype)
    return bounds


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the rows of dlogits at ``places``; loss and dbias are sums over all rows."""
    taken = dict(inputs) | {"logits": inputs["logits"][places], ROW_NUMBERS: np.asarray(places)}
    return taken, replace(problem, sizes=dict(problem.sizes) | {"rows": len(places)})


def find_axis(output: str, axis: int, problem: Problem) -> int | None:
    """Return which axis of an output the rows are."""
    return 0 if output == "dlogits" else None


def cost(problem: Problem) -> Cost:
    """Return about 8 flops per logit, with logits and labels read once and the gradient written once."""
    elems, item = problem.sizes["rows"] * problem.sizes["classes"], ITEM_BYTES[_find_dtype(problem)]
    gradient = item * elems if problem.attributes.get("with_gradient", True) else 0
    sums = item * problem.sizes["classes"] if _has_dbias(problem) else 0
    read = float(item * elems + LABEL_BYTES * problem.sizes["rows"])
    return Cost(flops=8.0 * elems, bytes_read=read, bytes_written=float(gradient + sums + 4))


THREADS = Tunable("threads", (32, 64, 128, 256, 512, 1024), "threads of a block")
GROUP = Tunable("threads", (4, 8, 16, 32, 64, 128, 256, 512, 1024), "threads that take a row")
ROWS = Tunable("rows", (1, 2, 4, 8, 16, 32, 64, 128, 256), "rows, and so groups of threads, of a block")
ELEMS = Tunable("elems", (4, 8, 16, 32), "elements of a row that a thread keeps in registers; at least 16 bytes of them")
LANES = Tunable("threads", (2, 4, 8), "threads that take a row")
FEW = Tunable("elems", (3, 4, 8), "elements of a row that a thread keeps in registers")
BLOCK_FITS = Constraint(
    "block_fits",
    "threads * rows must be whole warps, at most 1024",
    lambda t: t["threads"] * t["rows"] % 32 == 0 and t["threads"] * t["rows"] <= 1024,
)
ONE_ROW_BEYOND_WARP = Constraint(
    "one_row_beyond_warp", "a group of more than a warp is a whole block: rows = 1", lambda t: t["threads"] <= 32 or t["rows"] == 1
)
SUMS_FIT = Constraint(
    "sums_fit",
    "shared memory of 32 KiB must hold each warp's sums of columns, and each column's once where a block takes a row",
    lambda t: (t["rows"] * t["threads"] // 32 if t["threads"] <= 32 else 1) * t["threads"] * max(t["elems"], 8) <= 8192,
)


def _serve(max_classes: int = 2**40, max_rows: int = 2**31 - 1) -> tuple[Count, ...]:
    return (Count({"rows": 1}, max=max_rows), Count({"classes": 1}, max=max_classes))


_SERVED = (*_serve(), OneOf("with_dbias", (False,)))

KERNELS = (
    Kernel(
        "naive",
        "a thread per row: maximum, sum, gradient",
        (THREADS,),
        (),
        ({"threads": 64},),
        domain=lambda t: _SERVED,
        tile=lambda t: {"rows": t["threads"]},
    ),
    Kernel(
        "block_online",
        "a block per row: maximum and sum in one pass, 16 bytes an access",
        (THREADS,),
        (),
        ({"threads": 128}, {"threads": 256}, {"threads": 1024}),
        domain=lambda t: _SERVED,
        tile=lambda t: {"rows": 1},
    ),
    Kernel(
        "row_in_registers",
        "lanes of a warp, or a block, per row, which stays in registers; few rows take one launch of one cluster",
        (GROUP, ROWS, ELEMS),
        (BLOCK_FITS, ONE_ROW_BEYOND_WARP, SUMS_FIT),
        (
            {"threads": 4, "rows": 128, "elems": 4},
            {"threads": 8, "rows": 64, "elems": 8},
            {"threads": 32, "rows": 8, "elems": 8},
            {"threads": 32, "rows": 8, "elems": 32},
            {"threads": 256, "rows": 1, "elems": 16},
        ),
        domain=lambda t: _serve(t["threads"] * t["elems"]),
        tile=lambda t: {"rows": t["rows"]},
        min_arch=90,
    ),
    Kernel(
        "few_classes",
        "few rows of few classes in one block: a few lanes per row, which stays in registers",
        (LANES, FEW),
        (),
        ({"threads": 4, "elems": 4}, {"threads": 4, "elems": 3}, {"threads": 2, "elems": 8}, {"threads": 8, "elems": 8}),
        domain=lambda t: _serve(t["threads"] * t["elems"], _MOST_THREADS // t["threads"]),
        tile=lambda t: {"rows": _MOST_THREADS // t["threads"]},
    ),
)


# Few rows, two for each multiprocessor of a large GPU, have a block each. Else rows of one variant's registers each, and beyond.
_BLOCK_EACH = KERNELS[2].variants[-1]
_LIMITS = {"to_16": 16, "to_64": 64, "few_classes": 256, "to_1024": 1024, "to_4096": 4096, "middle": 16384}
_REGION = Axis(
    "region",
    {
        "few_rows": (
            Count({"rows": 1}, max=264),
            Count({"classes": 1}, _LIMITS["few_classes"] + 1, _BLOCK_EACH["threads"] * _BLOCK_EACH["elems"]),
            OneOf("with_dbias", (False,)),
        ),
        **{name: (Count({"classes": 1}, max=limit),) for name, limit in _LIMITS.items()},
        "vocabulary": (),
    },
)


def choose(problem: Problem) -> Choice:
    """Return the variant that keeps a row in the registers of as few threads as hold it, or reads long rows again."""
    classes = problem.sizes["classes"]
    registers = KERNELS[2]
    if _REGION.find_class(Facts(problem.sizes, {"with_dbias": _has_dbias(problem)})) == "few_rows":
        return Choice(registers.bind(_BLOCK_EACH), "few rows: the registers of a block each")
    for bound in registers.variants:
        if classes <= bound["threads"] * bound["elems"]:
            return Choice(registers.bind(bound), f"the registers of {bound['threads']} threads hold a row")
    return Choice(KERNELS[1].bind({"threads": 256}), "a row is longer than registers hold")


def _problem(suite: str, rows: int, classes: int, dtype: str = "float32", **attributes: bool | str) -> Problem:
    return Problem({"rows": rows, "classes": classes}, {"dtype": dtype, **attributes}, suites=frozenset(suite.split()))


def _strided(rows: int, classes: int, **padding: int) -> Problem:
    scalars = {"label_smoothing": 0.125, "ignore_index": 1}
    return Problem({"rows": rows, "classes": classes}, {"dtype": "bfloat16"}, padding, scalars=scalars)


PROBLEMS = (
    _problem("verify", 1, 1),
    _problem("verify", 257, 2, "bfloat16"),
    _problem("verify", 1, 33, reduction="sum"),
    _problem("verify", 65, 10),
    _problem("verify", 5, 1023, "float16"),
    _problem("verify", 33, 1000, "bfloat16", reduction="sum"),
    _problem("verify", 7, 515, with_gradient=False),
    _strided(6, 128, logits=8, dlogits=8),
    _strided(9, 301, logits=3),
    _problem("verify", 700, 10, "bfloat16", with_dbias=True),
    _problem("verify", 2100, 7, "float16", with_dbias=True, reduction="sum"),
    _problem("verify", 131, 200, with_dbias=True),
    _problem("verify", 150, 1000, "bfloat16", with_dbias=True),
    _problem("verify", 19, 2050, with_dbias=True),
    _problem("verify", 4100, 3, with_gradient=False),
    _problem("verify", 61, 70),
    _problem("verify", 69, 33, "bfloat16", with_dbias=True),
    _problem("verify", 201, 16, "bfloat16", with_dbias=True),
    _problem("verify", 100, 9, "float16", with_dbias=True, reduction="sum"),
    _problem("verify", 17, 3, with_gradient=False),
    _problem("emulated", 256, 1000),
    _problem("emulated", 32, 8192, "bfloat16"),
    _problem("bench sweep", 8192, 32000, "bfloat16"),
    _problem("bench", 4096, 128256, "bfloat16"),
    _problem("bench sweep", 8192, 1000),
    _problem("bench emulated", 128, 10),
    _problem("bench", 128, 10, "bfloat16"),
    _problem("bench", 4096, 10),
    _problem("bench", 1024, 50),
    _problem("bench", 4096, 10000, "bfloat16"),
    _problem("bench", 1024, 50, "bfloat16", with_dbias=True),
    _problem("bench", 512, 200),
    _problem("bench", 512, 100, "bfloat16"),
    _problem("bench", 4096, 1024, "bfloat16"),
    _problem("bench", 2048, 4000, "bfloat16"),
    _problem("bench", 2048, 4000),
    _problem("bench verify", 128, 10, with_dbias=True),
    _problem("bench", 128, 10, "bfloat16", with_dbias=True),
    _problem("bench", 256, 100, with_dbias=True),
    _problem("bench", 256, 100, "bfloat16", with_dbias=True),
    _problem("bench", 128, 1000, with_dbias=True),
    _problem("bench", 128, 1000),
    _problem("bench", 96, 600, "bfloat16"),
    _problem("bench", 4096, 1024, "bfloat16", with_dbias=True),
    _problem("bench", 1024, 4000, "bfloat16", with_dbias=True),
)

OP = Op(
    name="cross_entropy",
    summary="cross-entropy of logits and class indices, with its gradient",
    tensors=(
        Tensor("logits", ("rows", "classes"), Role.INPUT, _find_dtype, can_pad_rows=True),
        Tensor("labels", ("rows",), Role.INPUT, "int64", values=_find_label_values),
        Tensor("loss", (), Role.OUTPUT),
        Tensor(
            "dlogits",
            ("rows", "classes"),
            Role.OUTPUT,
            _find_dtype,
            present=lambda p: bool(p.attributes.get("with_gradient", True)),
            can_pad_rows=True,
        ),
        Tensor("dbias", ("classes",), Role.OUTPUT, _find_dtype, present=_has_dbias, is_added=True),
    ),
    attributes=(
        Attribute("dtype", FLOATS, "float32", passed=False),
        Attribute("with_gradient", (True, False), True, passed=False),
        Attribute("reduction", ("mean", "sum"), "mean"),
        Attribute("with_dbias", (False, True), False, passed=False),
    ),
    ties=(Tie((OneOf("with_dbias", (True,)),), {"with_gradient": True}),),
    scalars=(SMOOTHING, IGNORE),
    kernels=KERNELS,
    problems=PROBLEMS,
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    sampling=Sampling((0,), restrict, find_axis),
    accumulate="float32",
    distributions=(
        "normal",
        "uniform",
        "ties",
        "denormal",
        "largest_first",
        "largest_last",
        "largest_middle",
        "largest_anywhere",
        "one_differs",
        "shifted",
    ),
    population=POPULATION,
    choose=choose,
    axes=(
        Axis("epilogue", {"dbias": (OneOf("with_dbias", (True,)),), "any": ()}),
        _REGION,
    ),
)
