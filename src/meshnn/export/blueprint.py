"""`Blueprint`: the computation of a trained model as plain values and arrays, the only input of the exports.

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
    """A model cannot be exported in the requested form."""


class SequenceTiming(NamedTuple):
    """Timing of a stateful net, whose state is carried from step to step."""

    per_step: int  # ticks per step
    delay: int  # ticks from the end of a step until its outputs are read
    readout: str  # "all" steps, the "last" one, or their "mean"


@dataclass(frozen=True)
class InputColumn:
    """A table column and its encoding."""

    name: str
    #: Categories of a one-hot encoded text column; empty for a numeric column.
    categories: tuple[str, ...] = ()
    #: Replacement for a missing value: a number, or the number of a category. None: missing values are not accepted.
    fill: float | None = None
    #: Whether strings that are not a category share one more feature, the last.
    other: bool = False

    @property
    def width(self) -> int:
        """Return the number of features."""
        return max(1, len(self.categories) + self.other)

    @property
    def unseen(self) -> int:
        """Return the number that stands for a string that is not a category."""
        return len(self.categories) if self.other else -1


def input_columns(encoder: Encoder) -> tuple[InputColumn, ...]:
    """Return the columns of an encoder, or no columns if they need no encoding; a date becomes one column per part.

    No other function of the exports depends on encoders.
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
    """The encoding and scaling of features, the net, and the link and scaling of its outputs.

    Neurons are numbered as in the topology: inputs, bias (if there is one), hidden neurons, outputs. Edges are sorted
    by (dst, src). The net takes `(x - x_mean) / x_scale`, clipped to [-x_cut, x_cut]. For streams `x_cut` is finite,
    and a feature that is not finite counts as 0. Predicted values are `link(outputs) * y_scale + y_mean`.

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
    dtype: str = "float32"  # of the net in Python
    x_mean: Array | None = None  # None: features are not scaled
    x_scale: Array | None = None
    x_cut: float = np.inf
    y_mean: Array | None = None
    y_scale: Array | None = None
    link: str = "identity"
    classes: tuple[Any, ...] = ()  # of a classifier; label numbers if it is multi-label
    several: bool = False  # whether the classifier is multi-label
    values: bool = False  # whether the outputs are the predictions of a regressor
    features: tuple[str, ...] = ()
    timing: SequenceTiming | None = None
    title: str = "a mesh"
    columns: tuple[InputColumn, ...] = ()  # of a model that was trained on a table
    ranges: Ranges | None = None  # of the training rows, if the model keeps them

    @property
    def n_clamped(self) -> int:
        """Return the number of inputs, plus 1 if there is a bias."""
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
        """Return the CSR pointers: the edges into neuron j are `pointers[j]` to `pointers[j + 1] - 1`."""
        return np.searchsorted(self.dst, np.arange(self.n_neurons + 1))

    @cached_property
    def nonzero_at_zero(self) -> BoolArray:
        """Return a mask of the neurons with phi(0) != 0."""
        free = np.array([ACTIVATIONS[name] in NONZERO_AT_ZERO for name in self.activations], dtype=np.bool_)
        return np.concatenate([np.zeros(self.n_clamped, np.bool_), free])

    @cached_property
    def timetable(self) -> list[IntArray]:
        """Return the neurons to compute at each tick: those whose state changes and still influences an output.

        A neuron whose sources did not change in the previous tick keeps its state. In an acyclic graph each neuron is
        computed once, at the tick of its depth. A stateful net has one list, for every tick of a step.
        """
        if self.timing is not None:
            return [self._reaching_an_output()]
        return _needed(self, _changing(self))

    @property
    def once(self) -> bool:
        """Return whether each neuron is computed at most once, so that states can be updated in place."""
        counts = np.bincount(np.concatenate(self.timetable), minlength=1)
        return self.timing is None and int(counts.max(initial=0)) <= 1

    @cached_property
    def alive(self) -> BoolArray:
        """Return a mask of the edges that are not dead: those into neurons that are computed."""
        used = np.zeros(self.n_neurons, np.bool_)
        used[np.concatenate(self.timetable)] = True
        return used[self.dst]

    def _reaching_an_output(self) -> IntArray:
        """Return the neurons from which an output can be reached in any number of ticks."""
        reached = np.arange(self.n_neurons) >= self.n_neurons - self.n_outputs
        while True:
            more = reached.copy()
            more[self.src[reached[self.dst]]] = True
            more[: self.n_clamped] = False
            if (more == reached).all():
                return np.flatnonzero(reached)
            reached = more


def _changing(blueprint: Blueprint) -> Array:
    """Return a mask (ticks + 1, n_neurons) of the states that may differ from those of the previous tick."""
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
    """Return, for each tick from 1 on, the neurons that change and are read before they change again."""
    wanted = np.arange(blueprint.n_neurons) >= blueprint.n_neurons - blueprint.n_outputs
    found = []
    for k in range(blueprint.ticks, 0, -1):
        made = wanted & changed[k]
        found.append(np.flatnonzero(made))
        # needed after tick k - 1: the rest of these neurons, and the sources of those computed at tick k
        wanted = wanted & ~made
        wanted[blueprint.src[made[blueprint.dst]]] = True
        wanted[: blueprint.n_clamped] = False
    return found[::-1]


class Exports:
    """Base class of models that can be exported."""

    def blueprint(self) -> Blueprint:
        """Return the computation of the model as plain values and arrays, from which exports are written."""
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
        """Write the model as one C99 header that needs no library.

        Parameters
        ----------
        path : str or path-like
            Path of the header.
        dtype : {"float32", "int8", "int16"}, default "float32"
            Type of weights and states. Choose an integer type for a small header and for processors without a
            floating-point unit.
        optimize : {"size", "speed"}, default "size"
            "size" writes tables and loops, "speed" writes code without loops.
        name : str, optional
            Prefix of all names in the header; by default the name of the file.
        X : array_like (n_samples, n_features), optional
            Training samples from which the scales of an integer net are chosen; for a stateful net, the steps of a
            sequence. Without samples, the ranges of the training rows that a fitted model keeps are used; a model
            without ranges is refused.
        y : array_like, optional
            True targets for X. The report and the header then state the score on X, for the float net and the integer
            net.
        tune : bool, default True
            Whether the weights of an integer net are fine-tuned on X with quantisation in the loop. The result is kept
            if its outputs are nearer to those of the float net.
        learn : bool, default False
            Whether the net continues to learn in C.

        Returns
        -------
        CReport
            Sizes and notes, to be printed.

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
        """Return samples as the features that the net was trained on, before scaling."""
        return X

    def _learner(self) -> Any:
        """Return a portable stream that continues to learn."""
        raise ExportError(
            f"{type(self).__name__} has no learner that can be exported; learn=True requires a mesh, a classifier or "
            "a regressor"
        )

    def _tuned(self, quantiser: Quantiser, net: IntegerNet, X: Array) -> IntegerNet:
        """Return the integer net after fine-tuning, or the given one if it is better."""
        return net

    def to_onnx(self, path: str | PathLike[str] | None = None, **options: Any) -> Any:
        """Return the model as ONNX, and write it to `path` if given; see `meshnn.export.onnx.to_onnx`."""
        from meshnn.export.onnx import to_onnx

        return to_onnx(self.blueprint(), path, **options)
