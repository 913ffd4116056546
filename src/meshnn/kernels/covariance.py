"""The covariance of parameters in blocks, each symmetric, of which the lower half is kept.

A block of n parameters, filled up to a multiple of 8, lies in strips of 8 rows: strip k has the rows 8 k to 8 k + 7 and
of each the columns 0 to 8 k + 7, one row after the other. So half of the numbers are neither stored nor touched, every
row begins at a multiple of 64 bytes, and a strip is one stream through memory that is read once for both halves.

    P   the strips of all blocks, one block after the other
    at  where the strips of a block begin in P
"""

from __future__ import annotations

from meshnn.kernels._jit import jit_inner

__all__ = ["inflate", "multiply", "subtract"]

#: What a variance grows by at least: several hundred times the rounding of its row.
ROUNDING = 1e-13


@jit_inner
def multiply(P, at, J, u):
    """u = P J for the block whose strips begin at `at`."""
    n = J.shape[0]
    for j in range(n):
        u[j] = 0.0
    for i in range(0, n, 8):
        w = i + 8
        p0, p1, p2, p3 = P[at : at + w], P[at + w : at + 2 * w], P[at + 2 * w : at + 3 * w], P[at + 3 * w : at + 4 * w]
        at += 4 * w
        p4, p5, p6, p7 = P[at : at + w], P[at + w : at + 2 * w], P[at + 2 * w : at + 3 * w], P[at + 3 * w : at + 4 * w]
        at += 4 * w
        j0, j1, j2, j3 = J[i], J[i + 1], J[i + 2], J[i + 3]
        j4, j5, j6, j7 = J[i + 4], J[i + 5], J[i + 6], J[i + 7]
        a0, a1, a2, a3, a4, a5, a6, a7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(i):
            x = J[j]
            a0 += p0[j] * x
            a1 += p1[j] * x
            a2 += p2[j] * x
            a3 += p3[j] * x
            a4 += p4[j] * x
            a5 += p5[j] * x
            a6 += p6[j] * x
            a7 += p7[j] * x
            upper = j0 * p0[j] + j1 * p1[j] + j2 * p2[j] + j3 * p3[j]
            u[j] += upper + (j4 * p4[j] + j5 * p5[j] + j6 * p6[j] + j7 * p7[j])
        # the square on the diagonal is kept whole
        for j in range(i, w):
            x = J[j]
            a0 += p0[j] * x
            a1 += p1[j] * x
            a2 += p2[j] * x
            a3 += p3[j] * x
            a4 += p4[j] * x
            a5 += p5[j] * x
            a6 += p6[j] * x
            a7 += p7[j] * x
        u[i] += a0
        u[i + 1] += a1
        u[i + 2] += a2
        u[i + 3] += a3
        u[i + 4] += a4
        u[i + 5] += a5
        u[i + 6] += a6
        u[i + 7] += a7


@jit_inner
def subtract(P, at, u):
    """P -= u u', which is the same to the last bit in both halves of a square on the diagonal."""
    n = u.shape[0]
    for i in range(0, n, 4):
        w = i // 8 * 8 + 8
        p0, p1, p2, p3 = P[at : at + w], P[at + w : at + 2 * w], P[at + 2 * w : at + 3 * w], P[at + 3 * w : at + 4 * w]
        at += 4 * w
        a0, a1, a2, a3 = u[i], u[i + 1], u[i + 2], u[i + 3]
        for j in range(w):
            x = u[j]
            p0[j] -= a0 * x
            p1[j] -= a1 * x
            p2[j] -= a2 * x
            p3[j] -= a3 * x


@jit_inner
def inflate(P, at, count, q, ceiling):
    """The variances of a block's `count` parameters grow by q, less the nearer they are to the ceiling.

    They grow by a little of themselves in any case, more than a step may lose by rounding: P stays positive if q is 0.
    None exceeds the ceiling.
    """
    steep = q / ceiling
    for i in range(count):
        w = i // 8 * 8 + 8
        here = at + 4 * w * (w - 8) // 8 + (i % 8) * w + i
        v = P[here]
        P[here] = min(v * (1.0 + ROUNDING) + max(0.0, q - v * steep), ceiling)
