"""`iris`: ten runs, their mean and 3-sigma interval, loss and accuracy over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from meshnn.paper import recipes
from meshnn.paper.drawing import canvas, label
from meshnn.paper.experiment import Experiment, Figure, Numbers, Options, Parameters, Record, Rows, grid
from meshnn.paper.sets import iris_split
from meshnn.paper.tables import accuracy
from meshnn.plots import style

__all__ = ["IRIS"]

PAPER = "0.9700 ± 0.0162"


def _plan(options: Options) -> list[Parameters]:
    return grid(trial=range(options.trials))


def _run(parameters: Parameters, options: Options) -> Numbers:
    trial = parameters["trial"]
    split = iris_split(options.protocol, options.seed, trial)
    how = recipes.PAPER if options.protocol == "paper" else recipes.OURS_LM
    watch = recipes.Watch(split, scores=True)
    _, numbers = recipes.fitted(split, how | {"hidden": 10, "random_state": options.seed + trial}, watch)
    return numbers | {"curve": watch.curve()}


def _tables(records: list[Record]) -> list[Rows]:
    mean = accuracy(records)
    three = 3 * mean.deviation / np.sqrt(mean.trials)
    worst = min(r["numbers"]["accuracy"] for r in records)
    row = (str(mean.trials), str(mean._replace(half_width=float(three))), str(mean), f"{worst:.4f}", PAPER)
    headings = ("runs", "test accuracy, 3-sigma interval", "95% interval", "worst", "paper (3 sigma)")
    return [Rows("Iris, 10 hidden neurons", headings, [row])]


def _draw(records: list[Record], folder: Path) -> list[Figure]:
    path = folder / "learning.png"
    losses = {"loss": ("training loss", style.POSITIVE)}
    rates = {"train_accuracy": ("training", style.POSITIVE), "test_accuracy": ("test", style.NEGATIVE)}
    across = "iterations" if records[0]["numbers"]["solver"] == "lm" else "epochs"
    with canvas(path, (9.0, 3.8), columns=2) as panels:
        for ax, title, curves in zip(panels[0], ("Loss", "Accuracy"), (losses, rates), strict=True):
            style.quiet_axes(ax)
            for name, (shown, colour) in curves.items():
                epochs, low, middle, high = _band(records, name)
                ax.fill_between(epochs, low, high, color=colour, alpha=0.18, lw=0)
                ax.plot(epochs, middle, color=colour, lw=1.6, label=shown)
            label(ax, f"{title}: mean of {len(records)} runs, 3-sigma interval of the mean", across, "", loc="best")
        panels[0, 0].set_yscale("log")
    return [Figure(path, "Iris: loss and accuracy while learning; a run that has stopped keeps its last values.")]


def _band(records: list[Record], name: str) -> tuple[Any, Any, Any, Any]:
    """Epochs, lower end, mean and upper end over the runs."""
    curves = [r["numbers"]["curve"] for r in records]
    epochs = sorted({epoch for curve in curves for epoch in curve["epoch"]})
    values = []
    for curve in curves:
        at = np.searchsorted(curve["epoch"], epochs, side="right") - 1
        values.append(np.array([np.nan if v is None else v for v in curve[name]])[np.maximum(at, 0)])
    stacked = np.array(values)
    middle = stacked.mean(axis=0)
    half = 3 * stacked.std(axis=0, ddof=1) / np.sqrt(len(stacked)) if len(stacked) > 1 else 0 * middle
    low, high = middle - half, middle + half
    if name == "loss":  # its scale is logarithmic
        return epochs, np.maximum(low, stacked.min(axis=0) / 2), middle, high
    return epochs, np.maximum(low, 0.0), middle, np.minimum(high, 1.0)


REMARKS = (
    "Ours: the default estimator with 10 hidden neurons and 3 ticks on the first splits of "
    "StratifiedShuffleSplit (105 flowers to learn from, 45 to test on). How hard ten splits are differs by more "
    "than methods do: see the benchmarks page for other draws.",
    "The paper's protocol trains with ReLU outputs, which die, and tests on 40 of 45 flowers like its reference.",
)
IRIS = Experiment("iris", "Iris", _plan, _run, _tables, _draw, quick_trials=3, remarks=REMARKS)
