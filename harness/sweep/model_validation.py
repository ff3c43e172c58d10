"""Evaluating the time model on measured sweeps: points, cross-validation, tables, and their files.

Two ways of holding out: *by variant* (five folds, all problems of a variant together: how well are unseen variants of known ops ranked)
and *by op* (each op by a fit to the others: how well is an op ranked that the fit has never seen). Parameters in ``machines.toml`` are
those of the fit to all points; the interval is that of the residuals held out by variant.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from device import open_device
from device.toolchain import find_toolchain
from harness.build.binding import build_binding, open_variant
from harness.build.builder import build_op
from harness.build.disassemble import read_sass
from harness.discover import LoadedOp, find_op
from harness.errors import RecordError
from harness.model.features import Features, collect_features
from harness.model.fit import (
    PRIOR,
    Floats,
    Point,
    correlate_ranks,
    find_best_share,
    find_first_tenth,
    fit_parameters,
    hold_out,
    model_points,
    split_by_op,
    split_by_variant,
)
from harness.model.time_model import LATENCIES, PARAMETERS, THROUGHPUTS, find_terms, load_machine
from harness.records.sweeps import Sweep, SweepPoint
from harness.spec import Variant
from harness.sweep.space import select_sweep_problems
from harness.targets import Target

_INTERVAL = (0.1, 0.9)
# Two medians of one kernel differ by so much from run to run (docs/measuring.md): times nearer than this have no order.
TIE = 0.005
_QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


@dataclass(frozen=True)
class Validation:
    """Measured points, the parameters fitted to all of them, and modelled times: fitted, held out by variant and by op, and by priors."""

    points: tuple[Point, ...]
    parameters: Mapping[str, float]
    fitted: Floats
    by_variant: Floats
    by_op: Floats
    by_prior: Floats

    @property
    def measured(self) -> Floats:
        """Measured times, us."""
        return np.array([p.measured_us for p in self.points])

    @property
    def interval(self) -> tuple[float, float]:
        """Measured over modelled, as the quantiles of the residuals held out by variant: for kernels that the fit knows."""
        return self._find_quantiles(self.by_variant)

    @property
    def unseen_interval(self) -> tuple[float, float]:
        """Measured over modelled, as the quantiles of the residuals held out by op: for kernels that the fit has not seen."""
        return self._find_quantiles(self.by_op)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels with variants among the points, as ``op/kernel``, sorted."""
        return tuple(sorted({f"{p.op}/{p.variant.partition('/')[0]}" for p in self.points}))

    def _find_quantiles(self, modelled: Floats) -> tuple[float, float]:
        low, high = np.quantile(self.measured / modelled, _INTERVAL)
        return float(low), float(high)


def model_op(
    loaded: LoadedOp, variants: Sequence[Variant], problem_names: Sequence[str], target: Target, jobs: int, say: Callable[[str], None]
) -> Iterator[tuple[str, Features]]:
    """Build variants, run samples of them on the emulated device, and yield (hash of the machine code, features) as they come."""
    toolchain = find_toolchain()
    builds = build_op(loaded, variants, toolchain=toolchain, target=target, jobs=jobs, on_result=lambda b: say(f"built {b.variant.name}"))
    binding = build_binding(loaded, toolchain)
    device = open_device("emulated")
    entries = []
    for build in builds:
        if build.library is None:
            say(f"{build.variant.name} does not compile")
            continue
        sass = {kernel.name: kernel for kernel in read_sass(build.library, toolchain)}
        entries.append((build, open_variant(loaded.op, binding, build.library, build.variant), sass))
    for problem in select_sweep_problems(loaded.op, problem_names):
        for build, found in collect_features(device, loaded.op, problem, entries, target):
            if isinstance(found, Features):
                say(f"{build.variant.name} on {problem.name}")
                yield build.code_hash, found


def collect_points(sweeps: Sequence[Sweep], target: Target, jobs: int, say: Callable[[str], None]) -> list[Point]:
    """Return a point for each measured time. Raises :class:`RecordError` where a build's machine code is not what was timed."""
    rates = load_machine(target.name).rates
    points = []
    for sweep in sweeps:
        timed = {(p.op, p.variant, p.problem): p for p in sweep.points if p.status == "passed"}
        for op_name in dict.fromkeys(p.op for p in timed.values()):
            loaded = find_op(op_name)
            variants = loaded.op.select_variants(list(dict.fromkeys(p.variant for p in timed.values() if p.op == op_name)))
            problems = list(dict.fromkeys(p.problem for p in timed.values() if p.op == op_name))
            for code_hash, features in model_op(loaded, variants, problems, target, jobs, say):
                point = timed.get((op_name, features.variant, features.problem))
                if point is not None:
                    _check_code(point, code_hash)
                    terms = find_terms(features, target, rates)
                    points.append(Point(op_name, features.variant, features.problem, terms, point.median_us))
    return points


def _check_code(point: SweepPoint, code_hash: str) -> None:
    if point.code_hash != code_hash:
        raise RecordError(f"{point.op} {point.variant}: the machine code is not what was timed; sweep again with this compiler and commit")


def validate(points: Sequence[Point]) -> Validation:
    """Fit and hold out."""
    parameters = fit_parameters(points)
    return Validation(
        tuple(points),
        parameters,
        model_points(points, parameters),
        hold_out(points, split_by_variant(points)),
        hold_out(points, split_by_op(points)),
        model_points(points, PRIOR),
    )


def summarize_points(validation: Validation, modelled: Floats) -> list[list[str]]:
    """Return a row for all points, each op, and each problem: points, rank correlation, place of the best, error quantiles."""
    points, measured = validation.points, validation.measured
    groups: dict[str, list[int]] = {"all": list(range(len(points)))}
    for index, point in enumerate(points):
        groups.setdefault(point.op, []).append(index)
        groups.setdefault(f"{point.op} {point.problem}", []).append(index)
    rows = []
    for name, members in groups.items():
        y, q = measured[members], modelled[members]
        one_problem = len({points[i].problem for i in members}) == 1
        best = f"{100 * find_best_share(y, q):.1f} %" if one_problem else ""
        tied = f"{100 * find_best_share(y, q, TIE):.1f} %" if one_problem else ""
        chosen = f"{y[int(np.argmin(q))] / y.min():.3f}" if one_problem else ""
        tenth = f"{find_first_tenth(y, q):.3f}" if one_problem else ""
        quantiles = [f"{v:.2f}" for v in np.quantile(q / y, _QUANTILES)]
        rows.append([name, str(len(members)), f"{correlate_ranks(y, q):.3f}", best, tied, tenth, chosen, *quantiles])
    return rows


COLUMNS = (
    "points of",
    "number",
    "rank correlation",
    "best stands at",
    f"or a tie ({TIE:.1%})",
    "first tenth / best",
    "first / best",
    *(f"q{round(100 * q):02d}" for q in _QUANTILES),
)


def make_report(validation: Validation, about: Mapping[str, str], target: Target) -> str:
    """Return the validation as Markdown."""
    variants = len({p.group for p in validation.points})
    ops = ", ".join(dict.fromkeys(p.op for p in validation.points))
    low, high = validation.interval
    unseen_low, unseen_high = validation.unseen_interval
    compiler = about["toolchain"].split(";")[0]
    head = [
        f"# The time model on {about['device']}",
        "",
        f"{len(validation.points)} measured times of {variants} variants of {ops}: "
        f"cold medians of {about['samples']} launches, {compiler}, "
        f"commit {about['commit'][:12]}, {about['date']}. Written by `python -m harness model --validate`; "
        f"every point is in [{target.name}.csv]({target.name}.csv).",
        "",
        "*Rank correlation* is Spearman's between modelled and measured times. *Best stands at* is the place of the fastest measured "
        "variant in the model's order, as a share of the variants; *or a tie*: of the first that is "
        f"within {TIE:.1%} of it, which is what a median repeats to. *First tenth / best* is the fastest measured time among the model's "
        "first tenth over the fastest of all: what measuring no more than these loses; *first / best* is that of its first choice. "
        "The quantiles are of modelled over measured times.",
        "",
        f"The interval that is printed with a modelled time is {low:.2f} to {high:.2f} times it for a kernel with variants in the fit: "
        "80 % of the times held out by variant lie within. "
        f"For any other kernel it is {unseen_low:.2f} to {unseen_high:.2f} times it, by the times held out by op.",
    ]
    parts = [
        ("Held out by variant", "Five folds: each variant by a fit to the variants of the other folds.", validation.by_variant),
        ("Held out by op", "Each op by a fit to the other ops: what to expect of an op that the fit has never seen.", validation.by_op),
        ("Not fitted", "The priors alone: published constants, and one for every factor.", validation.by_prior),
        ("Fitted", "The fit to all points, whose parameters are in `harness/model/machines.toml`.", validation.fitted),
    ]
    for title, text, modelled in parts:
        head += ["", f"## {title}", "", text, "", "| " + " | ".join(COLUMNS) + " |", "|---|" + "--:|" * (len(COLUMNS) - 1)]
        head += ["| " + " | ".join(row) + " |" for row in summarize_points(validation, modelled)]
    return "\n".join(head) + "\n"


def make_csv(validation: Validation) -> str:
    """Return every point with its times and terms."""
    out = io.StringIO()
    names = (*THROUGHPUTS, *LATENCIES)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["op", "variant", "problem", "measured_us", "fitted_us", "by_variant_us", "by_op_us", "by_prior_us", *names])
    v = validation
    for point, *times in zip(v.points, v.fitted, v.by_variant, v.by_op, v.by_prior, strict=True):
        figures = [f"{value:.6g}" for value in (point.measured_us, *times, *(point.terms[name] for name in names))]
        writer.writerow([point.op, point.variant, point.problem, *figures])
    return out.getvalue()


def read_points(path: Path) -> list[Point]:
    """Return the points of a file that :func:`make_csv` wrote."""
    with path.open(newline="") as file:
        return [
            Point(
                row["op"], row["variant"], row["problem"], {n: float(row[n]) for n in (*THROUGHPUTS, *LATENCIES)}, float(row["measured_us"])
            )
            for row in csv.DictReader(file)
        ]


def write_parameters(machines: str, target: str, validation: Validation, record: str) -> str:
    """Return the text of ``machines.toml`` with a target's fitted part replaced."""
    rows = "\n".join(f"{name} = {validation.parameters[name]:.4g}" for name in PARAMETERS)
    intervals = {"interval": validation.interval, "unseen_interval": validation.unseen_interval}
    spans = "\n".join(f"{name} = [{low:.3f}, {high:.3f}]" for name, (low, high) in intervals.items())
    kernels = "\n".join(f'    "{name}",' for name in validation.kernels)
    head = f'[{target}.fitted]\nrecord = "{record}"\n{spans}\nkernels = [\n{kernels}\n]'
    made = f"{head}\n\n[{target}.fitted.parameters]\n{rows}\n"
    pattern = re.compile(rf"^\[{target}\.fitted\]\n.*?(?=^\[(?!{target}\.fitted)|\Z)", re.MULTILINE | re.DOTALL)
    if not pattern.search(machines):
        return f"{machines.rstrip()}\n\n{made}"
    return pattern.sub(lambda _: made, machines)
