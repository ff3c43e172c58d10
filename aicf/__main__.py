"""The command line: ``aicf VERB ...``, in a checkout ``python -m aicf VERB ...``. It has the framework's verbs and the workbench's."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

# Packages of verbs, a module each. The workbench's is named and not imported: the framework knows nothing of it, and may be alone.
_FRAMEWORK, _WORKBENCH = "aicf.commands", "harness.commands"
_NOT_VERBS = frozenset({"options"})


@dataclass(frozen=True)
class Verb:
    """A verb: the package that has it, and the file whose docstring is its help."""

    name: str
    package: str
    path: Path

    def read_help(self) -> str:
        """Return the help text without importing the verb."""
        return ast.get_docstring(ast.parse(self.path.read_text(encoding="utf-8"))) or ""

    def load(self) -> Callable[..., None]:
        """Import the verb; returns what runs it and ends the program with its exit code."""
        try:
            run = importlib.import_module(f"{self.package}.{self.name}").run
            if self.package == _WORKBENCH:
                report: Callable[..., Callable[..., None]] = importlib.import_module(
                    f"{_WORKBENCH.rpartition('.')[0]}.__main__"
                ).report_errors
                return report(run, program="aicf")
        except ModuleNotFoundError as error:
            if self.package != _WORKBENCH or error.name is None or error.name.split(".")[0] in (__name__.split(".")[0], "harness"):
                raise
            print(f"aicf: not available here: {self.name} needs {error.name}; pip install 'aicf[workbench]' brings it", file=sys.stderr)
            raise SystemExit(3) from None
        return report_errors(run)


def list_verbs() -> list[Verb]:
    """Return all verbs, by name."""
    found = []
    for package in (_FRAMEWORK, _WORKBENCH):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            names = (m.name for m in pkgutil.iter_modules([folder]) if m.name not in _NOT_VERBS)
            found += [Verb(name, package, Path(folder) / f"{name}.py") for name in names]
    return sorted(found, key=lambda verb: verb.name)


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """Return the application. Only the verbs that ``arguments`` name are imported; the others have their help text alone."""
    app = typer.Typer(
        name="aicf",
        help="Write, prove and measure CUDA kernels, freeze the best, and run networks on what is frozen.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    app.callback(invoke_without_command=True)(_take_options)
    for verb in list_verbs():
        app.command(verb.name, help=verb.read_help())(verb.load() if verb.name in arguments else lambda: None)
    return app


def _take_options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, help="print release, commit, compilers, emulator build and frozen format"),
    ] = False,
) -> None:
    if version:
        from aicf.version import describe_version

        print(describe_version())
        raise typer.Exit(0)


def report_errors(verb: Callable[..., int]) -> Callable[..., None]:
    """Wrap a verb of the framework so that it ends the program with its exit code, and errors become one message and a code."""
    from aicf.errors import FrozenError, LaunchError, NotFrozenError, SelectionError
    from device import DeviceError, UnavailableError
    from device.settings import SettingError
    from device.toolchain import BuildError

    # As the workbench's: 1 a check failed, 2 wrong use, 3 not available here.
    codes: tuple[tuple[type[BaseException], int], ...] = (
        *((SettingError, 2), (ValueError, 2), (UnavailableError, 3), (NotFrozenError, 2), (SelectionError, 1)),
        *((FrozenError, 1), (BuildError, 1), (LaunchError, 1), (DeviceError, 1)),
    )

    @functools.wraps(verb)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            raise typer.Exit(verb(*args, **kwargs))
        except tuple(kind for kind, _ in codes) as error:
            text = error.args[0] if isinstance(error, LookupError) and error.args else error
            print(f"aicf: {text}", file=sys.stderr)
            raise typer.Exit(next(code for kind, code in codes if isinstance(error, kind))) from None

    return run


def main() -> None:
    """Run one verb."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] not in ("-h", "--help"):
        from device.settings import SettingError, require_own_checkout

        try:
            require_own_checkout()
        except SettingError as error:
            print(f"aicf: {error}", file=sys.stderr)
            sys.exit(2)
    build_app(arguments)()


if __name__ == "__main__":
    main()
