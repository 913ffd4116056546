"""How a mesh learns."""

from meshnn.training.api import train
from meshnn.training.checkpoint import Checkpoint
from meshnn.training.history import History, HistoryRow
from meshnn.training.settings import Settings
from meshnn.training.trainer import Trainer

__all__ = ["Checkpoint", "History", "HistoryRow", "Settings", "Trainer", "train"]
