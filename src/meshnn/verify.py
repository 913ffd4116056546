"""A stricter version of the paper's numerical test: forward-only gradients against an independent reference.

The paper compares 100 random nets 5-10-3 on batches of 10 and reports the 95% confidence intervals of the (summed)
absolute differences. It compares no edges into inputs and runs 1 or 2 ticks, for which its algorithm is correct. Here
the adjacency matrix is dense, with edges into inputs, self-loops and cycles, and runs take up to 5 ticks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import known
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.plan import METHODS

#: Maximum difference, relative to the largest entry of the reference.
TOLERANCE = {"float64": 1e-10, "float32": 1e-4}

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class ErrorInterval:
    """Mean and half width of a 95% confidence interval."""

    mean: float
    half_width: float

    @classmethod
    def of(cls, values: list[float]) -> ErrorInterval:
        """Return the interval of one value per test."""
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
        return cls(float(np.mean(values)), 1.96 * spread / float(np.sqrt(len(values))))

    def __str__(self) -> str:
        return f"{self.mean:.1e}" if np.isnan(self.half_width) else f"{self.mean:.1e} ± {self.half_width:.1e}"


@dataclass(frozen=True)
class Row:
    """The result of one dtype, number of ticks and gradient method over all nets."""

    dtype: str
    ticks: int
    method: str
    states: ErrorInterval  # sums of absolute differences
    gradients: ErrorInterval
    worst: float  # largest relative difference of a state or gradient; NaN if any of them is NaN
    tolerance: float
    passed: bool  # whether every net stayed within the tolerance


@dataclass
class VerifyReport:
    """The result of a verification, one row per dtype, number of ticks and method."""

    tests: int
    seed: int
    activation: str
    reference: str
    rows: list[Row] = field(default_factory=list)
    #: Mean and half width of the 95% confidence intervals in the paper (float32).
    paper: ClassVar = {"states": (0.00024, 0.000047), "gradients": (0.000011, 0.0000053)}

    @property
    def passed(self) -> bool:
        """Whether every row passed."""
        return all(row.passed for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return asdict(self) | {"passed": self.passed, "paper": self.paper}


def _numpy_reference(A: Array, X: Array, y: Labels, ticks: int, n_outputs: int, activation: str) -> tuple[Array, Array]:
    """Return states (ticks + 1, batch, n) and dE/dA by backprop in NumPy, independent of the engine."""
    from scipy.special import softmax

    n, n_inputs = A.shape[0], X.shape[1]
    s = np.zeros((len(X), n))
    s[:, :n_inputs] = X
    states, slopes = [s], []
    for _ in range(ticks):
        t = states[-1] @ A
        s = np.maximum(t, 0.0) if activation == "relu" else np.tanh(t)
        slopes.append((t > 0).astype(np.float64) if activation == "relu" else 1.0 - s**2)
        s[:, :n_inputs] = X
        states.append(s)
    back, grad = np.zeros((len(X), n)), np.zeros_like(A)
    back[:, -n_outputs:] = (softmax(states[-1][:, -n_outputs:], axis=1) - np.eye(n_outputs)[y]) / len(X)
    for state, slope in zip(states[-2::-1], slopes[::-1], strict=True):
        back = back * slope
        back[:, :n_inputs] = 0
        grad += state.T @ back
        back = back @ A.T
    return np.stack(states), grad


def _torch_reference(A: Array, X: Array, y: Labels, ticks: int, n_outputs: int, activation: str) -> tuple[Array, Array]:
    """Return the states and dE/dA by automatic differentiation in PyTorch."""
    import torch

    phi: Any = getattr(torch, activation)
    matrix, x = torch.tensor(A, requires_grad=True), torch.tensor(X)
    states = [torch.cat([x, torch.zeros(len(X), A.shape[0] - X.shape[1], dtype=torch.float64)], dim=1)]
    for _ in range(ticks):
        states.append(torch.cat([x, phi(states[-1] @ matrix)[:, X.shape[1] :]], dim=1))
    loss = torch.nn.functional.cross_entropy(states[-1][:, -n_outputs:], torch.tensor(y))
    (gradient,) = torch.autograd.grad(loss, matrix)
    return torch.stack(states).detach().numpy(), gradient.numpy()


def references() -> list[str]:
    """Return the installed references, the preferred one first."""
    return ["torch", "numpy"] if find_spec("torch") else ["numpy"]


def verify(
    tests: int = 100, seed: int = 0, activation: str = "relu", reference: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> VerifyReport:  # fmt: skip
    """Run the test; `progress` receives the number of finished nets and the number of all nets."""
    available = references()
    reference = known("reference", reference or available[0], ["torch", "numpy"])
    if reference not in available:
        raise MeshError(
            "PyTorch is not installed; install it with pip install 'meshnn[torch]', or use reference=\"numpy\""
        )
    known("activation", activation, ["relu", "tanh"])
    report = VerifyReport(tests, seed, activation, reference)
    cases = [(dtype, ticks) for dtype in TOLERANCE for ticks in range(1, 6)]
    for k, (dtype, ticks) in enumerate(cases):
        found: list[Difference] = []
        for one in compare(dtype, ticks, tests, seed, activation, reference):
            found.append(one)
            progress(tests * k + len(found), tests * len(cases))
        states, allowed = ErrorInterval.of([one.states for one in found]), TOLERANCE[dtype]
        for method in METHODS:
            gradients = ErrorInterval.of([one.gradients[method] for one in found])
            worst = float(np.max([one.relative[method] for one in found]))  # max() would ignore a NaN
            report.rows.append(Row(dtype, ticks, method, states, gradients, worst, allowed, worst <= allowed))
    return report


class Difference(NamedTuple):
    """The differences between one net and the reference."""

    states: float  # sum of the absolute differences of the states
    gradients: dict[str, float]  # the same of the gradient, by method
    relative: dict[str, float]  # largest difference of states and gradient, relative to the largest entry, by method


def compare(dtype: str, ticks: int, tests: int, seed: int, activation: str, reference: str) -> Iterator[Difference]:
    """Yield the difference of one random net at a time."""
    run = _torch_reference if reference == "torch" else _numpy_reference
    n, n_inputs, n_outputs, batch = 18, 5, 3, 10
    rng = np.random.default_rng([seed, ticks])
    mesh = Mesh.from_adjacency(
        np.ones((n, n)), n_inputs, n_outputs,
        ticks=ticks, activation=activation, output_activation=activation, dtype=dtype,
    )  # fmt: skip
    t = mesh.topology
    for _ in range(tests):
        mesh.weights = rng.standard_normal(t.n_edges) * np.sqrt(2.0 / n)
        A = np.zeros((n, n))  # the weights after conversion to the dtype of the mesh
        A[t.src, t.dst] = mesh.weights
        X = rng.standard_normal((batch, n_inputs)).astype(mesh.dtype).astype(np.float64)
        y = rng.integers(0, n_outputs, batch)
        want_states, want = run(A, X, y, ticks, n_outputs, activation)
        states, of_states = _differences(mesh.states(X), want_states)
        gradients, relative = {}, {}
        for method in METHODS:
            gradients[method], off = _differences(mesh.gradient(X, y, gradient=method)[1], want[t.src, t.dst])
            relative[method] = float(np.maximum(off, of_states))
        yield Difference(states, gradients, relative)


def _differences(got: NDArray[Any], want: Array) -> tuple[float, float]:
    """Return the sum of the absolute differences, and the largest one relative to the largest entry."""
    difference = np.abs(got - want)
    return float(difference.sum()), float(difference.max() / (np.abs(want).max() or 1.0))
