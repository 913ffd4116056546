"""Any number of threads gives the same bits, and many callers at once are safe."""

import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from meshnn import Mesh, Topology
from meshnn.engine import threads as threads_of_meshnn
from meshnn.engine.threads import chunks_of, parts_of
from meshnn.plan import ROW_BYTES


def problem(dtype="float32", batch=5000):
    m = Mesh(
        Topology.mesh(8, 20, 4, density=0.4, random_state=0),
        ticks=3,
        activation="tanh",
        dtype=dtype,
        random_state=1,
    )
    rng = np.random.default_rng(2)
    return m, rng.standard_normal((batch, 8)), rng.integers(0, 4, batch)


@pytest.mark.parametrize(
    ("method", "batch"),
    [
        *((method, batch) for method in ("factored", "adjoint") for batch in (1, 64, 65, 1000, 5000, 70000)),
        *(("blocks", batch) for batch in (1, 64, 65, 1000, 5000)),  # slow on this graph
    ],
)
def test_the_same_bits_with_any_number_of_threads(method, batch, parts):
    m, X, y = problem(batch=batch)
    loss, grad = m.gradient(X, y, method=method, n_threads=1)
    straight = m.forward(X, n_threads=1)
    chunks = [min(8, chunks_of(size, m.dtype)) for size in (min(batch, 65536), batch - 65536) if size > 0]
    assert parts == [(chunk, 1) for chunk in chunks] * 2
    for n_threads in (2, 3, 8):
        parts.clear()
        again = m.gradient(X, y, method=method, n_threads=n_threads)
        # once it is known how to call the kernel, a batch of one part does not ask for threads
        assert parts == [(chunk, min(chunk, n_threads)) for chunk in chunks if chunks != [1]]
        assert again[0] == loss
        np.testing.assert_array_equal(again[1], grad)
    np.testing.assert_array_equal(m.forward(X, n_threads=2), straight)


@pytest.mark.parametrize("run", [
    lambda m, X, y, n: [m.states(X, n_threads=n)],
    lambda m, X, y, n: [m.jacobian(X, method="factored", n_threads=n)],
    lambda m, X, y, n: [m.jacobian(X, method="blocks", n_threads=n)],
    lambda m, X, y, n: [m.jacobian(X, method="adjoint", n_threads=n)],
    lambda m, X, y, n: [m.growth_scores(X, y, src=[9, 12, 30], dst=[12, 9, 30], n_threads=n)],
    lambda m, X, y, n: m.gradient(X, y, sample_weight=np.arange(300), n_threads=n),
])  # fmt: skip
def test_the_same_bits_whatever_is_computed(run, parts):
    m, X, y = problem(batch=300)
    one, count = run(m, X, y, 1), min(8, chunks_of(300, m.dtype))
    assert parts == [(count, 1)]
    assert count > 1
    parts.clear()
    for got, want in zip(run(m, X, y, 2), one, strict=True):
        np.testing.assert_array_equal(got, want)
    assert parts == [(count, 2)]


def test_parts_are_the_whole():
    """Up to eight runs of whole rows, one after the other, of about one length; fewer if there is little to do."""
    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        for size in (1, 64, 65, 1000, 65536):
            chunks = -(-size * dtype.itemsize // ROW_BYTES)
            assert chunks_of(size, dtype) == chunks
            found = parts_of(size, dtype)
            assert len(found) == max(1, min(8, chunks // 4))
            assert [begin for begin, _ in found] == [0, *(end for _, end in found[:-1])]
            assert found[-1][1] == chunks
            lengths = [end - begin for begin, end in found]
            assert max(lengths) - min(lengths) <= 1
    assert len(parts_of(65536, np.dtype(np.float32), work=3_000_000 / 65536)) == 1
    assert len(parts_of(65536, np.dtype(np.float32), work=3 * 3_000_000 / 65536)) == 3


def test_a_large_batch_in_slabs_equals_its_pieces():
    m, X, y = problem("float64", batch=70000)
    want = sum(m.gradient(X[a : a + 10000], y[a : a + 10000])[1] for a in range(0, 70000, 10000)) / 7
    np.testing.assert_allclose(m.gradient(X, y)[1], want, rtol=1e-10, atol=1e-14)
    np.testing.assert_array_equal(m.forward(X)[65530:65540], m.forward(X[65530:65540]))
    np.testing.assert_array_equal(m.states(X)[:, 65530:65540], m.states(X[65530:65540]))


def test_calls_from_many_threads_at_once(monkeypatch):
    """Numba's workqueue layer ends the process here; ours must not, and must be right."""
    monkeypatch.setattr(threads_of_meshnn, "LEAST_WORK", 1)
    m, X, y = problem(batch=3000)
    assert len(parts_of(3000, m.dtype, work=1.0)) > 1
    want = m.gradient(X, y, n_threads=1)
    wrong = []

    def work():
        for _ in range(20):
            loss, grad = m.gradient(X, y, n_threads=2)
            if loss != want[0] or not np.array_equal(grad, want[1]):
                wrong.append(loss)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=600)
    assert not any(t.is_alive() for t in threads)
    assert wrong == []


@pytest.mark.slow
def test_first_compilation_from_many_threads_at_once(tmp_path):
    """Threads that meet before anything is compiled, in a new process with an empty cache."""
    program = """
        import threading, numpy as np
        from meshnn import Mesh, Topology
        m = Mesh(Topology.mesh(3, 5, 2), random_state=0)
        X, y = np.ones((200, 3)), np.zeros(200, int)
        out = []
        def work(): out.append(m.gradient(X, y, n_threads=2)[0])
        ts = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in ts]; [t.join() for t in ts]
        assert len(out) == 4 and len(set(out)) == 1, out
        print("fine")
    """
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=env, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_can_compute():
    program = """
        import os, warnings, numpy as np
        warnings.simplefilter("ignore")
        from meshnn import Mesh, Topology
        from meshnn.engine import threads
        threads.LEAST_WORK = 1  # several parts
        m = Mesh(Topology.mesh(3, 5, 2), random_state=0)
        X, y = np.ones((2000, 3)), np.zeros(2000, int)
        want = m.gradient(X, y, n_threads=2)[0]
        assert threads._pool is not None
        pid = os.fork()
        if pid == 0:
            lone = threads._pool is None
            os._exit(0 if m.gradient(X, y, n_threads=2)[0] == want and lone and threads._pool is not None else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=600)
    assert done.stdout == "0\n", done.stderr


def test_an_error_in_a_part_leaves_the_workers_usable(parts):
    m, X, y = problem(batch=5000)
    want = m.gradient(X, y, n_threads=1)
    bad = X.copy()
    bad[4000, 3] = np.nan
    for _ in range(5):
        with pytest.raises(ValueError, match="X holds nan at sample 4000, feature 3"):
            m.gradient(bad, y, n_threads=2)
        assert m.gradient(X, y, n_threads=2)[0] == want[0]


def test_nobody_waits_for_busy_workers():
    """All workers are held up until the call has returned."""
    from meshnn.engine import threads

    go_on = threading.Event()
    pool = threads._workers()
    held = [pool.submit(go_on.wait) for _ in range(pool._max_workers)]
    try:
        assert threads.in_threads(4, 3, lambda p: p) == [0, 1, 2, 3]
    finally:
        go_on.set()
    assert all(one.result() for one in held)


def test_an_interrupt_waits_for_the_workers():
    """Ctrl-C while another thread computes: it is raised, and the next call is right."""
    from meshnn.engine import threads

    running = []

    def task(p):
        running.append(p)
        if threading.current_thread() is threading.main_thread():
            while len(running) < 2:
                time.sleep(0.001)
            raise KeyboardInterrupt
        time.sleep(0.2)
        running.clear()
        return p

    with pytest.raises(KeyboardInterrupt):
        threads.in_threads(2, 2, task)
    assert running == []  # the worker had ended
    assert threads.in_threads(3, 2, lambda p: p) == [0, 1, 2]


def test_growth_scores_in_parts(parts):
    m, X, y = problem("float64", batch=200)
    src, dst = [9, 12, 30], [12, 9, 30]
    got = m.growth_scores(X, y, src=src, dst=dst, n_threads=2)
    assert parts[0][0] > 1
    assert parts[0][1] == 2
    np.testing.assert_allclose(got, m.growth_scores(X, y, src=src, dst=dst, method="tensor"), rtol=1e-10, atol=1e-14)
