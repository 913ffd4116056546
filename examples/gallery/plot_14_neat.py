"""
Evolve with NEAT, then train
============================

NEAT evolves graphs and weights together, without gradients. ``meshnn.neat`` converts a genome of neat-python into a
mesh with the same outputs. Levenberg-Marquardt trains the weights of the mesh, and they are written back to the genome.
In this way evolution finds the topology, and exact gradients find the weights.
"""

import random
from pathlib import Path

import neat
import numpy as np
from matplotlib import pyplot as plt

from meshnn.neat import from_neat, to_neat
from meshnn.plots import draw_graph
from meshnn.plots.style import NEGATIVE, POSITIVE, axis_names, legend_options, panel_title, quiet_axes
from meshnn.training import train

here = Path.cwd()
settings = next(folder / "examples/xor.ini" for folder in (here, *here.parents) if (folder / "examples").is_dir())
kinds = (neat.DefaultGenome, neat.DefaultReproduction, neat.DefaultSpeciesSet, neat.DefaultStagnation)
config = neat.Config(*kinds, str(settings))
X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
y = np.array([[0.0], [1.0], [1.0], [0.0]])
best = []


def outputs(genome):
    """Return the outputs of neat-python's own network."""
    network = neat.nn.FeedForwardNetwork.create(genome, config)
    return np.array([network.activate(list(x)) for x in X])


def evaluate(genomes, config):
    """Set the fitness of every genome to minus half the mean squared error, and record the best error."""
    for _, genome in genomes:
        genome.fitness = -0.5 * np.square(outputs(genome) - y).mean()
    best.append(-max(genome.fitness for _, genome in genomes))


# %%
# NEAT evolves until the error on XOR is small, then Levenberg-Marquardt runs for 30 iterations.

random.seed(1)  # neat-python uses Python's global generator
genome = neat.Population(config).run(evaluate, 300)
mesh = from_neat(genome, config)
before = mesh.weights.copy()
losses = [row.loss for row in train(mesh, X, y, "squared_error", solver="lm", l2=0.0, tol=0.0, max_epochs=30)]
trained = to_neat(mesh, genome, config)
print(f"{len(best)} generations: error {best[-1]:.1e}, outputs {outputs(genome).ravel().round(3)}")
print(f"{len(losses)} iterations: error {losses[-1]:.1e}, outputs {outputs(trained).ravel().round(3)}")

# %%
# The error during evolution and training, and the evolved network before and after training.

fig, axes = plt.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
quiet_axes(axes[0])
axes[0].semilogy(np.arange(1, len(best) + 1), best, color=NEGATIVE, label="evolution")
axes[0].semilogy(len(best) + np.arange(len(losses)), np.maximum(losses, 1e-18), color=POSITIVE, label="training")
axis_names(axes[0], "generations, then iterations", "error")
panel_title(axes[0], "Error during evolution and training")
axes[0].legend(**legend_options(loc="lower left"))
for ax, weights, name in ((axes[1], before, "Evolved"), (axes[2], mesh.weights, "Trained")):
    draw_graph(ax, mesh.topology, weights, ticks=mesh.ticks, feature_names=["a", "b"], output_names=["a xor b"])
    panel_title(ax, name)
plt.show()
