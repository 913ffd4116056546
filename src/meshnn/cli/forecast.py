"""`meshnn forecast`: the next values of a series, and how good such forecasts would have been."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from meshnn.arguments import real_number, whole_number
from meshnn.cli.output import check_output, counted, print_json, print_text, progress, save_somewhere, say_notes
from meshnn.errors import DataError, MeshError

__all__ = ["forecast"]

#: Values that a series must have.
FEWEST = 4
#: Steps ahead that the table of the back-test shows, if there are more than these.
LISTED = (1, 2, 3, 6, 12, 24, 48, 96, 168)


def forecast(
    data: Annotated[
        Path,
        typer.Argument(help="A table with the series in a column: .csv, .tsv (also .gz) or .parquet; - is standard "
                            "input.", show_default=False),
    ],
    horizon: Annotated[int, typer.Option("--horizon", "-n", help="Steps to forecast.")] = 12,
    column: Annotated[
        str | None, typer.Option("--column", "-y", help="The series; needed if there are several columns of numbers.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", help="The column with the time; by default one that holds dates, if any.")
    ] = None,
    season: Annotated[
        str, typer.Option("--season", help="Steps of a season, none, or auto: found from the series.")
    ] = "auto",
    level: Annotated[float, typer.Option("--level", help="Probability of the intervals.")] = 0.9,
    origins: Annotated[
        int, typer.Option("--origins", help="Points of the past that forecasts are tried from; 0: none.")
    ] = 50,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write: .csv, .tsv or .parquet; else to the screen.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="A picture of it: .png, .svg or .pdf.", show_default=False)
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Where to write the model: .mesh.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the first weights and of the intervals.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:  # fmt: skip
    """Forecast a series, with intervals, after a test on its past.

    The series is learned online, one value after the other. On the way, in its second half, it is forecast from many
    points with what was known there: the errors of these forecasts are shown beside those of saying the last value
    again, and the value of a season ago.

    [bold]Examples[/bold]

      meshnn forecast airline.csv --horizon 24

      meshnn forecast airline.csv --horizon 24 --out ahead.csv --picture ahead.png

      meshnn forecast sales.csv --column shop_3 --by day --season 7 --level 0.8 --save sales.mesh
    """
    from meshnn.online import MeshForecaster
    from meshnn.online._backtest import back_test

    horizon, level = whole_number("--horizon", horizon, most=10_000), real_number("--level", level, *BETWEEN)
    whole_number("--origins", origins, least=0), whole_number("--seed", seed, least=0, most=2**32 - 1)
    model = MeshForecaster(_season(season), random_state=seed)
    _check_files(data, out, picture, save)
    series = _read(data, column, by)
    with progress("learning") as told:
        test = back_test(model, series.values, horizon, level, origins, lambda done, of: told(done, of, ""))
        values = np.array(model.forecast(horizon))
        lower, upper = np.array(model.forecast_interval(horizon, level=level)).T
    notes = [*series.notes, *([] if len(test.origins) else ["too few values for a test on the past"] * (origins > 0))]
    columns = {"forecast": values, "lower": lower, "upper": upper}
    report = _report(test, model.season_)
    if not as_json:
        say_notes(notes)
        _show(report, series, model, test, level, on_screen=out is None)
    text = _write(out, series, columns)
    if picture is not None:
        _draw(picture, series, columns, level, test, report, model)
    failure: OSError | MeshError | None = None
    if save is not None:
        save, failure = save_somewhere(model, save)
    if as_json:
        facts = {"data": str(data), "column": series.name, "by": series.by, "season": model.season_, "level": level}
        ahead = {series.by or "step": series.texts(horizon)} | {k: v.tolist() for k, v in columns.items()}
        test_ = {k: v.tolist() for k, v in report.items()} | {"origins": test.origins.tolist()}
        files = {"out": _named(out), "picture": _named(picture), "model": _named(save)}
        print_json(facts | {"forecast": ahead, "back_test": test_, "notes": notes} | files)
    else:
        if text is not None:
            print_text(text)
        for what, path in (("forecast", out), ("picture", picture), ("model", save)):
            if path is not None:
                print(f"{what} written to {path}", file=sys.stderr)
    if failure is not None:
        raise MeshError(f"{failure}; the model was written to {save} instead")


BETWEEN = ("a number between 0 and 1", lambda v: 0 < v < 1)


@dataclass(frozen=True)
class _Series:
    """A column of a table in the order of time."""

    name: str
    by: str | None
    values: Any  # (steps,) NaN where missing
    times: Any  # meshnn.tables.times.Times, or None: the steps are counted
    first: int  # values that were missing in front and are left out
    notes: list[str]

    @property
    def stamps(self) -> Any:
        """Of the values."""
        if self.times is None:
            return np.arange(1.0, len(self.values) + 1) + self.first
        return self.times.stamps[self.first : self.first + len(self.values)]

    def ahead(self, count: int) -> Any:
        """Of the next ones."""
        if self.times is None:
            return np.arange(1.0, count + 1) + self.first + len(self.values)
        late = len(self.times.stamps) - self.first - len(self.values)  # missing at the end: to be forecast
        return np.concatenate([self.times.stamps[len(self.times.stamps) - late :], self.times.after(count)])[:count]

    def texts(self, count: int) -> list[Any]:
        """The same as they are written."""
        stamps = self.ahead(count)
        return [int(stamp) for stamp in stamps] if self.times is None else self.times.texts(stamps)


def _season(text: str) -> int | str | None:
    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    if not text.lstrip("-").isdecimal():
        raise MeshError(f"--season must be a whole number of steps, auto or none, got {text!r}")
    return whole_number("--season", int(text[:9]), most=100_000)


def _check_files(data: Path, out: Path | None, picture: Path | None, save: Path | None) -> None:
    """Refuse what could not be written, before anybody waits."""
    from meshnn.tables.predictions import check_ending

    if out is not None:
        check_output("--out", out)
        check_ending(out)
        if out.exists() and data.exists() and out.samefile(data):
            raise MeshError(f"--out: {out} is the table, which would be lost; name another file")
    if picture is not None:
        from meshnn.plots import check_figure_path
        from meshnn.plots.style import require_matplotlib

        check_figure_path(picture)
        check_output("--picture", picture)
        try:
            require_matplotlib()
        except MeshError as error:
            raise MeshError(f"--picture: {error}, or leave it out") from None
    if save is not None:
        check_output("--save", save, ".mesh")


def _read(data: Path, column: str | None, by: str | None) -> _Series:
    from meshnn.cli.tables import check_columns
    from meshnn.tables.cells import cells_of
    from meshnn.tables.cells import first as first_of
    from meshnn.tables.names import quoted
    from meshnn.tables.reader import read_table
    from meshnn.tables.times import looks_like_times, read_times

    loaded = read_table(data)
    table, notes = loaded.table, list(loaded.notes)
    check_columns("--by", table.column_names, [] if by is None else [by])
    check_columns("--column", table.column_names, [] if column is None else [column])
    if by is not None and by == column:
        raise MeshError(f"--by: {by} is the series itself; name the column with the time")
    if by is None:
        dated = [name for name in table.column_names if name != column and looks_like_times(table, name)]
        by = dated[0] if len(dated) == 1 else None
    name = _only_numbers(table, by) if column is None else column
    cells = cells_of(table, name)
    if cells.kind in ("categorical", "date"):
        at = first_of(~cells.gaps)
        cells.refuse(at, f"the text {quoted(cells.values[at])}", "numbers")
    values = np.where(cells.gaps, np.nan, cells.numbers) if cells.kind != "missing" else np.full(len(table), np.nan)
    times = None if by is None else read_times(table, by)
    if times is not None:
        ordered, values = values[times.order], np.full(len(times.stamps), np.nan)
        values[times.places] = ordered
        notes += times.notes
    there = np.flatnonzero(np.isfinite(values))
    if len(there) < FEWEST:
        raise DataError(f"column {name} has {counted(len(there), 'value')}, expected at least {FEWEST}; add rows")
    first, last = int(there[0]), int(there[-1])
    inside = int(np.isnan(values[first : last + 1]).sum()) - (0 if times is None else len(values) - len(times.order))
    if inside > 0:
        notes.append(f"{counted(inside, 'value')} of {name} missing: filled in by forecasts, not learned")
    if last + 1 < len(values):
        notes.append(f"the last {counted(len(values) - last - 1, 'row')} have no value of {name}: forecast first")
    return _Series(name, by, values[first : last + 1], times, first, notes)


def _only_numbers(table: Any, by: str | None) -> str:
    from pyarrow import types

    tests = (types.is_integer, types.is_floating, types.is_decimal)
    fit = [name for name in table.column_names if name != by and any(test(table[name].type) for test in tests)]
    if len(fit) == 1:
        return str(fit[0])
    if not fit:
        raise DataError(f"no column holds numbers; the table has {', '.join(table.column_names[:20])}; see --column")
    raise MeshError(f"several columns hold numbers: {', '.join(fit[:20])}; name the series with --column")


def _report(test: Any, season: int | None) -> dict[str, Any]:
    """Errors by steps ahead, by name."""
    found = {"forecast": test.errors(), "naive": test.errors("naive")}
    if season is not None and np.isfinite(test.seasonal).any():
        found["seasonal naive"] = test.errors("seasonal")
    return found | {"covered": test.covered()}


def _show(report: dict[str, Any], series: _Series, model: Any, test: Any, level: float, on_screen: bool) -> None:
    """To stderr if the forecast itself goes to stdout."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(stderr=on_screen)
    seasons = "no season" if model.season_ is None else f"a season of {model.season_} steps"
    found = seasons + (", found" if model.season == "auto" and model.season_ is not None else "")
    console.print(Text(f"{series.name}: {counted(len(series.values), 'value')}, {found}"), soft_wrap=True)
    if not len(test.origins):
        return
    horizon = test.truth.shape[1]
    steps = range(1, horizon + 1) if horizon <= 6 else [h for h in LISTED if h < horizon] + [horizon]
    title = f"mean absolute error, from {counted(len(test.origins), 'point')} of the past"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    names = [name for name in report if name != "covered"]
    for name in ("steps ahead", *names, f"inside {100 * level:g}% interval"):
        table.add_column(name, justify="right")
    lines = [(str(h), [report[name][h - 1] for name in names], report["covered"][h - 1]) for h in steps]
    if horizon > 1:
        lines.append(("all", [np.nanmean(report[name]) for name in names], np.nanmean(report["covered"])))
    for label, errors, covered in lines:
        if np.isfinite(errors[0]):
            shown = [f"{error:.4g}" if np.isfinite(error) else "" for error in errors]
            table.add_row(label, *shown, f"{100 * covered:.0f}%")
    console.print(table)


def _write(out: Path | None, series: _Series, columns: dict[str, Any]) -> str | None:
    import pyarrow as pa

    from meshnn.tables.predictions import write_predictions

    name = series.by or "step"
    if name in columns:
        name = f"{name} (time)"
    table = pa.table({name: series.texts(len(columns["forecast"]))})
    return write_predictions(out, table, columns, [name])


def _draw(
    picture: Path, series: _Series, columns: dict[str, Any], level: float, test: Any, report: dict[str, Any], model: Any
) -> None:
    from meshnn.plots import plot_forecast, save_figure

    stamps, horizon = series.stamps, len(columns["forecast"])
    chosen: list[tuple[Any, Any]] = []
    last = len(stamps) + 1
    for k in range(len(test.origins) - 1, -1, -1):  # such that they do not lie over each other
        origin = int(test.origins[k])
        if origin + horizon <= last and (origin + horizon <= len(stamps) or not chosen):
            chosen.append((stamps[origin : origin + horizon], test.forecasts[k, : len(stamps) - origin]))
            last = origin
    errors = {name: by_step for name, by_step in report.items() if name != "covered"}
    season = "" if model.season_ is None else f", season of {model.season_}"
    figure = plot_forecast(
        times=stamps, values=series.values, ahead=series.ahead(horizon), forecast=columns["forecast"],
        lower=columns["lower"], upper=columns["upper"], level=level, past=chosen[:4], name=series.name,
        errors=errors if len(test.origins) else None, across=series.by or "step",
        title=f"{series.name}: {counted(horizon, 'step')} ahead of {counted(len(stamps), 'value')}{season}",
    )  # fmt: skip
    save_figure(figure, picture)


def _named(path: Path | None) -> str | None:
    return None if path is None else str(path)
