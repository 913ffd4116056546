"""`Mesh`: a net that runs, and gives the exact gradients of what it does."""

from __future__ import annotations

import timeit
from functools import partial
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from meshnn import checks
from meshnn.arguments import known, whole_number
from meshnn.arrays import Array
from meshnn.engine import Engine
from meshnn.engine.threads import thread_count
from meshnn.errors import MeshError
from meshnn.losses import Targets, loss_named
from meshnn.memory import check_fits
from meshnn.net import MOST_TICKS
from meshnn.plan import METHODS, Explanation, Timing
from meshnn.streaming_net import StreamingNet

__all__ = ["Mesh"]


class Mesh(StreamingNet):
    """A network: one weight per edge of a topology, run for a number of ticks.

    At every tick each neuron takes the weighted sum of the states its in-edges read one tick earlier and applies its
    activation; inputs are held at the sample. The outputs are read after the last tick. The paper's `n_t` counts
    states, so its n_t = 3 is `ticks=2` here.

    Parameters
    ----------
    topology : Topology
    ticks : int, optional
        By default `topology.default_ticks()`: enough that a layered graph is the feed-forward net and that in any other
        every edge that can count does.
    activation : str or sequence of str
        Of the hidden neurons: one name, or one per neuron. identity, relu, leaky_relu (slope 0.01), elu, softplus,
        sigmoid, tanh, sin, gauss (exp(-t^2)).
    output_activation : str
    weights : array_like (n_edges,), optional
        Aligned with `topology.src`, `topology.dst`. By default normal with variance 1 / fan-in (2 / fan-in into relu),
        and 0 on bias edges.
    dtype : "float32" or "float64"
    random_state : int, Generator, SeedSequence or None
        Source of the default weights.
    tied : array_like of int (n_edges,), optional
        Which parameter each edge takes its weight from: edges with the same number are *tied* and learn one weight, -1
        is an edge whose weight is *fixed* and never learned. By default each edge has its own.

    Examples
    --------
    >>> import numpy as np
    >>> from meshnn import Mesh, Topology
    >>> m = Mesh(Topology.mesh(2, 5, 2), dtype="float64", random_state=0)
    >>> X, y = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0, 1])
    >>> m.forward(X).shape, m.ticks
    ((2, 2), 3)
    >>> loss, grad = m.gradient(X, y)
    >>> grad.shape
    (61,)
    """

    # -- what it does --------------------------------------------------------------------------------------------

    @overload
    def forward(
        self, X: ArrayLike, *, every_tick: bool = ..., state: ArrayLike | None = ...,
        return_state: Literal[False] = ..., n_jobs: int | None = ...,
    ) -> Array: ...  # fmt: skip

    @overload
    def forward(
        self, X: ArrayLike, *, every_tick: bool = ..., state: ArrayLike | None = ..., return_state: Literal[True],
        n_jobs: int | None = ...,
    ) -> tuple[Array, Array]: ...  # fmt: skip

    def forward(
        self,
        X: ArrayLike,
        *,
        every_tick: bool = False,
        state: ArrayLike | None = None,
        return_state: bool = False,
        n_jobs: int | None = None,
    ) -> Any:
        """Outputs after the last tick, or after every one.

        Parameters
        ----------
        X : array_like (batch, n_inputs) or (ticks, batch, n_inputs)
            One sample a row, held during all ticks; or one input a tick. With any of the next three options a sequence
            may have another length than `ticks`: it runs as many.
        every_tick : bool
            Outputs after every tick, `(ticks, batch, n_outputs)`.
        state : array_like (batch, n_neurons) or (n_neurons,), optional
            States before the first tick, instead of zeros; what it holds for inputs and bias is ignored.
        return_state : bool
            Return `(outputs, end)`: a run with `state=end` goes on from there.
        n_jobs : int, optional
            By default as many as pay; -1 is all cores. The result does not depend on it.

        Returns
        -------
        array (batch, n_outputs), or (ticks, batch, n_outputs)
        end : array (batch, n_neurons), if asked for
            The states after the last tick.

        Examples
        --------
        >>> import numpy as np
        >>> from meshnn import Mesh, Topology
        >>> m = Mesh(Topology(1, 0, 1, [(0, 1), (1, 1)], bias=False), 1, weights=[1.0, 0.5])  # y <- x + y / 2
        >>> y, end = m.forward(np.ones((3, 1, 1)), every_tick=True, return_state=True)
        >>> y.ravel().tolist(), m.forward([[0.0]], state=end).tolist()
        ([1.0, 1.5, 1.75], [[0.875]])
        """
        timed, threads = every_tick or state is not None or return_state, thread_count("n_jobs", n_jobs)
        X, ticks = self._inputs(X, any_length=timed)
        if timed:
            return self._follow(X, ticks, "every" if every_tick else "last", state, return_state, threads)
        needed = X.shape[1] * self._topology.n_outputs * self._dtype.itemsize
        check_fits(needed, "the outputs of this batch", "pass fewer samples at a time")
        return self._engines.outputs(ticks).forward(self._current(), X, threads)

    def states(self, X: ArrayLike, *, state: ArrayLike | None = None, n_jobs: int | None = None) -> Array:
        """States `(ticks + 1, batch, n_neurons)`: before the first tick and after each one.

        The inputs of states[k] are those that tick k + 1 reads; of the last state, those of the last tick. A run with
        `state=states[-1]` goes on from there; `state` is as for `forward`.
        """
        X, ticks = self._inputs(X, any_length=state is not None)
        found: Array = self._follow(X, ticks, "states", state, False, thread_count("n_jobs", n_jobs))
        return found

    @overload
    def gradient(
        self, X: ArrayLike, y: ArrayLike, loss: str = ..., gradient: str = ...,
        sample_weight: ArrayLike | None = ..., *, loss_ticks: Any = ..., readout: ArrayLike | None = ...,
        state: ArrayLike | None = ..., return_state: Literal[False] = ...,
        n_jobs: int | None = ...,
    ) -> tuple[float, Array]: ...  # fmt: skip

    @overload
    def gradient(
        self, X: ArrayLike, y: ArrayLike, loss: str = ..., gradient: str = ...,
        sample_weight: ArrayLike | None = ..., *, loss_ticks: Any = ..., readout: ArrayLike | None = ...,
        state: ArrayLike | None = ..., return_state: Literal[True], n_jobs: int | None = ...,
    ) -> tuple[float, Array, Array]: ...  # fmt: skip

    def gradient(
        self,
        X: ArrayLike,
        y: ArrayLike,
        loss: str = "cross_entropy",
        gradient: str = "auto",
        sample_weight: ArrayLike | None = None,
        *,
        loss_ticks: Any = "last",
        readout: ArrayLike | None = None,
        state: ArrayLike | None = None,
        return_state: bool = False,
        n_jobs: int | None = None,
    ) -> Any:
        """The mean loss of a batch and its exact gradient by every parameter.

        Parameters
        ----------
        X : array_like (batch, n_inputs) or (ticks, batch, n_inputs)
        y : array_like
            Labels (batch,) from 0 for cross_entropy; values (batch, n_outputs) for the others.
        loss : "cross_entropy", "binary_cross_entropy", "squared_error", "huber", "poisson" or "quantile:0.9"
            Of the softmax of the outputs; half the squared distance; the same up to errors of 1, beyond it by their
            size; half the deviance of counts whose rate is exp(output).
        gradient : str
            "auto", "forward", "factored", "influence" or "adjoint"; `explain` tells what they cost.
        sample_weight : array_like (batch,), optional
            The mean is weighted with it.
        loss_ticks : "last", "all" or array_like of weights (ticks, batch) or (ticks,)
            The ticks that the loss counts, as a mask or as weights of at least 0: the loss is the mean over them, each
            times the weight of its sample. Then y is (ticks, batch, ...), or as without if the target is the same after
            every tick; targets of ticks that do not count are ignored.
        readout : array_like (ticks, batch) or (ticks,), optional
            Instead of that: the loss is that of one output per sample, the weighted sum of its outputs after all ticks.
            1 at the last tick of each sequence, and 0 elsewhere, reads out where it ends; 1 / length up to there, the
            mean.
        state, return_state
            As for `forward`; the state is a constant, the gradient is by the parameters alone. A sequence may have
            another length than `ticks` here, too, and with `loss_ticks` or `readout`.

        Returns
        -------
        loss : float
        grad : array (n_parameters,)
        end : array (batch, n_neurons), if asked for
        """
        last = isinstance(loss_ticks, str) and loss_ticks == "last"
        timed = return_state or state is not None or readout is not None or not last
        ticks, begin, timing, threads = self._ticks, None, None, thread_count("n_jobs", n_jobs)
        if timed:
            looks = (loss_ticks, readout)
            X, ticks, begin, targets = self._samples(X, y, loss, sample_weight, looks, state, timed)
            timing = Timing.at(targets.ticks, begin is not None)
        else:  # the same, with fewer calls: steps on small batches take microseconds
            X, t = checks.as_inputs(X, self._topology, ticks), self._topology
            targets = Targets.make(loss_named(loss), y, sample_weight, X.shape[1], t.n_outputs, self._dtype)
        engine = self._engines.find("gradient", gradient, ticks, X.shape[1], threads, False, timing)
        found = engine.gradient(self._current(), X, targets, threads, begin)
        grad = found.grad[: self.n_parameters].astype(self._dtype, copy=False)
        if not return_state:
            return found.loss, grad
        return found.loss, grad, self._follow(X, ticks, "last", state, True, threads)[1]

    def jacobian(
        self, X: ArrayLike, gradient: str = "auto", *, state: ArrayLike | None = None, n_jobs: int | None = None
    ) -> Array:
        """Derivative of every output by every parameter for every sample, `(batch, n_outputs, n_parameters)`.

        With a `state`, as for `forward`, it is that of the outputs after the last tick of a run that begins there, the
        state being a constant; then a sequence may have any length, and the method is "adjoint".

        Examples
        --------
        >>> from meshnn import Mesh, Topology
        >>> m = Mesh(Topology(1, 0, 1, [(0, 1), (1, 1)], bias=False), 1, "identity")  # y' = a x + b y
        >>> m.jacobian([[2.0]], state=[0.0, 3.0]).tolist()
        [[[2.0, 3.0]]]
        """
        t, threads, timed = self._topology, thread_count("n_jobs", n_jobs), state is not None
        X, ticks = self._inputs(X, any_length=timed)
        if timed and known("gradient", gradient, ("auto", "forward", *METHODS)) not in ("auto", "adjoint"):
            raise MeshError(f'only gradient="adjoint" has the Jacobian of a run from a given state, not "{gradient}"')
        begin = checks.as_state(state, t, X.shape[1], self._dtype)
        needed = X.shape[1] * t.n_outputs * t.n_edges * self._dtype.itemsize
        check_fits(needed, "the Jacobian of this batch", "pass fewer samples at a time")
        timing = Timing.at(np.arange(ticks) == ticks - 1, True) if timed else None
        method = "adjoint" if timed else gradient
        engine = self._engines.find("jacobian", method, ticks, X.shape[1], threads, timing=timing)
        return engine.jacobian(self._current(), X, threads, begin)[:, :, : self.n_parameters]

    def growth_scores(
        self,
        X: ArrayLike,
        y: ArrayLike,
        loss: str = "cross_entropy",
        src: ArrayLike = (),
        dst: ArrayLike = (),
        gradient: str = "auto",
        sample_weight: ArrayLike | None = None,
        *,
        loss_ticks: Any = "last",
        readout: ArrayLike | None = None,
        state: ArrayLike | None = None,
        n_jobs: int | None = None,
    ) -> Array:
        """dE/dA for edges that need not exist: the gradient that each would have if it were added with weight 0.

        A neuron that nothing feeds yet sits at t = 0. There relu takes its left derivative, 0, so an edge into such a
        relu neuron scores 0 whatever it could do; with leaky_relu, tanh and the others it does not.

        Parameters
        ----------
        src, dst : array_like of int
            Sources and destinations of the edges in question; they are broadcast against each other.
        loss_ticks, readout, state
            As for `gradient`.

        Returns
        -------
        array, in the shape of src and dst

        Examples
        --------
        >>> from meshnn import Mesh, Topology
        >>> m = Mesh(Topology.layered([2, 1]), random_state=0)             # neurons: 0, 1, bias 2, output 3
        >>> m.growth_scores([[1.0, 2.0]], [[0.0]], loss="squared_error", src=[3], dst=[3]).tolist()
        [0.0]
        """
        looks = (loss_ticks, readout)
        X, ticks, begin, targets = self._samples(X, y, loss, sample_weight, looks, state, state is not None)
        sources, ends, shape = checks.as_pairs(src, dst, self._topology.n_neurons)
        threads, timing = (
            thread_count("n_jobs", n_jobs),
            Timing.at(targets.ticks, begin is not None) if targets.timed else None,
        )
        # the lists of a plan hold every edge once: a repeated pair would be written to by several entries of a tile
        pairs, place = np.unique(np.stack([ends, sources]), axis=1, return_inverse=True)
        engine = self._engines.candidates(gradient, ticks, (pairs[1], pairs[0]), X.shape[1], threads, timing)
        grad = engine.gradient(self._current(), X, targets, threads, begin).grad
        return grad.astype(self._dtype)[place.ravel()].reshape(shape)

    def explain(self, batch_size: int = 64, *, jacobian: bool = False, measure: bool = False) -> Explanation:
        """Return the cost of each gradient method on this mesh, the one that `auto` takes and why: print it.

        With `measure`, a gradient of a batch of random samples is timed on one thread.
        """
        batch_size = whole_number("batch_size", batch_size)
        decision = self._engines.decide(self.ticks, batch_size, jacobian=jacobian)
        dead, seconds = int(self.dead_edges().sum()), None
        if measure:
            X = np.random.default_rng(0).standard_normal((batch_size, self._topology.n_inputs)).astype(self._dtype)
            y = np.zeros((batch_size, self._topology.n_outputs))
            call: Any = self.jacobian if jacobian else partial(self.gradient, y=y, loss="squared_error")
            seconds = min(timeit.repeat(partial(call, X, gradient=decision.chosen, n_jobs=1), number=1, repeat=7))
        return Explanation(repr(self), batch_size, decision, self._topology.n_edges, dead, seconds)

    def engine(
        self, need: str = "outputs", gradient: str = "auto", batch: int = 64, *, n_jobs: int | None = None,
        again: bool = False,
    ) -> Engine:  # fmt: skip
        """The compiled engine for a need, to be run on `values`: what training runs on.

        Parameters
        ----------
        need : "outputs", "gradient", "epochs", "jacobian" or "curvature"
        gradient : str
            As for `gradient`. With "auto" epochs run on a method that knows compiled ones, and curvature on one that
            gives it.
        batch : int
            Samples that it will see at a time.
        again : bool
            The method is known to do, for a graph that has changed a little since: nothing is priced again.
        """
        if need == "outputs":
            return self._engines.outputs(self.ticks)
        return self._engines.find(need, gradient, self.ticks, batch, n_jobs, again)

    def _follow(self, X: Array, ticks: int, what: str, state: Any, return_state: bool, threads: int | None) -> Any:
        """A run in time, without a gradient."""
        t = self._topology
        begin = checks.as_state(state, t, X.shape[1], self._dtype)
        rows = {"every": ticks * t.n_outputs, "last": t.n_outputs, "states": (ticks + 1) * t.n_neurons}[what]
        needed = X.shape[1] * (rows + return_state * t.n_neurons) * self._dtype.itemsize
        check_fits(needed, "what is asked for of this batch", "pass fewer samples, or fewer ticks, at a time")
        timing = None
        if what != "states" or begin is not None:
            counts = np.ones(ticks, np.bool_) if what == "every" else np.arange(ticks) == ticks - 1
            timing = Timing.at(counts, begin is not None, return_state)
        engine = self._engines.follow(ticks, timing, whole=what == "states")
        found, end = engine.run(self._current(), X, what, begin, threads)
        found = found[0] if what == "last" else found
        return (found, end) if return_state else found

    def _samples(
        self, X: Any, y: Any, loss: str, sample_weight: Any, looks: tuple[Any, Any], state: Any, timed: bool
    ) -> tuple[Array, int, Array | None, Targets]:
        """Return inputs, the ticks they run, the states they begin with, if given, and targets."""
        t = self._topology
        X, ticks = self._inputs(X, any_length=timed)
        begin = checks.as_state(state, t, X.shape[1], self._dtype)
        given = (loss_named(loss), y, sample_weight, X.shape[1], t.n_outputs, self._dtype)
        return X, ticks, begin, Targets.make(*given, ticks, *looks, timed=timed)

    def _inputs(self, X: Any, any_length: bool) -> tuple[Array, int]:
        """Return inputs and the ticks they run: a sequence of any length says so itself."""
        given = checks.as_inputs(X, self._topology, self._ticks, any_length=any_length)
        if not any_length or np.ndim(X) == 2 or len(given) == self._ticks:
            return given, self._ticks
        ticks = whole_number("ticks", len(given), most=MOST_TICKS)
        needed = float(ticks) * self._topology.n_neurons * 4
        check_fits(needed, f"planning {ticks} ticks", "pass fewer ticks at a time, with state= and return_state=")
        return given, ticks
