"""The two kinds of compiled programs, a model's forward pass and a training step; and how a saved one is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicf.tensor import Tensor
from aicf.train.compiled import Compiled
from aicf.train.saving import Saved

if TYPE_CHECKING:  # a program that is loaded needs nothing of what makes one
    from aicf.train.step_recipe import StepRecipe


class Program(Compiled):
    """A model's forward pass, compiled: call it like the model."""

    def __call__(self, *inputs: Any) -> Any:
        """Return the model's outputs, which the next call overwrites. Raises ValueError for dtypes that it was not compiled for."""
        outputs = self.run(inputs)
        return outputs[0] if len(outputs) == 1 else outputs


class Step(Compiled):
    """A training step, compiled: call it with a batch.

    ``recipe`` says how it was made, so that it can be made again of another structure; one that was loaded has none.
    """

    recipe: StepRecipe | None = None

    def __call__(self, *batch: Any) -> Tensor:
        """Train on a batch; returns the loss, which the next call overwrites. Raises ValueError for dtypes that it was not compiled for."""
        return self.run(batch)[0]

    def scan(self, *batches: Any) -> Tensor:
        """Train on many batches, stacked along a first axis, in order; returns their losses, [batches], which the next call overwrites.

        The bits are those of a call per batch. On ``cuda`` it is one launch of one graph, from the second call of as many batches on: steps
        read their batch where it lies, and nothing is copied between them. The memory of two numbers of batches is kept. Raises ValueError
        for other shapes than the step was compiled for.
        """
        return self.run_many(batches)


_KINDS: dict[str, type[Program] | type[Step]] = {"Program": Program, "Step": Step}


def load(folder: Path | str) -> Program | Step:
    """Return a program or a step that was saved: it runs with no pass, no selection, and no compiler where its kernels are in the cache.

    It has the shapes that it was saved with. Raises :class:`~aicf.errors.PlanError` or :class:`~aicf.errors.StateError` naming the file
    that cannot be read.
    """
    saved = Saved.read(Path(folder), _KINDS)
    return _KINDS[saved.kind].restore(saved)
