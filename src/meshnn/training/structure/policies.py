"""`Prune`, `Regrow`, `Sparsify`, `Grow`: how a graph changes while it learns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from meshnn.errors import MeshError
from meshnn.training.state import Count, Fraction, FromZero, Interval, Options, PositiveInt, Real
from meshnn.training.structure.choosing import importance, sample_of, strongest, weakest
from meshnn.training.structure.graph import Edit, View


class Policy:
    """A way to change a graph, which keeps what it remembers between the rows of a run in a `memory`."""

    #: Makes a memory: a dictionary of plain values, or a dataclass as in `meshnn.training.state`.
    new_memory: ClassVar[Any] = dict

    #: Whether the graph it starts from has all allowed edges.
    dense: bool = False
    #: Penalty on the sum of absolute weights that it needs.
    l1: float = 0.0
    #: Edges that may be there, see `Allowed`; None for what follows from the graph.
    allowed: Any = None
    #: Whether it adds edges or neurons: then neurons that are left without edges stay.
    adds: bool = False
    #: Why nothing can be fitted with it, if so.
    refusal: str = ""

    def refusal_of(self, edges: int) -> str:
        """Why it cannot work on a net that begins with this many edges, if so."""
        return ""

    def busy(self, view: View, memory: Any) -> bool:
        """Whether it may still change something."""
        raise NotImplementedError

    def propose(self, view: View, memory: Any) -> Edit | None:
        """Return the change to make now."""
        raise NotImplementedError

    def unmet(self, view: View, memory: Any) -> str:
        """Return a message if its target was missed at the end of training, else an empty text."""
        return ""


@dataclass
class PruneMemory:
    """The edges of the first graph, once it was seen, and whether the schedule has come to its end."""

    first: Count | None = None
    done: bool = False


@dataclass
class Prune(Policy, Options):
    """Take edges out until `to` are left.

    Parameters
    ----------
    to : int or float
        Edges to end with, those of the bias included; a share of the first ones if below 1.
    start : "dense" or "given"
        Begin with all allowed edges, or with those of the topology.
    begin, end : float
        Shares of the training between which edges go: many at first, few at last (a cubic in time).
    by : "magnitude", "movement" or "saliency"
        Which edges go. Dead ones go first, whatever their weight.
    bias : bool
        Whether edges of the bias may go, too; those that are dead always may.

    Examples
    --------
    >>> from meshnn.training import structure
    >>> structure.Prune(to=1044)
    Prune(to=1044, start='dense', begin=0.0, end=0.6, by='magnitude', bias=False)
    """

    to: PositiveInt | Annotated[float, Interval(0, 1, "()")]
    start: Literal["dense", "given"] = "dense"
    begin: Fraction = 0.0
    end: Fraction = 0.6
    by: Literal["magnitude", "movement", "saliency"] = "magnitude"
    bias: bool = False
    new_memory = PruneMemory

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.begin < self.end:
            raise MeshError(f"begin must lie before end, got {self.begin} and {self.end}")

    @property
    def dense(self) -> bool:  # type: ignore[override]
        """Whether it starts with all allowed edges."""
        return self.start == "dense"

    def refusal_of(self, edges: int) -> str:
        """More edges than there are."""
        to = self._goal(edges)
        return f"Prune(to={self.to}) cannot end with {to} edges: the net begins with {edges}" if to > edges else ""

    def busy(self, view: View, memory: Any) -> bool:
        """Until the end of its schedule."""
        return not memory.done

    def propose(self, view: View, memory: Any) -> Edit | None:
        """Down to what the schedule leaves by now."""
        count = view.mesh.topology.n_edges
        memory.first = first = count if memory.first is None else memory.first
        to = self._goal(first)
        if refusal := self.refusal_of(first):
            raise MeshError(refusal)
        ratio = min(max((view.progress - self.begin) / (self.end - self.begin), 0.0), 1.0)
        keep = to + round((first - to) * (1 - ratio) ** 3)
        if ratio >= 1.0:
            memory.done = True
        # only edits that are worth it, since every one makes new plans; but no large one at the end, which would hurt
        if count <= keep or (ratio < 1.0 and count - keep < 0.05 * count):
            return None
        scores = importance(self.by, view.mesh, view.samples, view.rng)
        remove = weakest(view, scores, count - keep, self.bias, spare=keep - to)
        return Edit.removal(view, remove, f"pruned by {self.by}")

    def unmet(self, view: View, memory: Any) -> str:
        """More edges than asked for, because some may not go."""
        count, to = view.mesh.topology.n_edges, self._goal(memory.first or 0)
        if not memory.done or count <= to:
            return ""
        kept = ["a way from an input to every output"]
        kept += ["the edges of the bias"] * (not self.bias and bool(view.from_bias.any()))
        kept += ["fixed edges, and groups of tied ones"] * (not view.mesh.ties.plain)
        return f"Prune(to={self.to}) ends with {count:,} edges instead of {to:,}: it keeps {', '.join(kept)}"

    def _goal(self, first: int) -> int:
        return round(self.to * first) if self.to < 1 else int(self.to)


@dataclass
class RegrowMemory:
    """The epoch of the last swap."""

    last: Count = 0


@dataclass
class Regrow(Policy, Options):
    """Swap weak edges for absent ones that would help; the number of edges stays.

    Parameters
    ----------
    every : int, optional
        Epochs between two swaps; by default a twentieth of the training, a fifth of one of less than 50 epochs.
    fraction : float
        Share of the edges (but those of the bias) that is swapped, at first.
    grow : "gradient" or "random"
        New edges are those whose gradient would be largest, or any.
    decay : "cosine" or "constant"
        How the fraction falls until `end`.
    end : float
        Share of the training after which nothing is swapped.
    allowed : mask or Topology, optional
        See `Allowed`.

    Examples
    --------
    >>> from meshnn.training import structure
    >>> structure.Regrow(fraction=0.2).grow
    'gradient'
    """

    every: PositiveInt | None = None
    fraction: Fraction = 0.3
    grow: Literal["gradient", "random"] = "gradient"
    decay: Literal["cosine", "constant"] = "cosine"
    end: Fraction = 0.75
    allowed: Any = None
    adds = True
    new_memory = RegrowMemory

    def busy(self, view: View, memory: Any) -> bool:
        """Until its end."""
        return view.progress < self.end

    def propose(self, view: View, memory: Any) -> Edit | None:
        """Swap some edges, if it is time to."""
        every = self.every or max(1, view.max_epochs // 5 if view.max_epochs < 50 else view.max_epochs // 20)
        if view.progress >= self.end or view.epoch - memory.last < every:
            return None
        memory.last = view.epoch
        mesh = view.mesh
        share = self.fraction * (
            0.5 * (1 + math.cos(math.pi * view.progress / self.end)) if self.decay == "cosine" else 1
        )
        absent = view.absent()
        count = min(round(share * int((~view.from_bias).sum())), len(absent))
        if count == 0:
            return None
        remove = weakest(view, np.abs(mesh.weights.astype(np.float64)), count, bias=False)
        chosen = strongest(view, absent, int(remove.sum()), self.grow)
        kind = "large gradient" if self.grow == "gradient" else "random choice"
        return Edit(remove, absent[chosen], np.zeros(len(chosen)), f"swapped for edges of {kind}")


@dataclass
class Sparsify(Policy, Options):
    """Let a penalty make weights zero, and take those edges out.

    Parameters
    ----------
    l1 : float
        Of the sum of absolute weights, on top of the mean loss.
    threshold : float
        Largest absolute weight that counts as zero.
    begin : float
        Share of the training before which nothing goes.

    Examples
    --------
    >>> from meshnn.training import structure
    >>> structure.Sparsify(l1=1e-3).threshold
    0.0
    """

    l1: FromZero = 1e-3
    threshold: FromZero = 0.0
    begin: Fraction = 0.1

    def busy(self, view: View, memory: Any) -> bool:
        """Whenever weights vanish, but it does not keep a training from stopping."""
        return False

    def propose(self, view: View, memory: Any) -> Edit | None:
        """Edges whose weight has vanished."""
        if view.progress < self.begin:
            return None
        vanished = (np.abs(view.mesh.weights) <= self.threshold) & ~view.from_bias
        vanished &= ~view.protected(np.abs(view.mesh.weights.astype(np.float64)))
        vanished = view.mesh.ties.whole(vanished)
        if not vanished.any():
            return None
        if view.mesh.ties.plain and not view.growing:
            vanished = view.idle_without(vanished)[0]
        return Edit.removal(view, vanished, "weights vanished")


@dataclass
class GrowMemory:
    """Losses since the last growth, the first loss, that at the last growth, and growths in vain since."""

    losses: list[Real] = field(default_factory=list)
    first: Real | None = None
    before: Real | None = None
    idle: Count = 0
    done: bool = False


@dataclass
class Grow(Policy, Options):
    """Add hidden neurons, or edges, whenever learning slows down.

    New neurons read everything with random weights and start with output weights of 0, new edges with a weight of 0:
    what the net computes does not change. Of several random neurons the one is taken whose output edges would have the
    largest gradient.

    Parameters
    ----------
    to : int
        Hidden neurons, or edges, to stop at.
    neurons : bool
        Grow neurons; else edges.
    slow : float
        Fall of the loss within `wait` rows, over the loss, below which learning counts as slow.
    wait : int
        Rows between two growths, at least.
    gain : float
        Stop when three growths in a row have lowered the loss by less than this share of the first loss.
    candidates : int
        Random neurons to choose from.
    allowed : mask or Topology, optional

    Examples
    --------
    >>> from meshnn.training import structure
    >>> structure.Grow(to=20).neurons
    True
    """

    to: PositiveInt
    neurons: bool = True
    slow: Fraction = 0.05
    wait: PositiveInt = 8
    gain: Fraction = 0.005
    candidates: PositiveInt = 32
    allowed: Any = None
    adds = True
    new_memory = GrowMemory

    def busy(self, view: View, memory: Any) -> bool:
        """Until it is large enough or growing no longer helps."""
        t = view.mesh.topology
        return not memory.done and (t.n_hidden if self.neurons else t.n_edges) < self.to

    def propose(self, view: View, memory: Any) -> Edit | None:
        """A neuron, or some edges, once the loss hardly falls."""
        losses = memory.losses
        if math.isfinite(view.loss):
            losses.append(view.loss)
            memory.first = view.loss if memory.first is None else memory.first
        if not self.busy(view, memory) or len(losses) <= self.wait:
            return None
        if losses[-1 - self.wait] - losses[-1] > self.slow * abs(losses[-1 - self.wait]):
            return None
        if memory.before is not None and memory.before - losses[-1] < self.gain * memory.first:
            memory.idle += 1
            if memory.idle >= 3:  # one in vain may be bad luck
                memory.done = True
                return None
        else:
            memory.idle = 0
        memory.before = losses[-1]
        losses.clear()
        return self._neuron(view) if self.neurons else self._edges(view)

    def _edges(self, view: View) -> Edit | None:
        absent = view.absent()
        count = min(self.to - view.mesh.topology.n_edges, max(1, view.mesh.topology.n_edges // 10), len(absent))
        if count == 0:
            return None
        chosen = strongest(view, absent, count, "gradient")
        keep = np.zeros(view.mesh.topology.n_edges, np.bool_)
        return Edit(keep, absent[chosen], np.zeros(count), "grown where the gradient is largest")

    def _neuron(self, view: View) -> Edit:
        """The best of some random neurons, by the gradient that its output edges would have."""
        t, rng = view.mesh.topology, view.rng
        new = t.n_clamped + t.n_hidden  # its number; outputs move up by one
        outputs = t.outputs + 1
        sources = np.concatenate([np.arange(new), outputs if view.allowed.from_outputs else []]).astype(np.int64)
        targets = np.concatenate([t.hidden, outputs])
        into = np.stack([sources, np.full(len(sources), new)], axis=1)
        out = np.stack([np.full(len(targets), new), targets], axis=1)
        pairs = np.concatenate([into, out, *([[[new, new]]] if view.allowed.self_loops else [])])
        gain = 1.0 / math.sqrt(max(len(sources), 1))
        best, chosen = -1.0, np.zeros(len(pairs))
        keep = np.zeros(t.n_edges, np.bool_)
        sample = sample_of(view.samples, rng)
        for _ in range(self.candidates):
            weights = np.zeros(len(pairs))
            # twice the usual: a neuron that is to do what the others do not had better not be linear
            weights[: len(into)] = 2.0 * gain * rng.standard_normal(len(into))
            score = view.score_of(Edit(keep, pairs, weights, "", neurons=1), sample)
            if score > best:
                best, chosen = score, weights
        return Edit(keep, pairs, chosen, "a neuron grown", neurons=1)
