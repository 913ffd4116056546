"""What the work of a method costs: counts by kind, and the price of each kind in seconds.

`auto` decides by `DEFAULT`, which is the same everywhere and always, so that a choice never depends on how a timing
went. What `meshnn.calibration` measures on a machine is for `explain` and for the study, which speak of milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["DEFAULT", "NAMES", "Prices", "Work", "amounts", "as_prices", "totals"]

#: Bytes of a list that go by with an entry: where it reads, its weight; in a tile four rows share the former.
ENTRY, IN_TILE = 8.0, 5.0
#: Bytes that go by with a weight that is gathered, or an entry of the gradient that is summed.
GATHER = 12.0


@dataclass
class Work:
    """What kernels do for one row of samples, by kind; `reads`, `gives` are of a call."""

    pulled: float = 0.0  # entries that single rows pull: states, and what is pulled back
    tiled: float = 0.0  # entries that rows pull together, which share their sources
    carried: float = 0.0  # entries that tangents pull, and their contractions
    correlated: float = 0.0  # entries whose gradient is a scalar product
    outer: float = 0.0  # entries whose gradient comes out of a tile
    rows: float = 0.0  # rows begun of states, and of what is pulled back
    kept: float = 0.0  # rows begun of tangents
    hops: float = 0.0  # lists begun by tangents
    cheap: float = 0.0  # activations: identity and relu
    dear: float = 0.0  # all others
    outputs: float = 0.0  # rows of the loss
    inputs: float = 0.0  # rows of samples that are packed and clamped
    influence: float = 0.0  # multiply-adds of carried influences, of a single sample
    reads: float = 0.0  # weights gathered, a call
    gives: float = 0.0  # entries of the gradient summed, a call
    near: float = 0.0  # bytes that pulls read from at random: the states of a tick
    held: float = 0.0  # bytes that tangents are kept in
    room: float = 0.0  # bytes of all states: correlations and slopes read them
    lists: float = 0.0  # bytes of the lists that go by

    @property
    def in_tiles(self) -> float:
        """The share of the multiply-adds that tiles do."""
        return (self.tiled + self.outer) / max(self.multiply_adds, 1.0)

    @property
    def multiply_adds(self) -> float:
        """Of a sample."""
        return self.pulled + self.tiled + self.carried + self.correlated + self.outer + self.influence


@dataclass(frozen=True)
class Prices:
    """Seconds of each kind of work.

    `near`, `middle` and `far` come on top of an entry that is not in the first, second or third cache, `stream` and
    `trickle` on top of a byte of lists that is not in the second or third, `scatter` on top of a weight gathered or an
    entry summed where these do not fit in the first.
    """

    pulled: float
    tiled: float
    carried: float
    correlated: float
    outer: float
    rows: float
    kept: float
    hops: float
    cheap: float
    dear: float
    outputs: float
    inputs: float
    influence: float
    reads: float
    gives: float
    scatter: float
    call: float
    near: float
    middle: float
    far: float
    stream: float
    trickle: float
    caches: tuple[float, float, float]  # bytes

    @property
    def values(self) -> tuple[float, ...]:
        """All of them in order, without the caches."""
        return tuple(getattr(self, name) for name in NAMES)

    def with_values(self, values: Iterable[float]) -> Prices:
        """Others, for the same caches."""
        return Prices(**dict(zip(NAMES, values, strict=True)), caches=self.caches)

    def chunk(self, work: Work, lanes: int) -> float:
        """Return the seconds per row of samples, of the given length."""
        each = sum(price * count for price, count in zip(self.values, amounts(work, self.caches)[0], strict=True))
        return each + (lanes - 1) * self.influence * work.influence

    def seconds(self, work: Work, batch: int, lanes: int) -> float:
        """Seconds a batch in rows of so many samples, on one thread."""
        return sum(p * count for p, count in zip(self.values, totals(work, batch, lanes, self.caches), strict=True))


#: The prices by name, in order.
NAMES = tuple(field.name for field in fields(Prices) if field.name != "caches")
_KINDS = NAMES[: NAMES.index("reads")]
_IN_TILES = ("tiled", "outer")


def amounts(work: Work, caches: tuple[float, float, float]) -> tuple[list[float], list[float]]:
    """How often each price is paid, in the order of `Prices`: for a row of samples, and once a call."""
    w = work
    pulls = w.pulled + w.tiled / 4.0  # a tile loads a source once for several rows
    products = w.correlated + w.outer / 4.0
    close = pulls + w.carried
    misses = [
        close * _beyond(w.near, c) + w.kept * _beyond(w.held, c) + (products + w.rows) * _beyond(w.room, c)
        for c in caches
    ]
    passing = ENTRY * (w.pulled + w.carried + w.correlated) + IN_TILE * (w.tiled + w.outer)
    streams = [passing * _beyond(w.lists, c) for c in caches[1:]]
    kinds = [getattr(w, name) for name in _KINDS]
    gathered = w.reads + w.gives
    once = [w.reads, w.gives, gathered * _beyond(GATHER * gathered, caches[0]), 1.0]
    return [*kinds, *([0.0] * len(once)), *misses, *streams], [*([0.0] * len(kinds)), *once, *([0.0] * 5)]


def totals(work: Work, batch: int, lanes: int, caches: tuple[float, float, float]) -> list[float]:
    """How often each price is paid for a batch.

    Of a last row with few samples tiles compute half. Influences are carried for each sample by itself.
    """
    each, once = amounts(work, caches)
    chunks = -(-batch // lanes)
    half = 0.5 if 2 * (batch - (chunks - 1) * lanes) <= lanes and lanes > 1 else 0.0
    times = {"influence": float(batch)} | dict.fromkeys(_IN_TILES, chunks - half)
    return [times.get(name, chunks) * a + b for name, a, b in zip(NAMES, each, once, strict=True)]


def _beyond(size: float, cache: float) -> float:
    """The share of so many bytes that a cache does not hold."""
    return 0.0 if size <= cache else 1.0 - cache / size


#: Fitted with `python benchmarks/ticks.py --fit` on a Xeon with AVX-512 (48 KiB, 2 MiB, 260 MiB of caches). Of
#: `tiled` and `outer` that can tell the sum only: they are set by hand, between the fit and what each takes alone.
DEFAULT = Prices(
    pulled=9.8e-10, tiled=5.5e-10, carried=5.2e-10, correlated=9.4e-10, outer=1.2e-09, rows=1.6e-08, kept=1.8e-08,
    hops=4.5e-09, cheap=1.4e-09, dear=8e-08, outputs=4.3e-08, inputs=3.3e-08, influence=1.5e-10,
    reads=8.2e-10, gives=1.4e-09, scatter=5.8e-10, call=2.1e-05, near=8.9e-10, middle=4.2e-09,
    far=1.5e-08, stream=2.4e-10, trickle=1e-10,
    caches=(48e3, 2e6, 64e6),
)  # fmt: skip


def as_prices(values: dict[str, Any]) -> Prices:
    """From what was saved."""
    first, second, third = map(float, values["caches"])
    return Prices(**{name: float(values[name]) for name in NAMES}, caches=(first, second, third))
