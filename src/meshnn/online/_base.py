"""What classifier, regressor and forecaster on streams share: a net that is built, grown, saved while it learns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from meshnn import storage
from meshnn.arguments import as_generator, known, whole_number
from meshnn.arrays import Array
from meshnn.codes import INPUT_CUT, MEAN, ROUNDING_SHARE, VARIANCE
from meshnn.errors import DataError, MeshError
from meshnn.export.blueprint import Blueprint, ExportError, Timing
from meshnn.export.exports import Exports
from meshnn.mesh import Mesh
from meshnn.online._features import Features
from meshnn.online._labels import from_plain, to_plain
from meshnn.streaming import Stream
from meshnn.topology import Topology
from meshnn.topology.builders import Seed

__all__ = ["StreamModel", "first_weights", "mean_and_scale"]

#: Standard deviations of the first weights: of what feeds hidden neurons (over the root of how many do), of what
#: hidden neurons feed each other, and of the readout.
INPUT, RECURRENT, READOUT = 1.5, 0.9, 0.1


class StreamModel(Exports):
    """A net on a stream of dictionaries."""

    kind: ClassVar[str]

    hidden: int
    topology: str | Callable[[int, int], Topology]
    activation: str
    memory: str
    ticks_per_sample: int | None
    learner: str
    settings: Mapping[str, Any] | None
    structure: Any
    structure_every: int
    structure_rounds: int
    random_state: Seed

    def _reset(self) -> None:
        self.mesh_: Mesh | None = None
        self.stream_: Stream | None = None
        self.features_ = Features()
        self.n_samples_ = 0
        self._structure: Any = None
        #: Of `meshnn stream`: what the columns of the table are, how far it was read, scores. Saved with the model.
        self.table_: storage.Tree | None = None

    # -- the net ---------------------------------------------------------------------------------------------------

    @property
    def _loss(self) -> str:
        raise NotImplementedError

    @property
    def _outputs(self) -> int:
        raise NotImplementedError

    def _loss_of(self, out: Array, target: float) -> float:
        """Of outputs, in units of their own: what policies of structure look at."""
        raise NotImplementedError

    def _build(self) -> None:
        """The first net, for the features of the first sample."""
        d, C = len(self.features_), self._outputs
        topology = self._topology(d, C)
        if self.structure is not None:
            from meshnn.online._structure import StreamStructure

            self._structure = StreamStructure(self.structure, self.structure_every, self.structure_rounds)
            topology = self._structure.first(topology)
        memory = known("memory", self.memory, ("none", "carry"))
        ticks = topology.default_ticks() if self.ticks_per_sample is None else self.ticks_per_sample
        mesh = Mesh(topology, max(ticks, 1), self.activation, dtype="float64", random_state=0)
        mesh.weights = first_weights(topology, self.random_state)
        stream = mesh.stream(
            self._loss, self.learner, memory=memory, ticks_per_sample=ticks, scale=True, **dict(self.settings or {})
        )
        self.mesh_, self.stream_ = mesh, stream

    def _topology(self, d: int, C: int) -> Topology:
        if callable(self.topology):
            found = self.topology(d, C)
            if not isinstance(found, Topology):
                raise MeshError(f"topology({d}, {C}) must return a Topology, got {type(found).__name__}")
            if (found.n_inputs, found.n_outputs) != (d, C):
                raise MeshError(f"topology({d}, {C}) must have {d} inputs and {C} outputs, got {found!r}")
            return found
        name = known("topology", self.topology, ("auto", "layered", "mesh", "columns"))
        hidden = whole_number("hidden", self.hidden, least=0)
        if name == "auto":
            name = "layered" if self.memory == "none" else "mesh"
        if name == "layered":
            return Topology.layered([d, hidden, C] if hidden else [d, C])
        if name == "columns":
            return Topology.columns(d, hidden, C)
        first, last = d + 1, d + 1 + hidden
        pairs = [(i, j) for i in range(last) for j in range(first, last)]
        pairs += [(i, o) for i in (d, *range(first, last)) for o in range(last, last + C)]
        return Topology(d, hidden, C, pairs)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Changes of the net are made to their end, or undone."""
        parts = [part for part in (self, self.mesh_, self.stream_) if part is not None]
        before = [dict(part.__dict__) for part in parts]
        try:
            yield
        except BaseException:
            for part, held in zip(parts, before, strict=True):
                part.__dict__.clear()
                part.__dict__.update(held)
            raise

    # -- samples ---------------------------------------------------------------------------------------------------

    def _check(self, x: Any) -> None:
        """Refuse what is no sample, before anything changes."""
        self.features_.check(x)
        if not x:
            raise DataError(
                "the sample is an empty dictionary, and a net needs a feature at least; leave such samples out, or "
                "give them one that is always there, such as {'one': 1.0}"
            )

    def _row(self, x: Any) -> Array:
        """The row of a sample that is to be learned; a net is built, or grows, for features that are new."""
        row = None if self.stream_ is None else self.features_.quick(x)
        if row is not None:
            return row
        self._check(x)
        new = self.features_.missing(x)
        if new:
            with self._whole():
                self.features_ = self.features_.with_(new)
                if self.mesh_ is None or self.stream_ is None:
                    self._build()
                else:
                    self.mesh_.grow_stream(self.stream_, inputs=len(new))
        return self.features_.fill(x)

    def _outputs_of(self, x: Mapping[Hashable, Any]) -> Array | None:
        """Outputs for a sample, nothing being remembered; None before anything was learned."""
        row = None if self.stream_ is None else self.features_.quick(x)
        if row is None:
            self._check(x)
            if self.stream_ is None:
                return None
            row = self.features_.fill(x)
        assert self.stream_ is not None
        return self.stream_.peek_row(row)

    def _learn_row(self, x: Mapping[Hashable, Any], target: float) -> None:
        row = self._row(x)
        assert self.stream_ is not None
        self.stream_.learn_row(row, target)
        self.n_samples_ += 1
        if self._structure is not None:
            self._structure.saw(self, row, target)

    def explain(self) -> Any:
        """What a sample costs; print it."""
        if self.stream_ is None:
            raise MeshError("nothing was learned yet, so there is no net to explain; call learn_one first")
        return self.stream_.explain()

    def blueprint(self) -> Blueprint:
        """What it computes, as plain values and arrays, with what it has learned so far, for exports."""
        if self.mesh_ is None or self.stream_ is None:
            raise ExportError("nothing was learned yet, so there is no net to export; call learn_one first")
        s, room = self.stream_, self.stream_.room
        found = replace(
            self.mesh_.blueprint(), ticks=s.ticks_per_sample, x_cut=INPUT_CUT,
            features=tuple(str(name) for name in self.features_.names), title=f"{type(self).__name__}: {self.mesh_!r}",
            timing=Timing(s.ticks_per_sample, 0, "all") if s.memory == "carry" else None,
        )  # fmt: skip
        x_mean, x_scale = mean_and_scale(room.x_moments)
        if room.y_moments.shape[1]:
            y_mean, y_scale = mean_and_scale(room.y_moments)
            found = replace(found, y_mean=y_mean, y_scale=np.where(np.isfinite(y_scale), y_scale, 0.0))
        return replace(found, x_mean=x_mean, x_scale=x_scale)

    def _learner(self) -> Any:
        assert self.stream_ is not None  # there is a blueprint
        return self.stream_.portable()

    # -- parameters and files ----------------------------------------------------------------------------------------

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What it was made with."""
        return {name: getattr(self, name) for name in self._names()}

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to a `.mesh` file, in the middle of a stream: what is loaded goes on bit by bit as this would."""
        storage.write(path, self.to_tree())

    def to_tree(self) -> storage.Tree:
        """As plain values and arrays."""
        params = {name: v.item() if isinstance(v, np.generic) else v for name, v in self._stored_params().items()}
        if callable(self.topology) or self.structure is not None:
            params |= {"topology": "auto" if callable(self.topology) else self.topology, "structure": None}
        if params["settings"] is not None:
            params["settings"] = dict(params["settings"])
        if not isinstance(params["random_state"], (int, type(None))):
            params["random_state"] = None
        tree = {"kind": self.kind, "params": params, "features": to_plain(self.features_.names, "feature"),
                "n_samples": self.n_samples_}  # fmt: skip
        if self.mesh_ is not None and self.stream_ is not None:
            tree |= {"mesh": self.mesh_.to_tree(), "stream": self.stream_.to_tree()}
        if self._structure is not None:
            tree["structure"] = self._structure.to_tree()
        if self.table_ is not None:
            tree["table"] = self.table_
        return tree | self._more()

    def _more(self) -> storage.Tree:
        return {}

    def _stored_params(self) -> dict[str, Any]:
        """As they are called in files."""
        return self.get_params()

    @classmethod
    def _of_params(cls, params: Mapping[str, Any]) -> Any:
        return cls(**params)

    @classmethod
    def from_tree(cls, tree: storage.Tree) -> Any:
        """The inverse of `to_tree`."""
        model = cls._of_params(tree["params"])
        model.features_ = Features(tuple(from_plain(tree["features"])))
        model.n_samples_ = whole_number("n_samples", tree["n_samples"], least=0)
        model.table_ = tree.get("table")
        model._take(tree)
        if "structure" in tree:
            from meshnn.online._structure import StreamStructure

            model._structure = StreamStructure.from_tree(
                tree["structure"], model.structure_every, model.structure_rounds
            )
            policies = model._structure.policies
            model.structure = policies[0] if len(policies) == 1 else list(policies)
        if "mesh" in tree:
            model.mesh_ = Mesh.from_tree(tree["mesh"])
            model.stream_ = model.mesh_.stream(
                model._loss, model.learner, memory=model.memory, scale=True,
                ticks_per_sample=tree["stream"]["ticks_per_sample"], **dict(model.settings or {}),
            )  # fmt: skip
            model.stream_.restore(tree["stream"])
        return model

    def _take(self, tree: storage.Tree) -> None:
        pass

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.mesh_ is not None and self.stream_ is not None:
            self.stream_.attach(self.mesh_.values)

    def __repr__(self) -> str:
        defaults = {k: p.default for k, p in inspect.signature(type(self).__init__).parameters.items()}
        shown = [f"{k}={v!r}" for k, v in self.get_params().items() if v is not defaults[k] and v != defaults[k]]
        return f"{type(self).__name__}({', '.join(shown)})"


def mean_and_scale(moments: Array) -> tuple[Array, Array]:
    """As the core standardises: a number that never varied has an infinite scale, so that it becomes 0."""
    mean, deviation = moments[MEAN].copy(), np.sqrt(moments[VARIANCE])
    return mean, np.where(deviation > ROUNDING_SHARE * np.abs(mean), deviation, np.inf)


def first_weights(topology: Topology, random_state: Seed) -> Array:
    """Random weights for a net that begins to learn from a stream."""
    t, rng = topology, as_generator(random_state)
    outputs = t.dst >= t.n_neurons - t.n_outputs
    clamped = t.src < t.n_clamped
    scale = np.where(clamped, INPUT / np.sqrt(t.n_clamped), RECURRENT / np.sqrt(max(t.n_hidden, 1)))
    scale = np.where(outputs, READOUT, scale)
    loops = (t.src == t.dst) & ~outputs
    weights: Array = rng.standard_normal(t.n_edges) * scale
    weights[loops] = rng.uniform(0.2, 0.95, int(loops.sum())) if loops.sum() == t.n_hidden else weights[loops]
    return weights
