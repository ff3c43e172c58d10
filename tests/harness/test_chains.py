"""Ops whose variants compute one chain each: names in variants' ids, what is generated for them, and the plan of each."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace

import pytest

from harness.build.generate import define_variant, generate_sources
from harness.discover import find_op
from harness.spec import Kernel, Label, SpecError, Tunable, Variant
from harness.verify.plan import THOROUGH, make_plan, make_pools

LOADED = find_op("elementwise")
OP = LOADED.op
NAMES = [chain.name for chain in OP.chains]
KERNEL = Kernel(
    "fused",
    "an expression",
    (
        Tunable("chain", (Label(0, "add"), Label(1, "add_bias"), Label(2, "x2")), "the expression"),
        Tunable("threads", (64, 128), "threads of a block"),
    ),
    variants=({"chain": 1, "threads": 64},),
)


@pytest.mark.parametrize("text", ["add_threads64", "add_bias_threads128", "x2_threads64", "chain1_threads64"])
def test_a_variants_id_names_its_chain(text: str) -> None:
    variant = KERNEL.parse_variant(text)
    assert KERNEL.parse_variant(variant.name.partition("/")[2]) == variant
    assert variant.name == f"fused/{text}".replace("chain1", "add_bias")
    assert all(type(value) in (int, Label) for value in variant.tunables.values())


def test_a_name_is_an_integer_to_all_else() -> None:
    (variant,) = (KERNEL.bind(v) for v in KERNEL.variants)
    assert variant == Variant("fused", (("chain", 1), ("threads", 64))) and variant.tunables == {"chain": 1, "threads": 64}
    assert json.dumps(variant.tunables) == '{"chain": 1, "threads": 64}'
    assert f"{variant.tunables['chain']}" == "1"
    for twin in (copy.deepcopy(variant), pickle.loads(pickle.dumps(variant))):
        assert (twin, twin.name) == (variant, "fused/add_bias_threads64")


def test_an_id_that_cannot_be_read_says_how_one_is_written() -> None:
    with pytest.raises(SpecError, match=r"cannot read 'sub' .* or by a value's name, e\.g\. add"):
        KERNEL.parse_variant("sub_threads64")
    with pytest.raises(SpecError, match="tunable chain is given twice"):
        KERNEL.parse_variant("add_x2_threads64")


def test_names_are_identifiers() -> None:
    with pytest.raises(SpecError, match="label name 'A b'"):
        Label(0, "A b")


def test_the_attribute_and_the_tunable_are_the_chains() -> None:
    with pytest.raises(SpecError, match="needs an attribute chain whose choices are their names"):
        replace(OP, chains=OP.chains[1:])
    chosen = [variant.tunables["chain"] for variant in OP.variants]
    assert set(chosen) == set(range(len(NAMES)))
    assert all(value.label == NAMES[value] for value in chosen if isinstance(value, Label))


def test_each_chain_is_generated_and_a_variant_is_built_for_one() -> None:
    sources = generate_sources(LOADED)
    header = sources["elementwise/chains.hpp"]
    assert all(f'kName = "{name}"' in header for name in NAMES) and header.count("template <>") == len(NAMES)
    assert "check_chain(params)" in sources["elementwise/entry_points.hpp"]
    assert "check_params(kChainContract," in sources["elementwise/entry_points.hpp"]
    other = generate_sources(find_op("optimizer"))
    assert "optimizer/chains.hpp" not in other and "check_params(kContract," in other["optimizer/entry_points.hpp"]
    (variant,) = OP.select_variants(["streamed/swiglu_threads256_packs2_blocks0"])
    assert define_variant(OP, variant)["AICF_CHAIN"] == str(NAMES.index("swiglu"))


def test_a_variant_is_verified_on_its_own_chain() -> None:
    (variant,) = OP.select_variants(["streamed/swiglu_threads256_packs2_blocks0"])
    narrowed = OP.narrow(variant)
    steps = make_plan(narrowed, THOROUGH)
    pools = make_pools(narrowed, THOROUGH)
    problems = [s.problem for s in (*steps, *(s for pool in pools for s in pool.steps))]
    assert {p.attributes["chain"] for p in problems} == {"swiglu"}
    assert len([s for s in steps if s.hidden]) == THOROUGH.num_hidden and len(pools[0].steps) > THOROUGH.num_drawn
    other = find_op("softmax").op
    assert other.narrow(other.variants[0]) is other


def test_inputs_keep_to_what_the_chain_asks_of_them() -> None:
    tensors = {t.name: t for t in OP.tensors}
    dropout = next(p for p in OP.problems if p.attributes["chain"] == "dropout")
    assert tensors["in1"].resolve_values(dropout) != tensors["in0"].resolve_values(dropout)
