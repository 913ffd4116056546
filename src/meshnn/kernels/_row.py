"""A row of samples as one machine value.

Batches are laid out with the samples innermost: one neuron is a row of 256 bytes, 64 samples in float32 and 32 in
float64. Here such a row is a Numba type that LLVM holds in vector registers, so `axpy(acc, w, load(S, i))` is
eight fused multiply-adds on an AVX2 machine, the accumulator never leaves the registers and nothing depends on what an
auto-vectoriser finds. All functions are inlined; rows live inside one kernel and are never passed between kernels.

Arrays must be C-contiguous with `lanes` columns; `aligned` allocates them so that no load straddles a cache line.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import populate_array

from meshnn.kernels._jit import FAST
from meshnn.schedule.lists import ROW_BYTES

__all__ = [
    "add",
    "aligned",
    "axpy",
    "div",
    "dot",
    "dot4",
    "fma",
    "lanes",
    "larger",
    "load",
    "mul",
    "ones",
    "placed",
    "relu",
    "root",
    "step",
    "store",
    "sub",
    "where_equal",
    "where_same",
    "width",
    "zeros",
]

_I32 = ir.IntType(32)


def _wide_registers() -> bool:
    """Whether kernels are compiled for 32 registers of 64 bytes."""
    if config.CPU_NAME:  # another processor than this one
        return "+avx512f" in (config.CPU_FEATURES or "")
    return bool(binding.get_host_cpu_features().get("avx512f", False))


#: Bytes of a row that a tile may hold of each of its four rows: as much as there are registers for.
WIDEST = 256 if _wide_registers() else 64


def lanes(dtype) -> int:
    """Samples in a row: 64 for float32, 32 for float64."""
    return ROW_BYTES // np.dtype(dtype).itemsize


def aligned(shape, dtype, make=np.zeros):
    """A zeroed (or, with np.empty, an arbitrary) array whose first byte starts a cache line."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = make(size + 64, np.uint8)
    start = -raw.__array_interface__["data"][0] % 64
    return raw[start : start + size].view(dtype).reshape(shape)


@intrinsic
def placed(typingctx, like, address, rows, columns):
    """The C-contiguous 2-D array at an address, with numbers like another array's.

    Whoever has memory of another library hands over where it lies: to make a NumPy array of it, and to take that apart
    again, costs more than the kernels of a small net.
    """
    kind = types.Array(like.dtype, 2, "C")

    def generate(context, builder, sig, args):
        number = context.get_data_type(like.dtype)
        size = context.get_constant(types.intp, like.dtype.bitwidth // 8)
        place, high, wide = (context.cast(builder, args[k], sig.args[k], types.intp) for k in range(1, 4))
        array = context.make_array(kind)(context, builder)
        populate_array(
            array,
            data=builder.inttoptr(place, number.as_pointer()),
            shape=[high, wide],
            strides=[builder.mul(wide, size), size],
            itemsize=size,
            meminfo=None,
        )
        return array._getvalue()

    return kind(like, address, rows, columns), generate


class Row(types.Type):
    """The Numba type of a row of samples."""

    def __init__(self, dtype, size=ROW_BYTES):
        self.dtype = dtype
        self.lanes = size * 8 // dtype.bitwidth
        super().__init__(name=f"Row({dtype}, {self.lanes})")

    @property
    def llvm(self):
        """The LLVM vector type behind it."""
        return ir.VectorType(ir.FloatType() if self.dtype == types.float32 else ir.DoubleType(), self.lanes)


@register_model(Row)
class _RowModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, fe_type.llvm)


def _pointer(context, builder, sig, args, position, row, stride):
    """Pointer to element `args[position] * stride` of the array `args[0]`, as a vector of type `row`."""
    array = context.make_array(sig.args[0])(context, builder, args[0])
    index = context.cast(builder, args[position], sig.args[position], types.uintp)
    offset = builder.mul(index, context.get_constant(types.uintp, stride))
    return builder.bitcast(builder.gep(array.data, [offset]), row.as_pointer())


def _mask(indices):
    indices = list(indices)
    return ir.Constant(ir.VectorType(_I32, len(indices)), indices)


def _splat(builder, value, vector):
    nothing = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(nothing, value, _I32(0))
    return builder.shuffle_vector(first, nothing, _mask([0] * vector.count))


@intrinsic
def load(typingctx, array, i):
    """Row i of a 2-D array."""
    row = Row(array.dtype)

    def generate(context, builder, sig, args):
        pointer = _pointer(context, builder, sig, args, 1, row.llvm, row.lanes)
        return builder.load(pointer, align=array.dtype.bitwidth // 8)

    return row(array, i), generate


@intrinsic
def store(typingctx, array, i, row):
    """Write row i of a 2-D array."""

    def generate(context, builder, sig, args):
        pointer = _pointer(context, builder, sig, args, 1, row.llvm, row.lanes)
        builder.store(args[2], pointer, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, i, row), generate


@intrinsic
def zeros(typingctx, array):
    """A row of zeros of the array's dtype."""
    row = Row(array.dtype)
    return row(array), lambda context, builder, sig, args: ir.Constant(row.llvm, None)


@intrinsic
def ones(typingctx, array):
    """A row of ones of the array's dtype."""
    row = Row(array.dtype)
    return row(array), lambda context, builder, sig, args: ir.Constant(row.llvm, [1.0] * row.lanes)


@intrinsic
def axpy(typingctx, acc, a, x):
    """`acc + a * x` with a scalar a."""

    def generate(context, builder, sig, args):
        scaled = builder.fmul(_splat(builder, args[1], acc.llvm), args[2], flags=FAST)
        return builder.fadd(args[0], scaled, flags=FAST)

    return acc(acc, acc.dtype, x), generate


@intrinsic
def mul(typingctx, x, y):
    """`x * y`, sample by sample."""
    return x(x, y), lambda context, builder, sig, args: builder.fmul(args[0], args[1], flags=FAST)


@intrinsic
def fma(typingctx, acc, x, y):
    """`acc + x * y`, sample by sample."""

    def generate(context, builder, sig, args):
        return builder.fadd(args[0], builder.fmul(args[1], args[2], flags=FAST), flags=FAST)

    return acc(acc, x, y), generate


@intrinsic
def add(typingctx, x, y):
    """`x + y`."""
    return x(x, y), lambda context, builder, sig, args: builder.fadd(args[0], args[1], flags=FAST)


@intrinsic
def sub(typingctx, x, y):
    """`x - y`."""
    return x(x, y), lambda context, builder, sig, args: builder.fsub(args[0], args[1], flags=FAST)


@intrinsic
def div(typingctx, x, y):
    """`x / y`."""
    return x(x, y), lambda context, builder, sig, args: builder.fdiv(args[0], args[1], flags=FAST)


@intrinsic
def larger(typingctx, x, y):
    """The larger of two rows, sample by sample."""

    def generate(context, builder, sig, args):
        return builder.select(builder.fcmp_ordered(">", args[1], args[0]), args[1], args[0])

    return x(x, y), generate


@intrinsic
def where_equal(typingctx, labels, value, x, y):
    """x where the label is the scalar value, y elsewhere."""

    def generate(context, builder, sig, args):
        scalar = context.cast(builder, args[1], sig.args[1], labels.dtype)
        same = builder.fcmp_ordered("==", args[0], _splat(builder, scalar, labels.llvm))
        return builder.select(same, args[2], args[3])

    return x(labels, value, x, y), generate


@intrinsic
def where_same(typingctx, a, b, x, y):
    """x where two rows are equal, y elsewhere."""

    def generate(context, builder, sig, args):
        return builder.select(builder.fcmp_ordered("==", args[0], args[1]), args[2], args[3])

    return x(a, b, x, y), generate


@intrinsic
def root(typingctx, x):
    """The square root, sample by sample."""

    def generate(context, builder, sig, args):
        name = f"llvm.sqrt.v{x.lanes}f{x.dtype.bitwidth}"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(x.llvm, [x.llvm]), name)
        return builder.call(function, [args[0]])

    return x(x), generate


@intrinsic
def step(typingctx, x):
    """0 where x <= 0, else 1: the derivative of relu."""

    def generate(context, builder, sig, args):
        one, zero = ir.Constant(x.llvm, [1.0] * x.lanes), ir.Constant(x.llvm, None)
        return builder.select(builder.fcmp_ordered("<=", args[0], zero), zero, one)

    return x(x), generate


@intrinsic
def relu(typingctx, x):
    """0 where x < 0, else x: one machine instruction, and a NaN stays NaN."""

    def generate(context, builder, sig, args):
        zero = ir.Constant(x.llvm, None)
        return builder.select(builder.fcmp_ordered("<", args[0], zero), zero, args[0])

    return x(x), generate


@intrinsic
def width(typingctx, array):
    """Samples in a row of the array's dtype, as a constant, so that loops over a row have no remainder."""
    count = ROW_BYTES * 8 // array.dtype.bitwidth
    return types.intp(array), lambda context, builder, sig, args: context.get_constant(types.intp, count)


def _fold(builder, x):
    """The lower half of a vector plus its upper half."""
    half = x.type.count // 2
    lower = builder.shuffle_vector(x, x, _mask(range(half)))
    upper = builder.shuffle_vector(x, x, _mask(range(half, 2 * half)))
    return builder.fadd(lower, upper, flags=FAST)


def _add_neighbours(builder, x, y):
    """Sums of neighbours of x and y, interleaved in groups of 128 bits, as x86 shuffles best."""
    group = 4 if x.type.element == ir.FloatType() else 2
    even = []
    for base in range(0, x.type.count, group):
        pairs = range(base, base + group, 2)
        even += [*pairs, *(x.type.count + k for k in pairs)]
    first = builder.shuffle_vector(x, y, _mask(even))
    second = builder.shuffle_vector(x, y, _mask(k + 1 for k in even))
    return builder.fadd(first, second, flags=FAST)


def _four_sums(builder, a, b, c, d):
    """The sums of four vectors as a vector of four."""
    ab, cd = _add_neighbours(builder, a, b), _add_neighbours(builder, c, d)
    if ab.type.count == 8:
        return _fold(builder, _add_neighbours(builder, ab, cd))
    lower = builder.shuffle_vector(ab, cd, _mask([0, 1, 4, 5]))
    upper = builder.shuffle_vector(ab, cd, _mask([2, 3, 6, 7]))
    return builder.fadd(lower, upper, flags=FAST)


def _partial(builder, x, y, width):
    """The dot product of two rows as `width` partial sums, gathered in the widest registers there are."""
    wide = 2 * width if WIDEST > 64 and x.type.count >= 2 * width else width
    total = None
    for k in range(x.type.count // wide):
        cut = _mask(range(k * wide, (k + 1) * wide))
        term = builder.fmul(builder.shuffle_vector(x, x, cut), builder.shuffle_vector(y, y, cut), flags=FAST)
        total = term if total is None else builder.fadd(total, term, flags=FAST)
    return total if wide == width else _fold(builder, total)


@intrinsic
def dot(typingctx, x, y):
    """The scalar product of two rows."""

    def generate(context, builder, sig, args):
        total = _partial(builder, args[0], args[1], 256 // x.dtype.bitwidth)
        while total.type.count > 1:
            total = _fold(builder, total)
        return builder.extract_element(total, _I32(0))

    return x.dtype(x, y), generate


@intrinsic
def dot4(typingctx, out, p, v, a, b, c, d):
    """`out[p:p + 4] +=` the scalar products of v with a, b, c, d; four sums share one tree of additions."""

    def generate(context, builder, sig, args):
        width = 256 // v.dtype.bitwidth
        total = _four_sums(builder, *(_partial(builder, args[2], x, width) for x in args[3:]))
        pointer = _pointer(context, builder, sig, args, 1, total.type, 1)
        align = v.dtype.bitwidth // 8
        builder.store(builder.fadd(builder.load(pointer, align=align), total, flags=FAST), pointer, align=align)
        return context.get_dummy_value()

    return types.void(out, p, v, a, b, c, d), generate
