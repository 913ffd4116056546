"""
Forecasting with intervals
==========================

``MeshForecaster`` learns a time series one value at a time, detects the length of its season and forecasts any number
of steps with prediction intervals. The series is the monthly number of airline passengers from 1949 to 1960. The last
two years are the test set.
"""

from pathlib import Path

import numpy as np

from meshnn import MeshForecaster
from meshnn.plots import plot_forecast
from meshnn.plots.style import INK, legend_options

here = Path.cwd()
path = next(folder / "examples/airline.csv" for folder in (here, *here.parents) if (folder / "examples").is_dir())
table = np.genfromtxt(path, delimiter=",", skip_header=1, dtype=[("month", "datetime64[M]"), ("value", float)])
months, values = table["month"].astype("datetime64[D]"), table["value"]
past, horizon = len(values) - 24, 24

# %%
# The model learns the past. Once a year it also makes a forecast, which is compared with the true values below.

model = MeshForecaster(random_state=0)
forecasts = []
for k, value in enumerate(values[:past]):
    model.learn_one(value)
    if k >= 60 and k % 12 == 11 and k + horizon < past:
        forecasts.append((k + 1, np.array(model.forecast(horizon))))
print("season found:", model.season_)
for view, next_step, a_year_ahead in model.explain()[:3]:
    print(f"{view:24} share of the next forecast {next_step:.2f}, of the forecast a year ahead {a_year_ahead:.2f}")

# %%
# The forecast of two years compared with the true values: the error, and the number of months inside the 90% interval.

ahead = np.array(model.forecast(horizon))
lower, upper = np.array(model.forecast_interval(horizon, level=0.9)).T
truth = values[past:]
season_ago = np.tile(values[past - 12 : past], 2)
print(f"mean absolute error {np.abs(ahead - truth).mean():.1f}")
print(f"mean absolute error of the seasonal naive forecast {np.abs(season_ago - truth).mean():.1f}")
print(f"{((lower <= truth) & (truth <= upper)).sum()} of 24 months inside the interval")

# %%
# ``plot_forecast`` draws the picture of ``meshnn forecast --picture``, with the earlier forecasts. The true values
# of the test set are added.

errors = {
    "MeshForecaster": np.mean([np.abs(guess - values[at : at + horizon]) for at, guess in forecasts], axis=0),
    "last value": np.mean([np.abs(values[at - 1] - values[at : at + horizon]) for at, _ in forecasts], axis=0),
    "seasonal naive": np.mean(
        [np.abs(np.tile(values[at - 12 : at], 2) - values[at : at + horizon]) for at, _ in forecasts], axis=0
    ),
}
figure = plot_forecast(
    times=months[:past], values=values[:past], ahead=months[past:], forecast=ahead, lower=lower, upper=upper, level=0.9,
    past=[(months[at : at + horizon], guess) for at, guess in forecasts], errors=errors,
    name="passengers (thousands)", across="month", title="Airline passengers: forecast of the last two years",
)  # fmt: skip
figure.axes[0].plot(months[past:], truth, color=INK, lw=1, ls=":", label="true values")
figure.axes[0].legend(**legend_options(loc="upper left"))
