"""Base class of the stream classifier and regressor: builds, grows and saves the network while it learns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from meshnn.arguments import as_generator, known, whole_number
from meshnn.arrays import Array
from meshnn.codes import StreamNumbers
from meshnn.errors import DataError, FileError, MeshError, warn
from meshnn.export.blueprint import Blueprint, ExportError, Exports, SequenceTiming
from meshnn.mesh import Mesh
from meshnn.online._model import Features, OnlineModel, frame_rows, from_plain, to_plain
from meshnn.online._tuning import TUNING
from meshnn.storage import Tree
from meshnn.streaming import Stream
from meshnn.streaming.state import mean_and_scale
from meshnn.topology import Topology
from meshnn.topology.builders import Seed

__all__ = ["StreamModel"]


class StreamModel(OnlineModel, Exports):
    """A network that learns from a stream of dictionaries."""

    loss: str

    def __init__(
        self, hidden: int = 16, topology: str | Callable[[int, int], Topology] = "auto", activation: str = "tanh",
        memory: str = "none", ticks_per_sample: int | None = None, learner: str = "ekf",
        settings: Mapping[str, Any] | None = None, structure: Any = None, structure_every: int = 1000,
        structure_rounds: int = 20, max_features: int = 500, random_state: Seed = None,
    ) -> None:  # fmt: skip
        self.hidden, self.topology, self.activation, self.memory = hidden, topology, activation, memory
        self.ticks_per_sample, self.learner, self.settings = ticks_per_sample, learner, settings
        self.structure, self.structure_every, self.structure_rounds = structure, structure_every, structure_rounds
        self.max_features, self.random_state = max_features, random_state
        self.mesh_: Mesh | None = None
        self.stream_: Stream | None = None
        self.features_ = Features()
        self.n_samples_ = 0
        self._structure: Any = None
        self._warned_of_features = False  # whether the warning about ignored features was issued
        #: State of `meshnn stream`: schema of the table, number of rows read, scores. Saved with the model.
        self.table_: Tree | None = None
        self.classes_: list[Any] = []  # empty for a regressor
        self._number: dict[Any, int] = {}  # index of each class in classes_

    # -- network ---------------------------------------------------------------------------------------------------

    @property
    def _loss(self) -> str:
        raise NotImplementedError

    @property
    def _outputs(self) -> int:
        return 1

    def _loss_of(self, out: Array, target: float) -> float:
        """Return the loss of the outputs for one sample, which structure policies monitor."""
        raise NotImplementedError

    def _build(self) -> None:
        """Create the network for the features of the first sample."""
        topology = self._topology(len(self.features_), self._outputs)
        if self.structure is not None:
            from meshnn.online._structure import StreamStructure  # it imports the training code, which few streams need

            self._structure = StreamStructure(self.structure, self.structure_every, self.structure_rounds)
            topology = self._structure.first(topology)
        ticks = topology.default_ticks() if self.ticks_per_sample is None else self.ticks_per_sample
        mesh = Mesh(topology, max(ticks, 1), self.activation, dtype="float64", random_state=0)
        mesh.weights = _first_weights(topology, self.random_state)
        self.mesh_, self.stream_ = mesh, self._stream(mesh, ticks)

    def _stream(self, mesh: Mesh, ticks: int) -> Stream:
        options = {"memory": self.memory, "ticks_per_sample": ticks, "scale": True, **dict(self.settings or {})}
        stream: Stream = mesh.stream(self._loss, self.learner, **options)
        return stream

    def _topology(self, d: int, C: int) -> Topology:
        if callable(self.topology):
            found = self.topology(d, C)
            sizes = (found.n_inputs, found.n_outputs) if isinstance(found, Topology) else ()
            if sizes != (d, C):
                shown = repr(found) if sizes else type(found).__name__
                raise MeshError(
                    f"topology({d}, {C}) must return a Topology with {d} inputs and {C} outputs, got {shown}"
                )
            if found._chains:
                raise MeshError(
                    f"Topology.{found._chains} has chains of fixed weights, but {type(self).__name__} trains all edges "
                    f"of a topology; use meshnn.networks.{found._chains}(...).stream(...)"
                )
            return found
        name = known("topology", self.topology, ("auto", "layered", "mesh", "columns"))
        hidden = whole_number("hidden", self.hidden, least=0, most=TUNING.most_hidden)
        if name == "auto":
            name = "layered" if known("memory", self.memory, ("none", "carry")) == "none" else "mesh"
        if name == "layered":
            return Topology.layered([d, hidden, C] if hidden else [d, C])
        if name == "columns":
            return Topology.columns(d, hidden, C)
        whole = Topology.mesh(d, hidden, C, self_loops=True, feedback=False)
        inner = (whole.src >= d) | (whole.dst < whole.n_neurons - C)  # no edge from an input to an output
        return Topology(d, hidden, C, np.stack([whole.src, whole.dst], axis=1)[inner])

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Restore the model and its network if the body raises."""
        parts = [part for part in (self, self.mesh_, self.stream_) if part is not None]
        before = [dict(part.__dict__) for part in parts]
        try:
            yield
        except BaseException:
            for part, attributes in zip(parts, before, strict=True):
                part.__dict__.clear()
                part.__dict__.update(attributes)
            raise

    # -- samples ---------------------------------------------------------------------------------------------------

    def _check(self, x: Any) -> None:
        """Raise an error if x is not a valid sample."""
        self.features_.check(x)
        if not x:
            raise DataError("the sample is an empty dictionary; leave it out, or give it a feature like {'one': 1.0}")

    def _row(self, x: Any) -> Array:
        """Return the row of a training sample; new features are added as inputs of the network."""
        row = self.features_.fast_row(x)
        if row is not None:
            return row
        self._check(x)
        new = self.features_.new_names(x)
        free = max(whole_number("max_features", self.max_features) - len(self.features_), 0)
        if len(new) > free and self.stream_ is not None:
            if not self._warned_of_features:
                ignored = f"feature {new[free]!r} and all further new features are ignored: max_features is"
                advice = "increase it, or remove features whose names differ from row to row"
                warn(f"{ignored} {self.max_features}; {advice}")
            self._warned_of_features, new = True, new[:free]
        if new:
            with self._all_or_nothing():
                self.features_ = self.features_.extended(new)
                if self.mesh_ is None or self.stream_ is None:
                    self._build()
                else:
                    self.mesh_.grow_stream(self.stream_, inputs=len(new))
        return self.features_.fill(x)

    def _outputs_of(self, x: Mapping[Hashable, Any]) -> Array | None:
        """Return the outputs for a sample without changing the state; None before the first sample is learned."""
        row = self.features_.fast_row(x)
        if row is None:
            self._check(x)
            row = self.features_.fill(x)
        if self.stream_ is None:
            return None
        out: Array = self.stream_.peek_rows(row)[0]
        return out

    def _learn_row(self, x: Mapping[Hashable, Any], target: float) -> None:
        row = self._row(x)
        assert self.stream_ is not None
        out = self.stream_.learn_row(row, target)
        self.n_samples_ += 1
        if self._structure is not None:
            self._structure.update(self, row, target, out[0, 0])

    @property
    def _net(self) -> tuple[Mesh, Stream]:
        """The network and its stream."""
        if self.mesh_ is None or self.stream_ is None:
            raise ExportError("the model has not learned any sample yet, so it has no network; call learn_one first")
        return self.mesh_, self.stream_

    def explain(self) -> Any:
        """Return the cost per sample as a table that can be printed."""
        return self._net[1].explain()

    def blueprint(self) -> Blueprint:
        """Return the current computation as plain values and arrays, for exports."""
        mesh, s = self._net
        room = s.room
        x_mean, x_scale = mean_and_scale(room.x_moments)
        found = replace(
            mesh.blueprint(), ticks=s.ticks_per_sample,
            x_mean=x_mean, x_scale=x_scale, x_cut=StreamNumbers.INPUT_CUT,
            features=tuple(str(name) for name in self.features_.names), title=f"{type(self).__name__}: {mesh!r}",
            timing=SequenceTiming(s.ticks_per_sample, 0, "all") if s.memory == "carry" else None,
        )  # fmt: skip
        if room.y_moments.shape[1]:
            y_mean, y_scale = mean_and_scale(room.y_moments)
            found = replace(found, y_mean=y_mean, y_scale=np.where(np.isfinite(y_scale), y_scale, 0.0))
        return found

    def _learner(self) -> Any:
        return self._net[1].portable()

    # -- data frames and files ----------------------------------------------------------------------------------------

    def _check_target(self, y: Any) -> None:
        """Raise an error if the target is not valid."""
        raise NotImplementedError

    def learn_one(self, x: Mapping[Hashable, Any], y: Any) -> None:
        """Learn from the sample x with the target y."""
        raise NotImplementedError

    def predict_one(self, x: Mapping[Hashable, Any]) -> Any:
        """Return the prediction for a sample; the model does not change."""
        raise NotImplementedError

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn the rows of a DataFrame one after the other; all rows are checked before the first is learned."""
        samples, targets = frame_rows(X), list(y)
        if len(targets) != len(samples):
            raise DataError(f"X has {len(samples)} rows but y has {len(targets)} targets; pass one target per row")
        if not all(samples):
            raise DataError(f"row {samples.index({})} of X has only missing features; remove such rows")
        for target in targets:
            self._check_target(target)
        for x, target in zip(samples, targets, strict=True):
            self.learn_one(x, target)

    def predict_many(self, X: Any) -> Any:
        """Return the predictions for the rows of a DataFrame as a Series."""
        import pandas as pd

        found = [self.predict_one(x) for x in frame_rows(X)]
        return pd.Series(found, index=X.index, dtype=None if found else object)

    def to_tree(self) -> Tree:
        """Return the model as plain values and arrays."""
        tree = super().to_tree()
        if callable(self.topology):
            tree["params"]["topology"] = "auto"
        tree["params"]["structure"] = None
        tree |= {"features": to_plain(self.features_.names, "feature"), "n_samples": self.n_samples_}
        if self.mesh_ is not None and self.stream_ is not None:
            tree |= {"mesh": self.mesh_.to_tree(), "stream": self.stream_.to_tree()}
            tree["ticks_per_sample"] = self.stream_.ticks_per_sample
        if self._structure is not None:
            tree["structure"] = self._structure.to_tree()
        if self.table_ is not None:
            tree["table"] = self.table_
        return tree

    @classmethod
    def from_tree(cls, tree: Tree) -> Any:
        """Return the model stored in a tree; raise a `FileError` if the tree, which is not trusted, is inconsistent."""
        model = cls._of_params(tree["params"])
        model.features_ = Features(tuple(from_plain(tree["features"], "feature")))
        model.n_samples_ = whole_number("n_samples", tree["n_samples"], least=0, most=2**53)
        whole_number("max_features", model.max_features)
        if model.random_state is not None:
            whole_number("random_state", model.random_state, least=0)
        model.table_ = tree.get("table")
        if not isinstance(model.table_, (dict, type(None))):
            raise FileError("the stored state of the table must be a dictionary")
        model._restore(tree)
        return model

    def _restore(self, tree: Tree) -> None:
        """Load the network from a tree."""
        if "mesh" not in tree:
            if len(self.features_) or self.n_samples_ or self.structure is not None or "structure" in tree:
                raise FileError("the stored model was trained, but its network is missing")
            trial = type(self)._of_params(tree["params"])
            trial.features_ = Features(("x",))
            trial._build()  # raises an error if the parameters are not valid
            return
        mesh = Mesh.from_tree(tree["mesh"])
        sizes, wanted = (mesh.topology.n_inputs, mesh.topology.n_outputs), (len(self.features_), self._outputs)
        if sizes != wanted or not self.features_.names or mesh.dtype != np.float64:
            raise FileError(f"the stored network has {sizes} inputs and outputs, expected {wanted}")
        self.mesh_, self.stream_ = mesh, self._stream(mesh, tree["ticks_per_sample"])
        self.stream_.restore(tree["stream"])
        if "structure" in tree:
            from meshnn.online._structure import StreamStructure

            self._structure = StreamStructure.from_tree(tree["structure"], self)
            policies = self._structure.policies
            self.structure = policies[0] if len(policies) == 1 else list(policies)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.mesh_ is not None and self.stream_ is not None:
            self.stream_.attach(self.mesh_.values)


def _first_weights(topology: Topology, random_state: Seed) -> Array:
    """Return random initial weights for a network on a stream."""
    t, rng = topology, as_generator(random_state)
    outputs = t.dst >= t.n_neurons - t.n_outputs
    inner = TUNING.recurrent_weight / np.sqrt(max(t.n_hidden, 1))
    scale = np.where(t.src < t.n_clamped, TUNING.input_weight / np.sqrt(t.n_clamped), inner)
    weights: Array = rng.standard_normal(t.n_edges) * np.where(outputs, TUNING.output_weight, scale)
    loops = (t.src == t.dst) & ~outputs
    if loops.sum() == t.n_hidden:
        weights[loops] = rng.uniform(0.2, 0.95, t.n_hidden)
    return weights
