"""`Mesh`: a network that runs, with exact gradients, Jacobians and growth scores."""

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

    At every tick each neuron computes the weighted sum of its source neurons' states after the previous tick and
    applies its activation. Inputs are held at the sample, and the outputs are read after the last tick. The paper's
    `n_t` counts states, so its n_t = 3 is `ticks=2` here.

    Parameters
    ----------
    topology : Topology
        The graph.
    ticks : int, optional
        Number of ticks. The default, `topology.default_ticks()`, makes a layered graph a feed-forward network and is
        large enough for every edge of any other graph to influence an output if it can. Increase it to let signals
        travel around cycles more often.
    activation : str or sequence of str, default "relu"
        Activation of the hidden neurons: one name, or one per hidden neuron. The names are identity, relu, leaky_relu
        (slope 0.01), elu, softplus, sigmoid, tanh, sin, gauss (exp(-t^2)) and hardtanh (t clipped to -1 and 1).
    output_activation : str, default "identity"
        Activation of the output neurons. Keep "identity" where the loss applies softmax, sigmoid or exp itself.
    weights : array_like (n_edges,), optional
        Weights aligned with `topology.src` and `topology.dst`. By default they are drawn from a normal distribution
        with variance 1 / fan-in (2 / fan-in into relu), and are 0 on bias edges.
    dtype : "float32" or "float64", default "float32"
        Precision of weights and states. Use float64 for gradient checks.
    random_state : int, Generator, SeedSequence or None
        Seed of the default weights.
    tied : array_like of int (n_edges,), optional
        Index of the parameter that each edge takes its weight from. Edges with the same index are *tied* and share one
        weight; -1 marks an edge whose weight is *fixed* and never trained. By default each edge has its own parameter.

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

    # -- runs and derivatives ------------------------------------------------------------------------------------

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
        """Return the outputs after the last tick, or after every tick.

        Parameters
        ----------
        X : array_like (batch, n_inputs) or (ticks, batch, n_inputs)
            One sample per row, held during all ticks, or a sequence with one input per tick. With any of the next
            three options the length of the sequence may differ from `ticks`; the mesh then runs one tick per input.
        every_tick : bool, default False
            Return the outputs after every tick, `(ticks, batch, n_outputs)`.
        state : array_like (batch, n_neurons) or (n_neurons,), optional
            States before the first tick; zeros by default. Its values for inputs and bias are ignored.
        return_state : bool, default False
            Return `(outputs, end)`. A run with `state=end` continues from there.
        n_jobs : int, optional
            Number of threads; -1 uses all cores. By default the number depends on the amount of work. The result does
            not depend on it.

        Returns
        -------
        outputs : array (batch, n_outputs), or (ticks, batch, n_outputs)
        end : array (batch, n_neurons), only with `return_state`
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
            return self._run(X, ticks, "every" if every_tick else "last", state, return_state, threads)
        needed = X.shape[1] * self._topology.n_outputs * self._dtype.itemsize
        check_fits(needed, "the outputs of this batch", "pass fewer samples at a time")
        return self._engines.outputs(ticks).forward(self._current(), X, threads)

    def states(self, X: ArrayLike, *, state: ArrayLike | None = None, n_jobs: int | None = None) -> Array:
        """Return the states `(ticks + 1, batch, n_neurons)` before the first tick and after each tick.

        The input neurons of states[k] hold the inputs that tick k + 1 reads; those of the last state hold the inputs of
        the last tick. A run with `state=states[-1]` continues from there. `state` is as for `forward`.
        """
        X, ticks = self._inputs(X, any_length=state is not None)
        found: Array = self._run(X, ticks, "states", state, False, thread_count("n_jobs", n_jobs))
        return found

    @overload
    def gradient(
        self, X: ArrayLike, y: ArrayLike | Targets, loss: str = ..., gradient: str = ...,
        sample_weight: ArrayLike | None = ..., *, loss_ticks: Any = ..., readout: ArrayLike | None = ...,
        state: ArrayLike | None = ..., return_state: Literal[False] = ...,
        n_jobs: int | None = ...,
    ) -> tuple[float, Array]: ...  # fmt: skip

    @overload
    def gradient(
        self, X: ArrayLike, y: ArrayLike | Targets, loss: str = ..., gradient: str = ...,
        sample_weight: ArrayLike | None = ..., *, loss_ticks: Any = ..., readout: ArrayLike | None = ...,
        state: ArrayLike | None = ..., return_state: Literal[True], n_jobs: int | None = ...,
    ) -> tuple[float, Array, Array]: ...  # fmt: skip

    def gradient(
        self,
        X: ArrayLike,
        y: ArrayLike | Targets,
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
        """Return the mean loss of a batch and its exact gradient with respect to every parameter.

        Parameters
        ----------
        X : array_like (batch, n_inputs) or (ticks, batch, n_inputs)
            Samples, as for `forward`.
        y : array_like
            Labels (batch,) from 0 for cross_entropy; values (batch, n_outputs) for the other losses.
        loss : str, default "cross_entropy"
            "cross_entropy" of the softmax of the outputs; "binary_cross_entropy" of the sigmoid of each output;
            "squared_error", half the squared distance; "huber", the same for errors up to 1 and linear beyond;
            "poisson", half the deviance of counts with rate exp(output); "quantile:0.9", the pinball loss of a level.
        gradient : str, default "auto"
            "auto", "forward", "factored", "influence" or "adjoint". All return the same gradient; `explain` shows the
            cost of each.
        sample_weight : array_like (batch,), optional
            Weights of the samples in the mean.
        loss_ticks : "last", "all" or array_like of weights (ticks, batch) or (ticks,), default "last"
            Ticks that the loss includes, as a mask or as weights of at least 0. The loss is the mean over these ticks,
            each multiplied by the weight of its sample. y is then (ticks, batch, ...), or has its usual shape if the
            target is the same after every tick. Targets at ticks of weight 0 are ignored.
        readout : array_like (ticks, batch) or (ticks,), optional
            Alternative to `loss_ticks`: the loss compares one output per sample, the weighted sum of its outputs after
            all ticks. A weight of 1 at the last tick of each sequence and 0 elsewhere reads the final output; weights
            of 1 / length up to that tick read the mean.
        state, return_state
            As for `forward`. The state is a constant: the gradient is with respect to the parameters alone. With a
            state, `loss_ticks` or `readout` the length of a sequence may differ from `ticks`.
        n_jobs : int, optional
            As for `forward`.

        Returns
        -------
        loss : float
        grad : array (n_parameters,)
        end : array (batch, n_neurons), only with `return_state`
            The states after the last tick.
        """
        last = isinstance(loss_ticks, str) and loss_ticks == "last"
        timed = return_state or state is not None or readout is not None or not last
        ticks, begin, timing, threads = self._ticks, None, None, thread_count("n_jobs", n_jobs)
        if timed:
            at = (loss_ticks, readout)
            X, ticks, begin, targets = self._samples(X, y, loss, sample_weight, at, state, timed)
            timing = Timing.at(targets.ticks, begin is not None)
        else:  # the same with fewer calls, because steps on small batches take microseconds
            X, t = checks.as_inputs(X, self._topology, ticks), self._topology
            targets = Targets.make(loss_named(loss), y, sample_weight, X.shape[1], t.n_outputs, self._dtype)
        engine = self._engines.find("gradient", gradient, ticks, X.shape[1], threads, False, timing)
        found = engine.gradient(self._current(), X, targets, threads, begin)
        grad = found.grad[: self.n_parameters].astype(self._dtype, copy=False)
        if not return_state:
            return found.loss, grad
        return found.loss, grad, self._run(X, ticks, "last", state, True, threads)[1]

    def jacobian(
        self, X: ArrayLike, gradient: str = "auto", *, state: ArrayLike | None = None, n_jobs: int | None = None
    ) -> Array:
        """Return the derivative of every output with respect to every parameter, `(batch, n_outputs, n_parameters)`.

        With a `state`, as for `forward`, the run begins at that state, which is treated as a constant. A sequence may
        then have any length, and `gradient` must be "auto" or "adjoint".

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
            raise MeshError(f'jacobian with state= needs gradient="auto" or "adjoint", got "{gradient}"')
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
        y: ArrayLike | Targets,
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
        """Return dE/dA for candidate edges: the gradient that each would have if it were added with weight 0.

        The weighted sum of a neuron without in-edges is t = 0. The derivative of relu at 0 is taken as 0, so every edge
        into such a relu neuron scores 0. The other activations have no such dead point.

        Parameters
        ----------
        src, dst : array_like of int
            Sources and destinations of the candidate edges, broadcast against each other. The edges may exist or not.
        X, y, loss, gradient, sample_weight, loss_ticks, readout, state, n_jobs
            As for `gradient`.

        Returns
        -------
        scores : array, in the broadcast shape of src and dst

        Examples
        --------
        >>> from meshnn import Mesh, Topology
        >>> m = Mesh(Topology.layered([2, 1]), random_state=0)             # neurons: 0, 1, bias 2, output 3
        >>> m.growth_scores([[1.0, 2.0]], [[0.0]], loss="squared_error", src=[3], dst=[3]).tolist()
        [0.0]
        """
        at = (loss_ticks, readout)
        X, ticks, begin, targets = self._samples(X, y, loss, sample_weight, at, state, state is not None)
        sources, ends, shape = checks.as_pairs(src, dst, self._topology.n_neurons)
        threads, timing = (
            thread_count("n_jobs", n_jobs),
            Timing.at(targets.ticks, begin is not None) if targets.timed else None,
        )
        # the lists of a plan hold every edge once: several entries of a tile would write to a repeated pair
        pairs, place = np.unique(np.stack([ends, sources]), axis=1, return_inverse=True)
        engine = self._engines.candidates(gradient, ticks, (pairs[1], pairs[0]), X.shape[1], threads, timing)
        grad = engine.gradient(self._current(), X, targets, threads, begin).grad
        return grad.astype(self._dtype)[place.ravel()].reshape(shape)

    def explain(self, batch_size: int = 64, *, jacobian: bool = False, measure: bool = False) -> Explanation:
        """Return the cost of each gradient method on this mesh and the choice of `auto` with its reason, for printing.

        Parameters
        ----------
        batch_size : int, default 64
            Number of samples per batch.
        jacobian : bool, default False
            Show the cost of the Jacobian instead of the gradient.
        measure : bool, default False
            Time the chosen method on a batch of random samples, on one thread.
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
        """Return the compiled engine that training runs on; its methods take `values` and samples.

        Parameters
        ----------
        need : "outputs", "gradient", "epochs", "jacobian" or "curvature"
            The quantity that the engine computes.
        gradient : str, default "auto"
            As for `gradient`. With "auto", epochs use a method that has compiled epochs, and curvature uses a method
            that computes it.
        batch : int, default 64
            Expected number of samples per call.
        n_jobs : int, optional
            As for `forward`.
        again : bool, default False
            Reuse the named method after a small change of the graph, without estimating its cost again.
        """
        if need == "outputs":
            return self._engines.outputs(self.ticks)
        return self._engines.find(need, gradient, self.ticks, batch, n_jobs, again)

    def _run(self, X: Array, ticks: int, what: str, state: Any, return_state: bool, threads: int | None) -> Any:
        """Return the outputs of the "last" or "every" tick, or the "states", without a gradient."""
        t = self._topology
        begin = checks.as_state(state, t, X.shape[1], self._dtype)
        rows = {"every": ticks * t.n_outputs, "last": t.n_outputs, "states": (ticks + 1) * t.n_neurons}[what]
        needed = X.shape[1] * (rows + return_state * t.n_neurons) * self._dtype.itemsize
        check_fits(
            needed,
            f"the {'states' if what == 'states' else 'outputs'} of this batch",
            "pass fewer samples or fewer ticks at a time",
        )
        timing = None
        if what != "states" or begin is not None:
            counts = np.ones(ticks, np.bool_) if what == "every" else np.arange(ticks) == ticks - 1
            timing = Timing.at(counts, begin is not None, return_state)
        engine = self._engines.forward_engine(ticks, timing, whole=what == "states")
        found, end = engine.run(self._current(), X, what, begin, threads)
        found = found[0] if what == "last" else found
        return (found, end) if return_state else found

    def _samples(
        self, X: Any, y: Any, loss: str, sample_weight: Any, at: tuple[Any, Any], state: Any, timed: bool
    ) -> tuple[Array, int, Array | None, Targets]:
        """Return the inputs, their number of ticks, the initial states (None for zeros) and the targets."""
        t = self._topology
        X, ticks = self._inputs(X, any_length=timed)
        begin = checks.as_state(state, t, X.shape[1], self._dtype)
        given = (loss_named(loss), y, sample_weight, X.shape[1], t.n_outputs, self._dtype)
        return X, ticks, begin, Targets.make(*given, ticks, *at, timed=timed)

    def _inputs(self, X: Any, any_length: bool) -> tuple[Array, int]:
        """Return the inputs and their number of ticks, which with `any_length` is the length of a sequence."""
        given = checks.as_inputs(X, self._topology, self._ticks, any_length=any_length)
        if not any_length or np.ndim(X) == 2 or len(given) == self._ticks:
            return given, self._ticks
        ticks = whole_number("ticks", len(given), most=MOST_TICKS)
        needed = float(ticks) * self._topology.n_neurons * 4
        check_fits(needed, f"planning {ticks} ticks", "pass fewer ticks at a time, with state= and return_state=")
        return given, ticks
