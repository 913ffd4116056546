"""Where a loss is a sum over outputs, so that its Hessian by them is diagonal."""

from __future__ import annotations

from meshnn.kernels._jit import jit_inline, jit_inner
from meshnn.kernels._row import load, mul, root, store, sub, where_equal, width

__all__ = ["columns", "counted"]


@jit_inline
def counted(share, value):
    """The value where a sample has a share, else 0: an infinite loss times no share would be NaN."""
    return where_equal(share, 0, sub(share, share), value)


@jit_inner
def columns(C, live, P, r, R, column):
    """Each sample gives a column sqrt(share H_o) J_o per output."""
    n_outputs = P.shape[0]
    count = C.shape[0] // n_outputs
    pieces = R.shape[1] // width(C)  # R as rows of samples: piece c of row e is row e * pieces + c
    for o in range(n_outputs):
        store(P, o, root(mul(load(r, 0), load(P, o))))
    for e in range(live.shape[0]):
        for o in range(n_outputs):
            store(R, e * pieces + column + o, mul(load(P, o), load(C, o * count + live[e])))
    return column + n_outputs
