"""
A stream with concept drift
===========================

Samples arrive one at a time. Each one is first predicted, then learned, and not stored. The rule that assigns the
classes changes abruptly at row 2000 and rotates slowly from row 4000 on. The stream classifier adapts its forgetting
rate to the data; a model that was fitted once to the first thousand rows cannot follow.
"""

import numpy as np

from meshnn import MeshClassifier, MeshStreamClassifier
from meshnn.plots import plot_stream

rng = np.random.default_rng(0)
rows, window = 6000, 300
X = rng.uniform(-1, 1, (rows, 2))
angle = np.zeros(rows)
angle[2000:4000] = np.pi / 2  # abrupt drift ...
angle[4000:] = np.pi / 2 + np.linspace(0, np.pi, rows - 4000)  # ... then gradual drift
side = X[:, 0] * np.cos(angle) + X[:, 1] * np.sin(angle) + 0.3 * np.sin(3 * X[:, 0])
y = np.where(side + 0.1 * rng.standard_normal(rows) > 0, "up", "down")

# %%
# Prequential evaluation: test, then train.

model = MeshStreamClassifier(random_state=0)
fixed = MeshClassifier(16, l2=0.01, random_state=0).fit(X[:1000], y[:1000])
correct, log_loss = np.empty(rows), np.empty(rows)
for k in range(rows):
    x = {"a": X[k, 0], "b": X[k, 1]}
    probability = model.predict_proba_one(x).get(y[k], 0.5)
    correct[k], log_loss[k] = probability > 0.5, -np.log(max(probability, 1e-15))
    model.learn_one(x, y[k])
frozen = (fixed.predict(X) == y).astype(float)
for name, part in (
    ("first rule", slice(1000, 2000)),
    ("second rule", slice(2500, 4000)),
    ("rotating", slice(4000, rows)),
):
    print(f"{name:12} stream {correct[part].mean():.3f}   fitted once {frozen[part].mean():.3f}")


# %%
# ``plot_stream`` draws the picture of ``meshnn stream --picture``: scores over the last 300 rows and over all rows. The
# curve of the baseline, usually the most frequent class, shows here the model that was fitted once.


def running(values):
    """Return the mean of the last ``window`` values at every row."""
    total = np.cumsum(np.r_[0.0, values])
    at = np.arange(1, rows + 1)
    return (total[at] - total[np.maximum(at - window, 0)]) / np.minimum(at, window)


so_far = np.arange(1, rows + 1)
curve = {
    "row": so_far.astype(float),
    "accuracy window": running(correct),
    "accuracy": np.cumsum(correct) / so_far,
    "majority window": running(frozen),
    "log loss window": running(log_loss),
    "log loss": np.cumsum(log_loss) / so_far,
}
figure = plot_stream(
    curve, kind="classify", window=window, title="A rule that changes at row 2000 and rotates from row 4000 on"
)
for text in figure.axes[0].get_legend().get_texts():
    if text.get_text() == "most frequent class":
        text.set_text("fitted once to 1,000 rows")
