"""How large a net is by default, and of which neurons: what `hidden="auto"` and `activation="auto"` mean."""

from __future__ import annotations

from typing import Any

from meshnn.mesh import Mesh
from meshnn.training.solvers import Choice

__all__ = ["activation_of", "hidden_of"]

#: Hidden neurons where values are learned with second-order steps, which need few; see benchmarks/defaults.py.
SMOOTH = 16
#: Hidden neurons otherwise, and up to how many samples; see benchmarks/tables.py.
NEURONS = ((16, 100), (32, 500), (48, 20_000), (64, float("inf")))
#: Edges of the hidden neurons up to so many samples, so that a fit takes some 2 s; with the cube root of more, more.
EDGES, SAMPLES = 3_000, 5_000
LEAST = 4
#: The fewest hidden neurons that share out, and the samples up to which none do: what is linear beyond the few samples
#: there are errs far beyond them.
SHARING, FEW = 8, 100
SHARED = ("relu", "elu")


def hidden_of(n_samples: int, n_inputs: int) -> int:
    """Hidden neurons for first-order steps on so many samples."""
    most = next(count for count, samples in NEURONS if n_samples <= samples)
    edges = EDGES * max(1.0, n_samples / SAMPLES) ** (1 / 3)
    # each is fed by all inputs, the bias and the hidden neurons: h (inputs + 1 + h) edges
    inputs = n_inputs + 1
    affordable = int(((inputs**2 + 4 * edges) ** 0.5 - inputs) / 2)
    return max(LEAST, min(most, affordable))


def activation_of(given: Any, mesh: Mesh, choice: Choice, n_samples: int) -> Any:
    """Of each hidden neuron: tanh, or by turns relu and elu where several learn by first-order steps alone.

    Many neurons with kinks and without learn most things, a square among them, which tanh, being odd, finds hard. With
    few of them, kinks cost more than they bring, and second-order steps mind them.
    """
    if not isinstance(given, str) or given != "auto":
        return given
    count = mesh.topology.n_hidden
    if choice.wants_float64 or count < SHARING or n_samples <= FEW:
        return "tanh"
    return [SHARED[k % len(SHARED)] for k in range(count)]
