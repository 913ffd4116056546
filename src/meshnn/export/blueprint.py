"""`Blueprint`: what a trained model computes, as plain values and arrays: all that exports know of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from meshnn.arrays import Array, BoolArray, IntArray
from meshnn.codes import ACTIVATIONS, NONZERO_AT_ZERO
from meshnn.errors import MeshError

__all__ = ["Blueprint", "ExportError", "Timing"]

#: What becomes of outputs: nothing, probabilities of classes, of labels, of the first of two classes, rates.
LINKS = ("identity", "softmax", "sigmoid", "logit", "exp")


class ExportError(MeshError):
    """A model cannot be written in this form."""


class Timing(NamedTuple):
    """How a net lives in time; its state goes on from step to step."""

    per_step: int  # ticks that a step lasts for
    delay: int  # ticks from the last one of a step to the one after which it is read
    readout: str  # "all" steps, the "last" one, or their "mean"


@dataclass(frozen=True)
class Blueprint:
    """Inputs, scaled, go into a net; its outputs are what `link` says, and are scaled back.

    Neurons are numbered as in the topology: inputs, the bias if there is one, hidden ones, outputs. Edges are sorted by
    (dst, src). Features are `(x - x_mean) / x_scale`, cut to between -x_cut and x_cut; where `x_constant`, and where a
    feature of a stream is not finite, they are 0. Values are `link(outputs) * y_scale + y_mean`.
    """

    n_inputs: int
    n_hidden: int
    n_outputs: int
    bias: bool
    src: IntArray
    dst: IntArray
    weights: Array
    activations: tuple[str, ...]  # of hidden neurons and outputs
    ticks: int
    dtype: str = "float32"  # in which the net runs in Python
    x_mean: Array | None = None  # None: features are taken as they are
    x_scale: Array | None = None
    x_cut: float = np.inf
    y_mean: Array | None = None
    y_scale: Array | None = None
    link: str = "identity"
    classes: tuple[Any, ...] = ()  # of a classifier; of one with several labels their numbers
    several: bool = False  # whether a sample may have several labels
    values: bool = False  # whether outputs are what a regressor predicts
    features: tuple[str, ...] = ()
    timing: Timing | None = None
    title: str = "a mesh"

    @property
    def n_clamped(self) -> int:
        """Inputs, and the bias."""
        return self.n_inputs + self.bias

    @property
    def n_neurons(self) -> int:
        """Of all kinds."""
        return self.n_clamped + self.n_hidden + self.n_outputs

    @property
    def outputs(self) -> IntArray:
        """Their numbers."""
        return np.arange(self.n_neurons - self.n_outputs, self.n_neurons)

    @cached_property
    def pointers(self) -> IntArray:
        """The edges into neuron j are those from `pointers[j]` to `pointers[j + 1]`."""
        return np.searchsorted(self.dst, np.arange(self.n_neurons + 1))

    @cached_property
    def awake(self) -> BoolArray:
        """Neurons that are not 0 when nothing comes in."""
        free = np.array([ACTIVATIONS[name] in NONZERO_AT_ZERO for name in self.activations], dtype=np.bool_)
        return np.concatenate([np.zeros(self.n_clamped, np.bool_), free])

    @cached_property
    def timetable(self) -> list[IntArray]:
        """Of each tick the neurons whose states are to be computed: those that have changed, and matter.

        A neuron none of whose sources has changed since the tick before is settled and keeps its state; one whose state
        of a tick reaches no output need not be computed then. So in a graph without cycles each neuron is computed
        once, in the tick of its depth. Of nets in time there is one list, for every tick of a step.
        """
        if self.timing is not None:
            return [self._reaching()]
        return _needed(self, _changes(self))

    @property
    def once(self) -> bool:
        """Whether no neuron is computed twice, so that states can be written where they are read."""
        counts = np.bincount(np.concatenate(self.timetable), minlength=1)
        return self.timing is None and int(counts.max(initial=0)) <= 1

    @cached_property
    def alive(self) -> BoolArray:
        """Mask of the edges into neurons that are computed at all."""
        used = np.zeros(self.n_neurons, np.bool_)
        used[np.concatenate(self.timetable)] = True
        return used[self.dst]

    def with_weights(self, weights: Array) -> Blueprint:
        """The same net with others."""
        return replace(self, weights=weights)

    def _reaching(self) -> IntArray:
        """Neurons from which an output can be reached, however many ticks it takes."""
        reached = np.arange(self.n_neurons) >= self.n_neurons - self.n_outputs
        while True:
            more = reached.copy()
            more[self.src[reached[self.dst]]] = True
            more[: self.n_clamped] = False
            if (more == reached).all():
                return np.flatnonzero(reached)
            reached = more


def _changes(blueprint: Blueprint) -> Array:
    """Of each tick, from 0 on, and neuron, whether its state may be another than one tick before."""
    changed = np.zeros((blueprint.ticks + 1, blueprint.n_neurons), np.bool_)
    changed[0, : blueprint.n_clamped] = True
    free = np.arange(blueprint.n_neurons) >= blueprint.n_clamped
    for k in range(1, blueprint.ticks + 1):
        changed[k, blueprint.dst[changed[k - 1, blueprint.src]]] = True
        if k == 1:
            changed[k] |= blueprint.awake
        changed[k] &= free
    return changed


def _needed(blueprint: Blueprint, changed: Array) -> list[IntArray]:
    """Of each tick from 1 on, the neurons that changed then and whose state is read before it changes again."""
    wanted = np.arange(blueprint.n_neurons) >= blueprint.n_neurons - blueprint.n_outputs
    found = []
    for k in range(blueprint.ticks, 0, -1):
        made = wanted & changed[k]
        found.append(np.flatnonzero(made))
        # what is wanted after tick k - 1: what was not made now, and what is read to make the rest
        wanted = wanted & ~made
        wanted[blueprint.src[made[blueprint.dst]]] = True
        wanted[: blueprint.n_clamped] = False
    return found[::-1]
