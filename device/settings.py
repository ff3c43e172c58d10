"""Every environment variable of the project, read only here.

``python -m harness doctor`` lists :data:`VARIABLES` with the values in force.
"""

from __future__ import annotations

import difflib
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

PREFIX = "AICF_"
# The emulator's library reads these itself, so that they also work where there is no Python: one variable an option of aicf_emulator.h.
EMULATOR_PREFIX = "AICF_EMULATED_"
EMULATOR_OPTIONS = (
    *("checks", "counters", "devices", "error_exitcode", "given", "host_accesses", "instruction_limit", "l1_bytes", "leak_check", "level"),
    *("loop_limit", "max_reports", "memory_bytes", "mode", "print_limit", "print_reports", "read_only", "report_file", "sample_blocks"),
    *("sample_seed", "schedule", "seed", "summary", "summary_file", "suppressions", "target", "warp_quantum", "workers", "zero_memory"),
)
DEVICES = ("auto", "cuda", "emulated")
TARGETS = ("h200", "h100", "a100")
LIBRARIES = ("on", "off")


class SettingError(ValueError):
    """An environment variable, or the option that stands for it, has a value that cannot be used."""


class NoProjectError(SettingError):
    """What was asked for belongs to a project, and the working directory lies in none."""


@dataclass(frozen=True)
class Variable:
    """One environment variable: its name, its default in words, and what it does."""

    name: str
    default: str
    meaning: str


VARIABLES: tuple[Variable, ...] = (
    Variable("AICF_DEVICE", "auto", f"which device to use: {', '.join(DEVICES)} (auto: cuda where a GPU and CuPy are found)"),
    Variable("AICF_EMULATOR_LIBRARY", "the installed one", "path of the emulator's libcudart.so.13"),
    Variable("AICF_CACHE_DIR", "<project>/.aicf/cache; outside of a project ~/.cache/aicf", "where built variants and bindings are kept"),
    Variable("AICF_RECORDS_URL", "sqlite:///<project>/.aicf/records.sqlite", "database of runs, as an SQLAlchemy URL"),
    Variable("AICF_TARGET", "h200", f"GPU that kernels are built and modelled for: {', '.join(TARGETS)}"),
    Variable(
        "AICF_LIBRARIES", "on", "whether an installed library (cuBLASLt) may stand for a frozen kernel where it was measured to be faster"
    ),
    Variable("AICF_JOBS", "the cores this process may use", "compilations at the same time"),
    Variable(
        f"{EMULATOR_PREFIX}*", "none", "options of the emulator, such as AICF_EMULATED_SCHEDULE=random; see device/emulator/README.md"
    ),
)


@dataclass(frozen=True)
class Settings:
    """The values in force. Paths are absolute; ``emulator_library`` is None where the installed library is to be used.

    ``libraries``: whether libraries of others may stand for frozen kernels.
    """

    device: str
    emulator_library: Path | None
    cache_dir: Path
    records_url: str
    target: str
    jobs: int
    libraries: bool


# The folder that this package lies in: of a checkout, or `aicf` in site-packages, where the same parts lie side by side.
PARTS_DIR = Path(__file__).resolve().parents[1]
# What `[tool.aicf]` of a project's pyproject.toml may say: the project's values of settings, which the environment's go before.
PROJECT_KEYS = ("device", "target")


def find_project() -> Path | None:
    """Return the project that the working directory lies in, None where it lies in none.

    That is the nearest folder, from the working directory upwards, whose ``pyproject.toml`` has a table ``[tool.aicf]``; else the checkout
    that this package lies in, wherever we stand. Raises :class:`SettingError` for a table that cannot be read.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        if _read_table(folder) is not None:
            return folder
    return PARTS_DIR if _is_checkout(PARTS_DIR) else None


def find_project_root() -> Path:
    """Return the project's folder, which holds ``ops/``; raises :class:`NoProjectError` outside of any project."""
    project = find_project()
    if project is None:
        raise NoProjectError(
            f"no project here: neither {Path.cwd()} nor a folder above it has a pyproject.toml with [tool.aicf]; run `aicf init`"
        )
    return project


def _is_checkout(folder: Path) -> bool:
    return (folder / "ops").is_dir() and (folder / "harness").is_dir() and (folder / "pyproject.toml").is_file()


def _read_table(folder: Path) -> Mapping[str, str] | None:
    path = folder / "pyproject.toml"
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError:
        return None
    return _parse_table(path, changed_ns)


@lru_cache(maxsize=64)
def _parse_table(path: Path, changed_ns: int) -> Mapping[str, str] | None:
    """Return ``[tool.aicf]``, None where there is none; ``changed_ns`` tells versions of the file apart."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("aicf")
    except (OSError, ValueError):
        return None  # somebody else's file, perhaps: it is not ours to judge
    if table is None:
        return None
    if not isinstance(table, dict):
        raise SettingError(f"{path}: tool.aicf must be a table")
    for key, value in table.items():
        if key not in PROJECT_KEYS:
            raise SettingError(
                f"{path}: [tool.aicf] has no key {key!r}{suggest(key, PROJECT_KEYS)}; it may have: {', '.join(PROJECT_KEYS)}"
            )
        parse_choice(f"{path}: [tool.aicf] {key}", value, DEVICES if key == "device" else TARGETS)
    return table


def require_own_checkout() -> None:
    """Raise :class:`SettingError` where the working directory lies in another checkout than the one whose code runs.

    An environment belongs to the checkout that it was made in: started in a second clone, its Python still imports the first one.
    """
    here = Path.cwd().resolve()
    found = next((folder for folder in (here, *here.parents) if _is_checkout(folder)), PARTS_DIR)
    if found != PARTS_DIR:
        raise SettingError(
            f"the working directory is in {found}, but this Python ({sys.executable}) runs the project of {PARTS_DIR}: "
            f"run {found}/.venv/bin/python, which `make env` makes there, or go elsewhere"
        )


def require_no_checkout() -> None:
    """Raise :class:`SettingError` where the working directory lies in a checkout of AICF, which is no project of its user's own."""
    here = Path.cwd().resolve()
    if found := next((folder for folder in (here, *here.parents) if _is_checkout(folder)), None):
        raise SettingError(f"{found} is a checkout of AICF, whose ops are found in place; create your project elsewhere")


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
    project = find_project()
    own = (None if project is None else _read_table(project)) or {}
    state, cache = _find_state(project, env)
    library = env.get("AICF_EMULATOR_LIBRARY", "")
    return Settings(
        device=parse_choice("AICF_DEVICE", env.get("AICF_DEVICE") or own.get("device", "auto"), DEVICES),
        emulator_library=Path(library).expanduser().absolute() if library else None,
        cache_dir=Path(env.get("AICF_CACHE_DIR") or cache).expanduser().absolute(),
        records_url=env.get("AICF_RECORDS_URL") or f"sqlite:///{state / 'records.sqlite'}",
        target=parse_choice("AICF_TARGET", env.get("AICF_TARGET") or own.get("target", "h200"), TARGETS),
        jobs=_parse_jobs(env.get("AICF_JOBS", "")),
        libraries=parse_choice("AICF_LIBRARIES", env.get("AICF_LIBRARIES") or "on", LIBRARIES) == "on",
    )


def _find_state(project: Path | None, env: Mapping[str, str]) -> tuple[Path, Path]:
    """Return the folders of records and of the cache: a project's own, or the user's."""
    if project is not None:
        return project / ".aicf", project / ".aicf" / "cache"
    home = Path(env.get("HOME") or Path.home())
    state = Path(env.get("XDG_STATE_HOME") or home / ".local" / "state")
    return state / "aicf", Path(env.get("XDG_CACHE_HOME") or home / ".cache") / "aicf"


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
