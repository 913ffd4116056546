"""
Two spirals
===========

The two interleaved spirals are hard for nets with one layer. A mesh, in which every hidden neuron may read every
other, learns them with 10 hidden neurons. Size, solver and penalty could be left to the estimator; here the size and
the solver are named, so that the picture stays small.
"""

from matplotlib import pyplot as plt
from sklearn.model_selection import train_test_split

from meshnn import MeshClassifier
from meshnn.plots import draw_adjacency, draw_graph, draw_history, draw_regions
from meshnn.tables.synthetic import spirals

X, y = spirals(1000, random_state=0)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)

# %%
# Levenberg-Marquardt takes the Jacobian of every sample, which comes forward in one pass, and finds the penalty from
# the evidence of the samples: no validation set.

model = MeshClassifier(hidden=10, solver="lm", l2="evidence", random_state=0).fit(X, y)
print(f"{model.mesh_}")
print(f"right on samples not learned: {model.score(X_test, y_test):.3f} (the paper has 0.94)")

# %%
# What it decides everywhere, and the samples it was tested on.

fig, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
edge = 1.05 * abs(X).max()
draw_regions(axes[0], model.predict_proba, (-edge, edge, -edge, edge), points=X_test, labels=y_test, classes=[0, 1])
axes[0].set_title("Decided", loc="left")
draw_history(axes[1], model.history_.to_dict())
plt.show()

# %%
# The net: its graph, and the matrix that it is.

fig, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
draw_graph(axes[0], model.mesh_.topology, model.mesh_.weights, ticks=model.mesh_.ticks, output_names=["0", "1"])
draw_adjacency(axes[1], model.mesh_.topology, model.mesh_.weights)
plt.show()
