"""Models of meshnn as those of sktime: time series of different lengths, one or several variables; forecasts."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshnn.integrations.sktime.classifier import MeshTimeSeriesClassifier
    from meshnn.integrations.sktime.forecaster import MeshForecaster
    from meshnn.integrations.sktime.regressor import MeshTimeSeriesRegressor

__all__ = ["MeshForecaster", "MeshTimeSeriesClassifier", "MeshTimeSeriesRegressor"]
_HOMES = {
    "MeshForecaster": "forecaster",
    "MeshTimeSeriesClassifier": "classifier",
    "MeshTimeSeriesRegressor": "regressor",
}


def __getattr__(name: str) -> Any:
    """On first use: sktime takes seconds to import."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import sktime  # noqa: F401
    except ImportError as error:  # an optional dependency: say how to get it
        raise ImportError("sktime is not installed; pip install 'meshnn[sktime]' brings it") from error
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
