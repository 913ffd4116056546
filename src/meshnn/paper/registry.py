"""All experiments, in the order of the paper."""

from __future__ import annotations

from meshnn.paper.classification import IRIS, SPIRALS_HIDDEN, SYNTHETIC
from meshnn.paper.equivalence import EQUIVALENCE
from meshnn.paper.experiment import Experiment
from meshnn.paper.images import CONNECTIONS, IMAGES

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (EQUIVALENCE, SYNTHETIC, SPIRALS_HIDDEN, IRIS, IMAGES, CONNECTIONS)
}
