"""The net: its graph, its precision, its scaling, and whether a net there is can go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from meshnn.arguments import switch, whole_number
from meshnn.arrays import Array
from meshnn.errors import DataError, MeshError
from meshnn.estimators._samples import TakesSamples
from meshnn.estimators._scaling import Scaling, check_activation
from meshnn.estimators._sizing import SMOOTH, activation_of, hidden_of
from meshnn.estimators._wide import Rotation
from meshnn.mesh import Mesh
from meshnn.topology import Topology
from meshnn.training import Settings
from meshnn.training.api import as_samples
from meshnn.training.samples import InMemoryDataset
from meshnn.training.solvers import Choice, choose_solver, is_noisy
from meshnn.training.structure.runtime import as_policies, first_topology, with_penalties

__all__ = ["BuildsNets", "default_topology", "seed_of"]

#: Columns that are never too many.
NARROW = 100
#: Samples, and edges times samples, up to which nobody would notice that float32 is faster.
FEW, SMALL = 256, 100_000


class BuildsNets(TakesSamples):
    """From parameters and samples to a net."""

    _built: dict[str, Any]
    _rotation: Rotation | None = None  # while it learns
    mesh_: Mesh
    _scaling: Scaling

    def _settings(self) -> Settings:
        names = Settings.__dataclass_fields__.keys() & self.get_params(deep=False).keys()
        given = Settings(**{name: getattr(self, name) for name in names})
        return with_penalties(given, as_policies(self.structure))

    def _build(
        self, X: Array, targets: Array, weight: Array | None, n_outputs: int, settings: Settings, seed: int,
        stream: bool = False, dtype: str | None = None,
    ) -> Choice:  # fmt: skip
        """A new net and the scaling for samples, or for a stream that begins with them; the solver for it."""
        check_activation(self.output_activation, self._loss, n_outputs)
        scaled = switch("standardize", self.standardize)
        self._scaling = self._learned_scaling(X, targets, weight, scaled)
        self.loss_ = self._loss.name
        self._built = self._net()
        if weight is not None and not stream:
            X = X[weight > 0]  # the others are not there
        self._rotation = Rotation.of(self._scaling.inputs(X)) if self._wide(X, stream) else None
        n_inputs = X.shape[1] if self._rotation is None else self._rotation.rank
        return self._build_net(X.shape[0], n_inputs, n_outputs, settings, seed, stream, dtype)

    def _build_net(
        self, n_samples: int, n_inputs: int, n_outputs: int, settings: Settings, seed: int, stream: bool = False,
        dtype: str | None = None,
    ) -> Choice:  # fmt: skip
        """A new net for so many samples, and the solver for it."""
        noisy = is_noisy(self._loss, self.structure)
        for hidden in self._sizes(n_samples, n_inputs, settings, stream):
            make = self._maker(hidden, n_inputs, n_outputs, seed)
            plain = isinstance(self.activation, str) and self.activation == "auto"
            mesh = make("float32", "tanh" if plain else self.activation)
            # second-order steps need the accuracy of float64; the others are twice as fast without it, if that counts
            live, columns = len(mesh.live_parameters()), self._loss.columns(n_outputs)
            choice = choose_solver(settings, live, 0 if stream else n_samples, columns, noisy)
            if choice.kind.wants_float64:
                break
        small = not stream and n_samples <= FEW and mesh.topology.n_edges * n_samples <= SMALL
        fitting = "float64" if small or choice.wants_float64 else "float32"
        self.mesh_ = make(dtype or fitting, self._activation_of(mesh, choice, 0 if stream else n_samples))
        return choice

    def _activation_of(self, mesh: Mesh, choice: Choice, n_samples: int) -> Any:
        """Of each hidden neuron."""
        return activation_of(self.activation, mesh, choice, n_samples)

    def _learned_scaling(self, X: Any, targets: Any, weight: Array | None, wanted: bool) -> Scaling:
        return Scaling.learn(X, targets, weight, wanted, self._loss, self.output_activation)

    def _wide(self, X: Array, stream: bool) -> bool:
        """Whether the net is to learn in the space that the rows span; one that is looked at meanwhile is not."""
        watched = (self.topology, self.structure, self.parameter, self.weights, self.callbacks, self.checkpoint)
        plain = all(given is None for given in (*watched, self.scoring)) and self.l1 == 0.0
        return not stream and plain and bool(self.standardize) and X.shape[1] > max(X.shape[0], NARROW)

    def _sizes(self, n_samples: int, n_inputs: int, settings: Settings, stream: bool) -> list[Any]:
        """Hidden neurons; of the first number for which second-order steps are taken, else of the last."""
        if self.topology is not None or not isinstance(self.hidden, str):
            return [self.hidden]
        if self.hidden != "auto":
            raise MeshError(f'hidden must be "auto", a whole number or numbers for layers, got {self.hidden!r}')
        size = hidden_of(0 if stream else n_samples, n_inputs)
        return (
            [size] if stream or (is_noisy(self._loss, self.structure) and settings.solver != "lm") else [SMOOTH, size]
        )

    def _maker(self, hidden: Any, n_inputs: int, n_outputs: int, seed: int) -> Callable[[str, Any], Mesh]:
        """What makes a net with so many hidden neurons, of some precision and activation."""
        topology = self._graph(hidden, n_inputs, n_outputs)
        given = {"tied": self.parameter, "weights": self.weights}  # of the edges, or a callable that makes them
        given = {name: value(topology) if callable(value) else value for name, value in given.items()}
        dense = first_topology(as_policies(self.structure), topology)
        ticks = self._ticks_of(dense)

        def make(dtype: str, activation: Any) -> Mesh:
            mesh = Mesh(topology, ticks, activation, self.output_activation, dtype=dtype, random_state=seed, **given)
            if dense != topology:
                mesh.rewire(dense)
                mesh.weights = mesh.draw_weights(seed)
            if given["weights"] is None:
                mesh.weights = self._drawn(mesh, mesh.weights)
            return mesh

        return make

    def _ticks_of(self, topology: Topology) -> int | None:
        """Ticks of a net with this graph; None is as many as it needs."""
        return self.ticks

    def _drawn(self, mesh: Mesh, weights: Array) -> Array:
        """Weights for a net to begin with, from those that were drawn for it."""
        return weights

    def _graph(self, hidden: Any, n_inputs: int, n_outputs: int) -> Topology:
        if self.topology is None:
            topology = default_topology(hidden, n_inputs, n_outputs)
        elif isinstance(self.topology, Topology):
            topology = self.topology
        elif callable(self.topology):
            topology = self.topology(n_inputs, n_outputs)
            if not isinstance(topology, Topology):
                raise MeshError(f"topology(n_inputs, n_outputs) must return a Topology, got {type(topology).__name__}")
        else:
            raise MeshError(
                f"topology must be None, a Topology or a callable (n_inputs, n_outputs), "
                f"got {type(self.topology).__name__}"
            )
        if (topology.n_inputs, topology.n_outputs) != (n_inputs, n_outputs):
            raise MeshError(
                f"the topology has {topology.n_inputs} inputs and {topology.n_outputs} outputs, but the data have "
                f"{n_inputs} features and {self._needs(n_outputs)}"
            )
        return topology

    def _needs(self, n_outputs: int) -> str:
        what = "labels" if self._loss.several else "classes"
        return f"{n_outputs} {f'{what} (one output each)' if self._loss.classifies else 'outputs'}"

    def _check_same_net(self, n_inputs: int, n_outputs: int) -> None:
        """A warm start cannot build another net: better to refuse than to ignore what was changed."""
        t = self.mesh_.topology
        known = t.n_inputs if self._rotation is None else len(self._rotation.axes)
        if (known, t.n_outputs) != (n_inputs, n_outputs):
            raise DataError(
                f"the net has {known} inputs and {t.n_outputs} outputs, but the data have {n_inputs} features "
                f"and {self._needs(n_outputs)}; set warm_start=False to start anew"
            )
        now = self._net()
        changed = [name for name in now if name not in self._built or now[name] != self._built[name]]
        if changed:
            raise MeshError(
                f"the net there is would be trained on, but {', '.join(changed)} changed since it was built; "
                "fit with warm_start=False to build another"
            )

    def _net(self) -> dict[str, Any]:
        """The parameters that the net was built from, as far as they are compared."""
        named = {name: getattr(self, name) for name in ("ticks", "activation", "output_activation", "loss")}
        return named | self._told_apart() | ({"hidden": self._hidden} if self.topology is None else {})

    @property
    def _hidden(self) -> Any:
        """`hidden`, the same for lists and tuples."""
        hidden: Any = self.hidden
        if not isinstance(hidden, (list, tuple, np.ndarray)):
            return hidden
        return tuple(int(n) if isinstance(n, np.integer) else n for n in hidden)

    def _told_apart(self) -> dict[str, str | None]:
        """What has no value to compare, as far as it is compared: what a callable returned is not."""
        graph = self.topology._digest.hex() if isinstance(self.topology, Topology) else self.topology
        edges = {name: getattr(self, name) for name in ("parameter", "weights")}
        found = {name: v if v is None or callable(v) else repr(np.asarray(v).tolist()) for name, v in edges.items()}
        return {name: "a callable" if callable(v) else v for name, v in ({"topology": graph} | found).items()}

    def _samples(self, X: Array, targets: Array, weight: Array | None) -> InMemoryDataset:
        inputs, outputs = self._scaling.inputs(X, self.mesh_.dtype), self._scaling.targets(targets)
        if self._rotation is not None:
            inputs = self._rotation.inputs(inputs)
        return as_samples(self.mesh_, inputs, outputs, self._loss.name, weight)


def default_topology(hidden: Any, n_inputs: int, n_outputs: int) -> Topology:
    """What `hidden` means: so many neurons that all feed each other, or layers of so many, each feeding the next."""
    if isinstance(hidden, (list, tuple, np.ndarray)):
        sizes = [whole_number(f"hidden[{k}]", size) for k, size in enumerate(hidden)]
        return Topology.layered([n_inputs, *sizes, n_outputs])
    return Topology.mesh(n_inputs, whole_number("hidden", hidden, least=0), n_outputs)


def seed_of(random_state: Any) -> int:
    """A number that all randomness of a fit comes from."""
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if random_state < 0:
            raise MeshError(f"random_state must not be negative, got {random_state}")
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, np.random.RandomState) or random_state is np.random:
        return int(check_random_state(random_state).randint(2**31))
    raise MeshError(
        f"random_state must be a whole number, a RandomState, a Generator or None, got {random_state!r}; pass 0, say"
    )
