"""Nets that learn from streams with exact influences, one sample after the other, in constant memory."""

from meshnn.streaming.stream import Stream

__all__ = ["Stream"]
