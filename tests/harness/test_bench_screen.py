"""The screen of ``bench``: at 100 columns, a line per variant, the unserved by reason, and what cannot be told apart marked."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from harness.benchmark.first_look import select_first_look
from harness.benchmark.rows import BenchRow, Statics
from harness.benchmark.screen import PLAIN_WIDTH, label_problems, make_bench_screen, shorten_variant
from harness.benchmark.unserved import describe_need
from harness.discover import find_op
from harness.spec import Count, OneOf, Op, Problem, Rows

GEMM = find_op("gemm_bias_act").op
NAMES = [v.name for v in GEMM.variants]
EMULATED = GEMM.select_problems("emulated")
# Occupancy and spills are the same everywhere, registers and shared memory are not.
STATICS = Statics(32, 2048, 0, 1.0, "threads")


def make_row(variant: str, problem: Problem, time_us: float | None, **changes: Any) -> BenchRow:
    interval = None if time_us is None else (0.8 * time_us, 1.3 * time_us)
    fields: dict[str, Any] = {
        "statics": STATICS,
        "floor_us": 0.06,
        "floor_bound": "compute",
        "model_us": time_us,
        "model_interval_us": interval,
        "model_pipe": "latency",
    }
    return BenchRow("gemm_bias_act", variant, problem.name, "emulated", "passed", **(fields | changes))


def make_timed(variant: str, problem: Problem, median_us: float, half_width: float = 0.002, **changes: Any) -> BenchRow:
    cold = {
        "median_us": median_us,
        "median_low_us": (1 - half_width) * median_us,
        "median_high_us": (1 + half_width) * median_us,
        "q1_us": 0.99 * median_us,
        "q3_us": 1.02 * median_us,
    }
    row = make_row(variant, problem, None, cold=cold, hot={"median_us": 0.5 * median_us}, floor_us=50.0)
    return dataclasses.replace(row, device="NVIDIA H200", **changes)


def show(rows: Sequence[BenchRow], problems: Sequence[Problem] = EMULATED[:1], op: Op = GEMM, **options: Any) -> list[str]:
    return [line.plain for line in make_bench_screen(op, rows, problems, target="h200", **options)]


def refuse(variant: str, problem: Problem, reason: str) -> BenchRow:
    return dataclasses.replace(make_row(variant, problem, None), verified="unsupported", reason=reason)


def make_everything() -> list[BenchRow]:
    """Return rows of all variants: half of them are served, with times of all magnitudes and statics that vary."""
    rows = []
    for problem in EMULATED:
        for i, name in enumerate(NAMES):
            statics = Statics(32 + i, 1024 * i, 0, 0.5 + 0.01 * i)
            row = make_row(name, problem, 3.21 * (1 + i) ** 3, statics=statics, model_pipe="tensor" if i % 2 else "l1_requests")
            rows.append(row if i % 2 or i < 20 else refuse(name, problem, f"reason {i % 3}"))
    return rows


def test_the_screen_of_a_large_op_fits_100_columns_and_60_lines() -> None:
    lines = show(make_everything(), EMULATED)
    assert len(lines) <= 52, "and eight more are left for the notes"
    assert max(map(len, lines)) <= PLAIN_WIDTH == 100
    longest = [n for n in NAMES if len(n) > 70]
    assert longest, "names that do not fit are among them"


def test_a_header_names_the_problem_its_types_and_the_floor() -> None:
    lines = show([make_row(NAMES[0], EMULATED[2], 5.0)], EMULATED[2:])
    assert lines[0] == "gemm_bias_act 200x130x77 fp32 gelu_tanh bias · emulated, model for h200 · floor 0.060 us (compute)"
    assert list(label_problems(GEMM, EMULATED).values()) == [
        "256x256x256 fp32",
        "384x256x320 bf16 gelu_tanh nk bias",
        "200x130x77 fp32 gelu_tanh bias",
    ]


def test_problems_that_would_be_called_alike_keep_their_names() -> None:
    plain, padded = Problem({"M": 1, "N": 2, "K": 3}), Problem({"M": 1, "N": 2, "K": 3}, {"act": "none"})
    assert list(label_problems(GEMM, [plain, padded]).values()) == [plain.name, padded.name]
    assert label_problems(GEMM, [Problem({"M": 1, "N": 2, "K": 3}, padding={"a": 3})]).popitem()[1] == "1x2x3 fp32 pad_a=3"


def test_rows_stand_in_order_and_those_that_cannot_be_told_from_the_best_are_marked() -> None:
    times = {"naive/bm16_bn16": 9.0, "coalesced/bm8_bn32": 5.49, "coalesced/bm4_bn64": 5.82, "coalesced/bm1_bn256": 30.0}
    rows = [make_row(name, EMULATED[0], time, statics=Statics(30 + i)) for i, (name, time) in enumerate(times.items())]
    lines = show(rows)
    assert lines[1].split() == ["model", "us", "80", "%", "interval", "x", "best", "regs", "variant"]
    assert [line.split() for line in lines[2:6]] == [
        ["*", "5.49", "4.4-7.1", "1.00", "31", "coalesced/bm8_bn32"],
        ["~", "5.82", "4.7-7.6", "1.06", "32", "coalesced/bm4_bn64"],
        ["9.00", "7.2-12", "1.64", "30", "naive/bm16_bn16"],
        ["30.0", "24-39", "5.46", "33", "coalesced/bm1_bn256"],
    ]
    assert len({line.rindex(name) for line, name in zip(lines[2:6], ("coal", "coal", "naive", "coal"), strict=True)}) == 1


def test_a_column_that_says_the_same_everywhere_is_said_once() -> None:
    rows = [make_row(name, EMULATED[0], 5.0 + i) for i, name in enumerate(NAMES[:3])]
    head, foot = show(rows)[1], show(rows)[5]
    assert not any(title in head for title in ("bound", "regs", "smem", "occ", "spill"))
    assert "all shown: bound by latency, registers 32, shared memory 2K, occupancy 100 %" in foot and "spill" not in foot
    rows[1] = dataclasses.replace(rows[1], statics=dataclasses.replace(STATICS, spill_bytes=16))
    assert "spill" in show(rows)[1] and " 16 " in show(rows)[3]


def test_the_fastest_ten_are_shown_and_all_where_that_is_asked_for() -> None:
    rows = [make_row(name, EMULATED[0], 5.0 + i) for i, name in enumerate(NAMES[:18])]
    lines = show(rows)
    assert sum(name in line for line in lines[:-2] for name in NAMES) == 10
    assert "8 slower (--all shows them)" in lines[12]
    everything = show(rows, everything=True)
    assert sum(name in line for line in everything[:-2] for name in NAMES) == 18 and "--all" not in "".join(everything)


def test_the_unserved_are_counted_by_what_they_need() -> None:
    served = [make_row(n, EMULATED[2], 5.0) for n in NAMES[:2]]
    others = [refuse(n, EMULATED[2], "a: this kernel is for bfloat16") for n in NAMES if n.startswith(("wgmma", "vectorised", "tf32"))]
    text = " ".join("\n".join(show([*served, *others], EMULATED[2:])).split())
    assert "not served: 16 (needs bf16/fp16: 9, precision tf32: 4, aligned rows: 3) · 18 of 18 verified" in text


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (OneOf("dtype", ("bfloat16", "float16")), "bf16/fp16"),
        (OneOf("b_layout", ("nk",)), "b_layout nk"),
        (OneOf("save_z", (True,)), "save_z"),
        (OneOf("save_z", (False,)), "no save_z"),
        (Count({"M": 1}, max=4), "M <= 4"),
        (Count({"K": 1}, multiple=8), "K a multiple of 8"),
        (Count({"M": 64, "N": 128}, min=2, max=9), "M/64 x N/128 >= 2 and M/64 x N/128 <= 9"),
        (Rows("a", 16, 4), "aligned rows"),
        (Rows("a", max_stride=100), "shorter rows"),
    ],
)
def test_what_a_condition_needs_is_said_in_a_few_words(condition: Any, words: str) -> None:
    assert describe_need(condition) == words


def test_a_kernel_without_a_domain_says_its_own_reason_and_what_failed_is_named() -> None:
    kernels = tuple(dataclasses.replace(k, domain=None) for k in GEMM.kernels)
    op = dataclasses.replace(GEMM, kernels=kernels)
    rows = [make_row(NAMES[0], EMULATED[0], 5.0), refuse(NAMES[1], EMULATED[0], "M = 256: must be odd")]
    rows += [dataclasses.replace(make_row(n, EMULATED[0], None), verified="failed", reason="race") for n in NAMES[2:7]]
    text = " ".join(" ".join(show(rows, op=op)).split())
    assert "not served: 1 (M = 256: must be odd: 1)" in text
    assert f"failed: 5 (race: {', '.join(NAMES[2:5])} and 2 more) · 2 of 7 verified" in text


def test_a_problem_that_nobody_serves_is_said() -> None:
    lines = show([refuse(NAMES[0], EMULATED[0], "too large")])
    assert "0/1" in lines[-1] and "not served: 1" in lines[1]


def test_the_last_lines_are_a_summary_of_each_problem() -> None:
    lines = show(make_everything(), EMULATED)
    assert lines[-4].split() == ["problem", "best", "us", "~", "served", "x", "floor", "fastest"]
    assert [line.split()[0] for line in lines[-3:]] == ["256x256x256", "384x256x320", "200x130x77"]
    served = sum(1 for i in range(len(NAMES)) if i % 2 or i < 20)
    assert lines[-3].split()[2:] == ["3.21", "0", f"{served}/{len(NAMES)}", "53.5", "naive/bm16_bn16"]


def test_on_a_gpu_the_same_lines_have_times_and_libraries() -> None:
    problem = GEMM.select_problems("bench")[0]
    rows = [
        make_timed("naive/bm16_bn16", problem, 100.0),
        make_timed("naive/bm32_bn32", problem, 100.3, statics=Statics(40, 0, 0, 0.5)),
        make_timed("coalesced/bm8_bn32", problem, 110.0, statics=Statics(41, 0, 0, 0.5)),
        make_timed("cublas_sgemm", problem, 90.0, verified="peer", is_peer=True, statics=Statics()),
        dataclasses.replace(make_timed("triton", problem, 1.0, is_peer=True), verified="unsupported", cold=None),
    ]
    lines = show(rows, [problem])
    assert lines[0] == "gemm_bias_act 1024x1024x1024 fp32 · NVIDIA H200 · floor 50 us (compute)"
    assert " ".join(lines[1].split()) == "cold us spread x best of roof hot us regs smem occ variant"
    body = [line.split() for line in lines[2:6]]
    assert body[0][:3] == ["90.00", "3.0", "%"] and body[0][3] == "0.90" and "cublas_sgemm (library)" in lines[2]
    assert body[1][:5] == ["*", "100.0", "3.0", "%", "1.00"] and "50.0 %" in lines[3]
    assert lines[4].startswith(" ~ ") and body[2][1] == "100.3" and lines[5].startswith("   ")
    assert "libraries that do not serve it: triton" in lines[6] and "3 of 3 verified" in lines[6]
    assert lines[-2].split()[-3:] == ["x", "library", "fastest"] and lines[-1].split()[-2:] == ["1.11", "naive/bm16_bn16"]


@pytest.mark.parametrize("width", [60, 100, 200])
def test_names_that_do_not_fit_become_patterns_that_name_one_variant(width: int) -> None:
    rows = [make_row(n, EMULATED[0], 5.0 + i, statics=Statics(32 + i, i)) for i, n in enumerate(NAMES)]
    lines = show(rows, everything=True, width=width)
    found = [word for line in lines[2:-3] for word in line.split() if "/" in word and word[0].islower()]
    assert [[n for n in NAMES if fnmatchcase(n, word)] for word in found] == [[n] for n in NAMES]
    assert [v.name for word in found for v in GEMM.select_variants([word])] == NAMES
    if width == 200:
        assert found == NAMES, "what fits is not shortened"


def test_a_name_keeps_what_tells_it_apart() -> None:
    names = ["k/a1_b1_c1", "k/a1_b2_c1", "k/a1_b1_c2", "other"]
    assert shorten_variant("k/a1_b2_c1", names, 9) == "k/*_b2_c1"
    assert shorten_variant("k/a1_b2_c1", names, 1) == "k/*_b2_*"
    assert shorten_variant("k/a1_b1_c1", names, 1) == "k/*_b1_c1"
    assert shorten_variant("k/a9_b9", names, 1) == "k/a9_b9", "one that is not listed has no pattern"


def test_the_screen_in_the_docs_is_one_of_todays_op() -> None:
    lines = (Path(__file__).resolve().parents[2] / "docs" / "bench.txt").read_text().splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= PLAIN_WIDTH
    heads = [line for line in lines if line.startswith("gemm_bias_act ")]
    labels = list(label_problems(GEMM, EMULATED).values())
    assert [head.partition(" · ")[0] for head in heads] == [f"gemm_bias_act {label}" for label in labels]
    named = [line.split()[-1] for line in lines if line.startswith((" * ", " ~ "))]
    assert len(named) >= 3 and all(len(GEMM.select_variants([name])) == 1 for name in named)
    count, text = len(select_first_look(GEMM, EMULATED)), " ".join(lines)
    assert f"{count} of {count} variants verified" in text
    assert f"{len(NAMES) - count} of the op's {len(NAMES)} variants were left out" in text
