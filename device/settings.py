"""Every environment variable of the project, read in this one place.

``python -m harness doctor`` lists :data:`VARIABLES` with the values in force.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "AICF_"
# The emulator's library reads these itself, so that they also work where there is no Python: one variable an option of aicf_emulator.h.
EMULATOR_PREFIX = "AICF_EMULATED_"
EMULATOR_OPTIONS = (
    *("checks", "counters", "devices", "error_exitcode", "instruction_limit", "l1_bytes", "leak_check", "level", "loop_limit"),
    *("max_reports", "memory_bytes", "mode", "print_limit", "print_reports", "read_only", "report_file", "sample_blocks", "sample_seed"),
    *("schedule", "seed", "summary", "summary_file", "suppressions", "target", "warp_quantum", "workers", "zero_memory"),
)
DEVICES = ("auto", "cuda", "emulated")
TARGETS = ("h200", "h100", "a100")


class SettingError(ValueError):
    """An environment variable, or the option that stands for it, has a value that cannot be used."""


@dataclass(frozen=True)
class Variable:
    """One environment variable: its name, its default in words, and what it does."""

    name: str
    default: str
    meaning: str


VARIABLES: tuple[Variable, ...] = (
    Variable("AICF_DEVICE", "auto", f"which device to use: {', '.join(DEVICES)} (auto: cuda where a GPU and CuPy are found)"),
    Variable("AICF_EMULATOR_LIBRARY", "the installed one", "path of the emulator's libcudart.so.13"),
    Variable("AICF_CACHE_DIR", "<project>/.aicf/cache", "where built variants and bindings are kept"),
    Variable("AICF_RECORDS_URL", "sqlite:///<project>/.aicf/records.sqlite", "database of runs, as an SQLAlchemy URL"),
    Variable("AICF_TARGET", "h200", f"GPU that kernels are built and modelled for: {', '.join(TARGETS)}"),
    Variable("AICF_JOBS", "the cores this process may use", "compilations at the same time"),
    Variable(
        f"{EMULATOR_PREFIX}*", "none", "options of the emulator, such as AICF_EMULATED_SCHEDULE=random; see device/emulator/README.md"
    ),
)


@dataclass(frozen=True)
class Settings:
    """The values in force. Paths are absolute; ``emulator_library`` is None where the installed library is to be used."""

    device: str
    emulator_library: Path | None
    cache_dir: Path
    records_url: str
    target: str
    jobs: int


def find_project_root() -> Path:
    """Return the folder that holds ``ops/``: the checkout this package lies in, else the nearest one at or above the working directory."""
    here = Path.cwd()
    for folder in (Path(__file__).resolve().parents[1], here, *here.parents):
        if (folder / "ops").is_dir() and (folder / "pyproject.toml").is_file():
            return folder
    return here


def require_own_checkout() -> None:
    """Raise :class:`SettingError` where the working directory lies in another checkout than the one whose code runs.

    An environment belongs to the checkout that it was made in: started in a second clone, its Python still imports the first one.
    """
    own, here = Path(__file__).resolve().parents[1], Path.cwd().resolve()
    for folder in (here, *here.parents):
        if (folder / "ops").is_dir() and (folder / "harness").is_dir() and (folder / "pyproject.toml").is_file():
            if folder != own:
                raise SettingError(
                    f"you stand in {folder}, and this Python ({sys.executable}) runs the project of {own}: "
                    f"run {folder}/.venv/bin/python, which `make env` makes there, or go to {own}"
                )
            return


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from ``environ`` (the process environment when None); an empty value counts as unset.

    Raises :class:`SettingError` naming the variable, its value and the values it may have. Values of the emulator's own options are read,
    and refused, by its library; their names are checked here too.
    """
    env = os.environ if environ is None else environ
    if unknown := find_unknown_options(env):
        # By what is behind the prefix: with it, every name would be near.
        near = suggest(unknown[0].removeprefix(EMULATOR_PREFIX), [name.upper() for name in EMULATOR_OPTIONS])
        raise SettingError(f"{unknown[0]}: the emulator has no such option{near or '; it has: ' + ', '.join(EMULATOR_OPTIONS)}")
    state = find_project_root() / ".aicf"
    library = env.get("AICF_EMULATOR_LIBRARY", "")
    return Settings(
        device=parse_choice("AICF_DEVICE", env.get("AICF_DEVICE") or "auto", DEVICES),
        emulator_library=Path(library).expanduser().absolute() if library else None,
        cache_dir=Path(env.get("AICF_CACHE_DIR") or state / "cache").expanduser().absolute(),
        records_url=env.get("AICF_RECORDS_URL") or f"sqlite:///{state / 'records.sqlite'}",
        target=parse_choice("AICF_TARGET", env.get("AICF_TARGET") or "h200", TARGETS),
        jobs=_parse_jobs(env.get("AICF_JOBS", "")),
    )


def find_unknown_variables(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the set variables that carry our prefix and mean nothing: most likely misspelt."""
    env = os.environ if environ is None else environ
    known = {v.name for v in VARIABLES}
    return tuple(sorted(name for name in env if name.startswith(PREFIX) and not name.startswith(EMULATOR_PREFIX) and name not in known))


def find_unknown_options(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that are set to an option of the emulator which it does not have."""
    names = (name for name, value in environ.items() if value and name.startswith(EMULATOR_PREFIX))
    return tuple(sorted(name for name in names if name not in {EMULATOR_PREFIX + option.upper() for option in EMULATOR_OPTIONS}))


def suggest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean '...'?`` with the nearest of the known words, "" where none is near."""
    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def parse_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``choices``, else raise :class:`SettingError` naming them."""
    if value not in choices:
        raise SettingError(f"{name}={value!r}: must be one of {', '.join(choices)}{suggest(value, choices)}")
    return value


def _parse_jobs(text: str) -> int:
    if not text:
        return len(os.sched_getaffinity(0))
    if not text.isdecimal() or int(text) < 1:
        raise SettingError(f"AICF_JOBS={text!r}: must be a whole number of at least 1")
    return int(text)
