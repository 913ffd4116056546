"""`Engine`: a plan that runs on arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn import _core
from meshnn.arrays import Array, IntArray
from meshnn.checks import check_current_weights
from meshnn.engine.threads import threads_for
from meshnn.errors import DataError
from meshnn.losses import Targets
from meshnn.plan import ROW_BYTES, Plan, Timing

__all__ = ["Curvature", "Engine", "Gradient"]


class Gradient(NamedTuple):
    """A loss and its gradient."""

    loss: float
    correct: float  # share of samples whose largest output is that of the label; 0 without labels
    grad: NDArray[np.float64]  # (n_gradient,)


class Curvature(NamedTuple):
    """A quadratic model of a loss."""

    loss: float
    correct: float
    grad: NDArray[np.float64]  # (n_live,)
    matrix: NDArray[np.float64]  # (n_live, n_live) sum of J' H J


class Engine:
    """A compiled plan for one dtype, with its workspaces; it may be called from several threads.

    `codes` (n_neurons,) are the activations. `out_edges`, needed for derivatives with respect to inputs, describes the
    edges that leave inputs: the first edge of each input, the destinations, and the indices of their weights in
    `values`. `influence` has the lists of gradient="influence".

    In the methods, `values` (n_values,) are the distinct weights, X is `(1 or ticks, batch, n_inputs)`, and with
    `n_jobs` None the number of threads depends on the amount of work.
    """

    def __init__(
        self, plan: Plan, dtype: np.dtype[Any], codes: IntArray, out_edges: tuple[IntArray, ...] | None = None,
        influence: Any = None,
    ) -> None:  # fmt: skip
        self.plan, self.dtype, self.codes = plan, dtype, codes
        self.for_sequences: Callable[[], Engine] | None = None  # compiles the variant for inputs that differ per tick
        self.in_time: Callable[[Timing], Engine] | None = None  # compiles the variant for losses at ticks
        ptr, dst, number = out_edges or (np.empty(0, np.int64),) * 3
        given = plan.fields() | {"activations": codes, "out_ptr": ptr, "out_dst": dst, "out_number": number}
        self.core = _core.Engine(_core.Struct("Plan", given, dtype.char), dtype.char)
        self.influence = influence

    @property
    def work(self) -> float:
        """The work per sample, in multiply-adds."""
        return self.plan.cost.work

    # -- computations ----------------------------------------------------------------------------------------------

    def forward(self, values: Array, X: Array, n_jobs: int | None = None) -> Array:
        """Return the outputs after the last tick `(batch, n_outputs)`."""
        engine = self.suited_to(X)
        out = np.empty((1, X.shape[1], self.plan.n_outputs), self.dtype)
        engine._run(engine.core.forward, values, X, None, n_jobs, out, None, 0)
        found: Array = out[0]
        return found

    def run(
        self, values: Array, X: Array, wanted: str, state: Array | None = None, n_jobs: int | None = None
    ) -> tuple[Array, Array]:
        """Return the `wanted` result of a run, and the states after the last tick if the plan keeps them.

        The result is the outputs after the "last" or "every" tick `(1 or ticks, batch, n_outputs)`, or the "states" of
        all neurons `(ticks + 1, batch, n_neurons)`. `state` (batch, n_neurons) holds the states before the first tick.
        """
        plan, size = self.plan, X.shape[1]
        code = ("last", "every", "states").index(wanted)  # as in the core
        ticks = (1, plan.ticks, plan.ticks + 1)[code]
        out = np.empty((ticks, size, plan.n if wanted == "states" else plan.n_outputs), self.dtype)
        kept = plan.timing is not None and plan.timing.whole_end
        end = np.empty((size if kept else 0, plan.n), self.dtype)
        self._run(self.core.forward, values, X, state, n_jobs, out, end, code)
        return out, end

    def evaluate(self, values: Array, X: Array, targets: Targets, n_jobs: int | None = None) -> tuple[float, float]:
        """Return the loss and the share of correct samples."""
        engine = self.suited_to(X, targets)
        X, targets, _ = _counting(X, targets)
        arguments = (*target_arrays(targets, self.dtype), None, None)
        loss, correct = engine._run(engine.core.loss, values, X, None, n_jobs, *arguments)
        return loss, correct

    def gradient(
        self, values: Array, X: Array, targets: Targets, n_jobs: int | None = None, state: Array | None = None
    ) -> Gradient:
        """Return the loss and its gradient, optionally for a run that begins at a `state` (batch, n_neurons)."""
        engine = self.suited_to(X, targets)
        if not targets.even:
            X, targets, state = _counting(X, targets, state)
        grad = np.empty(engine.plan.n_gradient)
        arguments = (*target_arrays(targets, self.dtype), grad, engine.influence)
        loss, correct = engine._run(engine.core.loss, values, X, state, n_jobs, *arguments)
        return Gradient(loss, correct, grad)

    def jacobian(self, values: Array, X: Array, n_jobs: int | None = None, state: Array | None = None) -> Array:
        """Return the derivative of each output with respect to each value, `(batch, n_outputs, n_gradient)`."""
        engine = self.suited_to(X)
        out = np.empty((X.shape[1], self.plan.n_outputs, self.plan.n_gradient), self.dtype)
        engine._run(engine.core.jacobian, values, X, state, n_jobs, out, engine.influence)
        return out

    def curvature(
        self, values: Array, X: Array, targets: Targets, live: IntArray, n_jobs: int | None = None
    ) -> Curvature:
        """Return the gradient and the Gauss-Newton matrix with respect to the values with indices `live`."""
        engine = self.suited_to(X, targets)
        X, targets, _ = _counting(X, targets)
        each = targets.loss.columns(self.plan.n_outputs)
        # blocks of 512 columns of a square root of the curvature fit in the cache
        pieces = max(512 * self.dtype.itemsize // ROW_BYTES // each, 1) * max(each, 1)
        grad, matrix = np.empty(len(live)), np.empty((len(live), len(live)))
        live = np.ascontiguousarray(live, np.int64)
        pieces = max(pieces, self.plan.n_outputs)
        arguments = (*target_arrays(targets, self.dtype), live, pieces, grad, matrix)
        loss, correct = engine._run(engine.core.curvature, values, X, None, n_jobs, *arguments)
        return Curvature(loss, correct, grad, matrix)

    # -- calls of the core -----------------------------------------------------------------------------------------

    def suited_to(self, X: Array, targets: Targets | None = None) -> Engine:
        """Return the engine for these samples: this one, or its variant for sequences or for losses at ticks."""
        if self.plan.timing is None and targets is not None and targets.timed:
            assert self.in_time is not None
            return self.in_time(Timing.at(targets.ticks))
        return self if self.for_sequences is None or len(X) == 1 else self.for_sequences()

    def _run(
        self, call: Callable[..., Any], values: Array, X: Array, state: Array | None, n_jobs: int | None,
        *arguments: Any,
    ) -> Any:  # fmt: skip
        """Call a method of the core; raise `DataError` for samples or weights that are not finite."""
        samples, work = converted(X, self.dtype), self.plan.cost.work
        threads = threads_for(X.shape[1] * work, n_jobs)
        try:
            return call(values, samples, state, 1, threads, work, *arguments)
        except FloatingPointError:
            raise not_finite(X, samples) from None
        except ArithmeticError:
            check_current_weights(values, len(values))
            raise


def target_arrays(targets: Targets, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """Return targets, shares, readout, last ticks, the code of the loss and whether the loss has weights per tick."""
    values, share, code = converted(targets.values, dtype), converted(targets.share, dtype), targets.loss.code
    if not targets.timed:
        return values, share, None, None, code, 0
    stops = converted(targets.stops, dtype)
    if targets.at is not None:
        return values, converted(targets.at, dtype), None, stops, code, 1
    assert targets.readout is not None
    return values, share, converted(targets.readout, dtype), stops, code, 0


def converted(X: Array, dtype: np.dtype[Any]) -> Array:
    """Return a contiguous array of the dtype, for the core."""
    if X.dtype == dtype and X.flags.c_contiguous:
        return X
    with np.errstate(over="ignore"):  # `not_finite` reports an overflow
        return np.require(X, dtype, ["C_CONTIGUOUS", "ALIGNED"])


def not_finite(given: Array, samples: Array) -> DataError:
    """Return the error that describes the first value that is not finite."""
    bad = ~np.isfinite(samples)
    k, b, i = np.argwhere(bad)[0].tolist()
    tick = f"tick {k}, " if bad.shape[0] > 1 else ""
    value = given[k, b, i]
    non_finite = not np.isfinite(value)
    hint = "is not finite" if non_finite else f"does not fit {samples.dtype}"
    advice = "remove or impute them" if non_finite else 'scale the features, or build the mesh with dtype="float64"'
    return DataError(
        f"X holds {value} at {tick}sample {b}, feature {i}, which {hint} "
        f"({int(bad.sum())} such values in these {samples.shape[1]} samples); {advice}"
    )


def _counting(X: Array, targets: Targets, state: Array | None = None) -> tuple[Array, Targets, Array | None]:
    """Drop samples of weight 0, whose loss may be infinite."""
    rows = targets.counting
    if rows is None:
        return X, targets, state
    return X[:, rows], targets.of(rows), None if state is None else state[rows]
