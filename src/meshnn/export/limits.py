"""The tunable numbers of the exports, in one place."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LIMITS", "Limits"]


@dataclass(frozen=True)
class Limits:
    """Limits and thresholds of the exports."""

    #: A C header with at most this many edges is written without loops: that is smaller than tables and a loop.
    few_edges_float: int = 8
    few_edges_integer: int = 6
    #: Products of a header without loops; beyond, compilers take minutes.
    unrolled: int = 20_000
    #: Bytes of a class name in C. Compilers must take string literals of 4095 bytes, not more.
    label_bytes: int = 200
    #: Training rows that quantisation uses, and the last ticks of nets with cycles that it looks at.
    rows: int = 1000
    ticks: int = 16
    #: Of these rows, those that a fit runs the net on once more, for the ranges of its states.
    range_rows: int = 200
    #: States per row, ticks times neurons, above which a fit keeps no ranges, to save time and memory.
    range_states: int = 2**17
    #: Largest sum in an integer net, and the largest shift of a sum.
    largest_sum: float = 2.0**31 - 2**16
    largest_shift: int = 24
    #: Rows with more weights than this are rounded weight by weight instead of together.
    rounded_together: int = 1500
    #: Equal ticks from which on an ONNX model has a Loop: unrolled ticks run faster but take long to load.
    onnx_loop: int = 64
    #: A block of weights in ONNX is sparse from this many entries on, if edges are that many times fewer.
    onnx_sparse_entries: int = 2**18
    onnx_sparse_times: int = 100
    #: Bytes of the constants of an ONNX model: a file is one protobuf message, which is below 2 GiB.
    onnx_bytes: int = 2**31 - 2**20


LIMITS = Limits()
