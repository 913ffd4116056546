"""Training on rows in a file on disk."""

from meshnn.training.out_of_core.row_store import RowStore

__all__ = ["RowStore"]
