"""Tables on terminals of any width: nothing is lost on a narrow one, and a pipe gets the whole table."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from harness.terminal.tables import print_tables

LONG = "pipelined/bm64_bn128_bk8_wm32_wn64_tm8_tn8_stages4_group8_minblocks4"


def make_table(rows: list[tuple[str, ...]]) -> Table:
    table = Table(title="op: run 1", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("record", no_wrap=True)
    table.add_column("variant", no_wrap=True)
    table.add_column("problem")
    table.add_column("cold us", justify="right", no_wrap=True)
    table.add_column("reason")
    for row in rows:
        table.add_row(*row)
    return table


def show(table: Table, width: int, *, is_terminal: bool = True) -> str:
    out = io.StringIO()
    print_tables([table], Console(file=out, width=width, force_terminal=is_terminal, color_system=None, highlight=False))
    return out.getvalue()


ROW = ("12", LONG, "M4096_N4096_K4096-act=relu", "167.6", "[green]it is right[/]")


@pytest.mark.parametrize("width", [30, 80, 120, 300])
def test_every_cell_is_read_at_every_width(width: int) -> None:
    text = show(make_table([ROW, ("13", "naive", "p", "", "")]), width)
    joined = re.sub(r"\s+", "", text)
    for cell in ("12", LONG, "M4096_N4096_K4096-act=relu", "167.6", "itisright", "naive"):
        assert cell in joined, text
    assert "[green]" not in text


def test_a_narrow_terminal_has_rows_with_named_numbers_and_a_wide_one_a_table() -> None:
    narrow, wide = (show(make_table([ROW]), width) for width in (80, 300))
    assert f"12  {LONG}" in narrow and "cold us 167.6" in narrow and "reason" not in narrow
    assert "cold us" in wide and "reason" in wide and f"12      {LONG}" in wide
    blank = show(make_table([("13", LONG, "", "", "why not")]), 80)
    assert "why not" in blank and "cold us" not in blank, "what is not there is not named"


def test_lines_fit_a_narrow_terminal_and_a_fact_is_not_parted() -> None:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("variant")
    for i in range(12):
        table.add_column(f"figure {i}", justify="right")
    table.add_row("v", *(f"{i}.25 %" for i in range(12)))
    text = show(table, 60)
    assert all(len(line) <= 60 for line in text.splitlines())
    assert all(f"figure {i} {i}.25 %" in text for i in range(12))


def test_a_pipe_gets_the_table_whole() -> None:
    assert f"12      {LONG}" in show(make_table([ROW]), 40, is_terminal=False)


@given(
    st.lists(st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=30), min_size=3, max_size=3),
    st.integers(20, 200),
)
@example(["0", "0" * 13, "0" * 20], 62)
@example(["0", "0" * 30, "0" * 20], 72)
def test_no_letter_is_lost(words: list[str], width: int) -> None:
    text = show(make_table([("1", words[0], words[1], words[2], "")]), width)
    assert all(word in re.sub(r"\s+", "", text) for word in words)
