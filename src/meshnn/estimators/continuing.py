"""Continued training: warm starts, checkpoints and `partial_fit`."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from meshnn.arguments import switch
from meshnn.errors import MeshError, TrainingInterrupted, warn
from meshnn.estimators.data import ArrayData, OutOfCoreData
from meshnn.estimators.scaling import Rotation, Scaling
from meshnn.storage import Tree
from meshnn.tables.sources import RowBlock
from meshnn.training import History, HistoryRow, Settings
from meshnn.training.callbacks import Checkpoint, Resumed, fingerprint
from meshnn.training.ensemble import Ensemble
from meshnn.training.reporting import print_row
from meshnn.training.solvers import SOLVERS, Choice, candidates

if TYPE_CHECKING:
    from meshnn.estimators.base import BaseMesh


def warm_start_settings(
    model: BaseMesh, settings: Settings, n_samples: int
) -> tuple[Choice, Settings, tuple[str, Tree | None]]:
    """Return the solver, settings and solver state of a warm start; values that are not given stay as in the last fit.

    There is no search on held-out samples, because the net was already trained on all samples.
    """
    asked = settings.asked != "auto"
    solver = next(each for each in settings.candidates if asked or each.name == model.solver_)
    choice = Choice(solver, "as asked for" if asked else "same solver as in the previous fit")
    live, columns = len(model.mesh_.live_parameters()), model._loss.columns(model.mesh_.topology.n_outputs)
    suits, reason = solver.suits(settings, live, n_samples, columns)
    if not asked and not suits:  # members of an ensemble are smaller than their union
        choice = Choice(next(each for each in settings.candidates if each.streams), reason)
        solver = choice.solver
    state = model._solver_state if solver.warm_starts_with_memory and solver.name == model.solver_ else None
    if isinstance(settings.l2, str) and not model._l2_searched:  # previously given, now to be searched
        return choice, settings, ("", None)
    if settings.l2 == "auto" and (state is None or state["penalties"] is None):
        settings = replace(settings, l2=float(model.l2_))
    return choice, settings, (solver.name, state)


def interrupted(trainer: Ensemble, checkpoint: Checkpoint | None) -> TrainingInterrupted:
    """Stop the trainer and save the checkpoint; return the exception to raise."""
    trainer.stop("interrupted", to_go_on=True)
    resume, path = "", None
    if checkpoint is not None:
        checkpoint.on_fit_end()
        if checkpoint.exists:
            path = checkpoint.path
            resume = f"; fit again with Checkpoint({str(path)!r}) to continue"
    epoch = trainer.history[-1].epoch if len(trainer.history) else 0
    kept = f"after epoch {epoch}: the best weights so far are kept" if epoch else "before its first epoch"
    return TrainingInterrupted(f"training was interrupted {kept}{resume}", epoch, path)


def describe_run(model: BaseMesh, data: ArrayData | OutOfCoreData, warm: bool) -> dict[str, str]:
    """Return fingerprints that identify a run: the parameters that affect training, and the data."""
    unimportant = ("callbacks", "n_jobs", "verbose", "random_state")
    named = {k: v for k, v in model.get_params(deep=False).items() if k not in unimportant}
    net = model._builder_type(model, model._loss, model._settings()).identity()
    stopping = model._stopping()
    if callable(stopping.scoring):
        stopping = replace(stopping, scoring="a callable")
    named |= {"hidden": net["hidden"], "mesh": net["mesh"], "early_stopping": stopping}
    named["estimator"] = model._preprocessing_type.kind + model._kind
    arrays, texts = data.identity()
    arrays["weights"] = model.mesh_.weights if warm else None
    if data.held_out is not None:
        arrays |= {"X_val": data.held_out.X, "y_val": data.held_out.y}
    run = fingerprint(named, arrays) | texts
    if warm and hasattr(model, "_start_fingerprint"):
        run["weights"] = model._start_fingerprint  # the weights of an interrupted run have changed
    model._start_fingerprint = run["weights"]
    return run


def attach_checkpoint(
    model: BaseMesh, trainer: Ensemble, checkpoint: Checkpoint, run: dict[str, str], resumed: Resumed | None, seed: int
) -> None:
    """Restore the trainer from the checkpoint of the same run, if any, and let the checkpoint save it from now on."""
    from meshnn.estimators.storing import to_tree

    def tree() -> Tree:
        model._sync_fitted_attributes(trainer)
        state = trainer.state()
        if isinstance(model.preprocessing_.transform, Rotation):
            state["axes"] = model.preprocessing_.transform.axes
        training = {"seed": seed, "run": run, "state": state}
        return to_tree(model, model._merged(trainer)) | {"training": training}

    if resumed is not None:
        checkpoint.restore(resumed, trainer.restore)
        if model._verbosity():
            rows = trainer.history
            epoch = f" (epoch {rows[-1].epoch})" if len(rows) else ""
            done = "a finished run" if trainer.finished else f"after {len(rows)} history rows{epoch}"
            print(f"resuming from the checkpoint {checkpoint.path}: {done}", file=sys.stderr)
        if resumed.epochs < trainer.epochs and (
            trainer.finished or trainer.changes or trainer.choice.solver.decays_to_zero
        ):
            what = f"max_epochs was {resumed.epochs} when this run began and is {trainer.epochs} now"
            ended = f": the run had ended ({trainer.history[-1].note}); delete the checkpoint to start a new run"
            moved = ": the learning rate schedule and the policies continue as in a run of the new length"
            warn(what + (ended if trainer.finished else moved))
    checkpoint.watch(tree)


def supports_partial_fit(estimator: Any) -> bool:
    """Return whether the estimator has `partial_fit`; AttributeError explains why not."""
    if not estimator._out_of_core:
        raise AttributeError("estimators of sequences have no partial_fit; use fit")
    asked = candidates(estimator.solver)
    if not any(solver.streams for solver in asked):
        able = ", ".join(f'"{kind.name}"' for kind in SOLVERS if kind.streams)
        raise AttributeError(f'partial_fit needs solver={able} or "auto": {asked[0].name} needs all samples at once')
    return True


def partial_fit_pass(model: BaseMesh, X: Any, y: Any, sample_weight: Any, **attributes: Any) -> None:
    """Train for one epoch at a constant learning rate; the state of the solver is kept between calls."""
    with model._restored_on_error():
        model.__dict__.update(attributes)
        row = _train_one_epoch(model, X, y, sample_weight)
    if model._verbosity() > 1:
        print_row(row)
    for callback in model._callbacks():
        callback.on_epoch_end(row, model.mesh_)


def _train_one_epoch(model: BaseMesh, X: Any, y: Any, sample_weight: Any) -> HistoryRow:
    """Train for one epoch, append a row to the history and return the row."""
    if model.structure is not None:
        raise MeshError("partial_fit cannot change the graph; set structure=None, or use fit")
    settings, first = model._settings(), not hasattr(model, "mesh_")
    found, part, n_outputs = model._checked(X, y, sample_weight, None if first else model.preprocessing_, False)
    solver: Any = next(each for each in settings.candidates if each.streams)
    solver = replace(solver, schedule="constant")
    # A stream has no hold-out set for a new search: keep a penalty that was found.
    l2 = model.l2_ if isinstance(settings.l2, str) and not first else settings.fixed_l2
    settings = replace(settings, solver=solver, max_epochs=1, l2=l2)
    builder = model._builder_type(model, model._loss, settings)
    if first:
        seeds = np.random.SeedSequence(model._seed()).generate_state(2)
        builder.resolve(found.width, n_outputs)
        found = found.scaled(part, model._loss, model.standardize, builder.output_activation)
        model._build(builder, found, part.X.shape[0], n_outputs, int(seeds[0]), stream=True)
        model._stream_seed, model._solver_state, model._stream_weight = int(seeds[1]), None, 0.0
        model.history_, model.n_iter_, model.best_restart_ = History(), 0, 0
    else:
        model._continue(builder, found.width, n_outputs)
    _adapt_scaling(model, part, first)
    samples = model.preprocessing_.dataset(model.mesh_, part, model._loss)
    run = solver.start(model.mesh_, samples, settings, np.random.default_rng(model._stream_seed))
    if model._solver_state is not None and model.solver_ == solver.name:
        run.recall(model._solver_state)
    model._reset_derived_attributes("partial_fit has not seen all samples; use fit")
    began = time.perf_counter()
    progress = run.advance(1)
    model.solver_, model.solver_reason_ = solver.name, "partial_fit takes first-order steps"
    model._solver_state, model.l2_, model._l2_searched = run.memory(), run.l2, isinstance(model.l2, str)
    model.n_iter_ += 1
    spent = model.history_[-1].seconds if len(model.history_) else 0.0
    accuracy = samples.accuracy(progress.correct) if model._loss.classifies else math.nan
    measured = (math.nan, accuracy, progress.gradient_norm, progress.rate, spent + time.perf_counter() - began)
    edges, restart = model.mesh_.topology.n_edges, model.best_restart_
    row = HistoryRow(model.n_iter_, progress.loss, *measured, edges, restart, progress.note)
    model.history_.append(row)
    return row


def _adapt_scaling(model: BaseMesh, part: RowBlock, first: bool) -> None:
    """Update the scaling of a stream to that of all samples so far; a scaling from `fit` is not changed.

    The weights stay, so the function of the net changes with the scaling, but less and less. Adapting the weights would
    keep the function exactly, but leaves saturated neurons: on 8 streams the mean score was 0.12 instead of 0.51.
    """
    if not switch("standardize", model.standardize) or not (first or model._stream_weight > 0.0):
        return
    weight = float(part.X.shape[0] if part.weight is None else part.weight.sum())
    if not first:
        more = Scaling.learn(*part, True, model._loss, model.mesh_.activations[-1])
        joined = model.preprocessing_.scaling.joined(more, weight / (model._stream_weight + weight))
        model.preprocessing_ = replace(model.preprocessing_, scaling=joined)
    model._stream_weight += weight
