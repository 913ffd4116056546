/* The learner of portable.h for nets of any size: sizes, flags and settings are fields, tables are views. */
#include "portable_structs.h"
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

typedef int64_t net_index;
typedef float FloatViewItem;
typedef int64_t IntegerViewItem;
#define DECLARE_POINTER(type, name) type##Item *name;
#define TAKE_POINTER(type, name) l->name = state->name.data;
typedef struct {
    const PortableNet *net;
    const float *rule;
    int64_t influences, covariances, most_rows;
    int frozen; /* whether only the states may change */
    PORTABLE_STATE_FIELDS(DECLARE_POINTER)
} net_learner;

#define NET_ARRAY(name, size) float *const name = l->name
#define NET_INPUTS (l->net->n_inputs)
#define NET_CLAMPED (l->net->n_clamped)
#define NET_NEURONS (NET_CLAMPED + NET_ROWS)
#define NET_ROWS (l->net->code.size)
#define NET_OUTPUTS (l->net->n_outputs)
#define NET_TARGETS (l->net->n_targets)
#define NET_PARAMETERS (l->net->n_parameters)
#define NET_GROUPS (l->net->row_ptr.size - 1)
#define NET_TICKS (l->net->ticks)
#define NET_MOST_ROWS (l->most_rows)
#define NET_INFLUENCES (l->influences)
#define NET_COVARIANCES (l->covariances)

enum { CROSS_ENTROPY = 0, BINARY_CROSS_ENTROPY = 4, ADAM = 0 }; /* as in meshnn/codes.py */
#define NET_SLOPES 1
#define NET_BUILTIN_SQRT 1
#define NET_RUNS 0
#define NET_FIXED 0 /* fixed weights follow theta */
#define NET_SCALED (l->x_moments != 0)
#define NET_SCALED_TARGETS (l->y_moments != 0)
#define NET_CARRIES (l->net->carries)
#define NET_FROZEN (l->frozen)
#define NET_ADAM (l->net->learner == ADAM)
#define NET_FILTERS (l->net->filters)
#define NET_CLASSES (l->net->loss == CROSS_ENTROPY)
#define NET_LABELS (l->net->loss == BINARY_CROSS_ENTROPY)
#define NET_LOGISTIC (NET_CLASSES || NET_LABELS)

/* the order of settings in `rule` */
enum { RATE, CLIP, L2, BETA1, BETA2, EPSILON, TAILS, NOISE_RATE, NOISE_FLOOR, Q_RATE, Q_MIN, Q_MAX, BOUND, CEILING };
#define NET_RATE (l->rule[RATE])
#define NET_CLIP (l->rule[CLIP])
#define NET_L2 (l->rule[L2])
#define NET_BETA1 (l->rule[BETA1])
#define NET_BETA2 (l->rule[BETA2])
#define NET_EPSILON (l->rule[EPSILON])
#define NET_TAILS (l->rule[TAILS])
#define NET_NOISE_RATE (l->rule[NOISE_RATE])
#define NET_NOISE_FLOOR (l->rule[NOISE_FLOOR])
#define NET_Q_RATE (l->rule[Q_RATE])
#define NET_Q_MIN (l->rule[Q_MIN])
#define NET_Q_MAX (l->rule[Q_MAX])
#define NET_BOUND (l->rule[BOUND])
#define NET_CEILING (l->rule[CEILING])

#define net_ptr (l->net->ptr.data)
#define net_col (l->net->col.data)
#define net_num (l->net->num.data)
#define net_code (l->net->code.data)
#define net_row_ptr (l->net->row_ptr.data)
#define net_rows (l->net->rows.data)
#define net_sub_ptr (l->net->sub_ptr.data)
#define net_sub_src (l->net->sub_src.data)
#define net_sub_from net_sub_src
#define net_sub_num (l->net->sub_num.data)
#define net_par_ptr (l->net->par_ptr.data)
#define net_par (l->net->par.data)
#define net_edge_ptr (l->net->edge_ptr.data)
#define net_edge_row (l->net->edge_row.data)
#define net_edge_src (l->net->edge_src.data)
#define net_out_row (l->net->out_row.data)
#define net_fixed (l->theta + NET_PARAMETERS)
#include "portable_learn.h"

/* The mode of floating point: denormal numbers must not be flushed to 0, regardless of the mode of the thread. */
#if defined(__SSE__)
enum { FLUSH_BITS = 0x8040 };
static uint64_t get_mode(void) { return _mm_getcsr(); }
static void set_mode(uint64_t mode) { _mm_setcsr((unsigned)mode); }
#elif defined(__aarch64__)
enum { FLUSH_BITS = 1 << 24 };
static uint64_t get_mode(void) { uint64_t mode; __asm__ volatile("mrs %0, fpcr" : "=r"(mode)); return mode; }
static void set_mode(uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
#else
enum { FLUSH_BITS = 0 };
static uint64_t get_mode(void) { return 0; }
static void set_mode(uint64_t mode) { (void)mode; }
#endif

void meshnn_portable_run(const PortableNet *net, PortableState *state, const float *rule, int64_t mode, int64_t count,
                         const float *X, const float *Y, float *out) {
    enum { ADVANCE = 1, PEEK = 2, LEARN = 4, DERIVE = 8 };
    const uint64_t before = get_mode();
    net_learner learner, peeking, *l = &learner;
    int64_t at, k;
    set_mode(before & ~(uint64_t)FLUSH_BITS);
    l->net = net;
    l->rule = rule;
    l->influences = state->J.size;
    l->covariances = state->P.size;
    l->most_rows = state->column.size / 4;
    l->frozen = (mode & DERIVE) != 0;
    PORTABLE_STATE_FIELDS(TAKE_POINTER)
    if (state->x_moments.size == 0) l->x_moments = 0;
    if (state->y_moments.size == 0) l->y_moments = 0;
    for (at = 0; at < count; at++) {
        if (mode & PEEK) { /* a step on a copy of the states */
            peeking = learner;
            peeking.frozen = 1;
            peeking.s = l->other;
            for (k = 0; k < NET_NEURONS; k++) l->other[k] = l->s[k];
            net_step(&peeking, X + at * NET_INPUTS, out + at * NET_OUTPUTS);
        }
        if (mode & ADVANCE) net_step(l, X + at * NET_INPUTS, out + at * NET_OUTPUTS);
        if (mode & (LEARN | DERIVE)) net_learn(l, Y + at * NET_TARGETS);
    }
    set_mode(before);
}

void meshnn_portable_activate(int64_t code, int64_t count, const float *t, float *s, float *d) {
    const uint64_t before = get_mode();
    int64_t k;
    set_mode(before & ~(uint64_t)FLUSH_BITS);
    for (k = 0; k < count; k++) s[k] = net_activate((unsigned)code, t[k], &d[k]);
    set_mode(before);
}
