"""Nets that learn from streams: exact influences carried forward, one sample after the other, in constant memory."""

from meshnn.streaming.stream import Stream

__all__ = ["Stream"]
