"""`StreamingNet`: a net that learns from streams; base class of `Mesh`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from meshnn.arguments import switch
from meshnn.net import Net

if TYPE_CHECKING:  # imported only when a stream is made
    from meshnn.streaming.portable import PortableStream
    from meshnn.streaming.stream import Stream

__all__ = ["StreamingNet"]


class StreamingNet(Net):
    """A net with methods for streams without an end, see `Mesh.stream`."""

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
        """Return a stream that trains the mesh while it runs, in constant memory.

        The influence of every parameter on every neuron is carried forward with the states, so that the gradient is
        exact through the whole past. (While parameters change, each part refers to the parameters of its time.) The
        stream updates the parameters of this mesh. If other code changes them, call `Stream.refresh`.

        Parameters
        ----------
        loss : str
            As for `gradient`.
        learner : "adam", "sgd" or "ekf"
            First-order steps, or the extended Kalman filter: second-order updates in float64.
        memory : "carry" or "none"
            Whether the state is kept from sample to sample, or reset: a static net that learns online.
        method : "exact", "snap-1", "snap-2", ...
            Influences cut after 1, 2, ... hops are cheaper but not exact; `Stream.explain` shows the costs.
        ticks_per_sample : int, optional
            Ticks for which each sample is held. By default `mesh.ticks_per_sample`, which `networks.delay_line` sets,
            or else `ticks`.
        n_streams : int
            Number of parallel streams, which share the parameters.
        delay : int
            Maximum delay of targets in samples. The derivatives of this number of samples are stored.
        scale : bool
            Whether inputs, and targets of squared_error and huber, are standardised with the running mean and variance;
            then NaN marks missing inputs. Outputs are in the units of the targets.
        portable : bool
            Return a `meshnn.streaming.portable.PortableStream`: float32 with the same bits on every machine, exportable
            to C. One stream, the exact method, no delayed targets; "ekf" has one covariance and no replay.
        **settings
            Settings of the learner: `rate`, `clip`, `l2`, `momentum`, or those of `KalmanSettings`.

        Examples
        --------
        >>> import numpy as np
        >>> from meshnn import Mesh, Topology
        >>> x = np.sin(0.3 * np.arange(2001))[:, None]
        >>> mesh = Mesh(Topology.mesh(1, 6, 1), activation="tanh", random_state=0)
        >>> stream = mesh.stream(learner="adam")
        >>> out = stream.run(x[:-1], x[1:])  # each row predicts the next value before it is learned
        >>> bool(np.square(out - x[1:])[-100:].mean() < 0.1 * np.square(out - x[1:])[:100].mean())
        True
        >>> y = stream.step(x[-1])  # one sample at a time
        >>> stream.learn([0.0])
        """
        from meshnn.streaming.stream import Stream, new_learner

        default = self.ticks if self.ticks_per_sample is None else self.ticks_per_sample
        stream = Stream(
            self._topology, self._codes, self._ties, self.values, loss=loss, memory=memory, scale=scale, method=method,
            learner=new_learner(learner, self._topology, self._ties, self._dtype, settings), n_streams=n_streams,
            ticks_per_sample=default if ticks_per_sample is None else ticks_per_sample, delay=delay,
        )  # fmt: skip
        if not switch("portable", portable):
            return stream
        from meshnn.streaming.portable import PortableStream

        return PortableStream(stream, self.values)

    def _learner(self) -> PortableStream:
        from meshnn.streaming.portable import portable_of

        return portable_of(self)

    def grow_stream(self, stream: Stream, inputs: int = 0, outputs: int = 0, loss: str | None = None) -> None:
        """Add inputs and outputs to the mesh while it streams; their edges have weight 0.

        States, influences, moments and covariances of existing neurons and parameters do not change.
        """
        from meshnn.streaming.growth import grown

        growth = grown(self._topology, inputs, outputs)
        weights = np.where(growth.edges >= 0, self.weights[growth.edges], 0.0)
        codes = np.where(growth.neurons >= 0, self._codes[growth.neurons], self._codes[-1])
        codes[: growth.topology.n_clamped] = 0
        ties, parameters = self._ties.edited(growth.edges)
        self.replace(growth.topology, weights, codes, ties)
        stream.grow(growth, self.values, self._codes, self._ties, parameters, loss)
