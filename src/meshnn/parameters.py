"""`Ties`: the map from edges to the values that hold their weights.

The map `tied: (n_edges,) -> {-1, 0 .. n_parameters - 1}` assigns a parameter to each edge. An edge with -1 is *fixed*
(a delay line, a reservoir); several edges with one parameter are *tied* (a convolution, a symmetry). The *numbers* are
the distinct weights: the trained parameters, followed by one number per fixed edge. Without ties the numbers are the
weights themselves, and the map is not stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn import checks
from meshnn.arrays import Array, BoolArray, IntArray
from meshnn.errors import DataError

__all__ = ["Ties"]


class Ties:
    """The map from edges to numbers: trained parameters, followed by the weights of fixed edges.

    Parameters
    ----------
    n_edges : int
        Number of edges.
    tied : array_like of int (n_edges,), optional
        The parameter of each edge, -1 if its weight is fixed; by default each edge has its own parameter.

    Examples
    --------
    >>> from meshnn.parameters import Ties
    >>> ties = Ties(4, [0, 1, 0, -1])
    >>> ties.n_parameters, ties.n_numbers, ties.number.tolist()
    (2, 3, [0, 1, 0, 2])
    """

    def __init__(self, n_edges: int, tied: Any = None) -> None:
        given = None if tied is None else _checked(tied, n_edges)
        self.n_edges = n_edges
        self._number: IntArray | None = None  # None: each edge has its own number
        #: Whether each edge has its own parameter, in the order of the edges.
        self.plain = given is None or bool(np.array_equal(given, np.arange(n_edges)))
        if given is None or self.plain:
            self.n_parameters = self.n_numbers = n_edges
            return
        fixed = given < 0
        self.n_parameters = int(given.max(initial=-1)) + 1
        self._number = np.where(fixed, self.n_parameters + np.cumsum(fixed) - 1, given)
        self.n_numbers = self.n_parameters + int(fixed.sum())

    @property
    def number(self) -> IntArray:
        """The index of each edge's number `(n_edges,)`."""
        return np.arange(self.n_edges) if self._number is None else self._number

    @property
    def tied(self) -> IntArray:
        """The parameter of each edge `(n_edges,)`, -1 for fixed edges."""
        return np.where(self.fixed, -1, self.number)

    @property
    def fixed(self) -> BoolArray:
        """Mask of the edges whose weight is fixed."""
        found: BoolArray = self.number >= self.n_parameters
        return found

    @property
    def first(self) -> IntArray:
        """The first edge of each number `(n_numbers,)`."""
        found = np.empty(self.n_numbers, np.int64)
        found[self.number[::-1]] = np.arange(len(self.number))[::-1]
        return found

    def total(self, values: Any) -> Any:
        """Sum values per edge over the edges of each parameter: `(n_edges,)` to `(n_parameters,)`."""
        return values if self.plain else np.bincount(self.number, values, self.n_numbers)[: self.n_parameters]

    def spread(self, values: Any) -> Any:
        """Divide values per parameter equally among the edges of each: `(n_parameters,)` to `(n_edges,)`.

        Fixed edges get 0.
        """
        if self.plain:
            return values
        shares = values / np.bincount(self.number)[: self.n_parameters]
        return np.concatenate([shares, np.zeros(self.n_numbers - self.n_parameters)])[self.number]

    def numbers(self, weights: Array) -> Array:
        """Return the numbers of weights `(n_edges,)`, which must be equal where edges are tied."""
        if self.plain:
            return weights
        found = weights[self.first]
        wrong = np.flatnonzero(found[self.number] != weights)
        if wrong.size:
            e, p = int(wrong[0]), int(self.number[wrong[0]])
            other = int(self.first[p])
            raise DataError(
                f"edges {other} and {e} share parameter {p}, but their weights are {weights[other]} and {weights[e]}; "
                "give tied edges one weight, or set mesh.parameters"
            )
        return found

    def edited(self, origin: IntArray) -> tuple[Ties, IntArray]:
        """Return the ties of a changed graph and the old index of each of its parameters, -1 for new ones.

        `origin` is the old index of each edge of the changed graph, -1 for new edges.
        """
        if self.plain:
            return Ties(len(origin)), origin
        kept, new = origin >= 0, origin < 0
        before = np.where(kept, self.tied[np.maximum(origin, 0)], -1)
        used = np.unique(before[before >= 0])
        tied = np.where(before >= 0, np.searchsorted(used, before), -1)
        tied[new] = len(used) + np.arange(int(new.sum()))
        return Ties(len(origin), tied), np.concatenate([used, np.full(int(new.sum()), -1)])

    def together(self, edges: BoolArray) -> BoolArray:
        """Return the mask of these edges and of all edges tied to one of them."""
        if self.plain:
            return edges
        some = np.zeros(self.n_numbers, np.bool_)
        some[self.number[edges]] = True
        return some[self.number]

    def whole(self, edges: BoolArray) -> BoolArray:
        """Return the mask of those edges whose tied edges are all in `edges`, without fixed edges."""
        if self.plain:
            return edges
        every = np.ones(self.n_numbers, np.bool_)
        np.logical_and.at(every, self.number, edges)
        found: BoolArray = every[self.number] & ~self.fixed
        return found


def _checked(tied: Any, n_edges: int) -> IntArray:
    """Return `tied` as integers -1 to n_parameters - 1, of which all from 0 on are used."""
    given = checks.numbers("tied", tied)
    if given.shape != (n_edges,):
        raise DataError(f"tied must have shape ({n_edges},), one number per edge; got {given.shape}")
    if given.dtype.kind == "b" or not np.array_equal(given, np.trunc(given)) or (given < -1).any():
        raise DataError("tied must hold whole numbers: -1 for a fixed edge, otherwise a parameter index from 0")
    found = given.astype(np.int64)
    missing = np.setdiff1d(np.arange(found.max(initial=-1) + 1 if found.max(initial=-1) < n_edges else 0), found)
    if missing.size or found.max(initial=-1) >= n_edges:
        which = int(missing[0]) if missing.size else n_edges
        raise DataError(f"tied does not contain parameter {which}; number the parameters from 0 without gaps")
    return found
