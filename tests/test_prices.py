"""Prices: what the work of a method costs in seconds, fitted to timings, and kept for a machine."""

import json
from dataclasses import asdict, fields, replace

import numpy as np
import pytest

from meshnn import Mesh, Topology
from meshnn.calibration import Timing, calibrate, cases, fit_prices, random_graph, ratios
from meshnn.plan import machine
from meshnn.plan.choice import DEARER, decide
from meshnn.plan.method import Cost
from meshnn.plan.prices import DEFAULT, NAMES, Prices, Work, amounts, as_prices


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "meshnn"


def test_every_kind_of_work_has_a_price():
    kinds = {field.name for field in fields(Work)} - {"held", "room", "lists"}
    assert kinds <= set(NAMES)
    assert all(price > 0 for price in DEFAULT.values)
    each, once = amounts(Work(), DEFAULT.caches)
    assert len(each) == len(once) == len(NAMES)


@pytest.mark.parametrize("kind", NAMES[: NAMES.index("reads")])
def test_work_is_paid_for_by_its_own_price(kind):
    work, doubled = Work(**{kind: 5.0}), replace(DEFAULT, **{kind: 2 * getattr(DEFAULT, kind)})
    paid = 5.0 * getattr(DEFAULT, kind) * (64 if kind == "influence" else 1)  # which is carried sample by sample
    assert DEFAULT.chunk(work, 64) == pytest.approx(paid)
    assert doubled.seconds(work, 3 * 64, 64) - DEFAULT.seconds(work, 3 * 64, 64) == pytest.approx(3 * paid)


def test_a_call_is_paid_once_and_rows_of_samples_each():
    work = Work(pulled=100.0, reads=10.0, gives=20.0)
    one, four = DEFAULT.seconds(work, 64, 64), DEFAULT.seconds(work, 4 * 64, 64)
    assert four - one == pytest.approx(3 * 100 * DEFAULT.pulled)
    assert one == pytest.approx(100 * DEFAULT.pulled + 10 * DEFAULT.reads + 20 * DEFAULT.gives + DEFAULT.call)


def test_tiles_compute_half_of_a_row_with_few_samples():
    tiles, single = Work(tiled=1e6), Work(pulled=1e6)
    for work, halves in ((tiles, 0.5), (single, 1.0)):
        price = 1e6 * (DEFAULT.tiled if work is tiles else DEFAULT.pulled)
        few, many, more = (DEFAULT.seconds(work, size, 64) - DEFAULT.call for size in (32, 33, 64 + 1))
        assert few == pytest.approx(halves * price)
        assert many == pytest.approx(price)
        assert more == pytest.approx((1 + halves) * price)


def test_what_no_cache_holds_is_dearer():
    sizes = [1e3, 1e5, 1e7, 1e9]
    for kind, place in (
        ("pulled", "near"),
        ("carried", "near"),
        ("kept", "held"),
        ("correlated", "room"),
        ("pulled", "lists"),
    ):
        seconds = [DEFAULT.chunk(Work(**{kind: 1e6, place: size}), 64) for size in sizes]
        assert seconds == sorted(seconds)
        assert seconds[-1] > 1.2 * seconds[0]


def test_fitted_prices_are_those_that_made_the_timings():
    """Timings made from known prices, where every kind of work is most of some timing: they are found again."""
    rng = np.random.default_rng(0)
    true = DEFAULT.with_values(np.array(DEFAULT.values) * rng.uniform(0.5, 2.0, len(NAMES)))
    timings = []
    for k in range(200):
        scale = dict.fromkeys(NAMES, 0.0) | {str(name): rng.uniform(0, 1) for name in rng.choice(NAMES, 4)}
        work = Work(**{name: 1e-3 * scale[name] / getattr(DEFAULT, name) for name in NAMES[: NAMES.index("scatter")]})
        work.near, work.room, work.held, work.lists = (float(rng.choice([1e3, 1e6, 3e7, 1e9])) for _ in range(4))
        cost = Cost("made", True, work, 64, 0.0, False)
        timings.append(Timing(str(k), cost, 64, cost.seconds(64, true)))
    found = fit_prices(timings, faith=1e-9)
    np.testing.assert_allclose(found.values, true.values, rtol=1e-2)
    assert all(ratio == pytest.approx(1.0, rel=1e-3) for ratio in ratios(timings, found).values())


def timing_of(name, work, factor):
    cost = Cost("made", True, work, 64, 0.0, False)
    return Timing(name, cost, 64, factor * cost.seconds(64))


def test_what_the_timings_do_not_show_keeps_its_price():
    usual = [timing_of(str(k), Work(correlated=1e7 * k), 1.0) for k in range(1, 8)]
    found = fit_prices([*usual, *(timing_of(f"slow {k}", Work(pulled=1e7 * k), 10.0) for k in range(1, 6))])
    assert found.pulled > 5 * DEFAULT.pulled
    assert found.dear == pytest.approx(DEFAULT.dear)
    assert found.correlated == pytest.approx(DEFAULT.correlated, rel=0.05)
    free = fit_prices([*usual, *(timing_of(f"free {k}", Work(pulled=1e7 * k), 1e-6) for k in range(1, 6))])
    assert 0 < free.pulled < 0.5 * DEFAULT.pulled


def test_a_slower_machine_is_slower_in_all_things():
    works = (Work(pulled=1e7), Work(correlated=1e7), Work(rows=1e6))
    found = fit_prices([timing_of(str(k), work, 4.0) for k, work in enumerate(works)])
    np.testing.assert_allclose(found.values, 4 * np.array(DEFAULT.values), rtol=1e-3)


def cost_of(name, forward_only, seconds):
    return Cost(name, forward_only, Work(pulled=seconds / DEFAULT.pulled), 64, 1000.0, False)


@pytest.mark.parametrize(("ratio", "chosen"), [(0.5, "factored"), (1.0, "factored"), (1.29, "factored"),
                                              (1.31, "adjoint"), (9.0, "adjoint")])  # fmt: skip
def test_forward_only_wins_ties(ratio, chosen):
    costs = [cost_of("factored", True, ratio), cost_of("adjoint", False, 1.0)]
    assert DEARER == 1.3
    assert decide(costs, ["factored", "adjoint"], 10**9).chosen == chosen
    assert decide(costs, ["factored", "adjoint"], 10**9, way_out=False).chosen == "factored"


def test_a_choice_does_not_depend_on_what_was_measured(own_cache):
    m = Mesh(Topology.mesh(3, 30, 2), 5, random_state=0)
    before = m.explain()
    upside_down = DEFAULT.with_values([price * (1000.0 if name in ("pulled", "correlated") else 0.001)
                                       for name, price in zip(NAMES, DEFAULT.values, strict=True)])  # fmt: skip
    machine.save_prices(upside_down)
    after = Mesh(Topology.mesh(3, 30, 2), 5, random_state=0).explain()
    assert (before.measured, after.measured) == (False, True)
    assert (before.chosen, before.reason) == (after.chosen, after.reason)
    assert after.milliseconds("adjoint") != before.milliseconds("adjoint")
    assert "not measured here" in before.summary
    assert "this machine's" in after.summary
    columns = dict(zip(after.columns, after.rows[-1], strict=True))
    assert float(columns["milliseconds"]) == pytest.approx(after.milliseconds("adjoint"), rel=0.1)


def test_prices_are_kept_and_read_back(own_cache):
    assert machine.known_prices() is None
    path = machine.save_prices(DEFAULT)
    assert path.parent == own_cache
    assert machine.known_prices() == DEFAULT == as_prices(json.loads(json.dumps(asdict(DEFAULT))))
    assert machine.price_files() == [path]
    for damage in ("", "[]", "{}", json.dumps(asdict(DEFAULT) | {"far": None})):
        path.write_text(damage)
        assert machine.known_prices() is None


def test_kernels_and_processor_have_prices_of_their_own(own_cache, monkeypatch):
    machine.save_prices(DEFAULT)
    with monkeypatch.context() as patch:
        patch.setattr(machine, "processor", lambda: "another")
        assert machine.known_prices() is None
    monkeypatch.setattr(machine, "_kernels", lambda: b"changed")
    assert machine.known_prices() is None


def test_caches_of_a_machine(tmp_path):
    for k, (level, kind, size) in enumerate([(1, "Data", "32K"), (1, "Instruction", "64K"), (2, "Unified", "512K"),
                                             (3, "Unified", "1048576K")]):  # fmt: skip
        folder = tmp_path / f"index{k}"
        folder.mkdir()
        for name, value in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{value}\n")
    assert machine.cache_sizes(tmp_path) == (32 * 1024, 512 * 1024, 64 * 2**20)
    assert machine.cache_sizes(tmp_path / "nothing") == (DEFAULT.caches[0], DEFAULT.caches[1], DEFAULT.caches[2])
    (tmp_path / "cpuinfo").write_text("processor: 0\nmodel name\t: Some Processor\n")
    assert machine.processor(tmp_path / "cpuinfo") == "Some Processor"


def test_random_graphs_have_the_edges_that_were_asked_for():
    t = random_graph(20, 100, 3, 5, inner=2)
    assert (t.n_edges, t.n_inputs, t.n_hidden, t.n_outputs) == (800, 20, 100, 3)
    assert (np.bincount(t.dst, minlength=t.n_neurons)[20:120] == 7).all()


def test_calibration_runs_the_kernels(own_cache, monkeypatch):
    """On two cases; what comes out is kept, predicts them, and `explain` speaks of it."""
    few = [case for case in cases() if case.name.startswith("2-5-2")][:2]
    monkeypatch.setattr("meshnn.calibration.cases", lambda: iter(few))
    told = []
    prices = calibrate(lambda *what: told.append(what))
    assert isinstance(prices, Prices)
    assert machine.known_prices() == prices
    assert [done for done, _, _ in told] == [0, 1, 2, 3, 4]
    assert Mesh(Topology.mesh(2, 5, 2), 2).explain().measured


def test_cases_name_every_kind_of_work():
    """Whatever has a price is paid in some case, tiles where there are any."""
    paid = set()
    for case in cases():
        if "000-5" not in case.name:
            mesh = Mesh(case.graph(), case.ticks, case.activation)
            work = mesh.explain(case.batch).decision.cost(case.method).work
            paid |= {name for name in NAMES if getattr(work, name, 0) > 0}
    assert paid >= set(NAMES[: NAMES.index("scatter")]) - {"tiled", "outer"}
