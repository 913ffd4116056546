"""Forecasts of series that sktime, statsmodels, river and reservoirpy contain, compared with other forecasters.

Every forecaster learns the series and forecasts it from points of its second half. Shown are mean absolute errors over
all points and steps ahead, divided by those of the naive forecast (last value). All series use the same settings:
MeshForecaster detects the season, the others receive it. Online forecasters continue to learn; ETS, Theta and SARIMA
are fitted again at every point, to at most the last 1000 values. The defaults of MeshForecaster were chosen on the
first group. No downloads.

    python benchmarks/forecasts.py                # MeshForecaster, naive and river
    python benchmarks/forecasts.py --fitted       # also ETS, Theta and SARIMA: minutes
    python benchmarks/forecasts.py --only airline,lynx
"""

import argparse
import json
import os
import sys
import time
import warnings
from contextlib import suppress

import numpy as np

from meshnn import MeshForecaster
from meshnn.online._backtest import back_test

CHOSEN_ON = ("airline", "lynx", "sunspots", "co2", "unemployment", "water", "mackey-glass", "laser")
ASIDE = ("shampoo", "elnino", "nile", "gdp", "inflation", "pbs", "solar", "approval", "seatbelts", "lorenz")
MOST, REFITTED = 3000, 1000
#: SARIMA skips series with longer seasons, for which a fit takes minutes.
LONGEST = 24


def load():
    """Return values and season (None without one) by name."""
    import pandas as pd
    import reservoirpy.datasets as drawn
    import sktime
    import statsmodels.datasets as sets
    from river import datasets as streams
    from sktime import datasets

    macro = sets.macrodata.load_pandas().data
    weekly = sets.co2.load_pandas().data["co2"]
    belts = os.path.join(os.path.dirname(sktime.__file__), "datasets", "data", "seatbelts", "seatbelts.csv")
    found = {
        "airline": (datasets.load_airline(), 12),
        "lynx": (datasets.load_lynx(), None),
        "sunspots": (sets.sunspots.load_pandas().data["SUNACTIVITY"], 11),
        "co2": (weekly.resample("MS").mean().interpolate(), 12),
        "unemployment": (macro["unemp"], 4),
        "water": ([y["Flow"] if isinstance(y, dict) else y for _, y in streams.WaterFlow()], 24),
        "mackey-glass": (drawn.mackey_glass(MOST, seed=1), None),
        "laser": (drawn.santafe_laser(), None),
        "shampoo": (datasets.load_shampoo_sales(), 12),
        "elnino": (sets.elnino.load_pandas().data.iloc[:, 1:], 12),
        "nile": (sets.nile.load_pandas().data["volume"], None),
        "gdp": (macro["realgdp"], 4),
        "inflation": (macro["infl"], 4),
        "pbs": (datasets.load_PBS_dataset(), 12),
        "solar": (datasets.load_solar(return_full_df=False, api_version=None), 48),
        "approval": ([y for _, y in streams.TrumpApproval()], None),
        "seatbelts": (pd.read_csv(belts)["KSI"], 12),
        "lorenz": (drawn.lorenz(MOST, h=0.05)[:, 0], None),
    }
    return {name: (np.asarray(y, dtype=float).ravel()[:MOST], m) for name, (y, m) in found.items()}


def in_river(kind, y, season):
    """Return a forecaster of river, with the orders and rates of the examples in its documentation."""
    from river import time_series

    if kind == "HoltWinters":
        more = {"gamma": 0.6, "seasonality": season, "multiplicative": bool(y.min() > 0)} if season else {}
        return time_series.HoltWinters(alpha=0.3, beta=0.1, **more)
    return time_series.SNARIMAX(p=12, d=1, q=12, **({"m": season, "sd": 1} if season else {}))


def online(model, y, points, horizon):
    """Return the errors `(points, horizon)` of an online model; NaN if it fails."""
    found, at = np.full((len(points), horizon), np.nan), set(points.tolist())
    k = 0
    for t, value in enumerate(y.tolist()):
        if t in at:
            with suppress(Exception):  # a failing peer is shown as NaN
                found[k] = np.abs(np.array(model.forecast(horizon=horizon), dtype=float) - y[t : t + horizon])
            k += 1
        try:
            model.learn_one(value)
        except Exception:
            return found
    return found


def fitted(kind, y, points, horizon, season):
    """Return the errors of a model that is fitted again at every point."""
    found = np.full((len(points), horizon), np.nan)
    for k, t in enumerate(points.tolist()):
        with suppress(Exception):
            found[k] = np.abs(_refit(kind, y[max(t - REFITTED, 0) : t], horizon, season) - y[t : t + horizon])
    return found


def _refit(kind, past, horizon, season):
    from statsmodels.tsa.forecasting.theta import ThetaModel
    from statsmodels.tsa.holtwinters import ExponentialSmoothing
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    enough = season is not None and len(past) >= 2 * season + 2
    if kind == "ETS":
        more = {"seasonal": "mul" if past.min() > 0 else "add", "seasonal_periods": season} if enough else {}
        return ExponentialSmoothing(past, trend="add", damped_trend=True, **more).fit().forecast(horizon)
    if kind == "Theta":
        import pandas as pd

        series = pd.Series(past, pd.RangeIndex(len(past)))
        return ThetaModel(series, period=season or 1, deseasonalize=enough).fit().forecast(horizon).to_numpy()
    if season is not None and season > LONGEST:
        raise ValueError("a fit would take minutes")
    seasonal = (0, 1, 1, season) if enough else (0, 0, 0, 0)
    return SARIMAX(past, order=(1, 1, 1), seasonal_order=seasonal).fit(disp=False, maxiter=50).forecast(horizon)


def run(name, y, season, points, peers):
    horizon = min(max(season or 12, 4), 24, len(y) // 4)
    began = time.process_time()
    test = back_test(MeshForecaster(random_state=0), y, horizon, origins=points)
    seconds = time.process_time() - began
    whole = np.isfinite(test.truth).all(axis=1)
    at = test.origins[whole]
    ages = np.arange(horizon) % (season or 1)
    errors = {
        "mesh": np.abs(test.forecasts - test.truth)[whole],
        "naive": np.abs(test.naive - test.truth)[whole],
        "seasonal": np.abs(np.array([y[t - (season or 1) + ages] for t in at]) - test.truth[whole]),
    }
    for kind in peers:
        if kind in ("SNARIMAX", "HoltWinters"):
            errors[kind] = online(in_river(kind, y, season), y, at, horizon)
        else:
            errors[kind] = fitted(kind, y, at, horizon, season)
    scale = errors["naive"].mean()
    scores = {kind: float(e.mean() / scale) for kind, e in errors.items()}
    return {"name": name, "rows": len(y), "horizon": horizon, "points": len(at), "scores": scores,
            "covered": float(np.nanmean(test.covered())), "seconds": seconds}  # fmt: skip


def shown(score):
    """Format a score in twelve characters; diverging ones are large."""
    if score != score:
        return f"{'-':>12}"
    return f"{score:12.3f}" if score < 1000 else f"{'> 1000':>12}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--points", type=int, default=25)
    parser.add_argument("--fitted", action="store_true", help="also run models that are fitted again at every point")
    parser.add_argument("--json", help="file of the results")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    peers = ["SNARIMAX", "HoltWinters"] + ["ETS", "Theta", "SARIMA"] * options.fitted
    sets, results = load(), []
    names = ["mesh", "seasonal", *peers]
    print(f"{'':14}{'rows':>6}{'steps':>6}" + "".join(f"{n:>12}" for n in names) + "   90% interval   s")
    for group in (CHOSEN_ON, ASIDE):
        rows = []
        for name in group:
            if options.only and name not in options.only.split(","):
                continue
            found = run(name, *sets[name], options.points, peers)
            rows.append(found)
            cells = "".join(map(shown, (found["scores"][n] for n in names)))
            tail = f"{found['covered']:12.2f} {found['seconds']:6.1f}"
            print(f"{name:14}{found['rows']:6}{found['horizon']:6}{cells}{tail}", flush=True)
        if len(rows) > 1:
            table = np.array([[row["scores"][n] for n in names] for row in rows])
            means = [np.exp(np.nanmean(np.log(column))) for column in table.T]
            print(f"{'geometric mean':26}" + "".join(map(shown, means)), flush=True)
        results += rows
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
