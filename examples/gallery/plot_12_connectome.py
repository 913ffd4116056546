"""
Training an observed graph
==========================

Connectomes and social networks are graphs, so they can be trained as neural networks. networkx contains a small one:
Zachary's karate club with 34 members and 78 friendships. Every member becomes a neuron and every friendship two edges.
The same code works for the edge list of a connectome.

First the graph is a reservoir: its internal weights are fixed, and only the readout is trained. Then all weights are
trained on the stream with the exact gradient. A random graph of the same size shows whether the topology matters.
"""

import networkx as nx
import numpy as np
from matplotlib import pyplot as plt

from meshnn import Mesh, Topology
from meshnn.plots.style import INK, NEGATIVE, POSITIVE, axis_names, legend_options, panel_title, quiet_axes

club = nx.karate_club_graph()
print(f"{club.number_of_nodes()} members, {club.number_of_edges()} friendships")


def as_topology(friends):
    """Return a topology whose hidden neurons are the members, all connected to the input, the bias and the output."""
    n = friends.number_of_nodes()
    place = {member: 2 + k for k, member in enumerate(friends)}  # 0 is the input, 1 the bias
    edges = [(place[a], place[b]) for pair in friends.edges for a, b in (pair, pair[::-1])]
    edges += [(clamped, neuron) for neuron in place.values() for clamped in (0, 1)]
    edges += [(neuron, 2 + n) for neuron in place.values()]
    return Topology(1, n, 1, edges)


def as_net(graph, learn_all, seed=0):
    """Return a network with spectral radius 0.9 between the members.

    With ``learn_all`` all weights are trained, otherwise only the readout.
    """
    rng, hidden = np.random.default_rng(seed), set(graph.hidden.tolist())
    within = np.array([a in hidden and b in hidden for a, b in zip(graph.src, graph.dst, strict=True)])
    weights = rng.uniform(-1, 1, graph.n_edges)
    A = np.zeros((graph.n_neurons, graph.n_neurons))
    A[graph.src[within], graph.dst[within]] = weights[within]
    weights[within] *= 0.9 / np.abs(np.linalg.eigvals(A)).max()
    readout = graph.dst == graph.outputs[0]
    weights[readout] = 0.0
    parameter = np.arange(graph.n_edges) if learn_all else np.where(readout, np.cumsum(readout) - 1, -1)
    return Mesh(graph, ticks=2, activation="tanh", dtype="float64", weights=weights, tied=parameter)


# %%
# The task is to predict the next value of a chaotic series: Mackey-Glass with a delay of 17.

series = [1.2] * 69  # four values per step, so 68 values are the delay
for _ in range(4 * 3000):
    series.append(series[-1] + 0.25 * (0.2 * series[-69] / (1 + series[-69] ** 10) - 0.1 * series[-1]))
x = np.array(series[69 + 4 * 200 :: 4])
x = (x - x.mean()) / x.std()

random = nx.gnm_random_graph(34, 78, seed=1)
cases = {
    "karate club, readout trained": as_net(as_topology(club), learn_all=False),
    "random graph, readout trained": as_net(as_topology(random), learn_all=False),
    "karate club, all trained": as_net(as_topology(club), learn_all=True),
}
errors = {}
for name, net in cases.items():
    stream = net.stream(learner="ekf", ticks_per_sample=2, forgetting=1e-6)
    out = stream.run(x[:-1, None], x[1:, None])[:, 0]  # each prediction precedes its target
    errors[name] = np.square(out - x[1:])
    print(f"{name:30} {net.n_parameters:4} parameters, error of the last 500 steps: {errors[name][-500:].mean():.1e}")

# %%
# The members coloured by their readout weight, and the prediction errors on the stream.

fig, axes = plt.subplots(1, 2, figsize=(12, 5), layout="constrained", width_ratios=(5, 6))
fixed = cases["karate club, readout trained"]
readout = fixed.weights[fixed.topology.dst == fixed.topology.outputs[0]]
spots = nx.spring_layout(club, seed=4)
size = np.abs(readout).max()
nx.draw_networkx_edges(club, spots, ax=axes[0], edge_color="#b8b8b8", width=0.8)
dots = nx.draw_networkx_nodes(
    club, spots, ax=axes[0], node_size=60 + 500 * np.abs(readout) / size,
    node_color=np.where(readout > 0, POSITIVE, NEGATIVE), edgecolors="white",
)  # fmt: skip
axes[0].set_axis_off()
panel_title(axes[0], "Readout weights: blue positive, orange negative, size by magnitude")
quiet_axes(axes[1])
for (name, error), look in zip(errors.items(), ((POSITIVE, "-"), (INK, "--"), (NEGATIVE, "-")), strict=True):
    smooth = np.convolve(error, np.ones(100) / 100, "valid")
    axes[1].semilogy(np.arange(100, 100 + len(smooth)), smooth, color=look[0], ls=look[1], label=name)
axis_names(axes[1], "step", "squared error, mean of 100 steps")
panel_title(axes[1], "Error of the one-step prediction of Mackey-Glass")
axes[1].legend(**legend_options(loc="upper right"))
plt.show()

# %%
# As a fixed reservoir the club is about as accurate as a random graph of the same size. This result is from one seed
# and one task and does not generalise. Training all edges reduces the error by a factor of about seven. It requires a
# gradient through the whole past, which is exact on any graph.
