"""Pieces of rows, and panels: what tiles are made of.

Tiles hold several rows at once. They take *pieces* of rows, so that all of them stay in registers, and transpose rows
into *panels*, whose blocks are held like rows.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from meshnn.kernels._jit import FAST
from meshnn.kernels._row import _I32, WIDEST, Row, _mask, _splat
from meshnn.schedule.lists import ROW_BYTES

__all__ = [
    "add_first",
    "block_width",
    "load_at",
    "load_piece",
    "piece_width",
    "store_at",
    "store_piece",
    "transpose",
    "transpose_next",
    "vector_width",
    "whole_rows",
    "zeros_block",
    "zeros_pair",
    "zeros_piece",
    "zeros_vector",
]

#: Bytes that a tile takes of a row at a time, where half a row may do: no more than that half, or the next row is hit.
PIECE_BYTES = min(WIDEST // 2 if WIDEST > 64 else 64, ROW_BYTES // 2)
#: Bytes of one register, or of what is handled like one.
VECTOR_BYTES = 64


def _constant_width(size):
    @intrinsic
    def constant(typingctx, array):
        count = size * 8 // array.dtype.bitwidth
        return types.intp(array), lambda context, builder, sig, args: context.get_constant(types.intp, count)

    return constant


#: Samples in a piece of a row.
piece_width = _constant_width(PIECE_BYTES)
#: Numbers in a block of a panel.
block_width = _constant_width(WIDEST)
#: Numbers in a vector, to whose multiple panels are filled up.
vector_width = _constant_width(VECTOR_BYTES)


@intrinsic
def whole_rows(typingctx):
    """Whether four whole rows fit into the registers, as a constant."""
    fits = WIDEST >= ROW_BYTES
    return types.boolean(), lambda context, builder, sig, args: context.get_constant(types.boolean, fits)


def _zeros_of(size):
    @intrinsic
    def zeros_of(typingctx, array):
        row = Row(array.dtype, size)
        return row(array), lambda context, builder, sig, args: ir.Constant(row.llvm, None)

    return zeros_of


zeros_piece = _zeros_of(PIECE_BYTES)
zeros_block = _zeros_of(WIDEST)
zeros_vector = _zeros_of(VECTOR_BYTES)
zeros_pair = _zeros_of(2 * VECTOR_BYTES)


def _at(context, builder, sig, args, places, row):
    """Pointer to element sum of `args[position] * stride` of the array `args[0]`, as a vector of type `row`."""
    array = context.make_array(sig.args[0])(context, builder, args[0])
    total = context.get_constant(types.uintp, 0)
    for position, stride in places:
        index = context.cast(builder, args[position], sig.args[position], types.uintp)
        total = builder.add(total, builder.mul(index, context.get_constant(types.uintp, stride)))
    return builder.bitcast(builder.gep(array.data, [total]), row.as_pointer())


@intrinsic
def load_piece(typingctx, array, i, lane):
    """The piece of row i of a 2-D array that begins at a lane."""
    row, whole = Row(array.dtype, PIECE_BYTES), Row(array.dtype)

    def generate(context, builder, sig, args):
        pointer = _at(context, builder, sig, args, [(1, whole.lanes), (2, 1)], row.llvm)
        return builder.load(pointer, align=array.dtype.bitwidth // 8)

    return row(array, i, lane), generate


@intrinsic
def store_piece(typingctx, array, i, lane, row):
    """Write a piece of row i of a 2-D array."""
    whole = Row(array.dtype)

    def generate(context, builder, sig, args):
        pointer = _at(context, builder, sig, args, [(1, whole.lanes), (2, 1)], row.llvm)
        builder.store(args[3], pointer, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, i, lane, row), generate


@intrinsic
def load_at(typingctx, array, p, like):
    """As many numbers of a 1-D array, from p on, as `like` has."""

    def generate(context, builder, sig, args):
        return builder.load(_at(context, builder, sig, args, [(1, 1)], like.llvm), align=like.dtype.bitwidth // 8)

    return like(array, p, like), generate


@intrinsic
def store_at(typingctx, array, p, row):
    """Write a row, or a piece of one, to a 1-D array from p on."""

    def generate(context, builder, sig, args):
        pointer = _at(context, builder, sig, args, [(1, 1)], row.llvm)
        builder.store(args[2], pointer, align=row.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, p, row), generate


@intrinsic
def add_first(typingctx, array, p, row, count):
    """`array[p:p + count] += row[:count]` of a 1-D array; nothing behind it is touched."""

    def generate(context, builder, sig, args):
        vector, align = row.llvm, ir.Constant(_I32, row.dtype.bitwidth // 8)
        pointer = _at(context, builder, sig, args, [(1, 1)], vector)
        limit = builder.trunc(context.cast(builder, args[3], sig.args[3], types.intp), _I32)
        lanes = ir.VectorType(_I32, vector.count)
        mask = builder.icmp_signed("<", _mask(range(vector.count)), _splat(builder, limit, lanes))
        kind = f"v{vector.count}f{row.dtype.bitwidth}"
        types_ = (pointer.type, _I32, mask.type, vector)
        read = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, types_), f"llvm.masked.load.{kind}.p0"
        )
        write = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), (vector, pointer.type, _I32, mask.type)),
            f"llvm.masked.store.{kind}.p0",
        )
        old = builder.call(read, [pointer, align, mask, ir.Constant(vector, None)])
        builder.call(write, [builder.fadd(old, args[2], flags=FAST), pointer, align, mask])
        return context.get_dummy_value()

    return types.void(array, p, row, count), generate


def _transposed(builder, rows):
    """A square of vectors, transposed."""
    side = len(rows)
    step = side // 2
    while step:  # exchange the off-diagonal squares, of half the side at first, then of a quarter ...
        lower = [k if not k & step else side + k - step for k in range(side)]
        upper = [k + step if not k & step else side + k for k in range(side)]
        for i in range(side):
            if not i & step:
                a, b = rows[i], rows[i + step]
                rows[i] = builder.shuffle_vector(a, b, _mask(lower))
                rows[i + step] = builder.shuffle_vector(a, b, _mask(upper))
        step //= 2
    return rows


def _move_square(context, builder, array, source, offsets, target, at, stride):
    """Load rows at the offsets, transpose them, and store them from `at` on, so far apart."""
    vector, align = Row(array.dtype, VECTOR_BYTES).llvm, array.dtype.bitwidth // 8
    pointers = (builder.bitcast(builder.gep(source.data, [offset]), vector.as_pointer()) for offset in offsets)
    for row in _transposed(builder, [builder.load(pointer, align=align) for pointer in pointers]):
        builder.store(row, builder.bitcast(builder.gep(target.data, [at]), vector.as_pointer()), align=align)
        at = builder.add(at, stride)


@intrinsic
def transpose(typingctx, array, wide, col, p, lane, panel, at, stride):
    """Rows `col[p], col[p + 1], ...` of an array, from a lane on, as columns of a panel: a square of one vector a side.

    The rows are so `wide`; `panel[at + l * stride + i]` becomes `array[col[p + i], lane + l]`.
    """

    def generate(context, builder, sig, args):
        source, columns, target = (context.make_array(sig.args[k])(context, builder, args[k]) for k in (0, 2, 5))
        wide, first, lane, at, stride = (
            context.cast(builder, args[k], sig.args[k], types.uintp) for k in (1, 3, 4, 6, 7)
        )
        offsets = []
        for i in range(VECTOR_BYTES * 8 // array.dtype.bitwidth):
            place = builder.gep(columns.data, [builder.add(first, context.get_constant(types.uintp, i))])
            row = context.cast(builder, builder.load(place), col.dtype, types.uintp)
            offsets.append(builder.add(builder.mul(row, wide), lane))
        _move_square(context, builder, array, source, offsets, target, at, stride)
        return context.get_dummy_value()

    return types.void(array, wide, col, p, lane, panel, at, stride), generate


@intrinsic
def transpose_next(typingctx, array, wide, row, lane, panel, at, stride):
    """The same for neighbouring rows, from `row` on."""

    def generate(context, builder, sig, args):
        source, target = (context.make_array(sig.args[k])(context, builder, args[k]) for k in (0, 4))
        wide, row, lane, at, stride = (
            context.cast(builder, args[k], sig.args[k], types.uintp) for k in (1, 2, 3, 5, 6)
        )
        offsets = [builder.add(builder.mul(row, wide), lane)]
        for _ in range(1, VECTOR_BYTES * 8 // array.dtype.bitwidth):
            offsets.append(builder.add(offsets[-1], wide))
        _move_square(context, builder, array, source, offsets, target, at, stride)
        return context.get_dummy_value()

    return types.void(array, wide, row, lane, panel, at, stride), generate
