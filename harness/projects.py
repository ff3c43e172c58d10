"""Writing a user's project: what makes a folder a project, the headers that its ops share, and a first op with its test."""

from __future__ import annotations

import filecmp
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path

from contract.files import write_atomically
from device.settings import PARTS_DIR
from harness.build.store import full_disk_as_error
from harness.errors import UseError
from harness.scaffold import KindName, check_op_name, create_op, name_packages, open_templates

_TEMPLATES = Path(__file__).parent / "templates" / "project"
# A project has these headers of its own: its kernels are sealed with them, and compile as they did when the workbench is a newer one.
_SHARED = Path("ops", "common")
_FILES = {"Makefile": "Makefile", "conftest.py": "conftest.py", ".gitignore": "gitignore"}


def create_project(folder: Path, op: str, kind: KindName) -> tuple[list[Path], list[Path]]:
    """Make ``folder`` a project with a first op; returns the files written and those that were there and stay as they are.

    A ``pyproject.toml`` that is there keeps its text, and ``[tool.aicf]`` goes behind it. Raises :class:`UseError` where the folder is a
    project already, or its ``pyproject.toml`` cannot be read, and :class:`~harness.spec.SpecError` for a name that cannot be an op's.
    """
    check_op_name(op)
    settings = _write_settings(folder)
    texts = {name: open_templates(_TEMPLATES).get_template(f"{template}.template") for name, template in _FILES.items()}
    written, kept = [folder / "pyproject.toml"], []
    with full_disk_as_error(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, template in texts.items():
            path = folder / name
            if path.exists():
                kept.append(path)
                continue
            path.write_text(template.render(name_packages() | {"op": op}))
            written.append(path)
        if not (folder / _SHARED).exists():
            update_shared(folder)
            written.append(folder / _SHARED)
        if not (folder / "ops" / op).exists():
            written.append(create_op(op, kind, folder / "ops"))
        # Last: only now is the folder a project.
        write_atomically(folder / "pyproject.toml", settings)
    return written, kept


def update_shared(folder: Path) -> list[str]:
    """Make the project's copy of the shared headers that of this workbench; returns the names of those that changed or are new.

    Headers of the project's own, which the workbench does not have, stay.
    """
    source, target = PARTS_DIR / _SHARED, folder / _SHARED
    target.mkdir(parents=True, exist_ok=True)
    changed = []
    for path in sorted(source.iterdir()):
        if not path.is_file() or ((target / path.name).is_file() and filecmp.cmp(path, target / path.name, shallow=False)):
            continue
        shutil.copyfile(path, target / path.name)
        changed.append(path.name)
    return changed


def _write_settings(folder: Path) -> str:
    """Return the text of the ``pyproject.toml`` to be."""
    path = folder / "pyproject.toml"
    templates = open_templates(_TEMPLATES)
    text, tool = "", {}
    if path.is_file():
        text = path.read_text(encoding="utf-8")
        try:
            tool = tomllib.loads(text).get("tool", {})
        except ValueError as error:
            raise UseError(f"{path} is not TOML ({error}); fix it first") from error
    if "aicf" in tool:
        raise UseError(f"{folder} is a project already: its pyproject.toml has [tool.aicf]; `aicf init --update` renews ops/common")
    parts = [text.rstrip("\n") + "\n\n" if text else "", templates.get_template("settings.toml.template").render()]
    if not _has_pytest(tool):
        parts.append(templates.get_template("pytest.toml.template").render())
    return "".join(parts)


def _has_pytest(tool: Mapping[str, object]) -> bool:
    return "pytest" in tool
