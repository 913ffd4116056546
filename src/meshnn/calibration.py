"""The prices of this machine: the real kernels are timed on some small nets, once, in seconds.

The result is kept for this processor and these kernels; `explain` and the scaling study convert work to milliseconds
with it. Which method `auto` takes does not depend on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.mesh import Mesh
from meshnn.plan.machine import cache_sizes, save_prices
from meshnn.plan.method import Cost
from meshnn.plan.prices import DEFAULT, Prices, totals
from meshnn.topology import Topology

__all__ = ["Case", "Timing", "calibrate", "cases", "fit_prices", "random_graph", "ratios", "time_case", "time_cases"]

Progress = Callable[[int, int, str], None]
#: Seconds for the calls of one case, and the fewest and most calls.
BUDGET, FEWEST, MOST = 0.15, 3, 400
#: Cases that take longer than so many seconds, most of them to plan, are timed in the first round only.
ONCE = 1.0
#: How strongly prices stay where they were, beside the timings: what no net shows keeps its old price.
FAITH = 0.05
#: No price falls below this share of the old one: nothing is free, and what is could never get dearer again.
LEAST = 0.05


class Case(NamedTuple):
    """A gradient to be timed."""

    name: str
    graph: Callable[[], Topology]
    ticks: int
    activation: str
    batch: int
    method: str


class Timing(NamedTuple):
    """A prediction and what it took."""

    name: str
    cost: Cost
    batch: int
    seconds: float


def random_graph(inputs: int, hidden: int, outputs: int, fan_in: int, inner: int = 0, seed: int = 0) -> Topology:
    """Each hidden neuron reads `fan_in` random inputs and `inner` random hidden ones and feeds one output.

    >>> random_graph(20, 100, 3, 5, inner=2).n_edges
    800
    """
    rng = np.random.default_rng(seed)
    into = inputs + np.arange(hidden)
    edges = [np.stack([_different(rng, inputs, hidden, fan_in).ravel(), np.repeat(into, fan_in)], axis=1)]
    edges.append(np.stack([into, inputs + hidden + rng.permutation(hidden) % outputs], axis=1))
    if inner:
        sources = inputs + _different(rng, hidden, hidden, inner).ravel()
        edges.append(np.stack([sources, np.repeat(into, inner)], axis=1))
    return Topology(inputs, hidden, outputs, np.concatenate(edges), bias=False)


def _different(rng: np.random.Generator, of: int, rows: int, count: int) -> NDArray[np.int64]:
    """In every row so many different numbers below `of`: a random start and random steps, modulo it."""
    steps = rng.integers(1, max(of // count, 1) + 1, (rows, count))
    start = rng.integers(0, of, (rows, 1))
    found: NDArray[np.int64] = (np.cumsum(steps, axis=1) + start) % of
    return found


def cases() -> Iterator[Case]:
    """What is timed: every kind of work is most of the time of some case."""

    def mesh(features: int, hidden: int, outputs: int, density: float = 1.0) -> Callable[[], Topology]:
        return lambda: Topology.mesh(features, hidden, outputs, density=density, random_state=0)

    def sparse(inputs: int, hidden: int, fan_in: int, inner: int = 0) -> Callable[[], Topology]:
        return lambda: random_graph(inputs, hidden, 5, fan_in, inner)

    both, three = ("factored", "adjoint"), ("factored", "influence", "adjoint")
    for name, graph, ticks, activation, batch, methods in (
        ("2-5-2", mesh(2, 5, 2), 2, "relu", 64, ("factored",)),
        ("2-5-2", mesh(2, 5, 2), 8, "tanh", 512, three),
        ("2-15-2", mesh(2, 15, 2), 4, "relu", 700, three),
        ("2-15-2", mesh(2, 15, 2), 16, "tanh", 64, both),
        ("32-50-10 at 20%", mesh(32, 50, 10, 0.2), 3, "relu", 512, three),
        ("32-50-10 at 20%", mesh(32, 50, 10, 0.2), 8, "tanh", 128, both),
        ("32-50-10", mesh(32, 50, 10), 2, "relu", 512, ("factored",)),
        ("32-50-10", mesh(32, 50, 10), 3, "relu", 128, three),
        ("32-50-10", mesh(32, 50, 10), 16, "tanh", 512, ("adjoint",)),
        ("64-200-10", mesh(64, 200, 10), 2, "relu", 256, ("factored",)),
        ("64-200-10", mesh(64, 200, 10), 4, "relu", 64, both),
        ("300-2000-5, 8", sparse(300, 2000, 8), 2, "tanh", 256, ("factored",)),
        ("300-2000-5, 4 + 4", sparse(300, 2000, 4, 4), 3, "relu", 64, both),
        ("300-2000-5, 4 + 4", sparse(300, 2000, 4, 4), 12, "relu", 64, ("adjoint",)),
        ("1000-20000-5, 8 + 2", sparse(1000, 20_000, 8, 2), 2, "relu", 256, ("factored",)),
        ("1000-20000-5, 8 + 2", sparse(1000, 20_000, 8, 2), 3, "relu", 64, both),
        ("1000-20000-5, 8 + 2", sparse(1000, 20_000, 8, 2), 6, "tanh", 64, ("adjoint",)),
        ("1000-100000-5, 4", sparse(1000, 100_000, 4), 2, "relu", 128, ("factored",)),
        ("1000-400000-5, 2", sparse(1000, 400_000, 2), 2, "relu", 64, ("factored",)),
        ("4-40-2", mesh(4, 40, 2), 12, "tanh", 64, ("influence",)),
    ):
        for method in methods:
            yield Case(f"{name}, {batch}, {ticks} ticks, {activation}, {method}", graph, ticks, activation, batch,
                       method)  # fmt: skip


def time_case(case: Case, budget: float = BUDGET) -> Timing:
    """The best of several gradients on one thread, in processor time: other work on the machine counts less in it."""
    topology = case.graph()
    mesh = Mesh(topology, case.ticks, case.activation, random_state=0)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((case.batch, topology.n_inputs)).astype(np.float32)
    y = rng.integers(0, topology.n_outputs, case.batch)
    best, spent = float("inf"), 0.0
    mesh.gradient(X, y, gradient=case.method, n_threads=1)
    for k in range(MOST):
        start = time.thread_time()
        mesh.gradient(X, y, gradient=case.method, n_threads=1)
        took = time.thread_time() - start
        best, spent = min(best, took), spent + took
        if k + 1 >= FEWEST and spent > budget:
            break
    return Timing(case.name, mesh.explain(case.batch).decision.cost(case.method), case.batch, best)


def time_cases(progress: Progress = lambda done, total, what: None, rounds: int = 2) -> list[Timing]:
    """All of them, the best of some rounds: these lie apart, so that other work does not hit a case every time."""
    todo = list(cases())
    best: dict[str, Timing] = {}
    took: dict[str, float] = {}
    for k in range(rounds):
        for j, case in enumerate(todo):
            progress(k * len(todo) + j, rounds * len(todo), case.name)
            if k > 0 and took[case.name] > ONCE:
                continue
            start = time.perf_counter()
            timing = time_case(case, BUDGET / rounds)
            took[case.name] = time.perf_counter() - start
            if case.name not in best or timing.seconds < best[case.name].seconds:
                best[case.name] = timing
    progress(rounds * len(todo), rounds * len(todo), "")
    return list(best.values())


def fit_prices(timings: Iterable[Timing], prior: Prices = DEFAULT, faith: float = FAITH) -> Prices:
    """Prices, none negative, that make relative errors small; those of `prior` where the timings do not say."""
    from scipy.optimize import nnls

    found = list(timings)
    # a machine that is slower in all things is first of all that
    prior = prior.with_values(price / float(np.median(list(ratios(found, prior).values()))) for price in prior.values)
    old = np.array(prior.values)
    rows = [
        np.array(totals(timing.cost.work, timing.batch, timing.cost.lanes, prior.caches)) / timing.seconds
        for timing in found
    ]
    matrix = np.array(rows) * old  # in units of the old prices
    scale = np.sqrt(faith)
    new = np.ones(len(old))
    weight = np.ones(len(found))
    for _ in range(30):  # from relative errors to logarithms of ratios: half and twice are equally far
        system = np.concatenate([matrix * weight[:, None], scale * np.eye(len(old))])
        wanted = np.concatenate([weight, np.full(len(old), scale)])
        new = nnls(system, wanted)[0]
        predicted = np.maximum(matrix @ new, 1e-3)
        away = np.abs(predicted - 1.0)
        weight = np.where(away > 1e-6, np.abs(np.log(predicted)) / np.maximum(away, 1e-6), 1.0)
    return prior.with_values((old * np.maximum(new, LEAST)).tolist())


def ratios(timings: Iterable[Timing], prices: Prices) -> dict[str, float]:
    """Predicted over measured."""
    return {timing.name: timing.cost.seconds(timing.batch, prices) / timing.seconds for timing in timings}


def calibrate(progress: Progress = lambda done, total, what: None, keep: bool = True) -> Prices:
    """Time the kernels of this machine and fit its prices; they are kept for `explain` if they can be."""
    prices = fit_prices(time_cases(progress), replace(DEFAULT, caches=cache_sizes()))
    if keep:
        save_prices(prices)
    return prices
