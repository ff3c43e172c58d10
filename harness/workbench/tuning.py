"""Tuning a loose kernel: candidates are built, verified, timed or modelled, and recorded, without a folder in ``ops/``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from device.settings import read_settings
from harness.benchmark.session import Judged, Session
from harness.discover import LoadedOp, load_op
from harness.errors import BuildError
from harness.loose.arguments import Argument
from harness.loose.folder import load_loose, save_op
from harness.loose.formulas import FormulaLike
from harness.loose.kernel import LooseKernel, Restriction, describe_kernel
from harness.model.time_model import has_machine, load_machine
from harness.terminal.console import open_progress
from harness.verbs.sweep import sweep
from harness.verify.reference import References
from harness.verify.tables import list_fault_lines
from harness.workbench.frames import frame_sweep
from harness.workbench.op import Op


@dataclass(frozen=True)
class Tuned:
    """What became of each candidate.

    ``frame`` has a row per problem and candidate, those that are right and fast first: the tunables, ``status`` (``passed``, ``failed``,
    ``set_aside``, ``unsupported``), ``us`` with ``low_us`` and ``high_us``, ``is_model`` (nothing was timed), ``proved`` and ``reason``.
    ``note`` says what the times are.
    """

    kernel: LooseKernel
    loaded: LoadedOp
    frame: pd.DataFrame
    note: str
    winner: str

    @property
    def best(self) -> dict[str, int]:
        """The tunables of the fastest candidate that is right, over all problems; raises BuildError where none is."""
        return self._find_values(self._rank()[0])

    @property
    def best_us(self) -> float:
        """The best candidate's microseconds, the geometric mean over the problems; modelled ones where ``is_model``."""
        rows = self.frame[self.frame["variant"] == self._rank()[0]]
        return float(np.exp(np.log(rows["us"].astype(float)).mean()))

    @property
    def is_model(self) -> bool:
        """Whether nothing was timed, since there is no GPU."""
        return bool(self.frame["is_model"].any())

    @property
    def op(self) -> Op:
        """The kernel as an op that lies in no project: every verb takes it."""
        return Op(self.loaded)

    def to_op(self, name: str, num_variants: int = 3, ops_dir: Path | None = None) -> Op:
        """Write the kernel as ``ops/<name>/``, its fastest candidates as the listed variants, and return the op.

        Raises SpecError for a name that cannot be an op's or is taken, BuildError where no candidate is right.
        """
        bindings = [self._find_values(v) for v in self._rank()[: max(1, num_variants)]]
        folder = save_op(self.kernel, name, bindings, ops_dir)
        return Op(LoadedOp(load_op(folder), folder))

    def _rank(self) -> list[str]:
        """Return the candidates that are right on every problem, the winner and then the fastest first."""
        right = self.frame[self.frame["status"] == "passed"]
        counts = right.groupby("variant")["us"].count()
        means = np.log(right["us"].astype(float)).groupby(right["variant"]).mean()
        names = list(means[counts == counts.max()].sort_values(kind="stable").index) if len(right) else []
        if not names:
            reasons = self.frame["reason"][self.frame["reason"] != ""]
            raise BuildError(f"none of the candidates of {self.kernel.name} is right; the first: {next(iter(reasons), 'none was built')}")
        return [self.winner, *(n for n in names if n != self.winner)] if self.winner in names else names

    def _find_values(self, variant: str) -> dict[str, int]:
        row = self.frame[self.frame["variant"] == variant].iloc[0]
        return {name: int(row[name]) for name in self.kernel.tunables}

    def _repr_html_(self) -> str:
        return f"{self.frame.to_html(max_rows=20)}<p>{self.note}</p>"

    def __repr__(self) -> str:
        passed = int((self.frame["status"] == "passed").sum())
        return f"Tuned({self.kernel.name}: {passed} of {len(self.frame)} candidates are right; {self.note})"


def tune(
    source: str | Path,
    name: str,
    *,
    sizes: Mapping[str, int] | Sequence[Mapping[str, int]],
    arguments: Mapping[str, Argument],
    tunables: Mapping[str, Sequence[int]],
    grid: FormulaLike | Sequence[FormulaLike],
    block: FormulaLike | Sequence[FormulaLike],
    reference: Callable[..., Any],
    shared: FormulaLike | None = None,
    template: Sequence[str] = (),
    restrictions: Restriction | Sequence[Restriction] = (),
    multiple_of: Mapping[str, FormulaLike] | None = None,
    proving_sizes: Sequence[Mapping[str, int]] = (),
    tolerance: Callable[..., Any] | None = None,
    terms: FormulaLike | None = None,
    flops: FormulaLike | None = None,
    flags: Sequence[str] = (),
    strategy: str | None = None,
    trials: int | None = None,
    resume: bool = True,
    device: str | None = None,
    target: str | None = None,
    jobs: int | None = None,
    quiet: bool = False,
    **options: Any,
) -> Tuned:
    """Tune a kernel that lies in a file: build each candidate, prove it against ``reference``, time it, and record all of it.

    Without a GPU candidates are proved under the emulated device's sanitizer, and ranked by the time model; ``Tuned.note`` says so. An
    interrupt loses nothing: the same call goes on from the records (``resume=False`` measures anew). Raises SpecError where the
    description is wrong, with the argument's name and the remedy.

    Parameters
    ----------
    source, name
        the file, or its text; and the ``__global__`` function in it
    sizes
        elements by name, of the problem that is timed, or a list of them
    arguments
        what each parameter is given, in order: ``In``, ``Out`` or ``InOut`` with a shape, ``Size()``, ``Value(default, low, high)``
    tunables
        values by name; the kernel sees them as macros, or as template arguments where ``template`` lists them in order
    grid, block, shared
        blocks, threads, and bytes of dynamic shared memory: numbers, formulas or functions of sizes and tunables
    reference
        a function of inputs, sizes and scalars by their names that returns what is written, in NumPy
    restrictions
        expressions (``"bm * bn <= 1024"``) or functions of tunables; what they forbid is never built
    multiple_of
        what a size must be a multiple of, by size, where the kernel checks no bounds
    proving_sizes
        small sizes to prove it on, in place of those that are derived
    tolerance
        largest errors from (inputs, outputs, problem), for a reference that is no sum of products
    terms, flops
        formulas of sizes: how many products an output sums up, and the operations of the whole; both are derived
    flags
        for nvcc, beside the workbench's own
    strategy, trials, options
        those of ``sweep``: ``grid`` (every candidate; the default without ``trials``), ``random``, ``tpe``,
        ``cmaes``; ``prune``, ``keep``, ``samples``, ``finalists``, ``with_spills``, ``gpus``, ...
    """
    kernel = describe_kernel(
        source,
        name,
        sizes=sizes,
        arguments=arguments,
        tunables=tunables,
        grid=grid,
        block=block,
        reference=reference,
        shared=shared,
        template=template,
        restrictions=restrictions,
        multiple_of=multiple_of,
        proving_sizes=proving_sizes,
        tolerance=tolerance,
        terms=terms,
        flops=flops,
        flags=flags,
    )
    loaded = load_loose(kernel)
    _try_reference(loaded)
    chosen = strategy or ("grid" if trials is None else "random")
    common: dict[str, Any] = {"device": device, "target": target, "jobs": jobs, "quiet": quiet}
    done = sweep(loaded, strategy=chosen, trials=trials, resume=resume, **common, **options)
    frame = frame_sweep(done)
    winner = done.winners[0].winner if len(done.winners) == 1 else ""
    passed = list(dict.fromkeys(frame["variant"][frame["status"] == "passed"]))
    judged = _prove(loaded, passed if done.is_model else [winner or v for v in passed[:1]], **common)
    return Tuned(kernel, loaded, _finish(frame, kernel, judged), _note(done.is_model, target, loaded), winner)


def _try_reference(loaded: LoadedOp) -> None:
    """Raise SpecError where reference or tolerance fail on the smallest problem, before anything is built."""
    op = loaded.op
    References(op).get(min(op.select_problems("verify"), key=lambda p: op.cost(p).bytes_moved))


def _prove(
    loaded: LoadedOp, names: Sequence[str], *, device: str | None, target: str | None, jobs: int | None, quiet: bool
) -> list[Judged]:
    """Verify candidates on all that the op lists, under the sanitizer on the emulated device; each verdict is recorded at once."""
    if not names:
        return []
    op = loaded.op.name
    with Session.start(loaded, f"verify {op}", device=device, target=target, jobs=jobs) as session:
        builds, binding = session.build(loaded.op.select_variants(list(names)))
        with open_progress(f"verify {op}", len(builds), quiet=quiet) as progress:
            return session.judge(builds, binding, reuse=True, on_judged=lambda j: progress.advance(j.variant.name))


def _finish(frame: pd.DataFrame, kernel: LooseKernel, judged: Sequence[Judged]) -> pd.DataFrame:
    """Return the frame with the tunables by their users' names, and with what the proof came to."""
    found = frame.rename(columns={own: name for name, own in kernel.own_names.items()})
    verdicts = {j.variant.name: j for j in judged}
    found["proved"] = found["variant"].map(lambda v: v in verdicts and verdicts[v].ok)
    wrong = found["variant"].map(lambda v: v in verdicts and not verdicts[v].ok)
    found.loc[wrong, "reason"] = [_explain(verdicts[v]) for v in found["variant"][wrong]]
    found.loc[wrong, "status"] = "failed"
    found["is_right"] = found["status"] == "passed"
    found = found.sort_values(["problem", "is_right", "us"], ascending=[True, False, True], kind="stable", ignore_index=True)
    found.attrs["ok"] = bool(found["is_right"].all())
    return found.drop(columns=["is_right", "kernel"])


def _explain(judged: Judged) -> str:
    """Return what is wrong with a candidate in full: the most telling fault with problem, place and values."""
    lines = list_fault_lines(judged.result, 1) if judged.result is not None else []
    return lines[0].removeprefix(f"{judged.variant.name}: ") if lines else judged.reason


def _note(is_model: bool, target: str | None, loaded: LoadedOp) -> str:
    if not is_model:
        return "times are medians of cold launches on the GPU"
    machine = target or read_settings().target
    trust = load_machine(machine).make_note(loaded.op.name, loaded.op.variants[0].name) if has_machine(machine) else ""
    return f"no GPU was used and no time was measured: times are of the model of {machine}. {trust}".strip()
