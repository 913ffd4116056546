"""`connections`: test rate against the number of connections, for layers, random, regrown and pruned edges."""

from __future__ import annotations

from pathlib import Path

from meshnn.paper.drawing import canvas, draw_means, label
from meshnn.paper.experiment import Experiment, Figure, Numbers, Options, Parameters, Record, Rows, grid
from meshnn.paper.features import features
from meshnn.paper.images import ON_FEATURES, Net, trial_of
from meshnn.paper.mnist import DATASETS
from meshnn.paper.tables import Mean, accuracy, grouped
from meshnn.plots import style

__all__ = ["CONNECTIONS"]

SIZES = (300, 500, 798, 1044, 1500, 2000, 3000)
KINDS = {
    "mlp": "layers",
    "random": "random edges",
    "regrown": "regrown",
    "pruned": "pruned while learning",
    "both": "pruned and regrown",
}
#: Edges of the mesh: (32 + 50) * 60, and 60 of the bias.
DENSE = 4920


def _plan(options: Options) -> list[Parameters]:
    sizes = SIZES[::2] if options.quick else SIZES
    return grid(set=DATASETS, kind=KINDS, size=sizes, trial=range(options.trials))


def _net(kind: str, size: int) -> Net:
    if kind == "mlp":
        # the largest two equal layers that fit: 33 h + h (h + 1) + 10 (h + 1) connections
        h = max(h for h in range(1, 200) if 33 * h + h * (h + 1) + 10 * (h + 1) <= size)
        return Net(f"MLP {h}+{h}", 33 * h + h * (h + 1) + 10 * (h + 1), (h, h))
    if kind in ("pruned", "both"):
        return Net(kind, size, learned=kind)
    return Net(kind, size, density=(size - 60) / DENSE, learned="" if kind == "random" else "regrown")


def _run(parameters: Parameters, options: Options) -> Numbers:
    net = _net(parameters["kind"], parameters["size"])
    numbers = trial_of(net, parameters | {"ticks": 3}, options, features(parameters["set"], options))
    return {key: numbers[key] for key in ("accuracy", "edges", "live", "seconds")}


def _means(records: list[Record]) -> dict[tuple[str, str], dict[int, tuple[Mean, int]]]:
    """By set and kind, then size: the test rate and the connections there are."""
    return {
        place: {
            size: (accuracy(trials), trials[0]["numbers"]["edges"]) for size, trials in grouped(found, "size").items()
        }
        for place, found in grouped(records, "set", "kind").items()
    }


def _tables(records: list[Record]) -> list[Rows]:
    means = _means(records)
    sizes = list(next(iter(means.values())))
    trials = max(mean.trials for found in means.values() for mean, _ in found.values())
    tables = []
    for name in dict.fromkeys(name for name, _ in means):
        rows = [
            (str(size), str(means[name, "mlp"][size][1]), *(str(means[name, kind][size][0]) for kind in KINDS))
            for size in sizes
        ]
        title = f"{DATASETS[name].title}: test rate against connections, mean and 95% interval of {trials} trials"
        tables.append(Rows(title, ("connections", "of the layers", *KINDS.values()), rows))
    return tables


def _draw(records: list[Record], folder: Path) -> list[Figure]:
    means, path = _means(records), folder / "connections.png"
    names = list(dict.fromkeys(name for name, _ in means))
    with canvas(path, (10.5, 4.2), columns=len(names)) as panels:
        for ax, name in zip(panels[0], names, strict=True):
            style.quiet_axes(ax)
            for k, (kind, shown) in enumerate(KINDS.items()):
                found, edges = zip(*means[name, kind].values(), strict=True)
                look = {"color": style.CLASSES[k], "marker": "sD^ov"[k], "ms": 4, "lw": 1.4, "capsize": 2}
                draw_means(ax, edges, found, label=shown, **look)
            ax.set_xscale("log")
            ax.set_xticks([300, 500, 1000, 2000, 3000], ["300", "500", "1000", "2000", "3000"])
            ax.minorticks_off()
            label(ax, DATASETS[name].title, "connections", "test rate", loc="lower right")
    return [Figure(path, "Test rate against the number of connections, 3 ticks, 95% intervals.")]


REMARKS = (
    "Features, training and budget of epochs as in the image experiment; meshes of 50 hidden neurons at 3 ticks, "
    "layered nets with two equal hidden layers of at most as many connections.",
)
CONNECTIONS = Experiment(
    "connections", "Accuracy against connections", _plan, _run, _tables, _draw, trials=5, remarks=REMARKS, **ON_FEATURES
)
