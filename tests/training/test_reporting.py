"""Progress output during training."""

import re
from types import SimpleNamespace

import pytest
from sklearn.datasets import load_iris

from meshnn import MeshClassifier, progress
from meshnn.training import History, HistoryRow, reporting

X, Y = load_iris(return_X_y=True)


def row(epoch, restart=0):
    return HistoryRow(epoch, 0.5, float("nan"), 0.75, 1.0, 0.01, 2.5, 61, restart, "")


def test_lines_come_every_five_seconds_and_at_the_end(monkeypatch, capsys):
    samples = SimpleNamespace(count=1000)
    trainer = SimpleNamespace(n_starts=2, history=History(), epochs=10, samples=samples)
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    with reporting.reporter(1, trainer) as show:
        for k in range(20):
            clock.now += 1.0
            show.pulse(500)
            clock.now += 1.0
            trainer.history.append(row(k % 10 + 1, k // 10))
            show(trainer.history[-1])
    out, errors = capsys.readouterr()
    assert out == ""
    *lines, last = errors.splitlines()
    assert len(lines) == 8  # 40 seconds, with half an epoch per second
    assert lines[0] == "training 12%: epoch 2.5 of 20  loss 0.5  accuracy 0.750, 35 s left"
    assert last == "start 2, epoch 10 of 10  loss 0.5  accuracy 0.750  2.50 s"


@pytest.mark.parametrize(("verbose", "epochs"), [(0, []), (1, [4]), (2, [1, 2, 3, 4])])
def test_rows_that_a_piped_fit_prints(capsys, verbose, epochs):
    given = {"max_epochs": 5, "tol": 0, "l2": 0.0, "random_state": 0}
    MeshClassifier(2, verbose=verbose, callbacks=lambda row, mesh: row.epoch == 4, **given).fit(X, Y)
    out, errors = capsys.readouterr()
    assert out == ""
    assert [int(number) for number in re.findall(r"^epoch +(\d+) ", errors, re.MULTILINE)] == epochs
    if verbose == 1:
        assert errors.endswith("stopped by a callback\n")
