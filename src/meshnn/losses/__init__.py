"""Losses. Each is an object with its properties, targets and curvature; a new one needs a class and a kernel."""

from meshnn.losses.losses import LOSSES, Loss, Quantile, loss_named
from meshnn.losses.targets import Targets

__all__ = ["LOSSES", "Loss", "Quantile", "Targets", "loss_named"]
