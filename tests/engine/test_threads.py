"""Results are bit-identical for any number of threads, and concurrent calls are safe."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from meshnn import Mesh, Topology
from meshnn.errors import DataError
from meshnn.plan import METHODS

THREADS = (1, 2, 3, 8, 2**70)


def problem(dtype="float32", batch=5000):
    topology = Topology.mesh(33, 50, 10, density=0.2, random_state=0)
    m = Mesh(topology, ticks=3, activation="tanh", dtype=dtype, random_state=1)
    rng = np.random.default_rng(2)
    return m, rng.standard_normal((batch, 33)), rng.integers(0, 10, batch)


def run(program, **options):
    """Run a program in a separate process and return its output."""
    text = textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("method", "batch"),
    [
        *((method, batch) for method in ("factored", "adjoint") for batch in (1, 64, 65, 128, 129, 1000, 5000)),
        *(("influence", batch) for batch in (1, 65, 300)),
    ],
)
def test_the_same_bits_with_any_number_of_threads(method, batch, dtype):
    m, X, y = problem(dtype, batch)
    loss, grad = m.gradient(X, y, gradient=method, n_jobs=1)
    outputs = m.forward(X, n_jobs=1)
    for n_jobs in THREADS[1:]:
        again = m.gradient(X, y, gradient=method, n_jobs=n_jobs)
        assert again[0] == loss
        np.testing.assert_array_equal(again[1], grad)
        np.testing.assert_array_equal(m.forward(X, n_jobs=n_jobs), outputs)


SOME = {"src": [50, 60, 90, 0], "dst": [60, 50, 90, 88]}


@pytest.mark.parametrize("run", [
    lambda m, X, y, n: m.states(X, n_jobs=n),
    *(lambda m, X, y, n, k=k: m.jacobian(X[:300], gradient=k, n_jobs=n) for k in METHODS),
    *(lambda m, X, y, n, k=k: m.growth_scores(X, y, **SOME, gradient=k, n_jobs=n) for k in METHODS),
    lambda m, X, y, n: m.gradient(X, y, sample_weight=np.arange(2000), n_jobs=n)[1],
])  # fmt: skip
def test_the_same_bits_whatever_is_computed(run):
    m, X, y = problem(batch=2000)
    for n_jobs in THREADS[1:]:
        np.testing.assert_array_equal(run(m, X, y, n_jobs), run(m, X, y, 1))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_threads_are_started_when_there_is_work_for_them():
    program = """
        import os, numpy as np
        from meshnn import Mesh, Topology
        m = Mesh(Topology.mesh(33, 50, 10), random_state=0)
        X, y = np.ones((5000, 33)), np.zeros(5000, int)
        def count(size, n):
            m.gradient(X[:size], y[:size], n_jobs=n)
            return len(os.listdir("/proc/self/task"))
        before = count(5000, 1)
        print(count(64, 4) - before, [count(5000, n) - before for n in (1, 3, 2, 8, 99)])
    """
    assert run(program) == "0 [0, 2, 2, 7, 7]\n"


def in_many_threads(count, work):
    """Run work(k) in `count` threads at the same time."""
    threads = [threading.Thread(target=work, args=(k,)) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=600)
    assert not any(t.is_alive() for t in threads)


def test_calls_from_many_threads_at_once():
    m, X, y = problem(batch=2000)
    want, wrong = m.gradient(X, y, n_jobs=1), []

    def work(k):
        for _ in range(20):
            loss, grad = m.gradient(X, y, n_jobs=2 + k % 2)
            if loss != want[0] or not np.array_equal(grad, want[1]):
                wrong.append(k)

    in_many_threads(6, work)
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_can_compute():
    program = """
        import os, threading, warnings, numpy as np
        warnings.simplefilter("ignore")
        from meshnn import Mesh, Topology
        m = Mesh(Topology.mesh(33, 50, 10), random_state=0)
        X, y = np.ones((2000, 33)), np.zeros(2000, int)
        want = m.gradient(X, y, n_jobs=3)[1]
        stop = threading.Event()
        def work():
            while not stop.is_set(): m.gradient(X, y, n_jobs=3)
        busy = threading.Thread(target=work)  # forks also happen in the middle of a call
        busy.start()
        codes = []
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                os._exit(0 if np.array_equal(m.gradient(X, y, n_jobs=3)[1], want) else 1)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        stop.set(); busy.join()
        print(set(codes), np.array_equal(m.gradient(X, y, n_jobs=3)[1], want))
    """
    assert run(program) == "{0} True\n"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_error_in_a_bucket_leaves_the_workers_usable(bad):
    m, X, y = problem(batch=5000)
    want = m.gradient(X, y, n_jobs=1)
    X[4000, 3], before = bad, X[4000, 3]
    for _ in range(5):
        with pytest.raises(DataError, match=f"X holds {bad} at sample 4000, feature 3"):
            m.gradient(X, y, n_jobs=2)
    X[4000, 3] = before
    assert m.gradient(X, y, n_jobs=2)[0] == want[0]


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
@pytest.mark.parametrize("call", [
    "list(train(m, X, y, solver='adam', batch_size=64, max_epochs=10**9, tol=0.0, l2=0.0))",
    "m.engine('epochs') and steps()",
])  # fmt: skip
def test_ctrl_c_ends_compiled_epochs(call):
    """The signal arrives within one call that would take hours; the weights stay finite, and the next call works."""
    program = f"""
        import numpy as np
        from meshnn import Mesh, Topology
        from meshnn.codes import StepRule
        from meshnn.engine import Optimizer, Steps
        from meshnn.training import train
        from meshnn.training.api import as_samples
        m = Mesh(Topology.mesh(33, 50, 10), random_state=0)
        X, y = np.ones((2000, 33)), np.zeros(2000, int)
        def steps():
            samples, n = as_samples(m, X, y, "cross_entropy"), m.n_parameters
            ready = Steps(m.engine("epochs"), samples.X, samples.targets, 2000, 2)
            state = Optimizer(StepRule.ADAM, (0.9, 0.999), 1e-8, 0.0, 0.0, *(np.zeros(n, np.float32) for _ in range(3)))
            ready.epochs(m.values, state, ready.order(np.random.default_rng(0), 10**6), np.full(10**6, 1e-9))
        print("ready", flush=True)
        try:
            {call}
        except KeyboardInterrupt:
            assert np.isfinite(m.gradient(X, y, n_jobs=2)[1]).all()
            print("interrupted")
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("interrupted\n", None)


def test_a_large_batch_in_slabs_equals_its_pieces():
    m = Mesh(Topology.mesh(8, 20, 4, density=0.4, random_state=0), 3, "tanh", dtype="float64", random_state=1)
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((70000, 8)), rng.integers(0, 4, 70000)
    want = sum(m.gradient(X[a : a + 10000], y[a : a + 10000])[1] for a in range(0, 70000, 10000)) / 7
    for n_jobs in (1, 2):
        np.testing.assert_allclose(m.gradient(X, y, n_jobs=n_jobs)[1], want, rtol=1e-10, atol=1e-14)
    np.testing.assert_array_equal(m.forward(X)[65530:65540], m.forward(X[65530:65540]))
    np.testing.assert_array_equal(m.states(X)[:, 65530:65540], m.states(X[65530:65540]))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_many_calls_take_no_more_memory_than_a_few():
    program = """
        import gc, os, numpy as np
        from meshnn import Mesh, Topology
        from meshnn.training import train
        X, y = np.ones((2000, 33), np.float32), np.zeros(2000, int)
        def some(count):
            for k in range(count):
                m = Mesh(Topology.mesh(33, 9, 4, density=0.3, random_state=k), random_state=0)
                for n in (1, 3):
                    m.gradient(X, y, n_jobs=n), m.forward(X, n_jobs=n)
                m.gradient(X[:9], y[:9], gradient="influence"), m.jacobian(X[:99])
                list(train(m, X[:100], y[:100], solver="adam", max_epochs=1, l2=0.0))
                try: m.gradient(X * np.nan, y)
                except ValueError: pass
            gc.collect()
            return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
        some(10)
        print(some(10) - some(60))
    """
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "16384"}  # free memory returns to the system
    assert float(run(program, env=env)) > -10.0  # MiB; one net with its plans and workspaces takes about 1 MiB
