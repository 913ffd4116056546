"""What every solver is: options that users set (`Solver`), and a run that moves the weights of a mesh (`SolverRun`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from meshnn.arrays import Array, FloatArray, IntArray
from meshnn.mesh import Mesh
from meshnn.storage import Tree
from meshnn.training.samples import Samples
from meshnn.training.state import Options, from_tree, to_tree

if TYPE_CHECKING:
    from meshnn.training.settings import Settings

__all__ = ["Change", "Progress", "Solver", "SolverRun", "carried", "penalised_parameters", "sizes_of"]


class Progress(NamedTuple):
    """What one call of `advance` did."""

    loss: float
    correct: float
    gradient_norm: float
    rate: float
    fell: float | None = None  # by how much the objective fell, where its penalty has changed meanwhile
    finished: str = ""  # why there is no point in going on, if there is none
    note: str = ""


class Change(NamedTuple):
    """How the graph of a net has changed."""

    edges: IntArray  # (n_edges,) number of each edge before; -1 for a new one
    hidden: IntArray  # (n_hidden,) number of each hidden neuron among those before; -1 for a new one
    parameters: IntArray  # (n_parameters,) number of each parameter before; -1 for a new one

    def after(self, earlier: Change) -> Change:
        """Both changes as one."""
        found = []
        for mine, before in zip(self, earlier, strict=True):
            known = before[np.maximum(mine, 0)] if len(before) else mine
            found.append(np.where(mine >= 0, known, -1))
        return Change(*found)


@dataclass
class Solver(Options, ABC):
    """The options of a solver, and what those who choose one need to know about it."""

    #: Short form of the solver in `solver=`.
    name: ClassVar[str]
    #: Whether its steps need the accuracy of float64.
    wants_float64: ClassVar[bool] = False
    minimises_l1: ClassVar[bool] = True
    #: Whether every row lowers the objective, whose penalty may change: then the last weights are the best.
    last_is_best: ClassVar[bool] = False
    #: Whether `partial_fit` can go on with other samples, by `memory` and `recall` of the run.
    streams: ClassVar[bool] = False
    #: Whether a warm start goes on with the memory of the last fit.
    warms: ClassVar[bool] = False
    #: The dataclass of `SolverRun.memory`.
    outliving: ClassVar[Any]

    @property
    def comes_to_rest(self) -> bool:
        """Whether its rate falls to 0 over the epochs."""
        return False

    def suits(
        self, settings: Settings, n_live: int, n_samples: int, columns: int, noisy: bool = False
    ) -> tuple[bool, str]:
        """Whether "auto" may take it for this many live edges, samples and columns per sample, and the reason, if any.

        For `noisy` targets: whether it is worth a trial.
        """
        return True, ""

    @abstractmethod
    def start(self, mesh: Mesh, samples: Samples, settings: Settings, rng: np.random.Generator) -> SolverRun:
        """Begin to train a mesh on a data set."""

    def checked_memory(self, tree: Tree, mesh: Mesh) -> Tree:
        """The memory of a run on such a mesh, if the tree holds one."""
        found: Tree = to_tree(from_tree(self.outliving, tree, sizes_of(mesh)))
        return found


class SolverRun(ABC):
    """Moves the weights of a mesh, and can be stopped and resumed."""

    epoch: int
    epochs: int  # at most
    #: One penalty per live parameter.
    penalties: FloatArray
    #: Why the rate is being brought down early, if it is: then the run ends by itself.
    landed: str = ""
    #: Is called with the number of samples done, in the middle of an epoch of samples that are not in memory.
    pulse: Callable[[int], None] | None = None

    @property
    @abstractmethod
    def l2(self) -> float:
        """The penalty; the mean, if there are several."""

    @abstractmethod
    def advance(self, most: int) -> Progress:
        """Run some epochs in place, at most this many."""

    def land(self, reason: str) -> int:
        """Begin to bring the rate down; return over how many epochs, 0 if the run may stop at once."""
        return 0

    @property
    def lands(self) -> bool:
        """Whether the next row is the first with a rate brought down: it begins with the best weights."""
        return False

    @abstractmethod
    def rewire(self, change: Change) -> None:
        """Go on after the graph of the mesh has changed."""

    @abstractmethod
    def state(self) -> Tree:
        """What `restore` needs to go on bit by bit."""

    @abstractmethod
    def restore(self, tree: Tree) -> None:
        """Go on from a state, which may come from anywhere."""

    @abstractmethod
    def memory(self) -> Tree:
        """What outlives the samples, for a warm start or the next part of a stream."""

    @abstractmethod
    def recall(self, tree: Tree) -> None:
        """Begin with the memory of an earlier run."""


def sizes_of(mesh: Mesh) -> dict[str, Any]:
    """What the rules of states refer to."""
    return {
        "parameters": mesh.n_parameters,
        "live": len(mesh.live_parameters()),
        "values": len(mesh.values),
        "dtype": mesh.dtype,
    }


def penalised_parameters(mesh: Mesh) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Mask of the parameters that l1 and l2 apply to: all but those of the bias."""
    t = mesh.topology
    edges = np.ones(t.n_edges, np.bool_) if not t.bias else t.src != t.n_inputs
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = mesh.ties.total(edges) > 0
    return found


def carried(origin: IntArray, values: Array) -> Array:
    """Values per parameter before a change as values per parameter after it; 0 for new ones."""
    found: Array = np.where(origin >= 0, values[np.maximum(origin, 0)], 0).astype(values.dtype)
    return found
