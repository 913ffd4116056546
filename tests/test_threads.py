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
def test_the_same_bits_with_any_number_of_threads(method, batch):
    m, X, y = problem(batch=batch)
    loss, grad = m.gradient(X, y, method=method, n_threads=1)
    for n_threads in (2, 3, 8):
        again = m.gradient(X, y, method=method, n_threads=n_threads)
        assert again[0] == loss
        np.testing.assert_array_equal(again[1], grad)
    np.testing.assert_array_equal(m.forward(X, n_threads=2), m.forward(X, n_threads=1))


def test_the_same_bits_for_states_and_jacobian():
    m, X, _ = problem(batch=300)
    np.testing.assert_array_equal(m.states(X, n_threads=2), m.states(X, n_threads=1))
    np.testing.assert_array_equal(m.jacobian(X, n_threads=2), m.jacobian(X, n_threads=1))


def test_a_large_batch_in_slabs_equals_its_pieces():
    m, X, y = problem("float64", batch=70000)
    want = sum(m.gradient(X[a : a + 10000], y[a : a + 10000])[1] for a in range(0, 70000, 10000)) / 7
    np.testing.assert_allclose(m.gradient(X, y)[1], want, rtol=1e-10, atol=1e-14)
    np.testing.assert_array_equal(m.forward(X)[65530:65540], m.forward(X[65530:65540]))
    np.testing.assert_array_equal(m.states(X)[:, 65530:65540], m.states(X[65530:65540]))


def test_calls_from_many_threads_at_once():
    """Numba's workqueue layer ends the process here; ours must not, and must be right."""
    m, X, y = problem(batch=3000)
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
        t.join(timeout=120)
    assert not any(t.is_alive() for t in threads)
    assert wrong == []


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_can_compute():
    program = """
        import os, warnings, numpy as np
        warnings.simplefilter("ignore")
        from meshnn import Mesh, Topology
        m = Mesh(Topology.mesh(3, 5, 2), random_state=0)
        X, y = np.ones((2000, 3)), np.zeros(2000, int)
        want = m.gradient(X, y, n_threads=2)[0]
        pid = os.fork()
        if pid == 0:
            os._exit(0 if m.gradient(X, y, n_threads=2)[0] == want else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "0\n", done.stderr


def test_an_error_in_a_part_leaves_the_workers_usable():
    m, X, y = problem(batch=5000)
    want = m.gradient(X, y, n_threads=1)
    bad = X.copy()
    bad[4000, 3] = np.nan
    for _ in range(5):
        with pytest.raises(ValueError, match="X holds nan at sample 4000, feature 3"):
            m.gradient(bad, y, n_threads=2)
        assert m.gradient(X, y, n_threads=2)[0] == want[0]


def test_a_worker_is_free_only_when_it_has_finished(monkeypatch):
    """The flag that ends the waiting is set before the worker is ready for the next job."""
    from meshnn.program import threads

    real = threading.Event.set

    def slow(event):
        time.sleep(0.05)
        real(event)

    assert threads.in_threads(4, 2, lambda p: p) == [0, 1, 2, 3]
    monkeypatch.setattr(threading.Event, "set", slow)
    for _ in range(3):
        assert threads.in_threads(4, 2, lambda p: time.sleep(0.01) or p) == [0, 1, 2, 3]


def test_an_interrupt_waits_for_the_workers():
    """Ctrl-C while another thread computes: it is raised, and the next call is right."""
    from meshnn.program import threads

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


def test_growth_scores_in_parts():
    m, X, y = problem("float64", batch=1000)
    src, dst = [9, 12, 30], [12, 9, 30]
    got = m.growth_scores(X, y, src=src, dst=dst, n_threads=2)
    np.testing.assert_array_equal(got, m.growth_scores(X, y, src=src, dst=dst, n_threads=1))
    np.testing.assert_allclose(got, m.growth_scores(X, y, src=src, dst=dst, method="tensor"), rtol=1e-10, atol=1e-14)
