"""Losses of a chunk, their gradient by the outputs and their curvature; one file each, chosen by a code.

    Y   (n_outputs, L)        outputs
    y   (1 or n_outputs, L)   labels as numbers, or target values
    r   (1, L)                each sample's share of the mean; 0 for filled-up samples
    G   (n_outputs, L)        becomes dE/dY, shares included
    P   (n_outputs, L)        what the columns of the curvature need to know of the outputs
    scratch (2, L)            row 1 gathers the shares of the samples that are classified rightly

A file has `loss(Y, y, r, G, scratch)`, which returns the loss, and `curve(Y, y, P)`. Where the Hessian by the outputs
is diagonal, P becomes that diagonal, and `diagonal.py` makes columns of it.
"""

from __future__ import annotations

from meshnn.codes import BINARY_CROSS_ENTROPY, CROSS_ENTROPY, HUBER, POISSON
from meshnn.kernels._jit import jit_inner
from meshnn.kernels.losses import binary_cross_entropy, cross_entropy, diagonal, huber, poisson, squared_error

__all__ = ["loss_chunk", "write_columns"]


@jit_inner
def loss_chunk(code, Y, y, r, G, scratch):
    """Share of the mean loss; its gradient goes to G."""
    if code == CROSS_ENTROPY:
        return cross_entropy.loss(Y, y, r, G, scratch)
    if code == HUBER:
        return huber.loss(Y, y, r, G, scratch)
    if code == POISSON:
        return poisson.loss(Y, y, r, G, scratch)
    if code == BINARY_CROSS_ENTROPY:
        return binary_cross_entropy.loss(Y, y, r, G, scratch)
    return squared_error.loss(Y, y, r, G, scratch)


@jit_inner
def write_columns(code, Y, y, r, C, live, P, R, column):
    """Write a square root of the curvature of a chunk: columns of R from piece `column` on; the next free piece.

    R (n_live, columns) has L samples next to each other in a piece; C is the Jacobian of the chunk.
    """
    if code == CROSS_ENTROPY:
        cross_entropy.curve(Y, y, P)
        return cross_entropy.columns(C, live, P, r, R, column)
    if code == HUBER:
        huber.curve(Y, y, P)
    elif code == POISSON:
        poisson.curve(Y, y, P)
    elif code == BINARY_CROSS_ENTROPY:
        binary_cross_entropy.curve(Y, y, P)
    else:
        squared_error.curve(Y, y, P)
    return diagonal.columns(C, live, P, r, R, column)
