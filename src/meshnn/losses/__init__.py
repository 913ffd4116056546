"""Losses: one object each, with its facts, its targets and its curvature. A new one: its class and its kernel."""

from meshnn.losses.losses import LOSSES, Loss, Quantile, loss_named
from meshnn.losses.targets import Targets

__all__ = ["LOSSES", "Loss", "Quantile", "Targets", "loss_named"]
