"""The errors of meshnn: every one is a `ValueError` that says what it got, what it expected and what to do."""

__all__ = ["DataError", "MemoryLimitError", "MeshError", "TopologyError", "TrainingInterrupted"]


class MeshError(ValueError):
    """Base of all errors that meshnn raises on purpose."""


class TopologyError(MeshError):
    """The graph is not one that can be run."""


class DataError(MeshError):
    """The numbers handed in (samples, targets, weights) cannot be used."""


class MemoryLimitError(MeshError):
    """The computation would need more memory than the machine has."""


class TrainingInterrupted(UserWarning):  # a warning: the best weights so far are kept
    """Training was interrupted and what it has learned so far is kept."""
