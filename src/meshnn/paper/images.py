"""`images`: sparse meshes against layered nets with as many connections, on features of pictures."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from meshnn.estimators import MeshClassifier
from meshnn.paper.drawing import canvas
from meshnn.paper.experiment import Experiment, Figure, Numbers, Options, Parameters, Record, Rows, grid
from meshnn.paper.features import Features, features, prepare_features
from meshnn.paper.mnist import DATASETS
from meshnn.paper.recipes import fit_whole, numbers_of
from meshnn.paper.tables import accuracy, grouped
from meshnn.plots import style
from meshnn.plots.matrix import scatter_edges
from meshnn.topology import Topology
from meshnn.training import structure

__all__ = ["IMAGES", "NETS", "ON_FEATURES", "Net", "graph_of", "trial_of"]


class Net(NamedTuple):
    """A row of the table."""

    title: str
    connections: int
    layers: tuple[int, int] | None = None  # hidden layers; a mesh of 50 hidden neurons if there are none
    density: float = 1.0  # share of the mesh's edges that it begins with
    learned: str = ""  # how its edges change: "pruned", "regrown", "both"
    paper: Mapping[str, tuple[float, float]] = {}  # mean and half width for each set


NETS = {
    "mesh-798": Net("MNN, 85% pruned at random", 798, density=0.15,
                    paper={"mnist": (0.772, 0.030), "fashion-mnist": (0.762, 0.005)}),
    "mlp-797": Net("MLP 14+13", 797, (14, 13), paper={"mnist": (0.761, 0.065), "fashion-mnist": (0.750, 0.026)}),
    "regrown-798": Net("MNN, regrown", 798, density=0.15, learned="regrown"),
    "pruned-798": Net("MNN, pruned while learning", 798, learned="pruned"),
    "both-798": Net("MNN, pruned and regrown", 798, learned="both"),
    "mesh-1044": Net("MNN, 80% pruned at random", 1044, density=0.20,
                     paper={"mnist": (0.796, 0.013), "fashion-mnist": (0.771, 0.004)}),
    "mlp-1047": Net("MLP 17+17", 1047, (17, 17), paper={"mnist": (0.789, 0.035), "fashion-mnist": (0.786, 0.013)}),
    "regrown-1044": Net("MNN, regrown", 1044, density=0.20, learned="regrown"),
    "pruned-1044": Net("MNN, pruned while learning", 1044, learned="pruned"),
    "both-1044": Net("MNN, pruned and regrown", 1044, learned="both"),
}  # fmt: skip
WITNESSED = (("mesh-1044", 2), ("mesh-1044", 3), ("mlp-1047", 3))
RATE, BATCH, EPOCHS, QUICK_EPOCHS = 0.015, 128, 15, 4


def _plan(options: Options) -> list[Parameters]:
    ours = options.protocol == "ours"
    trials: list[Parameters] = []
    for name in DATASETS:
        trials.append({"set": name, "net": "samples"})
        for net in (net for net in NETS if ours or NETS[net].paper):
            trials += grid(set=[name], net=[net], ticks=_ticks(NETS[net], options), trial=range(options.trials))
        for net, ticks in WITNESSED if ours else ():
            trials += grid(set=[name], net=[net], ticks=[ticks], trial=[0], engine=["adjoint", "torch"])
    return trials


def _engine(parameters: Parameters) -> str:
    return str(parameters.get("engine", "forward"))


def _ticks(net: Net, options: Options) -> tuple[int, ...]:
    if net.layers is not None or net.learned:
        return (3,)  # two hidden layers: three transitions
    return (2, 3) if options.protocol == "ours" else (2,)


def graph_of(net: Net, seed: int) -> Topology:
    """The graph that a net begins with; new random edges for every seed."""
    if net.layers is not None:
        topology = Topology.layered([32, *net.layers, 10])
    else:
        dense = Topology.mesh(32, 50, 10, self_loops=True, feedback=False)
        topology = dense if net.density == 1.0 else dense.prune(1 - net.density, random_state=seed)
    if net.density < 1.0 or net.layers is not None:
        assert topology.n_edges == net.connections, f"{net.title} has {topology.n_edges} connections"
    return topology


def policy_of(net: Net) -> Any:
    """How its edges change while it learns."""
    if net.learned == "pruned":
        return structure.Prune(to=net.connections)
    if net.learned == "both":
        return [structure.Prune(to=net.connections, end=0.5), structure.Regrow(every=1)]
    return structure.Regrow(every=1) if net.learned == "regrown" else None


def _options(options: Options) -> dict[str, Any]:
    shared = {
        "activation": "relu", "solver": "adam", "batch_size": BATCH, "tol": 0.0, "l2": 0.0, "n_jobs": 1,
        "max_epochs": QUICK_EPOCHS if options.quick else EPOCHS,
    }  # fmt: skip
    if options.protocol == "paper":
        plain = {"output_activation": "relu", "learning_rate": 0.001, "schedule": "constant", "standardize": False}
        return shared | plain
    return shared | {"learning_rate": RATE}


def _run(parameters: Parameters, options: Options) -> Numbers:
    data = features(parameters["set"], options)
    if parameters["net"] == "samples":
        shown = {"pictures": data.pictures, "reconstructed": data.reconstructed}
        return {name: base64.b64encode(array.tobytes()).decode() for name, array in shown.items()}
    return trial_of(NETS[parameters["net"]], parameters, options, data)


def trial_of(net: Net, parameters: Parameters, options: Options, data: Features) -> Numbers:
    """Train and test one net."""
    seed = options.seed + parameters["trial"]
    engine = _engine(parameters)
    gradient = "adjoint" if engine == "adjoint" else "forward"
    model = MeshClassifier(
        topology=graph_of(net, seed), ticks=parameters["ticks"], gradient=gradient, random_state=seed,
        structure=policy_of(net), **_options(options),
    )  # fmt: skip
    if engine == "torch":
        from meshnn.paper.autograd import score_by_autograd

        return {"accuracy": score_by_autograd(model, data, BATCH, RATE), "edges": model.mesh_.topology.n_edges}
    fit_whole(model, data.X, data.y)
    topology = model.mesh_.topology
    assert topology.n_edges == net.connections, f"{net.title} has {topology.n_edges} connections"
    numbers = numbers_of(model, data)
    if parameters["trial"] == 0 and engine == "forward" and topology.n_hidden == 50:
        numbers["src"], numbers["dst"] = topology.src.tolist(), topology.dst.tolist()
    return numbers


# -- tables ----------------------------------------------------------------------------------------------------------


def _tables(records: list[Record]) -> list[Rows]:
    trained = [r for r in records if r["parameters"]["net"] != "samples"]
    forward = [r for r in trained if _engine(r["parameters"]) == "forward"]
    rows = []
    for (net, ticks), found in grouped(forward, "net", "ticks").items():
        title, connections, paper = NETS[net].title, NETS[net].connections, NETS[net].paper
        live = round(float(np.mean([r["numbers"]["live"] for r in found])))
        cells = [title, str(ticks), f"{live} / {connections}"]
        for name in DATASETS:
            mine = accuracy(r for r in found if r["parameters"]["set"] == name)
            # the paper's n_t = 3 is two ticks
            said = paper.get(name) if ticks == 2 or NETS[net].layers is not None else None
            cells += [str(mine), f"{said[0]:.3f} ± {said[1]:.3f}" if said else ""]
        rows.append(tuple(cells))
    trials = max(r["parameters"]["trial"] for r in forward) + 1
    headings = ["net", "ticks", "live / all connections"]
    for source in DATASETS.values():
        headings += [source.title, f"paper, {source.title}"]
    tables = [Rows(f"Images: test rate, mean and 95% interval of {trials} trials", tuple(headings), rows)]
    witnesses = [r for r in trained if _engine(r["parameters"]) != "forward"]
    if witnesses:
        tables.append(_witness_table(trained, witnesses))
    return tables


def _witness_table(trained: list[Record], witnesses: list[Record]) -> Rows:
    keys = ("set", "net", "ticks")
    firsts = grouped((r for r in trained if r["parameters"]["trial"] == 0), *keys)
    rows = []
    for name, net, ticks in grouped(witnesses, *keys):
        same = {_engine(r["parameters"]): r["numbers"]["accuracy"] for r in firsts[name, net, ticks]}
        cells = (f"{same[engine]:.4f}" for engine in ("forward", "adjoint", "torch"))
        rows.append((DATASETS[name].title, NETS[net].title, str(ticks), *cells))
    title = "The same run, trial 0, with three ways to the gradient: test rate"
    note = "Same first weights, same batches, same rates, float32: sums are rounded in another order, and that is all."
    headings = ("set", "net", "ticks", "forward-only", "adjoint", "PyTorch autograd")
    return Rows(title, headings, rows, (note,))


# -- figures ---------------------------------------------------------------------------------------------------------


def _draw(records: list[Record], folder: Path) -> list[Figure]:
    figures = []
    for record in records:
        name, net = record["parameters"]["set"], record["parameters"]["net"]
        if net == "samples":
            path = folder / f"samples-{name}.png"
            _draw_samples(record["numbers"], path)
            caption = f"{DATASETS[name].title}: test pictures, and below what is left of them after 32 features."
            figures.append(Figure(path, caption))
        elif name == "mnist" and net in ("mesh-1044", "both-1044") and "src" in record["numbers"]:
            path = folder / f"adjacency-{net}-{record['parameters']['ticks']}-ticks.png"
            figures.append(Figure(path, _draw_matrix(record, path)))
    return figures


def _draw_samples(numbers: Numbers, path: Path) -> None:
    with canvas(path, (9.0, 2.0), rows=2, columns=10) as panels:
        for row, field in zip(panels, ("pictures", "reconstructed"), strict=True):
            held = np.frombuffer(base64.b64decode(numbers[field]), np.uint8).reshape(10, 28, 28)
            for ax, picture in zip(row, held, strict=True):
                ax.imshow(picture, cmap="gray_r", vmin=0, vmax=255)
                ax.set_axis_off()


def _draw_matrix(record: Record, path: Path) -> str:
    ticks, numbers = record["parameters"]["ticks"], record["numbers"]
    topology = Topology(32, 50, 10, np.stack([numbers["src"], numbers["dst"]], axis=1), bias=True)
    dead = topology.dead_edges(ticks)
    kind = "Learned" if "both" in record["parameters"]["net"] else "Random"
    edges, groups = np.stack([topology.src, topology.dst], axis=1), {"inputs, bias": 33, "hidden": 50, "outputs": 10}
    with canvas(path, (5.6, 5.6)) as panels:
        ax = panels[0, 0]
        parts = [(edges[~dead], style.POSITIVE, "live"), (edges[dead], style.DEAD, "dead")]
        scatter_edges(ax, groups, [(shown, colour, f"{name}: {len(shown)}") for shown, colour, name in parts])
        style.panel_title(ax, f"{kind} edges, 1044 connections, {ticks} ticks")
    return f"{kind} edges of trial 0: {int(dead.sum())} of 1044 cannot reach an output within {ticks} ticks."


#: What experiments on features of pictures need and prepare.
ON_FEATURES: dict[str, Any] = {
    "prepare": prepare_features,
    "needs": ("torch",),
    "quick_note": "30,000 pictures, 2 epochs of the auto-encoder and 4 of the nets: too few to compare with the paper",
}
REMARKS = (
    "32 features of a convolutional auto-encoder (5 epochs), standardised; Adam with a cosine rate from 0.015, "
    f"batches of {BATCH}, {EPOCHS} epochs, ReLU hidden neurons, identity outputs; new random edges in every trial; "
    "gradients forward-only.",
    "2 ticks are the paper's n_t = 3. At 2 ticks every hidden-to-hidden edge is dead: its effect cannot reach an "
    "output in time, its gradient is exactly zero. At 3 ticks they live.",
    "The paper finds its meshes ahead of layered nets with as many connections. With enough training for both, in "
    "a full run, random edges are behind; only 1044 of them at 3 ticks are level with the layers on MNIST.",
    "Edges that are learned are ahead of both in a full run. Pruned: begun with all 4980 edges, brought down to "
    "the budget within the first 60% of the epochs by the size of weights. Regrown: begun with random edges, of "
    "which the weakest are swapped every epoch for absent ones of large gradient. Both: pruned within half of the "
    "epochs and regrown.",
)
IMAGES = Experiment(
    "images", "MNIST and Fashion-MNIST", _plan, _run, _tables, _draw, version=2, remarks=REMARKS, **ON_FEATURES
)
