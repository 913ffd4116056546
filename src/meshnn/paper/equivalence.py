"""`equivalence`: the paper's numerical test, what `meshnn verify` does, as a results file and a histogram."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from meshnn.paper.experiment import Experiment, Figure, Numbers, Options, Record, Rows, Task
from meshnn.plan.cost import METHODS
from meshnn.verify import PAPER, TOLERANCE, Interval, compare, references

__all__ = ["EQUIVALENCE"]

TICKS = range(1, 6)


def _plan(options: Options) -> list[Task]:
    tests, reference = options.trials, references()[0]
    return [
        Task(
            f"{reference}/{dtype}/{ticks}/{tests}",
            {"dtype": dtype, "ticks": ticks, "tests": tests, "reference": reference},
        )
        for dtype in TOLERANCE
        for ticks in TICKS
    ]


def _run(parameters: dict[str, Any], options: Options) -> Numbers:
    dtype, ticks, tests = parameters["dtype"], parameters["ticks"], parameters["tests"]
    found = list(compare(dtype, ticks, tests, options.seed, "relu", parameters["reference"]))
    return {
        "states": [one.states for one in found],
        "gradients": {method: [one.gradients[method] for one in found] for method in METHODS},
        "worst": {method: float(np.max([one.relative[method] for one in found])) for method in METHODS},
    }


def _tables(records: list[Record]) -> list[Rows]:
    rows = []
    for record in records:
        numbers, (dtype, ticks) = record["numbers"], (record["parameters"][k] for k in ("dtype", "ticks"))
        for method in METHODS:
            worst = numbers["worst"][method]
            cells = (str(Interval.of(numbers["states"])), str(Interval.of(numbers["gradients"][method])))
            passed = worst is not None and worst <= TOLERANCE[dtype]
            rows.append(
                (dtype, str(ticks), method, *cells, f"{worst:.1e}" if worst else "0", "yes" if passed else "NO")
            )
    paper = (str(Interval(*PAPER["states"])), str(Interval(*PAPER["gradients"])))
    rows.append(("paper: float32", "1, 2", "tensor", *paper, "", ""))
    tests = records[0]["parameters"]["tests"]
    title = (
        f"Sums of absolute differences to {records[0]['parameters']['reference']} in float64, {tests} nets 5-10-3 "
        "with a dense matrix: mean and 95% interval"
    )
    headings = ("dtype", "ticks", "method", "states", "gradients", "worst relative difference", "within tolerance")
    return [Rows(title, headings, rows)]


def _draw(records: list[Record], folder: Path) -> list[Figure]:
    from matplotlib.figure import Figure as Canvas

    from meshnn.plots import save_figure, style

    with style.clean_style():
        figure = Canvas(figsize=(9.0, 3.8), layout="constrained")
        panels = figure.subplots(1, 2)
        for ax, dtype in zip(panels, TOLERANCE, strict=True):
            style.quiet_axes(ax)
            chosen = [r for r in records if r["parameters"]["dtype"] == dtype]
            for name, colour, values in (
                ("states", style.FAINT, [v for r in chosen for v in r["numbers"]["states"]]),
                (
                    "gradients",
                    style.POSITIVE,
                    [v for r in chosen for vs in r["numbers"]["gradients"].values() for v in vs],
                ),
            ):
                shown = np.log10(np.maximum(np.array(values, dtype=np.float64), 1e-18))
                ax.hist(shown, bins=40, color=colour, alpha=0.65, label=f"{name}: {len(values):,} differences")
            if dtype == "float32":
                ax.axvline(
                    np.log10(PAPER["gradients"][0]), color=style.NEGATIVE, lw=1.2, ls="--", label="paper, gradients"
                )
                ax.axvline(np.log10(PAPER["states"][0]), color=style.NEGATIVE, lw=1.2, ls=":", label="paper, states")
            ax.set_xlabel("log10 of the sum of absolute differences", fontsize=style.SMALL)
            ax.set_ylabel("how often", fontsize=style.SMALL)
            ax.set_ylim(top=1.3 * ax.get_ylim()[1])  # room for the legend
            ax.legend(**style.legend_options(loc="upper left"))
            style.panel_title(ax, f"{dtype} against float64, ticks 1 to {TICKS[-1]}, all methods")
    path = folder / "differences.png"
    save_figure(figure, path, dpi=110)
    return [Figure(path, "Differences of states and gradients to the reference.")]


EQUIVALENCE = Experiment(
    name="equivalence",
    title="Numerical equivalence",
    version=2,
    trials=100,
    quick_trials=10,
    plan=_plan,
    run=_run,
    tables=_tables,
    draw=_draw,
    remarks=(
        "The paper compares nets without the edges into inputs and at 1 or 2 ticks, where its algorithm is right. Here "
        "the matrix is dense, with edges into inputs, self-loops and cycles, up to 5 ticks: the derivatives of clamped "
        "neurons must be zeroed, or gradients are wrong from 3 ticks on.",
    ),
)
