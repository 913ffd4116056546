"""
Sequences of any length
=======================

A classifier of three kinds of waves with 15 to 40 steps and a random phase: a slow wave, a fast one, and one whose
frequency rises. The network is a chain of 20 neurons; each neuron reads itself and its predecessor. It can predict the
class after every step.
"""

import numpy as np
from matplotlib import pyplot as plt

from meshnn import MeshSequenceClassifier
from meshnn.plots import draw_graph
from meshnn.plots.style import CLASSES, INK, axis_names, legend_options, panel_title, quiet_axes

rng = np.random.default_rng(0)
kinds = ["slow", "fast", "rising"]


def wave(kind):
    """Return one noisy sequence of a kind."""
    length = int(rng.integers(15, 41))
    speed = {"slow": np.full(length, 0.45), "fast": np.full(length, 0.95), "rising": np.linspace(0.3, 1.1, length)}[
        kind
    ]
    return np.sin(rng.uniform(0, 6.28) + np.cumsum(speed)) + 0.15 * rng.standard_normal(length)


y = np.array(kinds * 100)
X = [wave(kind) for kind in y]

# %%
# Sequences of different lengths are trained in the same batch. Padding has no effect on the loss.

model = MeshSequenceClassifier(l2=1e-3, max_epochs=150, random_state=0).fit(X[:210], y[:210])
print(model.mesh_)
print(f"accuracy on the test set: {model.score(X[210:], y[210:]):.3f}")

# %%
# The predicted probabilities after 1, 2, 3, ... steps of three sequences.

fig, axes = plt.subplots(2, 3, figsize=(12, 5), sharex=True, layout="constrained", height_ratios=(2, 3))
colours = dict(zip(model.classes_, CLASSES, strict=False))
for column, kind in enumerate(kinds):
    sequence = max((X[k] for k in range(210, 300) if y[k] == kind), key=len)
    so_far = model.predict_proba([sequence[: k + 1] for k in range(len(sequence))])
    above, below = axes[:, column]
    quiet_axes(above)
    quiet_axes(below)
    above.plot(sequence, color=INK, lw=1.2)
    panel_title(above, f"Wave of kind {kind}")
    for name, line in zip(model.classes_, so_far.T, strict=True):
        below.plot(line, color=colours[name], lw=2, label=name)
    below.set_ylim(-0.03, 1.03)
    axis_names(below, "steps so far", "probability" if column == 0 else "")
axes[1, 2].legend(**legend_options(loc="center right"))
plt.show()

# %%
# The graph of the network acts as a delay line.

fig, ax = plt.subplots(figsize=(9, 5), layout="constrained")
draw_graph(ax, model.mesh_.topology, model.mesh_.weights, output_names=list(model.classes_))
plt.show()
