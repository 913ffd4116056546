"""Evolve, then learn: NEAT finds a graph for XOR, exact gradients its weights, and the genome takes them back.

    pip install 'meshnn[neat]'
    python examples/evolve_then_learn.py

neat-python evolves until its best genome is roughly right. `from_neat` makes it a mesh with the same outputs, which
Levenberg-Marquardt makes right by orders of magnitude in a blink; `to_neat` puts the weights into a copy of the genome,
and neat's own network says what the mesh says.
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
    """How neat evolves, from the file beside this one."""
    kinds = (neat.DefaultGenome, neat.DefaultReproduction, neat.DefaultSpeciesSet, neat.DefaultStagnation)
    return neat.Config(*kinds, str(Path(__file__).with_name("xor.ini")))


def answers(genome: neat.DefaultGenome, config: neat.Config) -> np.ndarray:
    """What neat's own network says, (4, 1)."""
    network = neat.nn.FeedForwardNetwork.create(genome, config)
    return np.array([network.activate(list(x)) for x in X])


def error(outputs: np.ndarray) -> float:
    """Half the mean squared distance to the truth."""
    return float(0.5 * np.square(outputs - Y).mean())


def evolve(config: neat.Config, most: int, seed: int) -> tuple[neat.DefaultGenome, int]:
    """The best genome once it is roughly right, or after so many generations, and how many there were."""

    def judge(genomes, config):  # neat calls it once a generation
        for _, genome in genomes:
            genome.fitness = -error(answers(genome, config))

    random.seed(seed)  # neat draws from Python's own generator
    population = neat.Population(config)
    return population.run(judge, most), min(population.generation + 1, most)


def learn(genome: neat.DefaultGenome, config: neat.Config, iterations: int) -> neat.DefaultGenome:
    """A copy of the genome with learned weights."""
    mesh = from_neat(genome, config)
    for _ in train(mesh, X, Y, "squared_error", solver="lm", l2=0.0, tol=0.0, max_epochs=iterations):
        pass
    return to_neat(mesh, genome, config)


def main(generations: int = 300, iterations: int = 30, seed: int = 1) -> list[tuple[str, np.ndarray]]:
    """Evolve, convert, learn, put back; what every stage answers."""
    config = read_config()
    genome, took = evolve(config, generations, seed)
    learned = learn(genome, config, iterations)
    stages = [
        ("evolved, by neat", answers(genome, config)),
        ("evolved, as a mesh", from_neat(genome, config).forward(X)),
        ("learned, as a mesh", from_neat(learned, config).forward(X)),
        ("learned, by neat", answers(learned, config)),
    ]
    print(f"{took} generations, {iterations} iterations of lm; neurons: {nodes(genome, config)}")
    print(f"{'':20}{'0 0':>8}{'0 1':>8}{'1 0':>8}{'1 1':>8}{'error':>10}")
    for name, outputs in stages:
        print(f"{name:20}" + "".join(f"{v:8.4f}" for v in outputs[:, 0]) + f"{error(outputs):10.1e}")
    return stages


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--generations", type=int, default=300, help="at most")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    main(**vars(parser.parse_args()))
