"""
Uncertainty of predictions
==========================

``predict(X, return_std=True)`` also returns the standard deviation of each prediction. It combines two sources: the
noise of the samples, and the uncertainty of the weights, which follows from the forward Jacobian (Laplace
approximation). The uncertainty of the weights grows where there are no samples.
"""

import numpy as np
from matplotlib import pyplot as plt

from meshnn import MeshRegressor
from meshnn.plots.style import INK, NEGATIVE, POSITIVE, axis_names, legend_options, panel_title, quiet_axes

rng = np.random.default_rng(3)
x = np.sort(np.r_[rng.uniform(-4, -1, 40), rng.uniform(0.7, 3, 40)])[:, None]
y = np.sin(2 * x[:, 0]) + 0.3 * x[:, 0] + 0.15 * rng.standard_normal(80)
model = MeshRegressor(8, solver="lm", l2="evidence", random_state=0).fit(x, y)

# %%
# The interval is wide in the gap and beyond the ends, where there are no samples.

at = np.linspace(-5, 4, 300)[:, None]
mean, spread = model.predict(at, return_std=True)
for where in (-2.0, -0.2, 2.0, 3.8):
    value, std = model.predict([[where]], return_std=True)
    print(f"x = {where:4}: {value[0]:6.2f} +- {std[0]:.2f}")

fig, ax = plt.subplots(figsize=(9, 4.2), layout="constrained")
quiet_axes(ax)
ax.fill_between(
    at[:, 0], mean - 1.64 * spread, mean + 1.64 * spread, color=POSITIVE, alpha=0.2, lw=0, label="90% interval"
)
ax.plot(at, mean, color=POSITIVE, label="prediction")
ax.plot(at, np.sin(2 * at) + 0.3 * at, color=INK, lw=0.8, ls="--", label="true function")
ax.scatter(x, y, s=12, color=NEGATIVE, zorder=3, label="samples")
ax.set_ylim(-4, 4)
axis_names(ax, "x", "y")
panel_title(ax, "80 noisy samples with a gap")
ax.legend(**legend_options(loc="upper left", ncols=4))
plt.show()
