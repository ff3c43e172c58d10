"""Tables on a terminal of any width: as tables if there is room, otherwise row by row, so that no column is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import render
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

# A column that wraps is still read at this width.
_LEAST = 20
_GAP = 2


def print_tables(tables: Sequence[Table], console: Console | None = None) -> None:
    """Print tables to stdout (or ``console``): in full where it is no terminal, which has no width; by rows where it is too narrow."""
    console = console or Console(highlight=False)
    for table in tables:
        if not console.is_terminal:
            needed = console.measure(table, options=console.options.update(width=1000)).maximum
            Console(file=console.file, width=max(needed, console.width)).print(table)
        elif _find_least_width(console, table) <= console.width:
            console.print(table)
        else:
            _print_rows(console, table)


def _find_least_width(console: Console, table: Table) -> int:
    """Return the width below which rich would leave words out."""
    wide = console.options.update(width=1000)
    widths = []
    for column in table.columns:
        sizes = [console.measure(cell, options=wide) for cell in (column.header, *column.cells)]
        full, longest_word = max(s.maximum for s in sizes), max(s.minimum for s in sizes)
        widths.append(full if column.no_wrap or column.justify == "right" else max(min(full, _LEAST), longest_word))
    # A gap behind each column, and the table's left edge.
    return sum(widths) + _GAP * len(widths) + 1


def _print_rows(console: Console, table: Table) -> None:
    """Print a title, then each row: what names it, and below that what else it says, numbers by their columns' names."""
    if table.title:
        console.print(_read(table.title), style="italic")
    columns = table.columns
    num_names = max(1, next((i for i, c in enumerate(columns) if not c.no_wrap or c.justify == "right"), len(columns)))
    for cells in zip(*(column.cells for column in columns), strict=True):
        texts = [_read(cell) for cell in cells]
        console.print(Text("  ").join(texts[:num_names]), style="bold", soft_wrap=True)
        said = zip(columns[num_names:], texts[num_names:], strict=True)
        for line in _pack([_name(column, text) for column, text in said if text.plain.strip()], console.width - _GAP):
            console.print(Padding(line, (0, 0, 0, _GAP)))


def _name(column: Column, text: Text) -> Text:
    # Numbers say nothing without a name; words do.
    return Text.assemble((f"{_read(column.header).plain} ", "dim"), text) if column.justify == "right" else text


def _pack(facts: Sequence[Text], width: int) -> Iterator[Text]:
    """Yield lines of whole facts; one that is longer than a line is wrapped when it is printed."""
    line = Text()
    for fact in facts:
        if line.plain and line.cell_len + _GAP + fact.cell_len > width:
            yield line
            line = Text()
        line = Text.assemble(line, " " * _GAP, fact) if line.plain else fact
    if line.plain:
        yield line


def _read(cell: object) -> Text:
    return cell if isinstance(cell, Text) else render(str(cell))
