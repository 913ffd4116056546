"""
A graph that was found, not made
================================

Connectomes and social networks are directed graphs like any other, so they can be nets. networkx carries a small one:
Zachary's karate club, 34 members and 78 friendships that somebody observed. It is no brain, but what is done here is
what one would do with the edge list of one: every member becomes a neuron, every friendship two edges.

First the graph is a reservoir: its edges are fixed, and only the readout learns. Then the same graph learns all its
weights, exactly, on the stream. A random graph with as many edges stands beside it: does the shape matter?
"""

import networkx as nx
import numpy as np
from matplotlib import pyplot as plt

from meshnn import Mesh, Topology
from meshnn.plots.style import INK, NEGATIVE, POSITIVE, axis_names, legend_options, panel_title, quiet_axes

club = nx.karate_club_graph()
print(f"{club.number_of_nodes()} members, {club.number_of_edges()} friendships")


def as_topology(friends):
    """Members as hidden neurons. Everybody hears the input and the bias, and is heard by the output."""
    n = friends.number_of_nodes()
    place = {member: 2 + k for k, member in enumerate(friends)}  # 0 is the input, 1 the bias
    edges = [(place[a], place[b]) for pair in friends.edges for a, b in (pair, pair[::-1])]
    edges += [(clamped, neuron) for neuron in place.values() for clamped in (0, 1)]
    edges += [(neuron, 2 + n) for neuron in place.values()]
    return Topology(1, n, 1, edges)


def as_net(graph, learn_all, seed=0):
    """Between members the spectral radius is 0.9; unless all learn, only the readout does."""
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
# The task: the next value of a series that is chaotic, Mackey-Glass with a delay of 17.

series = [1.2] * 69  # four values a step: 68 of them are the delay
for _ in range(4 * 3000):
    series.append(series[-1] + 0.25 * (0.2 * series[-69] / (1 + series[-69] ** 10) - 0.1 * series[-1]))
x = np.array(series[69 + 4 * 200 :: 4])
x = (x - x.mean()) / x.std()

random = nx.gnm_random_graph(34, 78, seed=1)
cases = {
    "karate club, readout learned": as_net(as_topology(club), learn_all=False),
    "random graph, readout learned": as_net(as_topology(random), learn_all=False),
    "karate club, all learned": as_net(as_topology(club), learn_all=True),
}
errors = {}
for name, net in cases.items():
    stream = net.stream(learner="ekf", ticks_per_sample=2, forgetting=1e-6)
    out = stream.run(x[:-1, None], x[1:, None])[:, 0]  # each before its target was seen
    errors[name] = np.square(out - x[1:])
    print(f"{name:30} {net.n_parameters:4} parameters, error of the last 500: {errors[name][-500:].mean():.1e}")

# %%
# Members coloured by the weight that the readout gives them, and the errors on the stream.

fig, axes = plt.subplots(1, 2, figsize=(12, 5), layout="constrained", width_ratios=(5, 6))
fixed = cases["karate club, readout learned"]
heard = fixed.weights[fixed.topology.dst == fixed.topology.outputs[0]]
spots = nx.spring_layout(club, seed=4)
size = np.abs(heard).max()
nx.draw_networkx_edges(club, spots, ax=axes[0], edge_color="#b8b8b8", width=0.8)
dots = nx.draw_networkx_nodes(
    club, spots, ax=axes[0], node_size=60 + 500 * np.abs(heard) / size,
    node_color=np.where(heard > 0, POSITIVE, NEGATIVE), edgecolors="white",
)  # fmt: skip
axes[0].set_axis_off()
panel_title(axes[0], "The club: blue counts positively, orange negatively, large counts much")
quiet_axes(axes[1])
for (name, error), look in zip(errors.items(), ((POSITIVE, "-"), (INK, "--"), (NEGATIVE, "-")), strict=True):
    smooth = np.convolve(error, np.ones(100) / 100, "valid")
    axes[1].semilogy(np.arange(100, 100 + len(smooth)), smooth, color=look[0], ls=look[1], label=name)
axis_names(axes[1], "step", "squared error, mean of 100 steps")
panel_title(axes[1], "The next value of Mackey-Glass")
axes[1].legend(**legend_options(loc="upper right"))
plt.show()

# %%
# Fixed, the club does about as well as a random graph: a reservoir needs echoes, and any graph of that size has them.
# It is one seed and one task, so nothing more can be said. Learning the edges themselves is worth a factor of seven or
# so; it takes a gradient through all of the past, which is exact on whatever graph there is.
