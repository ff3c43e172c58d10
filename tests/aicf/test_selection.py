"""Selection is total, legal, deterministic, and what docs/frozen.md says."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicf.errors import SelectionError
from aicf.registry import How, HwCaps, KernelHandle, Preferences, Problem, Registry, explain, handles
from contract.frozen_set import FrozenOp
from contract.kernels import FrozenKernel
from harness.spec.conditions import Facts, find_broken, read_condition
from tests.aicf.random_sets import DESCRIPTION, calls, frozen_ops, make_bucket, make_kernel
from tests.contract.chooser import Call, choose

HOPPER = HwCaps(9, 0)
WAYS = [How.MEASURED, How.SURVEYED, How.NEAR, How.PRIOR, How.FALLBACK]


def choose_again(op: FrozenOp, handle: KernelHandle, prefs: Preferences) -> tuple[str | None, int]:
    """Decide by the description in tests/contract/chooser.py."""
    q = handle.query
    present = {"x", "y", *(["z"] if q.attributes["save"] else [])}
    call = Call(q.by_size, q.attributes, {t: q.addresses.get(t, 0) for t in present}, q.strides)
    manifests = {n: k.manifest for n, k in op.kernels.items()}
    entries = [e | {"kind": "entry"} for e in op.entries]
    refused = [n for n, m in manifests.items() if prefs.deterministic and not m["deterministic"]]
    whole = [{"name": n, "classes": [{"name": "any", "when": []}]} for n in ("dtypes", "layout")]
    description = {**op.description, "axes": [*whole, *op.description["axes"]]}
    return choose([description, *entries, *op.medians, *op.surveys.values()], manifests, handle.arch, call, refused)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_choice_is_total_legal_and_the_described_one(data: st.DataObject) -> None:
    op = data.draw(frozen_ops())
    call = data.draw(calls(op))
    prefs = Preferences(deterministic=data.draw(st.booleans()))
    handle = Registry.holding(op).select("made_up", Problem(**call), HOPPER, prefs)
    kernel = op.kernels[handle.kernel]
    facts = Facts(handle.query.by_size, handle.query.attributes, handle.query.addresses, handle.query.strides)
    assert find_broken([read_condition(row) for row in kernel.manifest["domain"]], facts) is None
    assert kernel.arch == handle.arch == "sm_90a"
    assert handle.deterministic or not prefs.deterministic
    assert (handle.kernel, 1 + WAYS.index(handle.how)) == choose_again(op, handle, prefs)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_the_order_of_what_is_read_and_what_was_asked_before_change_nothing(data: st.DataObject) -> None:
    op = data.draw(frozen_ops())
    asked = [data.draw(calls(op)) for _ in range(3)]
    seed = data.draw(st.integers(0, 2**32))

    def shuffled(rows: Any) -> Any:
        return random.Random(seed).sample(list(rows), len(rows))

    other = replace(
        op, entries=tuple(shuffled(op.entries)), medians=tuple(shuffled(op.medians)), kernels=dict(shuffled(op.kernels.items()))
    )
    first, second = Registry.holding(op), Registry.holding(other)
    answers = [first.select("made_up", Problem(**call), HOPPER) for call in asked]
    again = [second.select("made_up", Problem(**call), HOPPER) for call in reversed(asked)][::-1]
    for one, two, call in zip(answers, again, asked, strict=True):
        assert (one.kernel, one.how, one.predicted_us, one.reason) == (two.kernel, two.how, two.predicted_us, two.reason)
        assert first.select("made_up", Problem(**call), HOPPER).kernel == one.kernel


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_an_explanation_is_of_the_choice_and_has_a_reason_for_every_other_kernel(data: st.DataObject) -> None:
    op = data.draw(frozen_ops())
    call = data.draw(calls(op))
    registry = Registry.holding(op)
    handle = registry.select("made_up", Problem(**call), HOPPER)
    told = explain("made_up", Problem(**call), HOPPER, registry=registry)
    assert (told.chosen, told.how, told.predicted_us, told.reason) == (handle.kernel, handle.how, handle.predicted_us, handle.reason)
    assert {c.kernel for c in told.candidates} == {n for n, k in op.kernels.items() if k.arch == "sm_90a"}
    assert [c.kernel for c in told.candidates if c.dropped == ""] == [handle.kernel]


def make_op(*kernels: tuple[str, dict[str, Any]], domain: list[Any] | None = None) -> FrozenOp:
    found = {n: make_kernel(n, "sm_90a", domain or [], {"deterministic": True} | facts, {}) for n, facts in kernels}
    entries = [{"bucket": make_bucket("sm_90a", "any", "any"), "role": "fallback", "kernel": n, "status": "measured"} for n in found]
    return FrozenOp("made_up", Path("/nowhere"), DESCRIPTION, tuple(entries), (), found)


CALL = {"M": 8, "N": 8}


def test_what_tiles_read_again_counts_where_the_index_knows_it() -> None:
    """Of two kernels with the same least work the larger tile reads less; an index from before that was known cannot tell."""
    found = {
        f"{n}_tile": make_kernel(f"{n}_tile", "sm_90a", [], {"deterministic": True}, {"M": edge, "N": edge})
        for n, edge in (("fine", 16), ("large", 512))
    }
    for kernel in found.values():
        kernel.manifest["prior"] |= {"slots": 1, "bytes_per_s": 1e15, "flops_per_s": {}}
    entries = [{"bucket": make_bucket("sm_90a", "plain", "large"), "role": "winner", "kernel": n, "status": "provisional"} for n in found]
    problem = Problem({"M": 1024, "N": 2048})

    def ask(cost: dict[str, Any]) -> tuple[str, float | None]:
        op = FrozenOp("made_up", Path("/nowhere"), DESCRIPTION | {"cost": cost}, tuple(entries), (), found)
        handle = Registry.holding(op).select("made_up", problem, HOPPER)
        return handle.kernel, handle.predicted_us

    least = {n: v for n, v in DESCRIPTION["cost"].items() if n not in ("reads", "l2_bytes_per_s")}
    assert ask(least)[0] == "fine_tile"
    # [M, N] once, and [N] once for each of 1024 / 512 rows of tiles, at 8 TB/s.
    chosen, predicted_us = ask(DESCRIPTION["cost"])
    assert chosen == "large_tile" and predicted_us == pytest.approx((4 * 1024 * 2048 + 2 * 4 * 2048) / 8e12 * 1e6)
    assert ask(least | {"reads": DESCRIPTION["cost"]["reads"], "l2_bytes_per_s": {"sm_80": 8e12}})[0] == "fine_tile"


def test_a_kernel_that_estimates_pass_over_is_told_which_reason_it_is() -> None:
    def tell(wins: dict[str, str]) -> dict[str, str]:
        found = {n: make_kernel(n, "sm_90a", [], {"deterministic": True}, {"M": 16, "N": 16}) for n in ("a", "b", "c")}
        rows = [(n, "winner", make_bucket("sm_90a", "plain", region)) for n, region in wins.items()]
        rows.append(("c", "fallback", make_bucket("sm_90a", "any", "any")))
        entries = [{"bucket": bucket, "role": role, "kernel": n, "status": "provisional"} for n, role, bucket in rows]
        op = FrozenOp("made_up", Path("/nowhere"), DESCRIPTION, tuple(entries), (), found)
        told = explain("made_up", Problem({"M": 1024, "N": 2048}), HOPPER, registry=Registry.holding(op))
        return {c.kernel: c.dropped for c in told.candidates}

    fallback = {"c": "a fallback, and a winner serves the call"}
    assert tell({"a": "large", "b": "large"}) == {"a": "", "b": "its estimate is no better than the chosen one's"} | fallback
    other = tell({"a": "large", "b": "small"})
    assert other == {"a": "", "b": "it wins another bucket, and a winner of this one serves the call"} | fallback
    # None wins this bucket: those of any are compared.
    assert tell({"a": "small", "b": "small"}) == {"a": "", "b": "its estimate is no better than the chosen one's"} | fallback


def test_no_kernel_for_a_call_and_none_with_what_is_preferred_are_told_apart() -> None:
    refused = make_op(("a", {}), domain=[{"count": {"M": 1}, "max": 1}])
    told = explain("made_up", Problem(CALL), HOPPER, registry=Registry.holding(refused))
    assert told.chosen is None and told.reason == "no kernel serves this call"
    disliked = make_op(("a", {"deterministic": False}), ("b", {"deterministic": False}))
    told = explain("made_up", Problem(CALL), HOPPER, Preferences(deterministic=True), Registry.holding(disliked))
    assert told.chosen is None and told.reason == "2 kernels serve this call, and none has what is preferred"


def test_preferences_are_obeyed_or_refused() -> None:
    registry = Registry.holding(
        make_op(("a", {"deterministic": False}), ("b", {"accumulate": "float32"}), ("c", {"accumulate": "float64"}))
    )

    def ask(**prefs: Any) -> str:
        return registry.select("made_up", Problem(CALL), HOPPER, Preferences(**prefs)).kernel

    assert ask() == "a"
    assert ask(deterministic=True) == "b"
    assert ask(accumulate="float64") == "c"
    assert ask(max_workspace_bytes=0) == "a"
    assert ask(prefer="memory") == "a"
    with pytest.raises(SelectionError, match=r"has what is preferred(?s:.*)b: its manifest says that it sums in float32, not in bfloat16"):
        ask(accumulate="bfloat16")
    with pytest.raises(ValueError, match=r"max_workspace_bytes=-1: must be at least 0"):
        ask(max_workspace_bytes=-1)
    with pytest.raises(ValueError, match=r"prefer='size': must be speed, memory or own"):
        ask(prefer="size")


class AskedLibrary:
    """A library whose kernel wants a workspace that it has to be asked for."""

    def __init__(self, kernel: FrozenKernel) -> None:
        self.wanted = 4096 if kernel.name == "hungry" else 512

    def ask_workspace(self, params: Any) -> int:
        assert params.m == CALL["M"]
        # What is part of the call is not null, what is none of it is.
        assert params.x and params.y and not params.z
        return self.wanted


def test_a_workspace_that_has_to_be_asked_for_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handles, "load_kernel", AskedLibrary)
    asked = {"workspace": {"kind": "query", "max_bytes": 1 << 20}}
    registry = Registry.holding(make_op(("hungry", asked), ("modest", asked)))
    assert registry.select("made_up", Problem(CALL), HOPPER).workspace_bytes == 4096
    assert registry.select("made_up", Problem(CALL), HOPPER, Preferences(max_workspace_bytes=1000)).kernel == "modest"
    assert registry.select("made_up", Problem(CALL), HOPPER, Preferences(prefer="memory")).workspace_bytes == 512
    with pytest.raises(SelectionError, match=r"hungry: it wants 4096 bytes of workspace, more than 100"):
        registry.select("made_up", Problem(CALL), HOPPER, Preferences(max_workspace_bytes=100))
    told = explain("made_up", Problem(CALL), HOPPER, Preferences(prefer="memory"), registry)
    assert [c.dropped for c in told.candidates] == ["another kernel wants less workspace", ""]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"sizes": {"M": 8}}, r"sizes are M, N, got M"),
        ({"sizes": {"M": 8, "N": 0}}, r"N = 0: must be a whole number of at least 1"),
        ({"sizes": {"M": 8, "N": 1.0}}, r"N = 1.0: must be a whole number"),
        ({"sizes": CALL, "attributes": {"act": "tanh"}}, r"act = 'tanh': must be one of 'none', 'relu', 'silu'"),
        ({"sizes": CALL, "attributes": {"mode": 1}}, r"no attribute 'mode'; there are: act, save"),
        ({"sizes": CALL, "strides": {"x": 7}}, r"row stride of x = 7: must be at least the row's 8 elements"),
        ({"sizes": CALL, "strides": {"z": 8}}, r"tensor 'z' has no row stride here"),
        ({"sizes": CALL, "addresses": {"z": 16}}, r"tensor 'z' is not part of this call"),
    ],
)
def test_a_problem_that_the_op_does_not_have_is_refused_by_name(call: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Registry.holding(make_op(("a", {}))).select("made_up", Problem(**call), HOPPER)


def test_a_tensor_whose_strides_no_integer_holds_is_refused_by_name() -> None:
    sizes = dict.fromkeys("BDHST", 1 << 22)
    with pytest.raises(ValueError, match=r"sdpa: q of 4194304 x .* elements: its strides must be at most 2\*\*63 - 1"):
        Registry().select("sdpa", Problem(sizes), HOPPER)


def test_where_nothing_serves_every_kernel_has_its_reason() -> None:
    registry = Registry.holding(make_op(("a", {}), ("b", {}), domain=[{"count": {"M": 1}, "max": 4}]))
    with pytest.raises(SelectionError, match=r"a: M must be at most 4\n  b: M must be at most 4"):
        registry.select("made_up", Problem(CALL), HOPPER)
    with pytest.raises(SelectionError, match=r"nothing is frozen for compute capability 7.5; there are kernels for: sm_90a"):
        registry.select("made_up", Problem(CALL), HwCaps(7, 5))


def test_the_time_of_a_fallback_that_alone_was_measured_does_not_make_it_the_choice() -> None:
    op = make_op(("slow", {}), ("unmeasured", {}))
    winner = {"bucket": make_bucket("sm_90a", "plain", "small"), "role": "winner", "kernel": "unmeasured", "status": "provisional"}
    facts = {"problem": "p", "sizes": CALL, "attributes": {"act": "none", "save": False}, "group": "any/any/plain", "arch": "sm_90a"}
    median = {"kind": "median", "mode": "cold", "kernel": "slow", "median_us": 40000.0} | facts
    handle = Registry.holding(replace(op, entries=(op.entries[0], winner), medians=(median,))).select("made_up", Problem(CALL), HOPPER)
    assert (handle.kernel, handle.how) == ("unmeasured", How.PRIOR)


def test_a_neighbour_beyond_the_border_of_a_region_is_asked_after_the_winner_of_the_bucket() -> None:
    op = make_op(("small", {}), ("large", {}))
    winners = [
        {"bucket": make_bucket("sm_90a", "plain", n), "role": "winner", "kernel": n, "status": "measured"} for n in ("small", "large")
    ]
    facts = {"problem": "p", "sizes": {"M": 64, "N": 66}, "attributes": {"act": "none", "save": False}, "group": "any/any/plain"}
    median = {"kind": "median", "mode": "cold", "arch": "sm_90a", "kernel": "large", "median_us": 1.0} | facts
    whole = replace(op, entries=tuple(winners), medians=(median,))
    handle = Registry.holding(whole).select("made_up", Problem({"M": 64, "N": 64}), HOPPER)
    assert (handle.kernel, handle.how) == ("small", How.PRIOR)
    handle = Registry.holding(whole).select("made_up", Problem({"M": 64, "N": 80}), HOPPER)
    assert (handle.kernel, handle.how) == ("large", How.NEAR)
    handle = Registry.holding(replace(whole, entries=(winners[1],))).select("made_up", Problem({"M": 64, "N": 64}), HOPPER)
    assert (handle.kernel, handle.how) == ("large", How.NEAR)


@pytest.mark.parametrize("order", [(0, 8), (8, 0)])
def test_an_address_that_only_a_bucket_asks_for_is_no_other_call_s(order: tuple[int, int]) -> None:
    """What is remembered of a call is not given to one that begins elsewhere, though no kernel minds where."""
    op = make_op(("on_boundary", {}), ("anywhere", {}))
    classes = [{"name": "on_boundary", "when": [{"tensor": "x", "address": 16}]}, {"name": "anywhere", "when": []}]
    entries = [
        {"bucket": make_bucket("sm_90a", "plain", n), "role": "winner", "kernel": n, "status": "measured"}
        for n in ("on_boundary", "anywhere")
    ]
    axes = [DESCRIPTION["axes"][0], {"name": "region", "classes": classes}]
    registry = Registry.holding(replace(op, description=DESCRIPTION | {"axes": axes}, entries=tuple(entries)))
    found = {at: registry.select("made_up", Problem(CALL, addresses={"x": 4096 + at, "y": 4096}), HOPPER).kernel for at in order}
    assert found == {0: "on_boundary", 8: "anywhere"}


def test_a_handle_does_not_follow_what_the_caller_changes_later() -> None:
    registry = Registry.holding(make_op(("a", {})))
    sizes = dict(CALL)
    handle = registry.select("made_up", Problem(sizes), HOPPER)
    sizes["M"] = 99
    assert handle.query.by_size == CALL
    assert registry.select("made_up", Problem(sizes), HOPPER).query.by_size["M"] == 99


@pytest.mark.parametrize(("caps", "arch"), [((9, 0), "sm_90a"), ((8, 6), "sm_80"), ((8, 0), "sm_80"), ((9, 1), "sm_90")])
def test_the_best_architecture_that_runs_here_is_taken(caps: tuple[int, int], arch: str) -> None:
    assert HwCaps(*caps).find_arch("op", ["sm_80", "sm_90", "sm_90a"]) == arch
