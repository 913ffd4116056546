"""Samples and targets, packed into rows: large batches cut into slabs, small ones into rooms that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import DataError
from meshnn.kernels.tuples import Batch, TimedBatch
from meshnn.losses import Targets
from meshnn.program.threads import chunks_of
from meshnn.schedule import ROW_BYTES

__all__ = ["FILLED", "Frame", "Run", "Slab", "slabs", "timed_arrays"]

Array = NDArray[Any]

#: Samples (times ticks, in a sequence) converted and packed at a time: bounds the memory that a large batch adds.
SLAB = 65536


class Slab:
    """The samples begin to end of a batch, in rows of samples once `pack` has seen their chunks."""

    def __init__(
        self, X: Array, targets: Targets | None, begin: int, end: int, dtype: np.dtype[Any], run: Run | None = None
    ) -> None:
        from meshnn.kernels._kept import Kept

        self.begin, self.end = begin, end
        self.size = end - begin
        self._given = X[:, begin:end]
        self._samples = _converted(self._given, dtype)
        # a sequence is packed tick by tick, by the kernels; so it is looked at here
        static = len(X) == 1
        if not static and not np.isfinite(self._samples).all():
            raise self._not_finite()
        none = np.empty((1, 0, 1, 1), dtype)
        self.X = _room(self._samples) if static else none
        self._rooms = [
            (self._samples, self.X, True)
        ] * static  # what is given, its room, whether to fill up with copies
        self.y, self.share = none, none
        code, L = 0 if targets is None else targets.loss.code, ROW_BYTES // dtype.itemsize
        if run is not None:
            self.batch = Kept(self._timed(targets, run, dtype, code, L))
            return
        if targets is not None:
            assert targets.values.dtype == targets.share.dtype == dtype  # kernels do not ask
            assert not targets.timed
            values, share = targets.values[None, begin:end], targets.share[None, begin:end]
            self.y, self.share = _room(values), _room(share)
            self._rooms += [(values, self.y, True), (share, self.share, False)]
        self.batch = Kept(Batch(self.X, self._samples, self.y, self.share, code, self.size, L))

    def _timed(self, targets: Targets | None, run: Run, dtype: np.dtype[Any], code: int, lanes: int) -> TimedBatch:
        """For a run in time."""
        rows, none = slice(self.begin, self.end), np.empty((1, 0, 1, 1), dtype)
        state = np.empty((0, 0), dtype) if run.state is None else run.state[rows]
        readout, stop = none[:0], none
        if targets is not None:
            given = timed_arrays(targets, dtype)
            parts = [np.require(a[:, rows], dtype, ["C", "A", "W"]) for a in given]
            rooms = [(part, _room(part), fill) for part, fill in zip(parts, FILLED, strict=True)]
            self._rooms += [room for room in rooms if len(room[0])]
            self.y, self.share, readout, stop = (room for _, room, _ in rooms)
        packed = (self.X, self._samples, self.y, self.share, readout, stop)
        return TimedBatch(*packed, state, code, self.size, lanes, run.ticks)

    @classmethod
    def check(cls, X: Array, dtype: np.dtype[Any]) -> None:
        """Refuse samples that are not finite, where they are not going to be packed by `pack`."""
        for slab in slabs(X, None, dtype):
            if not np.isfinite(slab._samples).all():
                raise slab._not_finite()

    def pack(self, first: int, last: int) -> None:
        """Pack the chunks first to last; refuses samples that are not finite."""
        from meshnn.kernels.packing import pack_part

        for given, room, repeat in self._rooms:
            if not pack_part(given, first, last, room, repeat):
                raise self._not_finite()

    def release(self) -> None:
        """Keep the rooms for another slab; this one must not be used any more."""
        for _, room, _ in self._rooms:
            _keep(room)

    def _not_finite(self) -> DataError:
        return _not_finite(self._given, self._samples, self.begin)


class Run(NamedTuple):
    """Of a run in time: how many ticks, and the states before the first, `(batch, n)` as kernels take them."""

    ticks: int
    state: Array | None = None


#: Whether places behind the last sample are filled up with copies: of targets, but not of what they count.
FILLED = (True, False, False, False)


def timed_arrays(targets: Targets, dtype: np.dtype[Any]) -> tuple[Array, Array, Array, Array]:
    """Targets, shares, readout and last ticks, `(1, ticks or 0, batch, ...)`, as kernels take them."""
    assert targets.timed
    values = targets.values if targets.values.ndim == 3 else targets.values[None]
    share = targets.share[None] if targets.at is None else targets.at
    readout = np.empty((0, share.shape[1], 1), dtype) if targets.readout is None else targets.readout
    found = tuple(np.require(a, dtype, ["C", "A", "W"]) for a in (values, share, readout, targets.stops[None]))
    return found[0], found[1], found[2], found[3]


class Frame:
    """Rooms for small batches of one size and loss, that a worker keeps: most calls are like the one before.

    Inputs must not change from tick to tick: `raw` is not filled.
    """

    def __init__(self, size: int, n_inputs: int, targets: Targets | None, dtype: np.dtype[Any]) -> None:
        from meshnn.kernels._kept import Kept
        from meshnn.kernels._row import aligned, lanes

        self.dtype, self.size, self.chunks = dtype, size, chunks_of(size, dtype)
        shape, L = (1, self.chunks), lanes(dtype)
        self.X = aligned((*shape, n_inputs, L), dtype)
        y = share = np.empty((1, 0, 1, 1), dtype)
        if targets is not None:
            y, share = aligned((*shape, targets.values.shape[1], L), dtype), aligned((*shape, 1, L), dtype)
        self.y, self.share, self.loss = y, share, None if targets is None else targets.loss
        self._even = False  # whether equal shares were packed last
        raw = np.empty((1, 0, n_inputs), dtype)
        self._pack = _packer(raw, self.X)
        self.batch = Kept(Batch(self.X, raw, y, share, 0 if targets is None else targets.loss.code, size, L))

    def fits(self, size: int, targets: Targets | None) -> bool:
        """Whether a batch of this size can go in."""
        return self.size == size and self.loss is (None if targets is None else targets.loss)

    def pack(self, X: Array, targets: Targets | None) -> None:
        """A whole batch; refuses samples that are not finite."""
        samples = _converted(X, self.dtype)
        if not self._pack(samples, 0, self.chunks, self.X, True):
            raise _not_finite(X, samples, 0)
        if targets is None:
            return
        assert targets.values.dtype == targets.share.dtype == self.dtype  # kernels do not ask
        self._pack(targets.values[None], 0, self.chunks, self.y, True)
        if not (targets.even and self._even):
            self._pack(targets.share[None], 0, self.chunks, self.share, False)
            self._even = targets.even


_packers: dict[str, Any] = {}  # by dtype


def _packer(none: Array, room: Array) -> Any:
    """The machine code that packs samples of a dtype, none of which are handed in here."""
    if none.dtype.char not in _packers:
        from meshnn.kernels._jit import entry_point
        from meshnn.kernels.packing import pack_part

        pack_part(none, 0, 0, room, True)
        _packers[none.dtype.char] = entry_point(pack_part, (none, 0, 0, room, True))
    return _packers[none.dtype.char]


def _converted(X: Array, dtype: np.dtype[Any]) -> Array:
    """As kernels take samples."""
    if X.dtype == dtype and X.flags.carray:
        return X
    with np.errstate(over="ignore"):  # told by name
        # writable, because Numba would compile everything again for a read-only array
        return np.require(X, dtype, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])


def _not_finite(given: Array, samples: Array, begin: int) -> DataError:
    """What is wrong with samples, of which the first has the number `begin`."""
    bad = ~np.isfinite(samples)
    k, b, i = np.argwhere(bad)[0].tolist()
    tick = f"tick {k}, " if bad.shape[0] > 1 else ""
    value = given[k, b, i]
    spoilt = not np.isfinite(value)
    hint = "is not finite" if spoilt else f"does not fit {samples.dtype}"
    advice = "remove or impute them" if spoilt else 'scale the features, or build the mesh with dtype="float64"'
    return DataError(
        f"X holds {value} at {tick}sample {begin + b}, feature {i}, which {hint} "
        f"({int(bad.sum())} such values in these {samples.shape[1]} samples); {advice}"
    )


# Rooms of finished slabs, by shape and dtype. New memory has to be mapped by the system page by page, which takes as
# long as packing into it. Lists are safe to share: pop and append are atomic.
_rooms: dict[tuple[tuple[int, ...], str], list[Array]] = {}
_MOST_KINDS, _MOST_OF_A_KIND = 16, 4


def _room(samples: Array) -> Array:
    """Where samples (T, batch, m) go once packed: (T, chunks, m, L)."""
    from meshnn.kernels._row import aligned, lanes

    shape = (samples.shape[0], chunks_of(samples.shape[1], samples.dtype), samples.shape[2], lanes(samples.dtype))
    try:
        return _rooms[shape, samples.dtype.char].pop()
    except (KeyError, IndexError):
        room: Array = aligned(shape, samples.dtype, np.empty)
        return room


def _keep(room: Array) -> None:
    if len(_rooms) > _MOST_KINDS:
        _rooms.clear()
    kind = _rooms.setdefault((room.shape, room.dtype.char), [])
    if len(kind) < _MOST_OF_A_KIND:
        kind.append(room)


def slabs(
    X: Array, targets: Targets | None, dtype: np.dtype[Any], size: int | None = None, run: Run | None = None
) -> Iterator[Slab]:
    """The batch in pieces."""
    size = max(SLAB // X.shape[0], 64) if size is None else size
    for begin in range(0, X.shape[1], size):
        slab = Slab(X, targets, begin, min(begin + size, X.shape[1]), dtype, run)
        try:
            yield slab
        finally:
            slab.release()
