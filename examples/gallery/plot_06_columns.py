"""
Memory with columns
===================

A column is a hidden neuron with a self-loop, and the weight of the loop sets the time constant of its memory. Columns
are not connected to each other. Therefore the exact derivative through the whole past costs no more than the forward
pass, and a stream of any length can be learned in constant memory.

The input of this task is noise, and the target is the sum of two leaky means of it: a fast one (3 steps) and a slow one
(40 steps). The network has to learn these time constants from the data.
"""

import numpy as np
from matplotlib import pyplot as plt

from meshnn import networks
from meshnn.plots.style import FAINT, INK, NEGATIVE, POSITIVE, axis_names, legend_options, panel_title, quiet_axes

rng = np.random.default_rng(0)
steps, constants = 20_000, (3.0, 40.0)
x = rng.standard_normal(steps)
target = np.zeros(steps)
for tau in constants:
    mean = 0.0
    for k in range(steps):
        mean += (x[k] - mean) / tau
        target[k] += np.sqrt(2 * tau) * mean  # both parts have the same variance

# %%
# The time constants of the two columns start at 16 and 24 ticks, which are 8 and 12 steps, since each sample lasts
# for 2 ticks. The activation is the identity, so the state of a column is exactly a leaky mean. The loop of such a
# neuron diverges if its weight exceeds 1, which happens with ``forgetting="auto"``; the settings below are the best of
# eight that were tried.

ticks = 2
net = networks.columns(1, 2, 1, memory=(16, 24), activation="identity", dtype="float64", random_state=0)
loops = np.flatnonzero(net.topology.src == net.topology.dst)
print(f"{net.topology.n_edges} edges; the influence costs {net.topology.influence_cost()} multiply-adds per tick")
stream = net.stream(learner="ekf", ticks_per_sample=ticks, forgetting=1e-5, p0=0.1)
every, outputs, memory = 50, [], [1 / (1 - net.weights[loops] ** ticks)]
for k in range(0, steps, every):
    outputs.append(stream.run(x[k : k + every, None], target[k : k + every, None])[:, 0])
    memory.append(1 / (1 - net.weights[loops] ** ticks))
out, memory = np.concatenate(outputs), np.array(memory)
error = np.square(out - target)
print("time constants learned:", np.sort(memory[-1]).round(1), "true:", constants)
print(f"mean squared error of the last 1000 steps / variance of the target: {error[-1000:].mean() / target.var():.1e}")

# %%
# The time constants during training, and the outputs at the first and the last steps. Every output was computed before
# the network received its target.

fig, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
for ax in axes:
    quiet_axes(ax)
axes[0].plot(every * np.arange(len(memory)), memory, color=POSITIVE)
for tau in constants:
    axes[0].axhline(tau, color=FAINT, ls=":", lw=1)
axes[0].set_yscale("log")
axes[0].set_yticks([3, 5, 10, 20, 40], ["3", "5", "10", "20", "40"])
axes[0].minorticks_off()
axis_names(axes[0], "step", "time constant (steps)")
panel_title(axes[0], "Time constants of the two loops (dotted: true)")
for ax, part, name in (
    (axes[1], slice(0, 120), "The first steps"),
    (axes[2], slice(steps - 120, steps), "The last steps"),
):
    at = np.arange(steps)[part]
    ax.plot(at, target[part], color=INK, lw=2.4, alpha=0.35, label="target")
    ax.plot(at, out[part], color=NEGATIVE, lw=1.1, label="output")
    axis_names(ax, "step", "")
    panel_title(ax, name)
    ax.set_ylim(-9, 9)
axes[1].legend(**legend_options(loc="upper right"))
plt.show()
