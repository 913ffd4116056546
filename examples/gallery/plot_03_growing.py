"""
Growing a network
=================

How many neurons does a problem need? ``Grow`` begins with two and adds one whenever learning slows down. A new
neuron starts with output weights of 0, so adding it does not change the predictions. It is chosen from many random
candidates: the one whose edges would have the largest gradient. The engine computes this gradient for edges that do not
exist yet.
"""

from copy import deepcopy

from matplotlib import pyplot as plt
from scipy.special import softmax
from sklearn.model_selection import train_test_split

from meshnn import MeshClassifier
from meshnn.plots import draw_regions, plot_lineage
from meshnn.tables.synthetic import spirals
from meshnn.training import structure

X, y = spirals(600, random_state=0)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)

# %%
# A callback keeps a copy of the network for every size, taken at the last epoch of that size.

snapshots = {}


def keep(row, mesh):
    """Copy the network; a later copy of the same size replaces an earlier one."""
    snapshots[mesh.topology.n_hidden] = deepcopy(mesh)


model = MeshClassifier(2, solver="lm", l2=1e-4, structure=structure.Grow(to=12), callbacks=[keep], random_state=0)
model.fit(X, y)
print(f"grown from 2 to {model.mesh_.topology.n_hidden} hidden neurons, {model.mesh_.topology.n_edges} edges")
print(f"accuracy on the test set: {model.score(X_test, y_test):.3f}")

# %%
# The decision regions at four sizes, just before the next neuron was added. The inputs of the network are standardised
# features.

mean, spread, edge = X.mean(axis=0), X.std(axis=0), 1.05 * abs(X).max()
sizes = [sorted(snapshots)[k] for k in (0, len(snapshots) // 3, 2 * len(snapshots) // 3, -1)]
fig, axes = plt.subplots(1, 4, figsize=(13, 3.4), layout="constrained")
for ax, size in zip(axes, sizes, strict=True):
    draw_regions(
        ax, lambda points, net=snapshots[size]: softmax(net.forward((points - mean) / spread), axis=1),
        (-edge, edge, -edge, edge), points=X, labels=y,
    )  # fmt: skip
    ax.set_title(f"{size} hidden neurons", loc="left", fontsize=10)
    ax.get_legend().remove()
plt.show()

# %%
# The change of the graph: the first matrix, the last one, and the number of edges over time.

history = plot_lineage(model.mesh_.lineage_, "Network grown on two spirals")
