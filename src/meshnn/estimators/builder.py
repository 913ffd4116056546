"""`NetBuilder` builds a net and chooses its solver from the parameters and the size of the data."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from meshnn.arguments import whole_number
from meshnn.arrays import Array
from meshnn.codes import RANGES
from meshnn.errors import DataError, MeshError
from meshnn.losses import Loss
from meshnn.mesh import Mesh
from meshnn.topology import Topology
from meshnn.training import Settings
from meshnn.training.solvers import Choice, choose_solver, is_noisy
from meshnn.training.structure.runtime import as_policies, first_topology

if TYPE_CHECKING:  # it imports scikit-learn
    from meshnn.estimators.params import Parameters


def hidden_of(n_samples: int, n_inputs: int) -> int:
    """Return the default number of hidden neurons for first-order solvers; see benchmarks/tables.py."""
    sizes = ((16, 100), (32, 500), (48, 20_000), (128, float("inf")))
    most = next(count for count, samples in sizes if n_samples <= samples)
    # 3,000 edges into hidden neurons take about 0.5 s with 5,000 samples. More samples determine more edges; they are
    # limited to about 10 s of training.
    edges = min(3_000 * max(1.0, n_samples / 5_000) ** 1.5, max(15_000.0, 5e9 / max(n_samples, 1)))
    # h hidden neurons have h (inputs + 1 + h) incoming edges: from inputs, bias and hidden neurons.
    inputs = n_inputs + 1
    affordable = int(((inputs**2 + 4 * edges) ** 0.5 - inputs) / 2)
    return max(4, min(most, affordable))


class NetBuilder:
    """Builds the net of an estimator and chooses the solver; `longest` is the length of the longest sequence."""

    reading: Any = None  # when outputs are read, for nets of sequences
    named_graphs: Collection[str] = ()  # accepted names for `mesh`
    decided_by_mesh: tuple[str, ...] = ("ticks", "activation")  # parameters that must not be given with a Mesh
    prototype: Mesh | Topology | None = None  # the resolved parameter `mesh`

    def __init__(self, params: Parameters, loss: Loss, settings: Settings, longest: int = 0) -> None:
        self.params, self.loss, self.settings, self.longest = params, loss, settings, longest

    def resolve(self, n_inputs: int, n_outputs: int) -> None:
        """Resolve the parameter `mesh` to a prototype and check that it fits the data and the loss."""
        p: Any = self.params
        found = p.mesh(n_inputs, n_outputs) if callable(p.mesh) else p.mesh
        if found is None or (isinstance(found, str) and self.named_graphs):
            return
        if not isinstance(found, (Mesh, Topology)):
            got = repr(found) if isinstance(found, str) else type(found).__name__
            raise MeshError(f"mesh must be a Mesh, a Topology or a callable (n_inputs, n_outputs), got {got}")
        topology = found if isinstance(found, Topology) else found.topology
        if (topology.n_inputs, topology.n_outputs) != (n_inputs, n_outputs):
            self._refuse_sizes(topology, n_inputs, n_outputs)
        decided = ("hidden", *self.decided_by_mesh) if isinstance(found, Mesh) else ("hidden",)
        both = [name for name in decided if not same(getattr(p, name), None if name == "ticks" else "auto")]
        if both:
            raise MeshError(f"mesh and {' and '.join(both)} cannot be given together; leave out one of them")
        if isinstance(found, Mesh) and len(set(found.activations[topology.n_hidden :])) > 1:
            raise MeshError("the outputs of the mesh have different activations; an estimator needs equal ones")
        self.prototype = found
        self._check_outputs()

    @property
    def output_activation(self) -> str:
        """The activation of the outputs."""
        return self.prototype.activations[-1] if isinstance(self.prototype, Mesh) else "identity"

    def _check_outputs(self) -> None:
        """Refuse an output activation whose range is too small for the loss."""
        loss, activation = self.loss, self.output_activation
        low, high = RANGES.get(activation, (-np.inf, np.inf))
        free = loss.several or loss.logarithmic  # outputs must be unbounded
        if (free and np.isfinite([low, high]).any()) or (loss.classifies and np.isfinite(high)):
            what = "any rate" if loss.logarithmic else "probabilities up to 1"
            raise MeshError(
                f'output_activation="{activation}" has the range {low:g} to {high:g}, which does not allow {what}; '
                'use the output activation "identity"'
            )

    def build(
        self, n_samples: int, n_inputs: int, n_outputs: int, seed: int, stream: bool = False
    ) -> tuple[Mesh, Choice]:
        """Return a new net and its solver; for a `stream` the number of samples is taken as unknown."""
        p, noisy = self.params, is_noisy(self.loss, self.params.structure)
        count = 0 if stream else n_samples
        automatic = not isinstance(self.prototype, Mesh) and same(p.activation, "auto")
        for hidden in self._sizes(count, n_inputs, stream or (noisy and self.settings.asked != "lm")):
            make = self._maker(hidden, n_inputs, n_outputs, seed)
            mesh = make("float32", "tanh" if automatic else p.activation)
            live, columns = len(mesh.live_parameters()), self.loss.columns(n_outputs)
            choice = choose_solver(self.settings, live, count, columns, noisy)
            if choice.solver.needs_float64:
                break
        # Second-order steps need the accuracy of float64. Other solvers are twice as fast in float32, which does not
        # matter for small data.
        small = not stream and n_samples <= 256 and mesh.topology.n_edges * n_samples <= 100_000
        fitting = "float64" if small or choice.needs_float64 else "float32"
        return make(fitting, self._activation(mesh, choice, count) if automatic else p.activation), choice

    def start(self, mesh: Mesh, weights: Array) -> Array:
        """Return the initial weights, given random weights for the mesh."""
        return weights

    def identity(self) -> dict[str, Any]:
        """Return the parameters that determine the net in comparable form; all callables count as equal."""
        p: Any = self.params
        hidden, mesh = p.hidden, p.mesh
        if isinstance(hidden, (list, tuple, np.ndarray)):
            hidden = tuple(int(n) if isinstance(n, np.integer) else n for n in hidden)
        if isinstance(mesh, Topology):
            mesh = mesh._digest.hex()
        elif isinstance(mesh, Mesh):
            edges = [mesh.tied.tolist(), mesh.weights.tolist()]
            mesh = repr([mesh.topology._digest.hex(), mesh.ticks, mesh.activations, *edges])
        mesh = "a callable" if callable(mesh) else mesh
        return {"ticks": p.ticks, "activation": p.activation, "loss": self.loss.name, "hidden": hidden, "mesh": mesh,
                "embedding": p.embedding, "n_members": p.n_members}  # fmt: skip

    def check_same(self, mesh: Mesh, built: dict[str, Any], sizes: tuple[int, int]) -> None:
        """Refuse to continue with a net built for other sizes (inputs, outputs) or from other parameters."""
        if (mesh.topology.n_inputs, mesh.topology.n_outputs) != sizes:
            self._refuse_sizes(mesh.topology, *sizes)
        changed = [name for name, now in self.identity().items() if name not in built or now != built[name]]
        if changed:
            what = f"{', '.join(changed)} changed since the net was built"
            raise MeshError(f"training cannot continue: {what}; fit with warm_start=False to build a new net")

    def _sizes(self, n_samples: int, n_inputs: int, first_order: bool) -> list[Any]:
        """Return candidate numbers of hidden neurons: the first for second-order steps, the last otherwise."""
        hidden = self.params.hidden
        if self.prototype is not None or not isinstance(hidden, str):
            return [hidden]
        if hidden != "auto":
            raise MeshError(f'hidden must be "auto", a whole number or numbers for layers, got {hidden!r}')
        size = hidden_of(n_samples, n_inputs)
        # Second-order steps in regression need few neurons, see benchmarks/defaults.py.
        return [size] if first_order else [16, size]

    def _activation(self, mesh: Mesh, choice: Choice, n_samples: int) -> Any:
        """Return the meaning of activation="auto": tanh, or relu and elu alternating.

        Many neurons with and without kinks fit most functions, also squares, which are hard for tanh (an odd function).
        Kinks disturb second-order steps and small nets, and extrapolate badly from few samples.
        """
        count = mesh.topology.n_hidden
        if choice.needs_float64 or count < 8 or n_samples <= 100:
            return "tanh"
        return [("relu", "elu")[k % 2] for k in range(count)]

    def _maker(self, hidden: Any, n_inputs: int, n_outputs: int, seed: int) -> Callable[[str, Any], Mesh]:
        """Return a function of dtype and activation that builds the net."""
        p, given = self.params, self.prototype
        topology = given.topology if isinstance(given, Mesh) else given or self._graph(hidden, n_inputs, n_outputs)
        dense = first_topology(as_policies(p.structure), topology)
        ticks = self._ticks(dense)

        def make(dtype: str, activation: Any) -> Mesh:
            if isinstance(given, Mesh):
                mesh = Mesh(topology, ticks, weights=given.weights, dtype=dtype, tied=given.tied)
                mesh.activations = given.activations
            else:
                mesh = Mesh(topology, ticks, activation, dtype=dtype, random_state=seed)
            if dense != topology:
                mesh.rewire(dense)
                mesh.weights = mesh.draw_weights(seed)
            if given is None:
                mesh.weights = self.start(mesh, mesh.weights)
            return mesh

        return make

    def _ticks(self, topology: Topology) -> int | None:
        """Return the number of ticks of a net with this graph; None is the default of the graph."""
        return self.prototype.ticks if isinstance(self.prototype, Mesh) else self.params.ticks

    def _graph(self, hidden: Any, n_inputs: int, n_outputs: int) -> Topology:
        """Return the graph if no prototype is given."""
        if isinstance(hidden, (list, tuple, np.ndarray)):
            sizes = [whole_number(f"hidden[{k}]", size) for k, size in enumerate(hidden)]
            return Topology.layered([n_inputs, *sizes, n_outputs])
        return Topology.mesh(n_inputs, whole_number("hidden", hidden, least=0), n_outputs)

    def _refuse_sizes(self, topology: Topology, n_inputs: int, n_outputs: int) -> None:
        what = "classes" if self.loss.classifies else "targets"
        raise DataError(
            f"the mesh has {topology.n_inputs} inputs and {topology.n_outputs} outputs, but the data have "
            f"{n_inputs} features and {n_outputs} {what}"
        )


def same(value: Any, default: Any) -> bool:
    """Return whether a parameter has its default."""
    return value is default or (isinstance(value, str) and value == default)
