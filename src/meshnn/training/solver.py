"""What every solver is: something that advances the weights of a mesh and can be stopped and taken up again."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from meshnn.arguments import real_number
from meshnn.arrays import FloatArray, IntArray
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.storage import Tree
from meshnn.training.samples import Samples

if TYPE_CHECKING:
    from meshnn.training.settings import Settings

__all__ = ["Change", "Progress", "Solver", "any_number"]


class Progress(NamedTuple):
    """What one call of `advance` did."""

    loss: float
    correct: float
    gradient_norm: float
    rate: float
    fell: float | None = None  # how much what is minimised fell, if the penalty was moved meanwhile
    finished: str = ""  # why there is no point in going on, if there is none
    note: str = ""


class Change(NamedTuple):
    """What has become of the graph of a net."""

    edges: IntArray  # (n_edges,) of each edge, its number before; -1 if it is new
    hidden: IntArray  # (n_hidden,) of each hidden neuron, its number among those before; -1 if it is new
    parameters: IntArray  # (n_parameters,) of each parameter, its number before; -1 if it is new

    def after(self, earlier: Change) -> Change:
        """Both changes as one."""
        found = []
        for mine, before in zip(self, earlier, strict=True):
            known = before[np.maximum(mine, 0)] if len(before) else mine
            found.append(np.where(mine >= 0, known, -1))
        return Change(*found)


class Solver(ABC):
    """Advances the weights of a mesh, and says about itself what those who use it need to know."""

    #: What users call it.
    name: ClassVar[str]
    #: Whether its steps need the accuracy of float64.
    wants_float64: ClassVar[bool] = False
    minimises_l1: ClassVar[bool] = True
    #: Whether its rate follows `schedule`.
    scheduled: ClassVar[bool] = False
    #: Whether every row lowers what is minimised, though that itself may change: then the last weights are the best.
    last_is_best: ClassVar[bool] = False
    #: Whether it can go on with other samples: `state(stream=True)` and `restore(..., stream=True)`.
    streams: ClassVar[bool] = False
    #: Whether a warm start is given what the last fit knew, by the same two.
    warms: ClassVar[bool] = False

    epoch: int
    epochs: int  # at most
    #: Of the live parameters, one each.
    penalties: FloatArray
    #: Why the rate is being brought down, if it is: then it ends of its own accord.
    landed: str = ""
    #: Whoever wants to know how many samples of an epoch are done, of samples that are far away.
    pulse: Callable[[int], None] | None = None

    @abstractmethod
    def __init__(self, mesh: Mesh, samples: Samples, settings: Settings, rng: np.random.Generator) -> None: ...

    @classmethod
    def suits(
        cls, settings: Settings, n_live: int, n_samples: int, columns: int, noisy: bool = False
    ) -> tuple[bool, str]:
        """Whether it is a good choice for so many live edges, samples and columns a sample; and why, if there is more
        to say than that those before it are not. Of targets that are `noisy`, whether it is worth a trial."""
        return True, ""

    @property
    @abstractmethod
    def l2(self) -> float:
        """The penalty; the mean, if there are several."""

    @abstractmethod
    def advance(self, most: int) -> Progress:
        """Run some epochs, at most so many, in place."""

    def land(self, reason: str) -> int:
        """Begin to end, for this reason, if that takes some epochs: how many; 0 if one may stop at once."""
        return 0

    @property
    def lands(self) -> bool:
        """Whether the next row is the first of these: it begins with the best weights."""
        return False

    @abstractmethod
    def rewire(self, change: Change) -> None:
        """Go on after the graph of the mesh has changed."""

    @abstractmethod
    def state(self, stream: bool = False) -> Tree:
        """What `restore` needs to go on, bit by bit; of a stream, what outlives the samples."""

    @abstractmethod
    def restore(self, state: Tree, stream: bool = False) -> None:
        """Go on from a state, which may come from anywhere."""

    @classmethod
    def check_stream(cls, state: Tree, mesh: Mesh) -> Tree:
        """The state of a stream, if it can be one on such a mesh."""
        raise MeshError(f"{cls.name} remembers nothing of a stream")


def any_number(name: str, value: Any, least: float = -math.inf) -> float:
    """A number that may be infinite or NaN, from anywhere."""
    return real_number(name, value, f"a number of at least {least:g}", lambda v: not v < least)
