"""The oracle: the model in plain loops over Python floats. It only imports math.

A net is `(n, n_clamped, n_outputs, A)` with A a list of lists; `phi` is one name per neuron.
"""

import math


def activate(name, t):
    """Return phi(t) and phi'(t)."""
    if name == "identity":
        return t, 1.0
    if name == "relu":
        return (t, 1.0) if t > 0 else (0.0, 0.0)
    if name == "leaky_relu":
        return (t, 1.0) if t > 0 else (0.01 * t, 0.01)
    if name == "elu":
        return (t, 1.0) if t > 0 else (math.expm1(t), math.exp(t))
    if name == "softplus":
        value = t + math.log1p(math.exp(-t)) if t > 0 else math.log1p(math.exp(t))
        return value, 1.0 / (1.0 + math.exp(-t))
    if name == "sigmoid":
        s = 1.0 / (1.0 + math.exp(-t))
        return s, 1.0 / (2.0 * math.cosh(0.5 * t)) ** 2
    if name == "tanh":
        s = math.tanh(t)
        return s, 1.0 / math.cosh(t) ** 2
    if name == "sin":
        return math.sin(t), math.cos(t)
    if name == "gauss":
        s = math.exp(-t * t)
        return s, -2.0 * t * s
    if name == "hardtanh":
        return (t, 1.0) if -1 < t < 1 else (math.copysign(1.0, t), 0.0)
    raise KeyError(name)


def run(A, n_clamped, n_outputs, phi, inputs):
    """Return states after every tick and the derivatives dy[o]/dA[i][j] after the last one, for one sample.

    `inputs` has one row of clamped values per tick, including the bias. The derivative is the paper's recursion per
    entry, with the derivatives of clamped neurons set to zero.
    """
    states, jacobians = run_in_time(A, n_clamped, n_outputs, phi, inputs, [0.0] * len(A))
    return states, jacobians[-1]


def run_in_time(A, n_clamped, n_outputs, phi, inputs, begin):
    """Return states and derivatives after every tick, from given initial states."""
    n = len(A)
    s = list(begin)
    states, jacobians, first = [], [], n - n_outputs
    P = [[[0.0] * n for _ in range(n)] for _ in range(n)]  # P[i][j][o] = ds[o] / dA[i][j]
    for x in inputs:
        for i in range(n_clamped):
            s[i] = x[i]
        states.append(list(s))
        new, slope = [0.0] * n, [0.0] * n
        for o in range(n_clamped, n):
            t = sum(s[i] * A[i][o] for i in range(n))
            new[o], slope[o] = activate(phi[o], t)
        Q = [[[0.0] * n for _ in range(n)] for _ in range(n)]
        for i in range(n):
            for j in range(n):
                for o in range(n_clamped, n):
                    total = sum(P[i][j][h] * A[h][o] for h in range(n_clamped, n))
                    if o == j:
                        total += s[i]
                    Q[i][j][o] = slope[o] * total
        P, s = Q, new
        jacobians.append([[[P[i][j][first + o] for j in range(n)] for i in range(n)] for o in range(n_outputs)])
    for i in range(n_clamped):
        s[i] = inputs[-1][i]
    states.append(list(s))
    return states, jacobians


def loss_and_slope(loss, y, target):
    """Return the loss of one sample and its derivative with respect to each output."""
    if loss == "squared_error":
        return sum(0.5 * (a - b) ** 2 for a, b in zip(y, target, strict=True)), [
            a - b for a, b in zip(y, target, strict=True)
        ]
    if loss == "huber":
        errors = [a - b for a, b in zip(y, target, strict=True)]
        value = sum(0.5 * d * d if abs(d) <= 1.0 else abs(d) - 0.5 for d in errors)
        return value, [max(-1.0, min(1.0, d)) for d in errors]
    if loss.startswith("quantile:"):
        level, width = float(loss.partition(":")[2]), 0.05
        errors = [a - b for a, b in zip(y, target, strict=True)]
        shift = width * (level - 0.5) ** 2
        value = sum(abs(d) / 2 - width / 4 + (0.5 - level) * d + shift for d in errors if abs(d) >= width)
        value += sum(d * d / (4 * width) + (0.5 - level) * d + shift for d in errors if abs(d) < width)
        return value, [max(-1.0, min(1.0, d / width)) / 2 + 0.5 - level for d in errors]
    if loss == "binary_cross_entropy":
        value = sum(math.log1p(math.exp(-abs(a))) + max(a, 0.0) - b * a for a, b in zip(y, target, strict=True))
        return value, [1.0 / (1.0 + math.exp(-a)) - b for a, b in zip(y, target, strict=True)]
    if loss == "poisson":
        value = sum(
            math.exp(a) - b * a + (b * math.log(b) - b if b > 0 else 0.0) for a, b in zip(y, target, strict=True)
        )
        return value, [math.exp(a) - b for a, b in zip(y, target, strict=True)]
    top = max(y)
    total = sum(math.exp(a - top) for a in y)
    slope = [math.exp(a - top) / total for a in y]
    slope[target] -= 1.0
    return top + math.log(total) - y[target], slope


def gradient(A, n_clamped, n_outputs, phi, batch, targets, loss, masks, begin):
    """Return the weighted mean loss and dE/dA (n, n) over all samples and ticks.

    `masks[b][k]` is the weight of sample b after tick k, `targets[b][k]` its target, `begin[b]` the initial states.
    """
    n = len(A)
    total_weight = sum(map(sum, masks))
    value = 0.0
    grad = [[0.0] * n for _ in range(n)]
    for inputs, wanted, weights, state in zip(batch, targets, masks, begin, strict=True):
        states, jacobians = run_in_time(A, n_clamped, n_outputs, phi, inputs, state)
        for k, weight in enumerate(weights):
            if weight == 0.0:
                continue
            part, slope = loss_and_slope(loss, states[k + 1][n - n_outputs :], wanted[k])
            value += weight / total_weight * part
            for o in range(n_outputs):
                for i in range(n):
                    for j in range(n):
                        grad[i][j] += weight / total_weight * slope[o] * jacobians[k][o][i][j]
    return value, grad
