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
    fell: float | None = None  # by how much the objective fell, where its penalty has changed meanwhile
    finished: str = ""  # why there is no point in continuing, if there is none
    note: str = ""


class Change(NamedTuple):
    """The numbers that edges, hidden neurons and parameters had before the graph changed; -1 for new ones."""

    edges: IntArray  # (n_edges,)
    hidden: IntArray  # (n_hidden,)
    parameters: IntArray  # (n_parameters,)

    def after(self, earlier: Change) -> Change:
        """Combine two changes."""
        pairs = zip(self, earlier, strict=True)
        return Change(*(carried(mine, before, -1) if len(before) else np.full_like(mine, -1) for mine, before in pairs))


@dataclass
class Solver(Options, ABC):
    """The options of a solver, and the facts by which one is chosen."""

    #: Short form of the solver in `solver=`.
    name: ClassVar[str]
    wants_float64: ClassVar[bool] = False
    minimises_l1: ClassVar[bool] = True
    #: Whether every row lowers the objective, whose penalty may change: then the last weights are the best.
    last_is_best: ClassVar[bool] = False
    #: Whether `partial_fit` can continue with other samples, by `memory` and `recall` of the run.
    streams: ClassVar[bool] = False
    #: Whether a warm start continues with the memory of the last fit.
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
        """Return whether "auto" may take it (if `noisy`, whether it is worth a trial), and the reason, if any."""
        return True, ""

    @abstractmethod
    def start(self, mesh: Mesh, samples: Samples, settings: Settings, rng: np.random.Generator) -> SolverRun:
        """Begin to train a mesh on a data set."""

    def checked_memory(self, tree: Tree, mesh: Mesh) -> Tree:
        """Return the memory of a run on such a mesh, if the tree holds one."""
        found: Tree = to_tree(from_tree(self.outliving, tree, sizes_of(mesh)))
        return found


class SolverRun(ABC):
    """Moves the weights of a mesh, and can be stopped and resumed."""

    epoch: int
    epochs: int  # at most
    l2: float  # the mean, if there are several
    penalties: FloatArray  # one per live parameter
    #: Why the rate is being brought down early, if it is: then the run ends by itself.
    landed: str = ""
    #: Whether the next row is the first with a rate brought down: it begins with the best weights.
    lands: bool = False
    #: Called with the number of samples done, in the middle of an epoch of samples that are not in memory.
    pulse: Callable[[int], None] | None = None

    @abstractmethod
    def advance(self, most: int) -> Progress:
        """Run some epochs in place, at most this many."""

    def land(self, reason: str) -> int:
        """Begin to bring the rate down; return over how many epochs, 0 if the run may stop at once."""
        return 0

    @abstractmethod
    def rewire(self, change: Change) -> None:
        """Continue after the graph of the mesh has changed."""

    @abstractmethod
    def state(self) -> Tree:
        """Return all that `restore` needs to continue bit by bit."""

    @abstractmethod
    def restore(self, tree: Tree) -> None:
        """Continue from a state, which may come from anywhere."""

    @abstractmethod
    def memory(self) -> Tree:
        """Return what outlives the samples, for a warm start or the next part of a stream."""

    @abstractmethod
    def recall(self, tree: Tree) -> None:
        """Begin with the memory of an earlier run."""


def sizes_of(mesh: Mesh) -> dict[str, Any]:
    """Return the sizes that the rules of states refer to."""
    live = len(mesh.live_parameters())
    return {"parameters": mesh.n_parameters, "live": live, "values": len(mesh.values), "dtype": mesh.dtype}


def penalised_parameters(mesh: Mesh) -> BoolArray:
    """Return the mask of the parameters that l1 and l2 apply to: all but those of the bias."""
    t = mesh.topology
    edges = np.ones(t.n_edges, np.bool_) if not t.bias else t.src != t.n_inputs
    found: BoolArray = mesh.ties.total(edges) > 0
    return found


def carried(origin: IntArray, values: Array, new: int = 0) -> Array:
    """Return values from before a change by the numbers of after it."""
    found: Array = np.where(origin >= 0, values[np.maximum(origin, 0)], new).astype(values.dtype)
    return found
