"""`Checkpoint`: a file that a killed run goes on from, bit by bit."""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from meshnn import storage
from meshnn.arguments import real_number, whole_number
from meshnn.errors import CheckpointWarning, MeshError
from meshnn.files import Lock
from meshnn.storage import FileError, Tree

__all__ = ["Checkpoint", "Resumed", "fingerprint"]


class Resumed(NamedTuple):
    """What a checkpoint holds besides the model."""

    seed: int
    state: Tree
    epochs: int  # those that the run was begun with, at most

    @property
    def dtype(self) -> str | None:
        """That of the net: 0.1 took float64 where the same run would have float32 now. None if it makes no sense."""
        found = str(self.state.get("graph")).rsplit(", ", 1)[-1]
        return found if found in ("float32", "float64") else None


def fingerprint(parameters: dict[str, Any], arrays: dict[str, Any]) -> dict[str, str]:
    """A run in words: the same parameters and the same data give the same ones."""
    found = {name: repr(value.tolist() if hasattr(value, "tolist") else value) for name, value in parameters.items()}
    for name, array in arrays.items():
        stamp = hashlib.sha256()
        if array is not None:
            stamp.update(f"{array.dtype.str}{array.shape};".encode())
            for part in _parts(array):
                stamp.update(np.ascontiguousarray(part).tobytes())
        found[name] = stamp.hexdigest()
    return found


def _parts(array: Any) -> list[Any]:
    """The arrays that a sparse matrix, or sequences of different lengths, are made of."""
    names = ("indptr", "indices", "offsets", "weight")
    found = [getattr(array, name) for name in names if getattr(array, name, None) is not None]
    return [*found, array.data] if found else [array]


class Checkpoint:
    """A `.mesh` file, written every so many seconds and at the end; `fit` goes on from it if it is there.

    Parameters
    ----------
    path : str or Path
    seconds : float
        Time between two savings; 0 saves after every history row.
    """

    def __init__(self, path: str | os.PathLike[str], seconds: float = 10.0) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise MeshError(f"checkpoint must be a path or a Checkpoint, got {type(path).__name__}")
        self.path = Path(path)
        self.seconds = real_number("seconds", seconds, "a number of at least 0", lambda s: s >= 0)
        self._tree: Callable[[], Tree] | None = None
        self._saved = time.monotonic()
        self._written = self._warned = False
        self._lock: Lock | None = None

    @classmethod
    def of(cls, value: Any) -> Checkpoint | None:
        """A checkpoint from what a user may pass; one of its own, since it belongs to one run."""
        if value is None:
            return None
        return cls(value.path, value.seconds) if isinstance(value, Checkpoint) else cls(value)

    def begin(self, run: dict[str, str], seed: int | None, defaults: dict[str, str]) -> Resumed | None:
        """What the same run left, if it left anything; another run's file is not overwritten, now or later.

        What the file does not mention, since its version did not know it, had its default. A run may be given more
        epochs than it was begun with, if it has one start.
        """
        self._lock = Lock(self.path)
        if not os.path.lexists(self.path):
            if not self.path.absolute().parent.is_dir():
                raise FileError(f"cannot write the checkpoint {self.path}: its directory does not exist; create it")
            return None
        training = storage.read(self.path).get("training")
        if training is None:
            raise FileError(f"{self.path} is a model, not a checkpoint; name another file or delete it")
        try:
            known, state = dict(training["run"]), training["state"]
            single = run.get("n_restarts", "1") == "1" and (not state["finished"] or "last" in state)
            epochs = whole_number("epochs", state.get("epochs") or int((defaults | known)["max_epochs"]))
            resumed = Resumed(whole_number("seed", training["seed"], least=0), state, epochs)
        except (KeyError, TypeError, ValueError) as error:
            raise self._senseless(error) from None
        others = [name for name in sorted(run.keys() | known.keys()) if run.get(name) != (defaults | known).get(name)]
        if "max_epochs" in others and single and run["max_epochs"].isdigit() and epochs < int(run["max_epochs"]):
            others.remove("max_epochs")
        if seed is not None and seed != resumed.seed:
            others.append("random_state")
        if others:
            raise FileError(
                f"the checkpoint {self.path} belongs to a run with another {', '.join(others)}; "
                "delete it or name another file"
            )
        return resumed

    def restore(self, resumed: Resumed, restore: Callable[[Tree], None]) -> None:
        """Hand the state to a trainer."""
        try:
            restore(resumed.state)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            raise self._senseless(error) from None

    def _senseless(self, error: Exception) -> FileError:
        what = error if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        return FileError(f"cannot go on from the checkpoint {self.path} ({what}); delete it to start anew")

    def watch(self, tree: Callable[[], Tree]) -> None:
        """From now on save what `tree` returns; the first time soon, so that a place that fails does so at once."""
        self._tree, self._saved = tree, -float("inf")

    def row(self) -> None:
        """Save if it is time to. Where the first save fails nothing is lost yet: an error; later training goes on."""
        if self._tree is None or time.monotonic() - self._saved < self.seconds:
            return
        self._saved = time.monotonic()
        try:
            storage.write(self.path, self._tree())
        except FileError as error:
            if not self._written:
                raise
            if not self._warned:
                message = f"the checkpoint is not up to date: {error}. Training goes on and tries again"
                warnings.warn(CheckpointWarning(message), stacklevel=4)
            self._warned = True
        else:
            self._written = True

    def save(self) -> None:
        """Save now, for the last time; a failure is a warning, since the model is there."""
        if self._tree is None:
            return
        try:
            storage.write(self.path, self._tree())
        except FileError as error:
            what = "holds an earlier state" if self.exists else "does not exist"
            message = f"the end of training is not in the checkpoint, which {what}: {error}. Save the model elsewhere"
            warnings.warn(CheckpointWarning(message), stacklevel=4)

    @property
    def exists(self) -> bool:
        """Whether there is a file to go on from."""
        return self.path.is_file()

    def end(self) -> None:
        """Let other runs have the file."""
        if self._lock is not None:
            self._lock.release()

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r}, seconds={self.seconds:g})"
