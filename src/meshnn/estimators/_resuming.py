"""What a fit needs to be taken up again."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from meshnn.estimators._streaming import Streams
from meshnn.estimators._watching import verbosity
from meshnn.storage import Tree
from meshnn.training import Trainer
from meshnn.training.callbacks import Checkpoint, Resumed

__all__ = ["Resumes"]


class Resumes(Streams):
    """Where a fit stands, in a checkpoint and from one."""

    _kind: str

    def _sync_fitted_attributes(self, trainer: Trainer) -> None:
        """Where training stands."""
        best = trainer.best
        self._solver_state, self._l2_found = best.memory, isinstance(self.l2, str)
        self.solver_, self.solver_reason_ = trainer.choice.solver.name, trainer.choice.reason
        self.history_, self.l2_, self.best_restart_ = trainer.history, best.l2, best.restart
        epochs = [row.epoch for row in trainer.history if row.restart == best.restart]
        self.n_iter_ = epochs[-1] if epochs else 0

    def _run_parameters(self) -> dict[str, Any]:
        """What decides the course of training, besides data and seed."""
        unimportant = ("callbacks", "checkpoint", "max_seconds", "n_threads", "verbose", "random_state")
        named = {k: v for k, v in self.get_params(deep=False).items() if k not in unimportant}
        scored = {"scoring": "a callable"} if callable(self.scoring) else {}
        kind = getattr(self, "_file_kind", self._kind)
        return named | self._told_apart() | scored | {"hidden": self._hidden} | {"estimator": kind}

    def _tree(self, trainer: Trainer, seed: int, run: dict[str, str]) -> Tree:
        """A checkpoint: the model with the best weights so far, and all that is needed to go on."""
        from meshnn.estimators._storage import to_tree

        self._sync_fitted_attributes(trainer)
        estimator: Any = self  # whatever resumes is one
        return to_tree(estimator, trainer.best.parameters) | {
            "training": {"seed": seed, "run": run, "state": trainer.state()}
        }

    def _resumed(self, checkpoint: Checkpoint, run: dict[str, str], seed: int) -> tuple[Resumed | None, int]:
        """What the same run left, and its seed."""
        seeded = isinstance(self.random_state, (int, np.integer))  # a generator has moved on since
        resumed = checkpoint.begin(run, seed if seeded else None)
        return resumed, seed if resumed is None else resumed.seed

    def _go_on(
        self, trainer: Trainer, checkpoint: Checkpoint, run: dict[str, str], resumed: Resumed | None, seed: int,
        saves: bool = True,
    ) -> None:  # fmt: skip
        """Give the trainer what was left, and the checkpoint what it is to save."""
        if resumed is not None:
            checkpoint.restore(resumed, trainer.restore)
            if verbosity(self.verbose):
                done = "a finished run" if trainer.finished else f"a run after {len(trainer.history)} rows"
                print(f"resuming from the checkpoint {checkpoint.path}: {done}", file=sys.stderr)
            if resumed.epochs < trainer.epochs:
                _say_it_is_longer(resumed.epochs, trainer)
        if saves:
            checkpoint.watch(lambda: self._tree(trainer, seed, run))


def _say_it_is_longer(before: int, trainer: Trainer) -> None:
    """A run with more epochs than it was begun with is not always the run that it would have been."""
    epochs, solver = trainer.epochs, trainer.choice.solver
    what = f"max_epochs was {before} when this run began and is {epochs} now"
    if trainer.finished:
        why = trainer.history[-1].note if len(trainer.history) else ""
        advice = "delete the checkpoint to start anew"
        warnings.warn(f"{what}, but the run had come to its end ({why}): {advice}", UserWarning, stacklevel=4)
        return
    schedule = solver.get_params().get("schedule", "")
    moved = [f"the {schedule} schedule of the rate"] * solver.comes_to_rest + ["policies"] * trainer.changes
    if moved:
        take = "take" if trainer.changes else "takes"
        message = f"{what}: {' and '.join(moved)} {take} the rest as that of a run of {epochs} epochs"
        warnings.warn(message, UserWarning, stacklevel=4)
