"""Why variants do not serve a problem, in a few words each, so that dozens of refusals are one line with counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.benchmark.rows import BenchRow
from harness.spec import AttributeValue, Count, Op, Problem
from harness.spec.conditions import Condition, OneOf, Rows, find_broken

SHORT_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}


def count_reasons(op: Op, problem: Problem, rows: Sequence[BenchRow]) -> tuple[Counter[str], Counter[str]]:
    """Return how many rows that are not served would need what, and of the others how many give which reason of their own.

    What is needed is the first condition of the kernel's domain that the problem breaks; one without a domain says it in its own words.
    """
    facts = op.find_facts(problem)
    needs: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for row in rows:
        kernel_name, _, bound = row.variant.partition("/")
        kernel = op.find_kernel(kernel_name)
        domain = () if kernel.domain is None else kernel.domain(kernel.parse_variant(bound).tunables)
        broken = find_broken(domain, facts)
        if broken is None:
            reasons[row.reason] += 1
        else:
            needs[describe_need(broken)] += 1
    return needs, reasons


def describe_need(condition: Condition) -> str:
    """Say what a condition asks for, in as few words as tell it from others: ``bf16/fp16``, ``aligned rows``, ``M <= 4``."""
    if isinstance(condition, OneOf):
        return _describe_attribute(condition.attribute, condition.values)
    if isinstance(condition, Rows):
        return "aligned rows" if condition.stride_multiple > 1 or condition.address_bytes > 1 else "shorter rows"
    return _describe_count(condition)


def _describe_attribute(name: str, values: Sequence[AttributeValue]) -> str:
    if all(isinstance(value, str) and value in SHORT_DTYPES for value in values):
        return "/".join(SHORT_DTYPES[str(value)] for value in values)
    if len(values) == 1 and isinstance(values[0], bool):
        return name if values[0] else f"no {name}"
    return f"{name} {'/'.join(map(str, values))}"


def _describe_count(condition: Count) -> str:
    what = " x ".join(name if step == 1 else f"{name}/{step}" for name, step in condition.steps.items())
    bounds = [f"{what} >= {condition.min}"] if condition.min > 1 else []
    bounds += [f"{what} <= {condition.max}"] if condition.max is not None else []
    bounds += [f"{what} a multiple of {condition.multiple}"] if condition.multiple > 1 else []
    return " and ".join(bounds)
