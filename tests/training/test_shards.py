"""Shards, buckets and the summation tree: results do not depend on the number of workers."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from meshnn import Mesh, Topology
from meshnn.codes import StepRule
from meshnn.engine import Optimizer
from meshnn.tables.sources import RowBlock
from meshnn.training.api import as_samples
from meshnn.training.cluster import (
    EpochPart,
    ShardPlan,
    Transport,
    WorkerState,
    covering_nodes,
    run_steps,
    tree_sum,
)
from meshnn.training.dataset import LIMITS
from meshnn.training.samples import Epoch, RowTransform

N = 700


@examples(60)
@given(st.integers(1, 2000), st.integers(1, 2000), st.integers(0, 5), st.integers(1, 40))
def test_a_plan_has_every_row_once_in_the_shards_and_in_an_epoch(rows, size, seed, bucket_rows):
    before, LIMITS.bucket_rows = LIMITS.bucket_rows, bucket_rows
    try:
        plan = ShardPlan.of(rows, size)
    finally:
        LIMITS.bucket_rows = before
    assert plan.rows == rows
    assert plan.shards % plan.buckets == 0
    assert [plan.bounds(k)[0] for k in range(1, plan.shards)] == [plan.bounds(k)[1] for k in range(plan.shards - 1)]
    counts = [plan.count(batch) for batch in range(plan.batches)]
    assert sum(counts) == rows
    assert min(counts) > 0
    assert min(size, rows) <= counts[0] + plan.shards  # about the requested size
    for bucket in range(plan.buckets):
        expected = sum(plan.sizes[k] for k in plan.shards_of(bucket))
        seen = np.concatenate([plan.batch_rows(bucket, seed, batch) for batch in range(plan.batches)])
        assert sorted(seen.tolist()) == list(range(expected))


@given(st.integers(0, 6).map(lambda k: 1 << k), st.data())
def test_covering_nodes_have_the_given_buckets_as_leaves(buckets, data):
    first = data.draw(st.integers(0, buckets - 1))
    last = data.draw(st.integers(first + 1, buckets))
    leaves = [leaf for level, k in covering_nodes(range(first, last)) for leaf in range(k << level, (k + 1) << level)]
    assert leaves == list(range(first, last))


def test_the_order_of_summation():
    """Sums of numbers of very different size reveal the order of additions."""
    a = [1e16, 1.0, -1e16, 1.0, 3.0, 1e-3, 1e16, -1e16]
    want = ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]))
    assert tree_sum({(0, k): np.array([x]) for k, x in enumerate(a)}, (3, 0))[0] == want
    assert want != sum(a)


class ThreadTransport(Transport):
    """Workers in threads, which exchange messages through a dictionary."""

    def __init__(self, plan, workers, rank, box, barrier):
        super().__init__(plan, workers, rank)
        self.box, self.barrier, self.round = box, barrier, 0

    def exchange(self, messages):
        for k, message in enumerate(messages):
            self.box[self.round, self.rank, k] = np.ravel(message).copy()
        self.barrier.wait(600)
        found = [self.box[self.round, k, self.rank] for k in range(len(messages))]
        self.round += 1
        return found


@pytest.fixture
def preprocessing(monkeypatch):
    monkeypatch.setattr(LIMITS, "bucket_rows", 16)
    zero, one = np.zeros(2), np.ones(2)
    return RowTransform("cross_entropy", "float64", np.zeros(3), np.ones(3), zero, one, np.array([0, 1]))


def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 3))
    return RowBlock(X, (X[:, 0] * X[:, 1] > 0).astype(np.float64)[:, None], rng.uniform(0.1, 2.0, N))


def a_net():
    return Mesh(Topology.mesh(3, 4, 2, self_loops=True), 3, "tanh", dtype="float64", random_state=0)


def state_of(plan, buckets, preprocessing):
    rows, found = data(), {}
    for bucket in buckets:
        bounds = [plan.bounds(shard) for shard in plan.shards_of(bucket)]
        part = rows.take(slice(bounds[0][0], bounds[-1][1]))
        found[bucket] = preprocessing.samples(part, float(rows.weight.sum()))
    return WorkerState(plan, found, 1)


def together(workers, preprocessing, task):
    """Return the results of `task(state, transport, mesh)` of all workers, which run at the same time."""
    plan = ShardPlan.of(N, 130)
    assigned, box, barrier, found = plan.assignment(workers), {}, threading.Barrier(workers), [None] * workers

    def run(rank):
        state = state_of(plan, assigned[rank], preprocessing)
        found[rank] = task(state, ThreadTransport(plan, workers, rank, box, barrier), a_net())

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def steps(state, total, mesh):
    n, batches = mesh.n_parameters, state.plan.batches
    optimizer = Optimizer(StepRule.ADAM, (0.9, 0.999), 1e-8, 0.0, 1e-3, np.ones(n), np.zeros(n), np.zeros(n))
    for epoch in range(2):
        part = EpochPart(epoch, np.full(batches, 0.01), Epoch(), batches)
        now = run_steps(state, total, mesh.engine("epochs"), mesh.values, optimizer, part)
    return np.concatenate([mesh.values, optimizer.first, optimizer.second, now.sums])


def whole_sums(state, total, mesh):
    live = mesh.live_parameters()
    return np.concatenate([total(state.evaluate(mesh)), total(state.curvature(mesh, "auto", live))])


@pytest.mark.parametrize("sliced", [0, 2**20], ids=["in slices", "whole"])
@pytest.mark.parametrize("task", [steps, whole_sums])
def test_any_number_of_workers_gives_the_same_bits(task, sliced, preprocessing, monkeypatch):
    monkeypatch.setattr(LIMITS, "sliced_bytes", sliced)
    assert ShardPlan.of(N, 130).buckets == 8
    want = together(1, preprocessing, task)[0]
    for workers in (2, 3, 5, 8):
        for got in together(workers, preprocessing, task):
            np.testing.assert_array_equal(got, want)


def test_sums_are_those_of_all_samples_in_memory(preprocessing):
    rows, mesh = data(), a_net()
    samples = as_samples(mesh, rows.X, rows.y[:, 0].astype(int), "cross_entropy", rows.weight)
    live = mesh.live_parameters()
    want = samples.curvature(mesh, "auto", live, 1)
    found = together(3, preprocessing, whole_sums)[0]
    assert found[:2] == pytest.approx(samples.evaluate(mesh, 1), rel=1e-12)
    np.testing.assert_allclose(found[2:4], want[:2], rtol=1e-12)
    np.testing.assert_allclose(found[4 : 4 + len(live)], want.grad, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(found[4 + len(live) :].reshape(len(live), -1), want.matrix, rtol=1e-9, atol=1e-14)


def test_a_step_is_along_the_gradient_of_its_batch(preprocessing):
    plan, data_, mesh, rows = ShardPlan.of(N, 130), data(), a_net(), []
    for bucket in range(plan.buckets):
        first = plan.bounds(plan.shards_of(bucket)[0])[0]
        rows += (first + plan.batch_rows(bucket, 7, 1)).tolist()
    assert len(set(rows)) == len(rows) == plan.count(1)
    weight = data_.weight[rows] / data_.weight.mean()
    want_loss, want = mesh.gradient(data_.X[rows], data_.y[rows, 0].astype(int), sample_weight=weight)
    state = state_of(plan, range(plan.buckets), preprocessing)
    found = (
        tree_sum(state.gradient(mesh.engine("epochs"), mesh.values, 7, 1), plan.root)
        * data_.weight.sum()
        / data_.weight[rows].sum()
    )
    np.testing.assert_allclose(found[:-2], want, rtol=1e-9, atol=1e-14)
    assert found[-2] == pytest.approx(want_loss, rel=1e-12)
