"""Estimators as trees of plain values and arrays, and back. Trees may come from anywhere: everything is checked."""

from __future__ import annotations

import math
import platform
import re
from reprlib import repr as shorten
from typing import TYPE_CHECKING, Any

import numpy as np

from meshnn.arguments import FROM_0, real_number, switch, whole_number
from meshnn.arrays import Array
from meshnn.checks import check_current_weights
from meshnn.estimators.preprocessing import Preprocessing
from meshnn.estimators.scaling import Scaling
from meshnn.estimators.sequences import Reading, SequencePreprocessing
from meshnn.export.ranges import Ranges
from meshnn.losses import loss_named
from meshnn.mesh import Mesh
from meshnn.storage import FileError, Tree
from meshnn.topology import Topology
from meshnn.training import EarlyStopping, History
from meshnn.training.laplace import Laplace
from meshnn.training.solvers import Solver, solver_named
from meshnn.training.state import Options
from meshnn.training.structure.runtime import graph_from_tree, graph_to_tree, structure_from_tree, structure_to_tree

if TYPE_CHECKING:
    from meshnn.estimators.base import BaseMesh


def to_tree(estimator: BaseMesh, parameters: Array | None = None) -> Tree:
    """Return a fitted estimator as plain values and arrays; with other parameters of its net, if given."""
    from importlib.metadata import version

    model: Any = estimator
    mesh, graph = model.mesh_.to_tree(), model.mesh_.topology
    if parameters is not None:
        mesh["weights"] = model.mesh_.weights_of(parameters)
    check_current_weights(mesh["weights"], graph.n_edges)
    given = model.get_params(deep=False)
    made = model._made or graph if callable(model.mesh) else model.mesh  # instead of a callable, what it has made
    tree: Tree = {
        "kind": model.preprocessing_.kind + model._kind,
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("meshnn", "numpy", "scikit-learn")},
        "parameters": {name: _plain(name, value, graph) for name, value in (given | {"mesh": made}).items()},
        "mesh": mesh,
        "preprocessing": model.preprocessing_.to_tree(),
        "n_iter": int(model.n_iter_),
        "l2": float(model.l2_),
        "best_restart": int(model.best_restart_),
        "loss": model.loss_,
        "solver": [model.solver_, model.solver_reason_],
        "history": model.history_.to_tree(),
        "stream": {"seed": model._stream_seed, "memory": model._solver_state, "weight": float(model._stream_weight)},
    }
    if model._kind == "classifier":
        tree["classes"] = _labels(model.classes_)
    else:
        tree["flat"] = bool(model._flat)
        tree["laplace"] = model._laplace if isinstance(model._laplace, str) else model._laplace.to_tree()
    if model._ranges is not None:
        tree["ranges"] = model._ranges.to_tree()
    optional = {"importances": "feature_importances_", "target": "target_"}
    return tree | {key: getattr(model, name) for key, name in optional.items() if hasattr(model, name)}


def _plain(name: str, value: Any, graph: Topology) -> Any:
    """Return a parameter as a file can hold it, for a net with this graph."""
    if name == "callbacks" or (name == "scoring" and callable(value)):
        return None
    if name == "structure":
        return structure_to_tree(value)
    if isinstance(value, Mesh):
        return {"mesh": value.to_tree()}
    if isinstance(value, Topology):
        return {"topology": None if value == graph else graph_to_tree(value)}  # it may have changed while it learned
    if isinstance(value, Options):
        kind = {"solver": value.name} if isinstance(value, Solver) else {}
        return kind | {"options": {key: _plain(key, each, graph) for key, each in value.get_params().items()}}
    if isinstance(value, dict):
        return {"pairs": [[_scalar(name, key), _scalar(name, weight)] for key, weight in value.items()]}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(name, item, graph) for item in value]
    if name == "random_state" and not isinstance(value, (int, np.integer)):
        return None  # a generator has moved on; its next numbers are not part of the model
    return _scalar(name, value)


def _scalar(what: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    shown = f"{shorten(value)} of type {type(value).__name__}"
    raise FileError(f"{what} holds {shown}, which a .mesh file cannot; use plain numbers or strings")


def _labels(classes: Array) -> Any:
    if classes.dtype.kind in "biuf":
        return classes
    if classes.dtype.kind not in "UO":
        raise FileError(f"classes_ has dtype {classes.dtype}, which a .mesh file cannot hold; use numbers or strings")
    return {"dtype": classes.dtype.str, "values": [_scalar("classes_", label) for label in classes.tolist()]}


def from_tree(estimator: Any, tree: Tree) -> Any:
    """Fill a new estimator from a tree; errors of any kind if that cannot be done.

    Parameters are only checked by the next `fit`, and unknown ones are left out.
    """
    mesh, loss, stream = Mesh.from_tree(tree["mesh"]), loss_named(tree["loss"]), tree["stream"]
    own = estimator.get_params(deep=False)
    estimator.set_params(**{key: _read(key, value, mesh) for key, value in tree["parameters"].items() if key in own})
    if loss.classifies != (estimator._kind == "classifier"):
        raise FileError(f"its loss {loss.name} is not one of a {estimator._kind}")
    estimator.mesh_, estimator.loss_ = mesh, loss.name
    estimator.preprocessing_ = _read_preprocessing(tree, mesh, loss)
    if hasattr(estimator, "_builder_type"):
        estimator._built = estimator._builder_type(estimator, loss, None).identity()
    estimator.l2_ = real_number("l2", tree["l2"], *FROM_0)
    estimator._l2_found = isinstance(tree["parameters"].get("l2"), str)
    estimator.n_iter_ = whole_number("n_iter", tree["n_iter"], least=0)
    estimator.best_restart_ = whole_number("best_restart", tree["best_restart"], least=0)
    estimator.solver_, estimator.solver_reason_ = _texts("solver", tree["solver"], 2)
    estimator.history_ = History.from_tree(tree["history"])
    if estimator._kind == "classifier":
        estimator._several = loss.several
        estimator.classes_ = _read_labels(tree["classes"], mesh.topology.n_outputs)
    else:
        estimator._flat, laplace = switch("flat", tree["flat"]), tree["laplace"]
        if not isinstance(laplace, str):
            laplace = Laplace.from_tree(laplace, mesh)
        estimator._laplace = laplace
        if estimator._flat and mesh.topology.n_outputs != 1:
            raise FileError(f"it has one target, its net {mesh.topology.n_outputs} outputs")
    if "importances" in tree:
        count = estimator.preprocessing_.n_features
        estimator.feature_importances_ = _numbers("importances", tree["importances"], count, least=0.0)
    if "ranges" in tree:
        estimator._ranges = Ranges.from_tree(tree["ranges"], mesh.topology.n_inputs, mesh.topology.n_neurons)
    if "target" in tree:
        estimator.target_ = _texts("target", [tree["target"]], 1)[0]
    estimator._stream_seed, memory = whole_number("seed", stream["seed"], least=0), stream["memory"]
    estimator._stream_weight = real_number("weight", stream["weight"], *FROM_0)
    estimator._solver_state = None if memory is None else solver_named(estimator.solver_).checked_memory(memory, mesh)
    return estimator


def _read(name: str, value: Any, mesh: Mesh) -> Any:
    """Invert `_plain` for a net."""
    if name == "structure":
        return structure_from_tree(value)
    if isinstance(value, list):
        return [_read(name, each, mesh) for each in value]
    if not isinstance(value, dict):
        return value
    if "mesh" in value:
        return Mesh.from_tree(value["mesh"])
    if "topology" in value:
        return mesh.topology if value["topology"] is None else graph_from_tree(value["topology"])
    if "solver" in value:
        options = {key: tuple(each) if isinstance(each, list) else each for key, each in value["options"].items()}
        return solver_named(value["solver"]).set_params(**options)
    return EarlyStopping(**value["options"]) if "options" in value else dict(value["pairs"])


def _read_preprocessing(tree: Tree, mesh: Mesh, loss: Any) -> Preprocessing:
    from meshnn.tables.encoder import Encoder

    stored, n_inputs, n_outputs = tree["preprocessing"], mesh.topology.n_inputs, mesh.topology.n_outputs
    n_features = whole_number("n_features", stored["n_features"])
    names = tuple(_texts("names", stored["names"], n_features)) if "names" in stored else None
    encoder = Encoder.from_tree(stored["encoder"]) if "encoder" in stored else None
    width = n_features if encoder is None else len(encoder.feature_names)
    if width != n_inputs:
        raise FileError(f"it has {width} features, its net {n_inputs} inputs")
    if encoder is not None and names is not None:
        columns = [*(column.name for column in encoder.columns), *encoder.left_out]
        if sorted(columns) != sorted(names):
            raise FileError("the columns of its encoder are not those of the table it learned from")
    scaling, counts = stored["scaling"], {"x": n_inputs, "y": 1 if loss.classifies and not loss.several else n_outputs}
    for axis, count in counts.items():
        _numbers(f"{axis}_mean", scaling[f"{axis}_mean"], count)
        _numbers(f"{axis}_scale", scaling[f"{axis}_scale"], count, least=np.nextafter(0.0, 1.0))
        constant = scaling[f"{axis}_constant"]
        if constant is not None and (constant.dtype != np.bool_ or constant.shape != (count,)):
            raise FileError(f"its {axis}_constant does not say which of {count} columns were constant")
    if str(tree["kind"]).startswith(SequencePreprocessing.kind):
        reading = Reading.of(*stored["reading"])
        return SequencePreprocessing(n_features, names, encoder, Scaling(**scaling), None, reading)
    return Preprocessing(n_features, names, encoder, Scaling(**scaling))


def _numbers(what: str, stored: Any, count: int, least: float = -np.inf) -> Array:
    right = stored.shape == (count,) and stored.dtype == np.float64 and np.isfinite(stored).all()
    if not right or not (stored >= least).all():
        raise FileError(f"its {what} are not {count} finite numbers of at least {least:g}")
    return np.asarray(stored)


def _texts(what: str, values: Any, count: int) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values) or len(values) != count:
        raise FileError(f"its {what} are not {count} texts")
    return values


def _read_labels(described: Any, count: int) -> Array:
    labels = described
    if not isinstance(described, np.ndarray):
        values, dtype = [_scalar("classes", value) for value in described["values"]], described["dtype"]
        if dtype == "|O":
            labels = np.empty(len(values), object)
            labels[:] = values
        elif re.fullmatch(r"[<>]U[1-9]\d*", dtype):  # as wide as needed: a few bytes could ask for all memory
            labels = np.array(_texts("classes", values, count))
        else:
            raise FileError(f"its classes are of dtype {shorten(dtype)}, expected text")
    if labels.shape != (count,) or count < 2:
        raise FileError(f"it names {len(labels)} classes, its net has {count} outputs")
    if not all(labels[:-1] < labels[1:]):
        raise FileError("its classes are not in order")
    return labels
