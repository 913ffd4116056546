"""All experiments, in the order of the paper."""

from __future__ import annotations

from meshnn.paper.connections import CONNECTIONS
from meshnn.paper.equivalence import EQUIVALENCE
from meshnn.paper.experiment import Experiment
from meshnn.paper.images import IMAGES
from meshnn.paper.iris import IRIS
from meshnn.paper.spirals_hidden import SPIRALS_HIDDEN
from meshnn.paper.synthetic import SYNTHETIC

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (EQUIVALENCE, SYNTHETIC, SPIRALS_HIDDEN, IRIS, IMAGES, CONNECTIONS)
}
