"""Estimators as trees, and back: everything by name, nothing that could run."""

from __future__ import annotations

import math
import platform
import re
from dataclasses import replace
from reprlib import repr as shorten
from typing import TYPE_CHECKING, Any

import numpy as np

from meshnn.arguments import FROM_0, POSITIVE, real_number, switch, whole_number
from meshnn.arrays import Array
from meshnn.checks import check_current_weights
from meshnn.estimators._reading import Reading, ReadsSequences
from meshnn.estimators._scaling import Scaling
from meshnn.export.ranges import Ranges
from meshnn.losses import loss_named
from meshnn.mesh import Mesh
from meshnn.storage import FileError, Tree
from meshnn.topology import Topology
from meshnn.training import History
from meshnn.training.laplace import LIMIT, Laplace
from meshnn.training.solvers import solver_named
from meshnn.training.structure.storing import (
    Lost,
    graph_from_tree,
    graph_to_tree,
    structure_from_tree,
    structure_to_tree,
)

if TYPE_CHECKING:
    from meshnn.estimators._base import BaseMesh

__all__ = ["from_tree", "to_tree"]

#: Parameters that cannot be written down: a loaded estimator has them as None.
UNSAVED = ("callbacks", "checkpoint")
#: Parameters that the mesh has: a loaded estimator takes them from it, if they cannot be written down.
OF_THE_MESH = ("topology", "parameter", "weights")
#: Letters that the dtype of classes may have to spare.
WIDEST = 1000
_SCALING = ("x_mean", "x_scale", "y_mean", "y_scale")
_CONSTANT = ("x_constant", "y_constant")
#: What the file was written with.
_WRITERS = ("meshnn", "numpy", "scikit-learn")


def to_tree(estimator: BaseMesh, parameters: Array | None = None) -> Tree:
    """A fitted estimator as plain values and arrays; with other parameters of its net than it has, if given."""
    from importlib.metadata import version

    mesh = estimator.mesh_.to_tree()
    if parameters is not None:
        mesh["weights"] = estimator.mesh_.weights_of(parameters)
    check_current_weights(mesh["weights"], estimator.mesh_.topology.n_edges)
    tree: Tree = {
        "kind": getattr(estimator, "_file_kind", estimator._kind),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in _WRITERS},
        "parameters": {
            name: _plain(name, value, estimator.mesh_.topology)
            for name, value in estimator.get_params(deep=False).items()
        },
        "mesh": mesh,
        "n_features": int(estimator.n_features_in_),
        "n_iter": int(estimator.n_iter_),
        "l2": float(estimator.l2_),
        "best_restart": int(estimator.best_restart_),
        "loss": estimator.loss_,
        "solver": [estimator.solver_, estimator.solver_reason_],
        "history": estimator.history_.to_tree(),
        "scaling": {name: getattr(estimator._scaling, name) for name in _SCALING},
        "stream": {"seed": estimator._stream_seed, "memory": estimator._solver_state},
    }
    if estimator._seen > 0:  # the scaling follows the stream
        constant = {name: getattr(estimator._scaling, name) for name in _CONSTANT}
        tree["stream"]["scaled"] = constant | {"seen": float(estimator._seen)}
    if estimator._ranges is not None:
        tree["ranges"] = estimator._ranges.to_tree()
    if hasattr(estimator, "feature_names_in_"):
        tree["feature_names"] = [str(name) for name in estimator.feature_names_in_]
    if hasattr(estimator, "reading_"):  # of sequences
        tree["reading"] = list(estimator.reading_)
    if hasattr(estimator, "classes_"):
        tree["classes"] = _labels(estimator.classes_)
    if hasattr(estimator, "_flat"):
        tree["flat"] = bool(estimator._flat)
    if hasattr(estimator, "feature_importances_"):
        tree["importances"] = estimator.feature_importances_
    if estimator._kind == "regressor":
        tree["laplace"] = _certainty(estimator._laplace)
    if hasattr(estimator, "encoder_"):
        tree["table"] = estimator.encoder_.to_dict()
        if hasattr(estimator, "target_"):  # of `meshnn fit`
            tree["target"] = estimator.target_
    return tree


def _certainty(known: Laplace | str) -> Any:
    """The triangle row by row; in full, since rounded ones make other variances."""
    if isinstance(known, str):
        return known
    return {"root": known.root[np.tril_indices(len(known.root))], "noise": known.noise}


def _plain(name: str, value: Any, graph: Topology) -> Any:
    """A parameter as a file can hold it, for a mesh of this graph."""
    if name in UNSAVED or (name == "scoring" and callable(value)):
        return None
    if name == "structure":
        return structure_to_tree(value)
    if name == "topology" and isinstance(value, Topology) and value != graph:  # it has changed while it learned
        return {name: graph_to_tree(value)}
    if name in ("parameter", "weights") and value is not None and not callable(value):
        return np.asarray(value)
    if name in OF_THE_MESH and value is not None and not isinstance(value, str):
        return {name: "that of the mesh"}
    if isinstance(value, dict):
        return {"pairs": [[_scalar(name, key), _scalar(name, weight)] for key, weight in value.items()]}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_scalar(name, item) for item in value]
    if name == "random_state" and not isinstance(value, (int, np.integer, type(None))):
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


# -- back ----------------------------------------------------------------------------------------------------------


def from_tree(estimator: Any, tree: Tree) -> Any:
    """The new estimator filled from a tree that may come from anywhere; errors of any kind if it cannot.

    Parameters are only looked at by the next `fit`, and unknown ones (of a newer version) are left out.
    """
    mesh = Mesh.from_tree(tree["mesh"])
    known = estimator.get_params(deep=False)
    stored = {name: value for name, value in tree["parameters"].items() if name in known}
    given = {name: _value(value, mesh) for name, value in stored.items() if name != "structure"}
    graph = given.get("topology")
    for name in ("parameter", "weights"):  # numbers of edges: of no use to another graph
        numbers = given.get(name)
        if graph is not None and isinstance(numbers, np.ndarray) and numbers.shape != (graph.n_edges,):
            given[name] = None
    if "structure" in stored:
        given["structure"] = _read_structure(stored["structure"], mesh)
    estimator.set_params(**given)
    estimator.mesh_ = mesh
    estimator._built = estimator._net()
    estimator.loss_ = loss_named(tree["loss"]).name
    estimator.n_features_in_ = whole_number("n_features", tree["n_features"])
    estimator.l2_ = real_number("l2", tree["l2"], *FROM_0)
    estimator._l2_found = isinstance(tree["parameters"].get("l2"), str)
    estimator.n_iter_ = whole_number("n_iter", tree["n_iter"], least=0)
    estimator.best_restart_ = whole_number("best_restart", tree["best_restart"], least=0)
    estimator.solver_, estimator.solver_reason_ = _texts("solver", tree["solver"], 2)
    by_name = "table" in tree and "feature_names" in tree  # columns of a DataFrame, which become other features
    if estimator.n_features_in_ != mesh.topology.n_inputs and not by_name:
        raise FileError(f"it has {estimator.n_features_in_} features, its net {mesh.topology.n_inputs} inputs")
    estimator.history_ = History.from_tree(tree["history"])
    estimator._scaling = _read_scaling(estimator, tree["scaling"])
    if "ranges" in tree:
        estimator._ranges = Ranges.from_tree(tree["ranges"], mesh.topology.n_inputs, mesh.topology.n_neurons)
    if isinstance(estimator, ReadsSequences):
        estimator.reading_ = Reading.of(*tree["reading"])
    if "feature_names" in tree:
        names = _texts("feature_names", tree["feature_names"], estimator.n_features_in_)
        estimator.feature_names_in_ = np.array(names, dtype=object)
    if estimator._kind == "classifier":
        estimator._several = loss_named(estimator.loss_).several
        estimator.classes_ = _read_labels(tree["classes"], mesh.topology.n_outputs)
    else:
        estimator._flat = switch("flat", tree["flat"])
        estimator._laplace = _read_certainty(tree.get("laplace", "an earlier version of meshnn saved the model"), mesh)
        if estimator._flat and mesh.topology.n_outputs != 1:
            raise FileError(f"it has one target, its net {mesh.topology.n_outputs} outputs")
    if "importances" in tree:
        estimator.feature_importances_ = _numbers("importances", tree["importances"], estimator.n_features_in_)
    seed, memory = tree["stream"]["seed"], tree["stream"]["memory"]
    estimator._stream_seed, estimator._solver_state = whole_number("seed", seed, least=0), None
    if "scaled" in tree["stream"]:
        scaled = tree["stream"]["scaled"]
        estimator._seen = real_number("seen", scaled["seen"], *POSITIVE)
        estimator._scaling = _read_constant(estimator._scaling, scaled)
    if memory is not None:
        estimator._solver_state = solver_named(estimator.solver_).check_stream(memory, mesh)
    if "table" in tree:
        _read_table(estimator, tree)
    return estimator


def _read_scaling(estimator: Any, stored: Tree) -> Scaling:
    t, loss = estimator.mesh_.topology, loss_named(estimator.loss_)
    found = Scaling(*(stored[name] for name in _SCALING))
    for name in _SCALING:
        numbers = getattr(found, name)
        wanted = t.n_inputs if name.startswith("x") else t.n_outputs if not loss.classifies or loss.several else 1
        right = numbers.shape == (wanted,) and numbers.dtype == np.float64 and np.isfinite(numbers).all()
        if not right or (name.endswith("scale") and not (numbers > 0).all()):
            raise FileError(f"its {name} is not {wanted} finite numbers{', all positive' if 'scale' in name else ''}")
    return found


def _read_constant(scaling: Scaling, stored: Tree) -> Scaling:
    masks = {name: stored[name] for name in _CONSTANT}
    for name, mask in masks.items():
        shape = getattr(scaling, name.replace("constant", "mean")).shape
        if not (name == "y_constant" and mask is None) and (mask.dtype != np.bool_ or mask.shape != shape):
            raise FileError(f"its {name} does not say which columns were constant")
    return replace(scaling, **masks)


def _read_certainty(stored: Any, mesh: Mesh) -> Laplace | str:
    if isinstance(stored, str):
        return stored
    live = mesh.live_parameters()
    if len(live) > LIMIT:
        raise FileError(f"it is sure of {len(live)} weights, at most {LIMIT} are expected")
    root = np.zeros((len(live), len(live)))
    root[np.tril_indices(len(live))] = _numbers("root", stored["root"], len(live) * (len(live) + 1) // 2, -np.inf)
    return Laplace(live, root, _numbers("noise", stored["noise"], mesh.topology.n_outputs))


def _numbers(what: str, stored: Any, count: int, least: float = 0.0) -> Array:
    right = stored.shape == (count,) and stored.dtype.kind == "f" and np.isfinite(stored).all()
    if not right or not (stored >= least).all():
        raise FileError(f"its {what} are not {count} finite numbers of at least {least:g}")
    return np.asarray(stored, np.float64)


def _read_table(estimator: Any, tree: Tree) -> None:
    from meshnn.data.encoding import Encoder

    estimator.encoder_ = Encoder.from_dict(tree["table"])
    if "target" in tree:
        estimator.target_ = _texts("target", [tree["target"]])[0]
    names, n_inputs = estimator.encoder_.feature_names, estimator.mesh_.topology.n_inputs
    if len(names) != n_inputs:
        raise FileError(f"its columns give {len(names)} features, its net has {n_inputs} inputs")
    if hasattr(estimator, "feature_names_in_"):
        stored = sorted([column.name for column in estimator.encoder_.columns] + list(estimator.encoder_.left_out))
        if stored != sorted(estimator.feature_names_in_):
            raise FileError("its columns are not those of the table it learned from")


def _texts(what: str, values: Any, count: int | None = None) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise FileError(f"its {what} are not texts")
    if count is not None and len(values) != count:
        raise FileError(f"its {what} are {len(values)}, expected {count}")
    return values


def _value(value: Any, mesh: Mesh) -> Any:
    if isinstance(value, np.ndarray):
        return value if value.ndim == 1 else None
    if isinstance(value, dict):
        named = next((name for name in OF_THE_MESH if name in value), None)
        if named == "topology" and isinstance(value[named], dict):
            return graph_from_tree(value[named])
        return dict(value["pairs"]) if named is None else getattr(mesh, named)
    return value


def _read_structure(stored: Any, mesh: Mesh) -> Any:
    if stored is not None:
        return structure_from_tree(stored)
    # a version that did not save policies; that there were some is seen from what they did
    return None if mesh.lineage_ is None else Lost("structure=")


def _read_labels(described: Any, count: int) -> Array:
    if isinstance(described, np.ndarray):
        labels = described
    else:
        values = [_scalar("classes", value) for value in described["values"]]
        labels = np.empty(len(values), dtype=_text_dtype(described["dtype"], values))
        labels[:] = values
    if labels.shape != (count,) or count < 2:
        raise FileError(f"it names {len(labels)} classes, its net has {count} outputs")
    if not all(labels[:-1] < labels[1:]):
        raise FileError("its classes are not in order")
    return labels


def _text_dtype(stored: Any, values: list[Any]) -> str:
    """That of the labels, but no wider than texts are: a few bytes could ask for all memory."""
    if stored == "|O":
        return "O"
    found = re.fullmatch(r"([<>])U([1-9]\d{0,8})", stored)
    longest = max((len(text) for text in _texts("classes", values)), default=0)
    if found is None or longest > int(found[2]):
        raise FileError(f"its classes are of dtype {shorten(stored)}, expected text of {longest} letters")
    return f"{found[1]}U{min(int(found[2]), max(longest, WIDEST))}"
