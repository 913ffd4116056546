"""The parameters of all estimators, declared once, and what the estimators inherit from scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from meshnn.arguments import whole_number
from meshnn.errors import MeshError
from meshnn.topology import Topology
from meshnn.training import Settings
from meshnn.training.callbacks import Callback, as_callbacks
from meshnn.training.solvers import candidates
from meshnn.training.structure.runtime import as_policies, with_penalties

if TYPE_CHECKING:  # scikit-learn has no types: these are what a type checker sees of it
    from typing import Self

    _Method = TypeVar("_Method", bound=Callable[..., Any])

    class BaseEstimator:
        """Parameters by name."""

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """Return the parameters."""

        def set_params(self, **params: Any) -> Self:
            """Change parameters."""

        def get_metadata_routing(self) -> Any:
            """Return which arguments of methods are asked for."""

        def _html_repr(self) -> str: ...
        def __sklearn_tags__(self) -> Any: ...

    class ClassifierMixin:
        """A classifier."""

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
            """Return the mean accuracy."""

        def __sklearn_tags__(self) -> Any: ...

    class RegressorMixin:
        """A regressor."""

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
            """Return R²."""

        def __sklearn_tags__(self) -> Any: ...

    def available_if(check: Callable[[Any], bool]) -> Callable[[_Method], _Method]:
        """Make a method available if the check is passed."""

else:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.metaestimators import available_if

__all__ = ["BaseEstimator", "ClassifierMixin", "Parameters", "RegressorMixin", "available_if"]


@dataclass(eq=False, repr=False)
class Parameters(BaseEstimator):
    """Parameters of every estimator, as fields, so that `__init__` only assigns; `MeshClassifier` documents them."""

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

    def _settings(self) -> Settings:
        """Return the checked settings of the trainer."""
        own = self.get_params(deep=False)
        given = {name: own[name] for name in Settings.__dataclass_fields__.keys() & own.keys()}
        if isinstance(self.solver, str) and self.solver != "lm":  # options of solvers are still parameters of their own
            given["solver"] = found = candidates(self.solver)
            for each in found:
                each.set_params(**{k: own[k] for k in each.get_params() if k in own})
        return with_penalties(Settings(**given), as_policies(self.structure))

    def _verbosity(self) -> int:
        """Return `verbose` as a number; True is 1."""
        verbose = self.verbose
        return whole_number("verbose", int(verbose) if isinstance(verbose, (bool, np.bool_)) else verbose, least=0)

    def _callbacks(self) -> list[Callback]:
        """Return the checked callbacks."""
        return as_callbacks(self.callbacks)

    def _seed(self) -> int:
        """Return the number that all randomness of a fit is derived from."""
        state = self.random_state
        if isinstance(state, (int, np.integer)) and not isinstance(state, bool):
            if state < 0:
                raise MeshError(f"random_state must not be negative, got {state}")
            return int(state)
        if isinstance(state, np.random.Generator):
            return int(state.integers(2**63))
        if state is None:
            return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
        if isinstance(state, np.random.RandomState) or state is np.random:
            return int(state.randint(2**31))
        raise MeshError(f"random_state must be a whole number, a RandomState, a Generator or None, got {state!r}")

    def _comparable(self) -> dict[str, Any]:
        """Return parameters that have no plain value in a form that can be compared; callables are not told apart."""
        graph = self.topology._digest.hex() if isinstance(self.topology, Topology) else self.topology
        edges = {name: getattr(self, name) for name in ("parameter", "weights")}
        found = {name: v if v is None or callable(v) else repr(np.asarray(v).tolist()) for name, v in edges.items()}
        hidden: Any = self.hidden
        if isinstance(hidden, (list, tuple, np.ndarray)):
            hidden = tuple(int(n) if isinstance(n, np.integer) else n for n in hidden)
        named = {name: "a callable" if callable(v) else v for name, v in ({"topology": graph} | found).items()}
        return named | {"hidden": hidden}
