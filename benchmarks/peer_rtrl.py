"""Dense recurrent nets with exact forward influence (RTRL) in JAX and in PyTorch. float32, Adam.

    h' = tanh(W z),  z = (h, x, 1)                     J'[i,k,l] = (1 - h'_i^2) (sum_j W[i,j] J[j,k,l] + [i=k] z_l)
    y  = v (h, 1)    reads the previous state, like meshnn with one tick per sample: both compute the same numbers

J is a dense (h, h, h + d + 1); a step is state, influence, gradient of the squared error, Adam.
"""

import numpy as np

RATE, B1, B2, EPS = 1e-3, 0.9, 0.999, 1e-8


def with_jax(W, v, X, Y):
    """Return a compiled function that runs the whole stream by `lax.scan` and returns the outputs."""
    import jax
    import jax.numpy as jnp

    h, width = W.shape
    own = np.arange(h)

    def adam(w, mean, square, g, k):
        mean, square = B1 * mean + (1 - B1) * g, B2 * square + (1 - B2) * g * g
        return w - RATE * (mean / (1 - B1**k)) / (jnp.sqrt(square / (1 - B2**k)) + EPS), mean, square

    def step(carry, sample):
        W, v, s, J, moments, k = carry
        x, target = sample
        k = k + 1
        read = jnp.concatenate([s, jnp.ones(1, s.dtype)])
        y = v @ read
        error = y - target
        gW, gv = jnp.einsum("i,ikl->kl", error * v[:h], J), error * read
        z = jnp.concatenate([s, x, jnp.ones(1, s.dtype)])
        s = jnp.tanh(W @ z)
        J = jnp.einsum("ij,jkl->ikl", W[:, :h], J).at[own, own].add(z)
        J = (1 - s * s)[:, None, None] * J
        W, a, b = adam(W, *moments[0], gW, k)
        v, c, d = adam(v, *moments[1], gv, k)
        return (W, v, s, J, ((a, b), (c, d)), k), y

    @jax.jit
    def run(W, v, X, Y):
        J = jnp.zeros((h, h, width), X.dtype)
        moments = tuple((jnp.zeros_like(w), jnp.zeros_like(w)) for w in (W, v))
        return jax.lax.scan(step, (W, v, jnp.zeros(h, X.dtype), J, moments, 0.0), (X, Y))[1]

    given = tuple(jnp.asarray(part, jnp.float32) for part in (W, v, X, Y))
    run(*given).block_until_ready()
    return lambda: np.asarray(run(*given))


def with_torch(W, v, X, Y):
    """Return the same function in PyTorch, without autograd and with preallocated buffers."""
    import torch

    h, width = W.shape
    first = [torch.tensor(np.asarray(part, np.float32)) for part in (W, v)]
    samples, targets = (torch.tensor(np.asarray(part, np.float32)) for part in (X, Y))

    @torch.inference_mode()
    def run():
        W, v = (part.clone() for part in first)
        moments = [(torch.zeros_like(part), torch.zeros_like(part)) for part in (W, v)]
        s, z, read = torch.zeros(h), torch.ones(width), torch.ones(h + 1)
        J, other = torch.zeros(h, h * width), torch.empty(h, h * width)
        out = torch.empty(len(samples))
        for t, (x, target) in enumerate(zip(samples, targets, strict=True)):
            read[:h] = s
            out[t] = y = v @ read
            error = y - target
            gradients = ((error * v[:h]) @ J).view(h, width), error * read
            z[:h], z[h : h + len(x)] = s, x
            s = torch.tanh(W @ z)
            torch.mm(W[:, :h], J, out=other)
            other.view(h, h, width).diagonal(dim1=0, dim2=1).add_(z[:, None])
            other.mul_((1 - s * s)[:, None])
            J, other = other, J
            for w, (mean, square), g in zip((W, v), moments, gradients, strict=True):
                mean.lerp_(g, 1 - B1)
                square.mul_(B2).addcmul_(g, g, value=1 - B2)
                root = (square / (1 - B2 ** (t + 1))).sqrt_().add_(EPS)
                w.addcdiv_(mean, root, value=-RATE / (1 - B1 ** (t + 1)))
        return out.numpy()

    return run
