"""Putting a survey into the frozen set: models fitted to files of times become a row of the op's index, recorded like any change."""

from __future__ import annotations

import itertools
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.decision import DecisionCore, open_core
from contract.documents import parse_json
from contract.frozen_set import FrozenOp, read_op
from harness.compare.drawn.problems import read_problem
from harness.compare.drawn.record import DrawnRun
from harness.discover import find_op
from harness.errors import FrozenUseError
from harness.freezing.store.changes import change_index
from harness.surveys.fitting import Measured, TimesRow, ask, fit_measured
from harness.surveys.regret import Summary, cross_validate, judge

# Of regret, by which a bucket's choices without a survey are better on average: less than times scatter by is none.
_LEAST_GAIN = 0.005


@dataclass(frozen=True)
class Times:
    """Times of an op's frozen kernels on drawn problems, from one or more files of one GPU; ``record`` names these.

    A row has the ``code_hashes`` of its file's variants, where the file has them.
    """

    op: str
    device: str
    record: str
    rows: tuple[TimesRow, ...]


def read_times(op: str, files: Sequence[Path]) -> Times:
    """Return the times in files that ``survey measure`` or ``compare --drawn --regret`` wrote.

    Raises :class:`FrozenUseError` where one holds something else.
    """
    where = ", ".join(map(str, files))
    try:
        contents = [path.read_bytes() for path in files]
        documents: list[dict[str, Any]] = [d for content in contents for d in _list_documents(parse_json(content))]
        devices = {str(d["facts"]["device"]) for d in documents}
        rows = tuple({**row, "code_hashes": d.get("code_hashes", {})} for d in documents for row in d["rows"])
        ops = {str(d["op"]) for d in documents}
        for row in rows:
            row["sizes"], row["attributes"], row["times_us"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FrozenUseError(f"{where}: cannot be read as times of a survey: {type(error).__name__}: {error}") from error
    if len(devices) != 1 or ops != {op}:
        found = f"of {', '.join(sorted(ops))} on {', '.join(sorted(devices))}"
        raise FrozenUseError(f"{where}: must be times of {op} on one GPU; they are {found}")
    digest = sha256(b"".join(contents)).hexdigest()
    return Times(op, devices.pop(), f"{', '.join(path.name for path in files)} ({digest[:16]})", rows)


def _list_documents(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a file's times: those of a survey as they are, those of drawn problems run by run, where dimensions are in their order."""
    if "runs" not in document:
        return [document]
    found = []
    for run in map(DrawnRun.read, document["runs"]):
        op = find_op(run.op).op
        rows = [
            {
                "sizes": dict(row.sizes),
                "attributes": dict(row.attributes),
                "strides": dict(op.find_facts(read_problem(vars(row))).strides) if any(map(np.any, row.padding.values())) else {},
                "times_us": {c.name: c.us for c in row.own_known},
            }
            for row in run.rows
            if not row.orders
        ]
        facts = {"device": run.environment["device_name"]}
        found.append({"op": run.op, "facts": facts, "rows": rows, "code_hashes": dict(run.code_hashes)})
    return found


@dataclass(frozen=True)
class Adoption:
    """A survey that was fitted: the line of the index, and what held-out problems say of its choices."""

    survey: dict[str, Any]
    num_problems: int
    held_out: Summary

    def describe(self) -> str:
        """Return one line."""
        fitted = f"{self.num_problems} problems, {len(self.survey['weights'])} kernels"
        if apart := self.survey.get("apart"):
            fitted += f", not for {', '.join(apart)}"
        return f"{fitted}; regret where a tenth is held out in turn: {self.held_out.describe()}"


def fit_times(frozen_dir: Path, times: Times, arch: str) -> Adoption:
    """Fit models to times and judge them on problems that were held out; nothing is written.

    Of plain models and finer ones, of all kernels and of those that were timed where they are at home, fitted with little heed to problems
    where a kernel is far behind and with more, those that choose best are kept; of equally good ones the first. A bucket whose calls are
    decided better without a survey, on the same problems, stays apart from it.
    """
    frozen = read_op(times.op, frozen_dir)
    times = give_to_frozen(times, frozen)
    choices = itertools.product((False, True), repeat=3)
    kinds = [{"at_home": at_home, "finer": finer, "heeds_far": heeds_far} for heeds_far, at_home, finer in choices]
    bare = open_core(replace(frozen, surveys={}), arch)
    without, buckets = judge(bare, times.rows), np.array([_name_bucket(bare, row) for row in times.rows])
    measured = Measured(frozen, arch, times.rows, times.device)
    judged = [_set_apart(buckets, without, cross_validate(measured, **kind)) for kind in kinds]
    best = min(range(len(kinds)), key=lambda i: judged[i][0].mean)
    facts = {"device": times.device, "record": times.record}
    survey = fit_measured(measured, np.ones(len(times.rows), np.bool_), facts, **kinds[best])
    held_out, apart = judged[best]
    return Adoption(survey | ({"apart": apart} if apart else {}), len(times.rows), held_out)


def _name_bucket(core: DecisionCore, row: TimesRow) -> str:
    """Return the bucket of a row's problem, "" for one without a winner: none can stay apart there."""
    asked = ask(core, row)
    return core.table.names.axes.name_apart(core.find_classes(asked)) if core.find_bucket_winners(asked) else ""


def _set_apart(buckets: NDArray[np.str_], without: NDArray[np.float64], held_out: NDArray[np.float64]) -> tuple[Summary, list[str]]:
    """Return the regrets of choices, and the buckets that stay apart from the survey: where it chose worse on problems held out."""
    gains = held_out - without
    known = ~np.isnan(gains) & (buckets != "")
    apart = [str(b) for b in np.unique(buckets[known]) if gains[known & (buckets == b)].mean() > _LEAST_GAIN]
    return Summary.of(np.where(np.isin(buckets, apart), without, held_out)), apart


def give_to_frozen(times: Times, frozen: FrozenOp) -> Times:
    """Return times as those of the frozen kernels, on problems that the index knows.

    A kernel without times has those of the one that it replaced, where they know exactly one of its variant that is frozen no more.
    """
    return _pass_on(_name_kernels(times, frozen), {entry["kernel"] for entry in frozen.entries})


def _name_kernels(times: Times, frozen: FrozenOp) -> Times:
    """Return times of variants as those of the frozen kernels that they became, on problems that the index knows.

    A variant whose code is known became the kernel that has this code.
    """
    kernels = {(str(k.manifest["variant"]), k.machine_code): name for name, k in frozen.kernels.items()}
    names = {variant: name for (variant, _), name in kernels.items()}
    known = {a["name"]: a for a in frozen.interface["attributes"]}
    # Of an attribute that came later, the index' problems have the default.
    later = {a.name: a.default for a in find_op(times.op).op.attributes if a.name not in known}
    rows = []
    for row in times.rows:
        given = {n: value for n, value in row["attributes"].items() if n not in later or value != later[n]}
        attributes = {name: given.get(name, a["default"]) for name, a in known.items()}
        if given.keys() <= known.keys() and all(attributes[name] in a["choices"] for name, a in known.items()):
            codes = row.get("code_hashes", {})
            times_us = {kernels.get((n, codes[n]), n) if n in codes else names.get(n, n): us for n, us in row["times_us"].items()}
            rows.append({**row, "attributes": attributes, "times_us": times_us})
    return replace(times, rows=tuple(rows))


def _pass_on(times: Times, frozen: Set[str]) -> Times:
    timed = {name for row in times.rows for name in row["times_us"]}
    gone: dict[str, list[str]] = {}
    for name in sorted(timed - frozen):
        gone.setdefault(_name_variant(name), []).append(name)
    heirs = {name: former[0] for name in sorted(frozen - timed) if len(former := gone.get(_name_variant(name), [])) == 1}
    if not heirs:
        return times
    rows = []
    for row in times.rows:
        known = row["times_us"]
        rows.append({**row, "times_us": known | {name: known[former] for name, former in heirs.items() if former in known}})
    return replace(times, rows=tuple(rows), record=f"{times.record}; {len(heirs)} kernels by the times of those that they replaced")


def _name_variant(kernel: str) -> str:
    """Return a kernel's name without the hash of its code: the variant that it was built as."""
    return kernel.rpartition("__")[0]


def adopt_survey(frozen_dir: Path, times: Times, arch: str) -> Adoption:
    """Fit models to times and put them into the op's index; raises :class:`FrozenError` where nothing would change."""
    found = fit_times(frozen_dir, times, arch)
    message = f"{found.num_problems} problems, {len(found.survey['weights'])} kernels: {found.survey['record']}"
    change_index(frozen_dir, times.op, "survey", message, put=[found.survey])
    return found
