"""What sktime hands over, as arrays; and the options that both estimators pass on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["TAGS", "OfPanels"]

#: What both can do, in sktime's words. A panel comes as a list of DataFrames, or as an array if it came as one.
TAGS = {
    "authors": ["meshnn"],
    "maintainers": ["meshnn"],
    "python_dependencies": "meshnn",
    "X_inner_mtype": ["df-list", "numpy3D"],
    "y_inner_mtype": "numpy1D",
    "capability:multivariate": True,
    "capability:unequal_length": True,
    "capability:missing_values": False,
    "capability:categorical_in_X": False,
    "capability:random_state": True,
    "property:randomness": "derandomized",
}


@dataclass(eq=False, repr=False)
class OfPanels:
    """The options of `MeshSequenceClassifier` and `MeshSequenceRegressor` that go with one answer a series."""

    hidden: int | str = "auto"
    topology: Any = None
    ticks: int | None = None
    readout: str = "last"
    activation: Any = "auto"
    output_activation: str = "identity"
    solver: str = "auto"
    learning_rate: float = 0.007
    schedule: str = "cosine"
    batch_size: int | str | None = "auto"
    max_epochs: int | str = "auto"
    l1: float = 0.0
    l2: float | str = "auto"
    gradient: str = "auto"
    early_stopping: bool = False
    validation_fraction: float = 0.1
    patience: int = 20
    tol: float = 1e-4
    n_restarts: int = 1
    callbacks: Any = None
    checkpoint: Any = None
    n_threads: int | None = None
    verbose: int | bool = 0
    random_state: Any = None
    momentum: float = 0.9
    nesterov: bool = True
    standardize: bool = True
    structure: Any = None
    loss: str | None = None
    parameter: Any = None
    weights: Any = None
    max_seconds: float | None = None

    def _fitted_on(self, kind: Any, X: Any, y: NDArray[Any]) -> Any:
        """An estimator of meshnn with these options, fitted."""
        options = self.get_params(deep=False)  # type: ignore[attr-defined]
        if options["readout"] == "all":
            raise ValueError('readout="all" gives an answer a step, sktime wants one a series; use "last" or "mean"')
        return kind(**options).fit(as_arrays(X), y)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Options that fit in a moment, for sktime's checks."""
        small = {"hidden": 3, "max_epochs": 2, "l2": 1e-3, "random_state": 0}
        return [small, small | {"topology": "mesh", "readout": "mean", "solver": "lm"}]


def as_arrays(X: Any) -> Any:
    """Sequences (length, variables): sktime's arrays have time last."""
    if isinstance(X, np.ndarray):
        return np.ascontiguousarray(X.transpose(0, 2, 1))
    return [frame.to_numpy(dtype=np.float64) for frame in X]
