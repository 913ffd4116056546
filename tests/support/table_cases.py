"""A small table, and checks of errors for invalid tables."""

import pytest

from meshnn.errors import DataError, FileError

HOUSES = {
    "rooms": [3, 5, 4, 2],
    "city": ["Ulm", "Bonn", "Köln", "Bonn"],
    "garden": [True, False, False, True],
    "price": [1.0, 2.0, 3.0, 4.5],
}


def refused(call, *words):
    """Check that the call raises a DataError or FileError of one line that contains all the words; return it."""
    with pytest.raises((DataError, FileError)) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message
    return message
