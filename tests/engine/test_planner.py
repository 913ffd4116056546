"""The choice of the gradient method, its predicted cost, and the fallback when memory is short."""

import re

import numpy as np
import pytest

from cases import close
from meshnn import Mesh, Topology
from meshnn.errors import MemoryLimitError
from meshnn.plan import METHODS, Cost, decide
from meshnn.plan.limits import PlanningLimits


def test_auto_is_forward_only_at_few_ticks(mesh, batch):
    text = str(mesh.explain(batch_size=64))
    for word in (*METHODS, "exact", "forward-only", "multiply-adds", "bytes", "<- auto"):
        assert word in text
    assert mesh.explain().chosen == "factored"
    assert "cheapest exact forward-only" in mesh.explain().reason
    np.testing.assert_array_equal(mesh.gradient(*batch)[1], mesh.gradient(*batch, gradient="factored")[1])


def test_auto_leaves_forward_only_when_it_takes_longer(batch):
    t = Topology.mesh(3, 60, 2, random_state=0)
    m = Mesh(t, ticks=8, activation="tanh", random_state=0)
    assert m.explain().chosen == "adjoint"
    assert "more than 1.3" in m.explain().reason
    X, y = batch
    assert m.engine("gradient", "forward", 100).plan.method.forward_only
    close(m.gradient(X, y)[1], m.gradient(X, y, gradient="forward")[1], 1e-4)


def test_the_table_shows_the_costs_that_are_compared():
    found = Mesh(Topology.mesh(5, 20, 3), ticks=8, activation="tanh").explain()
    shown = {row[0]: row[found.columns.index("cost")].split() for row in found.rows}
    value = {name: float(number) * {"k": 1e3, "M": 1e6, "G": 1e9}[unit] for name, (number, unit) in shown.items()}
    ratio = value["factored"] / value["adjoint"]
    assert float(re.search(r"([\d.]+) times", found.reason)[1]) == pytest.approx(ratio, rel=0.1)


@pytest.mark.parametrize(("ratio", "chosen"), [(0.5, "factored"), (1.29, "factored"), (1.31, "adjoint")])
def test_forward_only_is_taken_up_to_a_factor(ratio, chosen):
    def cost(name, forward_only, multiply_adds):
        return Cost(name, forward_only, multiply_adds, 0.0, 0.0, 0.0, 1.0, 1000.0, False)

    costs = [cost("factored", True, ratio), cost("adjoint", False, 1.0)]
    assert decide(costs, ["factored", "adjoint"], 10**9).chosen == chosen
    assert decide(costs, ["factored", "adjoint"], 10**9, backprop=False).chosen == "factored"


def test_a_rate_is_measured_on_request(mesh):
    assert mesh.explain().rate is None
    found = mesh.explain(measure=True)
    assert found.rate == found.decision.cost(found.chosen).multiply_adds * 64 / found.seconds > 0
    assert "multiply-adds per second" in str(found)


def sizes(lists):
    """Return the numbers of entries and rows of every list of a table."""
    ends = lists.ptr[lists.start].astype(int)
    return np.diff(ends), np.diff(lists.start.astype(int))


@pytest.mark.parametrize("jacobian", [False, True])
@pytest.mark.parametrize("method", ["factored", "adjoint"])
@pytest.mark.parametrize("ticks", [1, 2, 3, 5])
@pytest.mark.parametrize("density", [0.4, 1.0])
def test_costs_count_what_kernels_visit(method, ticks, jacobian, density):
    """The operations of a plan are the entries and rows of its lists that the kernels visit."""
    m = Mesh(Topology.mesh(4, 12, 3, density=density, random_state=3), ticks, activation="tanh")
    plan = m.engine("jacobian" if jacobian else "gradient", method).plan
    c = plan.course
    entries, rows = sizes(c.lists)
    projection = c.input_projection
    assert (projection >= 0) == (density == 1 and ticks > 2 and not jacobian)
    assert (len(c.lists.padding) > 0) == (density == 1 and ticks > 2 and not jacobian)
    pulled = [*c.forward[1:], *([projection] if projection >= 0 else [])]
    visited = states = int(entries[pulled].sum())
    hops = ticks - 1 if method == "adjoint" else 0 if jacobian else min(2, ticks - 1)
    passes = 3 if jacobian else 1
    back = c.back[ticks - hops : ticks] if ticks > 1 else []
    visited += passes * sum(int(entries[q]) for q in back)
    if method == "adjoint":
        visited += passes * states
    else:
        visited += int(entries[c.gradient[ticks]]) if jacobian else states
        fan_in = np.diff(c.grad_lists.ptr.astype(int))
        for a in range(len(c.tangents.tick)):
            chain = c.tangents.chain[c.tangents.ptr[a] : c.tangents.ptr[a + 1]]
            visited += int(entries[chain].sum()) + int(rows[chain[-1]]) * (fan_in[c.tangents.row[a]] if jacobian else 1)
    assert plan.cost.multiply_adds == visited
    activated = np.concatenate([c.lists.rows[c.lists.start[q] : c.lists.start[q + 1]] for q in c.forward[1:]])
    assert plan.cost.activations == (activated < 17).sum()


def test_too_little_memory(mesh, batch, monkeypatch):
    import meshnn.engine.engines as module

    m = Mesh(Topology.mesh(3, 100, 2, density=0.1, random_state=0), ticks=6, activation="tanh")
    costs = {c.method: c.bytes for c in m._engines.costs(6)}
    between = int((costs["adjoint"] + costs["factored"]) / 2)
    monkeypatch.setattr(module, "available_memory", lambda: between)
    with pytest.raises(MemoryLimitError, match=r'"factored" at 6 ticks would need .*iB, .* has .*iB'):
        m.gradient(*batch, gradient="factored")
    monkeypatch.setattr(module, "available_memory", lambda: 20_000)
    with pytest.raises(MemoryLimitError, match="fewer ticks"):
        m.gradient(*batch)
    monkeypatch.setattr("meshnn.memory.available_memory", lambda: 100_000)
    with pytest.raises(MemoryLimitError, match=r"the Jacobian of this batch would need .* pass fewer samples"):
        Mesh(mesh.topology, dtype="float64").jacobian(batch[0])
    src, dst = np.divmod(np.arange(105 * 105), 105)
    monkeypatch.setattr(module, "available_memory", lambda: 10**12)
    needed = m._engines.candidates("adjoint", 6, (src, dst), 100, None).plan.cost.bytes
    monkeypatch.setattr(module, "available_memory", lambda: int(needed) - 1)
    with pytest.raises(MemoryLimitError, match=r'"adjoint" for 11025 edges would need .*; request fewer edges'):
        m.growth_scores(*batch, src=src, dst=dst, gradient="adjoint")


def test_the_sampled_cost_is_near_the_exact_one(monkeypatch):
    import meshnn.plan.draft as module

    t = Topology.mesh(10, 400, 5, density=0.02, random_state=0)
    exact = Mesh(t)._engines.costs(4)
    monkeypatch.setattr(module, "LIMITS", PlanningLimits(sample=100))
    whole, sampled = exact[0], Mesh(t)._engines.costs(4)[0]
    assert not whole.estimated
    assert sampled.estimated
    assert sampled.operations == pytest.approx(whole.operations, rel=0.2)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("jacobian", [False, True])
def test_counted_and_compiled_plans_agree(method, jacobian):
    """The cost estimate and the compiled plan of a method use the same traversal."""
    need = "jacobian" if jacobian else "gradient"
    for ticks in (1, 2, 3, 6):
        m = Mesh(Topology.mesh(3, 14, 2, density=0.3, random_state=1), ticks, activation="tanh")
        counted = next(c for c in m._engines.costs(ticks, jacobian=jacobian) if c.method == method)
        assert m.engine(need, method).plan.cost == counted


def test_plan_too_large():
    from meshnn.plan import ListBuilder, PlanTooLargeError, Schedule
    from meshnn.plan.lists import narrow

    t = Topology.mesh(4, 12, 3)
    with pytest.raises(PlanTooLargeError):
        Schedule(t, 6, Mesh(t).awake).pulls(ListBuilder(limit=1000), t.src, t.dst)
    with pytest.raises(PlanTooLargeError):
        narrow(np.array([0, 2**32]))


def test_memory_in_a_container(tmp_path):
    from meshnn.memory import _limits

    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text("anon 300\ninactive_file 500\n")
    assert 600 in _limits(tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert 600 not in _limits(tmp_path)
