"""An op from Python: one method per verb, with the options, errors and records of the command line, returning data frames."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import pandas as pd

from harness import discover, scaffold
from harness.discover import LoadedOp
from harness.doctor import examine
from harness.profiling.side_by_side import Inspection
from harness.records import load
from harness.verbs.bench import bench
from harness.verbs.build import build
from harness.verbs.compare import compare
from harness.verbs.crosscheck import crosscheck
from harness.verbs.inspect import inspect as inspect_verb
from harness.verbs.model import model
from harness.verbs.naming import OpLike
from harness.verbs.profile import profile
from harness.verbs.promote import promote_op
from harness.verbs.report import write_report
from harness.verbs.show import Shown, show
from harness.verbs.sweep import sweep
from harness.verbs.verify import verify
from harness.workbench import frames

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
# The face has what a verb returns as a frame, no lines to print, and all that an op lists.
_NOT_OPTIONS = frozenset({"first_look", "say"})


def _make_method(
    verb: Callable[Concatenate[OpLike, P], ResultT], make_frame: Callable[[ResultT], pd.DataFrame]
) -> Callable[Concatenate[Op, P], pd.DataFrame]:
    """Return a verb as a method: the same options, and a frame of what it returns."""

    @functools.wraps(verb)
    def run(self: Op, *args: P.args, **kwargs: P.kwargs) -> pd.DataFrame:
        return make_frame(verb(self.loaded, *args, **kwargs))

    signature = inspect.signature(verb)
    own, *options = signature.parameters.values()
    kept = [o for o in options if o.name not in _NOT_OPTIONS]
    run.__signature__ = signature.replace(parameters=[own.replace(name="self"), *kept], return_annotation=pd.DataFrame)  # type: ignore[attr-defined]
    run.__doc__ = f"{verb.__doc__}\n\n    Of that it makes a frame. {make_frame.__doc__}"
    return cast("Callable[Concatenate[Op, P], pd.DataFrame]", run)


class Op:
    """An op of the project by its name, or the one in a folder.

    Each verb is a method: ``op.bench(variant="tiled", device="cuda")`` is ``bench OP --variant tiled --device cuda``. Methods return data
    frames (:mod:`harness.workbench.frames` documents their columns) whose ``attrs["ok"]`` says whether all is right; what is wrong with a
    variant is a row, and only what stops the verb is raised. Everything is recorded as the command line records it. A notebook shows a
    bar meanwhile; ``quiet=True`` shows none.
    """

    build = _make_method(build, frames.frame_builds)
    verify = _make_method(verify, frames.frame_verdicts)
    bench = _make_method(bench, frames.frame_bench)
    sweep = _make_method(sweep, frames.frame_sweep)
    model = _make_method(model, frames.frame_model)
    compare = _make_method(compare, frames.frame_comparison)
    profile = _make_method(profile, frames.frame_profiles)
    promote = _make_method(promote_op, frames.frame_promotion)
    crosscheck = _make_method(crosscheck, frames.frame_agreement)

    def __init__(self, name: str | Path | LoadedOp) -> None:
        """Load the op; raises :class:`harness.errors.SpecError` for a name that none has, or a folder that holds none."""
        if isinstance(name, LoadedOp):
            self._loaded = name
        elif isinstance(name, Path) or "/" in name:
            folder = Path(name).resolve()
            self._loaded = LoadedOp(discover.load_op(folder), folder)
        else:
            self._loaded = discover.find_op(name)

    def __repr__(self) -> str:
        return f"Op({self.name!r}: {self.spec.summary}; {len(self.spec.kernels)} kernels, {len(self.variants)} variants)"

    @property
    def name(self) -> str:
        """The op's name."""
        return self._loaded.op.name

    @property
    def folder(self) -> Path:
        """The folder that holds ``op.py`` and the kernels."""
        return self._loaded.folder

    @property
    def spec(self) -> Any:
        """What ``op.py`` binds to ``OP``."""
        return self._loaded.op

    @property
    def loaded(self) -> LoadedOp:
        """The op with its folder, as the verbs take it."""
        return self._loaded

    @property
    def variants(self) -> list[str]:
        """The names of the listed variants, in ladder order."""
        return [v.name for v in self._loaded.op.variants]

    @property
    def problems(self) -> pd.DataFrame:
        """A row per problem: its name, suites, sizes and attributes."""
        rows = ({"problem": p.name, "suites": sorted(p.suites), **p.sizes, **p.attributes} for p in self._loaded.op.problems)
        return frames.make_frame(rows, ("problem", "suites"))

    def records(self, source: str = "auto", *, url: str | None = None) -> pd.DataFrame:
        """Return everything recorded of the op; :mod:`harness.records.frames` documents the columns."""
        return load(self.name, source, url=url)

    def report(self, html: Path | None = None, published: bool = False) -> Path:
        """Write the page with pictures of everything recorded, and return where it is."""
        return write_report(self._loaded, html, "published" if published else "auto")

    def inspect(self, variant: str, problem: str = "", html: Path | None = None, target: str | None = None) -> Inspection:
        """Run a variant with counters by line, and return what each source line became and costs."""
        return inspect_verb(self._loaded, variant, problem, html, target)

    def show(self, variant: str, ptx: bool = False, sass: bool = False, log: bool = False, target: str | None = None) -> Shown:
        """Return a variant's build, with its ``texts`` as far as they are asked for."""
        return show(self._loaded, variant, ptx, sass, log, target)


def list_ops() -> pd.DataFrame:
    """Return a row per op of the project: ``op``, ``summary``, ``kernels`` (names), ``num_variants``."""
    found = [discover.load_op(folder) for folder in discover.find_ops().values()]
    rows = ({"op": o.name, "summary": o.summary, "kernels": [k.name for k in o.kernels], "num_variants": len(o.variants)} for o in found)
    return frames.make_frame(rows, ("op", "summary"))


def doctor(device: str | None = None) -> pd.DataFrame:
    """Return a row per thing that is used: ``subject``, ``status`` (``ok``, ``missing``, ``optional``), ``detail``, ``remedy``."""
    findings = examine(device)
    return frames.make_frame((vars(f) for f in findings), ok=not any(f.status == "missing" for f in findings))


def new(op: str, kind: str = "elementwise") -> Op:
    """Write the folder of a new op that at once builds, verifies and benches, and return the op."""
    folder = scaffold.create_op(op, scaffold.find_kind(kind))
    return Op(LoadedOp(discover.load_op(folder), folder))
