"""Estimators as trees of plain values and arrays, and back. Files are not trusted, so every value is validated."""

from __future__ import annotations

import math
import platform
import re
from dataclasses import dataclass, fields
from reprlib import repr as shorten
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from meshnn.arrays import Array
from meshnn.checks import check_current_weights
from meshnn.estimators.preprocessing import Preprocessing
from meshnn.estimators.sequences import SequencePreprocessing
from meshnn.export.ranges import Ranges
from meshnn.losses import loss_named
from meshnn.mesh import Mesh
from meshnn.storage import FileError, Tree
from meshnn.topology import Topology
from meshnn.training import EarlyStopping, History, state
from meshnn.training.laplace import Laplace
from meshnn.training.solvers import Solver, solver_named
from meshnn.training.structure.runtime import graph_from_tree, graph_to_tree, structure_from_tree, structure_to_tree

if TYPE_CHECKING:
    from meshnn.estimators.base import BaseMesh


@dataclass
class PartialFitState:
    """The state from which `partial_fit` and a warm start continue."""

    seed: state.Count
    memory: dict[str, Any] | None
    weight: state.FromZero


@dataclass
class ModelState:
    """Results of a fit; most are fitted attributes of the estimator."""

    n_iter: state.Count
    l2: state.FromZero
    best_restart: state.Count
    solver: tuple[str, str]  # name and reason
    stream: PartialFitState
    importances: Annotated[Array, state.Vector("columns", "float64", state.Interval(0, math.inf, "[)"))] | None
    target: str | None


def to_tree(estimator: BaseMesh, net: Mesh | None = None) -> Tree:
    """Return a fitted estimator as plain values and arrays, with another net instead of its own if given."""
    from importlib.metadata import version

    model: Any = estimator
    net = model.mesh_ if net is None else net
    mesh, graph = net.to_tree(), net.topology
    check_current_weights(mesh["weights"], graph.n_edges)
    given = model.get_params(deep=False)
    if callable(model.mesh):
        given["mesh"] = model._prototype or graph
    tree: Tree = {
        "kind": model.preprocessing_.kind + model._kind,
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("meshnn", "numpy", "scikit-learn")},
        "parameters": {name: _plain(name, value, graph) for name, value in given.items()},
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
    """Return a parameter of the estimator as plain values, for a net with this graph."""
    if name == "callbacks" or (name == "scoring" and callable(value)):
        return None
    if name == "structure":
        return structure_to_tree(value)
    if isinstance(value, Mesh):
        return {"mesh": value.to_tree()}
    if isinstance(value, Topology):
        return {"topology": None if value == graph else graph_to_tree(value)}  # training may have changed the graph
    if isinstance(value, state.Options):
        kind = {"solver": value.name} if isinstance(value, Solver) else {}
        return kind | {"options": {key: _plain(key, each, graph) for key, each in value.get_params().items()}}
    if isinstance(value, dict):
        return {"pairs": [[_scalar(name, key), _scalar(name, weight)] for key, weight in value.items()]}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(name, item, graph) for item in value]
    if name == "random_state" and not isinstance(value, (int, np.integer)):
        return None  # the state of a generator is not part of the model
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
    return {"dtype": classes.dtype.str, "values": [_scalar("classes_", label) for label in classes.tolist()]}


def from_tree(estimator: Any, tree: Tree) -> Any:
    """Fill a new estimator from a tree; may raise errors of any class if the tree is invalid.

    Parameters are validated by the next `fit`; unknown ones are ignored.
    """
    mesh, loss = Mesh.from_tree(tree["mesh"]), loss_named(tree["loss"])
    graph, own = mesh.topology, estimator.get_params(deep=False)
    estimator.set_params(**{key: _read(key, value, mesh) for key, value in tree["parameters"].items() if key in own})
    if loss.classifies != (estimator._kind == "classifier"):
        raise FileError(f"a {estimator._kind} does not support its loss {loss.name}")
    kind = SequencePreprocessing if str(tree["kind"]).startswith(SequencePreprocessing.kind) else Preprocessing
    n_targets = 1 if loss.classifies and not loss.several else graph.n_outputs
    preprocessing = kind.from_tree(tree["preprocessing"], {"inputs": graph.n_inputs, "targets": n_targets})
    estimator.mesh_, estimator.loss_, estimator.preprocessing_ = mesh, loss.name, preprocessing
    if hasattr(estimator, "_builder_type"):
        estimator._built = estimator._builder_type(estimator, loss, None).identity()
    estimator._l2_searched = isinstance(tree["parameters"].get("l2"), str)
    estimator.history_ = History.from_tree(tree["history"])
    named = {field.name: tree.get(field.name) for field in fields(ModelState)}
    found = state.from_tree(ModelState, named, {"columns": preprocessing.n_features})
    estimator.n_iter_, estimator.l2_, estimator.best_restart_ = found.n_iter, found.l2, found.best_restart
    estimator.solver_, estimator.solver_reason_ = found.solver
    estimator._stream_seed, estimator._stream_weight = found.stream.seed, found.stream.weight
    memory = found.stream.memory
    estimator._solver_state = None if memory is None else solver_named(found.solver[0]).checked_memory(memory, mesh)
    if found.importances is not None:
        estimator.feature_importances_ = found.importances
    if found.target is not None:
        estimator.target_ = found.target
    if "ranges" in tree:
        estimator._ranges = Ranges.from_tree(tree["ranges"], graph.n_inputs, graph.n_neurons)
    if loss.classifies:
        estimator._several, estimator.classes_ = loss.several, _read_labels(tree["classes"], graph.n_outputs)
        return estimator
    estimator._flat, laplace = tree["flat"], tree["laplace"]
    if not isinstance(estimator._flat, bool) or (estimator._flat and graph.n_outputs != 1):
        raise FileError(f"flat is {shorten(tree['flat'])}, but its net has {graph.n_outputs} outputs")
    estimator._laplace = laplace if isinstance(laplace, str) else Laplace.from_tree(laplace, mesh)
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


def _read_labels(stored: Any, count: int) -> Array:
    """Return the classes of a net with this number of outputs."""
    labels = stored
    if not isinstance(stored, np.ndarray):
        if not re.fullmatch(r"\|O|[<>]U[1-9]\d*", stored["dtype"]):
            raise FileError(f"its classes are of dtype {shorten(stored['dtype'])}, expected text")
        values = [_scalar("classes", value) for value in stored["values"]]
        labels = np.array(values, object if stored["dtype"] == "|O" else str)
    if labels.shape != (count,) or count < 2 or not all(labels[:-1] < labels[1:]):
        raise FileError(f"its classes are not {count} sorted values, one per output of its net")
    return labels
