"""What ``compare --drawn`` does: draw, ask the framework, build, time against the libraries (or model, without a GPU), record, publish."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contract.files import write_atomically
from device.settings import find_project_root
from harness.benchmark.run import open_peers
from harness.benchmark.session import Session
from harness.compare.drawn import record, seeds
from harness.compare.drawn.contenders import Contenders, Plan, build_contenders
from harness.compare.drawn.frozen_choice import choose_frozen, hash_index
from harness.compare.drawn.library_facts import examine_libraries
from harness.compare.drawn.page import find_titles, make_page, say_time
from harness.compare.drawn.precompile import precompile_peers
from harness.compare.drawn.problems import describe_problem, draw_problems
from harness.compare.drawn.record import DrawnRow, DrawnRun, GroupResult
from harness.compare.drawn.timing import POLICY, time_matches
from harness.compare.drawn.without_gpu import model_plan
from harness.discover import LoadedOp, load_peers
from harness.model.time_model import has_machine
from harness.spec import Launchable, Op, SpecError
from harness.terminal.console import claim_output, open_progress
from harness.timing.copies import SIZES_BYTES, measure_copies
from harness.timing.rounds import TIMING_DISTRIBUTION, Timed
from harness.timing.timer import Timer

PAGE, PICTURE = "drawn.md", "drawn.svg"
# Stands for no library at all.
NO_PEER = "none"
# Groups and a heading, to an SVG document.
Draw = Callable[[Sequence[GroupResult], str], str]


@dataclass(frozen=True)
class Request:
    """What is asked for. ``seconds`` is the time of the whole command after which no further problem is begun.

    ``with_all`` times all frozen kernels and variants, for the regret, or of the variants those that ``variants`` names; ``peers`` are
    timed beside each group's own, and NO_PEER alone leaves these out, too; ``use`` is what the seed is used for, if for anything but this
    page; ``groups`` of the population are drawn from, all without a name.
    """

    loaded: LoadedOp
    count: int
    seed: int
    command: str
    seconds: float = 600.0
    with_all: bool = False
    peers: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    use: str = ""
    publish: Path | None = None
    device: str | None = None
    target: str | None = None
    jobs: int | None = None
    quiet: bool = False


def make_plan(op: Op, count: int, seed: int, arch: str, more_peers: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> Plan:
    """Draw problems, and ask the framework and the op what they choose for them."""
    drawn = draw_problems(op, count, seed, groups)
    drawn = [replace(d, group=replace(d.group, peers=_choose_peers(d.group.peers, more_peers))) for d in drawn]
    problems = [d.problem for d in drawn]
    owns = [op.choose(p).variant.name if op.choose else "" for p in problems]
    return Plan(drawn, choose_frozen(op, problems, arch), owns)


def _choose_peers(own: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return () if more == (NO_PEER,) else tuple(dict.fromkeys([*own, *more]))


@dataclass(frozen=True)
class DrawnDone:
    """A run on a GPU with its id in the records and the folder of its page; or, without one, the decisions with modelled times."""

    loaded: LoadedOp
    target: str
    run: DrawnRun | None = None
    run_id: int | None = None
    folder: Path | None = None
    plan: Plan | None = None
    modelled: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)

    @property
    def is_failed(self) -> bool:
        """Whether the output of what users get is wrong on a problem."""
        return self.run is not None and any(_is_wrong(r) for r in self.run.rows)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        if self.run is not None:
            return self.run.to_json() | {"run": self.run_id}
        return {"op": self.loaded.op.name, "target": self.target, "rows": self.list_rows()}

    def list_rows(self) -> list[dict[str, Any]]:
        """Return a row per problem as plain values."""
        if self.run is not None:
            return [r.to_json() for r in self.run.rows]
        assert self.plan is not None
        return list_plan_rows(self.plan, self.modelled)


def run_drawn(request: Request, draw: Draw) -> DrawnDone:
    """Judge an op on drawn problems: timed on a GPU, modelled without one. ``draw`` makes the picture.

    Raises SpecError for an op without a population, and for what only times can fill where there is no GPU, FrozenError where the frozen
    set cannot be read, BuildError where a kernel does not come out as it was sealed.
    """
    loaded = request.loaded
    deadline = time.monotonic() + request.seconds
    folder = request.publish or find_project_root() / ".aicf" / "drawn" / loaded.op.name
    claim_output(folder, "--publish", is_folder=True)
    with Session.start(loaded, request.command, device=request.device, target=request.target, jobs=request.jobs) as session:
        plan = make_plan(loaded.op, request.count, request.seed, session.target.real_arch, request.peers, request.groups)
        if session.device.is_emulated:
            if request.publish or request.use:
                given = "--publish" if request.publish else "--use"
                raise SpecError(f"{given} goes with times, and without a GPU nothing is timed: leave it out, or run on a GPU")
            modelled = _model_plan(session, request, plan, deadline)
            return DrawnDone(loaded, session.target.name, plan=plan, modelled=modelled)
        run = _time_drawn(session, request, plan, folder, deadline, draw)
        return DrawnDone(loaded, session.target.name, run, session.run_id, folder)


def _is_wrong(row: DrawnRow) -> bool:
    found = row.find(row.judged)
    return found is None or (found.status == "failed" and found.us is not None)


def _time_drawn(session: Session, request: Request, plan: Plan, folder: Path, deadline: float, draw: Draw) -> DrawnRun:
    """Time the plan's problems as far as the deadline allows; what was found is kept however this ends."""
    op = session.loaded.op
    left_out: list[str] = []
    wanted = {n for d in plan.drawn for n in d.group.peers}
    known = load_peers(session.loaded.folder)
    if request.peers != (NO_PEER,) and (unknown := sorted(set(request.peers) - {p.name for p in known})):
        raise SpecError(f"--peer {unknown[0]}: op {op.name} has no such peer; it has: {', '.join(p.name for p in known) or 'none'}")
    peers = [p for p in known if p.name in wanted]
    compiling = {p.name for p in peers if p.compiles}
    kernels = plan.list_kernels(with_all=request.with_all)
    variants = plan.list_variants([v.name for v in op.select_variants(request.variants)], with_all=request.with_all)
    to_compile = [(d.problem, [n for n in d.group.peers if n in compiling]) for d in plan.drawn]
    quiet = request.quiet
    with ThreadPoolExecutor(1) as pool, open_progress(f"build {op.name}", len(kernels) + len(variants), quiet=quiet) as progress:
        compiled_ahead = pool.submit(precompile_peers, session.loaded.folder, to_compile, session.settings.jobs)
        contenders = build_contenders(session, kernels, variants, progress.advance)
        # Importing their libraries takes this process seconds, too, while others compile.
        opened: dict[str, Launchable] = dict(open_peers(peers, left_out.append))
        left_out += compiled_ahead.result()
    matches = contenders.match(plan, opened, with_all=request.with_all)
    run = replace(_start_run(session, request, folder, tuple(left_out)), code_hashes=contenders.code_hashes)
    timer = Timer(session.device, POLICY)
    try:
        with _publishing(op, folder, draw), open_progress(f"compare {op.name}", len(matches), quiet=quiet) as progress:
            max_errors = {p.name: p.max_error for p in peers}
            for row, timed in _until(deadline, time_matches(session, timer, matches, max_errors, with_all=request.with_all)):
                _record(session, contenders, run.seed, row, timed)
                run = record.add_row(run, row)
                _keep(folder, run)
                progress.advance(_describe_row(row))
            run = replace(run, libraries=examine_libraries(session, opened, plan.problems, run.rows))
            most_bytes = max((op.cost(d.problem).bytes_moved for d in plan.drawn[: len(run.rows)]), default=0.0)
            run = replace(run, copies=measure_copies(session.device, timer, [n for n in SIZES_BYTES if n < 2 * most_bytes]))
            _keep(folder, run)
    finally:
        timer.close()
    return run


def _until(deadline: float, rows: Iterator[tuple[DrawnRow, Mapping[str, Timed]]]) -> Iterator[tuple[DrawnRow, Mapping[str, Timed]]]:
    for row in rows:
        yield row
        if time.monotonic() > deadline:
            return


def _describe_row(row: DrawnRow) -> str:
    times = ", ".join(f"{c.name} {say_time(c)}" for c in row.contenders if c.us is not None)
    return f"{row.problem}: {'-' if row.ratio is None else f'{row.ratio:.3f}'}; us (error): {times}"


def _start_run(session: Session, request: Request, folder: Path, left_out: tuple[str, ...]) -> DrawnRun:
    op = request.loaded.op.name
    index = hash_index(op)
    ledger = seeds.find_ledger(op)
    earlier = record.read_runs(folder / record.FILE)
    published = ledger.parent / record.FILE
    if published.resolve() != (folder / record.FILE).resolve():
        earlier += record.read_runs(published)
    note = seeds.describe_uses(seeds.read_uses(ledger), earlier, request.seed, index)
    if request.use:
        source = f"{request.command}, {session.commit.describe()}"
        seeds.note_use(ledger, seeds.SeedUse(request.seed, seeds.POPULATION, request.use, source))
        note = "; ".join(filter(None, (note, f"{request.use}, this run")))
    started = datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="seconds")
    environment = asdict(session.environment)
    commit = session.commit.describe()
    arch = session.target.real_arch
    return DrawnRun(op, request.seed, request.count, started, request.command, commit, arch, index, environment, note, left_out)


def _keep(folder: Path, run: DrawnRun) -> None:
    path = folder / record.FILE
    record.write_runs(path, run.op, record.put_run(record.read_runs(path), run))


@contextmanager
def _publishing(op: Op, folder: Path, draw: Draw) -> Iterator[None]:
    """Write page and picture of all runs of the folder when the block ends, also where it is interrupted."""
    try:
        yield
    finally:
        if runs := record.read_runs(folder / record.FILE):
            publish(op, runs, folder, draw)


def publish(op: Op, runs: list[DrawnRun], folder: Path, draw: Draw) -> None:
    """Write the page and the picture of runs to a folder."""
    write_atomically(folder / PAGE, make_page(op, runs))
    alike, rows = record.merge_runs(runs)
    results = record.group_rows(rows, find_titles(op))
    if results[-1].measured:
        write_atomically(folder / PICTURE, draw(results, f"{op.name}. {alike[-1].where}"))


def _record(session: Session, contenders: Contenders, seed: int, row: DrawnRow, timed: Mapping[str, Timed]) -> None:
    """Insert a result per contender, with all its samples."""
    for contender in row.contenders:
        timing = timed[contender.name].cold
        samples = {} if timing is None else {"samples": timing.samples_us, "clocks": timing.clocks_mhz, "clock_label": timing.clock_label}
        figures = {} if timing is None else timing.to_figures()
        session.record(
            contenders.builds.get(contender.name),
            kind="drawn",
            variant=contender.name,
            problem=row.problem,
            status=contender.status,
            reason=contender.reason,
            figures=figures | {"group": row.group, "role": contender.role, "seed": seed, "error": contender.error, "ratio": row.ratio},
            inputs=TIMING_DISTRIBUTION if timing is not None else "",
            **samples,
        )


def _model_plan(session: Session, request: Request, plan: Plan, deadline: float) -> dict[str, dict[str, float | None]]:
    """Return the modelled times of both choices by problem, as far as the deadline allows."""
    op = session.loaded.op
    modelled: dict[str, dict[str, float | None]] = {}
    if has_machine(session.target.name) and request.seconds > 0:
        names = [list(filter(None, (c.kernel, own if own != c.variant else ""))) for c, own in zip(plan.choices, plan.owns, strict=True)]
        with open_progress(f"model {op.name}", len(names), quiet=request.quiet) as progress:
            wanted = list(zip(plan.problems, names, strict=True))
            for problem, times in model_plan(session, wanted, deadline, lambda kernel: None):
                modelled[problem.name] = times
                progress.advance(problem.name)
    return modelled


def list_plan_rows(plan: Plan, modelled: Mapping[str, Mapping[str, float | None]]) -> list[dict[str, Any]]:
    """Return decisions and modelled times as plain values, one row per problem."""
    rows: list[dict[str, Any]] = []
    for drawn, choice, own in zip(plan.drawn, plan.choices, plan.owns, strict=True):
        times = modelled.get(drawn.problem.name, {})
        rows.append(
            {
                "group": drawn.group.name,
                "problem": drawn.problem.name,
                **describe_problem(drawn.problem),
                "kernel": choice.kernel,
                "variant": choice.variant,
                "how": choice.how,
                "error": choice.error,
                "own": own,
                "kernel_model_us": times.get(choice.kernel),
                "own_model_us": times.get(choice.kernel if own == choice.variant else own),
            }
        )
    return rows
