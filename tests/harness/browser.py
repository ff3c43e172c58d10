"""A real Chromium that looks at a page: what it complains of, what does not fit, what lies over what."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# A browser in a container has neither a sandbox nor a network.
_ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--force-color-profile=srgb"),
)
# Pixels: rounded boxes of neighbouring texts may share an edge.
_TOUCH = 1.5
_SMALLEST_TEXT_PX = 9.0

_LOOK = """([touch, smallest]) => {
  document.querySelectorAll("details").forEach(each => { each.open = true; });
  const found = [], size = document.documentElement;
  if (size.scrollWidth > window.innerWidth) found.push(`the page is ${size.scrollWidth} px wide in ${window.innerWidth} px`);
  const isShown = each => { const box = each.getBoundingClientRect(); return box.width > 20 && box.height > 20; };
  document.querySelectorAll("figure").forEach(figure => {
    const title = figure.querySelector("figcaption").textContent.slice(0, 60);
    const shown = [...figure.querySelectorAll("svg.chart")].filter(isShown);
    if (shown.length !== 1) { found.push(`${title}: ${shown.length} drawings are shown`); return; }
    const frame = shown[0].getBoundingClientRect(), scale = frame.width / shown[0].viewBox.baseVal.width;
    const texts = [...shown[0].querySelectorAll("text")].filter(each => each.textContent.trim());
    const boxes = texts.map(each => each.getBoundingClientRect());
    texts.forEach((text, i) => {
      const a = boxes[i], px = parseFloat(getComputedStyle(text).fontSize) * scale;
      if (px < smallest) found.push(`${title}: "${text.textContent}" is ${px.toFixed(1)} px high`);
      if (a.left < frame.left - 3 || a.right > frame.right + 3 || a.top < frame.top - 3 || a.bottom > frame.bottom + 3)
        found.push(`${title}: "${text.textContent}" is outside`);
      for (let j = 0; j < i; j++) {
        const b = boxes[j];
        const x = Math.min(a.right, b.right) - Math.max(a.left, b.left), y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (x > touch && y > 3 + touch) found.push(`${title}: "${text.textContent}" lies over "${texts[j].textContent}"`);
      }
    });
  });
  return { found, figures: document.querySelectorAll("figure").length };
}"""


@dataclass(frozen=True)
class Look:
    """What was seen: ``complaints`` (of the console, of the layout), figures, requests that left the page, and a picture of it."""

    complaints: list[str]
    num_figures: int
    requests: list[str]
    picture: bytes


def find_chromium() -> str:
    """Return the browser's path; skips the test where there is none, but on continuous integration, which installs it."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        missing = "Chromium is not installed here (Debian, Ubuntu: apt-get install chromium)"
        if os.environ.get("CI"):
            pytest.fail(f"{missing}, and .ci/run must have installed it")
        pytest.skip(missing)
    return found


@contextmanager
def open_browser() -> Iterator[Any]:
    """Start Chromium without a window."""
    path = find_chromium()
    if find_spec("playwright") is None:
        pytest.skip("playwright is not installed here: pip install playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        yield browser
        browser.close()


def look_at(browser: Any, path: Path, width_px: int, scheme: str) -> Look:
    """Open a page in a window of some width with light or dark colours, open all of its parts, and look at it."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": width_px, "height": 900})
    try:
        page = context.new_page()
        complaints: list[str] = []
        requests: list[str] = []
        page.on("console", lambda message: complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        seen = page.evaluate(_LOOK, [_TOUCH, _SMALLEST_TEXT_PX])
        return Look(complaints + seen["found"], seen["figures"], requests[1:], page.screenshot(full_page=True))
    finally:
        context.close()
