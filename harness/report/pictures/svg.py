"""Figures as small SVG, inside a page or alone: colours by name, paths with few digits, styles written once per page.

A path is kept in tenths of a pixel, and in steps from point to point: a page shows no figure larger than it was made.
"""

from __future__ import annotations

import hashlib
import html
import io
import re
from collections.abc import Sequence

from matplotlib.figure import Figure

from harness.report.pictures.theme import LIGHT, PIXELS_PER_INCH, use_style

_NAMES = {value: key for key, value in LIGHT.items()}
_TAG = re.compile(r"<[^>]*>")
_DIGITS = re.compile(r"-?\d+\.\d{2,}")
_STEP = re.compile(r"([MLQCz])([^MLQCz]*)")
# A symbol's outline is a few pixels wide: it keeps hundredths.
_TENTHS, _HUNDREDTHS = 10, 100


def make_svg(figure: Figure, name: str, description: str, classes: Sequence[str] = ()) -> str:
    """Return a figure as an SVG element for a page: colours by name, the page's type, ids that begin with ``name``."""
    width, height = (float(x) * PIXELS_PER_INCH for x in figure.get_size_inches())
    head = (
        f'<svg class="{" ".join(("chart", *classes))}" role="img" aria-label="{html.escape(description)}" '
        f'viewBox="0 0 {width:g} {height:g}" style="max-width: {width:g}px">'
    )
    text = re.sub(r"font: ([\w ]*?)(\d+(?:\.\d+)?)px [^;\"]*", r"font: \1\2px var(--sans)", _draw(figure, name))
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    return head + re.sub(r"#[0-9a-f]{6}\b", lambda m: f"var(--{_NAMES[m[0]]})" if m[0] in _NAMES else m[0], text)


class Drawing:
    """A figure as SVG that stands for itself, as in a notebook: on a light ground, whatever colours are around it."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def to_svg(self) -> str:
        """Return a document of its own; several may stand in one page."""
        width, height = (float(x) * PIXELS_PER_INCH for x in self.figure.get_size_inches())
        text = _draw(self.figure, "drawing")
        name = hashlib.sha256(text.encode()).hexdigest()[:12]
        text = re.sub(r'(id="|url\(#|href="#)drawing', rf"\g<1>d{name}-", text)
        size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
        ground = f'<rect width="100%" height="100%" fill="{LIGHT["surface"]}"/>'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{ground}{text}'

    def _repr_svg_(self) -> str:
        return self.to_svg()


def _draw(figure: Figure, name: str) -> str:
    """Return what is inside a figure's SVG, and its end tag, in few bytes; ids begin with ``name``."""
    out = io.StringIO()
    with use_style():
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    text = re.sub(r"<svg\b[^>]*>", "", text[text.index("<svg") :], count=1)
    text = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r'<path d="[^"]*" style="fill: none"/>', "", text)  # grounds that are not painted
    text = re.sub(r">\s+<", "><", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)).replace("xlink:href", "href")
    text = _name_parts(text, name)
    text = re.sub(r"<defs>.*?</defs>", lambda m: _shorten_paths(m[0], _HUNDREDTHS), text, flags=re.DOTALL)
    text = _shorten_paths(text, _TENTHS)
    text = re.sub(r' transform="rotate\(-0 [^"]*"', "", text)
    text = _TAG.sub(lambda m: _DIGITS.sub(_round, m[0]), text)  # what stands between tags is read, not drawn
    return _drop_bare_groups(text)


def _round(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")


def _name_parts(text: str, name: str) -> str:
    """Keep the ids that something refers to, under short names that no other figure has."""
    used = dict.fromkeys(re.findall(r'(?:url\(#|href="#)([^")]*)', text))
    short = {part: f"{name}{i}" for i, part in enumerate(used)}
    text = re.sub(r' id="([^"]*)"', lambda m: f' id="{short[m[1]]}"' if m[1] in short else "", text)
    return re.sub(r'(url\(#|href="#)([^")]*)', lambda m: m[1] + short[m[2]], text)


def _drop_bare_groups(text: str) -> str:
    """Leave out groups that say nothing."""
    kept: list[bool] = []

    def visit(tag: re.Match[str]) -> str:
        if tag[0].endswith("/>"):
            return ""
        if tag[0] == "</g>":
            return tag[0] if kept.pop() else ""
        kept.append(tag[0] != "<g>")
        return tag[0] if kept[-1] else ""

    return re.sub(r"<g\b[^>]*>|</g>", visit, text)


def _shorten_paths(text: str, scale: int) -> str:
    # Paths that are short already have no capital L.
    return re.sub(r'(<path\b[^>]*? d=")(M [^"]*)', lambda m: m[1] + shorten_path(m[2], scale), text)


def shorten_path(path: str, scale: int = _TENTHS) -> str:
    """Return a path of absolute M, L, Q, C and z in steps from point to point, with places rounded to ``1 / scale`` of a pixel.

    Steps are between rounded places, so that errors do not add up.
    """
    x = y = first_x = first_y = 0
    parts: list[str] = []
    last = ""
    for command, numbers in _STEP.findall(path):
        if command == "z":
            parts.append("z")
            x, y, last = first_x, first_y, "z"
            continue
        places = [round(float(n) * scale) for n in numbers.split()]
        # Every point of a curve is counted from where the curve begins.
        steps = [(places[i] - x, places[i + 1] - y) for i in range(0, len(places), 2)]
        dx, dy = steps[-1]
        if command == "L" and (dx == 0 or dy == 0):
            letter, values = ("v", [dy]) if dx == 0 else ("h", [dx])
        else:
            letter, values = command.lower(), [v for step in steps for v in step]
        parts.append(_join(letter if letter != last or letter == "m" else "", values, scale))
        x, y, last = x + dx, y + dy, letter
        if command == "M":
            first_x, first_y = x, y
    return "".join(parts)


def _join(letter: str, values: Sequence[int], scale: int) -> str:
    """Write numbers with as few signs as they can be told apart by; without its letter a step begins with a space or a minus."""
    text = letter
    for i, value in enumerate(values):
        number = f"{value / scale:.2f}".rstrip("0").rstrip(".")
        text += number if (i == 0 and letter) or number.startswith("-") else f" {number}"
    return text


class Stylesheet:
    """Styles that figures share, each under a short class."""

    def __init__(self) -> None:
        self._classes: dict[str, str] = {}

    def share(self, svg: str) -> str:
        """Return a figure with classes for its styles, but that of the figure itself."""
        head, _, rest = svg.partition(">")
        return f"{head}>" + re.sub(r' style="([^"]*)"', lambda m: f' class="{self._name(m[1])}"', rest)

    def _name(self, style: str) -> str:
        return self._classes.setdefault(style, f"s{len(self._classes)}")

    def to_css(self) -> str:
        """Return the rules."""
        return "\n".join(f".{name}{{{style}}}" for style, name in self._classes.items())
