"""Limits of `meshnn play`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LIMITS", "PlayLimits"]


@dataclass(frozen=True)
class PlayLimits:
    """Limits of a page and its net; times are in seconds."""

    # training and frames
    slice: float = 0.015  # duration of training between checks for orders
    paces: tuple[int, ...] = (0, 1, 10, 100, 1000)  # epochs or samples per second; 0: no limit
    slice_units: int = 5000  # maximum number of epochs, or samples of a stream, per slice
    frame: float = 1 / 30  # time between two frames
    picture: float = 0.2  # time between two pictures of decision regions
    unacknowledged: int = 2  # frames that are sent without an acknowledgement of the page
    unread: float = 30.0  # a page that receives no message for this time is closed
    grid: int = 96  # points per side of a picture of decision regions
    shown: int = 400  # points in a picture of predictions
    # the net
    hidden: int = 300
    edges: int = 20_000
    ticks: int = 50
    lm_work: float = 4e9  # multiply-adds per iteration of lm; more would take seconds
    undo: int = 200  # number of edits that can be undone
    candidates: int = 40  # number of absent edges that are shown with their gradients
    scored: int = 256  # number of samples for these gradients
    share: float = 0.1  # fraction of the edges that grow or prune changes
    window: int = 300  # number of last samples over which the scores of a stream are averaged
    # tables
    text: int = 5_000_000  # characters of a table from the page
    kept_text: int = 200_000  # bytes of a table from the command line that is sent to the page for its links
    rows: int = 20_000
    features: int = 300
    # the server
    message: int = 12_000_000  # bytes of a message from a page, such as a table in JSON
    pages: int = 8
    orders: int = 32  # maximum number of orders between two slices
    grace: float = 2.0  # time for a process to end before it is killed


LIMITS = PlayLimits()
