"""Progress in a notebook: one line with a bar, updated in place and removed at the end.

Plain HTML, since every front end shows it; widgets are an extension that may be missing.
"""

from __future__ import annotations

import html
import sys
import time
from typing import Any

# A front end redraws no more often.
_EVERY_S = 0.1


def is_notebook() -> bool:
    """Return whether this process is a notebook's kernel; nothing is imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


class NotebookLine:
    """A bar with words before and behind it."""

    def __init__(self, what: str, total: int) -> None:
        from IPython.display import display

        self._what, self._total, self._done, self._shown_s = what, total, 0, time.monotonic()
        self._handle: Any = display(self._render(""), display_id=True)  # type: ignore[no-untyped-call]

    def advance(self, text: str = "") -> None:
        """Say that one more piece is done; ``text`` describes it."""
        self.show(self._done + 1, self._total, text)

    def show(self, done: int, total: int, text: str) -> None:
        """Say that ``done`` of ``total`` pieces are done."""
        self._done, self._total = done, total
        if time.monotonic() - self._shown_s >= _EVERY_S:
            self._shown_s = time.monotonic()
            self._handle.update(self._render(text))

    def close(self) -> None:
        """Take the line away."""
        from IPython.display import HTML

        self._handle.update(HTML(""))  # type: ignore[no-untyped-call]

    def _render(self, text: str) -> Any:
        from IPython.display import HTML

        bar = f'<progress value="{self._done}" max="{max(self._total, 1)}"></progress>'
        words = f"<code>{html.escape(self._what)}</code> {bar} {self._done}/{self._total} <code>{html.escape(text)}</code>"
        return HTML(words)  # type: ignore[no-untyped-call]
