"""Races between blocks and between threads: what is one, what is a note, what is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .cuda_runtime import Runtime
from .kernels import kinds
from .ptx_kernels import run_ptx, text_of

BLOCK_TIMES_4 = "mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd2, %rd0, %rd1;"
CASES = {
    "blocks write different values": ("mov.u32 %r1, %ctaid.x; st.global.u32 [%rd0], %r1;", {"global_race"}),
    "blocks write the same value": ("mov.u32 %r1, 5; st.global.u32 [%rd0], %r1;", {"global_race_same_value"}),
    "all read": ("ld.global.u32 %r1, [%rd0];", set()),
    "each block its own word": (f"{BLOCK_TIMES_4} st.global.u32 [%rd2], %r1;", set()),
    "atomics on one word": ("red.global.add.u32 [%rd0], 1;", set()),
    "atomics of the block's scope": ("red.cta.global.add.u32 [%rd0], 1;", {"global_race"}),
    "a plain read beside atomics": ("red.global.add.u32 [%rd0], 1; ld.global.u32 %r1, [%rd0];", {"global_race"}),
    "a volatile read beside atomics": ("red.global.add.u32 [%rd0], 1; ld.volatile.global.u32 %r1, [%rd0];", set()),
    "bytes of one word": ("mov.u32 %r1, %ctaid.x; cvt.u64.u32 %rd1, %r1; add.u64 %rd2, %rd0, %rd1; st.global.u8 [%rd2], %r1;", set()),
    "a block reads what another one writes": (
        f"{BLOCK_TIMES_4} st.global.u32 [%rd2], %r1; xor.b32 %r2, %r1, 1; mul.wide.u32 %rd3, %r2, 4; add.u64 %rd4, %rd0, %rd3;"
        "ld.global.u32 %r3, [%rd4];",
        {"global_race"},
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("workers", [1, 2])
def test_two_blocks_of_one_thread(emulator: Runtime, case: str, workers: int) -> None:
    body, expected = CASES[case]
    emulator.set_option("workers", workers)
    try:
        _, reports = run_ptx(emulator, text_of(body), np.zeros(64, np.uint32), threads=1, blocks=2)
    finally:
        emulator.set_option("workers", 0)
    assert kinds(reports) == expected
    if "global_race" in expected:
        text = str(next(r["text"] for r in reports if r["kind"] == "global_race"))
        assert "of block (0,0,0)" in text and "of block (1,0,0)" in text and "of the allocation #" in text


def test_a_barrier_orders_global_memory_within_a_block(emulator: Runtime) -> None:
    own = "mul.wide.u32 %rd1, %r0, 4; add.u64 %rd2, %rd0, %rd1; st.global.u32 [%rd2], %r0;"
    other = "xor.b32 %r2, %r0, 63; mul.wide.u32 %rd3, %r2, 4; add.u64 %rd4, %rd0, %rd3; ld.global.u32 %r3, [%rd4];"
    for between, expected in (("bar.sync 0;", set()), ("", {"global_race"}), ("membar.gl;", {"global_race"})):
        _, reports = run_ptx(emulator, text_of(own + between + other), np.zeros(64, np.uint32), threads=64)
        assert kinds(reports) == expected


def test_launches_follow_each_other(emulator: Runtime) -> None:
    text = text_of("mov.u32 %r1, %ctaid.x; add.u32 %r1, %r1, 1; st.global.u32 [%rd0], %r1;")
    for _ in range(2):
        assert run_ptx(emulator, text, np.zeros(64, np.uint32), threads=1)[1] == []


def test_suppressed_findings_are_counted(emulator: Runtime, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "rules"
    text = text_of(CASES["blocks write different values"][0])
    for rule, expected in (("global_race kernel *", set()), ("global_race other *", {"global_race"}), ("shared* * *", {"global_race"})):
        rules.write_text(f"# judged\n{rule}\n")
        assert emulator.set_option("suppressions", rules) == 0
        try:
            _, reports = run_ptx(emulator, text, np.zeros(64, np.uint32), threads=1, blocks=2)
            counted = emulator.library.aicfEmulatorGetOption(b"suppressed").decode()
        finally:
            emulator.set_option("suppressions", "")
        assert kinds(reports) == expected and (int(counted) > 0) == (not expected)
        assert (rule in capfd.readouterr().err) == (not expected)
    rules.write_text("global_race\n")
    assert emulator.set_option("suppressions", rules) == 1 and "is no rule" in emulator.message()
