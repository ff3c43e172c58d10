"""Judge ``aicf.rewrite.induce.propose``: leave whole families of problems out, and compare what is proposed for them with the best.

    python scripts/judge_induction.py [--corpus FILE] [--problems] [--draw FILE.svg]

Prints mean and median regrets beside those of baselines, with p-values of Wilcoxon's signed-rank test; some seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from aicf.rewrite.induce import BASELINES, CORPUS, Corpus, Judged, choose_settings, judge, tabulate
from aicf.rewrite.induce.evaluation import PROPOSED


def tabulate_families(judged: Sequence[Judged]) -> str:
    """Return a table of mean regrets by family and method."""
    names = (PROPOSED, *BASELINES)
    lines = ["| family | problems | " + " | ".join(names) + " |", "|---|" + "---|" * (len(names) + 1)]
    for family in sorted({each.family for each in judged}):
        found = [each for each in judged if each.family == family]
        means = " | ".join(f"{np.mean([each.regrets[name] for each in found]):.3f}" for name in names)
        lines.append(f"| {family} | {len(found)} | {means} |")
    return "\n".join(lines)


def draw(judged: Sequence[Judged], path: Path) -> None:
    """Draw the part of problems whose regret is at most so large, by method."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for name in (PROPOSED, *BASELINES):
        regrets = np.sort([each.regrets[name] for each in judged])
        axes.step(regrets, np.arange(1, len(regrets) + 1) / len(regrets), where="post", label=name, lw=2.4 if name == PROPOSED else 1.2)
    axes.set(xlabel="regret at most (loss over that of the best constant)", ylabel="part of the problems", xlim=(0.0, 0.6), ylim=(0.0, 1.0))
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path)


def main() -> None:
    """Judge and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="another corpus")
    parser.add_argument("--problems", action="store_true", help="print a line per problem")
    parser.add_argument("--draw", type=Path, help="where to draw the distribution of regrets")
    arguments = parser.parse_args()
    corpus, started = Corpus.read(arguments.corpus), time.perf_counter()
    judged = judge(corpus)
    print(f"{len(corpus)} runs, {len(judged)} problems of {len(corpus.families)} families\n")
    print(f"{tabulate(judged)}\n\n{tabulate_families(judged)}\n")
    errors = np.array([each.found - each.expected for each in judged])
    print(
        f"found over expected loss of what was proposed: median {10 ** np.median(errors):.2f}, 10 % {10 ** np.quantile(errors, 0.1):.2f}, ",
        end="",
    )
    print(f"90 % {10 ** np.quantile(errors, 0.9):.2f}\nsettings for all families: {choose_settings(corpus)}")
    for each in judged if arguments.problems else ():
        print(f"{each.problem}: {each.structure or 'linear'}, best {each.best or 'linear'}, regret {each.regrets[PROPOSED]:.3f}")
    if arguments.draw is not None:
        draw(judged, arguments.draw)
    print(f"{time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
