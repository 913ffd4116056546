"""Named tuples that a kernel reads from where they are kept, instead of taking them out of Python objects at each call.

To hand a kernel a tuple of thirty arrays takes longer than to run a small net: Numba looks at every array and counts a
reference to it. A course or a worker's room is the same at every call, so its fields are laid out in memory once, as
compiled code holds them, and a call hands over one address. Kernels see the same named tuples.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numba import typeof, types
from numba.core.datamodel.models import TupleModel
from numba.extending import NativeValue, register_model, typeof_impl, unbox

__all__ = ["Kept"]


class Kept(int):
    """A named tuple of arrays, numbers, truth values and such tuples, by the address of its image.

    The arrays may be written to, but must not be resized.
    """

    def __new__(cls, given):
        image = np.array(_words(given), np.int64)
        self = super().__new__(cls, _address(image))
        self.given, self._image = given, image  # both live as long as the address is known
        return self

    def __reduce__(self):
        return Kept, (self.given,)  # elsewhere it lies elsewhere


class KeptTuple(types.NamedTuple):
    """The Numba type of a kept tuple."""

    def __init__(self, fields, cls):
        super().__init__(fields, cls)
        self.name = f"Kept{self.name}"


register_model(KeptTuple)(TupleModel)


@typeof_impl.register(Kept)
def _typeof(kept, _):
    return KeptTuple(tuple(map(typeof, kept.given)), type(kept.given))


@unbox(KeptTuple)
def _unbox(kind, address, c):
    pointer = c.pyapi.long_as_voidptr(address)
    return NativeValue(c.builder.load(c.builder.bitcast(pointer, c.context.get_value_type(kind).as_pointer())))


def _words(value):
    """The eight-byte words of a value, as compiled code holds it."""
    if isinstance(value, np.ndarray):
        # neither owner nor Python object: references are not counted, `Kept.given` holds the array
        return [0, 0, value.size, value.itemsize, _address(value), *value.shape, *value.strides]
    if isinstance(value, tuple):
        if any(isinstance(a, bool) and isinstance(b, bool) for a, b in pairwise(value)):
            raise TypeError("two truth values side by side would share a word; put something between them")
        return [word for field in value for word in _words(field)]
    if isinstance(value, (float, np.float64)):
        return [int(np.float64(value).view(np.int64))]
    if isinstance(value, (int, np.int64)):
        return [int(value)]  # a truth value is the first byte of its word
    raise TypeError(f"a kept tuple holds arrays, whole numbers, floats and truth values, not {type(value).__name__}")


def _address(array):
    return array.__array_interface__["data"][0]  # `ctypes.data` takes five times as long
