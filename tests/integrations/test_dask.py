"""Fits on Dask clusters: bit-identical on any cluster, also if a worker is lost."""

import os
import signal
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from meshnn import MeshClassifier, MeshRegressor
from meshnn.errors import DataError, MeshError
from meshnn.training import Checkpoint, structure
from meshnn.training.dataset import LIMITS

pytest.importorskip("distributed", reason="clusters need the extra dask")
dask_array = pytest.importorskip("dask.array")
integration = pytest.importorskip("meshnn.integrations.dask")
group = pytest.importorskip("meshnn.integrations.dask.group")

pytestmark = pytest.mark.slow  # a cluster takes seconds to start
N = 3000


@pytest.fixture(autouse=True)
def _small_buckets(monkeypatch):
    """Split batches of 256 rows into eight buckets."""
    monkeypatch.setattr(LIMITS, "bucket_rows", 32)


@contextmanager
def cluster(workers, processes=False):
    from distributed import Client, LocalCluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = LocalCluster(workers, threads_per_worker=1, processes=processes, dashboard_address=None, silence_logs=50)
        with made, Client(made) as client:
            yield client


def samples():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 5)).astype(np.float32)
    return X, np.array(["no", "yes", "perhaps"])[(X[:, 0] * X[:, 1] > 0) + (X[:, 2] > 1).astype(int)]


def divided(sizes, *arrays):
    """Return arrays with partitions of these sizes."""
    chunks = tuple(np.diff([0, *sizes, N]).tolist())
    return [dask_array.from_array(a, chunks=(chunks, *((size,) for size in a.shape[1:]))) for a in arrays]


def adam(**options):
    return MeshClassifier(6, solver="adam", max_epochs=3, l2=1e-4, batch_size=256, random_state=0, **options)


PARTITIONS = {1: (), 2: (1000,), 3: (1, 2, 700, 2999), 8: tuple(range(100, N, 97))}


@pytest.mark.parametrize("kind", ["adam", "lm", "prune"])
def test_any_cluster_gives_the_same_bits(kind):
    X, y = samples()
    found = []
    for workers, sizes in PARTITIONS.items():
        model, target = adam(structure=structure.Prune(to=40) if kind == "prune" else None), y
        if kind == "lm":
            model, target = MeshRegressor(3, solver="lm", max_epochs=6, random_state=0), X[:, 0] * X[:, 1] + X[:, 2]
        with cluster(workers):
            Xd, yd = divided(sizes, X, target)
            model.fit(Xd, yd)
        if kind == "prune":
            assert model.mesh_.topology.n_edges == 40
        found.append((model.mesh_.topology, model.mesh_.weights, model.history_["loss"]))
    for topology, weights, losses in found[1:]:
        assert topology == found[0][0]
        np.testing.assert_array_equal(weights, found[0][1])
        np.testing.assert_array_equal(losses, found[0][2])


def test_it_learns_as_in_memory_and_holds_rows_out():
    X, y = samples()
    with cluster(2):
        data = divided((1500,), X, y)
        model = MeshClassifier(8, batch_size=256, max_epochs=30, random_state=0).fit(*data)
        assert set(model.predict(X)) == set(y)
        assert model.l2_ > 0
        assert len(adam(early_stopping=True).fit(*data).validation_scores_) == 3
        assert len(adam().fit(*data, X_val=X[:100], y_val=y[:100]).validation_scores_) == 3
        shards = integration.open_collections(*data, None, True, adam()._settings())
        training, validation = shards.hold_out(0.2, 1)
        assert shards.labels == ["no", "perhaps", "yes"]
        assert training.n_rows + len(validation.X) == N
        assert len(validation.X) == pytest.approx(0.2 * N, rel=0.1)
        rows = np.concatenate([training.few(N).X, validation.X])
        np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(X, axis=0))
        np.testing.assert_allclose(shards.moments.mean, X.mean(axis=0, dtype=float), rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(shards.label_sums, [(y == label).sum() for label in shards.labels])
    near = MeshClassifier(8, batch_size=256, max_epochs=30, random_state=0).fit(X, y)
    assert abs(model.score(X, y) - near.score(X, y)) < 0.1
    assert model.feature_importances_.shape == (5,)


def test_frames_columns_weights_and_predictions():
    import dask.dataframe as dd
    import pandas as pd

    X, y = samples()
    frame = pd.DataFrame(X, columns=list("abcde")).assign(y=y, w=np.where(y == "no", 0.0, 2.0))
    with cluster(2):
        table = dd.from_pandas(frame, npartitions=3)
        model = adam().fit(table, "y", sample_weight="w")
        assert model.feature_names_in_.tolist() == list("abcde")
        assert model.classes_.tolist() == ["no", "perhaps", "yes"]
        Xd, yd, wd = divided((700,), X, y, frame["w"].to_numpy())
        np.testing.assert_array_equal(adam().fit(Xd, yd, sample_weight=wd).mesh_.weights, model.mesh_.weights)
        assert not np.array_equal(adam().fit(Xd, yd).mesh_.weights, model.mesh_.weights)
        features = table[list("abcde")]
        got = integration.predict(model, features).compute()
        assert got.tolist() == model.predict(frame[list("abcde")]).tolist()
        chances = integration.predict(model, features, "predict_proba").compute()
        np.testing.assert_array_equal(chances.to_numpy(), model.predict_proba(frame[list("abcde")]))
        assert model.predict(features).compute().tolist() == got.tolist()
        values = dask_array.from_array(X, chunks=(700, 5))
        plain = adam().fit(values, dask_array.from_array(y, chunks=700))
        np.testing.assert_array_equal(integration.predict(plain, values).compute(), plain.predict(X))
        np.testing.assert_array_equal(
            integration.predict(plain, values, "predict_proba").compute(), plain.predict_proba(X)
        )


def test_parquet_is_read_by_workers(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    X, y = samples()
    for k, rows in enumerate((slice(0, 1), slice(1, 1700), slice(1700, N))):
        table = pa.table({f"x{i}": X[rows, i] for i in range(5)} | {"y": y[rows]})
        parquet.write_table(table, tmp_path / f"{k}.parquet", row_group_size=300)
    with cluster(2) as client:
        got = integration.fit(client, adam(), tmp_path, "y").mesh_.weights
        want = adam().fit(*divided((500,), X, y)).mesh_.weights
    np.testing.assert_array_equal(got, want)


def test_a_checkpoint_goes_on_with_the_same_bits(tmp_path):
    X, y = samples()

    def stop(row, mesh):
        if row.epoch == 2:
            raise KeyboardInterrupt

    with cluster(2):
        data = divided((1200,), X, y)
        want = adam().fit(*data)
        with pytest.raises(KeyboardInterrupt):
            adam(callbacks=[Checkpoint(tmp_path / "c.mesh"), stop]).fit(*data)
    with cluster(3):  # another cluster with other partitions
        got = adam(callbacks=Checkpoint(tmp_path / "c.mesh")).fit(*divided((10, 2000), X, y))
    np.testing.assert_array_equal(got.mesh_.weights, want.mesh_.weights)
    assert got.history_["loss"].tolist() == want.history_["loss"].tolist()


def test_two_fits_on_one_cluster_do_not_meet():
    X, y = samples()

    def run(h):
        model = MeshClassifier(h, solver="adam", max_epochs=4, l2=1e-4, batch_size=256, random_state=h)
        return integration.fit(client, model, *data).mesh_.weights

    with cluster(2) as client, ThreadPoolExecutor(2) as pool:
        data = divided((1200,), X, y)
        for a, b in zip([run(3), run(5)], pool.map(run, (3, 5)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_what_is_wrong_is_told():
    X, y = samples()
    with pytest.raises(MeshError, match=r"distributed\.Client"):
        adam().fit(dask_array.from_array(X), dask_array.from_array(y))
    bad = X.copy()
    bad[1700, 2] = np.nan
    with cluster(2):
        for named, given in {
            "partition 1: row 701: feature 2": divided((1000,), bad, y),
            "1 partitions, X has 2": (*divided((1000,), X), *divided((), y)),
            "ndarray": (*divided((1000,), X), y),
            "y is missing": divided((1000,), X),
            "one class": divided((1000,), X, np.zeros(N)),
        }.items():
            with pytest.raises(DataError, match=named):
                adam().fit(*given)


# -- lost workers ------------------------------------------------------------------------------------------------------


def _at_third_step(number):
    """Send a signal to this worker in the middle of its third step from the call on."""
    from meshnn.training.cluster import Transport

    real, calls = Transport.__call__, []

    def total(self, sums):
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), number)
        return real(self, sums)

    Transport.__call__ = total


def test_a_worker_that_is_killed_changes_no_bit():
    X, y = samples()
    with cluster(1):
        want = adam().fit(*divided((800,), X, y))
    with cluster(3, processes=True) as client:
        victim = sorted(client.scheduler_info()["workers"])[1]
        client.run(_at_third_step, signal.SIGKILL, workers=[victim])
        with pytest.warns(UserWarning, match="reads its rows again"):
            got = adam().fit(*divided((100, 800, 2000), X, y))
    np.testing.assert_array_equal(got.mesh_.weights, want.mesh_.weights)


def test_a_worker_that_hangs_is_named(monkeypatch):
    X, y = samples()
    monkeypatch.setattr(group.WorkerGroup, "patience", 8.0)
    with cluster(2, processes=True) as client:
        victim = sorted(client.scheduler_info()["workers"])[1]
        pid = client.run(os.getpid, workers=[victim])[victim]
        client.run(_at_third_step, signal.SIGSTOP, workers=[victim])
        began = time.monotonic()
        try:
            with pytest.raises(MeshError, match=victim):
                adam().fit(*divided((100, 800, 2000), X, y))
        finally:
            os.kill(pid, signal.SIGCONT)
        assert time.monotonic() - began < 600
