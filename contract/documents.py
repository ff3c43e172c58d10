"""Reading untrusted JSON: returns a value, or raises :class:`DocumentError` with what is wrong, and nothing else."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any

# Half of a character beyond U+FFFF, which no text can hold alone.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# Lists and objects inside each other. Python's own limit differs from version to version, and readers that walk a value recurse.
MAX_DEPTH = 200


class DocumentError(ValueError):
    """A document is not JSON in UTF-8, or holds what has no one meaning: NaN, an infinite number, a key given twice."""


def parse_json(content: str | bytes, *, strict: bool = True) -> Any:
    """Return the value of a JSON document; raises :class:`DocumentError` for all that is not one, however it is broken.

    Not ``strict``, numbers that JSON does not have (``NaN``, ``Infinity``) are read as Python's own ``json`` writes them.
    """
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        rules: dict[str, Any] = {"parse_constant": _refuse_constant, "parse_float": _read_float} if strict else {}
        value = json.loads(text, object_pairs_hook=_make_object, **rules)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        if text.count("[") + text.count("{") > MAX_DEPTH and _is_deep(value):
            raise RecursionError
    except RecursionError:
        raise DocumentError(f"is nested too deeply, in more than {MAX_DEPTH} levels") from None
    except UnicodeError:
        raise DocumentError("is not UTF-8") from None
    except ValueError as error:
        raise DocumentError(f"is not JSON: {error}") from None
    return value


def _is_deep(value: Any) -> bool:
    """Say whether lists and objects lie more than MAX_DEPTH deep in each other; walks level by level, not into them one by one."""
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        within = (box.values() if isinstance(box, dict) else box for box in level)
        level = [each for values in within for each in values if isinstance(each, (dict, list))]
    return bool(level)


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(n for n in names if names.count(n) > 1)!r} is given twice")
    return made


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _read_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def read_plain_file(path: Path) -> bytes:
    """Return a file's content; raises OSError, also for what is not a plain file: a symbolic link, a pipe, a device."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path} is not a plain file")
        return file.read()
