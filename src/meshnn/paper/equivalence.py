"""`equivalence`: the paper's numerical test (as in `meshnn verify`), with a results file and a histogram."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from meshnn.paper.drawing import canvas, label
from meshnn.paper.experiment import Experiment, Figure, Json, PaperTable, TrialOptions, grid, grouped
from meshnn.plan import METHODS
from meshnn.plots import style
from meshnn.verify import TOLERANCE, ErrorInterval, VerifyReport, compare, references


def _run(parameters: Json, options: TrialOptions) -> Json:
    dtype, ticks, tests = parameters["dtype"], parameters["ticks"], parameters["tests"]
    found = list(compare(dtype, ticks, tests, options.seed, "relu", parameters["reference"]))
    return {
        "states": [one.states for one in found],
        "gradients": {method: [one.gradients[method] for one in found] for method in METHODS},
        "worst": {method: float(np.max([one.relative[method] for one in found])) for method in METHODS},
    }


def _tables(records: list[Json]) -> list[PaperTable]:
    rows = []
    for record in records:
        numbers, dtype, ticks = record["numbers"], record["parameters"]["dtype"], record["parameters"]["ticks"]
        for method in METHODS:
            worst = numbers["worst"][method]
            cells = (str(ErrorInterval.of(numbers["states"])), str(ErrorInterval.of(numbers["gradients"][method])))
            passed = worst is not None and worst <= TOLERANCE[dtype]
            shown = (f"{worst:.1e}" if worst else "0", "yes" if passed else "NO")
            rows.append((dtype, str(ticks), method, *cells, *shown))
    paper = (str(ErrorInterval(*VerifyReport.paper["states"])), str(ErrorInterval(*VerifyReport.paper["gradients"])))
    rows.append(("paper: float32", "1, 2", "tensor", *paper, "", ""))
    tests = records[0]["parameters"]["tests"]
    title = (
        f"Sums of absolute differences to {records[0]['parameters']['reference']} in float64, {tests} nets 5-10-3 "
        "with a dense matrix: mean and 95% interval"
    )
    headings = ("dtype", "ticks", "method", "states", "gradients", "worst relative difference", "within tolerance")
    return [PaperTable(title, headings, rows)]


def _draw(records: list[Json], folder: Path) -> list[Figure]:
    path = folder / "differences.png"
    with canvas(path, (9.0, 3.8), columns=2) as panels:
        for ax, (dtype, found) in zip(panels[0], grouped(records, "dtype").items(), strict=True):
            style.quiet_axes(ax)
            states = [v for r in found for v in r["numbers"]["states"]]
            gradients = [v for r in found for vs in r["numbers"]["gradients"].values() for v in vs]
            for name, colour, values in (("states", style.FAINT, states), ("gradients", style.POSITIVE, gradients)):
                shown = np.log10(np.maximum(np.array(values, dtype=np.float64), 1e-18))
                ax.hist(shown, bins=40, color=colour, alpha=0.65, label=f"{name}: {len(values):,} differences")
            if dtype == "float32":
                for name, dashes in (("gradients", "--"), ("states", ":")):
                    look = {"color": style.NEGATIVE, "lw": 1.2, "ls": dashes, "label": f"paper, {name}"}
                    ax.axvline(np.log10(VerifyReport.paper[name][0]), **look)
            ax.set_ylim(top=1.3 * ax.get_ylim()[1])  # space for the legend
            title = f"{dtype} against float64, ticks 1 to 5, all methods"
            label(ax, title, "log10 of the sum of absolute differences", "frequency", loc="upper left")
    return [Figure(path, "Differences of states and gradients to the reference.")]


experiment = Experiment(
    "equivalence", "Numerical equivalence",
    lambda options: grid(reference=references()[:1], dtype=TOLERANCE, ticks=range(1, 6), tests=[options.trials]), _run,
    _tables, _draw, version=2, trials=100, quick_trials=10,
    remarks=(
        "The paper compares nets without the edges into inputs and at 1 or 2 ticks, where its algorithm is correct. "
        "Here it is dense, with edges into inputs, self-loops and cycles, up to 5 ticks: the derivatives of clamped "
        "neurons must be zeroed, or gradients are wrong from 3 ticks on.",
    ),
)  # fmt: skip
