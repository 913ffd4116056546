"""What is said while it trains."""

from types import SimpleNamespace

import pytest
from sklearn.datasets import load_iris

from meshnn import MeshClassifier
from meshnn.training import History, HistoryRow, reporting

X, Y = load_iris(return_X_y=True)


def row(epoch, restart=0, note=""):
    return HistoryRow(epoch, 0.5, float("nan"), 0.75, 1.0, 0.01, 2.5, 61, restart, note)


def said(monkeypatch, capsys, times, epochs, restarts=1):
    """The lines of a run whose rows come at given times; epochs are 1, 2, ..."""
    settings = SimpleNamespace(max_epochs=epochs, n_restarts=restarts)
    trainer = SimpleNamespace(settings=settings, history=History(), epochs=epochs)
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(reporting, "time", SimpleNamespace(monotonic=lambda: clock.now))
    with reporting._lines(trainer) as show:
        for k, clock.now in enumerate(times):
            trainer.history.append(row(k % epochs + 1, k // epochs))
            show(trainer.history[-1])
    out, errors = capsys.readouterr()
    assert out == ""
    return errors.splitlines()


def test_a_fast_run_says_how_it_ended(monkeypatch, capsys):
    lines = said(monkeypatch, capsys, [0.001 * k for k in range(100)], 100)
    assert lines == ["epoch 100 of 100  loss 0.5  accuracy 0.750  2.50 s"]


def test_a_tenth_is_worth_a_line(monkeypatch, capsys):
    lines = said(monkeypatch, capsys, [2.0 * k for k in range(1, 31)], 100)
    assert [int(line.split()[1]) for line in lines] == [3, 6, 9, 12, 15, 18, 21, 24, 27, 30]  # 6 s are more than 5
    lines = said(monkeypatch, capsys, [0.2 * k for k in range(1, 101)], 100)
    assert [int(line.split()[1]) for line in lines] == list(range(10, 101, 10))


def test_slow_runs_speak_up(monkeypatch, capsys):
    lines = said(monkeypatch, capsys, [20.0 * k for k in range(1, 4)], 1000)
    assert len(lines) == 3


def test_starts_are_told_apart(monkeypatch, capsys):
    lines = said(monkeypatch, capsys, [10.0 * k for k in range(1, 5)], 2, restarts=2)
    assert [line.split("  ")[0] for line in lines] == [
        "epoch 1 of 2", "epoch 2 of 2", "start 2, epoch 1 of 2", "start 2, epoch 2 of 2"
    ]  # fmt: skip


def test_a_piped_fit_ends_with_its_last_row(capsys):
    model = MeshClassifier(
        2, verbose=True, max_epochs=5, tol=0, random_state=0, callbacks=lambda row, mesh: row.epoch == 4
    )
    model.fit(X, Y)
    out, errors = capsys.readouterr()
    assert out == ""
    last = errors.splitlines()[-1]
    assert last.startswith("epoch 4 of 5  loss ")
    assert last.endswith("stopped by a callback")


@pytest.mark.parametrize(
    ("terminal", "dumb", "jupyter", "widgets", "drawn"),
    [(1, 0, 0, 0, 1), (0, 0, 0, 0, 0), (1, 1, 0, 0, 0), (0, 0, 1, 1, 1), (0, 0, 1, 0, 0), (1, 0, 1, 0, 0)],
)
def test_where_a_bar_can_be_drawn(monkeypatch, terminal, dumb, jupyter, widgets, drawn):
    monkeypatch.setattr(reporting, "find_spec", lambda name: object() if widgets else None)
    console = SimpleNamespace(is_terminal=bool(terminal), is_dumb_terminal=bool(dumb), is_jupyter=bool(jupyter))
    assert reporting._draws(console) == bool(drawn)
