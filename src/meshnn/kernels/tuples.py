"""What kernels are handed: a few named tuples of arrays. Imports no Numba.

    course   where to go: lists of rows and edges for every tick     (a method makes it, once a graph)
    net      weights in the order of the course's entries, activations
    batch    samples and targets in rows of samples
    room     where to put what is computed on the way: one for each worker

Kernels stride by rows of `ROW_BYTES`: L samples of a dtype.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.schedule.lists import Ops

__all__ = [
    "BLOCK",
    "Batch",
    "BlockCourse",
    "Blocks",
    "Course",
    "Ledger",
    "Moments",
    "Net",
    "Pace",
    "Room",
    "Set",
    "Tangents",
    "Team",
    "TensorCourse",
]

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U32 = NDArray[np.uint32]
Array = NDArray[Any]
#: Parameters, or entries, that are a thread's at a time: whoever takes them, the same are handled together.
BLOCK = 4096


class Tangents(NamedTuple):
    """Influences F[m, .][j, .] to push forward, one per (tick m, neuron j)."""

    tick: I64  # (T,) m
    neuron: I64  # (T,) j
    row: I64  # (T,) the row of j in the gradient list of tick m
    ptr: I64  # (T + 1,) into chain
    chain: U32  # lists to apply at ticks m + 1, m + 2, ...


class Blocks(NamedTuple):
    """Column blocks: all in-edges of one neuron share the lists that carry their influence on.

    Rows are stored compactly: at tick k the influence of block b lies in the rows of list `chain[b, k]`, in order.
    """

    neuron: I64  # (N,) j
    first: I64  # (N + 1,) edges of block b are first[b] to first[b + 1]
    src: I32  # (edges,) source of each edge
    eid: U32  # (edges,) the number it is derived by
    birth: I32  # (edges,) first tick at which the source can be non-zero
    room: I64  # (N,) rows to keep per edge
    offset: I64  # (N,) first row of block b in the store
    chain: I32  # (N, stop + 1) list at tick k; -1 while the block is empty


class Course(NamedTuple):
    """States, and a gradient by tangents (factored), by pulling back (adjoint), or none."""

    ops: Ops
    forward: I64  # (ticks + 1,) list that computes the states of tick k
    back: I64  # (ticks + 1,) list that pulls the adjoint from tick k + 1 to k, where `hops_back` asks for it
    hops_back: int  # up to 2: readout and one hop more (forward-only); ticks - 1: all the way (backprop)
    gradient_ops: Ops  # the same table, unless other edges than the graph's are asked for
    gradient: I64  # (ticks + 1,) list whose entries get a gradient at tick k
    tangents: Tangents
    drive: int  # list of what the clamped neurons give at every tick, if the others leave them out; else -1
    sweep: bool  # one list computes all neurons in topological order, in one place: `ticks` is 1
    clamps: I64  # (ticks + 1,) 1 where a list of tick k reads inputs


class BlockCourse(NamedTuple):
    """States and column blocks side by side."""

    ops: Ops
    forward: I64
    back: I64
    gradient_ops: Ops
    gradient: I64
    block_ops: Ops
    blocks: Blocks
    drive: int  # none: -1
    clamps: I64


class TensorCourse(NamedTuple):
    """A graph as it is."""

    ticks: int
    n: int
    n_inputs: int
    n_clamped: int
    n_outputs: int
    src: Array  # (n_edges,)
    dst: Array
    to_src: Array  # of the edges that get a gradient
    to_dst: Array
    number: U32  # the number that each of those is derived by


class Net(NamedTuple):
    """A net with weights."""

    w: Array  # (entries,) weights in the order of the course's entries; those of the blocks behind the others
    codes: I64  # (n,) activation of every neuron


class Batch(NamedTuple):
    """Samples in rows of samples; c counts chunks of L samples, the last one is filled up with its last sample."""

    X: Array  # (T, chunks, n_inputs, L) packed inputs; T is 1 if they do not change from tick to tick
    raw: Array  # (T, batch, n_inputs) the same as they came; looked at if X has no chunks
    y: Array  # (1, chunks, m, L) labels as numbers (m = 1), or values
    share: Array  # (1, chunks, 1, L) each sample's share of the mean; 0 for filled-up samples
    loss: int  # code of the loss
    size: int  # samples
    per: int  # samples in a chunk: L, or half as many if a small batch is to have two parts


class Room(NamedTuple):
    """Buffers of one worker; those that a method does not use have one row."""

    S: Array  # (ticks + 1, n, L) states after each tick, or fewer, which take turns. The bias is set for good
    D: Array  # (the same) phi'(t_k), where the activation is neither identity nor relu: read it with `slope`
    V: Array  # (3, n, L) dE/dt of a tick and the next, and of a tick that tangents begin at
    W: Array  # (n, L) dE/dt of all ticks added up, for the edges from clamped neurons
    U: Array  # (n, L) what clamped neurons give, the same at every tick
    panel: Array  # (columns, L) states of a run of rows, transposed
    T: Array  # (2, n, L) a tangent before and after a hop
    G: Array  # (n_outputs, L) dE/dy
    scratch: Array  # (2, L) row 1 gathers the shares of samples that are classified rightly
    store: Array  # (rows, L) column blocks
    C: Array  # (n_outputs * n_gradient, L) the Jacobian of a chunk
    P: Array  # (n_outputs, L) what the curvature of the loss needs to know of the outputs


class Set(NamedTuple):
    """A training set as it came."""

    samples: Array  # (T, n, n_inputs)
    values: Array  # (1, n, m) targets
    weight: Array  # (1, n, 1) of the samples, with mean 1


class Ledger(NamedTuple):
    """What is learned, and room for its gradient."""

    values: Array  # (n_values,) what the edges carry: first the parameters, which are learned, then what is fixed
    reads: U32  # (entries,) the value that each weight of the course is
    read_runs: I64  # (runs, 3) first and last of some of them, and the first value, if values follow each other; or -1
    gives: U32  # (entries,) the value that each entry of the gradient belongs to
    give_runs: I64  # the same; none, if `total` is the first part's row of `entries`
    entries: Array  # (parts, entries) the gradient of each part as kernels give it
    total: Array  # (n_values,) the gradient by the values


class Team(NamedTuple):
    """Threads that take steps together, each with a room of its own."""

    me: int
    count: int
    gate: I64  # where they meet, see `barrier.py`
    parts: I64  # (2,) parts of a batch, and of the last batch of an epoch
    found: NDArray[np.float64]  # (most parts, 2) loss and hits of each part
    norms: NDArray[np.float64]  # of the gradient, squared, for each block of parameters


class Pace(NamedTuple):
    """Which steps to take."""

    order: I64  # (epochs, n) the order of the samples in each epoch, where batches are smaller than the whole
    size: int  # samples in a batch
    done: int  # steps taken before
    rates: NDArray[np.float64]  # of every step


class Moments(NamedTuple):
    """What an optimiser is and remembers."""

    solver: int  # ADAM, MOMENTUM or NESTEROV
    first: Array  # (n_parameters,) mean of the gradient; velocity (of gradients, not of weights)
    second: Array  # (n_parameters,) mean square of the gradient; nothing
    penalised: Array  # (n_parameters,) how many times l1 and l2 count for each parameter
    beta1: float  # the momentum, if not of Adam
    beta2: float
    epsilon: float
    l1: float
    l2: float
