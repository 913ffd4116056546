"""Interface of solvers: options that users set (`Solver`), and a run that moves the weights of a mesh (`SolverRun`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from meshnn.arrays import Array, BoolArray, FloatArray, IntArray
from meshnn.mesh import Mesh
from meshnn.storage import Tree
from meshnn.training.samples import Samples
from meshnn.training.state import Options, from_tree, to_tree

if TYPE_CHECKING:
    from meshnn.training.settings import Settings


class Progress(NamedTuple):
    """The result of one call of `advance`."""

    loss: float
    correct: float
    gradient_norm: float
    rate: float
    fell: float | None = None  # decrease of the objective, given if the penalty has changed since the last row
    finished: str = ""  # the reason to stop, if any
    note: str = ""


class Change(NamedTuple):
    """The previous indices of edges, hidden neurons and parameters after a change of the graph; -1 for new ones."""

    edges: IntArray  # (n_edges,)
    hidden: IntArray  # (n_hidden,)
    parameters: IntArray  # (n_parameters,)

    def after(self, earlier: Change) -> Change:
        """Return the combination of an earlier change and this one."""
        pairs = zip(self, earlier, strict=True)
        return Change(*(carried(mine, before, -1) if len(before) else np.full_like(mine, -1) for mine, before in pairs))


@dataclass
class Solver(Options, ABC):
    """The options of a solver, and the properties from which one is selected."""

    #: The name of the solver in `solver=`.
    name: ClassVar[str]
    needs_float64: ClassVar[bool] = False
    minimises_l1: ClassVar[bool] = True
    #: Whether every row lowers the objective, whose penalty may change, so that the last weights are the best.
    last_is_best: ClassVar[bool] = False
    #: Whether `partial_fit` can continue with other samples, with `memory` and `recall` of the run.
    streams: ClassVar[bool] = False
    #: Whether a warm start continues with the memory of the last fit.
    warm_starts_with_memory: ClassVar[bool] = False
    #: The dataclass of `SolverRun.memory`.
    memory_type: ClassVar[Any]

    @property
    def decays_to_zero(self) -> bool:
        """Whether the learning rate decays to 0 over the epochs."""
        return False

    def suits(
        self, settings: Settings, n_live: int, n_samples: int, columns: int, noisy: bool = False
    ) -> tuple[bool, str]:
        """Return whether "auto" may select the solver (if `noisy`, whether to try it), and the reason, if any."""
        return True, ""

    @abstractmethod
    def start(self, mesh: Mesh, samples: Samples, settings: Settings, rng: np.random.Generator) -> SolverRun:
        """Begin to train a mesh on a data set."""

    def checked_memory(self, tree: Tree, mesh: Mesh) -> Tree:
        """Return the validated memory of a run on a mesh of the same size; raise MeshError if it is invalid."""
        found: Tree = to_tree(from_tree(self.memory_type, tree, sizes_of(mesh)))
        return found


class SolverRun(ABC):
    """Optimises the weights of a mesh; can be stopped and resumed."""

    epoch: int
    epochs: int  # the maximum
    l2: float  # the mean, if there are several
    penalties: FloatArray  # one per live parameter
    #: The reason for an early decay of the learning rate, else ""; the run ends with the decay.
    decay_reason: str = ""
    #: Whether the next row is the first of the early decay, which begins with the best weights.
    decay_begins: bool = False
    #: Called with the number of processed samples during an epoch of samples that are not in memory.
    pulse: Callable[[int], None] | None = None

    @abstractmethod
    def advance(self, most: int) -> Progress:
        """Run one or more epochs in place, at most `most`."""

    def begin_decay(self, reason: str) -> int:
        """Begin an early decay of the learning rate; return its number of epochs, 0 to stop immediately."""
        return 0

    @abstractmethod
    def rewire(self, change: Change) -> None:
        """Continue after the graph of the mesh has changed."""

    @abstractmethod
    def state(self) -> Tree:
        """Return the state with which `restore` continues bit-identically."""

    @abstractmethod
    def restore(self, tree: Tree) -> None:
        """Continue from a state; raise MeshError if it is invalid, because files are not trusted."""

    @abstractmethod
    def memory(self) -> Tree:
        """Return the state that a warm start or the next call of `partial_fit` continues from."""

    @abstractmethod
    def recall(self, tree: Tree) -> None:
        """Begin with the memory of an earlier run."""


def sizes_of(mesh: Mesh) -> dict[str, Any]:
    """Return the sizes by which the fields of a state are validated."""
    live = len(mesh.live_parameters())
    return {"parameters": mesh.n_parameters, "live": live, "values": len(mesh.values), "dtype": mesh.dtype}


def penalised_parameters(mesh: Mesh) -> BoolArray:
    """Return the mask of the parameters with l1 and l2 penalties: all except biases."""
    t = mesh.topology
    edges = np.ones(t.n_edges, np.bool_) if not t.bias else t.src != t.n_inputs
    found: BoolArray = mesh.ties.total(edges) > 0
    return found


def carried(origin: IntArray, values: Array, new: int = 0) -> Array:
    """Return values in the order after a change of the graph; `origin` are the previous indices, -1 for `new`."""
    found: Array = np.where(origin >= 0, values[np.maximum(origin, 0)], new).astype(values.dtype)
    return found
