"""The cases of the golden record and their recorded values.

`files/golden.npz` contains outputs, states, gradients, Jacobians, growth scores, trained weights and streams, computed
by the Numba kernels of version 0.2.0.dev0; `test_golden.py` compares the installed version with it. Write the record
again only after a deliberate change of a numerical result: `python tests/support/golden.py`. The record is a dictionary
of arrays by `kind/case/dtype/quantity`; `golden_nets` defines the nets and their data.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from golden_nets import DTYPES, GRAPHS, Case, StreamCase, Training, generator, integers
from meshnn.training import train
from solver_options import with_solver

FILE = Path(__file__).parents[1] / "files" / "golden.npz"
ACTIVATIONS = ("identity", "relu", "leaky_relu", "elu", "softplus", "sigmoid", "tanh", "sin", "gauss")
LOSSES = ("cross_entropy", "squared_error", "huber", "poisson", "binary_cross_entropy")

Values = dict[str, np.ndarray]

# -- cases -----------------------------------------------------------------------------------------------------------


def by_name(cases: list[Any]) -> dict[str, Any]:
    """Return cases by name; each name must occur once."""
    found = {case.name: case for case in cases}
    assert len(found) == len(cases), "two cases have one name"
    return found


GRADIENTS: dict[str, Case] = by_name(
    [
        # activations, including those of outputs
        *(Case("mesh", 3, a, loss=LOSSES[k % 5], weighted=k % 2 == 0) for k, a in enumerate(ACTIVATIONS)),
        *(Case("sparse", 4, a, a, loss=LOSSES[(k + 2) % 5]) for k, a in enumerate(ACTIVATIONS)),
        # losses
        *(Case("layers", 3, loss=loss, batch=65) for loss in LOSSES),
        *(Case("cascade", 4, "softplus", loss=loss, weighted=True) for loss in LOSSES),
        # ticks
        *(Case("mesh-no-bias", ticks, "sigmoid", loss="cross_entropy") for ticks in (1, 2, 3, 4, 6)),
        *(Case("any", ticks, "mixed") for ticks in (1, 2, 3, 4, 6)),
        *(Case("columns", ticks, "elu", loss="huber") for ticks in (2, 6)),
        # batch sizes
        *(Case("mesh", 2, loss="cross_entropy", batch=batch) for batch in (1, 5, 64, 65, 130, 600)),
        *(Case("wide-layers", 2, loss="cross_entropy", batch=batch) for batch in (1, 5, 64, 65, 130, 600)),
        # rows that are computed in tiles
        *(Case("dense", ticks, loss="cross_entropy", batch=65) for ticks in (1, 2, 3, 4)),
        Case("dense", 2, "mixed", batch=130, weighted=True),
        *(Case("large", ticks, "mixed", loss="cross_entropy", batch=130) for ticks in (2, 3, 4)),
        *(Case("patches", ticks, batch=64) for ticks in (2, 3, 6)),
        # acyclic graphs whose states become constant
        Case("linear", 1),
        Case("linear", 3, loss="cross_entropy"),
        Case("layers", 6, "relu"),
        Case("layers-no-bias", 2, "leaky_relu", loss="huber"),
        Case("layers-no-bias", 6, "gauss"),
        Case("cascade", 12, "mixed", batch=65),
        Case("cascade-no-bias", 6, loss="poisson"),
        Case("wide-layers", 4, "sin", batch=64),
        # tied and fixed parameters
        *(Case("mesh", 3, ties=ties, batch=65) for ties in ("tied", "fixed", "tied+fixed")),
        Case("cascade", 12, ties="tied+fixed", weighted=True),
        Case("sparse", 4, "softplus", ties="tied+fixed", loss="cross_entropy", sequence=4),
        Case("dense", 2, ties="tied", loss="cross_entropy", batch=64),
        # sequences
        Case("mesh", 4, "sin", sequence=4),
        Case("sparse", 6, "relu", sequence=6),
        Case("layers", 4, sequence=4, batch=65, weighted=True, loss="cross_entropy"),
        Case("dense", 3, sequence=3, batch=65, loss="cross_entropy"),
        Case("any", 6, "mixed", sequence=6, batch=130),
        # losses at several ticks
        Case("mesh", 4, loss_ticks="all"),
        Case("cascade", 6, "sigmoid", loss_ticks="all", loss="cross_entropy", batch=65),
        Case("mesh", 4, "mixed", loss_ticks="mask", sequence=4, per_tick=True, batch=65),
        Case("any", 6, loss_ticks="mask", sequence=6, per_tick=True, loss="cross_entropy", weighted=True),
        Case("sparse", 6, loss_ticks="mask", sequence=6, loss="binary_cross_entropy", batch=64),
        Case("mesh", 6, loss_ticks="short", sequence=6, per_tick=True, loss="cross_entropy", batch=65),
        Case("mesh-no-bias", 6, loss_ticks="short", sequence=6, per_tick=True, loss="huber", weighted=True),
        Case("columns", 3, loss_ticks="all", sequence=9, per_tick=True, loss="poisson", ties="tied"),
        # readout
        Case("mesh", 4, readout="end", sequence=4, loss="cross_entropy", batch=65),
        Case("mesh", 4, "softplus", readout="mean", sequence=4),
        Case("any", 6, "mixed", readout="any", weighted=True),
        Case("sparse", 3, readout="mean", sequence=7, loss="binary_cross_entropy", ties="tied+fixed"),
        # given initial states
        Case("mesh", 3, state=True),
        Case("layers", 2, state=True, loss="cross_entropy", batch=65),
        Case("any", 4, "mixed", state=True, sequence=4, loss_ticks="all", per_tick=True),
        Case("sparse", 3, state=True, sequence=5, readout="any", loss="huber", weighted=True),
        Case("mesh-no-bias", 2, "gauss", state=True, sequence=6, ties="tied", batch=130),
    ]
)
#: Small cases are also recorded with outputs, states, Jacobian and growth scores.
LARGE = ("wide-layers", "dense", "large", "patches", "many-classes")
SMALL = {name: case for name, case in GRADIENTS.items() if case.graph not in LARGE and case.batch <= 5}
JACOBIANS = {
    name: case
    for name, case in SMALL.items()
    if not (case.loss_ticks or case.readout or case.weighted) and case.sequence in (0, case.ticks)
}
GROWTHS = {name: case for name, case in SMALL.items() if case.state or case.sequence in (0, case.ticks)}


ADAM = {"solver": "adam", "learning_rate": 0.01, "max_epochs": 20, "batch_size": None, "l2": 0.0}
SGD = {"solver": "sgd", "learning_rate": 0.02, "max_epochs": 20, "batch_size": None, "l2": 0.0, "nesterov": True}
LM = {"solver": "lm", "max_epochs": 5, "l2": 1e-3}
PENALTIES = {"l1": 1e-3, "l2": 1e-2}
BATCHES = {"batch_size": 16, "max_epochs": 4}

TRAININGS: dict[str, Training] = by_name(
    [
        Training("adam", Case("mesh", 3, loss="cross_entropy", batch=65), ADAM),
        Training("adam-constant-rate", Case("any", 4, "mixed", batch=64), ADAM | {"schedule": "constant"}),
        Training("adam-minibatches", Case("layers", 3, loss="cross_entropy", batch=80), ADAM | BATCHES),
        Training("adam-minibatches-weighted", Case("cascade", 6, batch=75, weighted=True), ADAM | BATCHES | PENALTIES),
        Training("adam-tied", Case("mesh", 3, batch=64, ties="tied+fixed", loss="huber"), ADAM | BATCHES | PENALTIES),
        Training("adam-dense", Case("dense", 3, loss="cross_entropy", batch=130), ADAM | {"batch_size": 64}),
        Training(
            "adam-loss-ticks", Case("mesh", 5, batch=40, sequence=5, loss_ticks="short", per_tick=True), ADAM | BATCHES
        ),
        Training("adam-readout", Case("sparse", 5, batch=40, sequence=5, readout="mean"), ADAM | BATCHES),
        Training("sgd-nesterov", Case("mesh", 3, loss="poisson", batch=65), SGD | PENALTIES),
        Training("sgd-momentum", Case("layers", 3, batch=65), SGD | PENALTIES | {"nesterov": False}),
        Training(
            "sgd-minibatches", Case("sparse", 4, loss="binary_cross_entropy", batch=70), SGD | BATCHES | PENALTIES
        ),
        Training("sgd-linear-rate", Case("columns", 3, "sin", batch=33), SGD | PENALTIES | {"schedule": "linear"}),
        *(Training(f"lm-{loss}", Case("mesh", 3, loss=loss, batch=70), LM, DTYPES[:1]) for loss in LOSSES),
        Training("lm-tied", Case("cascade", 6, batch=65, ties="tied+fixed", weighted=True), LM, DTYPES[:1]),
        Training("lm-sparse", Case("sparse", 4, "mixed", loss="cross_entropy", batch=130), LM, DTYPES[:1]),
        Training(
            "lm-loss-ticks", Case("mesh", 4, batch=40, sequence=4, loss_ticks="short", per_tick=True), LM, DTYPES[:1]
        ),
        Training(
            "lm-readout", Case("any", 4, loss="cross_entropy", batch=40, sequence=4, readout="end"), LM, DTYPES[:1]
        ),
        Training("lm-wide", Case("wide-layers", 2, loss="cross_entropy", batch=65), LM, DTYPES[:1]),
    ]
)


STATIC: dict[str, Any] = {"memory": "none"}
SCALED: dict[str, Any] = {"scale": True}
MISSING: dict[str, Any] = {"missing_targets": True, "missing_inputs": True}
DECOUPLED: dict[str, Any] = {"covariance": "decoupled"}
PLAIN: dict[str, Any] = {"forgetting": 0.0, "noise": 0.3, "tails": 0.0}
STREAMS: dict[str, StreamCase] = by_name(
    [
        *(StreamCase(f"adam-{loss}", "mesh", loss=loss) for loss in LOSSES),
        StreamCase("adam-three-ticks", "any", activation="mixed", ticks=3),
        StreamCase("adam-static", "layers", loss="cross_entropy", ticks=3, **STATIC),
        StreamCase("adam-scaled", "columns", activation="sigmoid", **SCALED, **MISSING),
        StreamCase("adam-scaled-huber", "mesh", loss="huber", ticks=3, **SCALED),
        StreamCase("adam-delay", "mesh", ticks=2, delay=3, most_delay=3, missing_targets=True),
        StreamCase("adam-three-streams", "mesh", n_streams=3, missing_targets=True),
        StreamCase("adam-two-streams-scaled", "sparse", ticks=3, n_streams=2, **SCALED, **MISSING),
        StreamCase("adam-snap-1", "sparse", activation="sin", influence="snap-1"),
        StreamCase("adam-snap-2", "sparse", loss="cross_entropy", influence="snap-2"),
        StreamCase("adam-tied", "mesh", ties="tied+fixed", settings={"l2": 1e-3, "clip": 0.5, "rate": 0.02}),
        StreamCase("adam-dense", "dense", loss="cross_entropy", ticks=2, samples=50),
        StreamCase("adam-dense-static", "dense", ticks=2, samples=50, **STATIC),
        StreamCase("adam-many-classes", "many-classes", loss="cross_entropy", ticks=2, samples=50, **STATIC),
        *(StreamCase(f"sgd-{loss}", "mesh", "sgd", loss, settings={"l2": 1e-3}) for loss in LOSSES),
        StreamCase("sgd-static", "cascade", "sgd", ticks=3, settings={"momentum": 0.5, "clip": 1.0}, **STATIC),
        StreamCase("sgd-scaled", "any", "sgd", ticks=3, activation="mixed", missing_targets=True, **SCALED),
        StreamCase("sgd-delay", "mesh", "sgd", delay=2, most_delay=4, n_streams=2),
        StreamCase("sgd-snap-1", "sparse", "sgd", ticks=3, influence="snap-1"),
        # a recurrent network and its filter amplify rounding errors: 100 samples only
        *(StreamCase(f"ekf-{loss}", "mesh", "ekf", loss, samples=100) for loss in LOSSES),
        *(StreamCase(f"ekf-decoupled-{a}", "mesh", "ekf", a, samples=100, settings=DECOUPLED) for a in LOSSES),
        *(StreamCase(f"ekf-replays-{loss}", "layers", "ekf", loss, ticks=3, **STATIC) for loss in LOSSES),
        StreamCase("ekf-decoupled-replays", "cascade", "ekf", ticks=6, settings=DECOUPLED | {"replays": 20}, **STATIC),
        StreamCase("ekf-static-no-replays", "layers", "ekf", ticks=3, settings={"replays": 0}, **STATIC),
        StreamCase("ekf-scaled", "mesh", "ekf", samples=100, **SCALED, **MISSING),
        StreamCase("ekf-scaled-replays", "layers", "ekf", "huber", ticks=3, missing_targets=True, **STATIC, **SCALED),
        StreamCase("ekf-three-ticks", "any", "ekf", activation="mixed", ticks=3),
        StreamCase("ekf-delay", "mesh", "ekf", delay=3, most_delay=3, samples=100),
        StreamCase("ekf-two-streams", "columns", "ekf", n_streams=2, missing_targets=True),
        StreamCase("ekf-snap-1", "sparse", "ekf", "cross_entropy", influence="snap-1", settings=DECOUPLED),
        StreamCase("ekf-tied", "mesh", "ekf", ties="tied+fixed", settings={"forgetting": 1e-3, "noise": 0.2}),
        StreamCase("ekf-plain", "columns", "ekf", settings=PLAIN | {"p0": 0.5}),
        StreamCase("ekf-many-classes", "many-classes", "ekf", "cross_entropy", ticks=2, samples=30, **STATIC),
    ]
)
PORTABLE_LOSSES = ("squared_error", "binary_cross_entropy", "cross_entropy")
PORTABLES: dict[str, StreamCase] = by_name(
    [
        *(StreamCase(f"adam-{loss}", "mesh", "adam", loss, missing_targets=True) for loss in PORTABLE_LOSSES),
        *(StreamCase(f"sgd-{loss}", "mesh", "sgd", loss, missing_targets=True) for loss in PORTABLE_LOSSES),
        *(StreamCase(f"ekf-{loss}", "mesh", "ekf", loss, missing_targets=True) for loss in PORTABLE_LOSSES),
        *(StreamCase(f"adam-{a}", "any", activation=a, ticks=2) for a in ACTIVATIONS if a != "tanh"),
        *(StreamCase(f"ekf-{a}", "columns", "ekf", activation=a) for a in ("sin", "mixed")),
        StreamCase("adam-static", "cascade", loss="cross_entropy", ticks=6, **STATIC),
        StreamCase("adam-scaled", "mesh", ticks=3, **SCALED, **MISSING),
        StreamCase("adam-tied", "mesh", ties="tied+fixed", settings={"l2": 1e-3, "clip": 0.5}),
        StreamCase("sgd-scaled", "sparse", "sgd", activation="sin", settings={"momentum": 0.5}, **SCALED),
        StreamCase("ekf-static", "layers", "ekf", "cross_entropy", ticks=3, **STATIC),
        StreamCase("ekf-scaled", "mesh", "ekf", activation="sin", **SCALED, **MISSING),
        StreamCase("ekf-three-classes", "mesh-no-bias", "ekf", "cross_entropy", ticks=3, **STATIC),
        StreamCase("ekf-tied", "mesh", "ekf", "binary_cross_entropy", ties="tied+fixed", settings={"forgetting": 1e-3}),
        StreamCase("ekf-plain", "any", "ekf", activation="mixed", settings=PLAIN),
    ]
)

# -- values ----------------------------------------------------------------------------------------------------------


def gradient(case: Case, dtype: str, method: str = "adjoint") -> Values:
    """Return loss and gradient, and the end state of a run with a given initial state."""
    options = {"gradient": method} | case.weighting() | case.initial_state()
    found = case.mesh(dtype).gradient(case.inputs(), case.targets(), case.loss, return_state=case.state, **options)
    return dict(zip(("loss", "grad", "end"), map(np.asarray, found), strict=False))


def run(case: Case, dtype: str) -> Values:
    """Return the outputs after the last tick and after all ticks, all states and the end state."""
    network, X, begin = case.mesh(dtype), case.inputs(), case.initial_state()
    outputs, end = network.forward(X, every_tick=True, return_state=True, **begin)
    found = {"outputs": outputs, "end": end}
    if begin or case.sequence in (0, case.ticks):
        found |= {"last": network.forward(X, **begin), "states": network.states(X, **begin)}
    return found


def jacobian(case: Case, dtype: str, method: str = "adjoint") -> Values:
    """Return the derivatives of the outputs after the last tick."""
    return {"jacobian": case.mesh(dtype).jacobian(case.inputs(), method, **case.initial_state())}


def growth(case: Case, dtype: str, method: str = "adjoint") -> Values:
    """Return the scores of 20 pairs of neurons, some of which are edges of the graph."""
    t, rng = GRAPHS[case.graph], generator(case.name, "pairs")
    src, dst = integers(rng, t.n_neurons, 20), integers(rng, t.n_neurons, 20)
    free = t.n_neurons - t.n_clamped
    dst[:15] = t.n_neurons - 1 - integers(rng, free, 15)  # most of them end in an unclamped neuron
    src[:2], dst[:2] = 0, t.n_neurons - 1 - integers(rng, t.n_outputs, 2)  # two from an input to an output
    pairs = {"src": src, "dst": dst, "gradient": method}
    options = pairs | case.weighting() | case.initial_state()
    return {"scores": case.mesh(dtype).growth_scores(case.inputs(), case.targets(), case.loss, **options)}


def training(run: Training, dtype: str, method: str = "auto") -> Values:
    """Return the loss of each epoch and the final parameters."""
    case, network = run.case, run.case.mesh(dtype)
    settings = run.settings | case.weighting() | {"gradient": method, "tol": 0.0, "random_state": 0}
    rows = list(train(network, case.inputs(), case.targets(), case.loss, **with_solver(settings)))
    return {"losses": np.array([row.loss for row in rows]), "parameters": network.parameters.copy()}


def stream(case: StreamCase, dtype: str) -> Values:
    """Return every tenth output and the final parameters, states, derivatives and variance."""
    network, (X, Y) = case.mesh(dtype), case.data()
    options = {"memory": case.memory, "method": case.influence, "n_streams": case.n_streams, "scale": case.scale}
    learner = network.stream(case.loss, case.learner, delay=case.most_delay, **options, **case.settings)
    outputs = learner.run(X, Y, delay=case.delay)
    values = {"outputs": outputs[::10], "parameters": network.parameters.copy(), "jacobian": learner.jacobian()}
    if not case.delay:  # the Numba version refuses these in float32 after a run with a delay
        values |= {"gradient": learner.gradient(np.ones_like(Y[0])), "peek": learner.peek(X[0])}
    if case.memory == "carry":
        values["state"] = learner.state.copy()
    if case.learner == "ekf":
        values["variance"] = learner.variance()
    return values


def portable(case: StreamCase, dtype: str) -> Values:
    """Return the bits of every output and of the final parameters, states and derivatives."""
    network, (X, Y) = case.mesh(dtype), case.data()
    options = {"memory": case.memory, "scale": case.scale}
    learner = network.stream(case.loss, case.learner, portable=True, **options, **case.settings)
    values = {"outputs": learner.run(X, Y), "parameters": learner.parameters, "jacobian": learner.jacobian()}
    values["gradient"] = learner.gradient(np.ones_like(Y[0]))
    if case.memory == "carry":
        values["state"] = learner.state
    if case.learner == "ekf":
        values["variances"] = learner.covariance().diagonal()
    return {name: np.ascontiguousarray(value, np.float32).ravel().view(np.uint32) for name, value in values.items()}


def summary(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return all values; of a long array the first ones, the largest, the root mean square and projections."""
    if values.dtype == np.uint32:
        return values
    flat = np.asarray(values, np.float64).ravel()
    if len(flat) > 400:
        signs = np.where(generator("signs", len(flat)).random((64, len(flat))) < 0.5, -1.0, 1.0)
        sizes = [np.abs(flat).max(), np.sqrt(np.square(flat).mean())]
        flat = np.concatenate([flat[:50], sizes, signs @ flat / np.sqrt(len(flat))])
    return flat.astype(dtype)


#: The cases of each kind, and the function that computes their values.
KINDS: dict[str, tuple[dict[str, Any], Callable[..., Values]]] = {
    "gradient": (GRADIENTS, gradient), "run": (SMALL, run), "jacobian": (JACOBIANS, jacobian),
    "growth": (GROWTHS, growth), "training": (TRAININGS, training), "stream": (STREAMS, stream),
    "portable": (PORTABLES, portable),
}  # fmt: skip


def case_ids(kind: str) -> list[tuple[str, str]]:
    """Return the pairs (case, dtype) of a kind."""
    dtypes = {name: DTYPES[1:] if kind == "portable" else case.dtypes for name, case in KINDS[kind][0].items()}
    return [(name, dtype) for name in dtypes for dtype in dtypes[name]]


def values_of(kind: str, name: str, dtype: str, *options: str) -> Values:
    """Compute the recorded values of a case."""
    cases, compute = KINDS[kind]
    return {key: summary(value, dtype) for key, value in compute(cases[name], dtype, *options).items()}


def record() -> Values:
    """Compute the values of all cases."""
    found: Values = {}
    for kind in KINDS:
        for name, dtype in case_ids(kind):
            for key, value in values_of(kind, name, dtype).items():
                assert value.dtype == np.uint32 or np.isfinite(value).all(), f"{kind}/{name}/{dtype}/{key}"
                found[f"{kind}/{name}/{dtype}/{key}"] = value
    return found


def save(path: Path, values: Values) -> None:
    """Write a record: the values of each dtype in one array, and the offset of each part."""
    stored: Values = {}
    for dtype in ("float64", "float32", "uint32"):
        names = [name for name, value in values.items() if value.dtype == dtype]
        stored[dtype] = np.concatenate([values[name] for name in names])
        stored[f"{dtype}-names"] = np.frombuffer("\n".join(names).encode(), np.uint8)
        stored[f"{dtype}-ends"] = np.cumsum([len(values[name]) for name in names])
    np.savez_compressed(path, **stored)


def load(path: Path = FILE) -> Values:
    """Read a record."""
    found: Values = {}
    with np.load(path) as stored:
        for dtype in ("float64", "float32", "uint32"):
            names = stored[f"{dtype}-names"].tobytes().decode().split("\n")
            parts = np.split(stored[dtype], stored[f"{dtype}-ends"])[:-1]
            found |= dict(zip(names, parts, strict=True))
    return found


def deviation(got, want):
    """Return the largest difference relative to the largest recorded entry; infinite if an entry is not finite."""
    if got.dtype == np.uint32:
        return 0.0 if np.array_equal(got, want) else np.inf
    got, want = got.astype(np.float64), want.astype(np.float64)
    error, scale = np.abs(got - want).max(initial=0.0), np.abs(want).max(initial=0.0)
    return 0.0 if error == 0.0 else error / scale if scale > 0.0 and np.isfinite(error) else np.inf


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    save(path, record())
    print(f"{path}: {path.stat().st_size:,} bytes, {sum(len(case_ids(kind)) for kind in KINDS)} records")
