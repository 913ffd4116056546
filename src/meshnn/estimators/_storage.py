"""Estimators as headers and arrays, and back: everything by name, nothing that could run."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshnn import storage
from meshnn.arguments import whole_number
from meshnn.estimators._scaling import Scaling
from meshnn.mesh import Mesh
from meshnn.storage import FileError
from meshnn.topology import Topology
from meshnn.training import History, Trainer
from meshnn.training.checkpoint import Parts, with_training
from meshnn.training.history import HistoryRow
from meshnn.training.solver import State
from meshnn.training.trainer import rows_from

if TYPE_CHECKING:
    from meshnn.estimators._base import BaseMesh

__all__ = ["freeze", "save", "thaw"]

Array = NDArray[Any]
#: Parameters that cannot be written down: a loaded estimator has them as None.
UNSAVED = ("callbacks", "checkpoint")
_SCALING = ("x_mean", "x_scale", "y_mean", "y_scale")


def save(estimator: BaseMesh, path: str | PathLike[str]) -> None:
    """Write a fitted estimator."""
    storage.write(path, *describe(estimator))


def freeze(estimator: BaseMesh, trainer: Trainer, seed: int, run: str) -> Parts:
    """A checkpoint: the model with the best weights so far, and all that is needed to go on."""
    estimator.history_ = trainer.history
    return with_training(describe(estimator, trainer.best_weights), trainer.state(), seed, run)


def describe(estimator: BaseMesh, weights: Array | None = None) -> Parts:
    """Header and arrays of a fitted estimator."""
    mesh_header, mesh_arrays = estimator.mesh_.to_parts()
    if weights is not None:
        mesh_arrays["weights"] = weights
    header: dict[str, Any] = {
        "kind": estimator._kind,
        "versions": versions(),
        "parameters": {name: _plain(name, value) for name, value in estimator.get_params(deep=False).items()},
        "mesh": mesh_header,
        "n_features": int(estimator.n_features_in_),
        "n_iter": int(getattr(estimator, "n_iter_", 0)),
        "best_restart": int(getattr(estimator, "best_restart_", 0)),
        "solver": [estimator.solver_, estimator.solver_reason_],
        "notes": [row.note for row in estimator.history_],
    }
    arrays = {f"mesh.{name}": array for name, array in mesh_arrays.items()}
    for name in _SCALING:
        arrays[f"scaling.{name}"] = getattr(estimator._scaling, name)
    for name in HistoryRow._fields[:-1]:
        arrays[f"history.{name}"] = np.array([getattr(row, name) for row in estimator.history_], dtype=np.float64)
    if hasattr(estimator, "feature_names_in_"):
        header["feature_names"] = [str(name) for name in estimator.feature_names_in_]
    if hasattr(estimator, "classes_"):
        header["classes"] = _labels(estimator.classes_, arrays)
    if hasattr(estimator, "_flat"):
        header["flat"] = bool(estimator._flat)
    state = getattr(estimator, "_solver_state", None)
    if state is not None:
        header["stream"] = {"state": state.values, "seed": estimator._stream_seed}
        arrays |= {f"stream.{name}": array for name, array in state.arrays.items()}
    if hasattr(estimator, "encoder_"):
        header["table"] = estimator.encoder_.to_dict()
        header["target"] = estimator.target_
    return header, arrays


def versions() -> dict[str, str]:
    """What the file was written with."""
    from importlib.metadata import version

    return {"python": platform.python_version()} | {name: version(name) for name in ("meshnn", "numpy", "scikit-learn")}


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON can hold it."""
    if name in UNSAVED:
        return None
    if isinstance(value, Topology) or callable(value):
        return {"topology": "that of the mesh"}
    if isinstance(value, dict):
        return {"pairs": [[_scalar(key), float(weight)] for key, weight in value.items()]}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_scalar(item) for item in value]
    if name == "random_state" and not isinstance(value, (int, np.integer, type(None))):
        return None  # a generator has moved on; its next numbers are not part of the model
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise FileError(f"a .mesh file cannot hold {value!r} of type {type(value).__name__}; use plain numbers or strings")


def _labels(classes: Array, arrays: dict[str, Array]) -> Any:
    if classes.dtype.kind in "biuf":
        arrays["classes"] = classes
        return None
    return {"dtype": classes.dtype.str, "values": [_scalar(label) for label in classes.tolist()]}


# -- back ----------------------------------------------------------------------------------------------------------


def thaw(path: str, kinds: Mapping[str, Callable[..., Any]], header: dict[str, Any], arrays: dict[str, Array]) -> Any:
    """The estimator of a header and arrays that may come from anywhere."""
    try:
        return _thaw(kinds[header["kind"]], header, arrays)
    except FileError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        what = f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else error
        raise FileError(f"{path} does not hold a model that makes sense ({what}); save it again") from None


def _thaw(make: Callable[..., Any], header: dict[str, Any], arrays: dict[str, Array]) -> Any:
    mesh = Mesh.from_parts(header["mesh"], _under("mesh.", arrays))
    given = {name: _value(value, mesh) for name, value in header["parameters"].items()}
    estimator = make()
    known = estimator.get_params(deep=False)
    estimator.set_params(**{name: value for name, value in given.items() if name in known})
    estimator.mesh_ = mesh
    t = mesh.topology
    estimator.n_features_in_ = whole_number("n_features", header["n_features"])
    estimator.n_iter_ = whole_number("n_iter", header["n_iter"], least=0)
    estimator.best_restart_ = whole_number("best_restart", header["best_restart"], least=0)
    estimator.solver_, estimator.solver_reason_ = (str(text) for text in header["solver"])
    if estimator.n_features_in_ != t.n_inputs:
        raise FileError(f"the file has {estimator.n_features_in_} features, its net {t.n_inputs} inputs")
    estimator._scaling = Scaling(*(arrays[f"scaling.{name}"] for name in _SCALING))
    lengths = {"x_mean": t.n_inputs, "x_scale": t.n_inputs}
    for name in _SCALING:
        found = getattr(estimator._scaling, name)
        wanted = lengths.get(name, t.n_outputs if header["kind"] == "regressor" else 1)
        if found.shape != (wanted,) or found.dtype != np.float64 or not np.isfinite(found).all():
            raise FileError(f"the file's {name} is not {wanted} finite numbers")
    estimator.history_ = History(rows_from([str(note) for note in header["notes"]], arrays))
    if "feature_names" in header:
        names = np.array([str(name) for name in header["feature_names"]], dtype=object)
        if names.shape != (t.n_inputs,):
            raise FileError(f"the file names {len(names)} features, its net has {t.n_inputs} inputs")
        estimator.feature_names_in_ = names
    if header["kind"] == "classifier":
        estimator.classes_ = _read_labels(header["classes"], arrays)
        if estimator.classes_.shape != (t.n_outputs,):
            raise FileError(f"the file names {len(estimator.classes_)} classes, its net has {t.n_outputs} outputs")
    else:
        estimator._flat = bool(header["flat"])
        if estimator._flat and t.n_outputs != 1:
            raise FileError(f"the file has one target, its net {t.n_outputs} outputs")
    if "stream" in header:
        estimator._stream_seed = whole_number("seed", header["stream"]["seed"], least=0)
        estimator._solver_state = State(header["stream"]["state"], _under("stream.", arrays))
    if "table" in header:
        from meshnn.data.encoding import Encoder

        estimator.encoder_, estimator.target_ = Encoder.from_dict(header["table"]), str(header["target"])
        if len(estimator.encoder_.feature_names) != t.n_inputs:
            raise FileError(f"the file's columns give {len(estimator.encoder_.feature_names)} features, "
                            f"its net has {t.n_inputs} inputs")  # fmt: skip
    return estimator


def _under(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _value(value: Any, mesh: Mesh) -> Any:
    if isinstance(value, dict):
        return mesh.topology if "topology" in value else dict(value["pairs"])
    return value


def _read_labels(described: Any, arrays: dict[str, Array]) -> Array:
    if described is None:
        return arrays["classes"]
    dtype = np.dtype(str(described["dtype"]))
    if dtype.kind not in "UO":
        raise FileError(f"the file's classes are of dtype {dtype}, expected text")
    values = [_scalar(value) for value in described["values"]]
    labels = np.empty(len(values), dtype=dtype)
    labels[:] = values
    return labels
