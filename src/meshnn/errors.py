"""The errors of meshnn: every one is a `ValueError` that says what it got, what it expected and what to do.

And its warnings that somebody may want to tell apart from others.
"""

from __future__ import annotations

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


class MeshError(ValueError):
    """Base of all errors that meshnn raises on purpose."""


class TopologyError(MeshError):
    """The graph is not one that can be run."""


class DataError(MeshError):
    """The data handed in (samples, targets, weights, tables) cannot be used.

    Attributes
    ----------
    code : str or None
        Which problem it is, in one word, for callers that add advice of their own.
    field, value, expected : str or None
        The column, the offending value and what was expected instead.
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
    """A checkpoint could not be written; training went on."""


class TrainingInterrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C; the estimator is fitted, with the best weights so far.

    It is a `KeyboardInterrupt`, so that what is around the fit stops, too: a search, a cross-validation, a script.

    Attributes
    ----------
    epoch : int
        The last whole one.
    checkpoint : path or None
        The file to go on from, if there is one.
    """

    def __init__(self, message: str, epoch: int = 0, checkpoint: str | PathLike[str] | None = None) -> None:
        super().__init__(message)
        self.epoch, self.checkpoint = epoch, checkpoint
