"""
A graph drawn by hand
=====================

A network is a list of edges, so any graph drawn on paper can be trained. In this one, a neuron reads the sepals of iris
flowers and another one the petals. A third neuron reads these two and itself, and two of the outputs have a direct
connection to the petals. Such a network cannot be built from layers; here it is a list of edges, and its gradient is
exact.
"""

import networkx as nx
from matplotlib import pyplot as plt
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score

from meshnn import MeshClassifier, Topology
from meshnn.plots import draw_adjacency, draw_graph

# %%
# Edges connect named nodes. ``from_networkx`` numbers the neurons: inputs, bias, hidden neurons, outputs.

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
print("dead edges (without effect on an output) with 2 ticks:", int(graph.dead_edges(2).sum()), "and with 3:",
      int(graph.dead_edges(3).sum()))  # fmt: skip

# %%
# The self-loop of "both" makes the graph cyclic, so the number of ticks is a parameter. The default is 3, the smallest
# number at which every edge affects an output. With 4 ticks the signal of the features runs through the self-loop once.

X, y = load_iris(return_X_y=True)
model = MeshClassifier(mesh=graph, ticks=4, activation="tanh", solver="lm", l2=0.01, random_state=0)
scores = cross_val_score(model, X, y, cv=5)
print(f"accuracy, five-fold cross-validation: {scores.mean():.3f}, with {graph.n_edges} weights")

# %%
# The learned weights: blue is positive, orange is negative, and the line width shows the magnitude.

model.fit(X, y)
fig, axes = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
draw_graph(axes[0], graph, model.mesh_.weights, ticks=4, feature_names=features, output_names=flowers)
draw_adjacency(axes[1], graph, model.mesh_.weights)
plt.show()
