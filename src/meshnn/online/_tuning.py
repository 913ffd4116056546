"""The tunable numbers of online models."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TUNING"]


@dataclass(frozen=True)
class Tuning:
    """Numbers chosen by experiment, and limits of accepted values."""

    # -- classifier and regressor
    #: Maximum number of hidden neurons; the network of a stream is built while a row waits.
    most_hidden: int = 10_000
    #: Standard deviation of the initial weights from inputs to hidden neurons, times the root of the number of inputs.
    input_weight: float = 1.5
    #: Standard deviation of the initial weights between hidden neurons, times the root of their number.
    recurrent_weight: float = 0.9
    #: Standard deviation of the initial weights into outputs.
    output_weight: float = 0.1
    #: Number of recent samples that structure policies use.
    recent: int = 1000
    #: Maximum number of points of the curve of scores; beyond it every second point is dropped.
    curve_points: int = 1024

    # -- networks of a forecaster
    #: Values and forecasts are clipped to this, so that their squares are finite.
    largest: float = 1e100
    #: Maximum number of steps of a season.
    longest_season: int = 100_000
    #: Maximum number of steps ahead at which experts are weighted.
    longest_horizon: int = 1000
    #: Number of values that are kept for finding a season, and for training again after another season is found.
    kept: int = 1536
    #: Number of one-step errors that are kept for drawing paths.
    errors: int = 256
    #: Standard deviation of the initial weights into hidden neurons, times the root of the number of inputs.
    lag_weight: float = 0.5

    # -- weights of the experts
    #: Half-life of the errors as a share of the number of values so far.
    fade_share: float = 0.5
    #: Shortest half-life, in values.
    fade_shortest: float = 30.0
    #: Longest half-life, in values.
    fade_longest: float = 1000.0
    #: Factor of the half-life for the errors of the weighted mean, which measure its current accuracy.
    fade_faster: float = 0.4
    #: The exponent of the errors is the number of values divided by this, between `mild` and `strict`.
    values_per_power: float = 15.0
    #: Smallest exponent of the errors.
    mild: float = 2.0
    #: Largest exponent of the errors.
    strict: float = 8.0
    #: Number of errors that the mean error one step earlier counts as, since errors many steps ahead are few at first.
    borrowed: float = 2.0
    #: Forecasts are recorded after every value at first, later this number of times per doubling of the series.
    often: int = 256

    # -- paths
    #: Number of paths drawn per expert.
    paths: int = 100
    #: No paths are drawn for experts with a smaller weight.
    ignored: float = 0.02
    #: Number of independent errors at which the observed spread counts as much as that of the paths.
    trust: float = 6.0
    #: Maximum ratio of the observed variance to that of the paths.
    furthest: float = 100.0


TUNING = Tuning()
