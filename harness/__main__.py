"""Command line of the workbench: ``python -m harness VERB [OP] [options]``."""

from __future__ import annotations

import ast
import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from device import DeviceError, UnavailableError
from device.settings import SettingError, require_own_checkout
from harness import commands
from harness.errors import BuildError, ExitCode, FrozenError, RecordError, ToolError, UseError

_NOT_VERBS = frozenset({"options"})
_EXIT_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (UseError, ExitCode.WRONG_USE),
    (SettingError, ExitCode.WRONG_USE),
    (UnavailableError, ExitCode.NOT_AVAILABLE),
    (BuildError, ExitCode.CHECK_FAILED),
    (RecordError, ExitCode.CHECK_FAILED),
    (FrozenError, ExitCode.CHECK_FAILED),
    (DeviceError, ExitCode.CHECK_FAILED),
    (ToolError, ExitCode.CHECK_FAILED),
)


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """Return the application: one verb for each module of ``harness.commands``.

    A verb's module imports all that the verb needs. So only verbs that ``arguments`` name are imported; the others, which cannot be called,
    have their help text alone.
    """
    app = typer.Typer(
        name="harness",
        help="Build, verify and measure the CUDA kernels of an op, on a GPU or on the emulated device.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    for module in pkgutil.iter_modules(commands.__path__):
        if module.name in arguments and module.name not in _NOT_VERBS:
            verb = importlib.import_module(f"{commands.__name__}.{module.name}")
            app.command(module.name, help=verb.__doc__)(report_errors(verb.run))
        elif module.name not in _NOT_VERBS:
            app.command(module.name, help=read_help(module.name))(lambda: None)
    return app


def read_help(name: str) -> str:
    """Return the help text of a verb, which is its module's docstring, without importing it."""
    text = (Path(commands.__path__[0]) / f"{name}.py").read_text()
    # To parse all of every verb takes as long as a quarter of what a verb imports.
    begin, quotes, rest = text.partition('"""')
    docstring, end, _ = rest.partition('"""')
    return ast.get_docstring(ast.parse(begin + quotes + docstring + end)) or ""


def report_errors(verb: Callable[..., ExitCode], program: str = "harness") -> Callable[..., None]:
    """Wrap a verb so that it ends the program with its exit code, and our errors become one message, by ``program``, and a code."""

    @functools.wraps(verb)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            raise typer.Exit(int(verb(*args, **kwargs)))
        except KeyboardInterrupt:
            print(f"{program}: interrupted; what was finished is kept", file=sys.stderr)
            raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
        except tuple(kind for kind, _ in _EXIT_CODES) as error:
            code = next(code for kind, code in _EXIT_CODES if isinstance(error, kind))
            reason = "not available here: " if code is ExitCode.NOT_AVAILABLE else ""
            print(f"{program}: {reason}{error}", file=sys.stderr)
            raise typer.Exit(int(code)) from None

    return run


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one verb; ends with SystemExit whose code is an :class:`harness.errors.ExitCode`."""
    try:
        require_own_checkout()
    except SettingError as error:
        print(f"harness: {error}", file=sys.stderr)
        raise SystemExit(int(ExitCode.WRONG_USE)) from None
    given = list(sys.argv[1:] if arguments is None else arguments)
    build_app(given)(args=given)


if __name__ == "__main__":
    main()
