"""`BaseStream`: the interface that streams in any arithmetic share."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from meshnn import checks
from meshnn.arguments import whole_number
from meshnn.arrays import Array, IntArray
from meshnn.codes import ClockPlace, Mode
from meshnn.errors import DataError, MeshError
from meshnn.losses import Loss
from meshnn.parameters import Ties
from meshnn.storage import Tree
from meshnn.streaming.kalman import Learner
from meshnn.streaming.state import Workspace, fill_arrays
from meshnn.topology import Topology

__all__ = ["BaseStream"]


class BaseStream:
    """One net on one stream, or on several parallel streams that share the parameters."""

    topology: Topology
    codes: IntArray
    ties: Ties
    loss: Loss
    learner: Learner
    ticks_per_sample: int
    memory: str
    scale: bool
    n_streams: int = 1
    #: Maximum delay of targets in samples.
    delay: int = 0
    #: The stored arrays and buffers.
    room: Workspace
    #: The names of the stored arrays.
    kept: ClassVar[tuple[str, ...]]
    #: The dtype of states, influences and parameters.
    dtype: np.dtype[Any]

    @property
    def width(self) -> int:
        """The numbers per target: 1 for a label, else one value per output."""
        return 1 if self.loss.classifies and not self.loss.several else self.topology.n_outputs

    @property
    def samples(self) -> int:
        """The number of samples processed so far."""
        return int(self.room.clock[ClockPlace.SEEN])

    @property
    def learned(self) -> int:
        """The number of updates so far."""
        return int(self.room.clock[ClockPlace.LEARNED])

    def step(self, x: ArrayLike) -> Array:
        """Process one sample `(n_inputs,)` or `(n_streams, n_inputs)`; return outputs in the same shape."""
        return self._advance(x, Mode.ADVANCE)

    def peek(self, x: ArrayLike) -> Array:
        """Return the outputs that `step` would return, without a change of state."""
        return self._advance(x, Mode.PEEK)

    def learn(self, target: ArrayLike, delay: int = 0) -> None:
        """Learn the target of the last sample, or of the one `delay` samples before it.

        NaN marks missing targets of some outputs or streams. Labels are integers from 0.
        """
        self._learn(target, delay, Mode.LEARN)

    def gradient(self, target: ArrayLike, delay: int = 0) -> Array:
        """Return the gradient `(n_parameters,)` of the loss of that sample, through the whole past."""
        self._learn(target, delay, Mode.DERIVE)
        return np.array(self.room.grad[: self.ties.n_parameters])

    def reset(self) -> None:
        """Reset the states and their influences; the parameters are kept."""
        self.room.s[..., self.topology.n_clamped :] = 0
        self.room.J[:] = 0

    def run(self, X: ArrayLike, Y: ArrayLike | None = None, delay: int = 0) -> Array:
        """Predict, then learn, each sample of whole arrays in compiled code.

        Parameters
        ----------
        X : array_like (T, n_inputs), or (T, n_streams, n_inputs)
        Y : array_like, optional
            Targets: labels (T,), values (T,) or (T, n_outputs); with several streams (T, n_streams, ...). NaN marks
            missing targets. Without Y nothing is learned.
        delay : int
            The target of a sample is learned this number of samples after it.

        Returns
        -------
        array (T, n_outputs), or (T, n_streams, n_outputs)
            The outputs before each target is learned.
        """
        found = checks.numbers("X", X)
        single = found.ndim == 2
        samples = self._as_inputs(found[:, None] if single else found, np.shape(X))
        delay, T = self._as_delay(delay), len(samples)
        out = self._nothing(T, self.topology.n_outputs)
        if Y is None:
            self._call(Mode.ADVANCE, samples, self._nothing(T), 0, out)
        else:
            targets = self.as_targets(Y, T)
            if delay:
                targets = np.concatenate([self._nothing(min(delay, T)), targets[: max(T - delay, 0)]])
            self._call(Mode.ADVANCE | Mode.LEARN, samples, targets, delay, out)
        return out[:, 0] if single else out

    # -- execution ---------------------------------------------------------------------------------------------------

    def _call(self, mode: int, X: Array, Y: Array, delay: int, out: Array) -> None:
        """Run samples X (T, n_streams, n_inputs) and targets Y (T, n_streams, width) through the core."""
        raise NotImplementedError

    def _advance(self, x: ArrayLike, mode: int) -> Array:
        found = checks.numbers("x", x)
        row = self._as_inputs(found.reshape(1, 1, -1) if found.ndim == 1 else found[None], np.shape(x))
        out = self._nothing(1, self.topology.n_outputs)
        self._call(mode, row, self._nothing(0), 0, out)
        return np.asarray(out[0, 0] if found.ndim == 1 else out[0])

    def _learn(self, target: ArrayLike, delay: int, mode: int) -> None:
        delay = self._as_delay(delay)
        if self.samples <= delay:
            raise MeshError(f"delay {delay} needs {delay + 1} samples, got {self.samples}; call step(x) first")
        given = np.asarray(target)
        targets = self.as_targets(given[None] if self.n_streams == 1 or given.ndim else given, 1)
        nothing = np.empty((0, self.n_streams, self.topology.n_inputs), self.dtype)
        self._call(mode, nothing, targets, delay, self._nothing(1, self.topology.n_outputs))

    def _nothing(self, T: int, width: int | None = None) -> Array:
        return np.full((T, self.n_streams, self.width if width is None else width), np.nan, self.dtype)

    # -- state -------------------------------------------------------------------------------------------------------

    def to_tree(self) -> Tree:
        """Return the whole state as plain arrays; the parameters are also those of the mesh."""
        return {name: array.copy() for name, array in self._arrays().items()}

    def restore(self, tree: Tree) -> None:
        """Continue exactly from the state that `to_tree` returned for a stream of the same net."""
        fill_arrays(self._arrays(), tree, self._limits())
        self._restored()

    def _arrays(self) -> dict[str, Array]:
        return {name: getattr(self.room, name) for name in self.kept}

    def _limits(self) -> dict[str, tuple[Any, Any]]:
        """Return bounds of the stored arrays whose values could otherwise cause errors."""
        raise NotImplementedError

    def _restored(self) -> None:
        """Copy the restored parameters to the mesh."""
        raise NotImplementedError

    # -- checks of arguments -----------------------------------------------------------------------------------------

    def _as_delay(self, delay: int) -> int:
        delay = whole_number("delay", delay, least=0)
        if delay > self.delay:
            raise MeshError(f"delay is {delay}, but the stream has a maximum of {self.delay}; pass delay={delay} to it")
        return delay

    def _as_inputs(self, found: Array, shape: tuple[int, ...]) -> Array:
        """Return samples `(T, n_streams, n_inputs)` in the format of the core; `shape` is the original one."""
        B, d = self.n_streams, self.topology.n_inputs
        if found.ndim != 3 or found.shape[1:] != (B, d):
            streams = f" of {B} streams" if B > 1 else ""
            raise DataError(f"samples{streams} have {d} inputs; got an array of shape {shape}")
        samples = np.require(found, self.dtype, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])
        if not self.scale and not np.isfinite(samples).all():
            t, b, i = np.argwhere(~np.isfinite(samples))[0].tolist()
            raise DataError(f"input {i} of sample {t} is {found[t, b, i]}; impute it, or use a stream with scale=True")
        return samples

    def as_targets(self, Y: Any, T: int) -> Array:
        """Return the targets of T samples as `(T, n_streams, width)`, NaN where missing, after checks."""
        B, m = self.n_streams, self.width
        found = checks.numbers("targets", Y)
        shapes: set[tuple[int, ...]] = {(T, B, m)}
        shapes |= ({(T, m)} if B == 1 else set()) | ({(T, B)} if m == 1 else set()) | ({(T,)} if B == m == 1 else set())
        if found.shape not in shapes:
            raise DataError(f"targets must have shape {' or '.join(map(str, sorted(shapes)))}, got {np.shape(Y)}")
        targets = np.array(found, self.dtype).reshape(T, B, m)
        given = targets[~np.isnan(targets)]
        if np.isinf(given).any():
            raise DataError("targets must be finite, or NaN where they are missing")
        if self.loss.logarithmic and (given < 0).any():
            raise DataError(f"targets of {self.loss.name} are counts of at least 0; got {given[given < 0][0]:g}")
        if self.loss.classifies:
            most = 1 if self.loss.several else self.topology.n_outputs - 1
            wrong = given[(given < 0) | (given > most) | (given != np.trunc(given))]
            if wrong.size:
                raise DataError(f"labels are whole numbers from 0 to {most}, or NaN where missing; got {wrong[0]:g}")
        return targets
