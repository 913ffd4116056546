"""The models of streams as river's own: in its pipelines, its evaluation, its ensembles.

Importing this file imports river. The models are those of `meshnn.online`, with river's `seed` instead of
`random_state`; `save` writes the same files, which `meshnn.load` opens where there is no river.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from os import PathLike
from typing import Any

import numpy as np

from meshnn import storage
from meshnn.online import MeshForecaster, MeshStreamClassifier, MeshStreamRegressor

try:
    from river import base
    from river.time_series.base import Forecaster
except ImportError as error:  # an optional dependency: say how to get it
    raise ImportError("river is not installed; pip install 'meshnn[river]' brings it") from error

__all__ = ["RiverMeshClassifier", "RiverMeshForecaster", "RiverMeshRegressor"]


class _InRiver:
    """What differs from the models outside of river: the name of the seed."""

    seed: int | None
    get_params: Callable[[], dict[str, Any]]

    def _stored_params(self) -> dict[str, Any]:
        params = self.get_params()
        params["random_state"] = params.pop("seed")
        return params

    @classmethod
    def _of_params(cls, params: Mapping[str, Any]) -> Any:
        given = dict(params)
        return cls(seed=given.pop("random_state"), **given)  # type: ignore[call-arg]

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Any:
        """The model that `save` wrote, also that of a model outside of river; it goes on bit by bit."""
        tree = storage.read(path)
        if tree.get("kind") != cls.kind:  # type: ignore[attr-defined]
            raise storage.FileError(f"{path} holds a {tree.get('kind')}, not a {cls.kind}; see meshnn.load")  # type: ignore[attr-defined]
        return cls.from_tree(tree)  # type: ignore[attr-defined]


class RiverMeshClassifier(_InRiver, MeshStreamClassifier, base.MiniBatchClassifier):  # type: ignore[misc]
    """`meshnn.MeshStreamClassifier` for river: classes of a stream, whatever they are and whenever they turn up.

    Features are standardised inside; a scaler before it does no harm. Numbers only: text goes through
    `river.preprocessing.OneHotEncoder` first.

    Parameters
    ----------
    hidden : int
        Hidden neurons.
    topology : "auto", "layered", "mesh", "columns", or callable (n_inputs, n_outputs) -> Topology
    activation : str
    memory : "none" or "carry"
        Whether the state of the net goes on from sample to sample.
    ticks_per_sample : int, optional
    learner : "ekf", "adam" or "sgd"
    settings : dict, optional
        Of the learner.
    structure : policy, optional
    structure_every, structure_rounds : int
    seed : int, optional
        Source of the first weights.

    Examples
    --------
    >>> from meshnn.integrations.river import RiverMeshClassifier
    >>> from river import datasets, evaluate, metrics, preprocessing
    >>> model = preprocessing.StandardScaler() | RiverMeshClassifier(seed=0)
    >>> metric = evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy())
    >>> metric.get() > 0.8
    True
    """

    def __init__(
        self,
        hidden: int = 16,
        topology: str | Callable[[int, int], Any] = "auto",
        activation: str = "tanh",
        memory: str = "none",
        ticks_per_sample: int | None = None,
        learner: str = "ekf",
        settings: Mapping[str, Any] | None = None,
        structure: Any = None,
        structure_every: int = 1000,
        structure_rounds: int = 20,
        seed: int | None = None,
    ) -> None:
        super().__init__(
            hidden, topology, activation, memory, ticks_per_sample, learner, settings, structure, structure_every,
            structure_rounds, seed,
        )  # fmt: skip
        self.seed = seed

    @property
    def _multiclass(self) -> bool:
        return True


class RiverMeshRegressor(_InRiver, MeshStreamRegressor, base.MiniBatchRegressor):  # type: ignore[misc]
    """`meshnn.MeshStreamRegressor` for river: numbers of a stream.

    Parameters are those of `RiverMeshClassifier`, and

    Parameters
    ----------
    loss : "squared_error", "huber" or "poisson"

    Examples
    --------
    >>> from meshnn.integrations.river import RiverMeshRegressor
    >>> from river import datasets, evaluate, metrics
    >>> model = RiverMeshRegressor(seed=0)
    >>> metric = evaluate.progressive_val_score(datasets.TrumpApproval(), model, metrics.MAE())
    >>> metric.get() < 1
    True
    """

    def __init__(
        self,
        hidden: int = 16,
        topology: str | Callable[[int, int], Any] = "auto",
        activation: str = "tanh",
        memory: str = "none",
        ticks_per_sample: int | None = None,
        learner: str = "ekf",
        settings: Mapping[str, Any] | None = None,
        loss: str = "squared_error",
        structure: Any = None,
        structure_every: int = 1000,
        structure_rounds: int = 20,
        seed: int | None = None,
    ) -> None:
        super().__init__(
            hidden, topology, activation, memory, ticks_per_sample, learner, settings, loss, structure, structure_every,
            structure_rounds, seed,
        )  # fmt: skip
        self.seed = seed


class RiverMeshForecaster(_InRiver, MeshForecaster, Forecaster):  # type: ignore[misc]
    """`meshnn.MeshForecaster` for river: the next values of a series, learned one value at a time.

    Dates among the features are left out, as values come at equal steps: river's series carry them. Other features are
    numbers.

    Parameters
    ----------
    season : "auto", int or None
        Steps of a season; "auto" looks for it.
    lags : int
        Steps that nets look back, besides those around a season.
    hidden : int
        Hidden neurons of each net.
    horizon : int, optional
        Steps ahead that are judged.
    settings : dict, optional
        Of the filter.
    seed : int, optional
        Source of the first weights and of paths.

    Examples
    --------
    >>> from meshnn.integrations.river import RiverMeshForecaster
    >>> from river import datasets
    >>> model = RiverMeshForecaster(season=12, seed=0)
    >>> for x, y in list(datasets.AirlinePassengers())[:96]:
    ...     model.learn_one(y, x)
    >>> [abs(found - true) < 40 for found, true in zip(model.forecast(3), [315, 301, 356])]
    [True, True, True]
    """

    def __init__(
        self,
        season: int | str | None = "auto",
        lags: int = 18,
        hidden: int = 8,
        horizon: int | None = None,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(season, lags, hidden, horizon, settings, seed)
        self.seed = seed

    def learn_one(self, y: float | None, x: Mapping[Any, Any] | None = None) -> None:
        """Learn the next value, and features that are known with it."""
        super().learn_one(y, _without_dates(x))

    def _future(self, horizon: int, xs: Any) -> Any:
        return super()._future(horizon, None if xs is None else [_without_dates(x) for x in xs])


def _without_dates(x: Any) -> Any:
    if not isinstance(x, Mapping):
        return x
    found = {name: value for name, value in x.items() if not isinstance(value, (date, np.datetime64))}
    return found
