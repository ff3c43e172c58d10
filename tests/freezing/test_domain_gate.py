"""A kernel's domain is held against its compiled supports on random calls, which contradict themselves nowhere; liars are caught."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device import Device
from device.toolchain import find_toolchain
from harness.build.binding import build_binding, open_variant
from harness.build.builder import build_op
from harness.discover import find_op
from harness.freezing.gates.domain import find_disagreement
from harness.spec import Launchable, Op, Problem, SpecError
from harness.spec.conditions import Count, Facts, OneOf, Rows, Tie, find_broken, read_condition, settle
from harness.targets import find_target
from harness.verify.plan import Effort, make_hidden_problems

PROBED = (
    ("softmax", "row_in_registers/threads128_rows1_vectors2"),
    ("transpose", "vectorised/bm32_bn64_threads128"),
    ("gemm_bias_act", "vectorised/bm64_bn64_bk16_tm4_tn4"),
    ("gemm_bias_act", "gemv/bn8_tn4_stages2"),
    ("gemm_backward", "streamed/rows64_unroll2"),
)


def open_built(name: str, variant_name: str) -> tuple[Op, Any, Launchable]:
    loaded = find_op(name)
    (variant,) = loaded.op.select_variants([variant_name])
    toolchain = find_toolchain()
    (build,) = build_op(loaded, [variant], toolchain=toolchain, target=find_target("h200"))
    assert build.library is not None, build.error
    kernel = loaded.op.find_kernel(variant.kernel)
    assert kernel.domain is not None
    return loaded.op, kernel.domain(variant.tunables), open_variant(loaded.op, build_binding(loaded, toolchain), build.library, variant)


@pytest.mark.parametrize(("name", "variant"), [pytest.param(*p, marks=[pytest.mark.slow] * (p[0].startswith("gemm"))) for p in PROBED])
def test_a_domain_that_lies_in_any_condition_is_caught(device: Device, name: str, variant: str) -> None:
    op, domain, launchable = open_built(name, variant)
    assert find_disagreement(op, domain, launchable) == ""
    for i, condition in enumerate(domain):
        rest = (*domain[:i], *domain[i + 1 :])
        for lie in list_lies(condition, domain, op):
            found = find_disagreement(op, (*rest, *lie), launchable, num_calls=10_000)
            assert "the domain says" in found, (condition, lie)


def list_lies(condition: Any, domain: Any, op: Op) -> Iterator[tuple[Any, ...]]:
    """Give what a condition could be mistaken for: nothing, or a little more or less."""
    if isinstance(condition, OneOf) and condition.attribute == "precision":
        return  # TF32 of 16-bit floats is a contradiction, and no call
    if isinstance(condition, OneOf):
        (attribute,) = (a for a in op.attributes if a.name == condition.attribute)
        if set(condition.values) < set(attribute.choices):
            yield ()
        yield (OneOf(condition.attribute, condition.values[:-1]),)
    elif isinstance(condition, Count):
        # A limit behind which another one stands does not show.
        if condition.max is not None and len(condition.steps) == 1 and _reaches(condition, domain):
            yield (replace(condition, max=condition.max // 2),)
        if condition.multiple > 1:
            yield (replace(condition, multiple=condition.multiple // 2),)
    elif isinstance(condition, Rows):
        yield ()
        yield (replace(condition, address_bytes=condition.address_bytes // 2),)
        yield (replace(condition, stride_multiple=condition.stride_multiple // 2),)


def _reaches(condition: Count, domain: Any) -> bool:
    """Return whether a size at its limit, the others at 1, is within all other limits."""
    names = {name for c in domain if isinstance(c, Count) for name in c.steps}
    sizes = dict.fromkeys(names, 1) | {name: (condition.max or 1) * step for name, step in condition.steps.items()}
    limits = [replace(c, multiple=1) for c in domain if isinstance(c, Count)]
    return find_broken(limits, Facts(sizes, {})) is None


def test_a_kernel_that_calls_everything_a_contradiction_is_caught(device: Device) -> None:
    op, domain, _ = open_built(*PROBED[0])

    def refuse(**_: Any) -> str:
        raise ValueError("x: I do not like it")

    liar: Any = SimpleNamespace(supports=refuse)
    assert "refused as a contradiction: x: I do not like it; op.py's ties" in find_disagreement(op, domain, liar, num_calls=50)


def test_calls_agree_in_what_the_op_ties_together(device: Device) -> None:
    op, domain, launchable = open_built("gemm_backward", "streamed/rows64_unroll2")
    assert "refused as a contradiction: " in find_disagreement(replace(op, ties=()), domain, launchable)
    # A domain that hardly any call is in agrees with everything: that is no evidence.
    nowhere: Any = SimpleNamespace(supports=lambda **_: "I serve nothing")
    narrow = (*domain, Count({"K": 1}, min=7, max=7), Count({"M": 1}, multiple=3))
    assert find_disagreement(op, (*narrow, OneOf("act", ())), nowhere) == "only 0 of 2000 random calls are served: too few to tell"
    contradictory = Problem({"M": 4, "N": 5, "K": 6}, {"with_w": False, "with_dw": False})
    with pytest.raises(SpecError, match="M4_N5_K6: contradicts the op's ties, which ask for N=6"):
        replace(op, problems=(contradictory,), goals=())
    with pytest.raises(SpecError, match="a tie names attribute moon, which does not exist"):
        replace(op, ties=(Tie((OneOf("moon", ("full",)),)),))
    hidden = [p for seed in range(40) for p in make_hidden_problems(replace(op, name=f"gemm_{seed}"), Effort())]
    without = [p for p in hidden if p.attributes["with_w"] is False]
    assert len(without) > 10 and all(p.sizes["N"] == p.sizes["K"] for p in without)


@given(st.data())
def test_ties_change_what_disagrees_and_nothing_else(data: st.DataObject) -> None:
    flags, sizes = st.booleans(), st.integers(1, 3)
    ties = tuple(
        Tie((OneOf(data.draw(st.sampled_from("abc")), (data.draw(flags),)),), {"d": data.draw(flags)}, (("M", "N"),)) for _ in range(2)
    )
    facts = Facts({"M": data.draw(sizes), "N": data.draw(sizes)}, {name: data.draw(flags) for name in "abcd"})
    settled = settle(ties, facts)
    holding = [t for t in ties if facts.attributes[t.when[0].attribute] in t.when[0].values]
    assert settled.attributes == {**facts.attributes, **({"d": holding[-1].then["d"]} if holding else {})}
    assert settled.sizes == ({"M": facts.sizes["N"], "N": facts.sizes["N"]} if holding else facts.sizes)
    assert settle(ties, settled) == settled


def test_conditions_hold_as_they_are_written() -> None:
    facts = Facts({"M": 65, "N": 64}, {"act": "relu"}, {"a": 32, "b": 8}, {"a": 24, "b": 7})
    yes = (
        OneOf("act", ("none", "relu")),
        Count({"M": 64, "N": 64}, max=2),
        Count({"N": 1}, multiple=64),
        Rows("a", 16, 8, 24),
        Rows("z", 16, 8),
    )
    no = (
        OneOf("act", ("none",)),
        Count({"M": 64, "N": 64}, max=1),
        Count({"M": 1}, multiple=64),
        Rows("a", 64),
        Rows("b", 8, 8),
        Rows("a", max_stride=23),
    )
    assert find_broken(yes, facts) is None
    assert [find_broken((c,), facts) for c in no] == list(no)
    assert find_op("softmax").op.find_facts(Problem({"rows": 2, "columns": 5}, {}, {"x": 3})).strides == {"x": 8, "y": 5}
    with pytest.raises(ValueError, match="is not a condition"):
        read_condition({"moon": "full"})
