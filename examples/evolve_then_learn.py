"""Evolve a network for XOR with NEAT, train its weights with exact gradients, and write them back to the genome.

    pip install '.[neat]'
    python examples/evolve_then_learn.py

neat-python evolves until the error of the best genome is small. `from_neat` converts this genome into a mesh with the
same outputs. Levenberg-Marquardt then reduces the error by orders of magnitude within milliseconds. `to_neat` writes
the weights into a copy of the genome, and the network of neat-python reproduces the outputs of the mesh.
"""

import argparse
import random
from pathlib import Path

import neat
import numpy as np

from meshnn.neat import from_neat, nodes, to_neat
from meshnn.training import train

X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
Y = np.array([[0.0], [1.0], [1.0], [0.0]])


def read_config() -> neat.Config:
    """Return the settings of neat-python, read from `xor.ini` in the folder of this file."""
    kinds = (neat.DefaultGenome, neat.DefaultReproduction, neat.DefaultSpeciesSet, neat.DefaultStagnation)
    return neat.Config(*kinds, str(Path(__file__).with_name("xor.ini")))


def outputs_of(genome: neat.DefaultGenome, config: neat.Config) -> np.ndarray:
    """Return the outputs of neat-python's own network, of shape (4, 1)."""
    network = neat.nn.FeedForwardNetwork.create(genome, config)
    return np.array([network.activate(list(x)) for x in X])


def error(outputs: np.ndarray) -> float:
    """Return half the mean squared error."""
    return float(0.5 * np.square(outputs - Y).mean())


def evolve(config: neat.Config, max_generations: int, seed: int) -> tuple[neat.DefaultGenome, int]:
    """Evolve until the fitness threshold or `max_generations`; return the best genome and the number of generations."""

    def evaluate(genomes, config):  # neat-python calls it once per generation
        for _, genome in genomes:
            genome.fitness = -error(outputs_of(genome, config))

    random.seed(seed)  # neat-python uses Python's global generator
    population = neat.Population(config)
    return population.run(evaluate, max_generations), min(population.generation + 1, max_generations)


def learn(genome: neat.DefaultGenome, config: neat.Config, iterations: int) -> neat.DefaultGenome:
    """Return a copy of the genome with trained weights."""
    mesh = from_neat(genome, config)
    for _ in train(mesh, X, Y, "squared_error", solver="lm", l2=0.0, tol=0.0, max_epochs=iterations):
        pass
    return to_neat(mesh, genome, config)


def main(generations: int = 300, iterations: int = 30, seed: int = 1) -> list[tuple[str, np.ndarray]]:
    """Evolve, convert, train and convert back; print and return the outputs of every stage."""
    config = read_config()
    genome, n_generations = evolve(config, generations, seed)
    learned = learn(genome, config, iterations)
    stages = [
        ("evolved, by neat", outputs_of(genome, config)),
        ("evolved, as a mesh", from_neat(genome, config).forward(X)),
        ("learned, as a mesh", from_neat(learned, config).forward(X)),
        ("learned, by neat", outputs_of(learned, config)),
    ]
    print(f"{n_generations} generations, {iterations} iterations of lm; neurons: {nodes(genome, config)}")
    print(f"{'':20}{'0 0':>8}{'0 1':>8}{'1 0':>8}{'1 1':>8}{'error':>10}")
    for name, outputs in stages:
        print(f"{name:20}" + "".join(f"{v:8.4f}" for v in outputs[:, 0]) + f"{error(outputs):10.1e}")
    return stages


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--generations", type=int, default=300, help="maximum number of generations of NEAT (default: %(default)s)"
    )
    parser.add_argument(
        "--iterations", type=int, default=30, help="iterations of Levenberg-Marquardt (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="random seed of the evolution (default: %(default)s)")
    main(**vars(parser.parse_args()))
