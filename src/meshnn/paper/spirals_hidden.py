"""`spirals-hidden`: accuracy on the spirals against the number of hidden neurons."""

from __future__ import annotations

from pathlib import Path

from meshnn.paper import recipes
from meshnn.paper.drawing import canvas, draw_means, label
from meshnn.paper.experiment import Experiment, Figure, Numbers, Options, Parameters, Record, Rows, grid
from meshnn.paper.sets import SETS
from meshnn.paper.tables import Mean, accuracy, grouped
from meshnn.plots import style

__all__ = ["SPIRALS_HIDDEN"]

#: hidden: mean and half width of the 95% interval in the paper's table
PAPER = {5: (0.75, 0.079), 7: (0.95, 0.029), 10: (0.94, 0.039), 13: (0.95, 0.026), 15: (0.99, 0.011)}
WAYS = {
    "paper": ("the paper's protocol", recipes.PAPER),
    "adam": ("ours with Adam", recipes.OURS_ADAM),
    "lm": ("ours with Levenberg-Marquardt", recipes.OURS_LM),
}


def _plan(options: Options) -> list[Parameters]:
    ways = WAYS if options.protocol == "ours" else ("paper",)
    return grid(way=ways, hidden=PAPER, trial=range(options.trials))


def _run(parameters: Parameters, options: Options) -> Numbers:
    seed, way = options.seed + parameters["trial"], parameters["way"]
    split = SETS["spirals"].split("paper" if way == "paper" else "ours", seed)
    how = WAYS[way][1] | {"hidden": parameters["hidden"], "random_state": seed}
    return recipes.fitted(split, how)[1]


def _means(records: list[Record]) -> dict[str, dict[int, Mean]]:
    return {
        way: {hidden: accuracy(trials) for hidden, trials in grouped(found, "hidden").items()}
        for way, found in grouped(records, "way").items()
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
    path = folder / "accuracy.png"
    lines = {"paper's table": {h: Mean(v, half, 0.0, 10) for h, (v, half) in PAPER.items()}}
    lines |= {WAYS[way][0]: found for way, found in _means(records).items()}
    with canvas(path, (7.0, 4.2)) as panels:
        ax = panels[0, 0]
        style.quiet_axes(ax)
        for k, (name, found) in enumerate(lines.items()):
            hidden = sorted(found)
            shifted = [h + 0.12 * (k - 1.5) for h in hidden]  # intervals side by side
            look = {"color": (style.FAINT, *style.CLASSES)[k], "marker": "osD^"[k], "ms": 5, "lw": 1.3, "capsize": 3}
            draw_means(ax, shifted, [found[h] for h in hidden], label=name, **look)
        ax.set_xticks(sorted(PAPER))
        ax.set_ylim(-0.02, 1.02)
        place = {"loc": "center right", "bbox_to_anchor": (1.0, 0.45)}
        title = "Spirals: accuracy against hidden neurons, 95% intervals"
        label(ax, title, "hidden neurons", "test accuracy", **place)
    return [Figure(path, "Test accuracy against hidden neurons.")]


REMARKS = (
    "The paper's protocol: ReLU everywhere, Adam at 0.001, 1000 full-batch epochs, 3 ticks as in the reference, "
    "and the reference's split, which tests on points of one class only. Its numbers are printed as measured; they "
    "do not come near the paper's table, most of all since the class it tests is the one it has seen least of.",
    "Ours: tanh, identity outputs, shuffled and stratified split, standardised features; Adam with mini-batches of "
    "64 and a cosine rate from 0.02 for 600 epochs, or the default Levenberg-Marquardt.",
)
SPIRALS_HIDDEN = Experiment(
    "spirals-hidden", "Spirals against hidden neurons", _plan, _run, _tables, _draw, remarks=REMARKS
)
