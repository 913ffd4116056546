"""The tunable numbers of online models."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TUNING"]


@dataclass(frozen=True)
class Tuning:
    """Numbers that were chosen by experiment, or limit what is accepted."""

    # -- classifier and regressor
    #: Hidden neurons that are accepted: the net of a stream is built while a row waits.
    most_hidden: int = 10_000
    #: Standard deviations of the first weights: into hidden neurons (over the root of the number of inputs), between
    #: hidden neurons (over the root of their number), and into outputs.
    input_weight: float = 1.5
    recurrent_weight: float = 0.9
    output_weight: float = 0.1
    #: Samples that policies of structure look at: the last ones.
    recent: int = 1000
    #: Points of the curve of scores; beyond them every second one is left out.
    curve_points: int = 1024

    # -- the nets of a forecaster
    #: Values and forecasts are cut to this: their squares must be finite.
    largest: float = 1e100
    #: Steps of a season, and steps ahead that are judged, at most.
    longest_season: int = 100_000
    longest_horizon: int = 1000
    #: Values that are kept, to look for a season in and to begin again with another one.
    kept: int = 1536
    #: Errors of one step that are kept to draw from.
    errors: int = 256
    #: Standard deviation of the first weights into hidden neurons, times the root of how many lead to each.
    lag_weight: float = 0.5

    # -- how the nets are weighted
    #: Errors fade to a half within this share of the values so far, and within a number of values between these.
    fade_share: float = 0.5
    fade_shortest: float = 30.0
    fade_longest: float = 1000.0
    #: Those of the weighted mean fade faster by this: how good it is now matters, not which net is better.
    fade_faster: float = 0.4
    #: The power that errors are weighted by: one per this many values, between these two.
    values_per_power: float = 15.0
    mild: float = 2.0
    strict: float = 8.0
    #: Errors one step before that count as errors of a step: of steps far ahead few are known at first.
    borrowed: float = 2.0
    #: Forecasts are noted after every value at first, later this number of times while the number of values doubles.
    often: int = 256

    # -- paths
    #: Paths that are drawn of each net, and the weight below which none are.
    paths: int = 100
    ignored: float = 0.02
    #: Errors that were made count as much as the paths once there are this many independent ones.
    trust: float = 6.0
    #: Largest factor of a variance.
    furthest: float = 100.0


TUNING = Tuning()
