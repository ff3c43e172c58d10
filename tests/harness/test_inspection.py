"""Inspection: costs by line, PTX of a kernel with its source lines, and a page that holds everything and loads nothing."""

from __future__ import annotations

import io
import json
import re

from rich.console import Console

from device.observer import KernelLines, LineCounters
from harness.build.sass import SassInstruction, SassKernel
from harness.profiling.inspection_views import print_inspection, render_page, share_widths
from harness.profiling.side_by_side import Inspection, KernelInspection, find_cost, make_kernel, read_ptx_lines

PTX = """.version 9.0
.target sm_90a
.visible .entry other(
)
{
.loc 1 3 1
ret;
}
.visible .entry kern(
.param .u64 kern_param_0
)
{
.reg .b32 %r<3>;
.loc\t1 7 5
ld.shared.f32 %f1, [%r1];
.loc\t2 2 5, function_name $L__info_string0, inlined_at 1 8 3
add.f32 %f2, %f1, %f1;
$L__BB0_2:
ret;

}
.file\t1 "/src/ops/k.cu"
.file\t2 "/src/ops/common/<b>.cuh"
"""
SASS = SassKernel(
    "kern",
    (
        SassInstruction(0, "", "LDS", "R1, [R2]", "/src/ops/k.cu", 7),
        SassInstruction(16, "@P0", "FADD", "R1, R1, R1", "/src/ops/common/<b>.cuh", 2),
        SassInstruction(32, "", "EXIT", ""),
    ),
    {},
)
LOAD_COUNTS = {"warp_instructions": 90, "shared_load_wavefronts": 320, "shared_load_conflicts": 310}
LINES = KernelLines(
    "kern",
    1,
    (
        LineCounters(15, "k.cu:7", "kern", "ld.shared.f32", LOAD_COUNTS),
        LineCounters(17, "<b>.cuh:2", "kern", "add.f32", {"warp_instructions": 10}),
    ),
)
SOURCES = {"k.cu": [f"line {n} <b>&" for n in range(1, 31)], "<b>.cuh": ["a", "b </script><script>alert(1)</script>", "c"]}


def make() -> KernelInspection:
    return make_kernel(SASS, LINES, PTX, SOURCES, grid=(1, 1, 1), block=(32, 1, 1), figures={"registers": "8"})


def test_ptx_lines_are_those_of_the_kernel_with_their_numbers_and_sources() -> None:
    rows = read_ptx_lines(PTX, "kern")
    assert (15, "ld.shared.f32 %f1, [%r1];", "k.cu:7") in rows
    assert (17, "add.f32 %f2, %f1, %f1;", "<b>.cuh:2") in rows
    assert (18, "$L__BB0_2:", "") in rows
    assert rows[0][1].startswith(".visible .entry kern(") and rows[-1] == (21, "}", "")
    assert not any(".loc" in text or "other" in text for _, text, _ in rows)


def test_costs_are_shares_of_the_launch() -> None:
    kernel = make()
    by_key = {line.key: line.cost for lines in kernel.files.values() for line in lines}
    assert by_key["k.cu:7"].shares == {"instructions": 0.9, "wavefronts": 1.0}
    assert by_key["k.cu:7"].conflicts == 310 and by_key["k.cu:7"].hot
    assert by_key["<b>.cuh:2"].shares["instructions"] == 0.1
    assert by_key["k.cu:8"].counts == {}
    assert [line.key for line in kernel.rank_lines()] == ["k.cu:7", "<b>.cuh:2"]
    assert find_cost({}, {}).shares == {}


def test_only_lines_near_code_are_shown() -> None:
    assert [line.number for line in make().files["k.cu"]] == list(range(4, 11))


def test_the_terminal_shows_shares_conflicts_and_both_codes() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    print_inspection(Inspection("op", "k/x1", "N4", "h200", (make(),), {"time": "3 us"}), 5, console)
    text = console.export_text()
    for part in ("k.cu:7", "90.0 %", "310", "ld.shared.f32", "LDS R1, [R2]", "@P0 FADD", "registers 8", "time 3 us"):
        assert part in text


def test_the_source_gets_the_width_that_it_needs() -> None:
    long = "sum = fmaf(tile_a[i][k], tile_b[k][j], sum);  // of the block"
    kernel = make_kernel(SASS, LINES, PTX, {"k.cu": [long] * 30}, grid=(1, 1, 1), block=(32, 1, 1), figures={})
    for width in (140, 180):
        console = Console(width=width, record=True, file=io.StringIO(), force_terminal=True)
        print_inspection(Inspection("op", "k/x1", "N4", "h200", (kernel,), {}), 5, console)
        lines = console.export_text().splitlines()
        assert max(map(len, lines)) <= width
        assert any("sum = fmaf(tile_a[i][k], tile_b" in line for line in lines)
    assert long in "\n".join(lines), "there is room for the whole line"


def test_codes_share_what_the_source_leaves() -> None:
    assert share_widths(100, 30, [90, 90]) == [30, 35, 35]
    assert share_widths(100, 80, [90, 90]) == [50, 25, 25]
    assert share_widths(100, 80, [20, 10]) == [64, 20, 16], "what PTX and SASS do not need is the source's"
    assert share_widths(100, 40, [10, 90]) == [40, 16, 44]
    assert share_widths(20, 80, [90, 90]) == [16, 16, 16], "something of each is always seen"


def test_the_page_holds_the_data_and_loads_nothing() -> None:
    page = render_page(Inspection("op", "k/x1", "N4", "h200", (make(),)))
    assert not re.search(r"(?:src|href)\s*=|url\(|@import|https?://", page)
    assert page.count("</script>") == 1  # a source line cannot end the script
    found = re.search(r"^const data = (.*);$", page, re.MULTILINE)
    assert found is not None
    data = json.loads(found[1])
    assert data["kernels"][0]["files"]["<b>.cuh"][1]["text"] == "b </script><script>alert(1)</script>"
    assert data["kernels"][0]["ptx"][0].get("cost") is None
