"""
A graph drawn by hand
=====================

A net is a list of edges. This one was drawn on paper: petals and sepals of iris flowers have a neuron each, a third one
reads both and itself, and one kind of flower may look at the petals directly. No library of layers has that net; here
it is eleven pairs of numbers, and its gradient is exact.
"""

import networkx as nx
from matplotlib import pyplot as plt
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score

from meshnn import MeshClassifier, Topology
from meshnn.plots import draw_adjacency, draw_graph

# %%
# Edges between names, as one would say them. ``from_networkx`` numbers the neurons: inputs, bias, hidden, outputs.

drawing = nx.DiGraph()
drawing.add_node("bias", role="bias")
drawing.add_edges_from([
    ("sepal length", "sepal"), ("sepal width", "sepal"),
    ("petal length", "petal"), ("petal width", "petal"),
    ("sepal", "both"), ("petal", "both"), ("both", "both"),
    ("petal", "setosa"), ("both", "versicolor"), ("both", "virginica"), ("petal width", "virginica"),
    *[("bias", name) for name in ("sepal", "petal", "both", "setosa", "versicolor", "virginica")],
])  # fmt: skip
features = ["sepal length", "sepal width", "petal length", "petal width"]
flowers = ["setosa", "versicolor", "virginica"]
graph = Topology.from_networkx(drawing, inputs=features, outputs=flowers)
print(graph)
print("edges that cannot reach an output at 2 ticks:", int(graph.dead_edges(2).sum()), "and at 4:",
      int(graph.dead_edges(4).sum()))  # fmt: skip

# %%
# The self-loop of "both" makes the graph cyclic, so the number of ticks is a choice: 4 lets the loop speak.

X, y = load_iris(return_X_y=True)
model = MeshClassifier(mesh=graph, ticks=4, activation="tanh", solver="lm", l2=0.01, random_state=0)
scores = cross_val_score(model, X, y, cv=5)
print(f"five folds: {scores.mean():.3f} right, with {graph.n_edges} weights")

# %%
# What it learned: blue weights are positive, orange ones negative, wide ones strong.

model.fit(X, y)
fig, axes = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
draw_graph(axes[0], graph, model.mesh_.weights, ticks=4, feature_names=features, output_names=flowers)
draw_adjacency(axes[1], graph, model.mesh_.weights)
plt.show()
