"""The stream models as subclasses of river's base classes, for its pipelines, evaluation and ensembles.

Importing this module imports river. The models are those of `meshnn.online`, with river's parameter `seed` instead of
`random_state`. `save` writes the same files, which `meshnn.load` opens without river.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import date
from os import PathLike
from typing import Any, cast

import numpy as np

from meshnn import storage
from meshnn.online import MeshForecaster, MeshStreamClassifier, MeshStreamRegressor

try:
    from river import base
    from river.time_series.base import Forecaster
except ImportError as error:  # an optional dependency
    raise ImportError("river is not installed; install it with pip install 'meshnn[river]'") from error

__all__ = ["RiverMeshClassifier", "RiverMeshForecaster", "RiverMeshRegressor"]


class _InRiver:
    """Changes for river: the random state is the parameter `seed`."""

    seed: int | None
    get_params: Callable[[], dict[str, Any]]

    def __init_subclass__(cls, wraps: Any, **rest: Any) -> None:
        """Give the class the parameters of the model that it wraps."""
        super().__init_subclass__(**rest)
        signature = inspect.signature(wraps.__init__)
        names = [p.replace(name="seed") if p.name == "random_state" else p for p in signature.parameters.values()]
        signature = signature.replace(parameters=names)

        def make(self: Any, *values: Any, **named: Any) -> None:
            given = signature.bind(self, *values, **named).arguments
            del given["self"]
            self.seed = given.pop("seed", None)
            wraps.__init__(self, random_state=self.seed, **given)

        make.__signature__ = signature  # type: ignore[attr-defined]
        cls.__init__ = make  # type: ignore[method-assign]

    def _stored_params(self) -> dict[str, Any]:
        params = self.get_params()
        params["random_state"] = params.pop("seed")
        return params

    @classmethod
    def _of_params(cls, params: Mapping[str, Any]) -> Any:
        given = dict(params)
        return super()._of_params(given | {"seed": given.pop("random_state")})  # type: ignore[misc]

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Any:
        """Return the model in a file that `save` wrote, also without river; it continues exactly from its state."""
        tree, model = storage.read(path), cast(Any, cls)
        if tree.get("kind") != model.kind:
            raise storage.FileError(f"{path} holds a {tree.get('kind')}, not a {model.kind}; see meshnn.load")
        return model.from_tree(tree)


class RiverMeshClassifier(_InRiver, MeshStreamClassifier, base.MiniBatchClassifier, wraps=MeshStreamClassifier):  # type: ignore[misc]
    """`meshnn.MeshStreamClassifier` for river, with the same parameters except `seed` for `random_state`.

    Features are standardised internally; a scaler before the model is harmless. Features must be numbers: encode text
    with `river.preprocessing.OneHotEncoder`.

    Examples
    --------
    >>> from meshnn.integrations.river import RiverMeshClassifier
    >>> from river import datasets, evaluate, metrics, preprocessing
    >>> model = preprocessing.StandardScaler() | RiverMeshClassifier(seed=0)
    >>> metric = evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy())
    >>> metric.get() > 0.8
    True
    """

    @property
    def _multiclass(self) -> bool:
        return True


class RiverMeshRegressor(_InRiver, MeshStreamRegressor, base.MiniBatchRegressor, wraps=MeshStreamRegressor):  # type: ignore[misc]
    """`meshnn.MeshStreamRegressor` for river, with the same parameters except `seed` for `random_state`.

    Examples
    --------
    >>> from meshnn.integrations.river import RiverMeshRegressor
    >>> from river import datasets, evaluate, metrics
    >>> model = RiverMeshRegressor(seed=0)
    >>> metric = evaluate.progressive_val_score(datasets.TrumpApproval(), model, metrics.MAE())
    >>> metric.get() < 1
    True
    """


class RiverMeshForecaster(_InRiver, MeshForecaster, Forecaster, wraps=MeshForecaster):  # type: ignore[misc]
    """`meshnn.MeshForecaster` for river, with the same parameters except `seed` for `random_state`.

    Dates among the features, which river's series contain, are ignored, because values have equal time steps. Other
    features must be numbers.

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

    def learn_one(self, y: float | None, x: Mapping[Any, Any] | None = None) -> None:
        """Learn the next value, with the features that are known at its time."""
        super().learn_one(y, _without_dates(x))

    def _future(self, horizon: int, xs: Any) -> Any:
        return super()._future(horizon, None if xs is None else [_without_dates(x) for x in xs])


def _without_dates(x: Any) -> Any:
    if not isinstance(x, Mapping):
        return x
    return {name: value for name, value in x.items() if not isinstance(value, (date, np.datetime64))}
