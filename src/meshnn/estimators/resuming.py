"""How training continues: warm starts, and checkpoints, which tell a run from others."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from meshnn.errors import TrainingInterrupted
from meshnn.estimators.fit_data import ArrayData, OutOfCoreData
from meshnn.storage import Tree
from meshnn.training import Settings, Trainer
from meshnn.training.callbacks import Checkpoint, Resumed, fingerprint
from meshnn.training.solvers import Choice

if TYPE_CHECKING:
    from meshnn.estimators.base import BaseMesh

__all__ = ["as_before", "describe_run", "go_on", "interrupted", "resume"]


def as_before(model: BaseMesh, settings: Settings) -> tuple[Choice, Settings, tuple[str, Tree | None]]:
    """Return solver, settings and memory for a warm start: those of the earlier fit where none are given.

    Trying others on held-out samples would tell little: the net has learned from all of them.
    """
    asked = settings.asked != "auto"
    solver = next(each for each in settings.candidates if asked or each.name == model.solver_)
    choice = Choice(solver, "as asked for" if asked else "that of the fit before")
    state = model._solver_state if solver.warms and solver.name == model.solver_ else None
    if isinstance(settings.l2, str) and not model._l2_found:  # it was given before and is to be found now
        return choice, settings, ("", None)
    if settings.l2 == "auto" and (state is None or state["penalties"] is None):
        settings = replace(settings, l2=float(model.l2_))
    return choice, settings, (solver.name, state)


def interrupted(trainer: Trainer, checkpoint: Checkpoint | None) -> TrainingInterrupted:
    """Stop the trainer and save the checkpoint; return what to raise."""
    trainer.stop("interrupted", to_go_on=True)
    resume, path = "", None
    if checkpoint is not None:
        checkpoint.on_fit_end()
        if checkpoint.exists:
            path = checkpoint.path
            resume = f"; fit again with Checkpoint({str(path)!r}) to go on"
    epoch = trainer.history[-1].epoch if len(trainer.history) else 0
    kept = f"after epoch {epoch}: the best weights so far are kept" if epoch else "before its first epoch"
    return TrainingInterrupted(f"training was interrupted {kept}{resume}", epoch, path)


def _run_parameters(model: BaseMesh) -> dict[str, Any]:
    """Return what decides the course of training, besides data and seed."""
    unimportant = ("callbacks", "n_jobs", "verbose", "random_state")
    named = {k: v for k, v in model.get_params(deep=False).items() if k not in unimportant}
    stopping = model._stopping()
    if callable(stopping.scoring):
        stopping = replace(stopping, scoring="a callable")
    kind = model._preprocessing_type.kind + model._kind
    return named | model._comparable() | {"early_stopping": stopping, "estimator": kind}


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
