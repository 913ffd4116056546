"""`StreamingNet`: a net that learns from streams; `Mesh` is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from meshnn.arguments import switch
from meshnn.net import Net

if TYPE_CHECKING:  # few programs stream
    from meshnn.streaming.portable import PortableStream
    from meshnn.streaming.stream import Stream

__all__ = ["StreamingNet"]


class StreamingNet(Net):
    """A net on streams that never end, see `Mesh.stream`."""

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
            written as C. One stream, the exact method, no delayed targets; "ekf" has one covariance and no replays.
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
        from meshnn.streaming.stream import Stream, new_learner

        stream = Stream(
            self._topology, self._codes, self._ties, self.values, loss=loss, memory=memory, scale=scale, method=method,
            learner=new_learner(learner, self._topology, self._ties, self._dtype, settings), n_streams=n_streams,
            ticks_per_sample=self.ticks if ticks_per_sample is None else ticks_per_sample, delay=delay,
        )  # fmt: skip
        if not switch("portable", portable):
            return stream
        from meshnn.streaming.portable import PortableStream

        return PortableStream(stream, self.values)

    def _learner(self) -> PortableStream:
        from meshnn.streaming.portable import portable_of

        return portable_of(self)

    def grow_stream(self, stream: Stream, inputs: int = 0, outputs: int = 0, loss: str | None = None) -> None:
        """Give the mesh so many inputs and outputs more, while it streams: their edges have weight 0.

        States, influences, moments and covariances of what was there stay as they are.
        """
        from meshnn.streaming.growth import grown

        growth = grown(self._topology, inputs, outputs)
        weights = np.where(growth.edges >= 0, self.weights[growth.edges], 0.0)
        codes = np.where(growth.neurons >= 0, self._codes[growth.neurons], self._codes[-1])
        codes[: growth.topology.n_clamped] = 0
        ties, parameters = self._ties.edited(growth.edges)
        self.replace(growth.topology, weights, codes, ties)
        stream.grow(growth, self.values, self._codes, self._ties, parameters, loss)
