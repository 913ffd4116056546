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
    "ADVANCE",
    "BLOCK",
    "DERIVE",
    "LEARN",
    "LOOK",
    "Batch",
    "BlockCourse",
    "Blocks",
    "Course",
    "Desk",
    "Filter",
    "Ledger",
    "Moments",
    "Net",
    "Pace",
    "PortableNet",
    "PortableRoom",
    "Room",
    "Set",
    "Sheet",
    "StreamCourse",
    "StreamLedger",
    "StreamPace",
    "StreamRoom",
    "Tangents",
    "Team",
    "TensorCourse",
    "TimedBatch",
    "TimedSet",
]

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U32 = NDArray[np.uint32]
Array = NDArray[Any]
#: Parameters, or entries, that are a thread's at a time: whoever takes them, the same are handled together.
BLOCK = 4096
#: What to do with a sample of a stream.
ADVANCE, LOOK, LEARN, DERIVE = 1, 2, 4, 8
#: Standard deviations that an input and a target of a stream are cut to.
CUT, FAR = 4.0, 100.0
#: Rows of the moments of a stream, see `standardise.py`, and how many.
SEEN, MEAN, VARIANCE, COUNT, CENTRE, SQUARES, WILD_ONES = range(7)
MOMENT_ROWS = 7
#: Rows of a strip of a covariance; parameters of a block are filled up to a multiple of it.
STRIP = 8
#: Places in the `memo` of a filter: samples, logarithm of q, mean square of how far steps agree. From NOISE on the
#: noise of every output, behind it the last change of every parameter.
SAMPLES, LOG_Q, MEAN_SQUARE, NOISE = range(4)
#: Places in the memo of a filter in `portable.py`.
MEMO_SAMPLES, MEMO_Q, MEMO_SQUARE = range(3)
#: Classes that a filter learns a sample with: of more, its own and the likeliest others.
AT_ONCE = 50


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


class TimedBatch(NamedTuple):
    """The same for a run in time, see `timed.py`. What is not asked for has length 0 where it is said."""

    X: Array  # as in Batch
    raw: Array
    y: Array  # (1 or ticks, chunks, m, L) targets, the same after every tick or not
    share: Array  # (ticks, chunks, 1, L) what a look after a tick counts; of a readout (1, chunks, 1, L)
    readout: Array  # (ticks or 0, chunks, 1, L) weights of the ticks in the outputs that are read
    stop: Array  # (1, chunks or 0, 1, L) the last tick at which a sample counts
    state: Array  # (batch or 0, n) states before the first tick
    loss: int
    size: int
    per: int
    ticks: int


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
    store: Array  # (rows, L) column blocks; in time, (ticks + 1) * n_outputs rows: dE/dy after each tick
    C: Array  # (n_outputs * n_gradient, L) the Jacobian of a chunk
    P: Array  # (n_outputs, L) what the curvature of the loss needs to know of the outputs


class Desk(NamedTuple):
    """What a worker of a layer has at hand, besides its room."""

    w: Array  # (entries,) weights in the order of the course's entries
    codes: I64  # (n,)
    X: Array  # (1, 1, n_inputs, L) the inputs of a chunk, later dE/dx
    raw: Array  # (1, 0, n_inputs) none
    total: Array  # (n, L) dE/dt of all ticks added up
    g: Array  # (gradient entries,) room for the gradient as kernels give it; none if that is what is wanted


class Sheet(NamedTuple):
    """Where a layer's weights come from, and where its gradients go."""

    reads: U32  # as in Ledger
    read_runs: I64
    gives: U32
    give_runs: I64
    ptr: I64  # (n_inputs + 1,) edges that leave input i
    dst: I64  # where they lead
    number: I64  # the value that each has as its weight
    n_values: int
    n_outputs: int


class Set(NamedTuple):
    """A training set as it came."""

    samples: Array  # (T, n, n_inputs)
    values: Array  # (1, n, m) targets
    weight: Array  # (1, n, 1) of the samples, with mean 1


class TimedSet(NamedTuple):
    """The same for runs in time; `TimedBatch` says what these are."""

    samples: Array  # (T, n, n_inputs)
    values: Array  # (1 or ticks, n, m)
    weight: Array  # (1 or ticks, n, 1) with mean 1 over samples
    readout: Array  # (ticks or 0, n, 1)
    stop: Array  # (1, n, 1)


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


class Filter(NamedTuple):
    """What a Kalman filter knows, and room to compute in. Parameters are in the order of its blocks, each filled up."""

    P: NDArray[np.float64]  # the blocks of the covariance, see `covariance.py`
    order: I64  # (M,) the parameter at each place; -1 fills up
    first: I64  # (blocks + 1,) places of block g are first[g] to first[g + 1]
    offset: I64  # (blocks,) where the strips of a block begin in P
    taken: I64  # (blocks,) places of a block that are not filled up
    memo: NDArray[np.float64]  # (3 + n_outputs + N,) all else it remembers, see `kalman.py`
    rule: NDArray[np.float64]  # settings, see `kalman.py`
    H: NDArray[np.float64]  # (n_outputs, M) room for dy / dtheta
    U: NDArray[np.float64]  # (n_outputs, M) room for H P
    S: NDArray[np.float64]  # (n_outputs, n_outputs) room for H P H', and so the next
    L: NDArray[np.float64]
    T: NDArray[np.float64]
    M: NDArray[np.float64]
    v: NDArray[np.float64]  # (8, n_outputs) room for vectors
    chosen: I64  # (n_outputs,) outputs that a sample is learned with, then the others
    few: NDArray[np.float64]  # (n_outputs,) of those chosen, the outputs; then the target


class StreamCourse(NamedTuple):
    """One sample of a stream: states, and the influence of every learned edge, see `streaming/influence.py`.

    Rows of a list come in groups with the same columns and the same sources of whole rows. J is flat: that of neuron o
    begins at `offset[o]`.
    """

    turns: I64  # (ticks,) the list of each tick of a sample
    start: I64  # (lists + 1,) rows of list q are start[q] to start[q + 1]
    rows: I64  # (R,) neuron
    lane: I64  # (R,) where its sum lies among those of its list, which are packed by activation
    ptr: I64  # (R + 1,) entries of row r
    col: I64  # (entries,) source
    into: I64  # (entries,) column of J that the edge itself is, within its row; -1 if it is not learned
    whole: I64  # (R,) how many of its entries, the first ones, carry whole rows of J on
    hop_ptr: I64  # (R + 1,) hops of row r that carry runs of columns on
    hop_col: I64  # (hops,) source
    hop_weight: I64  # (hops,) entry that has its weight
    hop_run: I64  # (hops, 2) first and last of its runs
    runs: I64  # (runs, 4) column of the source, column of the row, length, columns that go in vectors
    group_start: I64  # (lists + 1,) groups of list q
    groups: I64  # (groups, 3) first and last row, and columns filled up to a vector
    pack_start: I64  # (lists + 1,) rows of packed sums of list q
    pack: I64  # (packs,) activation of each
    offset: I64  # (n,) first column of each neuron
    outputs: I64  # (n_outputs, 3) first and last of `numbers`, and the first column in J
    numbers: I64  # the parameter of each column of an output
    n_inputs: int
    n_clamped: int
    n_outputs: int


class StreamRoom(NamedTuple):
    """What B streams beside each other are at, and buffers."""

    s: Array  # (B, n) states
    J: Array  # (B, 2, columns) influences, of which one is that of now
    side: I64  # (B,) which
    other: Array  # (n,) states of a look ahead that is forgotten
    T: Array  # (packs, L) sums, then states
    t: Array  # (packs * L,) the same
    D: Array  # (packs, L) slopes
    d: Array  # (packs * L,) the same
    panel: Array  # (most sources * block,) columns of the sources of a group of rows
    w: Array  # (entries,) weights in the order of the course
    Y: Array  # (n_outputs, L) outputs of up to L streams
    y: Array  # (m, L) their targets
    share: Array  # (1, L) how much each counts
    G: Array  # (n_outputs, L) dE/dY
    scratch: Array  # (2, L)
    grad: Array  # (n_numbers,) gradient of a step
    H: Array  # (n_outputs, n_parameters) derivatives of the outputs of a stream
    past_slopes: Array  # (depth, B, n_outputs, n_parameters) the same of the last samples, if targets come late
    past_outputs: Array  # (depth, B, n_outputs)
    x: Array  # (n_inputs,) a sample as the net sees it
    target: Array  # (B, m) targets, the same
    last: Array  # (n_inputs,) the last sample as it came, if samples are learned from again
    x_moments: NDArray[np.float64]  # (7, n_inputs), or none if inputs are taken as they are; see `standardise.py`
    y_moments: NDArray[np.float64]  # (7, m), or none
    past_x: Array  # (places, n_inputs) samples that may be learned from again, as they came
    past_t: Array  # (places, m) their targets
    clock: I64  # (8,) see `SEEN` and so on in `codes.py`


class StreamLedger(NamedTuple):
    """What a stream learns."""

    values: Array  # (n_numbers,) the parameters, which move, then what is fixed
    reads: I64  # (entries,) the number that each weight of the course is
    runs: I64  # (runs, 3) stretches of `numbers` of the course, see `runs_of`
    loss: int  # its code


class StreamPace(NamedTuple):
    """How fast a stream learns by first-order steps, and whether it remembers."""

    rate: float
    clip: float  # longest gradient
    carries: int  # 1 if the state is kept from sample to sample
    filters: int  # 1 if the learner is the Kalman filter


class PortableNet(NamedTuple):
    """The lists of a portable stream. Rows are neurons that are not clamped; groups are those of `portable.py`."""

    ptr: I64  # (rows + 1,) edges into each row
    col: I64  # (edges,) source, among all neurons
    num: I64  # (edges,) the number that is its weight
    code: I64  # (rows,) activation
    row_ptr: I64  # (groups + 1,) rows that the parameters of a group reach
    rows: I64  # row
    sub_ptr: I64  # (reached rows + 1,) edges into such a row from rows of its group
    sub_src: I64  # source, by its place in the group
    sub_num: I64  # the number that is its weight
    par_ptr: I64  # (groups + 1,) parameters of a group
    par: I64  # parameter
    edge_ptr: I64  # (parameters in groups + 1,) edges that have it as their weight
    edge_row: I64  # where such an edge leads to, by its place in the group
    edge_src: I64  # where it comes from, among all neurons
    out_row: I64  # (groups * n_outputs,) place of each output in a group; as many as the group has if it is not in it
    n_inputs: int
    n_clamped: int
    n_outputs: int
    ticks: int  # of a sample
    carries: int  # 1 if the state is kept from sample to sample
    loss: int
    learner: int  # ADAM or MOMENTUM
    filters: int  # 1 if the learner is the Kalman filter


class PortableRoom(NamedTuple):
    """What a portable stream remembers, and buffers; what a learner does not use has no length."""

    theta: Array  # (n_numbers,) the parameters, which move, then what is fixed
    s: Array  # (n,) states
    J: Array  # influences, group by group, a column of each parameter
    first: Array  # (n_parameters,) moments of Adam; velocity
    second: Array  # (n_parameters,)
    P: Array  # covariance, the upper half row by row
    last: Array  # (n_parameters,) the last change of the filter
    noise: Array  # (n_outputs,) variance of the targets
    memo: Array  # (3,) powers of the betas of Adam; of the filter see MEMO_SAMPLES and so on
    x_moments: Array  # (7 * n_inputs,) see `standardise.py`
    y_moments: Array  # (7 * n_outputs,)
    clock: I64  # (4,) see `SEEN` and so on in `codes.py`
    t: Array  # (rows,) new states, and from here on buffers
    d: Array  # (rows,) slopes
    w: Array  # weights of the edges of a group
    column: Array  # (most rows of a group,)
    h: Array  # (n_parameters,) derivatives of an output
    u: Array  # (n_parameters,) P h; gradient
    moved: Array  # (n_parameters,) the change of this sample
    g: Array  # (n_outputs,)
    target: Array  # (m,)
    other: Array  # (n,) states of a look
