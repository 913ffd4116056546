"""
Growing a net
=============

How many neurons does a problem take? ``Grow`` begins with two and adds one whenever learning slows down. A new neuron
starts with output weights of 0, so that nothing is lost when it comes; of many random ones that one is taken whose
edges would have the largest gradient, which the engine knows for edges that are not there yet.
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
# A callback keeps a copy of the net at every size, the last one of each.

seen = {}


def look(row, mesh):
    """Keep a copy; what was kept of this size before is forgotten."""
    seen[mesh.topology.n_hidden] = deepcopy(mesh)


model = MeshClassifier(2, solver="lm", l2=1e-4, structure=structure.Grow(to=12), callbacks=[look], random_state=0)
model.fit(X, y)
print(f"grown from 2 to {model.mesh_.topology.n_hidden} hidden neurons, {model.mesh_.topology.n_edges} edges")
print(f"right on samples not learned: {model.score(X_test, y_test):.3f}")

# %%
# What nets of four sizes decided, when the next neuron came. A net sees features of mean 0 and variance 1.

mean, spread, edge = X.mean(axis=0), X.std(axis=0), 1.05 * abs(X).max()
sizes = [sorted(seen)[k] for k in (0, len(seen) // 3, 2 * len(seen) // 3, -1)]
fig, axes = plt.subplots(1, 4, figsize=(13, 3.4), layout="constrained")
for ax, size in zip(axes, sizes, strict=True):
    draw_regions(
        ax, lambda points, net=seen[size]: softmax(net.forward((points - mean) / spread), axis=1),
        (-edge, edge, -edge, edge), points=X, labels=y,
    )  # fmt: skip
    ax.set_title(f"{size} hidden neurons", loc="left", fontsize=10)
    ax.get_legend().remove()
plt.show()

# %%
# How the graph changed: the first matrix, the last one, and the number of edges over time.

history = plot_lineage(model.mesh_.lineage_, "Spirals, grown")
