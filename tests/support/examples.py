"""The number of examples of Hypothesis; `--hypothesis-profile=few` reduces it."""

from hypothesis import settings

__all__ = ["ALL", "FEW", "examples"]

#: Defaults of a test, in full and with the profile `few`.
ALL, FEW = 100, 25


def examples(count, **options):
    """Return settings for this number of examples, reduced in proportion by the profile."""
    # at least two: the first example is the simplest one and tests little
    most = max(min(count, 2), count * settings.default.max_examples // ALL)
    return settings(max_examples=most, **options)
