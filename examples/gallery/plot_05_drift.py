"""
A stream that drifts
====================

Samples come one by one, are predicted first and learned then, and are never seen again. In the middle the rule changes,
and later it turns slowly. The stream classifier finds out by itself how fast it should forget; a model that was fitted
to the first thousand rows stays where it was.
"""

import numpy as np

from meshnn import MeshClassifier, MeshStreamClassifier
from meshnn.plots import plot_stream

rng = np.random.default_rng(0)
rows, window = 6000, 300
X = rng.uniform(-1, 1, (rows, 2))
angle = np.zeros(rows)
angle[2000:4000] = np.pi / 2  # a new rule at once ...
angle[4000:] = np.pi / 2 + np.linspace(0, np.pi, rows - 4000)  # ... then one that turns
side = X[:, 0] * np.cos(angle) + X[:, 1] * np.sin(angle) + 0.3 * np.sin(3 * X[:, 0])
y = np.where(side + 0.1 * rng.standard_normal(rows) > 0, "up", "down")

# %%
# Test, then train.

model = MeshStreamClassifier(random_state=0)
fixed = MeshClassifier(16, l2=0.01, random_state=0).fit(X[:1000], y[:1000])
right, surprise = np.empty(rows), np.empty(rows)
for k in range(rows):
    x = {"a": X[k, 0], "b": X[k, 1]}
    probability = model.predict_proba_one(x).get(y[k], 0.5)
    right[k], surprise[k] = probability > 0.5, -np.log(max(probability, 1e-15))
    model.learn_one(x, y[k])
frozen = (fixed.predict(X) == y).astype(float)
for name, part in (
    ("first rule", slice(1000, 2000)),
    ("second rule", slice(2500, 4000)),
    ("turning", slice(4000, rows)),
):
    print(f"{name:12} stream {right[part].mean():.3f}   fitted once {frozen[part].mean():.3f}")


# %%
# The same picture that ``meshnn stream --picture`` draws: the last 300 rows, and all. What stands there as the most
# frequent class is here the model that was fitted once.


def running(values):
    """Means of the last rows."""
    total = np.cumsum(np.r_[0.0, values])
    at = np.arange(1, rows + 1)
    return (total[at] - total[np.maximum(at - window, 0)]) / np.minimum(at, window)


so_far = np.arange(1, rows + 1)
curve = {
    "row": so_far.astype(float),
    "accuracy window": running(right),
    "accuracy": np.cumsum(right) / so_far,
    "majority window": running(frozen),
    "log loss window": running(surprise),
    "log loss": np.cumsum(surprise) / so_far,
}
figure = plot_stream(
    curve, kind="classify", window=window, title="A rule that jumps at row 2000 and turns from 4000 on"
)
for text in figure.axes[0].get_legend().get_texts():
    if text.get_text() == "most frequent class":
        text.set_text("fitted once to 1,000 rows")
