"""The page of all ops on drawn problems: worst first, each with its roof, from records alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.compare.drawn.record import FROZEN, PEER, Contender, DrawnRow, DrawnRun
from harness.discover import find_op
from harness.report.overview import find_standing, make_overview
from harness.report.pictures.overview import draw_overview
from harness.targets import find_target


def make_row(rows: int, us: float, peer_us: float | None) -> DrawnRow:
    contenders = [Contender("own", FROZEN, "passed", us)]
    if peer_us is not None:
        contenders.append(Contender("torch_eager", PEER, "passed", peer_us))
    name = f"rows{rows}_columns4096"
    return DrawnRow("tall", name, {"rows": rows, "columns": 4096}, {}, {}, "own", "frozen", "own", contenders=tuple(contenders))


def make_run(*rows: DrawnRow) -> DrawnRun:
    environment = {"device_name": "GPU", "driver_version": 1, "toolchain": "nvcc", "target": "h200"}
    return DrawnRun("transpose", 1, len(rows), "2026-11-24T00:00:00", "compare", "commit", "sm_90a", "index", environment, rows=rows)


def test_the_worst_problem_leads_and_shares_are_of_the_roofline() -> None:
    target = find_target("h200")
    roof_us = 2 * 4 * 4096 * 4096 / target.dram_bytes_per_s * 1e6
    run = make_run(make_row(4096, 2 * roof_us, 3 * roof_us), make_row(64, 8.0, 4.0), make_row(128, 8.0, None))
    found = find_standing(find_op("transpose").op, [run], target)
    assert found.list_shares(32e6) == [pytest.approx(0.5)]
    assert found.result.geomean == pytest.approx((1.5 * 0.5) ** 0.5)
    page = make_overview([found], "h200.svg", "a command")
    order = [page.index(f"| transpose | rows{rows}_") for rows in (64, 4096, 128)]
    assert order == sorted(order)
    assert "| [transpose](../transpose/drawn.md) | 2 | 0.866 | 0.500 | 50 % | 1, 0.50, 0.50 | none |" in page
    assert "no library was timed" in page


def test_what_memory_bounds_stands_beside_a_copy_of_as_many_bytes() -> None:
    target = find_target("h200")
    moved = 2 * 4 * 4096 * 4096
    copies = ((moved // 2, 25.0), (2 * moved, 80.0))
    run = make_run(make_row(4096, 50.0, 60.0), make_row(64, 8.0, 4.0))
    found = find_standing(find_op("transpose").op, [run], target, copies)
    middle_us = moved / ((moved / 2 / 25.0 + 2 * moved / 80.0) / 2)  # half way by the logarithm: the mean of the two rates
    assert found.list_copy_shares() == [pytest.approx(middle_us / 50.0)]
    own = replace(run, copies=((moved, 30.0),))
    assert find_standing(find_op("transpose").op, [own], target, copies).list_copy_shares() == [pytest.approx(0.6)]
    assert "| 1, 0.60, 0.60 |" in make_overview([find_standing(find_op("transpose").op, [own], target)], "h200.svg", "a command")


def test_the_picture_names_the_op_and_marks_each_problem() -> None:
    found = find_standing(find_op("transpose").op, [make_run(make_row(4096, 100.0, 90.0))], find_target("h200"))
    svg = draw_overview([found], "heading")
    assert "transpose" in svg and "heading" in svg
