"""
Training on a Dask cluster
==========================

The rows of a data set may be distributed over several machines: ``fit`` accepts Dask collections, and the workers keep
their partitions. The result does not depend on the cluster: with one worker or two, four partitions or six, the weights
are bit-identical. The cluster of this example consists of threads in this process, so that the page can be built
anywhere. To use a real cluster, give ``Client`` the address of its scheduler.
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
# The same rows with different partitions, on one worker and on two.

losses, weights = {}, {}
for workers, rows in ((1, 1500), (2, 1500), (2, 1000)):
    with Client(n_workers=workers, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        X_dask, y_dask = da.from_array(X, chunks=(rows, 2)), da.from_array(y, chunks=rows)
        model = MeshClassifier(12, solver="adam", batch_size=256, max_epochs=40, l2=1e-5, random_state=0)
        model.fit(X_dask, y_dask)
        accuracy = float((model.predict(X_dask) == y_dask).mean().compute())
    name = f"{workers} worker{'s' * (workers > 1)}, {6000 // rows} partitions"
    losses[name], weights[name] = model.history_["loss"], model.mesh_.weights
    print(f"{name:24} accuracy {accuracy:.4f}, loss {losses[name][-1]:.6f}")
first = next(iter(weights.values()))
print("bit-identical weights:", all(np.array_equal(first, other) for other in weights.values()))

# %%
# The three loss curves coincide. On the right: the decision regions of the model.

fig, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
quiet_axes(axes[0])
for k, (name, line) in enumerate(losses.items()):
    axes[0].plot(np.arange(1, len(line) + 1), line, color=CLASSES[k], lw=6 - 2 * k, label=name)
axis_names(axes[0], "epoch", "loss")
panel_title(axes[0], "The same training on three clusters")
axes[0].legend(frameon=False, fontsize=8)
draw_regions(axes[1], model.predict_proba, (-2, 2, -2, 2), points=X[:400], labels=y[:400], classes=[0, 1])
plt.show()
