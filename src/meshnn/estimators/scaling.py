"""`Scaling` brings features and targets to mean 0 and variance 1; `Rotation` is for tables with more columns than rows.

If the output activation is bounded, targets are scaled into its range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from meshnn.arrays import Array, FloatArray
from meshnn.checks import all_finite
from meshnn.codes import RANGES
from meshnn.errors import DataError, FileError
from meshnn.losses import Loss
from meshnn.losses.losses import is_constant, mean_and_spread
from meshnn.memory import check_fits
from meshnn.mesh import Mesh
from meshnn.topology import Topology
from meshnn.training.state import Interval, Vector, from_tree


def is_sparse(X: Any) -> bool:
    """Return whether X is a scipy.sparse matrix, without importing scipy."""
    return hasattr(X, "tocsr")


def _check_dense_fits(X: Any, dtype: Any = np.float32) -> None:
    """Refuse a sparse matrix that would not fit in memory as a dense one."""
    what = f"a sparse X of {X.shape[0]:,} x {X.shape[1]:,} as a dense array"
    advice = "use fewer samples at a time (partial_fit), or fewer features"
    check_fits(float(np.dtype(dtype).itemsize) * X.shape[0] * X.shape[1], what, advice)


def row_blocks(n_rows: int, width: int, block: int = 2**21) -> Iterator[slice]:
    """Split rows into blocks of about `block` numbers, to bound the memory for converting a sparse matrix to dense."""
    step = max(1, block // max(width, 1))
    return (slice(begin, begin + step) for begin in range(0, n_rows, step))


def moments(X: Any, weight: Array | None) -> tuple[Array, Array]:
    """Return mean and standard deviation per column; the standard deviation of a constant column is exactly 0."""
    if not is_sparse(X):
        return mean_and_spread(X, weight)
    columns = X.tocsc()
    found = [mean_and_spread(columns[:, part].toarray(), weight) for part in row_blocks(X.shape[1], X.shape[0])]
    return np.concatenate([mean for mean, _ in found]), np.concatenate([scale for _, scale in found])


def _rows(values: Any, weight: Array | None) -> tuple[Any, Array | None]:
    """Return rows and their weights; for sequences all steps, with the weights of their sequences."""
    return (values.data, values.per_row(weight)) if hasattr(values, "per_row") else (values, weight)


Spread = Interval(float(np.nextafter(0.0, 1.0)), math.inf, "[)")


@dataclass(frozen=True)
class Scaling:
    """Offsets and scales of features and targets."""

    x_mean: Annotated[Array, Vector("inputs", "float64")]
    x_scale: Annotated[Array, Vector("inputs", "float64", Spread)]
    y_mean: Annotated[Array, Vector("targets", "float64")]
    y_scale: Annotated[Array, Vector("targets", "float64", Spread)]
    #: Mask of columns that have been constant so far, whose scale is 1; None if unknown.
    x_constant: Any = None
    y_constant: Any = None

    @classmethod
    def learn(
        cls, X: Any, targets: Array, weight: Array | None, wanted: bool, loss: Loss, activation: str = "identity"
    ) -> Scaling:
        """Return the scaling of training samples (all steps of sequences); without `wanted` the identity."""
        (X, x_weight), (targets, weight) = _rows(X, weight), _rows(targets, weight)
        if is_sparse(X):
            _check_dense_fits(X)
        n_outputs = targets.shape[1] if targets.ndim == 2 else 1
        x_mean, x_scale, x_constant = np.zeros(X.shape[1]), np.ones(X.shape[1]), None
        y, y_constant = (np.zeros(n_outputs), np.ones(n_outputs)), None
        if wanted:
            x_mean, spread = moments(X, x_weight)
            x_constant = spread == 0.0
            x_scale = np.where(x_constant, 1.0, spread)
            y = loss.scaling(targets, weight)
            y_constant = mean_and_spread(targets, weight)[1] == 0.0 if loss.by_moments else None
        if activation in RANGES and not loss.classifies:
            y = _within_range(activation, targets if weight is None else targets[weight > 0], y, wanted)
            y_constant = None  # the scaling is not from moments, so further samples do not change it
        return cls(x_mean, x_scale, y[0], y[1], x_constant, y_constant)

    @classmethod
    def from_tree(cls, tree: Any, sizes: dict[str, int]) -> Scaling:
        """Return the scaling stored in a file, for a net with these numbers of `inputs` and `targets`."""
        found = from_tree(cls, tree, sizes, "scaling")
        for name, size in (("x_constant", sizes["inputs"]), ("y_constant", sizes["targets"])):
            flags = getattr(found, name)
            if flags is not None and (flags.dtype != np.bool_ or flags.shape != (size,)):
                raise FileError(f"its {name} is not a mask of {size} columns")
        return found

    def joined(self, more: Scaling, share: float) -> Scaling:
        """Return the scaling of all samples, where `share` is the fraction of samples behind `more`."""
        x = _joined((self.x_mean, self.x_scale, self.x_constant), (more.x_mean, more.x_scale, more.x_constant), share)
        y = _joined((self.y_mean, self.y_scale, self.y_constant), (more.y_mean, more.y_scale, more.y_constant), share)
        return Scaling(x[0], x[1], y[0], y[1], x[2], y[2])

    def inputs(self, X: Any, dtype: Any = np.float64) -> Array:
        """Return scaled features; a sparse matrix becomes a dense array of this dtype."""
        if not is_sparse(X):
            return _scaled(X, self.x_mean, self.x_scale)
        _check_dense_fits(X, dtype)
        found = np.empty(X.shape, dtype)
        for part in row_blocks(*X.shape):
            with np.errstate(over="ignore"):  # a later check refuses infinite inputs with their names
                found[part] = _scaled(X[part].toarray(), self.x_mean, self.x_scale)
        return found

    def targets(self, targets: Array) -> Array:
        """Return scaled targets; labels stay as they are."""
        return targets if targets.ndim == 1 else _scaled(targets, self.y_mean, self.y_scale)

    def values(self, outputs: Array) -> Array:
        """Return outputs of the net, converted to the units of the targets."""
        return outputs * self.y_scale + self.y_mean


def _within_range(activation: str, targets: Array, default: tuple[Array, Array], wanted: bool) -> tuple[Array, Array]:
    """Return the mean and scale that move the targets into the range of the activation."""
    (low, high), (mean, scale) = RANGES[activation], default
    least, most = targets.min(axis=0), targets.max(axis=0)
    inside = (least >= low) & (most <= high)
    positive = low == 0 and np.isinf(high)  # predictions must not be negative, so 0 stays 0
    if not inside.all() and (positive or not wanted):
        column = int(np.argmin(inside))
        wrong = least[column] if least[column] < low else most[column]
        what = f'output_activation="{activation}" has the range {low:g} to {high:g}, but y contains {wrong:g}'
        raise DataError(f'{what}; use "identity"{"" if positive else " or standardize=True"}')
    if not wanted:
        return default
    if positive:
        return np.zeros_like(mean), scale
    margin = 0.1  # fraction of the range that stays free at either end
    if np.isinf(high):  # shift no further than the smallest target requires
        return np.minimum(mean, least - (1 - margin) * low * scale), scale
    width = high - low
    fits = inside & (scale >= 0.05 * width)  # targets that fill enough of the range stay unscaled
    filling = (most / 2 - least / 2) / ((0.5 - margin) * width)
    filling = np.where(filling > 0, filling, scale)  # constant targets
    return np.where(fits, 0.0, most / 2 + least / 2 - filling * (low + high) / 2), np.where(fits, 1.0, filling)


Columns = tuple[Array, Array, Array | None]  # mean, scale, whether a column is constant


def _joined(one: Columns, other: Columns, share: float) -> Columns:
    """Return mean and scale of the union of two sets, computed without squares, which could overflow."""
    (mean, scale, constant), (mean2, scale2, constant2) = one, other
    if constant is None or constant2 is None:
        return one
    rest = 1.0 - share
    between = math.sqrt(share * rest)
    joined = rest * mean + share * mean2
    spread, spread2 = math.sqrt(rest) * np.where(constant, 0, scale), math.sqrt(share) * np.where(constant2, 0, scale2)
    with np.errstate(over="ignore"):
        found = np.hypot(np.hypot(spread, spread2), between * mean2 - between * mean)
    none = is_constant(joined, found)
    return joined, np.where(none, 1.0, found), none


def _scaled(values: Array, mean: Array, scale: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):  # a later check refuses infinite inputs with their names
        found = (values - mean) / scale
        if all_finite(found):
            return found
        # The difference of two very large numbers may overflow although the scaled values do not.
        return np.where(np.isfinite(found), found, values / scale - mean / scale)


@dataclass(frozen=True)
class Rotation:
    """Principal axes of the rows of a table that has more columns than rows.

    The part of the input weights that is orthogonal to all rows changes no output on them, and a penalty makes it 0.
    Training on the coordinates along the axes, of which there are at most as many as rows, takes a fraction of the
    time. The coordinates have the mean variance 1, so `l2` penalises the weights of d columns d / rank times as
    strongly as without a rotation.
    """

    axes: FloatArray  # (n_inputs, rank), divided by the mean spread of the rows along an axis

    @classmethod
    def of(cls, X: Array) -> Rotation:
        """Return the axes of inputs of mean 0 with more columns than rows."""
        X, tiny = np.asarray(X, np.float64), np.finfo(np.float64).tiny
        variances, turned = np.linalg.eigh(X @ X.T)
        kept = variances > 1e-12 * variances[-1]  # the other axes are rounding errors
        if not kept.any():
            kept[-1] = True
        spread = np.sqrt(np.maximum(variances[kept], tiny))
        axes = X.T @ (turned[:, kept] / spread)
        return cls(axes / max(np.sqrt(np.mean(spread**2) / len(X)), tiny))

    @classmethod
    def from_tree(cls, tree: Any, n_inputs: int) -> Rotation:
        """Return the rotation stored in a checkpoint. Recomputed axes may differ in sign on another machine."""
        axes = tree["axes"]
        if axes.dtype != np.float64 or axes.ndim != 2 or len(axes) != n_inputs or not all_finite(axes):
            raise FileError(f"its axes are not those of {n_inputs} columns")
        return cls(axes)

    @property
    def width(self) -> int:
        """Number of axes: the inputs of a net behind the rotation."""
        return self.axes.shape[1]

    def inputs(self, X: Array) -> Array:
        """Return the coordinates of inputs along the axes."""
        return np.asarray(X @ self.axes)

    def undone(self, mesh: Mesh) -> Mesh:
        """Return the net on the original inputs that is equivalent to a net on the coordinates."""
        t, (n, rank) = mesh.topology, self.axes.shape
        old, first, shift = np.zeros((t.n_neurons, t.n_neurons)), t.src < rank, n - rank
        old[t.src, t.dst] = mesh.weights
        new = np.concatenate((self.axes @ old[:rank], old[rank:]))  # by new source and old destination
        fed = np.unique(t.dst[first]) + shift
        pairs = np.stack(np.meshgrid(np.arange(n), fed, indexing="ij"), axis=-1).reshape(-1, 2)
        others = np.stack((t.src[~first], t.dst[~first]), axis=1) + shift
        graph = Topology(n, t.n_hidden, t.n_outputs, np.concatenate((pairs, others)), bias=t.bias)
        weights = new[graph.src, graph.dst - shift]
        *hidden, output = mesh.activations[: t.n_hidden + 1]
        return Mesh(graph, mesh.ticks, hidden, output, weights=weights, dtype=str(mesh.dtype))
