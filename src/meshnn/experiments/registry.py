"""All experiments, in the order of the paper."""

from __future__ import annotations

from meshnn.experiments.connections import CONNECTIONS
from meshnn.experiments.equivalence import EQUIVALENCE
from meshnn.experiments.experiment import Experiment
from meshnn.experiments.images import IMAGES
from meshnn.experiments.iris import IRIS
from meshnn.experiments.spirals_hidden import SPIRALS_HIDDEN
from meshnn.experiments.synthetic import SYNTHETIC

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (EQUIVALENCE, SYNTHETIC, SPIRALS_HIDDEN, IRIS, IMAGES, CONNECTIONS)
}
