"""`meshnn forecast`: forecast a time series, with a back-test on its past."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from typer import Argument, Option

from meshnn.cli import output
from meshnn.cli.options import AsJson, Picture, Seed, TableOut, column_list, with_read_options
from meshnn.errors import MeshError
from meshnn.progress import progress
from meshnn.tables.predictions import as_text, check_ending, predictions_to


@with_read_options
def forecast(
    data: Annotated[
        Path,
        Argument(help="Table in the order of time: .csv, .tsv (also .gz), .parquet, or - for CSV from standard input."),
    ],
    target: Annotated[
        str | None, Option("--target", "-y", help="Column with the series. Default: the only numeric column.")
    ] = None,
    horizon: Annotated[int, Option(min=1, max=10_000, help="Number of future steps to forecast.")] = 12,
    by: Annotated[str | None, Option(help="Column with the time. Default: the only column of dates.")] = None,
    exogenous: Annotated[
        list[str] | None,
        Option(help="Exogenous features, for example price,holiday. Their future values must be in the table."),
    ] = None,
    season: Annotated[
        str,
        Option(
            help="Season length in steps (12 for monthly data with a yearly season), none, or auto: detected from the "
            "series. Set it if you know it."
        ),
    ] = "auto",
    level: Annotated[
        float, Option(min=0.01, max=0.999, help="Probability of the prediction intervals. Higher: wider intervals.")
    ] = 0.9,
    origins: Annotated[
        int, Option(min=0, help="Maximum number of past points from which the back-test forecasts. 0: no back-test.")
    ] = 50,
    out: TableOut = None,
    picture: Picture = None,
    model: Annotated[Path | None, Option(help="File for the model, ending in .mesh. Default: none is written.")] = None,
    random_state: Seed = 0,
    read: Any = None,
    as_json: AsJson = False,
) -> None:
    """Forecast a time series with prediction intervals, and back-test the forecasts.

    The model learns the series online, one value at a time. The back-test
    forecasts from many points in the second half of the series, using only the
    values before each point. It compares the errors with those of the naive
    forecast (the last value) and of the seasonal naive forecast (the value one
    season before). Rows without a target hold the future values of --exogenous.

    [bold]Examples[/bold]

      meshnn forecast airline.csv --horizon 24
      meshnn forecast airline.csv --horizon 24 --out ahead.csv --picture ahead.png
      meshnn forecast sales.csv --target shop_3 --by day --season 7 --level 0.8 --model sales.mesh
      meshnn forecast sales.csv --target shop_3 --exogenous price,holiday --horizon 7
    """
    import pyarrow as pa

    from meshnn.online import MeshForecaster
    from meshnn.online._backtest import back_test
    from meshnn.tables.reader import read_table
    from meshnn.tables.series import read_series

    forecaster = MeshForecaster(_season(season), random_state=random_state)
    _check_files(data, out, picture, model)
    loaded = read_table(data, options=read)
    features = column_list(exogenous, loaded.table.column_names)
    output.refuse({
        f"--by: {by} is the target; name the column with the time": by is not None and by == target,
        f"--exogenous: {target if target in features else by} is the target or the time; leave it out":
        {target, by}.intersection(features),
    })  # fmt: skip
    series = read_series(loaded.table, target, by, features)
    ahead = series.features_ahead(horizon)
    with progress("learning", unit="values") as tell:
        test = back_test(forecaster, series.values, horizon, level, origins, tell, series.features)
        columns = {"forecast": np.array(forecaster.forecast(horizon, ahead), float)}
        bounds = forecaster.forecast_interval(horizon, ahead, level)
    columns |= dict(zip(("lower", "upper"), np.array(bounds, float).T, strict=True))
    errors = _errors(test, forecaster.season_)
    untested = ["too few values for a back-test"] * (origins > 0 and not len(test.origins))
    notes = [*loaded.notes, *series.notes, *untested]
    if not as_json:
        output.say_notes(notes)
        _show(errors, series, forecaster, test, level, on_screen=out is None)
    name = f"{series.by or 'step'} (time)" if series.by in columns else series.by or "step"
    times = {name: pa.array(series.texts(horizon))}
    if out is not None:
        with predictions_to(out) as writer:
            writer.add(times, columns)
    if picture is not None:
        _draw(picture, series, columns, level, test, errors)
    if model is not None:
        forecaster.save(model)
    files = {"out": out, "picture": picture, "model": model}
    if as_json:
        facts: dict[str, Any] = {"data": str(data), "target": series.name, "by": series.by}
        facts |= {"season": forecaster.season_, "level": level} | ({"exogenous": features} if features else {})
        facts["forecast"] = {series.by or "step": series.texts(horizon)} | {k: v.tolist() for k, v in columns.items()}
        facts["back_test"] = {k: v.tolist() for k, v in errors.items()} | {"origins": test.origins.tolist()}
        output.print_json(facts | {"notes": notes} | {k: None if v is None else str(v) for k, v in files.items()})
    else:
        output.print_text(as_text(times, columns) if out is None else "")
        written = [f"{what} written to {path}" for what, path in files.items() if path is not None]
        output.print_lines(*(line.replace("out", "forecast", 1) for line in written), stderr=True)


def _season(text: str) -> int | str | None:
    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    if not text.isdecimal() or not 1 <= int(text[:9]) <= 100_000:
        raise MeshError(f"--season must be an integer from 1 to 100,000, auto or none, got {text!r}")
    return int(text)


def _check_files(data: Path, out: Path | None, picture: Path | None, model: Path | None) -> None:
    """Raise an error for a file that cannot be written, before the computation starts."""
    if out is not None:
        output.check_output("--out", out, keep={"the table": data})
        check_ending(out)
    if picture is not None:
        from meshnn.plots import check_figure_path
        from meshnn.plots.style import require_matplotlib

        check_figure_path(picture)
        output.check_output("--picture", picture)
        require_matplotlib()
    if model is not None:
        output.check_output("--model", model, ".mesh")


def _errors(test: Any, season: int | None) -> dict[str, Any]:
    """Return the errors per step ahead, by name, and the coverage of the intervals."""
    found = {"forecast": test.errors(), "naive": test.errors("naive")}
    if season is not None and np.isfinite(test.seasonal).any():
        found["seasonal naive"] = test.errors("seasonal")
    return found | {"covered": test.covered()}


def _show(errors: dict[str, Any], series: Any, model: Any, test: Any, level: float, on_screen: bool) -> None:
    """Show the back-test, on stderr if the forecast goes to stdout."""
    from rich.table import Table

    season = "no season" if model.season_ is None else f"a season of {model.season_} steps"
    output.print_lines(f"{series.name}: {output.counted(len(series.values), 'value')}, {season}", stderr=on_screen)
    if not len(test.origins):
        return
    horizon = test.truth.shape[1]
    title = f"back-test: mean absolute error, forecasts from {output.counted(len(test.origins), 'point')}"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in ("steps ahead", *list(errors)[:-1], f"in {100 * level:g}% interval"):
        table.add_column(name, justify="right")
    steps = [h for h in range(1, horizon + 1) if horizon <= 6 or h in (1, 2, 3, 6, 12, 24, 48, 96, 168, horizon)]
    lines = [(str(h), [by_step[h - 1] for by_step in errors.values()]) for h in steps]
    lines.append(("all", [np.nanmean(by_step) for by_step in errors.values()]))
    for label, (*found, covered) in lines:
        if np.isfinite(found[0]):
            cells = [f"{error:.4g}" if np.isfinite(error) else "" for error in found]
            table.add_row(label, *cells, f"{100 * covered:.0f}%")
    output.screen(stderr=on_screen).print(table)


def _draw(picture: Path, series: Any, columns: dict[str, Any], level: float, test: Any, errors: dict[str, Any]) -> None:
    from meshnn.plots import plot_forecast, save_figure

    stamps, horizon = series.stamps, len(columns["forecast"])
    past: list[tuple[Any, Any]] = []
    last = len(stamps) + horizon
    for origin, forecasts in zip(test.origins[::-1].tolist(), test.forecasts[::-1], strict=True):
        if origin + horizon <= last and len(past) < 4:  # forecasts that do not overlap
            past.append((stamps[origin : origin + horizon], forecasts[: len(stamps) - origin]))
            last = origin
    by_name = {name: by_step for name, by_step in errors.items() if name != "covered"}
    ahead = f"forecast of {output.counted(horizon, 'step')} from {output.counted(len(stamps), 'value')}"
    figure = plot_forecast(
        times=stamps, values=series.values, ahead=series.ahead(horizon), **columns, level=level, past=past,
        name=series.name, errors=by_name if len(test.origins) else None, across=series.by or "step",
        title=f"{series.name}: {ahead}",
    )  # fmt: skip
    save_figure(figure, picture)
