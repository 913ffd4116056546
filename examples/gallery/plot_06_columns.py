"""
Memory in columns
=================

A column is a neuron that reads itself: how long it remembers is the weight of its loop. Since columns do not read each
other, the exact derivative through all of the past costs no more than the forward pass, and a stream of any length can
be learned in constant memory.

The task: noise comes in, and the target is the sum of two leaky means of it, one fast (3 steps) and one slow (40
steps). Nothing tells the net these numbers; it has to move its loops there.
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
        target[k] += np.sqrt(2 * tau) * mean  # both parts equally loud

# %%
# Two columns, whose loops begin at 16 and 24 ticks, which are 8 and 12 steps: a sample stays for 2 ticks. Their neurons
# are the identity, so that what they remember is the leaky mean itself. A learned loop of such a neuron can pass 1 and
# run away, and does with ``forgetting="auto"``; the settings below are the best of eight that were tried.

ticks = 2
net = networks.columns(1, 2, 1, memory=(16, 24), activation="identity", dtype="float64", random_state=0)
loops = np.flatnonzero(net.topology.src == net.topology.dst)
print(f"{net.topology.n_edges} edges; influence costs {net.topology.influence_cost()} multiply-adds a tick")
stream = net.stream(learner="ekf", ticks_per_sample=ticks, forgetting=1e-5, p0=0.1)
every, outputs, memory = 50, [], [1 / (1 - net.weights[loops] ** ticks)]
for k in range(0, steps, every):
    outputs.append(stream.run(x[k : k + every, None], target[k : k + every, None])[:, 0])
    memory.append(1 / (1 - net.weights[loops] ** ticks))
out, memory = np.concatenate(outputs), np.array(memory)
error = np.square(out - target)
print("time constants learned:", np.sort(memory[-1]).round(1), "true:", constants)
print(f"error of the last 1000 steps, as a share of the variance: {error[-1000:].mean() / target.var():.1e}")

# %%
# The loops on their way, and what the net says at first and at the end, each value before its target was seen.

fig, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
for ax in axes:
    quiet_axes(ax)
axes[0].plot(every * np.arange(len(memory)), memory, color=POSITIVE)
for tau in constants:
    axes[0].axhline(tau, color=FAINT, ls=":", lw=1)
axes[0].set_yscale("log")
axes[0].set_yticks([3, 5, 10, 20, 40], ["3", "5", "10", "20", "40"])
axes[0].minorticks_off()
axis_names(axes[0], "step", "steps remembered")
panel_title(axes[0], "Time constants of the two loops (dotted: true)")
for ax, part, name in (
    (axes[1], slice(0, 120), "The first steps"),
    (axes[2], slice(steps - 120, steps), "The last ones"),
):
    at = np.arange(steps)[part]
    ax.plot(at, target[part], color=INK, lw=2.4, alpha=0.35, label="target")
    ax.plot(at, out[part], color=NEGATIVE, lw=1.1, label="net")
    axis_names(ax, "step", "")
    panel_title(ax, name)
    ax.set_ylim(-9, 9)
axes[1].legend(**legend_options(loc="upper right"))
plt.show()
