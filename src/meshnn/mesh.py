"""`Mesh`: a net that runs, and gives the exact gradients of what it does."""

from __future__ import annotations

import timeit
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from meshnn import checks
from meshnn.arguments import known, switch, whole_number
from meshnn.arrays import Array
from meshnn.codes import ACTIVATIONS
from meshnn.engine import Engine
from meshnn.engine.threads import thread_count
from meshnn.errors import MeshError
from meshnn.losses import Targets, loss_named
from meshnn.memory import check_fits
from meshnn.net import MOST_TICKS, Net
from meshnn.plan import METHODS, Explanation, Timing

if TYPE_CHECKING:  # few programs stream
    from meshnn.streaming.growth import Growth
    from meshnn.streaming.portable import PortableStream
    from meshnn.streaming.stream import Stream

__all__ = ["Mesh"]


class Mesh(Net):
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
        if every_tick or state is not None or return_state:
            return self._follow(X, "every" if every_tick else "last", state, return_state, n_jobs)
        X = checks.as_inputs(X, self._topology, self.ticks)
        needed = X.shape[1] * self._topology.n_outputs * self._dtype.itemsize
        check_fits(needed, "the outputs of this batch", "pass fewer samples at a time")
        return self._engines.outputs(self.ticks).forward(self._current(), X, _threads(n_jobs))

    def states(self, X: ArrayLike, *, state: ArrayLike | None = None, n_jobs: int | None = None) -> Array:
        """States `(ticks + 1, batch, n_neurons)`: before the first tick and after each one.

        The inputs of states[k] are those that tick k + 1 reads; of the last state, those of the last tick. A run with
        `state=states[-1]` goes on from there; `state` is as for `forward`.
        """
        if state is not None:
            found: Array = self._follow(X, "states", state, False, n_jobs)
            return found
        X = checks.as_inputs(X, self._topology, self.ticks)
        needed = (self.ticks + 1) * X.shape[1] * self._topology.n_neurons * self._dtype.itemsize
        check_fits(needed, "the states of this batch", "pass fewer samples at a time")
        return self._engines.states(self.ticks).run(self._current(), X, "states", n_jobs=_threads(n_jobs))[0]

    @overload
    def gradient(
        self, X: ArrayLike, y: ArrayLike, loss: str = ..., gradient: str = ...,
        sample_weight: ArrayLike | None = ..., *, loss_ticks: Any = ..., readout: ArrayLike | None = ...,
        state: ArrayLike | None = ...,
        return_state: Literal[False] = ..., n_jobs: int | None = ...,
    ) -> tuple[float, Array]: ...  # fmt: skip

    @overload
    def gradient(
        self, X: ArrayLike, y: ArrayLike, loss: str = ..., gradient: str = ...,
        sample_weight: ArrayLike | None = ..., *, loss_ticks: Any = ..., readout: ArrayLike | None = ...,
        state: ArrayLike | None = ...,
        return_state: Literal[True], n_jobs: int | None = ...,
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
        loss_ticks : "last", "all" or array_like of bool (ticks, batch) or (ticks,)
            The ticks after which outputs are looked at; the loss is the mean over all looks, each with the weight of
            its sample. Then y is (ticks, batch, ...), or as without if the target is the same after every tick; what
            it holds for ticks that are not looked at is ignored.
        readout : array_like (ticks, batch) or (ticks,), optional
            Instead of that: the loss is that of one output a sample, the sum over all ticks of the outputs after them,
            so weighted. 1 at the last tick of each sequence, and 0 elsewhere, reads out where it ends; 1 / length up
            to there, the mean.
        state, return_state
            As for `forward`; the state is a constant, the gradient is by the parameters alone. A sequence may have
            another length than `ticks` here, too, and with `loss_ticks` or `readout`.

        Returns
        -------
        loss : float
        grad : array (n_parameters,)
        end : array (batch, n_neurons), if asked for
        """
        if return_state or state is not None or readout is not None or not (
            isinstance(loss_ticks, str) and loss_ticks == "last"
        ):  # fmt: skip
            return self._gradient_in_time(
                X, y, loss, gradient, sample_weight, loss_ticks, readout, state, return_state, n_jobs
            )
        X, t = checks.as_inputs(X, self._topology, self._ticks), self._topology
        size, threads = X.shape[1], None if n_jobs is None else _threads(n_jobs)
        targets = Targets.make(loss_named(loss), y, sample_weight, size, t.n_outputs, self._dtype)
        engine = self._engines.find("gradient", gradient, self._ticks, size, threads)
        found = engine.gradient(self._current(), X, targets, threads)
        return found.loss, found.grad[: self.n_parameters].astype(self._dtype, copy=False)

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
        if state is not None:
            return self._jacobian_in_time(X, gradient, state, n_jobs)
        X = checks.as_inputs(X, self._topology, self.ticks)
        t = self._topology
        needed = X.shape[1] * t.n_outputs * t.n_edges * self._dtype.itemsize
        check_fits(needed, "the Jacobian of this batch", "pass fewer samples at a time")
        threads = _threads(n_jobs)
        engine = self.engine("jacobian", gradient, X.shape[1], n_jobs=threads)
        return engine.jacobian(self._current(), X, threads)[:, :, : self.n_parameters]

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
        begin, ticks = None, self.ticks
        if state is None:
            X, targets = self._samples(X, y, loss, sample_weight, loss_ticks, readout)
        else:
            X, ticks, begin, targets = self._samples_in_time(X, y, loss, sample_weight, loss_ticks, readout, state)
        sources, ends, shape = checks.as_pairs(src, dst, self._topology.n_neurons)
        threads, timing = _threads(n_jobs), Timing.at(targets.ticks, begin is not None) if targets.timed else None
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

    @overload
    def stream(
        self, loss: str = ..., learner: str = ..., *, portable: Literal[False] = ..., **settings: Any
    ) -> Stream: ...

    @overload
    def stream(
        self, loss: str = ..., learner: str = ..., *, portable: Literal[True], **settings: Any
    ) -> PortableStream: ...

    def stream(
        self,
        loss: str = "squared_error",
        learner: str = "adam",
        *,
        memory: str = "carry",
        method: str = "exact",
        ticks_per_sample: int | None = None,
        n_streams: int = 1,
        delay: int = 0,
        scale: bool = False,
        portable: bool = False,
        **settings: Any,
    ) -> Stream | PortableStream:
        """The mesh on a stream that never ends: it learns while it runs, in memory that does not grow.

        The influence of every parameter on every neuron is carried forward with the states, so the gradient is exact
        through all of the past (while parameters move: each part at the parameters of its time). The parameters of
        this mesh are what is learned; while a stream runs, nobody else should change them (`Stream.refresh`).

        Parameters
        ----------
        loss : str
            As for `gradient`.
        learner : "adam", "sgd" or "ekf"
            First-order steps, or the extended Kalman filter: second order, in float64.
        memory : "carry" or "none"
            Whether the state goes on from sample to sample, or is forgotten: a static net that learns online.
        method : "exact", "snap-1", "snap-2", ...
            Influences cut after so many hops are cheaper and not exact; `Stream.explain` prices them.
        ticks_per_sample : int, optional
            By default `ticks`.
        n_streams : int
            Streams beside each other, which share the parameters.
        delay : int
            Samples by which targets may come later: the derivatives of that many samples are kept.
        scale : bool
            Whether inputs, and targets of squared_error and huber, are brought to mean 0 and variance 1 as far as seen;
            then a NaN among the inputs is one that is missing. Outputs are in the units of the targets.
        portable : bool
            A `meshnn.streaming.portable.PortableStream`: float32 with the same bits on every machine, which can be
            written as C. One stream, the exact method, no delayed targets; "ekf" with one covariance and no replays.
        **settings
            Of the learner: `rate`, `clip`, `l2`, `momentum`, or those of `meshnn.streaming.kalman.KalmanSettings`.

        Examples
        --------
        >>> import numpy as np
        >>> from meshnn import Mesh, Topology
        >>> x = np.sin(0.3 * np.arange(2001))[:, None]
        >>> mesh = Mesh(Topology.mesh(1, 6, 1), activation="tanh", random_state=0)
        >>> stream = mesh.stream(learner="adam")
        >>> out = stream.run(x[:-1], x[1:])  # predictions of the next value, each before it was seen
        >>> bool(np.square(out - x[1:])[-100:].mean() < 0.1 * np.square(out - x[1:])[:100].mean())
        True
        >>> y = stream.step(x[-1])  # one sample at a time goes, too
        >>> stream.learn([0.0])
        """
        from meshnn.streaming.portable import PortableStream
        from meshnn.streaming.portable_plan import portable_learner
        from meshnn.streaming.stream import Stream, new_learner

        ticks = self.ticks if ticks_per_sample is None else ticks_per_sample
        if switch("portable", portable):
            given = {"n_streams": n_streams, "delay": delay, "method": method}
            return PortableStream(
                self._topology, self._codes, self._ties, self.values, loss=loss,
                learner=portable_learner(learner, self._topology, self._ties, settings, given),
                ticks_per_sample=ticks, memory=memory, scale=scale,
            )  # fmt: skip
        return Stream(
            self._topology, self._codes, self._ties, self.values, loss=loss,
            learner=new_learner(learner, self._topology, self._ties, self._dtype, settings),
            ticks_per_sample=ticks, memory=memory, method=method, n_streams=n_streams, delay=delay, scale=scale,
        )  # fmt: skip

    def _learner(self) -> PortableStream:
        from meshnn.streaming.portable import portable_of

        return portable_of(self)

    def grow_stream(self, stream: Stream, inputs: int = 0, outputs: int = 0, loss: str | None = None) -> None:
        """Give the mesh so many inputs and outputs more, while it streams: their edges have weight 0.

        States, influences, moments and covariances of what was there stay as they are.
        """
        from meshnn.streaming.growth import grown

        self.move_stream(stream, grown(self._topology, inputs, outputs), loss=loss)

    def move_stream(
        self, stream: Stream, growth: Growth, weights: ArrayLike | None = None, loss: str | None = None
    ) -> None:
        """Go on with a graph that came from this one, see `meshnn.streaming.growth`; new edges have weight 0."""
        t = growth.topology
        if weights is None:
            weights = np.where(growth.edges >= 0, self.weights[growth.edges], 0.0)
        codes = np.where(growth.neurons >= 0, self._codes[growth.neurons], self._codes[-1])
        codes[t.n_clamped : t.n_clamped + t.n_hidden][growth.neurons[t.hidden] < 0] = (
            self._codes[self._topology.n_clamped] if self._topology.n_hidden else ACTIVATIONS["tanh"]
        )
        codes[: t.n_clamped] = 0
        ties, parameters = self._ties.edited(growth.edges)
        self.replace(t, weights, codes, ties)
        stream.grow(growth, self.values, self._codes, self._ties, parameters, loss)

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

    def _follow(self, X: Any, what: str, state: Any, return_state: bool, n_jobs: int | None) -> Any:
        """A run in time, without a gradient."""
        return self._followed(*self._inputs_in_time(X), what, state, return_state, n_jobs)

    def _followed(self, X: Array, ticks: int, what: str, state: Any, return_state: bool, n_jobs: int | None) -> Any:
        t = self._topology
        begin = checks.as_state(state, t, X.shape[1], self._dtype)
        rows = {"every": ticks * t.n_outputs, "last": t.n_outputs, "states": (ticks + 1) * t.n_neurons}[what]
        needed = X.shape[1] * (rows + return_state * t.n_neurons) * self._dtype.itemsize
        check_fits(needed, "what is asked for of this batch", "pass fewer samples, or fewer ticks, at a time")
        counts = np.ones(ticks, np.bool_) if what == "every" else np.arange(ticks) == ticks - 1
        timing = Timing.at(counts, begin is not None, return_state)
        engine = self._engines.follow(ticks, timing, whole=what == "states")
        found, end = engine.run(self._current(), X, what, begin, _threads(n_jobs))
        found = found[0] if what == "last" else found
        return (found, end) if return_state else found

    def _gradient_in_time(
        self, X: Any, y: Any, loss: str, gradient: str, sample_weight: Any, loss_ticks: Any, readout: Any, state: Any,
        return_state: bool, n_jobs: int | None,
    ) -> Any:  # fmt: skip
        threads = _threads(n_jobs)
        X, ticks, begin, targets = self._samples_in_time(X, y, loss, sample_weight, loss_ticks, readout, state)
        timing = Timing.at(targets.ticks, begin is not None)
        engine = self._engines.find("gradient", gradient, ticks, X.shape[1], threads, timing=timing)
        found = engine.gradient(self._current(), X, targets, threads, begin)
        grad = found.grad[: self.n_parameters].astype(self._dtype, copy=False)
        if not return_state:
            return found.loss, grad
        return found.loss, grad, self._followed(X, ticks, "last", state, True, n_jobs)[1]

    def _jacobian_in_time(self, X: Any, gradient: str, state: Any, n_jobs: int | None) -> Array:
        t, threads = self._topology, _threads(n_jobs)
        X, ticks = self._inputs_in_time(X)
        if known("gradient", gradient, ("auto", "forward", *METHODS)) not in ("auto", "adjoint"):
            raise MeshError(
                f'gradient="{gradient}" has no Jacobian of a run that begins with a given state; leave it out, or pass '
                'gradient="adjoint"'
            )
        begin = checks.as_state(state, t, X.shape[1], self._dtype)
        needed = X.shape[1] * t.n_outputs * t.n_edges * self._dtype.itemsize
        check_fits(needed, "the Jacobian of this batch", "pass fewer samples at a time")
        timing = Timing.at(np.arange(ticks) == ticks - 1, True)
        engine = self._engines.find("jacobian", "adjoint", ticks, X.shape[1], threads, timing=timing)
        return engine.jacobian(self._current(), X, threads, begin)[:, :, : self.n_parameters]

    def _samples_in_time(
        self, X: Any, y: Any, loss: str, sample_weight: Any, loss_ticks: Any, readout: Any, state: Any
    ) -> tuple[Array, int, Array | None, Targets]:
        """Inputs, how many ticks they run, the states they begin with, if given, and targets."""
        t = self._topology
        X, ticks = self._inputs_in_time(X)
        begin = checks.as_state(state, t, X.shape[1], self._dtype)
        targets = Targets.make(loss_named(loss), y, sample_weight, X.shape[1], t.n_outputs, self._dtype, ticks,
                               loss_ticks, readout, timed=True)  # fmt: skip
        return X, ticks, begin, targets

    def _inputs_in_time(self, X: Any) -> tuple[Array, int]:
        """Inputs, and how many ticks they run: a sequence says so itself."""
        given = checks.as_inputs(X, self._topology, self.ticks, any_length=True)
        if np.ndim(X) == 2:
            return given, self.ticks
        ticks = len(given)
        if ticks != self.ticks:
            whole_number("ticks", ticks, most=MOST_TICKS)
            needed = float(ticks) * self._topology.n_neurons * 4
            check_fits(needed, f"planning {ticks} ticks", "pass fewer ticks at a time, with state= and return_state=")
        return given, ticks

    def _samples(
        self, X: Any, y: Any, loss: str, sample_weight: Any, loss_ticks: Any, readout: Any
    ) -> tuple[Array, Targets]:
        X, t = checks.as_inputs(X, self._topology, self.ticks), self._topology
        given = (loss_named(loss), y, sample_weight, X.shape[1], t.n_outputs, self._dtype)
        return X, Targets.make(*given, self.ticks, loss_ticks, readout)


def _threads(n_jobs: int | None) -> int | None:
    return None if n_jobs is None else thread_count("n_jobs", n_jobs)
