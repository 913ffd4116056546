"""A training run of `meshnn fit`: what interrupts it, and what is told about it at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from meshnn.cli.output import collect_warnings, print_json, save_somewhere, say_notes
from meshnn.cli.report import Report, show
from meshnn.errors import MeshError, TrainingInterrupted

__all__ = ["INTERRUPTED", "TERMINATED", "new_model", "nothing_learned", "tell", "train"]

#: Exit codes after Ctrl-C and after SIGTERM.
INTERRUPTED, TERMINATED = 130, 143


def new_model(task: str, options: dict[str, Any]) -> Any:
    """An estimator that is to be fitted."""
    from meshnn.estimators import MeshClassifier, MeshRegressor

    return MeshClassifier(**options) if task == "classify" else MeshRegressor(**options)


def train(fit: Callable[[], Any], terminated: list[int] | None = None) -> tuple[float, list[str], int]:
    """Seconds, what the user should know, and the exit code if training was interrupted, else 0.

    Whoever listens to SIGTERM already hands in the list in which it is noted.
    """
    from meshnn.training.signals import sigterm_interrupts

    caught: list[Warning] = []
    said: list[str] = []
    terminated = [] if terminated is None else terminated
    began, code = time.perf_counter(), 0
    with collect_warnings(caught):
        try:
            with sigterm_interrupts(terminated):
                fit()
        except TrainingInterrupted as stop:
            further = "" if stop.checkpoint is None else "; run the same command again to go on"
            said.append(f"interrupted after epoch {stop.epoch}: the best weights so far are kept{further}")
            code = TERMINATED if terminated else INTERRUPTED
    seconds = time.perf_counter() - began
    notes = [str(warning).replace("max_epochs", "--epochs") for warning in caught]
    return seconds, notes + said, code


def nothing_learned(code: int, what: str = "before the first epoch was done") -> typer.Exit:
    """The end of a run that was interrupted too early."""
    say_notes([f"interrupted {what}: nothing was learned, nothing is written"])
    return typer.Exit(code)


def tell(
    model: Any, facts: dict[str, Any], report: Report | None, trained: Report, seconds: float, notes: list[str],
    warned: list[str], out: Path | None, as_json: bool, code: int,
) -> None:  # fmt: skip
    """Save the model and say how good it is; `notes` have been said already, unless all is JSON."""
    failure: OSError | MeshError | None = None
    if out is not None:
        out, failure = save_somewhere(model, out)
    if as_json:
        print_json(facts | _as_dict(model, report, trained, seconds, notes + warned, out))
    else:
        say_notes(warned)
        show(Console(), model, report, trained, seconds, out)
    if failure is not None:
        raise MeshError(f"{failure}; the model was written to {out} instead")
    if code:
        raise typer.Exit(code)


def _as_dict(
    model: Any, report: Report | None, trained: Report, seconds: float, notes: list[str], out: Path | None
) -> dict[str, Any]:
    mesh = model.mesh_
    dead = int(mesh.dead_edges().sum())
    return {
        "classes": [str(c) for c in model.classes_] if hasattr(model, "classes_") else None,
        "test": None if report is None else report.to_dict(),
        "train": trained.to_dict(),
        "edges": mesh.topology.n_edges,
        "hidden": mesh.topology.n_hidden,
        "live_edges": mesh.topology.n_edges - dead,
        "ticks": mesh.ticks,
        "solver": model.solver_,
        "solver_reason": model.solver_reason_,
        "l2": model.l2_,
        "epochs": model.n_iter_,
        "loss": model.history_[-1].loss if len(model.history_) else None,
        "history_notes": model.history_.notes,
        "seconds": seconds,
        "notes": notes,
        "model": None if out is None else str(out),
    }
