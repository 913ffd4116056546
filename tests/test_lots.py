"""Lots, parts and the tree of sums: who has what changes no bit."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from meshnn import Mesh, Topology
from meshnn.codes import ADAM
from meshnn.engine import Optimizer
from meshnn.training import lots as module
from meshnn.training.api import as_samples
from meshnn.training.far import Look
from meshnn.training.lots import (
    Parts,
    ShardData,
    ShardPlan,
    Transport,
    WorkerState,
    covering,
    joined_held,
    root,
    rows_of_batch,
    run_steps,
)
from meshnn.training.samples import Epoch


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_a_cut_has_every_row_once(rows, size):
    cut = ShardPlan.of(rows, size)
    assert cut.rows == rows
    assert cut.lots % cut.parts == 0
    assert [cut.bounds(lot)[0] for lot in range(1, cut.lots)] == [cut.bounds(lot)[1] for lot in range(cut.lots - 1)]
    assert sum(cut.count(batch) for batch in range(cut.batches)) == rows
    assert all(cut.count(batch) > 0 for batch in range(cut.batches))
    first = cut.count(0)
    assert min(size, rows) <= first + cut.lots  # of about the size that was asked for


@examples(30)
@given(st.integers(1, 900), st.integers(1, 900), st.integers(0, 5), st.integers(1, 4))
def test_an_epoch_visits_every_row_once(rows, size, seed, part_rows):
    before, module.PART_ROWS = module.PART_ROWS, part_rows
    try:
        cut = ShardPlan.of(rows, size)
    finally:
        module.PART_ROWS = before
    for part in range(cut.parts):
        expected = sum(cut.sizes[lot] for lot in cut.of_part(part))
        seen = np.concatenate([rows_of_batch(cut, part, seed, batch) for batch in range(cut.batches)])
        assert sorted(seen.tolist()) == list(range(expected))


@given(st.integers(0, 6).map(lambda k: 1 << k), st.data())
def test_nodes_cover_what_they_are_to_cover_and_nothing_else(parts, data):
    first = data.draw(st.integers(0, parts - 1))
    last = data.draw(st.integers(first + 1, parts))
    leaves = [part for level, k in covering(range(first, last)) for part in range(k << level, (k + 1) << level)]
    assert leaves == list(range(first, last))


def test_the_tree_is_that_of_the_page():
    """Sums of numbers of very different size tell in which order they were added."""
    a = [1e16, 1.0, -1e16, 1.0, 3.0, 1e-3, 1e16, -1e16]
    want = ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]))
    leaves = {(0, k): np.array([x]) for k, x in enumerate(a)}
    assert root(leaves, (3, 0))[0] == want
    assert want != sum(a)


def test_rows_are_found_by_lot_and_by_part(monkeypatch):
    monkeypatch.setattr(module, "PART_ROWS", 8)
    cut = ShardPlan.of(1000, 64)
    rows = np.array([0, 1, 499, 500, 998, 999])
    for found, size in ((cut.by_lot(rows), cut.lots), (cut.by_part(rows), cut.parts)):
        per = cut.lots // size
        back = [cut.bounds(place * per)[0] + row for place, some in found.items() for row in some.tolist()]
        assert back == rows.tolist()


# -- workers -----------------------------------------------------------------------------------------------------------


class Post(Transport):
    """Workers in threads, who leave letters in a dictionary."""

    def __init__(self, cut, dealt, rank, box, meet):
        super().__init__(cut, dealt, rank)
        self.box, self.meet, self.round = box, meet, 0

    def swap(self, letters):
        for k, letter in enumerate(letters):
            self.box[self.round, self.rank, k] = np.ravel(letter).copy()
        self.meet.wait(600)
        found = [self.box[self.round, k, self.rank] for k in range(len(self.dealt))]
        self.round += 1
        return found


ROWS = 700


@pytest.fixture
def look(monkeypatch):
    monkeypatch.setattr(module, "PART_ROWS", 16)
    return Look("cross_entropy", "float64", np.zeros(3), np.ones(3), np.zeros(2), np.ones(2), np.array([0, 1]))


def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, 3))
    return X, (X[:, 0] * X[:, 1] > 0).astype(np.float64)[:, None], rng.uniform(0.1, 2.0, ROWS)


def a_net():
    return Mesh(Topology.mesh(3, 4, 2, self_loops=True), 3, "tanh", dtype="float64", random_state=0)


def desk_of(cut, mine, look):
    X, y, weight = data()
    held = {}
    for part in mine:
        bounds = [cut.bounds(lot) for lot in cut.of_part(part)]
        rows = slice(bounds[0][0], bounds[-1][1])
        held[part] = ShardData.of((X[rows], y[rows], weight[rows]), look, float(weight.mean()))
    return WorkerState(Parts(cut, mine), held, look, 1)


def together(workers, look, task):
    """What every worker returns for `task(desk, total, mesh)`, all at the same time."""
    cut = ShardPlan.of(ROWS, 130)
    dealt, box, meet, found = cut.dealt(workers), {}, threading.Barrier(workers), [None] * workers

    def run(rank):
        mesh = a_net()
        desk = desk_of(cut, dealt[rank], look)
        found[rank] = task(desk, Post(cut, dealt, rank, box, meet), mesh)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def steps(desk, total, mesh):
    n = mesh.n_parameters
    optimizer = Optimizer(ADAM, (0.9, 0.999), 1e-8, 0.0, 1e-3, np.ones(n), np.zeros(n), np.zeros(n))
    engine, now = mesh.engine("epochs"), Epoch()
    batches = desk.parts.cut.batches
    for epoch in range(2):
        now = run_steps(desk, total, engine, mesh.values, optimizer, epoch, np.full(batches, 0.01), Epoch(), batches)
    return np.concatenate([mesh.values, optimizer.first, optimizer.second, now.sums])


def whole_sums(desk, total, mesh):
    live = mesh.live_parameters()
    return np.concatenate([total(desk.evaluate(mesh)), total(desk.curvature(mesh, "auto", live))])


@pytest.mark.parametrize("sliced", [0, 2**20], ids=["in slices", "whole"])
@pytest.mark.parametrize("task", [steps, whole_sums])
def test_any_number_of_workers_gives_the_same_bits(task, sliced, look, monkeypatch):
    monkeypatch.setattr(module, "SLICED", sliced)
    assert ShardPlan.of(ROWS, 130).parts == 8
    want = together(1, look, task)[0]
    for workers in (2, 3, 5, 8):
        for got in together(workers, look, task):
            np.testing.assert_array_equal(got, want)


def test_sums_are_those_of_all_samples_in_memory(look):
    X, y, weight = data()
    mesh = a_net()
    samples = as_samples(mesh, X, y[:, 0].astype(int), "cross_entropy", weight)
    live = mesh.live_parameters()
    want = samples.curvature(mesh, "auto", live, 1)
    found = together(3, look, whole_sums)[0]
    assert found[:2] == pytest.approx(samples.evaluate(mesh, 1), rel=1e-12)
    np.testing.assert_allclose(found[2:4], want[:2], rtol=1e-12)
    np.testing.assert_allclose(found[4 : 4 + len(live)], want.grad, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(found[4 + len(live) :].reshape(len(live), -1), want.matrix, rtol=1e-9, atol=1e-14)


def test_a_step_is_along_the_gradient_of_its_batch(look):
    cut = ShardPlan.of(ROWS, 130)
    X, y, weight = data()
    mesh = a_net()
    rows = []
    for part in range(cut.parts):
        first = cut.bounds(cut.of_part(part)[0])[0]
        rows += (first + rows_of_batch(cut, part, 7, 1)).tolist()
    assert len(set(rows)) == len(rows) == cut.count(1)
    share = weight[rows] / weight.mean()
    want_loss, want = mesh.gradient(X[rows], y[rows, 0].astype(int), sample_weight=share)
    desk = desk_of(cut, range(cut.parts), look)
    found = root(desk.gradient(mesh.engine("epochs"), mesh.values, 7, 1), desk.parts.top) / share.sum()
    np.testing.assert_allclose(found[:-2], want, rtol=1e-9, atol=1e-14)
    assert found[-2] == pytest.approx(want_loss, rel=1e-12)


def test_rows_of_parts_are_joined():
    held = [ShardData(np.full((n, 2), n), np.full((n, 1), n), np.ones((n, 1))) for n in (1, 2)]
    assert joined_held(held).X[:, 0].tolist() == [1, 2, 2]
