"""The parameters of all estimators, and the adapter for scikit-learn's callbacks."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator

from meshnn.arguments import known, whole_number
from meshnn.errors import MeshError
from meshnn.losses import LOSSES, Loss
from meshnn.mesh import Mesh
from meshnn.training import EarlyStopping, Settings
from meshnn.training.callbacks import Callback, Checkpoint, TimeLimit, as_callbacks
from meshnn.training.history import HistoryRow
from meshnn.training.structure.runtime import as_policies, with_penalties

try:
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback import with_callbacks as with_callbacks
except ImportError:  # before scikit-learn 1.9
    CallbackSupportMixin = type("NoCallbacks", (), {})

    def with_callbacks(method: Any) -> Any:
        """Return the method unchanged."""
        return method


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
    embedding: int | str | None = "auto"
    n_members: int | str = "auto"
    max_categories: int = 100
    warm_start: bool = False
    callbacks: Any = None
    n_jobs: int | None = None
    verbose: int | bool = 0
    random_state: Any = None

    _kind: ClassVar[str]  # "classifier" or "regressor"
    _default_loss: ClassVar[str]

    def set_params(self, **params: Any) -> Self:
        """Set parameters; options of nested objects are written `solver__learning_rate`."""
        for key in params:
            name, nested, _ = key.partition("__")
            fix = {"solver": "solver=Adam() or another object", "early_stopping": "early_stopping=EarlyStopping()"}
            given = params.get(name, getattr(self, name, None))
            if nested and name in fix and not hasattr(given, "set_params"):
                raise MeshError(f"{key}: {name} is {given!r}; set {fix[name]} first")
        super().set_params(**params)
        return self

    @property
    def _loss(self) -> Loss:
        """The loss to fit with; raises if the estimator does not support it."""
        default = LOSSES[self._default_loss]
        kind = (default.classifies, default.several)
        mine = [name for name, other in LOSSES.items() if (other.classifies, other.several) == kind]
        what = f"loss of a {self._kind}{' of several labels' * default.several}"
        return default if self.loss is None else LOSSES[known(what, self.loss, mine)]

    def _settings(self) -> Settings:
        """Return the settings of the trainer, after all checks that do not depend on the data."""
        self._verbosity()
        own = self.get_params(deep=False)
        given = {name: own[name] for name in Settings.__dataclass_fields__.keys() & own.keys()}
        limits = [each.seconds for each in as_callbacks(self.callbacks) if isinstance(each, TimeLimit)]
        stopping: dict[str, Any] = {"patience": self._stopping().patience, "max_seconds": min(limits, default=None)}
        return with_penalties(Settings(**given, **stopping), as_policies(self.structure))

    def _stopping(self) -> EarlyStopping:
        """Return the rule for early stopping; without early stopping there is no hold-out set."""
        given = self.early_stopping
        if isinstance(given, EarlyStopping):
            return replace(given)  # checks options that were set after construction
        if not isinstance(given, (bool, np.bool_)):
            raise MeshError(f"early_stopping must be True, False or EarlyStopping(...), got {given!r}")
        return EarlyStopping() if given else EarlyStopping(validation_fraction=None)

    def _verbosity(self) -> int:
        return whole_number("verbose", self.verbose + 0 if isinstance(self.verbose, bool) else self.verbose, least=0)

    def _callbacks(self) -> list[Callback]:
        """Return the callbacks without `Checkpoint` and `TimeLimit`, which `fit` handles itself."""
        return [each for each in as_callbacks(self.callbacks) if not isinstance(each, (Checkpoint, TimeLimit))]

    def _checkpoint(self) -> Checkpoint | None:
        """Return a fresh copy of the checkpoint among the callbacks, or None."""
        found = [each for each in as_callbacks(self.callbacks) if isinstance(each, Checkpoint)]
        if len(found) > 1:
            raise MeshError(f"callbacks contains {len(found)} checkpoints, expected at most one")
        return found[0].anew() if found else None

    def _seed(self) -> int:
        """Return the seed of all randomness in a fit."""
        state = np.random.default_rng() if self.random_state is None else self.random_state
        if isinstance(state, np.random.Generator):
            return int(state.integers(2**63))
        if isinstance(state, np.random.RandomState) or state is np.random:
            return int(state.randint(2**31))
        return whole_number("random_state", state, least=0)


class SklearnCallbacks(Callback):
    """Adapter to scikit-learn's callbacks (`set_callbacks`, since 1.9); each row of the history is a task."""

    reason = "stopped by a callback of scikit-learn"

    def __init__(self, model: Any, n_rows: int, X: Any, y: Any) -> None:
        self._model, self._context = model, model._init_callback_context(max_subtasks=n_rows)
        self._left, self._given = n_rows, {"estimator": model, "X": X, "y": y}

    def on_fit_begin(self) -> None:
        """Begin the task of the whole fit."""
        self._context.call_on_fit_task_begin(**self._given)

    def on_epoch_end(self, row: HistoryRow, mesh: Mesh) -> bool:
        """Begin and end the task of a row; return whether a callback stops the fit."""
        if self._left == 0:
            return False
        self._left -= 1
        task = self._context.subcontext(task_name="epoch")
        task.call_on_fit_task_begin(**self._given)
        return bool(task.call_on_fit_task_end(**self._given, reconstruction_attributes=self._fitted))

    def on_fit_end(self) -> None:
        """End the task of the whole fit."""
        self._context.call_on_fit_task_end(**self._given, reconstruction_attributes=self._fitted)

    def _fitted(self) -> dict[str, Any]:
        """Return a copy of the attributes that prediction needs; training goes on with the original mesh."""
        preprocessing = self._model.preprocessing_
        mesh = deepcopy(preprocessing.original(self._model.mesh_))
        return {"mesh_": mesh, "preprocessing_": replace(preprocessing, transform=None)}
