"""Losses: one object each, with its facts, its targets and its curvature. A new one: its file, its kernel, and here."""

from meshnn.arguments import known
from meshnn.losses.binary_cross_entropy import BinaryCrossEntropy
from meshnn.losses.cross_entropy import CrossEntropy
from meshnn.losses.huber import Huber
from meshnn.losses.loss import Loss
from meshnn.losses.poisson import Poisson
from meshnn.losses.quantile import Quantile
from meshnn.losses.squared_error import SquaredError
from meshnn.losses.targets import Targets

__all__ = ["LOSSES", "Loss", "Quantile", "Targets", "loss_named"]

LOSSES: dict[str, Loss] = {
    loss.name: loss for loss in (CrossEntropy(), BinaryCrossEntropy(), SquaredError(), Huber(), Poisson())
} | {"quantile": Quantile(0.5)}


def loss_named(name: str) -> Loss:
    """Return the loss of a name; that of a quantile may have a level: "quantile:0.9"."""
    if isinstance(name, str) and name.startswith("quantile:"):
        return Quantile.named(name)
    return LOSSES[known("loss", name, LOSSES)]
