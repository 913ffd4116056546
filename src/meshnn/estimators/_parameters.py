"""What both estimators take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from meshnn.estimators._sklearn import BaseEstimator
from meshnn.topology import Topology

__all__ = ["Parameters"]


@dataclass(eq=False, repr=False)
class Parameters(BaseEstimator):
    """What both kinds take; as fields, so that `__init__` only assigns. `MeshClassifier` says what they mean."""

    hidden: int | str | tuple[int, ...] = "auto"
    topology: Topology | Callable[[int, int], Topology] | None = None
    ticks: int | None = None
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
    warm_start: bool = False
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
    encode: str | None = "auto"
    scoring: Any = None
    max_seconds: float | None = None
