/* The structs of a portable stream, for C (portable.c) and C++ (bindings.cpp): one list of fields for both. */
#pragma once
#include <stdint.h>
#ifdef __cplusplus
#include "core.hpp"
typedef View<int64_t> IntegerView;
typedef AnyView FloatView;  // of dtype float32
#else
typedef struct { int64_t *data; int64_t size, n[4]; } IntegerView;
typedef struct { float *data; int64_t size, n[4]; } FloatView;
#endif

/* Lists of a net. Rows are neurons that are not clamped; weights are the parameters, followed by the fixed weights.
     ptr (rows + 1), col, num         edges into each row: source among all neurons, weight
     code (rows)                      activation
     row_ptr (groups + 1), rows       rows that the parameters of a group reach
     sub_ptr, sub_src, sub_num        edges into such a row from rows of its group: source by its index in the group, weight
     par_ptr (groups + 1), par        parameters of a group
     edge_ptr, edge_row, edge_src     edges of such a parameter: target by its index in the group, source among all neurons
     out_row (groups x outputs)       index of each output in a group; the number of its rows if it is not in the group */
#define PORTABLE_NET_FIELDS(F)                                                                                 \
    F(IntegerView, ptr) F(IntegerView, col) F(IntegerView, num) F(IntegerView, code)                           \
    F(IntegerView, row_ptr) F(IntegerView, rows)                                                               \
    F(IntegerView, sub_ptr) F(IntegerView, sub_src) F(IntegerView, sub_num)                                    \
    F(IntegerView, par_ptr) F(IntegerView, par)                                                                \
    F(IntegerView, edge_ptr) F(IntegerView, edge_row) F(IntegerView, edge_src) F(IntegerView, out_row)         \
    F(int64_t, n_inputs) F(int64_t, n_clamped) F(int64_t, n_outputs) F(int64_t, n_targets)                     \
    F(int64_t, n_parameters) F(int64_t, ticks) F(int64_t, carries)                                             \
    F(int64_t, loss) F(int64_t, learner) F(int64_t, filters)
/* The state of a stream, then buffers; arrays that a learner does not use are empty.
     theta                            weights                    P, last, noise        of the filter
     first, second                    moments of the optimiser   memo (3)              powers of the betas, or MEMO_ codes
     x_moments, y_moments (7 x n)     see net_observe            clock (4)             see SEEN in meshnn/codes.py
     t, d, w, column (4 x rows of the largest group), h, u, grad, moved, g, scaled     see portable.h
     other (neurons)                  states of a peek */
#define PORTABLE_STATE_FIELDS(F)                                                                               \
    F(FloatView, theta) F(FloatView, x_moments) F(FloatView, y_moments) F(FloatView, s) F(FloatView, J)        \
    F(FloatView, first) F(FloatView, second) F(FloatView, P) F(FloatView, last) F(FloatView, noise)            \
    F(FloatView, memo) F(IntegerView, clock)                                                                   \
    F(FloatView, t) F(FloatView, d) F(FloatView, w) F(FloatView, column) F(FloatView, h) F(FloatView, u)       \
    F(FloatView, grad) F(FloatView, moved) F(FloatView, g) F(FloatView, scaled) F(FloatView, other)

#ifdef __cplusplus
DEFINE_STRUCT(PortableNet, PORTABLE_NET_FIELDS, false)
DEFINE_STRUCT(PortableState, PORTABLE_STATE_FIELDS, true)
#define MESHNN_PORTABLE_STRUCTS &PortableNet_info::info, &PortableState_info::info,
static_assert(sizeof(IntegerView) == sizeof(void*) + 5 * sizeof(int64_t) && sizeof(FloatView) == sizeof(IntegerView), "");
extern "C" {
#else
#define DECLARE_FIELD(type, name) type name;
typedef struct { PORTABLE_NET_FIELDS(DECLARE_FIELD) } PortableNet;
typedef struct { PORTABLE_STATE_FIELDS(DECLARE_FIELD) } PortableState;
#endif
/* Run `count` samples X (count, inputs) with targets Y (count, targets), NaN where missing; outputs go to `out`. `mode` is
   a sum of ADVANCE, PEEK, LEARN and DERIVE of meshnn/codes.py; DERIVE leaves the gradient of the last sample in `grad`. */
void meshnn_portable_run(const PortableNet *net, PortableState *state, const float *rule, int64_t mode, int64_t count,
                         const float *X, const float *Y, float *out);
/* values and slopes of an activation, for the tests */
void meshnn_portable_activate(int64_t code, int64_t count, const float *t, float *s, float *d);
#ifdef __cplusplus
}
#endif
