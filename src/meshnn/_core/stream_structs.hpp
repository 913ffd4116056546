// Structs of streams, which Python fills; see meshnn/streaming. B streams run in parallel; a row has L samples.
#pragma once
#include "core.hpp"

// One sample of a stream: the lists of rows (neurons) to compute, and the layout of the influence J, see influence.hpp.
// J is flat: the row of neuron o begins at offset[o]. Rows of one list come in groups with the same columns in J and the
// same sources of whole rows.
#define STREAM_PLAN_FIELDS(F)                                                                                           \
    F(View<int64_t>, tick_list)       /* (ticks) list of each tick of a sample */                                       \
    F(View<int64_t>, start)           /* (lists + 1) rows of list q are start[q] to start[q + 1] */                     \
    F(View<int64_t>, rows)            /* (R) neuron */                                                                  \
    F(View<int64_t>, lane)            /* (R) position of its sum among those of its list, packed by activation */       \
    F(View<int64_t>, ptr)             /* (R + 1) entries (edges) of row r */                                            \
    F(View<int64_t>, col)             /* (entries) source */                                                            \
    F(View<int64_t>, own_column)      /* (entries) column of the edge itself within its row of J; -1 if not learned */  \
    F(View<int64_t>, n_whole)         /* (R) number of its first entries that carry whole rows of J */                  \
    F(View<int64_t>, hop_ptr)         /* (R + 1) hops of row r that carry parts of rows */                              \
    F(View<int64_t>, hop_col)         /* (hops) source */                                                               \
    F(View<int64_t>, hop_weight)      /* (hops) entry with its weight */                                                \
    F(View<int64_t>, hop_run)         /* (hops, 2) first and last of its runs */                                        \
    F(View<int64_t>, runs)            /* (runs, 4) column in the source, column in the row, length, length in vectors */ \
    F(View<int64_t>, group_start)     /* (lists + 1) groups of list q */                                                \
    F(View<int64_t>, groups)          /* (groups, 3) first and last row; columns, padded to whole vectors */            \
    F(View<int64_t>, pack_start)      /* (lists + 1) packs of sums of list q: L sums each, of one activation */         \
    F(View<int64_t>, pack_activation) /* (packs) */                                                                     \
    F(View<int64_t>, offset)          /* (n) first column of each neuron in J */                                        \
    F(View<int64_t>, outputs)         /* (n_outputs, 3) first and last of out_parameter, and the first column in J */   \
    F(View<int64_t>, out_parameter)   /* parameter of each column of an output */                                       \
    F(View<int64_t>, out_runs)        /* (runs, 3) first and last of out_parameter, first parameter if consecutive, or -1 */ \
    F(View<int64_t>, weight_index)    /* (entries) value that each entry takes its weight from */                       \
    F(int64_t, n_inputs) F(int64_t, n_clamped) F(int64_t, n_outputs)                                                    \
    F(int64_t, columns)               /* length of J */                                                                 \
    F(int64_t, most_packs)            /* of a list */                                                                   \
    F(int64_t, most_sources)          /* of a row that carries whole rows of J */
DEFINE_STRUCT(StreamPlan, STREAM_PLAN_FIELDS, false)

// The state of B streams, and buffers. N parameters, C outputs, m numbers per target (1 label, or C values).
#define STREAM_STATE_FIELDS(F)                                                                                          \
    F(AnyView, s)                /* (B, n) states */                                                                    \
    F(AnyView, J)                /* (B, 2, columns) influence now and before, alternating */                            \
    F(View<int64_t>, side)       /* (B) which of the two is the influence now */                                        \
    F(AnyView, peek_states)      /* (n) states of a sample that is not remembered */                                    \
    F(AnyView, sums)             /* (packs, L) sums, then states, of a tick */                                          \
    F(AnyView, slopes)           /* (packs, L) phi' of a tick */                                                        \
    F(AnyView, panel)            /* (sources * 256 bytes) a block of columns of all sources of a group */               \
    F(AnyView, weights)          /* (entries) weights in the order of the plan's entries */                             \
    F(AnyView, Y)                /* (C, L) outputs of up to L streams */                                                \
    F(AnyView, y)                /* (m, L) their targets */                                                             \
    F(AnyView, share)            /* (L) 1 where a target is given, else 0 */                                            \
    F(AnyView, G)                /* (C, L) dE/dY */                                                                     \
    F(AnyView, grad)             /* (n_values) gradient of a step */                                                    \
    F(AnyView, H)                /* (C, N) dy/dtheta of a stream */                                                     \
    F(AnyView, past_derivatives) /* (depth, B, C, N) the same for the last samples, if targets are delayed */           \
    F(AnyView, past_outputs)     /* (depth, B, C) */                                                                    \
    F(AnyView, target)           /* (B, m) targets, standardised */                                                     \
    F(AnyView, last_x)           /* (n_inputs) the last sample as given, if samples are replayed */                     \
    F(View<double>, x_moments)   /* (7, n_inputs), or (7, 0) if inputs are not standardised; see standardise.hpp */     \
    F(View<double>, y_moments)   /* (7, m), or (7, 0) */                                                                \
    F(AnyView, replay_x)         /* (places, n_inputs) samples to replay, as given */                                   \
    F(AnyView, replay_y)         /* (places, m) their targets */                                                        \
    F(View<int64_t>, clock)      /* (8) counters, see StreamCounter */                                                  \
    F(AnyView, values)           /* (n_values) the parameters, which are learned, then fixed values */                  \
    F(int64_t, loss)             /* code of the loss */                                                                 \
    F(double, rate) F(double, clip) /* of first-order steps: learning rate, largest norm of a gradient */               \
    F(int64_t, carry)            /* 1 if states are kept from sample to sample */                                       \
    F(int64_t, use_filter)       /* 1 if the learner is the Kalman filter */
DEFINE_STRUCT(StreamState, STREAM_STATE_FIELDS, true)

// A Kalman filter: covariance, settings and buffers, see kalman.hpp. M places: the parameters in the order of the blocks,
// each block padded to a multiple of STRIP.
#define FILTER_FIELDS(F)                                                                                                \
    F(View<double>, P)           /* blocks of the covariance in strips */                                               \
    F(View<int64_t>, order)      /* (M) parameter at each place; -1 is padding */                                       \
    F(View<int64_t>, first)      /* (blocks + 1) places of block g are first[g] to first[g + 1] */                      \
    F(View<int64_t>, offset)     /* (blocks) where the strips of a block begin in P */                                  \
    F(View<int64_t>, taken)      /* (blocks) places of a block without padding */                                       \
    F(View<double>, memo)        /* (3 + C + N) other state, see Memo */                                             \
    F(View<double>, H)           /* (C, M) buffer for dy/dtheta */                                                      \
    F(View<double>, U)           /* (C, M) buffer for H P */                                                            \
    F(View<double>, S)           /* (C, C) buffer for H P H', and three more */                                         \
    F(View<double>, L) F(View<double>, T) F(View<double>, M)                                                            \
    F(View<double>, v)           /* (8, C) buffers for vectors */                                                       \
    F(View<int64_t>, chosen)     /* (C) classes of the update, then the others */                                       \
    F(View<double>, few)         /* (C) the outputs of those, then the target */                                        \
    F(double, tails) F(double, noise_rate) F(double, noise_floor) F(double, q_rate) F(double, log_q_min)                \
    F(double, log_q_max) F(double, log_q_steady) F(double, replay_weight) F(double, bound) F(double, ceiling)
DEFINE_STRUCT(Filter, FILTER_FIELDS, true)

// Operations on samples X (T, B, n_inputs) and targets Y (T, B, m), NaN where missing. Codes as in meshnn/codes.py.
enum StreamMode {
    ADVANCE = 1,  // inputs in, states and influence on, outputs out
    PEEK = 2,     // inputs in, outputs out; the state does not change
    LEARN = 4,    // targets of the sample `lag` samples ago in, parameters changed
    DERIVE = 8    // the same, but the gradient is written to `grad` and parameters do not change
};
// Indices in `clock`: samples seen, updates made, updates skipped because they were not finite, states reset to 0, samples
// stored for replay, state of the random generator that picks one.
enum StreamCounter { SEEN, LEARNED, LEFT_OUT, RESETS, STORED, RANDOM };

#define MESHNN_STREAM_STRUCTS &StreamPlan_info::info, &StreamState_info::info, &Filter_info::info,

struct StreamCall {
    const StreamPlan* plan; StreamState* state; OptimizerState* optimizer; Filter* filter;  // optimizer or filter may be null
    int64_t mode, lag;
    AnyView X, Y, out;  // out (T, B, C): the outputs
    Poll poll;
    bool interrupted;
};
// The variance of the outputs of the last sample, (B, C) due to uncertain parameters.
struct VarianceCall { const StreamPlan* plan; StreamState* state; Filter* filter; View<double> out; };
// One separate update of a filter, see kalman_update: values (N), H (C, N), y (C), target (1 or C); `result` is the loss.
struct KalmanCall { Filter* filter; View<double> values, H, y, target; int64_t loss, fresh; double rest, result; };
