"""`Blueprint`: what a trained model computes, as plain values and arrays; exports know nothing else of a model.

`Exports` has the methods `to_c` and `to_onnx` of every trained model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from meshnn.arrays import Array, BoolArray, IntArray
from meshnn.codes import ACTIVATIONS, NONZERO_AT_ZERO
from meshnn.errors import MeshError
from meshnn.tables.encoder import Encoder, date_parts

if TYPE_CHECKING:
    from meshnn.export.c.nets import IntegerNet
    from meshnn.export.c.quantise import Quantiser
    from meshnn.export.c.writer import CReport
    from meshnn.export.ranges import Ranges

__all__ = ["Blueprint", "ExportError", "Exports", "InputColumn", "SequenceTiming", "input_columns"]


class ExportError(MeshError):
    """A model cannot be written in this form."""


class SequenceTiming(NamedTuple):
    """How a net lives in time; its state is carried from step to step."""

    per_step: int  # ticks that a step lasts for
    delay: int  # ticks from the last one of a step to the one after which it is read
    readout: str  # "all" steps, the "last" one, or their "mean"


@dataclass(frozen=True)
class InputColumn:
    """A column of a table, as exports encode it."""

    name: str
    #: Texts that become one feature each, 1 for this text and 0 for others; none: the column is one number.
    categories: tuple[str, ...] = ()
    #: What replaces a missing value: a number, or the number of a category; None: missing values are not accepted.
    fill: float | None = None
    #: Whether all texts that are no category share one more feature, the last.
    other: bool = False

    @property
    def width(self) -> int:
        """Return the number of features."""
        return max(1, len(self.categories) + self.other)

    @property
    def unseen(self) -> int:
        """Return the number that stands for a text that is no category."""
        return len(self.categories) if self.other else -1


def input_columns(encoder: Encoder) -> tuple[InputColumn, ...]:
    """Return the columns of an encoder, none if they are features as they are; parts of a date are passed one by one.

    The only function of the exports that knows encoders.
    """
    found: list[InputColumn] = []
    for column in encoder.columns:
        name, levels, fill = column.name, column.categories, column.fill
        if column.kind == "date":
            gap = {} if fill is None else date_parts(np.array([fill], "datetime64[us]"), column.origin)
            fills = [float(gap[part][0]) if gap else None for part in levels]
            found += [InputColumn(feature, (), value) for feature, value in zip(column.features, fills, strict=True)]
        elif column.kind == "categorical":
            code = None if fill is None else float(levels.index(str(fill)) if fill in levels else len(levels))
            found.append(InputColumn(name, levels, code, column.other))
        else:
            found.append(InputColumn(name, (), None if fill is None else float(fill)))
    return tuple(found) if any(column.categories or column.fill is not None for column in found) else ()


@dataclass(frozen=True)
class Blueprint:
    """Columns are encoded and scaled to the inputs of a net; `link` is applied to its outputs, which are scaled back.

    Neurons are numbered as in the topology: inputs, the bias if there is one, hidden ones, outputs. Edges are sorted by
    (dst, src). Features are `(x - x_mean) / x_scale`, clipped to between -x_cut and x_cut; a feature of a stream that
    is not finite is 0 (`x_cut` is finite for streams). Values are `link(outputs) * y_scale + y_mean`.

    Links are "identity", "softmax" (probabilities of classes), "sigmoid" (of labels), "logit" (of the first of two
    classes) and "exp" (rates).
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
    timing: SequenceTiming | None = None
    title: str = "a mesh"
    columns: tuple[InputColumn, ...] = ()  # of a model that learned from a table
    ranges: Ranges | None = None  # of the training rows, if the model keeps them

    @property
    def n_clamped(self) -> int:
        """Return the number of inputs and of the bias."""
        return self.n_inputs + self.bias

    @property
    def n_neurons(self) -> int:
        """Return the number of neurons of all kinds."""
        return self.n_clamped + self.n_hidden + self.n_outputs

    @property
    def outputs(self) -> IntArray:
        """Return the numbers of the outputs."""
        return np.arange(self.n_neurons - self.n_outputs, self.n_neurons)

    @cached_property
    def pointers(self) -> IntArray:
        """Return where the edges into each neuron begin: those into j are `pointers[j]` to `pointers[j + 1]`."""
        return np.searchsorted(self.dst, np.arange(self.n_neurons + 1))

    @cached_property
    def nonzero_at_zero(self) -> BoolArray:
        """Return a mask of the neurons whose activation of 0 is not 0."""
        free = np.array([ACTIVATIONS[name] in NONZERO_AT_ZERO for name in self.activations], dtype=np.bool_)
        return np.concatenate([np.zeros(self.n_clamped, np.bool_), free])

    @cached_property
    def timetable(self) -> list[IntArray]:
        """Return the neurons to compute at each tick: those whose state changes and can reach an output in time.

        A neuron whose sources have not changed since the tick before keeps its state. In a graph without cycles each
        neuron is computed once, at the tick of its depth. Nets in time have one list, for every tick of a step.
        """
        if self.timing is not None:
            return [self._reaching()]
        return _needed(self, _changes(self))

    @property
    def once(self) -> bool:
        """Return whether no neuron is computed twice, so that states can be updated in place."""
        counts = np.bincount(np.concatenate(self.timetable), minlength=1)
        return self.timing is None and int(counts.max(initial=0)) <= 1

    @cached_property
    def alive(self) -> BoolArray:
        """Return a mask of the edges into neurons that are computed."""
        used = np.zeros(self.n_neurons, np.bool_)
        used[np.concatenate(self.timetable)] = True
        return used[self.dst]

    def _reaching(self) -> IntArray:
        """Return the neurons from which an output can be reached in any number of ticks."""
        reached = np.arange(self.n_neurons) >= self.n_neurons - self.n_outputs
        while True:
            more = reached.copy()
            more[self.src[reached[self.dst]]] = True
            more[: self.n_clamped] = False
            if (more == reached).all():
                return np.flatnonzero(reached)
            reached = more


def _changes(blueprint: Blueprint) -> Array:
    """Return for each tick, from 0 on, and neuron whether its state may differ from the tick before."""
    changed = np.zeros((blueprint.ticks + 1, blueprint.n_neurons), np.bool_)
    changed[0, : blueprint.n_clamped] = True
    free = np.arange(blueprint.n_neurons) >= blueprint.n_clamped
    for k in range(1, blueprint.ticks + 1):
        changed[k, blueprint.dst[changed[k - 1, blueprint.src]]] = True
        if k == 1:
            changed[k] |= blueprint.nonzero_at_zero
        changed[k] &= free
    return changed


def _needed(blueprint: Blueprint, changed: Array) -> list[IntArray]:
    """Return for each tick from 1 on the neurons that change and whose state is read before it changes again."""
    wanted = np.arange(blueprint.n_neurons) >= blueprint.n_neurons - blueprint.n_outputs
    found = []
    for k in range(blueprint.ticks, 0, -1):
        made = wanted & changed[k]
        found.append(np.flatnonzero(made))
        # needed after tick k - 1: outputs not computed now, and the sources of those that are
        wanted = wanted & ~made
        wanted[blueprint.src[made[blueprint.dst]]] = True
        wanted[: blueprint.n_clamped] = False
    return found[::-1]


class Exports:
    """A model that can be exported."""

    def blueprint(self) -> Blueprint:
        """Return what it computes as plain values and arrays, which exports are written from."""
        raise NotImplementedError

    def to_c(
        self,
        path: str | PathLike[str],
        *,
        dtype: str = "float32",
        optimize: str = "size",
        name: str | None = None,
        X: Any = None,
        y: Any = None,
        tune: bool = True,
        learn: bool = False,
    ) -> CReport:
        """Write it as one C99 header that needs no library, see docs/c.md.

        Parameters
        ----------
        path : path of the header
        dtype : "float32", "int8" or "int16"
            Of weights and states.
        optimize : "size" or "speed"
            Tables and loops, or code without loops.
        name : str, optional
            Prefix of all names in the header; else the name of the file.
        X : array_like (n_samples, n_features), optional
            Training samples, on which integer nets choose their scales; without them the ranges that a fitted model
            keeps of its training rows are used, and a model without ranges is refused. Of a net in time, the steps of
            a sequence.
        y : array_like, optional
            True answers for X; report and header then state the accuracy on them, in floats and in whole numbers.
        tune : bool
            Whether the weights of integer nets are fine-tuned with quantisation in the loop, if there are samples; kept
            if it brings the outputs nearer to those of the net in floats.
        learn : bool
            Whether the net goes on learning in C, see docs/c-learning.md; in float32.

        Returns
        -------
        CReport
            Sizes; print it.

        Examples
        --------
        >>> import os, tempfile
        >>> from sklearn.datasets import load_iris
        >>> from meshnn import MeshClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = MeshClassifier(hidden=3, random_state=0).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     report = model.to_c(os.path.join(folder, "iris.h"), dtype="int8", X=X, y=y)
        >>> report.dtype, report.table_bytes < 300
        ('int8', True)
        """
        from meshnn.export.c.writer import write_c

        options: dict[str, Any] = {"dtype": dtype, "optimize": optimize, "name": name, "tune": tune, "learn": learn}
        return write_c(self, path, X=X, y=y, **options)

    def _encoded_samples(self, X: Any) -> Any:
        """Return samples as the features that the net was trained on."""
        return X

    def _learner(self) -> Any:
        """Return a portable stream that goes on learning."""
        raise ExportError(
            f"a {type(self).__name__} does not learn from a stream, so there is no learner to write; learn=True is for "
            "meshes, classifiers and regressors"
        )

    def _tuned(self, quantiser: Quantiser, net: IntegerNet, X: Array) -> IntegerNet:
        """Return a better integer net, if fine-tuning finds one."""
        return net

    def to_onnx(self, path: str | PathLike[str] | None = None, **options: Any) -> Any:
        """Return it as an ONNX model, written to a file if there is a path; see `meshnn.export.onnx.to_onnx`."""
        from meshnn.export.onnx import to_onnx

        return to_onnx(self.blueprint(), path, **options)
