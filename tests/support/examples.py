"""How many examples Hypothesis tries: all that a test asks for, or with `--hypothesis-profile=few` some of them."""

from hypothesis import settings

__all__ = ["ALL", "FEW", "examples"]

#: Of a test that asks for nothing.
ALL, FEW = 100, 25


def examples(count, **options):
    """That many examples, or as many fewer as the profile has."""
    # the first example is the simplest there is, so that one alone says little
    most = max(min(count, 2), count * settings.default.max_examples // ALL)
    return settings(max_examples=most, **options)
