"""
Pruning to a budget
===================

The memory of a small chip limits the number of weights. ``Prune(to=...)`` begins with all edges, removes the weakest
ones during training, and ends with exactly the given number. Pruned edges are removed from the graph, not set to zero,
so the computing time falls with the number of edges.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from meshnn import MeshClassifier, Topology
from meshnn.plots import draw_graph, plot_lineage
from meshnn.plots.style import INK, NEGATIVE, POSITIVE, axis_names, legend_options, panel_title, quiet_axes
from meshnn.training import structure

data = load_breast_cancer()
X, X_test, y, y_test = train_test_split(data.data, data.target, test_size=0.3, stratify=data.target, random_state=0)

# %%
# Five budgets with three seeds per budget, compared with random graphs that have the same number of edges.

whole = Topology.mesh(30, 8, 2)
common = {"solver": "adam", "l2": 0.01, "max_epochs": 60}
budgets, pruned, baseline = (12, 25, 50, 100, 200), [], []
for budget in budgets:
    policy = structure.Prune(to=budget)
    models = [MeshClassifier(8, **common, structure=policy, random_state=seed).fit(X, y) for seed in range(3)]
    pruned.append([model.score(X_test, y_test) for model in models])
    graphs = [whole.prune(1 - budget / whole.n_edges, random_state=seed) for seed in range(3)]
    models = [MeshClassifier(**common, mesh=graphs[seed], random_state=seed).fit(X, y) for seed in range(3)]
    baseline.append([model.score(X_test, y_test) for model in models])
    print(f"{budget:4} edges: pruned {np.mean(pruned[-1]):.3f}, random graph {np.mean(baseline[-1]):.3f}")

# %%
# The position of the edges matters most when there are few of them.

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
quiet_axes(ax)
for scores, name, colour in ((pruned, "pruned during training", POSITIVE), (baseline, "random graph", NEGATIVE)):
    scores = np.array(scores)
    ax.plot(budgets, scores.mean(axis=1), "o-", color=colour, label=name)
    ax.fill_between(budgets, scores.min(axis=1), scores.max(axis=1), color=colour, alpha=0.15, lw=0)
ax.set_xscale("log")
ax.set_xticks(budgets, [str(budget) for budget in budgets])
ax.minorticks_off()
axis_names(ax, "edges", "accuracy on the test set")
panel_title(ax, "Breast cancer, 30 features: mean and range of three seeds")
ax.legend(**legend_options(loc="lower right"))
plt.show()

# %%
# A network with 25 edges can be read as a graph. Features that lost all their edges are not used at all.

small = MeshClassifier(8, **common, structure=structure.Prune(to=25), random_state=0).fit(X, y)
graph = small.mesh_.topology
used = np.unique(graph.src[graph.src < graph.n_inputs])
print(f"{len(used)} of {graph.n_inputs} features are still used:", ", ".join(data.feature_names[used]))
fig, ax = plt.subplots(figsize=(8, 8), layout="constrained")
names = [name if k in used else "" for k, name in enumerate(data.feature_names)]
draw_graph(ax, graph, small.mesh_.weights, ticks=small.mesh_.ticks, feature_names=names)
ax.title.set_color(INK)
plt.show()

# %%
# The graph before and after pruning, and the number of edges over time.

history = plot_lineage(small.mesh_.lineage_, "Breast cancer, pruned to 25 edges")
