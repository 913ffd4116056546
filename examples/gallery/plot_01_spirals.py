"""
Two spirals
===========

Two interleaved spirals are hard to separate for a network with one hidden layer. In a mesh every hidden neuron may be
connected to every other one, and 10 hidden neurons are enough. The estimator could choose the size, the solver and the
regularisation strength itself; this example sets the size and the solver to keep the picture small.
"""

from matplotlib import pyplot as plt
from sklearn.model_selection import train_test_split

from meshnn import MeshClassifier
from meshnn.plots import draw_adjacency, draw_graph, draw_history, draw_regions
from meshnn.tables.synthetic import spirals

X, y = spirals(1000, random_state=0)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)

# %%
# Levenberg-Marquardt uses the Jacobian of every sample, which one forward pass computes. With ``l2="evidence"`` the
# regularisation strength maximises the marginal likelihood of the training samples, so no validation set is needed.

model = MeshClassifier(hidden=10, solver="lm", l2="evidence", random_state=0).fit(X, y)
print(f"{model.mesh_}")
print(f"accuracy on the test set: {model.score(X_test, y_test):.3f} (in the paper: 0.94)")

# %%
# The decision regions with the test samples, and the loss during training.

fig, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
edge = 1.05 * abs(X).max()
draw_regions(axes[0], model.predict_proba, (-edge, edge, -edge, edge), points=X_test, labels=y_test, classes=[0, 1])
axes[0].set_title("Decision regions", loc="left")
draw_history(axes[1], model.history_.to_dict())
plt.show()

# %%
# The network as a graph, and as a matrix of weights.

fig, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
draw_graph(axes[0], model.mesh_.topology, model.mesh_.weights, ticks=model.mesh_.ticks, output_names=["0", "1"])
draw_adjacency(axes[1], model.mesh_.topology, model.mesh_.weights)
plt.show()
