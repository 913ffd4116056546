"""Training: solvers, settings, callbacks and the history of a run."""

from meshnn.training.api import train
from meshnn.training.callbacks import Callback, Checkpoint, TimeLimit
from meshnn.training.history import History, HistoryRow
from meshnn.training.settings import EarlyStopping, Settings
from meshnn.training.solvers import LM, SGD, Adam, Solver
from meshnn.training.trainer import Trainer

__all__ = ["LM", "SGD", "Adam", "Callback", "Checkpoint", "EarlyStopping", "History", "HistoryRow", "Settings",
           "Solver", "TimeLimit", "Trainer", "train"]  # fmt: skip
