"""The streams of the benchmarks: real ones from river and reservoirpy, the electricity market, synthetic ones.

Nothing is downloaded. Rows are in order of time. `load` returns arrays, `Stream.rows` yields pairs of a dictionary and
a target, like river. Elec is `streams/elec.csv.gz` in $MESHNN_DATA or ../shared/data. A stream whose library or file is
missing is skipped with a message.

    python benchmarks/stream_sets.py        # lists the available streams
"""

import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from temporal_streams import delayed_xor, narma, trace_patterning

CLASSIFY, REGRESS = "classify", "regress"


@dataclass(frozen=True)
class Stream:
    """Features `(n, d)` with their names, and targets `(n,)` of their original type: bool, text or numbers."""

    name: str
    task: str
    X: np.ndarray
    y: np.ndarray
    names: list[str]

    def rows(self) -> Iterator[tuple[dict[str, float], object]]:
        """Yield pairs of a dictionary and a target, like river's data sets."""
        for x, y in zip(self.X.tolist(), self.y.tolist(), strict=True):
            yield dict(zip(self.names, x, strict=True)), y

    @property
    def size(self):
        return f"{len(self.X)}x{self.X.shape[1]}"

    def targets(self):
        """Return targets as numbers: the index of the class, or the value."""
        return np.unique(self.y, return_inverse=True)[1] if self.task == CLASSIFY else self.y.astype(float)


class NotThereError(Exception):
    """The file of a stream is missing."""


_BUILDERS = {}


def _stream(task, name, needs=None):
    def register(build):
        _BUILDERS[name] = (task, needs, build)
        return build

    return register


def names(task=None):
    return [name for name, (kind, _, _) in _BUILDERS.items() if task in (None, kind)]


@cache
def load(name):
    """Return the stream of this name, or None with a message if its library or file is missing."""
    task, needs, build = _BUILDERS[name]
    try:
        X, y, columns = build()
    except NotThereError as missing:
        print(f"*** STREAM {name} SKIPPED: {missing}", file=sys.stderr)
        return None
    except ModuleNotFoundError as missing:
        if needs is None or (missing.name or "").split(".")[0] != needs:
            raise
        print(f"*** STREAM {name} SKIPPED: {needs} is not installed (pip install 'meshnn[bench]')", file=sys.stderr)
        return None
    X = np.ascontiguousarray(X, dtype=float)
    assert np.isfinite(X).all(), name
    assert X.shape == (len(y), len(columns)), name
    return Stream(name, task, X, np.asarray(y), list(columns))


def _from_river(name):
    def build():
        from river import datasets

        rows = list(getattr(datasets, name)())
        columns = list(rows[0][0])
        return [[x[key] for key in columns] for x, _ in rows], [y for _, y in rows], columns

    return build


for _name in ("Bananas", "Phishing", "ImageSegments"):
    _stream(CLASSIFY, _name, "river")(_from_river(_name))
for _name in ("TrumpApproval", "ChickWeights"):
    _stream(REGRESS, _name, "river")(_from_river(_name))


@_stream(CLASSIFY, "Elec")
def _elec():
    here = Path(__file__).resolve().parents[1]
    for folder in (os.environ.get("MESHNN_DATA", ""), here.parent / "shared" / "data", "/work/shared/data"):
        file = Path(folder) / "streams" / "elec.csv.gz"
        if folder and file.is_file():
            return elec(file)
    raise NotThereError("streams/elec.csv.gz was not found in $MESHNN_DATA or ../shared/data")


def elec(file):
    """Return the electricity market from a file: six features, and whether the price rises."""
    import gzip

    with gzip.open(file, "rt") as opened:
        columns = opened.readline().strip().split(",")
        table = np.loadtxt(opened, delimiter=",")
    return table[:, :-1], table[:, -1].astype(np.int64), columns[:-1]


@_stream(REGRESS, "laser", "reservoirpy")
def _laser():
    """Return the Santa Fe laser, scaled to 0 to 1: the current value and the next one as the target."""
    from reservoirpy.datasets import santafe_laser

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the library leaves its file open
        values = santafe_laser()[:, 0] / 255.0
    return values[:-1, None], values[1:], ["now"]


@_stream(REGRESS, "narma-10")
def _narma():
    X, y = narma(6000, random_state=0)
    return X, y, ["u"]


@_stream(CLASSIFY, "delayed-xor")
def _delayed_xor():
    X, y = delayed_xor(20_000, random_state=0)
    return X, y, ["bit"]


@_stream(CLASSIFY, "trace-patterning")
def _trace_patterning():
    X, y, _ = trace_patterning(50_000, random_state=0)
    return X, y, [f"cue {k}" for k in range(6)] + [f"distractor {k}" for k in range(5)]


def main():
    for name in names():
        found = load(name)
        if found is not None:
            kinds = f"{len(set(found.y.tolist()))} classes" if found.task == CLASSIFY else f"{found.y.std():.3g} spread"
            print(f"{name:18}{found.task:10}{found.size:>10}   {kinds}")


if __name__ == "__main__":
    main()
