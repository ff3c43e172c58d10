"""The page about the cost of selections and calls and the quality of choices, from the records in ``profiles/selection``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from contract.decision import open_core
from contract.frozen_set import read_op
from harness.surveys.adoption import Times, give_to_frozen, read_times
from harness.surveys.fitting import Measured, TimesRow
from harness.surveys.published_regret import ESTIMATED, HELD_OUT
from harness.surveys.regret import Summary, cross_validate, judge

_ARCH = "sm_90a"
_CALLS = {
    "launch": "the kernel's launch function, from a loop in C",
    "aicf_torch": "`aicf.ops.gemm_bias_act` on tensors",
    "aicf_custom_op": "`torch.ops.aicf.gemm_bias_act`",
    "torch_addmm_silu": "`silu(torch.addmm(...))`",
    "torch_linear_silu": "`silu(linear(...))`",
    "torch_empty": "`a.new_empty_strided(...)` alone",
    "aicf_torch_softmax": "`aicf.ops.softmax` on tensors",
    "torch_softmax": "`torch.softmax`",
    "aicf_cupy_softmax": "`aicf.ops.softmax` on CuPy's arrays",
    "cupy_empty": "`cupy.empty(...)` alone",
}

# What each way of holding out leaves of the index, in words.
_INDICES = ("as it is", "held out", "held out with its bucket", "estimates alone", "estimates without the tiles' traffic")


def make_page(folder: Path) -> str:
    """Return the page, from the ``h200-*.json`` of a folder."""
    lines = ["# Selection on an NVIDIA H200", ""]
    overhead = folder / "h200-overhead.json"
    if overhead.is_file():
        lines += _describe_overhead(json.loads(overhead.read_text()))
    documents = [json.loads(path.read_text()) for path in sorted(folder.glob("h200-regret-*.json"))]
    for op in dict.fromkeys(d["op"] for d in documents):
        lines += describe_regret([d for d in documents if d["op"] == op])
    for path in sorted(folder.glob("h200-survey-*.json")):
        document = json.loads(path.read_text())
        files = [path, *sorted(folder.glob(f"h200-times-{document['op']}-*.json"))]
        lines += _describe_survey(document, read_times(document["op"], files))
    for path in sorted(folder.glob("recorded-regret-*.json")):
        lines += _describe_recorded(json.loads(path.read_text()))
    if (folder / "host-costs.json").is_file():
        lines += _describe_host(json.loads((folder / "host-costs.json").read_text()))
    return "\n".join(lines)


def _describe_recorded(document: dict[str, Any]) -> list[str]:
    rows = document["rows"]
    lines = [f"## Choices against published times: {document['op']}", ""]
    lines += [
        f"`python -m harness survey recorded {document['op']}`: {len(rows)} problems on which at least two of the frozen kernels",
        f"were timed on an H200 before (`profiles/{document['op']}/*-h200.csv`). Held out: the index without the problem's",
        "own medians; with its bucket: also without the bucket's winner, where that was decided on this problem alone. Estimates alone:",
        "of the kernels timed the one with the least estimate, as where nothing near was measured; and what counting each input",
        "once would choose.",
        "",
        "| index | problems with the chosen kernel timed | mean regret | p95 | most |",
        "|---|--:|--:|--:|--:|",
    ]
    for key, words in zip((*HELD_OUT, *ESTIMATED), _INDICES, strict=True):
        found = np.array([row[key]["regret"] for row in rows if row[key]["regret"] is not None])
        figures = (found.mean(), np.percentile(found, 95), found.max())
        lines.append(f"| {words} | {len(found)} | {' | '.join(f'{100 * f:.2f} %' for f in figures)} |")
    lines += ["", "The greatest regrets, held out with its bucket:", "", "| problem | chosen | fastest | regret |", "|---|---|---|--:|"]
    known = [row for row in rows if row["bucket_too"]["regret"]]
    for row in sorted(known, key=lambda r: -r["bucket_too"]["regret"])[:8]:
        lines.append(f"| {row['problem']} | {row['bucket_too']['chosen']} | {row['best']} | {100 * row['bucket_too']['regret']:.1f} % |")
    return [*lines, ""]


def _describe_host(document: dict[str, Any]) -> list[str]:
    facts = document["facts"]
    lines = ["## On a host without a GPU", ""]
    lines += [
        f"{facts['processor']}, Python {facts['python']}, PyTorch {facts['torch']}, commit {facts['commit'][:12]}:",
        f"`{facts['command']}`. Calls are without their launch: the launch function does nothing.",
        "",
        "| benchmark | median us | least | quartiles |",
        "|---|--:|--:|--:|",
    ]
    for name, row in document["benchmarks_us"].items():
        lines.append(f"| {name} | {row['median']:.2f} | {row['min']:.2f} | {row['q1']:.2f} to {row['q3']:.2f} |")
    return [*lines, ""]


def _describe_facts(document: dict[str, Any]) -> str:
    facts = document["facts"]
    return f"{facts['device']}, driver {facts['driver']}, {facts['toolchain']}, commit {facts['commit'][:12]}: `{facts['command']}`"


def _describe_overhead(document: dict[str, Any]) -> list[str]:
    calls, selection = document["calls"], document["selection"]
    lines = ["## What it costs on the host", "", _describe_facts(document), ""]
    lines += [
        f"A selection costs {selection['repeat_us']:.2f} us where it was asked before, {selection['new_us']:.1f} us where it was not."
    ]
    lines += ["", f"Calls of a 128 x 128 x 128 bf16 gemm with bias and SiLU ({calls['kernel']}), and of a softmax of 128 rows of 128:", ""]
    lines += ["| call | us, median | least |", "|---|--:|--:|"]
    lines += [f"| {text} | {calls[key]['median_us']:.2f} | {calls[key]['least_us']:.2f} |" for key, text in _CALLS.items()]
    return [*lines, "", f"Over the launch a call from Python costs {calls['over_the_launch_us']:.2f} us.", ""]


def _describe_survey(document: dict[str, Any], times: Times) -> list[str]:
    """Say what the problems that models were fitted to say of choices, each by models fitted without its tenth."""
    op = document["op"]
    frozen = replace(read_op(op), surveys={})
    regrets = cross_validate(Measured(frozen, _ARCH, give_to_frozen(times, frozen).rows, times.device))
    found = Summary.of(regrets)
    before = Summary.of([row["regret"] for row in document["rows"]])
    num_own = before.problems
    mean, p95, most = (f"{100 * x:.2f} %" for x in (found.mean, found.p95, found.max))
    return [
        f"## The survey of {op}, its own problems held out",
        "",
        _describe_facts(document),
        "",
        f"The {len(regrets)} problems that the frozen set's models are fitted to, {num_own} of them timed like those above. Chosen by",
        f"models that were fitted without the problem's tenth, on the {found.problems} whose chosen kernel was timed: mean regret {mean},",
        f"95th percentile {p95}, most {most}. As those {num_own} were chosen before there was a survey: "
        f"{100 * before.mean:.1f} % and {100 * before.p95:.0f} %.",
        "",
    ]


def _choose_again(op: str, rows: Sequence[TimesRow]) -> str:
    """Say what the index as it is now would have chosen on problems that were timed."""
    found = Summary.of(judge(open_core(read_op(op), _ARCH), rows))
    figures = f"mean {100 * found.mean:.2f} %, 95th percentile {100 * found.p95:.2f} %"
    return f"By the index as it is now, on the {found.problems} of them where its choice was timed: {figures}."


def describe_regret(documents: list[dict[str, Any]]) -> list[str]:
    """Return the lines on records of regrets of one op."""
    rows = [row for d in documents for row in d["rows"]]
    whole = Summary.of([row["regret"] for row in rows])
    lines = [f"## Regret: {documents[0]['op']}", ""]
    for document in documents:
        lines += [f"- {_describe_facts(document)}: {len(document['rows'])} of the {document['asked']} problems of seed {document['seed']}"]
    lines += [
        "",
        f"{whole.problems} problems that nothing was measured on and no model was fitted to, {len(documents[0]['kernels'])} frozen "
        "kernels, all that serve a problem timed together, cold. Regret is how much longer the chosen one takes than the fastest.",
        "",
        f"Mean {100 * whole.mean:.2f} %, 95th percentile {100 * whole.p95:.2f} %, most {100 * whole.max:.1f} %; "
        f"the fastest was chosen {whole.best_chosen} times.",
        "",
        "That is what was chosen when they were timed. " + _choose_again(documents[0]["op"], rows),
        "",
        "| step of the decision | problems | mean | p95 |",
        "|---|--:|--:|--:|",
    ]
    for how, count in sorted(Counter(row["how"] for row in rows).items()):
        part = Summary.of([row["regret"] for row in rows if row["how"] == how])
        lines.append(f"| {how} | {count} | {100 * part.mean:.2f} % | {100 * part.p95:.2f} % |")
    lines += ["", "The greatest regrets:", "", "| problem | chosen | fastest | regret |", "|---|---|---|--:|"]
    for row in sorted(rows, key=lambda r: -r["regret"])[:8]:
        words = ", ".join(f"{k}={v}" for k, v in {**row["sizes"], **row["attributes"]}.items())
        lines.append(f"| {words} | {row['chosen']} ({row['how']}) | {row['best']} | {100 * row['regret']:.1f} % |")
    return [*lines, ""]
