"""The errors and warnings of meshnn.

Every error is a `ValueError` whose message states what was received, what is expected and how to fix it.
"""

from __future__ import annotations

import sys
import warnings
from os import PathLike

__all__ = [
    "CheckpointWarning",
    "DataError",
    "FileError",
    "MemoryLimitError",
    "MeshError",
    "TopologyError",
    "TrainingInterrupted",
]


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that shows the line of the user's code, outside this package and the libraries that call it."""
    frame, level = sys._getframe(1), 2
    while frame.f_globals.get("__name__", "").partition(".")[0] in ("meshnn", "contextlib", "sklearn", "joblib"):
        if frame.f_back is None:
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class MeshError(ValueError):
    """Base class of the errors that meshnn raises."""


class TopologyError(MeshError):
    """The graph cannot be run."""


class DataError(MeshError):
    """The data (samples, targets, weights, tables) cannot be used.

    Attributes
    ----------
    code : str or None
        An identifier of the problem, for callers that add their own advice.
    field, value, expected : str or None
        The column, the offending value and the expected one.
    row : int or None
        The row of the table, counted from 1.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        field: str | None = None,
        value: str | None = None,
        row: int | None = None,
        expected: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.field, self.value, self.row, self.expected = code, field, value, row, expected


class FileError(MeshError):
    """A file cannot be read or written."""


class MemoryLimitError(MeshError):
    """The computation would need more memory than the machine has."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; training continued."""


class TrainingInterrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C; the estimator is fitted with the best weights so far.

    It is a `KeyboardInterrupt`, so that it also stops an enclosing search, cross-validation or script.

    Attributes
    ----------
    epoch : int
        The last complete epoch.
    checkpoint : path or None
        The file to resume from, if there is one.
    """

    def __init__(self, message: str, epoch: int = 0, checkpoint: str | PathLike[str] | None = None) -> None:
        super().__init__(message)
        self.epoch, self.checkpoint = epoch, checkpoint
