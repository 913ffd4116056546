"""The same training in JAX: jit, lax.scan over the steps, backprop through the ticks, float32, Adam. Three variants:

* `masked`: one masked matrix and one product with the whole state per tick; the direct implementation.
* `split`: the product with the constant inputs is computed once, the first tick skips the recurrent product, and the
  last one only computes the outputs; the optimised implementation.
* `edges`: gather, multiply, segment-sum over the list of edges, without a dense matrix.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

WAYS = ("masked", "split", "edges")


def _outputs(way, topology, ticks, w, x, phi):
    t = topology
    n, c, o = t.n_neurons, t.n_clamped, t.n_outputs
    if way == "edges":
        # states as (n, batch), so that a row is a neuron
        clamped = x.T
        s = jnp.concatenate([clamped, jnp.zeros((n - c, x.shape[0]), x.dtype)])
        for _ in range(ticks):
            z = jax.ops.segment_sum(w[:, None] * s[t.src], t.dst, num_segments=n, indices_are_sorted=True)
            s = jnp.concatenate([clamped, phi(z[c : n - o]), z[n - o :]])
        return s[n - o :].T
    A = jnp.zeros((n, n), x.dtype).at[t.src, t.dst].set(w, unique_indices=True)
    if way == "masked":
        s = jnp.concatenate([x, jnp.zeros((x.shape[0], n - c), x.dtype)], axis=1)
        for _ in range(ticks):
            z = s @ A[:, c:]
            s = jnp.concatenate([x, phi(z[:, :-o]), z[:, -o:]], axis=1)
        return s[:, -o:]
    drive = x @ A[:c, c:]
    z = drive
    for k in range(1, ticks):
        s = jnp.concatenate([phi(z[:, :-o]), z[:, -o:]], axis=1)
        z = drive + s @ A[c:, c:] if k < ticks - 1 else drive[:, -o:] + s @ A[c:, -o:]
    return z[:, -o:]


def loss_function(way, topology, ticks, X, y, activation="relu"):
    """Return mean cross-entropy as a function of the edge weights."""
    x = jnp.concatenate([jnp.asarray(X), jnp.ones((len(X), int(topology.bias)), jnp.float32)], axis=1)
    labels = jnp.asarray(y)
    phi = {"relu": jax.nn.relu, "tanh": jnp.tanh}[activation]

    def loss(w):
        logits = _outputs(way, topology, ticks, w, x, phi)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1).mean()

    return loss


def trainer(way, topology, ticks, X, y, weights, steps, rate=1e-3):
    """Return a compiled function that takes `steps` steps of Adam and returns the losses."""
    value_and_grad = jax.value_and_grad(loss_function(way, topology, ticks, X, y))

    def step(carry, _):
        w, mean, square, k = carry
        loss, g = value_and_grad(w)
        k = k + 1
        mean = 0.9 * mean + 0.1 * g
        square = 0.999 * square + 0.001 * g * g
        w = w - rate * (mean / (1 - 0.9**k)) / (jnp.sqrt(square / (1 - 0.999**k)) + 1e-8)
        return (w, mean, square, k), loss

    @jax.jit
    def train(w):
        return jax.lax.scan(step, (w, jnp.zeros_like(w), jnp.zeros_like(w), 0.0), None, length=steps)[1]

    run = partial(train, jnp.asarray(weights))
    run().block_until_ready()
    return lambda: np.asarray(run())


def gradient(way, topology, ticks, X, y, weights, repeats, activation="tanh"):
    """Return a function that computes the gradient `repeats` times in one compiled loop (weights change slightly)."""
    value_and_grad = jax.value_and_grad(loss_function(way, topology, ticks, X, y, activation))

    @jax.jit
    def run(w):
        def step(w, _):
            loss, g = value_and_grad(w)
            return w - 1e-6 * g, loss

        return jax.lax.scan(step, w, None, length=repeats)[1]

    w = jnp.asarray(weights)
    run(w).block_until_ready()
    return lambda: np.asarray(run(w))
