"""The parameters of all estimators, declared once, and what the estimators inherit from scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from meshnn.arguments import whole_number
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.topology import Topology
from meshnn.training import EarlyStopping, Settings
from meshnn.training.callbacks import Callback, Checkpoint, TimeLimit, as_callbacks
from meshnn.training.structure.runtime import as_policies, with_penalties

if TYPE_CHECKING:  # scikit-learn has no types: these are what a type checker sees of it
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

    class CallbackSupportMixin:
        """Callbacks of scikit-learn."""

        def set_callbacks(self, *callbacks: Any) -> Self:
            """Set callbacks."""

    def with_callbacks(method: _Method) -> _Method:
        """Let a method end the callbacks."""

    def available_if(check: Callable[[Any], bool]) -> Callable[[_Method], _Method]:
        """Make a method available if the check is passed."""

else:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.metaestimators import available_if

    try:
        from sklearn.callback import CallbackSupportMixin, with_callbacks
    except ImportError:  # before scikit-learn 1.9

        class _NoCallbacks:
            """Nothing to support."""

        CallbackSupportMixin = _NoCallbacks

        def with_callbacks(method):
            """Return the method as it is."""
            return method


__all__ = ["BaseEstimator", "ClassifierMixin", "Parameters", "RegressorMixin", "available_if", "with_callbacks"]


@dataclass(eq=False, repr=False)
class Parameters(CallbackSupportMixin, BaseEstimator):
    """Parameters of every estimator, as fields, so that `__init__` only assigns; `MeshClassifier` documents them."""

    hidden: int | str | tuple[int, ...] = "auto"
    _: KW_ONLY
    mesh: Any = None
    ticks: int | None = None
    activation: Any = "auto"
    loss: str | None = None
    solver: Any = "auto"
    batch_size: int | str | None = "auto"
    max_epochs: int | str = "auto"
    l1: float = 0.0
    l2: float | str = "auto"
    tol: float = 1e-4
    n_restarts: int = 1
    early_stopping: Any = False
    gradient: str = "auto"
    structure: Any = None
    standardize: bool = True
    max_categories: int = 100
    warm_start: bool = False
    callbacks: Any = None
    n_jobs: int | None = None
    verbose: int | bool = 0
    random_state: Any = None

    def set_params(self, **params: Any) -> Self:
        """Change parameters; options of objects as `solver__learning_rate`."""
        nested = next((key for key in params if key.startswith("solver__")), None)
        if nested is not None and not hasattr(params.get("solver", self.solver), "set_params"):
            raise MeshError(f"{nested}: solver is {self.solver!r}; set solver=Adam() or another object first")
        return super().set_params(**params)

    def _settings(self) -> Settings:
        """Return the checked settings of the trainer."""
        own = self.get_params(deep=False)
        given = {name: own[name] for name in Settings.__dataclass_fields__.keys() & own.keys()}
        limits = [each.seconds for each in as_callbacks(self.callbacks) if isinstance(each, TimeLimit)]
        stopping: dict[str, Any] = {"patience": self._stopping().patience, "max_seconds": min(limits, default=None)}
        return with_penalties(Settings(**given, **stopping), as_policies(self.structure))

    def _stopping(self) -> EarlyStopping:
        """Return when to stop; without early stopping nothing is held out."""
        if isinstance(self.early_stopping, EarlyStopping):
            return replace(self.early_stopping)  # its options are checked again: they may have been set since
        if not isinstance(self.early_stopping, (bool, np.bool_)):
            given = self.early_stopping
            raise MeshError(f"early_stopping must be True, False or EarlyStopping(...), got {given!r}")
        wanted = bool(self.early_stopping)
        return EarlyStopping() if wanted else EarlyStopping(validation_fraction=None)

    def _verbosity(self) -> int:
        """Return `verbose` as a number; True is 1."""
        verbose = self.verbose
        return whole_number("verbose", int(verbose) if isinstance(verbose, (bool, np.bool_)) else verbose, least=0)

    def _callbacks(self) -> list[Callback]:
        """Return the checked callbacks, without those that `fit` itself looks after."""
        return [each for each in as_callbacks(self.callbacks) if not isinstance(each, (Checkpoint, TimeLimit))]

    def _checkpoint(self) -> Checkpoint | None:
        """Return a checkpoint for one run, if there is one among the callbacks."""
        found = [each for each in as_callbacks(self.callbacks) if isinstance(each, Checkpoint)]
        if len(found) > 1:
            raise MeshError(f"callbacks holds {len(found)} checkpoints, expected at most one")
        return found[0].anew() if found else None

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
        """Return `hidden` and `mesh` in a form that can be compared; callables are not told apart."""
        hidden: Any = self.hidden
        if isinstance(hidden, (list, tuple, np.ndarray)):
            hidden = tuple(int(n) if isinstance(n, np.integer) else n for n in hidden)
        mesh: Any = self.mesh
        if isinstance(mesh, Topology):
            mesh = mesh._digest.hex()
        elif isinstance(mesh, Mesh):
            edges = [mesh.tied.tolist(), mesh.weights.tolist()]
            mesh = repr([mesh.topology._digest.hex(), mesh.ticks, mesh.activations, *edges])
        return {"hidden": hidden, "mesh": "a callable" if callable(mesh) else mesh}
