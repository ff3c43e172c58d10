"""Command line of the framework: ``python -m aicf VERB ...``."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable
from typing import Any

import typer

from aicf import commands
from aicf.errors import FrozenError, LaunchError, NotFrozenError, SelectionError
from device import DeviceError, UnavailableError
from device.settings import SettingError, require_own_checkout
from device.toolchain import BuildError

# Exit codes as the workbench's: 1 a check failed, 2 wrong use, 3 not available here.
_EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (SettingError, 2),
    (ValueError, 2),
    (UnavailableError, 3),
    (NotFrozenError, 2),
    (SelectionError, 1),
    (FrozenError, 1),
    (BuildError, 1),
    (LaunchError, 1),
    (DeviceError, 1),
)


def build_app() -> typer.Typer:
    """Return the application: one verb for each module of ``aicf.commands``."""
    app = typer.Typer(
        name="aicf",
        help="What runs on the frozen kernels.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    app.callback()(lambda: None)
    for module in pkgutil.iter_modules(commands.__path__):
        app.command(module.name)(_report_errors(importlib.import_module(f"aicf.commands.{module.name}").run))
    return app


def _report_errors(verb: Callable[..., int]) -> Callable[..., None]:
    @functools.wraps(verb)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            raise typer.Exit(verb(*args, **kwargs))
        except tuple(kind for kind, _ in _EXIT_CODES) as error:
            text = error.args[0] if isinstance(error, LookupError) and error.args else error
            print(f"aicf: {text}", file=sys.stderr)
            raise typer.Exit(next(code for kind, code in _EXIT_CODES if isinstance(error, kind))) from None

    return run


def main() -> None:
    """Run one verb."""
    try:
        require_own_checkout()
    except SettingError as error:
        print(f"aicf: {error}", file=sys.stderr)
        sys.exit(2)
    build_app()()


if __name__ == "__main__":
    main()
