"""A gradient of `meshnn.torch.MeshLayer` compared with a masked dense layer, connex and jitted JAX, on one thread.

python benchmarks/torch_layer.py
python benchmarks/torch_layer.py --quick                  # two nets
python benchmarks/torch_layer.py --batch 256 --json results/torch_layer.json

A gradient is the outputs of a batch and the derivative of their product with given numbers with respect to all weights:
`forward` and `backward` in PyTorch. Contestants alternate, and the best round counts:

    layer     MeshLayer, through autograd
    vjp       MeshLayer.vjp, the same without autograd
    op        the operation that compilers use, through the dispatcher
    masked    PyTorch with one (n x n) matrix times a mask, one product per tick
    connex    of graphs without cycles; compiled by JAX (pip install connex)
    jax       one (n x n) matrix, compiled by JAX
    jax + layer  meshnn.jax.mesh_function, compiled by JAX, which calls back into Python
    layers    nn.Sequential, of layered graphs, which have no masked weights
    floor     the overhead of autograd: (2 w).sum() of one vector, forward and backward
"""

# ruff: noqa: E402 - threads are set before NumPy is imported

import os

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_threads] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import argparse
import json
import time
import warnings
from importlib.util import find_spec

import numpy as np
import torch

from meshnn import Topology
from meshnn.integrations.torch_ops import layer as operation
from meshnn.torch import MeshLayer, to_torch

NAMES = ("layer", "vjp", "op", "masked", "connex", "jax", "jax + layer", "layers", "floor")
ROUNDS, SECONDS = 60, 0.004  # short rounds, so that some are without load of other processes


def acyclic(n_inputs, n_hidden, n_outputs, density, seed=0):
    """Return random edges to neurons with a higher number, and the bias to all neurons."""
    n, first = n_inputs + 1 + n_hidden + n_outputs, n_inputs + 1
    src, dst = (a.ravel() for a in np.indices((n, n)))
    allowed = (dst >= first) & (src < dst) & (src < n - n_outputs) & (src != n_inputs)
    pairs = np.stack([src, dst], axis=1)[allowed]
    pairs = pairs[np.random.default_rng(seed).random(len(pairs)) < density]
    bias = np.stack([np.full(n - first, n_inputs), np.arange(first, n)], axis=1)
    return Topology(n_inputs, n_hidden, n_outputs, np.concatenate([pairs, bias]))


def mesh(n_inputs, n_hidden, n_outputs, density):
    return Topology.mesh(n_inputs, n_hidden, n_outputs, density=density, random_state=0)


#: Graph and ticks; by default the length of the longest path.
NETS = {
    "mesh 32-50-10, 20%, 3 ticks": (lambda: mesh(32, 50, 10, 0.2), 3),
    "acyclic 32-50-10, 20%": (lambda: acyclic(32, 50, 10, 0.2), None),
    "mesh 50-100-10, 20%, 3 ticks": (lambda: mesh(50, 100, 10, 0.2), 3),
    "mesh 100-300-10, 3%, 3 ticks": (lambda: mesh(100, 300, 10, 0.03), 3),
    "acyclic 50-120-10, 20%": (lambda: acyclic(50, 120, 10, 0.2), None),
    "mesh 100-400-10, 5%, 3 ticks": (lambda: mesh(100, 400, 10, 0.05), 3),
    "mesh 100-400-10, 5%, 6 ticks": (lambda: mesh(100, 400, 10, 0.05), 6),
    "mesh 64-120-10, 45%, 3 ticks": (lambda: mesh(64, 120, 10, 0.45), 3),
    "acyclic 100-400-10, 8%": (lambda: acyclic(100, 400, 10, 0.08), None),
    "layers 32-50-10": (lambda: Topology.layered([32, 50, 10]), None),
    "layers 64-80-50-10": (lambda: Topology.layered([64, 80, 50, 10]), None),
}
QUICK = tuple(NETS)[:2]


def contestants(topology, ticks, size):
    """Return functions that compute one gradient, by name."""
    layer = MeshLayer(topology, ticks, random_state=0)
    x, g = torch.randn(size, topology.n_inputs), torch.randn(size, topology.n_outputs)
    weight, key = layer.weight, layer.spec.key

    def by_vjp():
        _, pull = layer.vjp(x)
        return pull(g)[0]

    masked, dense = masked_layer(layer, x)
    found = {
        "layer": lambda: torch.autograd.grad(layer(x), weight, g)[0],
        "vjp": by_vjp,
        "op": lambda: torch.autograd.grad(operation(x, weight, key), weight, g)[0],
        "masked": lambda: torch.autograd.grad(masked(), dense, g)[0],
        "floor": lambda: torch.autograd.grad((2.0 * weight).sum(), weight),
    }
    edges = layer.edge_index
    want = found["masked"]()[edges[0], edges[1]]
    for name in ("layer", "vjp", "op"):
        torch.testing.assert_close(found[name](), want, rtol=1e-3, atol=1e-3 * float(want.abs().max()))
    if find_spec("jax"):
        found["jax"] = jax_dense(layer, x, g)
        found["jax + layer"] = jax_layer(layer, x, g)
    if find_spec("connex") and (topology.src < topology.dst).all():
        found["connex"] = connex(topology, x, g)
    if is_layered(layer):
        model = to_torch(layer.mesh())
        parameters = list(model.parameters())
        found["layers"] = lambda: torch.autograd.grad(model(x), parameters, g)
    return layer, found


def is_layered(layer):
    try:
        to_torch(layer.mesh())
    except ValueError:
        return False
    return True


def masked_layer(layer, x):
    """Return a sparse layer of any graph as a masked matrix, with all constants precomputed."""
    t, ticks = layer.topology, layer.ticks
    n, clamped = t.n_neurons, t.n_clamped
    mask = torch.zeros(n, n)
    mask[layer.edge_index[0], layer.edge_index[1]] = 1
    dense = torch.zeros(n, n)
    dense[layer.edge_index[0], layer.edge_index[1]] = layer.weight.detach()
    dense.requires_grad_()
    ones, zeros = torch.ones(len(x), 1), torch.zeros(len(x), n - clamped)
    hidden = t.n_hidden

    def outputs():
        w = (dense * mask)[:, clamped:]
        free = zeros
        for _ in range(ticks):
            sums = torch.cat([x, ones, free], 1) @ w
            free = torch.cat([torch.relu(sums[:, :hidden]), sums[:, hidden:]], 1)
        return free[:, hidden:]

    return outputs, dense


def jax_dense(layer, x, g):
    import jax
    import jax.numpy as jnp

    t, ticks = layer.topology, layer.ticks
    src, dst, clamped, hidden = t.src, t.dst, t.n_clamped, t.n_hidden
    given, slope, ones = jnp.asarray(x.numpy()), jnp.asarray(g.numpy()), jnp.ones((len(x), 1))
    values = jnp.asarray(layer.weight.detach().numpy())

    @jax.jit
    @jax.grad
    def gradient(values, given, slope):
        w = jnp.zeros((t.n_neurons, t.n_neurons)).at[src, dst].set(values)[:, clamped:]
        free = jnp.zeros((len(given), t.n_neurons - clamped))
        for _ in range(ticks):
            sums = jnp.concatenate([given, ones, free], 1) @ w
            free = jnp.concatenate([jax.nn.relu(sums[:, :hidden]), sums[:, hidden:]], 1)
        return (free[:, hidden:] * slope).sum()

    return lambda: gradient(values, given, slope).block_until_ready()


def jax_layer(layer, x, g):
    import jax
    import jax.numpy as jnp

    from meshnn.jax import mesh_function

    made = layer.mesh()
    f, values = mesh_function(made), jnp.asarray(made.parameters)
    given, slope = jnp.asarray(x.numpy()), jnp.asarray(g.numpy())
    gradient = jax.jit(jax.grad(lambda values, given, slope: (f(values, given) * slope).sum()))
    return lambda: gradient(values, given, slope).block_until_ready()


def connex(t, x, g):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import connex
        import equinox
        import jax
        import networkx

        own = t.src != t.n_inputs  # all neurons have their own bias there
        graph = networkx.DiGraph()
        graph.add_nodes_from(j for j in range(t.n_neurons) if j != t.n_inputs)
        graph.add_edges_from(zip(t.src[own].tolist(), t.dst[own].tolist(), strict=True))
        ends = (list(range(t.n_inputs)), list(range(t.n_neurons - t.n_outputs, t.n_neurons)))
        net = connex.NeuralNetwork(graph, *ends, hidden_activation=jax.nn.relu, key=jax.random.PRNGKey(0))
    given, slope, key = jax.numpy.asarray(x.numpy()), jax.numpy.asarray(g.numpy()), jax.random.PRNGKey(0)
    learned, rest = equinox.partition(net, equinox.is_inexact_array)

    @jax.jit
    @jax.grad
    def gradient(learned, given, slope):
        run = equinox.combine(learned, rest)
        return (jax.vmap(lambda one: run(one, key=key))(given) * slope).sum()

    return lambda: jax.block_until_ready(gradient(learned, given, slope))


def measured(found):
    """Return microseconds by name, the best of alternating rounds."""
    counts, best = {}, dict.fromkeys(found, float("inf"))
    for name, step in found.items():
        step()
        begin = time.perf_counter()
        step()
        counts[name] = max(1, min(2000, int(SECONDS / (time.perf_counter() - begin))))
    for _ in range(ROUNDS):
        for name, step in found.items():
            begin = time.perf_counter()
            for _ in range(counts[name]):
                step()
            best[name] = min(best[name], (time.perf_counter() - begin) / counts[name])
    return {name: 1e6 * seconds for name, seconds in best.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in ("jax", "connex"):
        if not find_spec(name):
            print(f"skipped {name}: pip install {name}")
    print(f"microseconds per gradient, batch {options.batch}, float32, one thread\n")
    print(
        f"{'net':32}{'edges':>7}{'ticks':>6}"
        + "".join(f"{name:>12}" for name in NAMES)
        + "   masked/layer  connex/layer"
    )
    rows = []
    for name in QUICK if options.quick else NETS:
        make, ticks = NETS[name]
        topology = make()
        layer, found = contestants(topology, ticks, options.batch)
        times = measured(found)
        rows.append({"net": name, "edges": topology.n_edges, "ticks": layer.ticks} | times)
        cells = "".join(f"{times[who]:12.0f}" if who in times else f"{'-':>12}" for who in NAMES)
        ratios = "".join(
            f"{times[who] / times['layer']:14.1f}" if who in times else f"{'-':>14}" for who in ("masked", "connex")
        )
        print(f"{name:32}{topology.n_edges:7}{layer.ticks:6}{cells}{ratios}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
