"""Training by the paper's protocol and by ours, and the results of a trained net."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning

from meshnn.errors import MeshError, TrainingInterrupted
from meshnn.estimators import MeshClassifier
from meshnn.mesh import Mesh
from meshnn.paper.experiment import Json
from meshnn.paper.sets import Split
from meshnn.topology import Topology
from meshnn.training import Adam

#: Titles and estimator parameters per protocol.
PROTOCOLS: dict[str, tuple[str, Json]] = {
    # ReLU on all units including outputs; Adam, rate 0.001, 1000 epochs "with batch method", unscaled features; three
    # transitions, as in the reference's notebooks
    "paper": ("the paper's protocol", {
        "ticks": 3, "activation": "relu", "output_activation": "relu", "batch_size": None, "max_epochs": 1000,
        "tol": 0.0, "solver": Adam(learning_rate=0.001, schedule="constant"), "l2": 0.0, "standardize": False,
    }),
    # first-order solver with a sufficient number of epochs
    "adam": ("ours with Adam", {
        "ticks": 3, "activation": "tanh", "solver": Adam(learning_rate=0.02), "batch_size": 64, "max_epochs": 600,
        "tol": 0.0, "l2": 1e-4,
    }),
    # second-order solver with the regularisation strength from the evidence, for sets with little noise
    "lm": ("ours with Levenberg-Marquardt", {"ticks": 3, "activation": "tanh", "solver": "lm", "l2": "evidence"}),
}  # fmt: skip


class Recorder:
    """A callback that records rows, weights and test scores of a training, for the figures."""

    def __init__(self, split: Split, scores: bool = False) -> None:
        self.split, self.scores = split, scores
        self.model: MeshClassifier | None = None
        self.rows: list[tuple[int, int, float, float, float]] = []
        self.weights: list[NDArray[Any]] = []

    def __call__(self, row: Any, mesh: Mesh) -> None:
        """Record a row of the history."""
        score = float("nan")
        if self.scores and self.model is not None:
            score = float(self.model.score(self.split.test_X, self.split.test_y))
        self.rows.append((row.restart, row.epoch, row.loss, row.accuracy, score))
        self.weights.append(mesh.weights.copy())

    def curve(self) -> dict[str, list[float]]:
        """Return epochs, losses and accuracies of the best restart."""
        names = ("epoch", "loss", "train_accuracy", "test_accuracy")
        return {name: [_round(self.rows[k][n]) for k in self._kept()] for n, name in enumerate(names, start=1)}

    def frames(self, most: int = 48) -> Json:
        """Return weights of the best restart at up to `most` epochs, which are denser at the beginning."""
        kept = self._kept()
        chosen = np.unique(np.geomspace(1, len(kept), most).round().astype(int)) - 1
        at = [kept[k] for k in chosen]
        return {
            "epoch": [self.rows[k][1] for k in at],
            "loss": [_round(self.rows[k][2]) for k in at],
            "weights": [[_round(w) for w in self.weights[k]] for k in at],
        }

    def _kept(self) -> list[int]:
        """Return the recorded rows of the best restart."""
        assert self.model is not None
        return [k for k, row in enumerate(self.rows) if row[0] == self.model.best_restart_]


def _round(value: float) -> float:
    """Round to six digits, which is enough for figures."""
    return float(f"{value:.6g}")


def fit_whole(model: MeshClassifier, X: Any, y: Any) -> None:
    """Fit the model; raise KeyboardInterrupt if the fit was interrupted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the protocol fixes the number of epochs
        try:
            model.fit(X, y)
        except TrainingInterrupted:
            raise KeyboardInterrupt from None


def classifier(output_activation: str = "identity", **options: Any) -> MeshClassifier:
    """Return a classifier that is not fitted yet, also one whose outputs have an activation."""
    if output_activation == "identity":
        return MeshClassifier(**options)
    hidden, given, ticks, activation = (options.pop(name, None) for name in ("hidden", "mesh", "ticks", "activation"))
    # the seed that an estimator with this random_state uses for weights
    seed = int(np.random.SeedSequence(options["random_state"]).generate_state(3)[1])

    def make(n_inputs: int, n_outputs: int) -> Mesh:
        topology = Topology.mesh(n_inputs, hidden, n_outputs) if given is None else given
        return Mesh(topology, ticks, activation, output_activation, random_state=seed)

    return MeshClassifier(mesh=make, **options)


def fitted(split: Split, options: Json, watch: Recorder | None = None) -> tuple[MeshClassifier, Json]:
    """Return a trained classifier and the results that every experiment saves."""
    model = classifier(n_jobs=1, **options)
    if watch is not None:
        watch.model = model
        model.set_params(callbacks=watch)
    note = ""
    try:
        fit_whole(model, split.X, split.y)
    except MeshError as error:  # divergence is a result; the best weights so far are kept
        if not hasattr(model, "mesh_"):
            raise
        note = str(error)
    return model, numbers_of(model, split) | {"epochs": int(model.n_iter_), "solver": model.solver_, "note": note}


def numbers_of(model: MeshClassifier, data: Any) -> Json:
    """Return the results of a trained net; data have X, y, test_X and test_y."""
    n_edges = model.mesh_.topology.n_edges
    return {
        "accuracy": float(model.score(data.test_X, data.test_y)),
        "train_accuracy": float(model.score(data.X, data.y)),
        "loss": float([row.loss for row in model.history_ if row.restart == model.best_restart_][-1]),
        "seconds": round(model.history_[-1].seconds, 4),
        "edges": n_edges,
        "live": n_edges - int(model.mesh_.dead_edges().sum()),
    }


def sample(model: MeshClassifier, split: Split, watch: Recorder) -> Json:
    """Return the data for drawing the decision regions of a net with two features, during and after training."""
    mesh, scaling = model.mesh_, model.preprocessing_.scaling
    t = mesh.topology
    points = np.concatenate([split.X, split.test_X])
    return {
        "hidden": t.n_hidden,
        "outputs": t.n_outputs,
        "ticks": mesh.ticks,
        "activation": mesh.activations[0],
        "output_activation": mesh.activations[-1],
        "weights": mesh.weights.tolist(),
        "mean": scaling.x_mean.tolist(),
        "scale": scaling.x_scale.tolist(),
        "points": [[_round(v) for v in point] for point in points],
        "labels": np.concatenate([split.y, split.test_y]).tolist(),
        "n_train": len(split.y),
        "frames": watch.frames(),
    }


def decide(net: Json, weights: list[float] | None = None) -> Callable[[NDArray[np.float64]], Any]:
    """Return a function from two features to class probabilities, from the result of `sample`."""
    mesh = Mesh(
        Topology.mesh(2, net["hidden"], net["outputs"]), net["ticks"], net["activation"], net["output_activation"],
        weights=net["weights"] if weights is None else weights, dtype="float64",
    )  # fmt: skip
    mean, scale = np.array(net["mean"]), np.array(net["scale"])

    return lambda X: softmax(mesh.forward((X - mean) / scale), axis=1)
