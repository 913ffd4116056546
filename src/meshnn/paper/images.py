"""`images` and `connections`: sparse meshes against layered nets with equally many connections, on image features."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from meshnn.paper.drawing import canvas, draw_means, label
from meshnn.paper.experiment import Experiment, Figure, Json, Mean, PaperTable, TrialOptions, accuracy, grid, grouped
from meshnn.paper.features import ImageFeatures, features, prepare_features
from meshnn.paper.mnist import DATASETS
from meshnn.paper.recipes import classifier, fit_whole, numbers_of
from meshnn.plots import style
from meshnn.plots.matrix import scatter_edges
from meshnn.topology import Topology
from meshnn.training import Adam, structure

#: Kinds of nets with their titles.
KINDS = {
    "mlp": "layers", "mesh": "random edges", "regrown": "regrown", "pruned": "pruned while learning",
    "both": "pruned and regrown",
}  # fmt: skip


class ComparedNet(NamedTuple):
    """A net of the comparison."""

    title: str
    kind: str
    connections: int
    layers: tuple[int, int] = (0, 0)  # the hidden layers of an MLP; all others are meshes of 50 hidden neurons
    density: float = 1.0  # fraction of the edges of the mesh at the start
    paper: Mapping[str, tuple[float, float]] = {}  # mean and half width for each set


def net_of(kind: str, size: int) -> ComparedNet:
    """Return a net with `size` connections; a net of two equal layers has at most `size`."""
    if kind == "mlp":
        return [net for h in range(1, 200) if (net := _layered_net(h, h)).connections <= size][-1]
    if kind in ("pruned", "both"):
        return ComparedNet(f"MNN, {KINDS[kind]}", kind, size)
    density = (size - 60) / 4920  # a dense mesh has (32 + 50) * 60 = 4920 edges, and 60 of the bias
    title = f"MNN, {1 - density:.0%} pruned at random" if kind == "mesh" else f"MNN, {KINDS[kind]}"
    return ComparedNet(title, kind, size, density=density)


def _layered_net(a: int, b: int) -> ComparedNet:
    return ComparedNet(f"MLP {a}+{b}", "mlp", 33 * a + (a + 1) * b + 10 * (b + 1), (a, b))


def _nets(size: int, layered: ComparedNet, *paper: tuple[float, float]) -> dict[str, ComparedNet]:
    """Return the nets of one size; `paper` holds the paper's meshes, then layers, on MNIST and Fashion-MNIST."""
    mesh = net_of("mesh", size)._replace(paper=dict(zip(DATASETS, paper[:2], strict=True)))
    layered = layered._replace(paper=dict(zip(DATASETS, paper[2:], strict=True)))
    nets = (mesh, layered, *(net_of(kind, size) for kind in ("regrown", "pruned", "both")))
    return {f"{net.kind}-{net.connections}": net for net in nets}


NETS = _nets(798, _layered_net(14, 13), (0.772, 0.030), (0.762, 0.005), (0.761, 0.065), (0.750, 0.026))
NETS |= _nets(1044, _layered_net(17, 17), (0.796, 0.013), (0.771, 0.004), (0.789, 0.035), (0.786, 0.013))


def _plan(options: TrialOptions) -> list[Json]:
    ours = options.protocol == "ours"
    trials: list[Json] = []
    for name in DATASETS:
        trials.append({"set": name, "net": "samples"})
        for key, net in NETS.items():
            if ours or net.paper:
                trials += grid(set=[name], net=[key], ticks=_ticks(net, options), trial=range(options.trials))
        for key, ticks in (("mesh-1044", 2), ("mesh-1044", 3), ("mlp-1047", 3)) if ours else ():
            trials += grid(set=[name], net=[key], ticks=[ticks], trial=[0], engine=["adjoint", "torch"])
    return trials


def _engine(parameters: Json) -> str:
    return str(parameters.get("engine", "forward"))


def _ticks(net: ComparedNet, options: TrialOptions) -> tuple[int, ...]:
    if net.kind != "mesh":
        return (3,)  # three ticks for two hidden layers
    return (2, 3) if options.protocol == "ours" else (2,)


def graph_of(net: ComparedNet, seed: int) -> Topology:
    """Return the initial graph of a net; every seed has different random edges."""
    if net.kind == "mlp":
        return Topology.layered([32, *net.layers, 10])
    dense = Topology.mesh(32, 50, 10, self_loops=True, feedback=False)
    return dense if net.density == 1.0 else dense.prune(1 - net.density, random_state=seed)


def policy_of(net: ComparedNet) -> Any:
    """Return the policy that changes its edges during training."""
    policies = {
        "pruned": structure.Prune(to=net.connections),
        "regrown": structure.Regrow(every=1),
        "both": [structure.Prune(to=net.connections, end=0.5), structure.Regrow(every=1)],
    }
    return policies.get(net.kind)


def _options(options: TrialOptions) -> Json:
    shared = {
        "activation": "relu", "batch_size": 128, "tol": 0.0, "l2": 0.0, "n_jobs": 1,
        "max_epochs": 4 if options.quick else 15,
    }  # fmt: skip
    if options.protocol == "paper":
        solver = Adam(learning_rate=0.001, schedule="constant")
        return shared | {"output_activation": "relu", "solver": solver, "standardize": False}
    return shared | {"solver": Adam(learning_rate=0.015)}


def _run(parameters: Json, options: TrialOptions) -> Json:
    data = features(parameters["set"], options)
    if parameters["net"] == "samples":
        shown = {"pictures": data.pictures, "reconstructed": data.reconstructed}
        return {name: base64.b64encode(array.tobytes()).decode() for name, array in shown.items()}
    return trial_of(NETS[parameters["net"]], parameters, options, data)


def trial_of(net: ComparedNet, parameters: Json, options: TrialOptions, data: ImageFeatures) -> Json:
    """Train and test one net."""
    seed = options.seed + parameters["trial"]
    engine = _engine(parameters)
    how = _options(options) | {"gradient": "adjoint" if engine == "adjoint" else "forward", "structure": policy_of(net)}
    model = classifier(mesh=graph_of(net, seed), ticks=parameters["ticks"], random_state=seed, **how)
    if engine == "torch":
        from meshnn.paper.autograd import score_by_autograd

        return {"accuracy": score_by_autograd(model, data, 128, 0.015), "edges": model.mesh_.topology.n_edges}
    fit_whole(model, data.X, data.y)
    topology = model.mesh_.topology
    assert topology.n_edges == net.connections, f"{net.title} has {topology.n_edges} connections"
    numbers = numbers_of(model, data)
    if parameters["trial"] == 0 and engine == "forward" and topology.n_hidden == 50:
        numbers["src"], numbers["dst"] = topology.src.tolist(), topology.dst.tolist()
    return numbers


# -- tables ----------------------------------------------------------------------------------------------------------


def _tables(records: list[Json]) -> list[PaperTable]:
    trained = [r for r in records if r["parameters"]["net"] != "samples"]
    forward = [r for r in trained if _engine(r["parameters"]) == "forward"]
    rows = []
    for (net, ticks), found in grouped(forward, "net", "ticks").items():
        live = round(float(np.mean([r["numbers"]["live"] for r in found])))
        cells = [NETS[net].title, str(ticks), f"{live} / {NETS[net].connections}"]
        for name in DATASETS:
            mine = accuracy(r for r in found if r["parameters"]["set"] == name)
            # the paper's n_t = 3 equals two ticks
            reported = NETS[net].paper.get(name) if ticks == 2 or NETS[net].kind == "mlp" else None
            cells += [str(mine), f"{reported[0]:.3f} ± {reported[1]:.3f}" if reported else ""]
        rows.append(tuple(cells))
    trials = max(r["parameters"]["trial"] for r in forward) + 1
    headings = ["net", "ticks", "live / all connections"]
    for source in DATASETS.values():
        headings += [source.title, f"paper, {source.title}"]
    tables = [PaperTable(f"Images: test rate, mean and 95% interval of {trials} trials", tuple(headings), rows)]
    witnesses = [r for r in trained if _engine(r["parameters"]) != "forward"]
    if witnesses:
        tables.append(_witness_table(trained, witnesses))
    return tables


def _witness_table(trained: list[Json], witnesses: list[Json]) -> PaperTable:
    keys = ("set", "net", "ticks")
    firsts = grouped((r for r in trained if r["parameters"]["trial"] == 0), *keys)
    rows = []
    for name, net, ticks in grouped(witnesses, *keys):
        same = {_engine(r["parameters"]): r["numbers"]["accuracy"] for r in firsts[name, net, ticks]}
        cells = (f"{same[engine]:.4f}" for engine in ("forward", "adjoint", "torch"))
        rows.append((DATASETS[name].title, NETS[net].title, str(ticks), *cells))
    title = "The same run, trial 0, with three gradient methods: test rate"
    note = "Same initial weights, batches and learning rates, in float32; only the order of rounding in sums differs."
    headings = ("set", "net", "ticks", "forward-only", "adjoint", "PyTorch autograd")
    return PaperTable(title, headings, rows, (note,))


# -- figures ---------------------------------------------------------------------------------------------------------


def _draw(records: list[Json], folder: Path) -> list[Figure]:
    figures = []
    for record in records:
        name, net = record["parameters"]["set"], record["parameters"]["net"]
        if net == "samples":
            path = folder / f"samples-{name}.png"
            _draw_samples(record["numbers"], path)
            caption = f"{DATASETS[name].title}: test images, and below their reconstructions from 32 features."
            figures.append(Figure(path, caption))
        elif name == "mnist" and net in ("mesh-1044", "both-1044") and "src" in record["numbers"]:
            path = folder / f"adjacency-{net}-{record['parameters']['ticks']}-ticks.png"
            figures.append(Figure(path, _draw_matrix(record, path)))
    return figures


def _draw_samples(numbers: Json, path: Path) -> None:
    with canvas(path, (9.0, 2.0), rows=2, columns=10) as panels:
        for row, field in zip(panels, ("pictures", "reconstructed"), strict=True):
            held = np.frombuffer(base64.b64decode(numbers[field]), np.uint8).reshape(10, 28, 28)
            for ax, picture in zip(row, held, strict=True):
                ax.imshow(picture, cmap="gray_r", vmin=0, vmax=255)
                ax.set_axis_off()


def _draw_matrix(record: Json, path: Path) -> str:
    ticks, numbers = record["parameters"]["ticks"], record["numbers"]
    topology = Topology(32, 50, 10, np.stack([numbers["src"], numbers["dst"]], axis=1), bias=True)
    dead = topology.dead_edges(ticks)
    kind = "Learned" if "both" in record["parameters"]["net"] else "Random"
    edges, groups = np.stack([topology.src, topology.dst], axis=1), {"inputs, bias": 33, "hidden": 50, "outputs": 10}
    with canvas(path, (5.6, 5.6)) as panels:
        ax = panels[0, 0]
        parts = [(edges[~dead], style.POSITIVE, "live"), (edges[dead], style.FAINT, "dead")]
        scatter_edges(ax, groups, [(shown, colour, f"{name}: {len(shown)}") for shown, colour, name in parts])
        style.panel_title(ax, f"{kind} edges, 1044 connections, {ticks} ticks")
    return f"{kind} edges of trial 0: {int(dead.sum())} of 1044 cannot reach an output within {ticks} ticks."


# -- connections --------------------------------------------------------------------------------------------------


def _connections_plan(options: TrialOptions) -> list[Json]:
    sizes = (300, 798, 1500, 3000) if options.quick else (300, 500, 798, 1044, 1500, 2000, 3000)
    return grid(set=DATASETS, kind=KINDS, size=sizes, trial=range(options.trials))


def _connections_run(parameters: Json, options: TrialOptions) -> Json:
    net = net_of(parameters["kind"], parameters["size"])
    numbers = trial_of(net, parameters | {"ticks": 3}, options, features(parameters["set"], options))
    return {key: numbers[key] for key in ("accuracy", "edges", "live", "seconds")}


def _connections_means(records: list[Json]) -> dict[tuple[str, str], dict[int, tuple[Mean, int]]]:
    """Return test rates and numbers of connections, by set and kind, then by size."""
    means: dict[tuple[str, str], dict[int, tuple[Mean, int]]] = {}
    for (name, kind, size), trials in grouped(records, "set", "kind", "size").items():
        means.setdefault((name, kind), {})[size] = accuracy(trials), trials[0]["numbers"]["edges"]
    return means


def _connections_tables(records: list[Json]) -> list[PaperTable]:
    means = _connections_means(records)
    sizes = list(next(iter(means.values())))
    trials = max(mean.trials for found in means.values() for mean, _ in found.values())
    tables = []
    for name in dict.fromkeys(name for name, _ in means):
        rows = [
            (str(size), str(means[name, "mlp"][size][1]), *(str(means[name, kind][size][0]) for kind in KINDS))
            for size in sizes
        ]
        title = f"{DATASETS[name].title}: test rate against connections, mean and 95% interval of {trials} trials"
        tables.append(PaperTable(title, ("connections", "of the layers", *KINDS.values()), rows))
    return tables


def _connections_draw(records: list[Json], folder: Path) -> list[Figure]:
    means, path = _connections_means(records), folder / "connections.png"
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


#: Common fields of the experiments on image features.
_on_features: dict[str, Any] = {
    "prepare": prepare_features,
    "needs": ("torch",),
    "quick_note": "30,000 pictures, 2 epochs of the auto-encoder and 4 of the nets: not comparable with the paper",
}
experiments = (
    Experiment(
        "images", "MNIST and Fashion-MNIST", _plan, _run, _tables, _draw, version=2,
        remarks=(
            "32 features of a convolutional auto-encoder (5 epochs), standardised; Adam with a cosine rate from "
            "0.015, batches of 128, 15 epochs, ReLU hidden neurons, identity outputs; new random edges per trial.",
            "2 ticks are the paper's n_t = 3. At 2 ticks every hidden-to-hidden edge is dead, its gradient zero.",
            "In the paper, meshes are better than layered nets with equally many connections. With enough training for "
            "both, random edges are worse, except for 1044 at 3 ticks, which equal the layers on MNIST.",
            "Learned edges are best. Pruned: from all 4980 edges to the budget within 60% of the epochs, by "
            "the size of weights. Regrown: from random edges, the weakest replaced every epoch by absent ones of "
            "large gradient. Both: pruned within half of the epochs, and regrown.",
        ),
        **_on_features,
    ),
    Experiment(
        "connections", "Accuracy against connections", _connections_plan, _connections_run,
        _connections_tables, _connections_draw, version=2, trials=5,
        remarks=(
            "Features, training and budget of epochs as in the image experiment; meshes of 50 hidden neurons at 3 "
            "ticks, layered nets with two equal hidden layers of at most as many connections.",
        ),
        **_on_features,
    ),
)  # fmt: skip
