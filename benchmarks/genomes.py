"""Genomes of neat-python as meshes: time of the conversion, and the effect of training on evolution, on XOR.

python benchmarks/genomes.py [--seeds 10]
"""

import argparse
import random
import sys
import time
from pathlib import Path

import neat
import numpy as np

from meshnn import MeshError
from meshnn.neat import from_neat, to_neat
from meshnn.training import train

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import evolve_then_learn as example


def best_ms(call, times=7):
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return 1e3 * min(taken)


def grown(config, steps):
    """Return a genome after a number of mutations."""
    settings = config.genome_config
    settings.innovation_tracker = neat.innovation.InnovationTracker()
    settings.node_add_prob, settings.conn_add_prob, settings.node_delete_prob = 0.5, 0.9, 0.0
    settings.weight_mutate_power = settings.bias_mutate_power = 0.05  # otherwise neurons saturate
    settings.weight_replace_rate = settings.bias_replace_rate = 0.0
    random.seed(0)
    genome = neat.DefaultGenome(0)
    genome.configure_new(settings)
    for _ in range(steps):
        genome.mutate(settings)
    return genome


def speed(genome, config):
    X = np.random.default_rng(0).uniform(-1, 1, (1000, 2))
    rows, y = X.tolist(), X[:, :1]
    mesh, network = from_neat(genome, config), neat.nn.FeedForwardNetwork.create(genome, config)
    figures = [
        best_ms(lambda: from_neat(genome, config)),
        best_ms(lambda: neat.nn.FeedForwardNetwork.create(genome, config)),
        best_ms(lambda: to_neat(mesh, genome, config)),
        best_ms(lambda: [network.activate(row) for row in rows]),
        best_ms(lambda: mesh.forward(X, n_jobs=1)),
        best_ms(lambda: mesh.gradient(X, y, "squared_error", n_jobs=1)),
        best_ms(lambda: from_neat(genome, config).gradient(X, y, "squared_error", n_jobs=1)),
    ]
    off = np.abs(mesh.forward(X) - [network.activate(row) for row in rows]).max()
    print(mesh.topology.n_edges, mesh.ticks, "|", *(f"{value:.2f}" for value in figures), "|", f"{off:.0e}")


def evolved_until(threshold, seed, most):
    config = example.read_config()
    config.fitness_threshold = -threshold
    begin = time.perf_counter()
    genome, took = example.evolve(config, most, seed)
    return genome, config, took, time.perf_counter() - begin


def then_learn(seeds):
    print(
        "\nseed | evolved to 0.03: generations, s, error | trained: s, error | evolved to 1e-6: generations, s, error"
    )
    for seed in seeds:
        genome, config, took, seconds = evolved_until(0.03, seed, 250)
        begin = time.perf_counter()
        learned = example.learn(genome, config, 30)
        learning = time.perf_counter() - begin
        errors = [example.error(example.outputs_of(found, config)) for found in (genome, learned)]
        alone, config, generations, alone_seconds = evolved_until(1e-6, seed, 250)
        errors.append(example.error(example.outputs_of(alone, config)))
        print(f"{seed} | {took} {seconds:.2f} {errors[0]:.1e} | {learning:.3f} {errors[1]:.1e} | "
              f"{generations} {alone_seconds:.2f} {errors[2]:.1e}", flush=True)  # fmt: skip


def lamarck(seeds, iterations=10, l2=1e-5, most=25):
    """Train every genome before its fitness is computed, and write the weights back to the genome."""
    print("\nseed | every genome is trained, to 1e-3: generations, s, error | evolution alone: generations, s, error")

    def judge(genomes, config):
        for _, genome in genomes:
            try:
                mesh = from_neat(genome, config)
            except MeshError:  # no path to the output
                genome.fitness = -1.0
                continue
            for _ in train(mesh, example.X, example.Y, "squared_error", solver="lm", l2=l2, max_epochs=iterations):
                pass
            learned = to_neat(mesh, genome, config)
            genome.nodes, genome.connections = learned.nodes, learned.connections
            genome.fitness = -example.error(example.outputs_of(genome, config))

    for seed in seeds:
        config = example.read_config()
        config.fitness_threshold = -1e-3
        random.seed(seed)
        population, begin = neat.Population(config), time.perf_counter()
        genome, seconds = population.run(judge, most), time.perf_counter() - begin
        alone, alone_config, generations, alone_seconds = evolved_until(1e-3, seed, 250)
        print(f"{seed} | {population.generation + 1} {seconds:.2f} "
              f"{example.error(example.outputs_of(genome, config)):.1e} | {generations} {alone_seconds:.2f} "
              f"{example.error(example.outputs_of(alone, alone_config)):.1e}", flush=True)  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(1, parser.parse_args().seeds + 1)
    print(
        "\nedges ticks | ms: from_neat, its create, to_neat | 1000 rows: neat, mesh, gradient, first gradient | error"
    )
    for steps in (2, 60, 300):
        config = example.read_config()
        speed(grown(config, steps), config)
    then_learn(seeds)
    lamarck(seeds)
