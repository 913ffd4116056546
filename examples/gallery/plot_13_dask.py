"""
A cluster of Dask
=================

Rows may lie on several machines: ``fit`` takes collections of Dask, and workers keep their partitions. What comes out
does not depend on the cluster: one worker or two, four partitions or six, the weights have the same bits. Here the
cluster is two threads of this process, so that the page can be built anywhere; with the address of a scheduler it would
be any other.
"""

import dask.array as da
import numpy as np
from distributed import Client
from matplotlib import pyplot as plt

from meshnn import MeshClassifier
from meshnn.plots import draw_regions
from meshnn.plots.style import CLASSES, axis_names, panel_title, quiet_axes

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (6000, 2))
y = (np.sin(2 * X[:, 0]) > X[:, 1]).astype(int)

# %%
# The same rows, cut in different ways, on one worker and on two.

losses, weights = {}, {}
for workers, rows in ((1, 1500), (2, 1500), (2, 1000)):
    with Client(n_workers=workers, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        rows_far, labels_far = da.from_array(X, chunks=(rows, 2)), da.from_array(y, chunks=rows)
        model = MeshClassifier(12, solver="adam", batch_size=256, max_epochs=40, l2=1e-5, random_state=0)
        model.fit(rows_far, labels_far)
        right = float((model.predict(rows_far) == labels_far).mean().compute())
    name = f"{workers} worker{'s' * (workers > 1)}, {6000 // rows} partitions"
    losses[name], weights[name] = model.history_["loss"], model.mesh_.weights
    print(f"{name:24} {right:.4f} right, loss {losses[name][-1]:.6f}")
first = next(iter(weights.values()))
print("the same bits:", all(np.array_equal(first, other) for other in weights.values()))

# %%
# Three curves, of which one is seen; and what was learned.

fig, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
quiet_axes(axes[0])
for k, (name, line) in enumerate(losses.items()):
    axes[0].plot(np.arange(1, len(line) + 1), line, color=CLASSES[k], lw=6 - 2 * k, label=name)
axis_names(axes[0], "epoch", "loss")
panel_title(axes[0], "The same run on three clusters")
axes[0].legend(frameon=False, fontsize=8)
draw_regions(axes[1], model.predict_proba, (-2, 2, -2, 2), points=X[:400], labels=y[:400], classes=[0, 1])
plt.show()
