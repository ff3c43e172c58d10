"""What the pages of docs/ need to become a site: links to files that are not part of it name the file instead."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page whose links that lead out of docs/ are words: the text, and the file's path in the repository."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))
    return _LINK.sub(lambda link: _name_file(link, folder), markdown)


def _name_file(link: re.Match[str], folder: str) -> str:
    text, target = link[1], link[2].partition("#")[0]
    path = posixpath.normpath(posixpath.join(folder, target))
    if not target or ":" in target or path.startswith("docs/"):
        return link[0]
    return f"`{path}`" if text.strip("`") in (path, posixpath.basename(path)) else f"{text} (`{path}`)"
