"""What is said while it trains."""

from types import SimpleNamespace

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
    with reporting.reporter(1, trainer) as show:
        for k, clock.now in enumerate(times):
            trainer.history.append(row(k % epochs + 1, k // epochs))
            show(trainer.history[-1])
    out, errors = capsys.readouterr()
    assert out == ""
    return errors.splitlines()


def test_lines_come_after_a_tenth_after_five_seconds_and_at_the_end(monkeypatch, capsys):
    def epochs(*given):
        return [int(line.split()[1]) for line in said(monkeypatch, capsys, *given)]

    assert said(monkeypatch, capsys, [0.001 * k for k in range(100)], 100) == [
        "epoch 100 of 100  loss 0.5  accuracy 0.750  2.50 s"
    ]
    assert epochs([2.0 * k for k in range(1, 31)], 100) == list(range(3, 31, 3))  # 6 s are more than 5
    assert epochs([0.2 * k for k in range(1, 101)], 100) == list(range(10, 101, 10))
    lines = said(monkeypatch, capsys, [10.0 * k for k in range(1, 5)], 2, 2)
    starts = ["epoch 1 of 2", "epoch 2 of 2", "start 2, epoch 1 of 2", "start 2, epoch 2 of 2"]
    assert [line.split("  ")[0] for line in lines] == starts


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
