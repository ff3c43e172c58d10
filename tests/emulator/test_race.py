"""Races between blocks and between threads: what is one, what is a note, what is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .cuda_runtime import Runtime
from .kernels import kinds
from .ptx_kernels import run_ptx, text_of

BLOCK_TIMES_4 = "mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd2, %rd0, %rd1;"
# A read whose value nothing comes of would be a note: something has to depend on it.
USE_3 = "setp.eq.u32 %p7, %r3, 12345; @%p7 trap;"
CASES = {
    "blocks write different values": ("mov.u32 %r1, %ctaid.x; st.global.u32 [%rd0], %r1;", {"global_race"}),
    "blocks write the same value": ("mov.u32 %r1, 5; st.global.u32 [%rd0], %r1;", {"global_race_same_value"}),
    "all read": ("ld.global.u32 %r1, [%rd0];", set()),
    "each block its own word": (f"{BLOCK_TIMES_4} st.global.u32 [%rd2], %r1;", set()),
    "atomics on one word": ("red.global.add.u32 [%rd0], 1;", set()),
    "atomics of the block's scope": ("red.cta.global.add.u32 [%rd0], 1;", {"global_race"}),
    "a plain read beside atomics": (f"red.global.add.u32 [%rd0], 1; ld.global.u32 %r3, [%rd0]; {USE_3}", {"global_race"}),
    "a volatile read beside atomics": ("red.global.add.u32 [%rd0], 1; ld.volatile.global.u32 %r1, [%rd0];", set()),
    "bytes of one word": ("mov.u32 %r1, %ctaid.x; cvt.u64.u32 %rd1, %r1; add.u64 %rd2, %rd0, %rd1; st.global.u8 [%rd2], %r1;", set()),
    "a block reads what another one writes": (
        f"{BLOCK_TIMES_4} st.global.u32 [%rd2], %r1; xor.b32 %r2, %r1, 1; mul.wide.u32 %rd3, %r2, 4; add.u64 %rd4, %rd0, %rd3;"
        f"ld.global.u32 %r3, [%rd4]; {USE_3}",
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


def test_a_write_that_another_worker_is_about_to_make_counts_as_made(emulator: Runtime) -> None:
    """Both blocks may have noted their writes before either has made it: which of two writes of one value comes first says nothing."""
    emulator.set_option("workers", 2)
    try:
        for case in ("blocks write the same value", "blocks write different values"):
            body, expected = CASES[case]
            found = [kinds(run_ptx(emulator, text_of(body), np.zeros(64, np.uint32), threads=1, blocks=2)[1]) for _ in range(200)]
            assert all(each == expected for each in found)
    finally:
        emulator.set_option("workers", 0)


def test_a_barrier_orders_global_memory_within_a_block(emulator: Runtime) -> None:
    own = "mul.wide.u32 %rd1, %r0, 4; add.u64 %rd2, %rd0, %rd1; st.global.u32 [%rd2], %r0;"
    other = "xor.b32 %r2, %r0, 63; mul.wide.u32 %rd3, %r2, 4; add.u64 %rd4, %rd0, %rd3; ld.global.u32 %r3, [%rd4];" + USE_3
    for between, expected in (("bar.sync 0;", set()), ("", {"global_race"}), ("membar.gl;", {"global_race"})):
        _, reports = run_ptx(emulator, text_of(own + between + other), np.zeros(64, np.uint32), threads=64)
        assert kinds(reports) == expected


@pytest.mark.parametrize("schedule", ["default", "reversed"])
@pytest.mark.parametrize("stores_at", [3, 700])
def test_threads_that_walk_along_rows_of_their_own_race_with_a_write_there(emulator: Runtime, schedule: str, stores_at: int) -> None:
    """Such reads are noted together: each row once, when the warp stores, or when its turn is over."""
    body = f"""mov.u32 %r1, %ctaid.x; mad.wide.u32 %rd1, %r0, 128, %rd0; mov.u32 %r2, 0;
        setp.ne.u32 %p0, %r1, 0;
        @%p0 bra READ;
        setp.eq.u32 %p1, %r0, 5;
        @%p1 st.global.u32 [%rd0+{4 * stores_at}], %r0;
        bra DONE;
    READ: ld.global.u32 %r3, [%rd1]; {USE_3}
        add.u64 %rd1, %rd1, 4; add.u32 %r2, %r2, 1;
        setp.lt.u32 %p2, %r2, 32;
        @%p2 bra READ;
        st.global.u32 [%rd0+8192], %r2;
    DONE:"""
    emulator.set_option("schedule", schedule)
    try:
        _, reports = run_ptx(emulator, text_of(body), np.zeros(4096, np.uint32), threads=32, blocks=2)
    finally:
        emulator.set_option("schedule", "default")
    (report,) = [each for each in reports if each["kind"] == "global_race"]
    assert f"byte {4 * stores_at} of the allocation" in report["text"]
    reader = f"by thread ({stores_at // 32},0,0) of block (1,0,0)"
    assert reader in report["text"] and "by thread (5,0,0) of block (0,0,0)" in report["text"]


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


def test_a_shuffle_hands_on_what_a_lane_has_acquired_and_nothing_of_its_own(emulator: Runtime) -> None:
    lane = "and.b32 %r1, %r0, 31; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd2, %rd0, %rd1; setp.ne.u32 %p1, %r1, 0; setp.gt.u32 %p0, %r0, 31;"
    body = """@%p0 bra READERS;
        st.global.u32 [%rd2], %r1;
        {met}
        @%p1 bra DONE;
        red.release.cta.global.add.u32 [%rd0+128], 1;
        bra DONE;
    READERS:
        @%p1 bra KNOWN;
    POLL: ld.acquire.cta.global.u32 %r2, [%rd0+128];
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra POLL;
        {own}
    KNOWN:
        {told}
        ld.global.u32 %r3, [%rd{read}]; {use}
    DONE:"""
    met, told = "bar.warp.sync -1;", "shfl.sync.idx.b32 %r4, %r2, 0, 31, -1;"
    for parts, expected in (
        ({"met": met, "told": told}, set()),
        ({"met": met, "told": "vote.sync.any.pred %p3, %p2, -1;"}, set()),
        ({"met": met, "told": "match.any.sync.b32 %r4, %r1, -1;"}, set()),
        ({"met": met, "told": ""}, {"global_race"}),
        ({"met": "", "told": told}, {"global_race"}),  # the releasing lane did not know of the others' writes
        ({"met": met, "told": told, "own": "st.global.u32 [%rd0+256], %r2;", "read": "0+256"}, {"global_race"}),
    ):
        text = text_of(lane + body.format(**({"own": "", "read": "2", "use": USE_3} | parts)))
        _, reports = run_ptx(emulator, text, np.zeros(128, np.uint32), threads=64)
        assert kinds(reports) == expected, parts


def test_a_relaxed_status_word_orders_the_reads_before_it_and_no_writes(emulator: Runtime) -> None:
    """Decoupled look-back in place: a block overwrites what another one has read, having seen its status; perhaps through a third one's."""
    body = """mov.u32 %r1, %ctaid.x; setp.eq.u32 %p0, %r1, 0; setp.eq.u32 %p1, %r1, 1;
        @%p1 bra SECOND;
        @!%p0 bra THIRD;
        {first}
        {tell} [%rd0+128], 1;
        bra DONE;
    SECOND:
    POLL1: ld.relaxed.gpu.global.u32 %r2, [%rd0+{seen}];
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra POLL1;
        st.relaxed.gpu.global.u32 [%rd0+132], 1;
        bra DONE;
    THIRD:
    POLL2: ld.relaxed.gpu.global.u32 %r2, [%rd0+{asked}];
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra POLL2;
        {last}
    DONE:"""
    read, write, tell = "ld.global.u32 %r3, [%rd0];" + USE_3, "st.global.u32 [%rd0], %r2;", "st.relaxed.gpu.global.u32"
    right = {"first": read, "last": write, "tell": tell, "seen": 128, "asked": 132}
    values = np.zeros(128, np.uint32)
    values[50] = 1  # at byte 200: a word that is set from the start, and tells nothing
    for change, expected in (
        ({}, set()),
        ({"asked": 128}, set()),
        ({"seen": 200}, {"global_race"}),
        ({"asked": 200}, {"global_race"}),
        ({"first": write, "last": read}, {"global_race"}),
        ({"first": write}, {"global_race"}),
        ({"tell": "red.relaxed.gpu.global.add.u32"}, {"global_race"}),
    ):
        for schedule in ("default",) if expected else ("default", "reversed", "greedy"):
            emulator.set_option("schedule", schedule)
            try:
                _, reports = run_ptx(emulator, text_of(body.format(**right | change)), values, threads=1, blocks=3)
            finally:
                emulator.set_option("schedule", "default")
            assert kinds(reports) - {"global_race_same_value"} == expected, (change, schedule)


@pytest.mark.parametrize("meets", [True, False])
def test_a_thread_that_reads_and_writes_behind_its_warps_barrier_is_alone_there(emulator: Runtime, meets: bool) -> None:
    """Each word is read by one thread in front of the barrier, and behind it by another, which then writes it."""
    text = """.version 8.8
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 out)
{{
    .reg .b32 %r<16>; .reg .b64 %rd<8>;
    .shared .align 16 .b8 words[256];
    ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd2, %rd0, %rd1;
    mov.u32 %r1, words; mad.lo.u32 %r2, %r0, 4, %r1;
    st.shared.u32 [%r2], %r0; st.shared.u32 [%r2+128], %r0;
    bar.sync 0;
    ld.shared.u32 %r3, [%r2];
    {meet}
    xor.b32 %r4, %r0, 16; mad.lo.u32 %r5, %r4, 4, %r1;
    ld.shared.u32 %r6, [%r5];
    add.u32 %r7, %r6, %r3; st.shared.u32 [%r5], %r7;
    st.global.u32 [%rd2], %r7;
    ret;
}}""".format(meet="bar.warp.sync -1;" if meets else "")
    _, reports = run_ptx(emulator, text, np.zeros(64, np.uint32), threads=32)
    assert kinds(reports) == (set() if meets else {"shared_race"})
