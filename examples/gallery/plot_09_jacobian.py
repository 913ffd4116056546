"""
Jacobians and Levenberg-Marquardt
=================================

Forward-mode differentiation computes the derivative of every output with respect to every weight, for every sample, in
one pass and on any graph. Levenberg-Marquardt uses this Jacobian to solve a least-squares problem at every step; a
first-order method only follows the gradient.
"""

import time

import numpy as np
from matplotlib import pyplot as plt

from meshnn import Mesh, Topology
from meshnn.plots.style import FAINT, NEGATIVE, POSITIVE, axis_names, diverging, legend_options, panel_title, quiet_axes
from meshnn.training import Adam, train

x = np.linspace(-3, 3, 150)[:, None]
y = np.sin(2 * x) * np.exp(-0.2 * x**2) + 0.3 * x
graph = Topology.mesh(1, 8, 1)

# %%
# Both solvers start from the same weights. Adam runs a hundred times as many iterations.

histories, nets = {}, {}
for name, settings in {
    "lm": {"solver": "lm", "l2": 0.0, "max_epochs": 60, "tol": 0.0},
    "adam": {"solver": Adam(learning_rate=0.01), "max_epochs": 6000, "batch_size": 150, "tol": 0.0},
}.items():
    net = nets[name] = Mesh(graph, activation="tanh", dtype="float64", random_state=0)
    for _ in train(Mesh(graph, activation="tanh", dtype="float64", random_state=0), x, y, "squared_error",
                   **settings | {"max_epochs": 1}):  # fmt: skip
        pass  # warm-up, not timed
    start = time.perf_counter()
    histories[name] = np.array(
        [(row.epoch, row.loss) for row in train(net, x, y, "squared_error", random_state=0, **settings)]
    )
    epochs, loss = histories[name][-1]
    print(f"{name:5} {epochs:5.0f} iterations, {time.perf_counter() - start:.2f} s, loss {loss:.1e}")

# %%
# The Jacobian of the trained network has one row per sample and one column per weight. Its singular values span many
# orders of magnitude: some directions in weight space hardly change the outputs, and a first-order method is slow along
# them.

J = nets["lm"].jacobian(x)[:, 0]
singular = np.linalg.svd(J, compute_uv=False)
print(f"{J.shape[0]} samples, {J.shape[1]} weights; condition number {singular[0] / singular[-1]:.0e}")

fig, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
for name, colour in (("lm", POSITIVE), ("adam", NEGATIVE)):
    axes[0].plot(*histories[name].T, color=colour, label=name)
axes[0].set_xscale("log")
axes[0].set_yscale("log")
axis_names(axes[0], "iterations", "loss")
panel_title(axes[0], "Loss from the same initial weights")
axes[0].legend(**legend_options(loc="lower left"))
size = np.quantile(np.abs(J), 0.98)
axes[1].imshow(J, aspect="auto", cmap=diverging(), vmin=-size, vmax=size, extent=(0, J.shape[1], 3, -3))
axis_names(axes[1], "weight", "x")
panel_title(axes[1], "Jacobian dy/dA of every sample")
axes[2].semilogy(np.arange(1, len(singular) + 1), singular, "o-", ms=3, color=POSITIVE)
axis_names(axes[2], "rank", "singular value")
panel_title(axes[2], "Singular values of the Jacobian")
for ax in (axes[0], axes[2]):
    quiet_axes(ax)
    ax.grid(color=FAINT, alpha=0.2)
plt.show()
