"""Genomes of neat-python as meshes: networks of neat-python verify outputs and gradients."""

import configparser
import copy
import itertools
import random
import runpy
from pathlib import Path

import numpy as np
import pytest

from meshnn import Mesh, MeshError
from meshnn.neat import FORMS, from_neat, gradient_by_gene, nodes, to_neat

neat = pytest.importorskip("neat", reason="GENOMES OF NEAT ARE NOT TESTED without neat-python: pip install '.[dev]'")

ROOT = Path(__file__).parents[2]
#: Changes of examples/xor.ini: varied genomes whose weights stay bounded.
OPTIONS = {
    "conn_add_prob": 0.7, "conn_delete_prob": 0.15, "node_add_prob": 0.5, "node_delete_prob": 0.05,
    "activation_default": "random", "activation_mutate_rate": 0.2, "aggregation_default": "random",
    "aggregation_mutate_rate": 0.2, "bias_init_stdev": 0.5, "bias_max_value": 3, "bias_min_value": -3,
    "response_init_mean": 0.8, "response_init_stdev": 0.3, "response_mutate_rate": 0.2, "response_mutate_power": 0.2,
    "enabled_mutate_rate": 0.1, "weight_init_stdev": 0.7, "weight_mutate_power": 0.3, "weight_max_value": 3,
    "weight_min_value": -3,
}  # fmt: skip
ONE_NEURON = ("identity", "relu", "elu", "sigmoid", "tanh", "sin", "gauss", "clamped")
SMOOTH = ("identity", "sigmoid", "tanh", "sin", "gauss")


@pytest.fixture
def make(tmp_path):
    """Return a function that creates configs; Python's global generator, which neat uses, is restored afterwards."""
    before = random.getstate()

    def made(activations=SMOOTH, feed_forward=True, n_inputs=3, n_outputs=2):
        parser = configparser.ConfigParser()
        parser.read(ROOT / "examples" / "xor.ini")
        parser.read_dict({"DefaultGenome": OPTIONS | {
            "num_inputs": n_inputs, "num_hidden": 2, "num_outputs": n_outputs, "feed_forward": feed_forward,
            "activation_options": " ".join(activations), "aggregation_options": "sum mean",
        }})  # fmt: skip
        with (tmp_path / "config").open("w") as file:
            parser.write(file)
        types = (neat.DefaultGenome, neat.DefaultReproduction, neat.DefaultSpeciesSet, neat.DefaultStagnation)
        config = neat.Config(*types, str(tmp_path / "config"))
        config.genome_config.innovation_tracker = neat.innovation.InnovationTracker()
        return config

    yield made
    random.setstate(before)


def genomes(config, count, steps=8):
    """Return random genomes with a path from input to output; recurrent ones contract, which bounds rounding errors."""
    found, seeds = [], itertools.count()
    while len(found) < count:
        random.seed(next(seeds))
        genome = neat.DefaultGenome(0)
        genome.configure_new(config.genome_config)
        for _ in range(steps):
            genome.mutate(config.genome_config)
        for gene in genome.connections.values() if not config.genome_config.feed_forward else ():
            gene.weight *= 0.25
        try:
            from_neat(genome, config)
        except MeshError as error:
            if "no enabled path" not in str(error):  # the only error that may occur
                raise
        else:
            found.append(genome)
    return found


def activated(network, X):
    return np.array([network.activate(list(row)) for row in X])


def test_feed_forward_genomes_have_the_same_outputs(make):
    X = np.random.default_rng(0).uniform(-1, 1, (5, 3))
    for genome in genomes(config := make(tuple(FORMS)), 40):
        want = feed_forward(genome, config, X)
        mesh = from_neat(genome, config)
        assert mesh.dtype == np.float64
        np.testing.assert_allclose(mesh.forward(X), want, rtol=1e-9, atol=1e-9)
        mesh.ticks += 3  # until the outputs are constant
        np.testing.assert_allclose(mesh.forward(X), want, rtol=1e-9, atol=1e-9)


def test_recurrent_genomes_have_the_same_outputs_step_by_step(make):
    X = np.random.default_rng(0).uniform(-1, 1, (9, 3))
    cycles = 0
    for genome in genomes(config := make(ONE_NEURON, feed_forward=False), 40):
        for key in list(genome.nodes)[::3]:
            genome.nodes[key].activation = "softplus" if key > 1 else "tanh"  # an output with it would need two neurons
        want, mesh = recurrent(genome, config, X), from_neat(genome, config)
        assert mesh.ticks == 1
        cycles += mesh.topology.components().max() + 1 < mesh.topology.n_hidden + mesh.topology.n_outputs
        got, end = mesh.forward(X[:4, None], every_tick=True, return_state=True)
        rest = mesh.forward(X[4:, None], every_tick=True, state=end)
        np.testing.assert_allclose(np.concatenate([got, rest])[:, 0], want, rtol=1e-9, atol=1e-9)
        stream = mesh.stream(ticks_per_sample=1)
        np.testing.assert_allclose([stream.step(x) for x in X], want, rtol=1e-9, atol=1e-9)
    assert cycles > 10


def connect(genome, *links, weight=1.0, enabled=True):
    for key in links:
        genome.connections[key] = neat.genes.DefaultConnectionGene(key, innovation=len(genome.connections))
        genome.connections[key].weight, genome.connections[key].enabled = weight, enabled


def small(config, activation="identity", aggregation="sum"):
    """Return the genome -1 -> 2 -> 0, with default values of all other genes."""
    genome = neat.DefaultGenome(0)
    for k, key in enumerate((0, 2)):
        genome.nodes[key] = neat.DefaultGenome.create_node(config.genome_config, key)
        genome.nodes[key].bias, genome.nodes[key].response = 0.25 - k, 1.0
        genome.nodes[key].activation, genome.nodes[key].aggregation = activation, aggregation
    connect(genome, (-1, 2), weight=0.5)
    connect(genome, (2, 0), weight=1.5)
    return genome


def feed_forward(genome, config, X):
    return activated(neat.nn.FeedForwardNetwork.create(genome, config), X)


def recurrent(genome, config, X):
    return activated(neat.nn.RecurrentNetwork.create(genome, config), X)


KINDS = {"feed_forward": feed_forward, "recurrent": recurrent}


def run(mesh, kind, X):
    return mesh.forward(X) if kind == "feed_forward" else mesh.forward(X[:, None], every_tick=True)[:, 0]


@pytest.mark.parametrize("activation", FORMS)
def test_activations_equal_those_of_neat(make, activation):
    """In a hidden node and in an output, on a range of inputs; beyond 12, sin and softplus of neat are constant."""
    config = make(n_inputs=1, n_outputs=1)
    genome, X = small(config, activation), np.linspace(-6, 6, 601)[:, None]
    want = feed_forward(genome, config, X)
    np.testing.assert_allclose(from_neat(genome, config).forward(X), want, rtol=1e-12, atol=1e-12)
    X = np.array([[-500.0], [-30.0], [30.0], [500.0]])
    genome.nodes[2].activation, genome.nodes[2].bias = "identity", 0.0
    same = np.isclose(from_neat(genome, config).forward(X), feed_forward(genome, config, X), rtol=1e-12, atol=1e-12)
    differ = {"sin": [0, 1, 2, 3], "softplus": [2, 3]}
    assert np.flatnonzero(~same).tolist() == differ.get(activation, [])


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_by_genes_is_that_of_neats_own_network(make, kind):
    X = np.random.default_rng(0).uniform(-1, 1, (6, 3))
    y = np.sin(np.arange(12)).reshape(6, 2)
    config, h = make(feed_forward=kind == "feed_forward"), 1e-5

    def loss(genome):
        return 0.5 * np.square(KINDS[kind](genome, config, X) - y).sum(axis=1).mean()

    for genome in genomes(config, 6):
        if kind == "feed_forward":
            genome.nodes[0].activation = "softplus"  # needs a fixed edge to a second neuron
        mesh = from_neat(genome, config)
        if kind == "recurrent":
            got, gradient = mesh.gradient(X[:, None], y[:, None], "squared_error", loss_ticks="all")
        else:
            got, gradient = mesh.gradient(X, y, "squared_error")
        assert got == pytest.approx(loss(genome), rel=1e-12)
        connections, biases = gradient_by_gene(gradient, genome, config)
        found = 0
        for genes, name, derivatives in ((genome.connections, "weight", connections), (genome.nodes, "bias", biases)):
            for key, gene in genes.items():
                ends, value = [], getattr(gene, name)
                for step in (h, -h):
                    setattr(gene, name, value + step)
                    ends.append(loss(genome))
                setattr(gene, name, value)
                # a gene without a counterpart in the mesh must have no effect
                want = (ends[0] - ends[1]) / (2 * h)
                assert derivatives.get(key, 0.0) == pytest.approx(want, rel=1e-5, abs=1e-8), key
                found += key in derivatives
        assert found == mesh.n_parameters


@pytest.mark.parametrize("kind", KINDS)
def test_learned_weights_go_back_into_a_copy(make, kind):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (6, 3))
    config = make(tuple(FORMS) if kind == "feed_forward" else ONE_NEURON, feed_forward=kind == "feed_forward")
    for genome in genomes(config, 20):
        genome.fitness = 3.0
        before, mesh = copy.deepcopy(genome), from_neat(genome, config)
        same = to_neat(mesh, genome, config)
        assert described(same) == described(before)  # bit-identical
        assert same.fitness is None
        mesh.parameters = mesh.parameters + 0.1 * rng.standard_normal(mesh.n_parameters)
        learned = to_neat(mesh, genome, config)
        assert described(genome) == described(before)
        assert genome.fitness == 3.0
        np.testing.assert_allclose(run(mesh, kind, X), KINDS[kind](learned, config, X), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(from_neat(learned, config).weights, mesh.weights, rtol=1e-12)
        learned.mutate(config.genome_config)  # mutation works on the result


def described(genome):
    return [str(gene) for gene in (*genome.nodes.values(), *genome.connections.values())]


def test_pruned_edges_are_connections_of_weight_0(make):
    config = make(n_inputs=1, n_outputs=1)
    genome = small(config)
    mesh = from_neat(genome, config)
    t = mesh.topology
    keep = ~((t.src == 1) & (t.dst == 2))  # the bias of node 2
    mesh.rewire(type(t)(1, 1, 1, np.stack([t.src, t.dst], axis=1)[keep]))
    learned = to_neat(mesh, genome, config)
    assert learned.nodes[2].bias == 0.0
    np.testing.assert_allclose(mesh.forward([[2.0]]), feed_forward(learned, config, [[2.0]]))


# -- semantics of neat in rare cases -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_without_inputs(make, kind):
    """In a feed-forward network its value is its bias; the recurrent network of neat never evaluates it: it is 0."""
    config = make(n_inputs=1, n_outputs=2)
    genome = small(config)
    genome.nodes[1] = copy.deepcopy(genome.nodes[0])  # an output
    genome.nodes[7] = copy.deepcopy(genome.nodes[2])  # hidden, read by output 0
    connect(genome, (7, 0), weight=0.3)
    mesh, X = from_neat(genome, config, kind), np.array([[0.3], [0.7], [-0.4]])
    want = KINDS[kind](genome, config, X)
    np.testing.assert_allclose(run(mesh, kind, X), want, atol=1e-12)
    assert (want[:, 1] == (0 if kind == "recurrent" else 0.25)).all()
    assert described(to_neat(mesh, genome, config, kind)) == described(genome)


def test_disabled_and_useless_genes_are_left_out(make):
    config = make(n_inputs=2, n_outputs=1)
    genome = small(config)
    genome.nodes[9] = copy.deepcopy(genome.nodes[2])  # has inputs, but no node reads it
    connect(genome, (-2, 9))
    connect(genome, (-2, 0), enabled=False)
    assert nodes(genome, config) == [-1, -2, None, 2, 0]
    mesh = from_neat(genome, config)
    assert {*zip(mesh.topology.src, mesh.topology.dst, strict=True)} == {(0, 3), (2, 3), (2, 4), (3, 4)}
    genome.nodes[9].activation = "cube"  # unused nodes are not validated
    assert from_neat(genome, config).topology == mesh.topology


def test_neurons_are_in_the_order_of_keys(make):
    """Inputs and outputs are in the order of the config, hidden nodes by key; values match their nodes."""
    X = np.random.default_rng(0).uniform(-1, 1, (1, 3))
    for genome in genomes(config := make(), 5):
        found = nodes(genome, config)
        hidden = found[4:-2]
        assert [*found[:4], *found[-2:]] == [-1, -2, -3, None, 0, 1]
        assert hidden == sorted(hidden)
        network = neat.nn.FeedForwardNetwork.create(genome, config)
        network.activate(list(X[0]))
        got = from_neat(genome, config).states(X)[-1, 0]
        for neuron, key in enumerate(found):
            assert key is None or got[neuron] == pytest.approx(network.values[key], abs=1e-12)


def test_a_response_of_0(make):
    """A response of 0 removes the sum, so its connections are not parameters."""
    config = make(n_inputs=2, n_outputs=1)
    genome = small(config)
    connect(genome, (-1, 0), (-2, 2), weight=2.0)
    genome.nodes[2].response, genome.nodes[2].aggregation = 0.0, "max"
    mesh, x = from_neat(genome, config), [3.0, 0.5]
    assert mesh.n_parameters == 4
    np.testing.assert_allclose(mesh.forward([x]), feed_forward(genome, config, [x]))
    mesh.parameters = mesh.parameters + 0.5
    learned = to_neat(mesh, genome, config)
    assert learned.connections[-1, 2].weight == genome.connections[-1, 2].weight
    np.testing.assert_allclose(mesh.forward([x]), feed_forward(learned, config, [x]))


def test_the_aggregation_of_one_input_is_that_input(make):
    config = make(n_inputs=1, n_outputs=1)
    for name in ("max", "min", "median", "maxabs", "product"):
        genome = small(config, "tanh", name)
        np.testing.assert_allclose(from_neat(genome, config).forward([[0.7]]), feed_forward(genome, config, [[0.7]]))


# -- errors --------------------------------------------------------------------------------------------------------


def changed(genome, *links, **attributes):
    """Return the genome with more connections and other attributes of node 2."""
    connect(genome, *links)
    for name, value in attributes.items():
        setattr(genome.nodes[2], name, value)
    return genome


@pytest.mark.parametrize(("change", "named", "kind"), [
    (lambda config: changed(small(config, aggregation="max"), (-2, 0)), "node 0 .*'max' of 2", None),
    (lambda config: changed(small(config), (0, 2)), "0 -> 2 -> 0|2 -> 0 -> 2", None),
    (lambda config: changed(small(config), (2, -1)), "node -1", None),
    (lambda config: changed(small(config), (-3, 2)), "no node -3", None),
    (lambda config: small(config, "softplus"), "node 0 .*'softplus'", "recurrent"),
    (lambda config: changed(small(config), activation="abs"), "node 2 .*'abs'", "recurrent"),
    (lambda config: changed(small(config), activation="exp"), "node 2 .*'exp'", None),
    (small, "ctrnn", "ctrnn"),
])  # fmt: skip
def test_refusals_of_genomes(make, change, named, kind):
    config = make(n_inputs=2, n_outputs=1)
    with pytest.raises(MeshError, match=named):
        from_neat(change(config), config, kind)


def refused(named, call, *given):
    with pytest.raises(MeshError, match=named):
        call(*given)


def test_refusals_of_what_does_not_belong_together(make):
    config = make(n_inputs=1, n_outputs=1)
    genome = small(config, "tanh")
    refused("dict", from_neat, genome, {})
    refused("Config", from_neat, config, config)
    refused("no node 1", from_neat, genome, make(n_inputs=1, n_outputs=2))
    mesh = from_neat(genome, config)
    refused("DefaultGenome", to_neat, genome, genome, config)
    refused("tanh, tanh", to_neat, Mesh(mesh.topology, activation="relu"), genome, config)
    refused(r"\(4,\).*\(5,\)", gradient_by_gene, np.zeros(5), genome, config)
    loop = Mesh.from_tree(mesh.to_tree())
    loop.rewire(type(mesh.topology)(1, 1, 1, [*zip(mesh.topology.src, mesh.topology.dst, strict=True), (2, 2)]))
    refused(r"\(2, 2\)", to_neat, loop, genome, config)
    mesh.values[1] = np.nan
    refused("weight 1 .*nan", to_neat, mesh, genome, config)
    mesh = from_neat(hat := small(config, "hat"), config)
    mesh.weights = 2 * mesh.weights
    refused("fixed", to_neat, mesh, hat, config)
    del genome.connections[2, 0]
    refused("no enabled path", from_neat, genome, config)
    config.genome_config.add_activation("tanh", lambda z: 0.5 * z)
    refused("'tanh'", from_neat, small(config, "tanh"), config)
    config.genome_config.add_aggregation("sum", lambda x: 2 * sum(x))
    refused("'sum' of 1", from_neat, small(config), config)


# -- the example and the page --------------------------------------------------------------------------------------


def test_the_example(make):
    """Both conversions are exact, and training does not increase the error."""
    example = runpy.run_path(str(ROOT / "examples" / "evolve_then_learn.py"))
    stages = dict(example["main"](generations=2, iterations=10))
    for stage in ("evolved", "learned"):
        np.testing.assert_allclose(stages[f"{stage}, as a mesh"], stages[f"{stage}, by neat"], rtol=1e-9, atol=1e-9)
    assert example["error"](stages["learned, by neat"]) <= example["error"](stages["evolved, by neat"]) * (1 + 1e-9)


def test_the_page_lists_all_activations():
    page = (ROOT / "docs" / "how-to" / "evolve-with-neat.md").read_text()
    assert all(f"`{name}`" in page for name in FORMS)
