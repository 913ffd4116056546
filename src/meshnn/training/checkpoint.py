"""`Checkpoint`: a file that a killed run goes on from, bit by bit."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn import storage
from meshnn.arguments import real_number
from meshnn.errors import MeshError
from meshnn.storage import FileError
from meshnn.training.solver import State

__all__ = ["Checkpoint", "Resumed", "fingerprint", "with_training"]

Array = NDArray[Any]
Parts = tuple[dict[str, Any], dict[str, Array]]
#: Names of the arrays that belong to the state of training.
PREFIX = "training."


class Resumed(NamedTuple):
    """What a checkpoint holds besides the model."""

    values: dict[str, Any]
    trainer: State


def fingerprint(parameters: dict[str, Any], *arrays: Array | None) -> str:
    """A name for a run: the same parameters and the same data give the same one."""
    stamp = hashlib.sha256(json.dumps(parameters, sort_keys=True, default=repr).encode())
    for array in arrays:
        if array is None:
            stamp.update(b"none;")
        else:
            stamp.update(f"{array.dtype.str}{array.shape};".encode())
            stamp.update(np.ascontiguousarray(array).tobytes())
    return stamp.hexdigest()


def with_training(parts: Parts, state: State, seed: int, run: str) -> Parts:
    """The parts of a model and the state of its training, as parts of one file."""
    header, arrays = parts
    training = {"seed": seed, "run": run, "state": state.values}
    return header | {"training": training}, arrays | {f"{PREFIX}{name}": a for name, a in state.arrays.items()}


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
        self._freeze: Callable[[], Parts] | None = None
        self._saved = time.monotonic()

    @classmethod
    def of(cls, value: Any) -> Checkpoint | None:
        """A checkpoint from what a user may pass."""
        return value if value is None or isinstance(value, Checkpoint) else cls(value)

    def begin(self, run: str, seed: int | None) -> Resumed | None:
        """What an earlier run of the same name left, if it left anything; another run's file is not overwritten."""
        if not self.path.exists():
            if not self.path.absolute().parent.is_dir():
                raise FileError(f"cannot write the checkpoint {self.path}: its directory does not exist; create it")
            return None
        header, arrays = storage.read(self.path)
        training = header.get("training")
        if not isinstance(training, dict):
            raise FileError(f"{self.path} is a model, not a checkpoint; name another file or delete it")
        if training.get("run") != run or (seed is not None and training.get("seed") != seed):
            raise FileError(
                f"the checkpoint {self.path} belongs to a run with other data, parameters or random_state; "
                "delete it or name another file"
            )
        found = {name.removeprefix(PREFIX): a for name, a in arrays.items() if name.startswith(PREFIX)}
        return Resumed(training, State(training["state"], found))

    def watch(self, freeze: Callable[[], Parts]) -> None:
        """From now on save what `freeze` returns; the first time soon, so that a place that fails does so at once."""
        self._freeze, self._saved = freeze, -float("inf")

    def row(self) -> None:
        """Save if it is time to."""
        if time.monotonic() - self._saved >= self.seconds:
            self.save()

    def save(self) -> None:
        """Save now."""
        if self._freeze is not None:
            storage.write(self.path, *self._freeze())
            self._saved = time.monotonic()

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "seconds": self.seconds, "_freeze": None, "_saved": 0.0}
