"""Genomes of neat-python as meshes: neat's own networks are the witness of outputs and of gradients."""

import copy
import itertools
import random
import re
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

from meshnn import Mesh, MeshError
from meshnn.neat import FORMS, from_neat, gradient_by_gene, nodes, to_neat
from meshnn.training import train

neat = pytest.importorskip("neat", reason="GENOMES OF NEAT ARE NOT TESTED without neat-python: pip install '.[dev]'")

ROOT = Path(__file__).parents[2]
CONFIG = """
[NEAT]
pop_size = 10
fitness_criterion = max
fitness_threshold = 100
reset_on_extinction = False
no_fitness_termination = True

[DefaultGenome]
num_inputs = {n_inputs}
num_hidden = {n_hidden}
num_outputs = {n_outputs}
feed_forward = {feed_forward}
initial_connection = {connection}
compatibility_disjoint_coefficient = 1.0
compatibility_weight_coefficient = 0.5
conn_add_prob = 0.7
conn_delete_prob = 0.15
node_add_prob = 0.5
node_delete_prob = 0.05
single_structural_mutation = False
structural_mutation_surer = default
activation_default = random
activation_options = {activations}
activation_mutate_rate = 0.2
aggregation_default = random
aggregation_options = {aggregations}
aggregation_mutate_rate = 0.2
bias_init_mean = 0.0
bias_init_stdev = 0.5
bias_init_type = gaussian
bias_replace_rate = 0.0
bias_mutate_rate = 0.3
bias_mutate_power = 0.3
bias_max_value = 3
bias_min_value = -3
response_init_mean = 0.8
response_init_stdev = 0.3
response_init_type = gaussian
response_replace_rate = 0.0
response_mutate_rate = 0.2
response_mutate_power = 0.2
response_max_value = 2
response_min_value = -2
time_constant_init_mean = 1.0
time_constant_init_stdev = 0.0
time_constant_init_type = gaussian
time_constant_replace_rate = 0.0
time_constant_mutate_rate = 0.0
time_constant_mutate_power = 0.0
time_constant_max_value = 10
time_constant_min_value = 0.01
enabled_default = True
enabled_mutate_rate = 0.1
enabled_rate_to_true_add = 0.0
enabled_rate_to_false_add = 0.0
weight_init_mean = 0.0
weight_init_stdev = 0.7
weight_init_type = gaussian
weight_replace_rate = 0.05
weight_mutate_rate = 0.5
weight_mutate_power = 0.3
weight_max_value = 3
weight_min_value = -3

[DefaultSpeciesSet]
compatibility_threshold = 3.0

[DefaultStagnation]
species_fitness_func = max
max_stagnation = 20
species_elitism = 1

[DefaultReproduction]
elitism = 1
survival_threshold = 0.2
min_species_size = 1
"""

ONE_NEURON = ("identity", "relu", "elu", "sigmoid", "tanh", "sin", "gauss")
SMOOTH = ("identity", "sigmoid", "tanh", "sin", "gauss")


@pytest.fixture
def make(tmp_path):
    """A function that makes configs; neat draws from Python's own generator, which is put back."""
    before = random.getstate()

    def made(activations=SMOOTH, aggregations=("sum", "mean"), feed_forward=True, **sizes):
        sizes = {"n_inputs": 3, "n_hidden": 2, "n_outputs": 2, "connection": "full_direct"} | sizes
        (tmp_path / "config").write_text(CONFIG.format(
            activations=" ".join(activations), aggregations=" ".join(aggregations), feed_forward=feed_forward, **sizes
        ))  # fmt: skip
        types = (neat.DefaultGenome, neat.DefaultReproduction, neat.DefaultSpeciesSet, neat.DefaultStagnation)
        config = neat.Config(*types, str(tmp_path / "config"))
        config.genome_config.innovation_tracker = neat.innovation.InnovationTracker()
        return config

    yield made
    random.setstate(before)


def genomes(config, count, steps=8):
    """Random genomes that have a path from an input to an output; recurrent ones forget, or rounding would grow."""
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
            if "no enabled path" not in str(error):  # the only refusal there may be
                raise
        else:
            found.append(genome)
    return found


def activated(network, X):
    return np.array([network.activate(list(row)) for row in X])


def test_feed_forward_genomes_have_the_same_outputs(make):
    X = np.random.default_rng(0).uniform(-1, 1, (5, 3))
    for genome in genomes(config := make(tuple(FORMS)), 60):
        want = activated(neat.nn.FeedForwardNetwork.create(genome, config), X)
        mesh = from_neat(genome, config)
        assert mesh.dtype == np.float64
        np.testing.assert_allclose(mesh.forward(X), want, rtol=1e-9, atol=1e-9)
        mesh.ticks += 3  # the outputs have settled
        np.testing.assert_allclose(mesh.forward(X), want, rtol=1e-9, atol=1e-9)


def test_recurrent_genomes_have_the_same_outputs_step_by_step(make):
    X = np.random.default_rng(0).uniform(-1, 1, (9, 3))
    cycles = 0
    for genome in genomes(config := make(ONE_NEURON, feed_forward=False), 60):
        want = activated(neat.nn.RecurrentNetwork.create(genome, config), X)
        mesh = from_neat(genome, config)
        assert mesh.ticks == 1
        cycles += mesh.topology.components().max() + 1 < mesh.topology.n_hidden + mesh.topology.n_outputs
        got, end = mesh.forward(X[:4, None], every_tick=True, return_state=True)
        rest = mesh.forward(X[4:, None], every_tick=True, state=end)
        np.testing.assert_allclose(np.concatenate([got, rest])[:, 0], want, rtol=1e-9, atol=1e-9)
        stream = mesh.stream(ticks_per_sample=1)
        np.testing.assert_allclose([stream.step(x) for x in X], want, rtol=1e-9, atol=1e-9)
    assert cycles > 10


def test_a_softplus_inside_a_recurrent_genome(make):
    X = np.random.default_rng(0).uniform(-1, 1, (6, 3))
    for genome in genomes(config := make(ONE_NEURON, feed_forward=False), 5):
        for key in genome.nodes.keys() - config.genome_config.output_keys:
            genome.nodes[key].activation = "softplus"
        want = activated(neat.nn.RecurrentNetwork.create(genome, config), X)
        got = from_neat(genome, config).forward(X[:, None], every_tick=True)[:, 0]
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def small(config, activation="identity", aggregation="sum", response=1.0):
    """-1 -> 2 -> 0, every other gene as it is by default."""
    genome = neat.DefaultGenome(0)
    for k, key in enumerate((0, 2)):
        genome.nodes[key] = neat.DefaultGenome.create_node(config.genome_config, key)
        genome.nodes[key].bias, genome.nodes[key].response = 0.25 - k, response
        genome.nodes[key].activation, genome.nodes[key].aggregation = activation, aggregation
    for k, key in enumerate([(-1, 2), (2, 0)]):
        genome.connections[key] = neat.genes.DefaultConnectionGene(key, innovation=k)
        genome.connections[key].weight, genome.connections[key].enabled = 0.5 + k, True
    return genome


@pytest.mark.parametrize("activation", FORMS)
def test_an_activation_is_that_of_neat(make, activation):
    """In a hidden node and in an output, over all of a line."""
    config = make(n_inputs=1, n_outputs=1)
    genome, X = small(config, activation), np.linspace(-6, 6, 601)[:, None]
    want = activated(neat.nn.FeedForwardNetwork.create(genome, config), X)
    np.testing.assert_allclose(from_neat(genome, config).forward(X), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("activation", FORMS)
def test_far_out_only_two_activations_differ(make, activation):
    """Those of neat stand still beyond 12: sin is sin(60) there, softplus 12. All others have saturated, or go on."""
    config = make(n_inputs=1, n_outputs=1)
    genome, X = small(config, activation), np.array([[-500.0], [-30.0], [30.0], [500.0]])
    genome.nodes[2].activation, genome.nodes[2].bias = "identity", 0.0
    want = activated(neat.nn.FeedForwardNetwork.create(genome, config), X)
    same = np.isclose(from_neat(genome, config).forward(X), want, rtol=1e-12, atol=1e-12)
    if activation == "sin":
        assert not same.any()
    elif activation == "softplus":
        assert same.ravel().tolist() == [True, True, False, False]
    else:
        assert same.all()


def test_every_activation_of_neat_is_known_or_refused(make):
    config = make(n_inputs=1, n_outputs=1)
    refused = set(config.genome_config.activation_defs.functions) - set(FORMS)
    assert refused == {"inv", "log", "exp", "square", "cube"}
    for name in refused:
        with pytest.raises(MeshError, match=f"node [02] .*'{name}'"):
            from_neat(small(config, name), config)


def looked_at(kind, X):
    """Half the mean squared distance of neat's outputs to a target, after every step."""
    y = np.sin(np.arange(len(X) * 2)).reshape(len(X), 2)

    def loss(genome, config):
        network = (neat.nn.RecurrentNetwork if kind == "recurrent" else neat.nn.FeedForwardNetwork).create(
            genome, config
        )
        return 0.5 * np.square(activated(network, X) - y).sum(axis=1).mean()

    return y, loss


@pytest.mark.parametrize("kind", ["feed_forward", "recurrent"])
def test_the_gradient_by_genes_is_that_of_neats_own_network(make, kind):
    X = np.random.default_rng(0).uniform(-1, 1, (6, 3))
    y, loss = looked_at(kind, X)
    config, h = make(feed_forward=kind == "feed_forward"), 1e-5
    for genome in genomes(config, 6):
        if kind == "feed_forward":
            genome.nodes[0].activation = "softplus"  # with a fixed edge behind it
        mesh = from_neat(genome, config)
        if kind == "recurrent":
            got, gradient = mesh.gradient(X[:, None], y[:, None], "squared_error", loss_ticks="all")
        else:
            got, gradient = mesh.gradient(X, y, "squared_error")
        assert got == pytest.approx(loss(genome, config), rel=1e-12)
        connections, biases = gradient_by_gene(gradient, genome, config)
        found = 0
        for genes, name, derivatives in ((genome.connections, "weight", connections), (genome.nodes, "bias", biases)):
            for key, gene in genes.items():
                ends, value = [], getattr(gene, name)
                for step in (h, -h):
                    setattr(gene, name, value + step)
                    ends.append(loss(genome, config))
                setattr(gene, name, value)
                # a gene that is not in the mesh must do nothing
                want = (ends[0] - ends[1]) / (2 * h)
                assert derivatives.get(key, 0.0) == pytest.approx(want, rel=1e-5, abs=1e-8), key
                found += key in derivatives
        assert found == mesh.n_parameters


@pytest.mark.parametrize("kind", ["feed_forward", "recurrent"])
def test_learned_weights_go_back_into_a_copy(make, kind):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (6, 3))
    config = make(tuple(FORMS) if kind == "feed_forward" else ONE_NEURON, feed_forward=kind == "feed_forward")
    network = neat.nn.FeedForwardNetwork if kind == "feed_forward" else neat.nn.RecurrentNetwork
    for genome in genomes(config, 20):
        genome.fitness = 3.0
        before, mesh = copy.deepcopy(genome), from_neat(genome, config)
        same = to_neat(mesh, genome, config)
        assert described(same) == described(before)  # bit by bit
        assert same.fitness is None
        mesh.parameters = mesh.parameters + 0.1 * rng.standard_normal(mesh.n_parameters)
        learned = to_neat(mesh, genome, config)
        assert described(genome) == described(before)
        assert genome.fitness == 3.0
        got = mesh.forward(X) if kind == "feed_forward" else mesh.forward(X[:, None], every_tick=True)[:, 0]
        want = activated(network.create(learned, config), X)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(from_neat(learned, config).weights, mesh.weights, rtol=1e-12)
        learned.mutate(config.genome_config)  # evolution goes on


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
    got = neat.nn.FeedForwardNetwork.create(learned, config).activate([2.0])
    assert got == pytest.approx(mesh.forward([[2.0]])[0])


def test_training_and_back(make):
    """Noise-free targets of a net of the same graph: the loss falls, and neat's own network sees it."""
    X = np.random.default_rng(0).uniform(-1, 1, (40, 3))
    genome = genomes(config := make(("tanh",)), 1)[0]
    mesh = from_neat(genome, config)
    y = mesh.forward(X)
    start = mesh.parameters + 0.05 * np.cos(np.arange(mesh.n_parameters))
    mesh.parameters = start
    first = mesh.gradient(X, y, "squared_error")[0]
    for _ in train(mesh, X, y, "squared_error", solver="lm", l2=0.0, tol=0.0, max_epochs=20):
        pass
    learned = to_neat(mesh, genome, config)
    out = activated(neat.nn.FeedForwardNetwork.create(learned, config), X)
    assert 0.5 * np.square(out - y).sum(axis=1).mean() < 0.1 * first


# -- what neat does with rare genomes ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["feed_forward", "recurrent"])
def test_a_node_that_nothing_feeds(make, kind):
    """Feed-forward it is its bias; neat's recurrent network never evaluates it, so it is 0, an output too."""
    config = make(n_inputs=1, n_outputs=2)
    genome = small(config)
    genome.nodes[1] = copy.deepcopy(genome.nodes[0])  # an output
    genome.nodes[7] = copy.deepcopy(genome.nodes[2])  # hidden, read by output 0
    genome.connections[7, 0] = neat.genes.DefaultConnectionGene((7, 0), innovation=5)
    genome.connections[7, 0].weight, genome.connections[7, 0].enabled = 0.3, True
    mesh, X = from_neat(genome, config, kind), np.array([[0.3], [0.7], [-0.4]])
    if kind == "recurrent":
        want = activated(neat.nn.RecurrentNetwork.create(genome, config), X)
        np.testing.assert_allclose(mesh.forward(X[:, None], every_tick=True)[:, 0], want, atol=1e-12)
        assert (want[:, 1] == 0).all()
    else:
        want = activated(neat.nn.FeedForwardNetwork.create(genome, config), X)
        np.testing.assert_allclose(mesh.forward(X), want, atol=1e-12)
        assert (want[:, 1] == 0.25).all()
    assert described(to_neat(mesh, genome, config, kind)) == described(genome)


def test_disabled_and_useless_genes_are_left_out(make):
    config = make(n_inputs=2, n_outputs=1)
    genome = small(config)
    genome.nodes[9] = copy.deepcopy(genome.nodes[2])  # reads, and nobody reads it
    for k, (key, enabled) in enumerate({(-2, 9): True, (-2, 0): False}.items()):
        genome.connections[key] = neat.genes.DefaultConnectionGene(key, innovation=10 + k)
        genome.connections[key].weight, genome.connections[key].enabled = 1.0, enabled
    assert nodes(genome, config) == [-1, -2, None, 2, 0]
    mesh = from_neat(genome, config)
    assert sorted(zip(mesh.topology.src.tolist(), mesh.topology.dst.tolist(), strict=True)) == [
        (0, 3), (2, 3), (2, 4), (3, 4),
    ]  # fmt: skip
    genome.nodes[9].activation = "cube"  # what is left out is not looked at
    assert from_neat(genome, config).topology == mesh.topology


def test_neurons_are_in_the_order_of_keys(make):
    """Inputs and outputs as in the config, hidden nodes by their keys; each neuron has its node's value."""
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
    """Nothing of the sum is left, whatever it was, so its connections are no parameters."""
    config = make(n_inputs=2, n_outputs=1)
    genome = small(config)
    for k, key in enumerate([(-1, 0), (-2, 2)]):
        genome.connections[key] = neat.genes.DefaultConnectionGene(key, innovation=5 + k)
        genome.connections[key].weight, genome.connections[key].enabled = 2.0, True
    genome.nodes[2].response, genome.nodes[2].aggregation = 0.0, "max"
    mesh, x = from_neat(genome, config), [3.0, 0.5]
    assert mesh.n_parameters == 4
    want = neat.nn.FeedForwardNetwork.create(genome, config).activate(x)
    assert mesh.forward([x])[0] == pytest.approx(want)
    mesh.parameters = mesh.parameters + 0.5
    learned = to_neat(mesh, genome, config)
    assert learned.connections[-1, 2].weight == genome.connections[-1, 2].weight
    want = neat.nn.FeedForwardNetwork.create(learned, config).activate(x)
    assert mesh.forward([x])[0] == pytest.approx(want)


def test_the_aggregation_of_one_input_is_that_input(make):
    config = make(n_inputs=1, n_outputs=1)
    for name in ("max", "min", "median", "maxabs", "product"):
        genome = small(config, "tanh", name)
        want = neat.nn.FeedForwardNetwork.create(genome, config).activate([0.7])
        assert from_neat(genome, config).forward([[0.7]])[0] == pytest.approx(want)


# -- refusals ------------------------------------------------------------------------------------------------------


def test_refusals_of_genomes(make):
    config = make(n_inputs=2, n_outputs=1)
    genome = small(config, aggregation="max")
    genome.connections[-2, 0] = neat.genes.DefaultConnectionGene((-2, 0), innovation=5)
    genome.connections[-2, 0].weight, genome.connections[-2, 0].enabled = 1.0, True
    with pytest.raises(MeshError, match=r"node 0 .*'max' of 2"):
        from_neat(genome, config)
    lonely = small(config)
    lonely.connections[2, 0].enabled = False
    with pytest.raises(MeshError, match="no enabled path"):
        from_neat(lonely, config)
    lonely.nodes[0].aggregation = "product"  # which of nothing is 1
    lonely.connections[-2, 2] = lonely.connections[2, 0]
    with pytest.raises(MeshError, match="no enabled path"):
        from_neat(lonely, config)
    loop = small(config)
    loop.connections[0, 2] = neat.genes.DefaultConnectionGene((0, 2), innovation=5)
    loop.connections[0, 2].weight, loop.connections[0, 2].enabled = 1.0, True
    with pytest.raises(MeshError, match=r"0 -> 2 -> 0|2 -> 0 -> 2"):
        from_neat(loop, config)
    hidden = small(config)
    hidden.nodes[2].activation = "abs"
    with pytest.raises(MeshError, match=r"node 2 .*'abs'.* 3 neurons"):
        from_neat(hidden, config, kind="recurrent")
    with pytest.raises(MeshError, match=r"node 0 .*'softplus'.* 2 neurons"):
        from_neat(small(config, "softplus"), config, kind="recurrent")
    spiking = small(config)
    del spiking.nodes[2].response
    with pytest.raises(MeshError, match=r"node 2 .*response"):
        from_neat(spiking, config)


def test_refusals_of_configs(make):
    config = make(n_inputs=1, n_outputs=1)
    genome = small(config, "tanh")
    with pytest.raises(MeshError, match="dict"):
        from_neat(genome, {})
    with pytest.raises(MeshError, match="genome_config"):
        from_neat(genome, config.genome_config)
    with pytest.raises(MeshError, match="Config"):
        from_neat(config, config)
    with pytest.raises(MeshError, match="ctrnn"):
        from_neat(genome, config, kind="ctrnn")
    config.genome_config.add_activation("tanh", lambda z: 0.5 * z)
    with pytest.raises(MeshError, match="'tanh'"):
        from_neat(genome, config)
    config.genome_config.add_aggregation("sum", lambda x: 2 * sum(x))
    with pytest.raises(MeshError, match="'sum' of 1"):
        from_neat(small(config), config)
    with pytest.raises(MeshError, match="no node 1"):
        from_neat(genome, make(n_inputs=1, n_outputs=2))
    other = small(make(n_inputs=2, n_outputs=1))
    other.connections[-2, 2] = neat.genes.DefaultConnectionGene((-2, 2), innovation=5)
    other.connections[-2, 2].weight, other.connections[-2, 2].enabled = 1.0, True
    with pytest.raises(MeshError, match="no node -2"):
        from_neat(other, make(n_inputs=1, n_outputs=1))


def test_refusals_on_the_way_back(make):
    config = make(n_inputs=1, n_outputs=1)
    genome = small(config, "tanh")
    mesh = from_neat(genome, config)
    with pytest.raises(MeshError, match="DefaultGenome"):
        to_neat(genome, genome, config)
    with pytest.raises(MeshError, match="tanh, tanh"):
        to_neat(Mesh(mesh.topology, activation="relu"), genome, config)
    loop = Mesh.from_tree(mesh.to_tree())
    loop.rewire(type(mesh.topology)(1, 1, 1, [*zip(mesh.topology.src, mesh.topology.dst, strict=True), (2, 2)]))
    with pytest.raises(MeshError, match=r"\(2, 2\)"):
        to_neat(loop, genome, config)
    with pytest.raises(MeshError, match=r"\(4,\).*\(5,\)"):
        gradient_by_gene(np.zeros(5), genome, config)
    broken = from_neat(genome, config)
    broken.values[1] = np.nan
    with pytest.raises(MeshError, match=r"weight 1 .*nan"):
        to_neat(broken, genome, config)
    clamped = small(config, "clamped")
    mesh = from_neat(clamped, config)
    mesh.weights = 2 * mesh.weights
    with pytest.raises(MeshError, match="fixed"):
        to_neat(mesh, clamped, config)


# -- the example and the page --------------------------------------------------------------------------------------


@pytest.fixture
def generator():
    before = random.getstate()
    yield
    random.setstate(before)


@pytest.mark.parametrize("generations", [2, 40])
def test_the_example(generator, capsys, generations):
    """Wherever evolution ends, both conversions are exact, and learning never makes it worse."""
    example = runpy.run_path(str(ROOT / "examples" / "evolve_then_learn.py"))
    stages = dict(example["main"](generations=generations, iterations=10))
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 6
    assert "iterations of lm" in out[0]
    for stage in ("evolved", "learned"):
        np.testing.assert_allclose(stages[f"{stage}, as a mesh"], stages[f"{stage}, by neat"], rtol=1e-9, atol=1e-9)
    assert example["error"](stages["learned, by neat"]) <= example["error"](stages["evolved, by neat"]) * (1 + 1e-9)


@pytest.mark.slow
def test_the_page(generator, capsys, tmp_path, monkeypatch):
    shutil.copy(ROOT / "examples" / "xor.ini", tmp_path)
    monkeypatch.chdir(tmp_path)
    found = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "neat.md").read_text(), re.DOTALL):
        exec(compile(block, "neat.md", "exec"), found)
    X, mesh = found["X"], found["mesh"]
    np.testing.assert_allclose(mesh.forward(X), found["answers"](found["learned"]), rtol=1e-9, atol=1e-9)
    got = found["recurrent"].forward(found["pulses"], every_tick=True)
    np.testing.assert_allclose(got, found["remembered"](found["better"]), rtol=1e-9, atol=1e-9)


def test_the_page_lists_the_activations():
    page = (ROOT / "docs" / "neat.md").read_text()
    assert all(f"`{name}`" in page for name in FORMS)
