"""`spirals-hidden`: accuracy on the spirals against the number of hidden neurons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meshnn.paper import recipes
from meshnn.paper.experiment import Experiment, Figure, Numbers, Options, Record, Rows, Task
from meshnn.paper.sets import SETS
from meshnn.paper.tables import Mean, grouped

__all__ = ["SPIRALS_HIDDEN"]

#: hidden: mean and half width of the 95% interval in the paper's table
PAPER = {5: (0.75, 0.079), 7: (0.95, 0.029), 10: (0.94, 0.039), 13: (0.95, 0.026), 15: (0.99, 0.011)}
WAYS = {
    "paper": ("the paper's protocol", recipes.PAPER),
    "adam": ("ours with Adam", recipes.OURS_ADAM),
    "lm": ("ours with Levenberg-Marquardt", recipes.OURS_LM),
}


def _plan(options: Options) -> list[Task]:
    assert options.trials is not None
    return [
        Task(f"{way}/{hidden}/{trial}", {"way": way, "hidden": hidden, "trial": trial})
        for way in (WAYS if options.protocol == "ours" else ("paper",))
        for hidden in PAPER
        for trial in range(options.trials)
    ]


def _run(parameters: dict[str, Any], options: Options) -> Numbers:
    seed, way = options.seed + parameters["trial"], parameters["way"]
    split = SETS["spirals"].split("paper" if way == "paper" else "ours", seed)
    how = WAYS[way][1] | {"hidden": parameters["hidden"], "random_state": seed}
    return recipes.fitted(split, how)[1]


def _means(records: list[Record]) -> dict[str, dict[int, Mean]]:
    ways = grouped(records, lambda r: r["parameters"]["way"])
    return {
        way: {
            hidden: Mean.of(r["numbers"]["accuracy"] for r in trials)
            for hidden, trials in grouped(found, lambda r: r["parameters"]["hidden"]).items()
        }
        for way, found in ways.items()
    }


def _tables(records: list[Record]) -> list[Rows]:
    means = _means(records)
    rows = [
        (str(hidden), f"{PAPER[hidden][0]:.2f} ± {PAPER[hidden][1]:.3f}", *(str(means[way][hidden]) for way in means))
        for hidden in PAPER
    ]
    trials = max(mean.trials for found in means.values() for mean in found.values())
    title = f"Spirals: test accuracy against hidden neurons, mean and 95% interval of {trials} trials"
    return [Rows(title, ("hidden", "paper's table", *(WAYS[way][0] for way in means)), rows)]


def _draw(records: list[Record], folder: Path) -> list[Figure]:
    from matplotlib.figure import Figure as Canvas

    from meshnn.plots import save_figure, style

    means = _means(records)
    with style.clean_style():
        figure = Canvas(figsize=(7.0, 4.2), layout="constrained")
        ax = figure.add_subplot()
        style.quiet_axes(ax)
        lines = {"paper's table": {h: Mean(v, half, 0.0, 10) for h, (v, half) in PAPER.items()}}
        lines |= {WAYS[way][0]: found for way, found in means.items()}
        colours = (style.FAINT, *style.CLASSES)
        for k, (name, found) in enumerate(lines.items()):
            hidden = sorted(found)
            values = [found[h].value for h in hidden]
            halves = [
                [min(found[h].half_width, found[h].value) for h in hidden],
                [min(found[h].half_width, 1 - found[h].value) for h in hidden],
            ]  # no accuracy is below 0 or above 1
            marker = "osD^"[k % 4]
            shifted = [h + 0.12 * (k - 1.5) for h in hidden]  # intervals side by side
            ax.errorbar(
                shifted, values, yerr=halves, label=name, color=colours[k], marker=marker, ms=5, lw=1.3, capsize=3
            )
        ax.set_xticks(sorted(PAPER))
        ax.set_xlabel("hidden neurons", fontsize=style.SMALL, color=style.INK)
        ax.set_ylabel("test accuracy", fontsize=style.SMALL, color=style.INK)
        ax.set_ylim(-0.02, 1.02)
        ax.legend(**style.legend_options(loc="center right", bbox_to_anchor=(1.0, 0.45)))
        style.panel_title(ax, "Spirals: accuracy against hidden neurons, 95% intervals")
    path = folder / "accuracy.png"
    save_figure(figure, path, dpi=110)
    return [Figure(path, "Test accuracy against hidden neurons.")]


SPIRALS_HIDDEN = Experiment(
    name="spirals-hidden",
    title="Spirals against hidden neurons",
    version=1,
    trials=10,
    quick_trials=2,
    plan=_plan,
    run=_run,
    tables=_tables,
    draw=_draw,
    remarks=(
        "The paper's protocol: ReLU everywhere, Adam at 0.001, 1000 full-batch epochs, 3 ticks as in the reference, "
        "and the reference's split, which tests on points of one class only. Its numbers are printed as measured; they "
        "do not come near the paper's table, most of all since the class it tests is the one it has seen least of.",
        "Ours: tanh, identity outputs, shuffled and stratified split, standardised features; Adam with mini-batches of "
        "64 and a cosine rate from 0.02 for 600 epochs, or the default Levenberg-Marquardt.",
    ),
)
