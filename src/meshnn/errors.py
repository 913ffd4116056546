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
    """Training was interrupted after an epoch; `checkpoint` is the file to go on from, if there is one."""

    def __init__(self, message: str, epoch: int, checkpoint: str | None) -> None:
        super().__init__(message, epoch, checkpoint)
        self.epoch = epoch
        self.checkpoint = checkpoint

    def __str__(self) -> str:
        return str(self.args[0])
