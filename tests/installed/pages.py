"""The pages of docs/ as programs: their commands and files, and a page as one script that does what the page says."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^```(\S+)(?: title=\"(\S+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ACTIONS = frozenset({"frozen", "survey"})  # verbs whose first word says what they do
_PROGRAMS = (("python", "-m", "harness"), ("python", "-m", "aicf"), ("aicf",))
_DEVICE = (("python", "-m", "device"), ("python", "-m", "aicf.device"))


@dataclass(frozen=True)
class Shape:
    """What a command does, whatever it does it with: a verb, or a program, and the options that it is given."""

    verb: str
    options: frozenset[str] = frozenset()
    is_ours: bool = False

    def __str__(self) -> str:
        return " ".join([self.verb, *sorted(self.options)])


@dataclass(frozen=True)
class Section:
    """Part of a page: from a heading to the next of its level."""

    page: Path
    heading: str

    def write(self, path: Path) -> Path:
        """Write the part as a page of its own, and return its path."""
        (text,) = re.findall(rf"^## {re.escape(self.heading)}$.*?(?=^## |\Z)", self.page.read_text(), re.MULTILINE | re.DOTALL)
        path.write_text(text)
        return path


def list_blocks(page: Path) -> list[tuple[str, str, str]]:
    """Return language, title and text of each fenced block."""
    return [(match[1], match[2] or "", match[3]) for match in _BLOCK.finditer(page.read_text())]


def list_commands(page: Path) -> list[str]:
    """Return the commands of a page's ``sh`` blocks, one a line."""
    lines = [line for language, _, text in list_blocks(page) if language == "sh" for line in text.splitlines()]
    return [line for line in lines if shlex.split(line, comments=True)]


def find_shape(command: str) -> Shape:
    """Return a command's shape; ``make op=NAME VERB`` has that of the verb."""
    words = shlex.split(command, comments=True)
    while re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    end = next((i for i, word in enumerate(words) if word in ("||", "&&", "|", ">")), len(words))
    words = words[:end]
    if words[0] == "make":
        given = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        (verb,) = (word for word in words[1:] if "=" not in word)
        # The Makefile hands a variant to `show` as a word.
        named = [f"--{name}" for name in given if name not in ("op", "args") and (verb, name) != ("show", "variant")]
        return _shape_verb([verb, *named, *shlex.split(given.get("args", ""))])
    for program in _PROGRAMS:
        if tuple(words[: len(program)]) == program:
            return _shape_verb(words[len(program) :])
    for program in _DEVICE:
        if tuple(words[: len(program)]) == program:
            return Shape(f"device {words[len(program)]}", _list_options(words))
    return Shape(" ".join(words[: 2 if words[0] in ("git", "python") else 1]), _list_options(words))


def _shape_verb(words: list[str]) -> Shape:
    verb = " ".join(words[:2]) if words[0] in _ACTIONS else words[0]
    return Shape(verb, _list_options(words), is_ours=verb != "test")


def _list_options(words: list[str]) -> frozenset[str]:
    return frozenset(word.split("=")[0] for word in words if word.startswith("--"))


def write_script(page: Path, skip: frozenset[str] = frozenset()) -> str:
    """Return a page as a script for bash, which ends at the first command that fails: files are written, commands and Python run."""
    parts = ["set -euo pipefail", "PAGES=$(mktemp -d)"]  # scripts lie apart: a project's tree stays as its page says
    for number, (language, title, text) in enumerate(list_blocks(page)):
        if title:
            parts.append(f"cat > {title} <<'END-OF-FILE'\n{text}END-OF-FILE")
        elif language == "python":
            parts.append(f"cat > $PAGES/{number}.py <<'END-OF-FILE'\n{text}END-OF-FILE\npython $PAGES/{number}.py")
        elif language == "sh":
            parts.append("\n".join(line for line in text.splitlines() if line not in skip))
    return "\n".join(parts) + "\n"
