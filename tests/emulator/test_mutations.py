"""The mutation corpus: silent on right kernels, loud on kernels that lost a barrier, a fence, a wait, a store."""

from __future__ import annotations

import pytest

from .cuda_runtime import Runtime
from .mutations.campaign import SCHEDULES, Bench, Outcome, compile_corpus, mutants, run_campaign, split_kernels

Campaign = tuple[dict[str, list[str]], list[Outcome]]


@pytest.fixture(scope="module")
def campaign(_loaded_runtime: Runtime) -> Campaign:
    if not _loaded_runtime.is_emulated:
        pytest.skip("this is about the emulator's own reports, and AICF_DEVICE=cuda chose the GPU")
    try:
        return run_campaign(_loaded_runtime)
    finally:
        for name, value in {"workers": 0, "schedule": "default", "seed": 0, "instruction_limit": 0}.items():
            _loaded_runtime.set_option(name, value)


def test_right_kernels_are_silent_and_agree_under_all_schedules(campaign: Campaign) -> None:
    originals, _ = campaign
    assert len(originals) >= 25 and len(SCHEDULES) == 4
    assert {kernel: findings for kernel, findings in originals.items() if findings} == {}


def test_faults_are_found(campaign: Campaign) -> None:
    faults = [o for o in campaign[1] if not o.mutant.benign]
    found = [o for o in faults if o.by_sanitizer or o.wrong_result]
    assert len(faults) >= 200 and len(found) >= 0.95 * len(faults)


def test_lost_synchronisation_is_found_by_the_sanitizer_alone(campaign: Campaign) -> None:
    lost = [o for o in campaign[1] if o.mutant.change == "delete" and not o.mutant.benign]
    assert sum(o.by_sanitizer for o in lost) >= 0.95 * len(lost)


@pytest.mark.parametrize(
    ("kernel", "text", "kind"),
    [
        ("mbarrier_handoff", "bar.warp.sync", "shared_race"),  # one lane arrives: it publishes its own writes only
        ("warp_exchange", "bar.warp.sync", "shared_race"),
        ("half_warps", "bar.warp.sync", "shared_race"),
        ("bulk_store", "fence.proxy.async", "missing_proxy_fence"),
        ("bulk_store", "wait_group.read", "async_source_overwritten"),
        ("async_copies", "cp.async.wait_group", "async_copy_in_flight"),
        ("async_copies", "bar", "shared_race"),
        ("named_barriers", "bar", "shared_race"),
        ("cluster_reduce", "barrier.cluster.wait", "shared_race"),
        ("message", "bar", "global_race"),
        ("look_back", "membar", "global_race"),
        ("spin_lock", "membar", "global_race"),
        ("last_block", "membar", "global_race"),
        ("grid_barrier", "bar", "global_race"),
    ],
)
def test_kind_of_the_finding(campaign: Campaign, kernel: str, text: str, kind: str) -> None:
    hits = [o for o in campaign[1] if o.mutant.kernel == kernel and o.mutant.change == "delete" and text in o.mutant.text]
    assert any(kind in o.kinds for o in hits), [(o.mutant.text, o.kinds) for o in hits]


def test_both_parties_of_a_race_are_named(emulator: Runtime) -> None:
    ptx = split_kernels(compile_corpus())["reverse"]
    mutant = next(m for m in mutants("reverse", ptx) if m.change == "delete")
    reports = Bench(emulator).run("reverse", mutant.ptx, "default", 0)[1]
    emulator.set_option("instruction_limit", 0)
    race, *_ = [r for r in reports if r["kind"] == "shared_race"]
    text = str(race["text"])
    assert text.count("by thread (") == 2 and text.count("PTX line") == 2 and "'tile'" in text and "__syncthreads() between the two" in text
