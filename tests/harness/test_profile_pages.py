"""Pages of Nsight Compute, recorded on an H200, are understood; pages that are cut off, empty or strange are refused, not guessed."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import ToolError
from harness.profiling.ncu import NotServedError
from harness.profiling.ncu_pages import KernelMetrics, LineStalls, read_number, read_raw_page, read_source_page
from harness.profiling.nsys import read_kernel_times
from harness.profiling.sanitizer import read_check
from harness.profiling.summary import STALLS, TIME, UNITS, describe_bound, find_limiter, find_stalls, summarize_launch

FOLDER = Path(__file__).with_name("nsight")


def read_page(name: str) -> str:
    return gzip.decompress((FOLDER / f"{name}.csv.gz").read_bytes()).decode()


RAW, SOURCE = read_page("softmax-raw"), read_page("softmax-source")


def test_a_raw_page_is_read_in_base_units() -> None:
    (kernel,) = read_raw_page(RAW)
    assert kernel.kernel == "void softmax_warp<1>(Rows)"
    assert (kernel.grid, kernel.block) == ((32768, 1, 1), (32, 1, 1))
    assert kernel.metrics[TIME] == 82144.0 and kernel.units[TIME] == "ns"
    assert kernel.metrics["dram__bytes_read.sum"] == 136389376.0
    assert "sass__inst_executed_register_spilling_mem_local" not in kernel.metrics, "no data is not zero"
    assert len(kernel.metrics) > 2000


@pytest.mark.parametrize(
    ("name", "bound", "stall", "advice", "line"),
    [
        (
            "softmax",
            "near the bound of L2: 76 %",
            "long_scoreboard",
            "more loads on their way",
            "kernels.cu:63 49 %, mostly long_scoreboard: for",
        ),
        (
            "smem_tiled",
            "bound by L1 and shared memory: 83 %",
            "mio_throttle",
            "read shared memory wider",
            "kernels.cu:73 66 %, mostly mio_throttle",
        ),
        (
            "wgmma",
            "bound by tensor cores: 86 %",
            "barrier",
            "little is left to gain",
            'wgmma.cuh:44 32 %, mostly barrier: asm volatile("wgmma.wait',
        ),
    ],
)
def test_recorded_launches_are_understood(name: str, bound: str, stall: str, advice: str, line: str) -> None:
    found = summarize_launch(read_raw_page(read_page(f"{name}-raw")), read_source_page(read_page(f"{name}-source")))
    assert found.bound.startswith(bound)
    assert stall in found.stalls[0]
    assert any(advice in each for each in found.advice)
    assert found.lines[0].startswith(line)
    assert found.notes == ()


def test_uncoalesced_access_is_found_and_coalesced_access_is_not_blamed() -> None:
    naive, softmax = (summarize_launch(read_raw_page(read_page(f"{name}-raw")), []).advice for name in ("naive", "softmax"))
    assert any("touch 6.6 times the sectors they need" in each for each in naive)
    assert not any("sectors they need" in each for each in softmax)


def test_source_text_with_quotes_and_commas_stays_whole() -> None:
    lines = {(Path(each.file).name, each.line): each for each in read_source_page(read_page("wgmma-source"))}
    assert lines["wgmma.cuh", 44].text == 'asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kNumPending) : "memory");'
    assert lines["wgmma.cuh", 44].stalls["barrier"] > 5000


def test_other_output_before_the_table_does_no_harm() -> None:
    assert read_raw_page("==WARNING== Note: clocks\n" + RAW)[0].metrics == read_raw_page(RAW)[0].metrics


def drop_columns(text: str, wanted: str) -> str:
    """Return a page without the columns whose name has some words in it."""
    import csv
    import io

    rows = list(csv.reader(io.StringIO(text)))
    kept = [i for i, name in enumerate(rows[0]) if wanted not in name]
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows([[row[i] for i in kept] for row in rows])
    return out.getvalue()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no table: nothing was printed"),
        ("==ERROR== Could not open report file 'a.ncu-rep'.\n", "has no table: ==ERROR== Could not open"),
        ("\n".join(RAW.splitlines()[:2]), "names and no launch"),
        (RAW[: len(RAW) * 2 // 3 + 100], "cut off"),
        (RAW[: RAW.rindex('","') + 1], "cut off: row 2 has 2239 of 2240"),
        (RAW[: RAW.rindex(",")], "cut off within a value"),
        (drop_columns(RAW, "Kernel Name"), "no column Kernel Name"),
    ],
)
def test_a_raw_page_that_is_not_whole_is_refused(text: str, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        read_raw_page(text)


@settings(max_examples=25, deadline=None)
@given(st.integers(min_value=1, max_value=len(RAW.rstrip()) - 1))
def test_wherever_a_raw_page_is_cut_it_is_refused_or_its_last_value_alone_is_short(end: int) -> None:
    try:
        (found,) = read_raw_page(RAW[:end])
    except ToolError:
        return
    whole = read_raw_page(RAW)[0].metrics
    assert sum(found.metrics.get(name) != value for name, value in whole.items()) <= 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no table"),
        (SOURCE[: len(SOURCE) // 2], "cut off: line 325 has 17 of 66"),
        (SOURCE[: len(SOURCE) // 2 + 3], "cut off in line"),
        (SOURCE.replace('"# Samples"', '"# Things"'), "no column '# Samples'"),
        ('"File Path","a.cu"\n"Line No","Source","# Samples","stall_wait"\n"1","x","3"\n', "line 3 has 3 of 4 columns"),
        ('"Line No","Source","# Samples"\nnot a row\n', "line 2 of ncu's source page is not a row"),
    ],
)
def test_a_source_page_that_is_not_whole_is_refused(text: str, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        read_source_page(text)


def test_metrics_that_this_ncu_does_not_know_are_named_and_nothing_follows_from_them() -> None:
    dram, stalled = UNITS["DRAM"], "issue_stalled"
    found = summarize_launch(read_raw_page(drop_columns(drop_columns(RAW, dram), stalled)), [])
    assert found.notes == (f"not measured by this ncu: {dram}",)
    assert "DRAM" not in found.facts[2] and found.stalls == ()
    nothing = summarize_launch([KernelMetrics("k", (1,), (1,), {}, {})], [])
    assert nothing.bound == "what binds it is not known: no unit's throughput was measured"
    assert len(nothing.notes) == 1 + len(UNITS) and nothing.advice == ()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234.5", 1234.5),
        ("-0.02", -0.02),
        ("0", 0.0),
        ("1e9", 1e9),
        ("", None),
        ("no data", None),
        ("n/a", None),
        ("nan", None),
        ("inf", None),
    ],
)
def test_numbers(text: str, value: float | None) -> None:
    assert read_number(text) == value


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"SM": 85.0}, "bound by SM: 85 %"),
        ({"SM": 20.0, "DRAM": 92.0}, "bound by DRAM: 92 %"),
        ({"SM": 20.0, "DRAM": 65.0}, "near the bound of DRAM: 65 %"),
        ({"SM": 20.0, "DRAM": 84.0, "L2": 87.0}, "bound by L2 and DRAM: 87 % and 84 % of their peaks"),
        ({"SM": 20.0, "DRAM": 30.0}, "bound by latency: no unit is above 30 % of its peak (DRAM)"),
    ],
)
def test_the_bound_follows_the_busiest_unit(metrics: dict[str, float], words: str) -> None:
    assert describe_bound({UNITS[unit]: share for unit, share in metrics.items()}).startswith(words)


def test_of_units_that_bind_together_the_farthest_is_advised_on() -> None:
    found = summarize_launch([KernelMetrics("k", (1,), (1,), {UNITS["L2"]: 87.0, UNITS["DRAM"]: 84.0}, {})], [])
    assert found.advice[0].startswith("move fewer bytes")


def test_a_launch_too_small_is_not_called_latency() -> None:
    metrics = {UNITS["SM"]: 20.0, "launch__waves_per_multiprocessor": 0.1}
    assert describe_bound(metrics).startswith("too small for the GPU: its blocks fill 10 % of one wave")


def test_every_reason_has_advice_and_selected_is_no_stall() -> None:
    found = find_stalls(read_raw_page(RAW)[0].metrics)
    assert {name for name, share in found if share > 0.001} <= set(STALLS)
    assert sum(share for _, share in found) == pytest.approx(1.0) and "selected" not in dict(found)


def test_the_limiter_is_the_least() -> None:
    limits = {"launch__occupancy_limit_registers": 4.0, "launch__occupancy_limit_shared_mem": 2.0, "launch__occupancy_limit_warps": 2.0}
    assert find_limiter(limits) == "shared memory and warps a block"
    assert find_limiter({}) == ""


def test_the_longest_kernel_of_several_is_described() -> None:
    kernels = [KernelMetrics(name, (1,), (1,), {TIME: time_ns}, {}) for name, time_ns in (("short", 1.0), ("long", 2.0))]
    assert any("2 kernels in the launch; this is long" in fact for fact in summarize_launch(kernels, []).facts)
    lines = [LineStalls("a.cu", 1, "x", 99, {"wait": 9}), LineStalls("a.cu", 2, "y", 1, {})]
    assert summarize_launch(kernels, lines).lines == ("a.cu:1 99 %, mostly wait: x",)


def test_the_sanitizers_findings_are_said_once_each() -> None:
    found = read_check("memcheck", 86, (FOLDER / "memcheck-bad.txt").read_text())
    assert found.num_errors == 65
    assert found.findings[0].startswith("Invalid __global__ write of size 4 bytes; at bad(float *)+0x70 in bad.cu:2; by thread (0,0,0)")
    assert [each for each in found.findings if "Invalid" in each] == [found.findings[0]]


def test_a_clean_check_is_clean() -> None:
    assert read_check("memcheck", 0, "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n").num_errors == 0
    racecheck = "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)\n"
    assert read_check("racecheck", 86, racecheck).num_errors == 2


@pytest.mark.parametrize(
    ("status", "text", "kind", "message"),
    [
        (0, "========= COMPUTE-SANITIZER\n", ToolError, "did not finish"),
        (1, "Traceback\n========= ERROR SUMMARY: 0 errors\n", ToolError, "failed with status 1"),
        (1, "harness: not served: columns too long\n========= ERROR SUMMARY: 0 errors\n", NotServedError, "columns too long"),
    ],
)
def test_a_check_that_did_not_happen_is_no_clean_one(status: int, text: str, kind: type[ToolError], message: str) -> None:
    with pytest.raises(kind, match=message):
        read_check("memcheck", status, text)


KERNELS = """Generating SQLite file a.sqlite
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
75.0,3000,3,1000.0,"1,010.0",900,1100,50.0,"void a<1>(int, float)"
25.0,1000,1,1000.0,1000.0,1000,1000,0.0,b()
"""


def test_kernel_times_of_nsight_systems() -> None:
    found = read_kernel_times(KERNELS)
    assert [(k.kernel, k.launches, k.median_us) for k in found] == [("void a<1>(int, float)", 3, 1.01), ("b()", 1, 1.0)]
    with pytest.raises(ToolError, match="no table of kernels"):
        read_kernel_times("SKIPPED: a.sqlite does not contain CUDA kernel data.\n")
    with pytest.raises(ToolError, match="cannot be read"):
        read_kernel_times(KERNELS.replace("Med (ns)", "Middle"))
