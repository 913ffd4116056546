"""Sizes and times of `meshnn play`, all in one place."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LIMITS", "PlayLimits"]


@dataclass(frozen=True)
class PlayLimits:
    """Limits of a page and its net; times are in seconds."""

    # training and what the page is sent of it
    slice: float = 0.015  # training between two looks for orders
    paces: tuple[int, ...] = (0, 1, 10, 100, 1000)  # epochs or samples per second; 0 is as many as possible
    slice_units: int = 5000  # epochs, or samples of a stream, per slice
    frame: float = 1 / 30  # between two frames
    picture: float = 0.2  # between two pictures of decision regions
    unacknowledged: int = 2  # frames that are sent before the page has acknowledged one of them
    unread: float = 30.0  # a page that takes no message for so long is closed
    grid: int = 96  # points of a picture of decision regions, along a side
    shown: int = 400  # points of a picture of predictions
    # the net
    hidden: int = 300
    edges: int = 20_000
    ticks: int = 50
    lm_work: float = 4e9  # multiply-adds of an iteration of lm: more would take seconds
    undo: int = 200  # edits that can be undone
    candidates: int = 40  # absent edges that are shown with their scores
    scored: int = 256  # samples behind these scores
    share: float = 0.1  # of the edges, which one press of grow or prune adds or removes
    window: int = 300  # samples of a stream that its scores are means of
    # tables
    text: int = 5_000_000  # characters of a table that comes through the page
    kept_text: int = 200_000  # bytes of a table from the command line that the page gets whole, for its links
    rows: int = 20_000
    features: int = 300
    # the server
    message: int = 12_000_000  # bytes of a message from a page: a table in JSON
    pages: int = 8
    orders: int = 32  # taken before training goes on
    grace: float = 2.0  # that a process has to end by itself


LIMITS = PlayLimits()
