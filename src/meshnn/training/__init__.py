"""How a mesh learns."""

from meshnn.training.adam import HistoryRow, train_adam

__all__ = ["HistoryRow", "train_adam"]
