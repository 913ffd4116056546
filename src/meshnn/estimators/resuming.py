"""Checkpoints: what tells a run from others, and how it is taken up again."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from meshnn.estimators.fit_data import ArrayData, OutOfCoreData
from meshnn.storage import Tree
from meshnn.training import Trainer
from meshnn.training.callbacks import Checkpoint, Resumed, fingerprint

if TYPE_CHECKING:
    from meshnn.estimators.base import BaseMesh

__all__ = ["describe_run", "go_on", "resume"]


def _run_parameters(model: BaseMesh) -> dict[str, Any]:
    """Return what decides the course of training, besides data and seed."""
    unimportant = ("callbacks", "checkpoint", "max_seconds", "n_threads", "verbose", "random_state")
    named = {k: v for k, v in model.get_params(deep=False).items() if k not in unimportant}
    scored = {"scoring": "a callable"} if callable(model.scoring) else {}
    kind = model._preprocessing_type.kind + model._kind
    return named | model._comparable() | scored | {"estimator": kind}


def describe_run(model: BaseMesh, data: ArrayData | OutOfCoreData, again: bool) -> dict[str, str]:
    """Return a run in words: the same parameters and data give the same ones."""
    arrays, texts = data.described()
    arrays["weights"] = model.mesh_.weights if again else None
    if data.held_out is not None:
        arrays |= {"X_val": data.held_out.X, "y_val": data.held_out.targets}
    run = fingerprint(_run_parameters(model), arrays) | texts
    if again and hasattr(model, "_under_way"):
        run["weights"] = model._under_way  # an interrupted run goes on, whatever its weights are now
    model._under_way = run["weights"]
    return run


def resume(model: BaseMesh, checkpoint: Checkpoint, run: dict[str, str], seed: int) -> tuple[Resumed | None, int]:
    """Return what the same run has left, and its seed."""
    seeded = isinstance(model.random_state, (int, np.integer))  # a generator has moved on since
    resumed = checkpoint.begin(run, seed if seeded else None)
    return resumed, seed if resumed is None else resumed.seed


def go_on(
    model: BaseMesh, trainer: Trainer, checkpoint: Checkpoint, run: dict[str, str], resumed: Resumed | None, seed: int
) -> None:
    """Restore the trainer from what was left, and tell the checkpoint what to save."""
    from meshnn.estimators.storing import to_tree

    def tree() -> Tree:
        model._sync_fitted_attributes(trainer)
        training = {"seed": seed, "run": run, "state": trainer.state()}
        return to_tree(model, trainer.best.parameters) | {"training": training}

    if resumed is not None:
        checkpoint.restore(resumed, trainer.restore)
        if model._verbosity():
            done = "a finished run" if trainer.finished else f"a run after {len(trainer.history)} rows"
            print(f"resuming from the checkpoint {checkpoint.path}: {done}", file=sys.stderr)
        if resumed.epochs < trainer.epochs:
            _warn_longer(resumed.epochs, trainer)
    checkpoint.watch(tree)


def _warn_longer(before: int, trainer: Trainer) -> None:
    """Warn that a run with more epochs than it was begun with may differ from the run it would have been."""
    epochs, solver = trainer.epochs, trainer.choice.solver
    what = f"max_epochs was {before} when this run began and is {epochs} now"
    schedule = solver.get_params().get("schedule", "")
    moved = [f"the {schedule} schedule of the rate"] * solver.comes_to_rest + ["policies"] * trainer.changes
    message = f"{what}: {' and '.join(moved)} continue as in a run of {epochs} epochs" if moved else ""
    if trainer.finished:
        why = trainer.history[-1].note if len(trainer.history) else ""
        message = f"{what}, but the run had ended ({why}): delete the checkpoint to start anew"
    if message:
        warnings.warn(message, UserWarning, stacklevel=5)
