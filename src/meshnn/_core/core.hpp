// Declarations shared by the kernels and the rest of the core: views of arrays, structs that Python fills, and
// the table of kernels. Compiles without Python.
#pragma once
#include <stddef.h>
#include <stdint.h>

// A C-contiguous array of up to four axes; axes that it lacks have length 1. Without elements `size` is 0.
template <class T> struct View {
    T* data;
    int64_t size, n[4];
    T& operator[](int64_t k) const { return data[k]; }
    bool empty() const { return size == 0; }
};
typedef View<void> AnyView;
template <> struct View<void> { void* data; int64_t size, n[4]; };
template <class T> inline const View<T>& as(const AnyView& view) { return reinterpret_cast<const View<T>&>(view); }

// -- structs that are filled from a Python mapping, field by field ----------------------------------------------------
struct Field { const char* name; uint32_t offset; char kind; };
template <class M> struct KindOf { static constexpr char value = 'T'; };  // a view of the engine's dtype
template <> struct KindOf<View<uint32_t>> { static constexpr char value = 'I'; };
template <> struct KindOf<View<int64_t>> { static constexpr char value = 'l'; };
template <> struct KindOf<View<double>> { static constexpr char value = 'd'; };
template <> struct KindOf<int64_t> { static constexpr char value = 'n'; };
template <> struct KindOf<double> { static constexpr char value = 'r'; };
struct StructInfo { const char* name; size_t size; const Field* fields; int count; bool writable; };
// A struct is a macro LIST(F) of F(type, name): declared once, described once. AnyView is an array of the engine's dtype.
#define DECLARE_FIELD(type, name) type name;
#define DESCRIBE_FIELD(type, name) {#name, (uint32_t)offsetof(Self, name), KindOf<type>::value},
#define DEFINE_STRUCT(Name, LIST, WRITABLE)                                                          \
    struct Name { LIST(DECLARE_FIELD) };                                                             \
    namespace Name##_info {                                                                          \
        typedef Name Self;                                                                           \
        constexpr Field fields[] = {LIST(DESCRIBE_FIELD)};                                           \
        constexpr StructInfo info = {#Name, sizeof(Name), fields, sizeof(fields) / sizeof(Field), WRITABLE}; \
    }                                                                                                \
    constexpr const StructInfo& info_of(const Name*) { return Name##_info::info; }

// Lists of rows: row r of list q sums over the entries ptr[r] to ptr[r + 1], which read the rows `col`. `run` is the
// number of rows, from r on, that read the same columns and are computed in tiles, else 0. Entries in `padding` make
// such rows equal: they have weight 0 and no gradient. `number` is the index of the value that an entry takes its
// weight from.
#define LISTS_FIELDS(F, prefix)                                                                        \
    F(View<uint32_t>, prefix##start) F(View<uint32_t>, prefix##rows) F(View<uint32_t>, prefix##ptr)    \
    F(View<uint32_t>, prefix##col) F(View<uint32_t>, prefix##number) F(View<uint32_t>, prefix##run)    \
    F(View<uint32_t>, prefix##padding)
// A plan: see meshnn/plan. Lists are named per tick; the list of tick k is forward[k], and so on.
#define PLAN_FIELDS(F)                                                                                 \
    LISTS_FIELDS(F, ) LISTS_FIELDS(F, grad_)                                                           \
    F(View<int64_t>, forward) F(View<int64_t>, back) F(View<int64_t>, gradient) F(View<int64_t>, clamps) \
    F(int64_t, hops_back) F(int64_t, input_projection) F(int64_t, topological_pass) F(int64_t, timed)  \
    F(View<int64_t>, tangent_tick) F(View<int64_t>, tangent_neuron) F(View<int64_t>, tangent_row)      \
    F(View<int64_t>, tangent_ptr) F(View<uint32_t>, tangent_chain)                                     \
    F(View<uint32_t>, weight_index) F(View<int64_t>, weight_runs)                                      \
    F(View<uint32_t>, grad_index) F(View<int64_t>, grad_runs)                                          \
    F(View<int64_t>, out_ptr) F(View<int64_t>, out_dst) F(View<int64_t>, out_number)                   \
    F(View<int64_t>, activations)                                                                      \
    F(int64_t, ticks) F(int64_t, n) F(int64_t, n_inputs) F(int64_t, n_clamped) F(int64_t, n_outputs)   \
    F(int64_t, n_values) F(int64_t, n_gradient)                                                        \
    F(int64_t, kept_ticks) F(int64_t, panel_rows) F(int64_t, jacobian) F(int64_t, adjoint) F(int64_t, straight)
DEFINE_STRUCT(Plan, PLAN_FIELDS, false)

// Optimisers; codes as in meshnn/codes.py. `first` is the mean of the gradient, or the velocity; `second` the mean square.
enum Solver { ADAM, MOMENTUM, NESTEROV };
#define OPTIMIZER_FIELDS(F)                                                                            \
    F(int64_t, solver) F(AnyView, first) F(AnyView, second) F(AnyView, penalised)                      \
    F(double, beta1) F(double, beta2) F(double, epsilon) F(double, l1) F(double, l2)
DEFINE_STRUCT(OptimizerState, OPTIMIZER_FIELDS, true)

enum Status { OK, NOT_FINITE, BAD_WEIGHTS, NO_MEMORY, INTERRUPTED };

// -- calls ------------------------------------------------------------------------------------------------------------
// Samples X (1 or ticks, n, inputs), permuted by `order` if given; states (n, neurons) before the first tick.
struct Samples {
    AnyView X, state;
    int64_t size;  // samples of the call
    int64_t check; // whether samples and weights that are not finite are refused
};
// Targets y (1 or ticks, n, m), sample weights `share` (1 or ticks, n); for a run in time, readout weights (ticks or 0, n) and the last
// tick of each sample (n or 0).
struct Targets { AnyView y, share, readout, stop; int64_t loss, at_ticks; };
struct Poll { bool (*stop)(void*); void* context; };
struct Threads { int64_t count; double work; Poll poll; };  // work: multiply-adds per sample

enum Wanted { LAST, EVERY, STATES };
struct ForwardCall { AnyView values; Samples samples; AnyView out, end; int64_t wanted; Threads threads; };
// `influence` carries derivatives forward, sample by sample, and replaces the lists of the plan; may be null.
struct StreamPlan;
struct LossCall {
    AnyView values; Samples samples; Targets targets; View<double> grad; const StreamPlan* influence; double loss, correct; Threads threads;
};
struct JacobianCall { AnyView values; Samples samples; AnyView out; const StreamPlan* influence; Threads threads; };
struct CurvatureCall {
    AnyView values; Samples samples; Targets targets; View<int64_t> live; View<double> grad, matrix; int64_t pieces;
    double loss, correct; Threads threads;
};
// dL/dy (1 or ticks, n, outputs) in; dL/dvalues and dL/dX out, except for empty arrays. `kept` is a workspace that holds the states.
struct VjpCall { AnyView values; Samples samples; AnyView slopes, grad, grad_X; void* kept; Threads threads; };
struct EpochsCall {
    AnyView values; Samples samples; Targets targets; View<int64_t> order; OptimizerState* optimizer; View<double> rates, record;
    int64_t batch, per, done, finished; Threads threads;
};
struct Engine;
struct StreamCall;  // these three: see stream_structs.hpp
struct VarianceCall;
struct KalmanCall;
struct Kernels {
    Status (*forward)(Engine&, ForwardCall&);
    Status (*loss)(Engine&, LossCall&);
    Status (*jacobian)(Engine&, JacobianCall&);
    Status (*curvature)(Engine&, CurvatureCall&);
    Status (*vjp)(Engine&, VjpCall&);
    Status (*epochs)(Engine&, EpochsCall&);
    Status (*keep)(Engine&, ForwardCall&, void**);                     // a forward pass whose workspace is kept
    double (*update)(OptimizerState&, AnyView values, AnyView grad, int64_t step, double rate);
    void (*stream)(StreamCall&);
    void (*variance)(VarianceCall&);
    void (*kalman)(KalmanCall&);
};

// -- memory, workspaces and threads -----------------------------------------------------------------------------------
void* allocate(size_t bytes);  // aligned to 64 bytes and zeroed, or null
void release(void* memory);
// Blocks of memory that are reused by later calls; a new one is zeroed. Large ones are kept only on request.
struct Pool { struct Block* free; int lock; };
void* borrow(Pool& pool, size_t bytes);
void give_back(Pool& pool, void* memory, bool keep_large = false);
void clear(Pool& pool);
struct Engine { const Plan* plan; const Kernels* kernels; int itemsize; Pool workspaces, buffers; };

// Run task(context, 0), ..., task(context, count - 1) in up to `threads` threads, including the caller.
void parallel(int64_t count, int64_t threads, void (*task)(void*, int64_t), void* context);
