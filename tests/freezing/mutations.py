"""Documents that were broken on purpose: values, keys and bytes of valid ones exchanged for what no writer would write."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import strategies as st

# A file that no reader of the set has business with; every text that looks like a path leads there.
PRECIOUS = "precious-file-outside"
TEXTS = [
    "",
    " ",
    "a\n",
    "class",
    "system",
    "None",
    f"../{PRECIOUS}",
    f"../../{PRECIOUS}",
    f"sources/../../../{PRECIOUS}",
    f"/tmp/{PRECIOUS}",
    f"evidence/../../{PRECIOUS}",
    f"x=open('/tmp/{PRECIOUS}', 'w')",
    f"x): open('/tmp/{PRECIOUS}', 'w')\n    def f(x",
    f"-include/tmp/{PRECIOUS}",
    f"-ccbin=/tmp/{PRECIOUS}",
    "a; b",
    '"',
    "${HOME}",
    "\u202e",
    "\x1b[2J",
    "x" * 5000,
]
NUMBERS: list[Any] = [0, -1, 1, 2, 2**31, 2**63, 2**64, 10**30, 10**400, -(10**400), 0.5, -0.0, 1e300, 1e308, True, False, None]
OTHERS: list[Any] = [[], {}, [[]], {"a": {}}, [None], {"": ""}, [1, [2, [3]]]]
VALUES = st.one_of(st.sampled_from(TEXTS), st.sampled_from(NUMBERS), st.sampled_from(OTHERS).map(copy.deepcopy), st.text(max_size=8))


def list_places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the path of every value of a document, the document's own among them."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from list_places(each, (*path, key))


def _find(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


@st.composite
def mutate_value(draw: st.DrawFn, document: Any) -> Any:
    """Exchange a value, or take, add, rename or repeat one; once, or twice over."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.sampled_from((1, 1, 2)))):
        path = draw(st.sampled_from([p for p in list_places(document) if p] or [()]))
        if not path:
            return draw(VALUES)
        place, key = _find(document, path[:-1]), path[-1]
        what = draw(st.sampled_from(("exchange", "exchange", "exchange", "take", "rename", "repeat", "swap")))
        if what == "exchange":
            place[key] = draw(VALUES)
        elif what == "take":
            del place[key]
        elif what == "rename" and isinstance(place, dict):
            place[draw(st.sampled_from(TEXTS))] = place.pop(key)
        elif what == "repeat" and isinstance(place, list):
            place.append(copy.deepcopy(place[key]))
        elif what == "swap":
            place[key] = copy.deepcopy(_find(document, draw(st.sampled_from([p for p in list_places(document) if p] or [()]))))
    return document


BROKEN_BYTES = [
    b"",
    b"\n",
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"null",
    b"NaN",
    b"[" * 100000,
    b"[" * 900 + b"]" * 900,
    b'{"a":' * 5000 + b"1" + b"}" * 5000,
    b"9" * 10000,
    b"1e999",
    b'"\\ud800"',
    b'{"kind":"op","kind":"entry"}',
    b"\x00" * 100,
]


@st.composite
def mutate_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Truncate, or put something in the place of some bytes."""
    start = draw(st.integers(0, max(len(content) - 1, 0)))
    what = draw(st.sampled_from(("truncate", "insert", "replace")))
    if what == "truncate":
        return content[:start]
    end = start + (draw(st.integers(1, 40)) if what == "replace" else 0)
    return content[:start] + draw(st.sampled_from(BROKEN_BYTES) | st.binary(max_size=8)) + content[end:]


def break_document(content: bytes) -> st.SearchStrategy[bytes]:
    """Return a document broken in its values or in its bytes."""
    value = json.loads(content)
    in_values = mutate_value(value).map(lambda v: json.dumps(v, sort_keys=True, separators=(",", ":")).encode())
    return st.one_of(in_values, in_values, mutate_bytes(content), st.sampled_from(BROKEN_BYTES))


class Watch:
    """Whether a file of that name is opened, removed, renamed or run in this process while it is watched."""

    _watching: ClassVar[list[Watch]] = []
    _is_installed = False

    def __init__(self, name: str = PRECIOUS) -> None:
        self.name = name
        self.seen: list[str] = []

    def __enter__(self) -> Watch:
        if not Watch._is_installed:
            sys.addaudithook(_notice)
            Watch._is_installed = True
        Watch._watching.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Watch._watching.remove(self)


def _notice(event: str, arguments: tuple[Any, ...]) -> None:
    for watch in Watch._watching:
        if event in ("open", "os.remove", "os.rename", "subprocess.Popen", "os.system", "exec", "compile") and any(
            isinstance(a, (str, bytes, Path)) and watch.name in str(a) for a in arguments
        ):
            watch.seen.append(f"{event} {arguments}")
