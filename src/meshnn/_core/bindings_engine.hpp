// The class Engine, and the stored states of layers of other libraries.
#pragma once
#include "bindings.hpp"

static bool optimizer_fits(const OptimizerState& o, int64_t N) {
    return o.first.size == N && o.penalised.size == N && (o.solver != ADAM || o.second.size == N);
}

// -- Engine ----------------------------------------------------------------------------------------------------------------------
struct EngineObject { PyObject_HEAD Engine engine; PyObject* plan; char dtype; };
// A call runs without the GIL; between batches it checks for signals.
struct Running {
    PyThreadState* thread;
    long long looked;
    static long long milliseconds() {
#if defined(_WIN32)
        return (long long)GetTickCount64();
#else
        timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
#endif
    }
    Running() : thread(PyEval_SaveThread()), looked(milliseconds()) {}
    void end() { PyEval_RestoreThread(thread); }
    static bool stop(void* context) {
        auto* self = static_cast<Running*>(context);
        if (milliseconds() - self->looked < 30) return false;
        PyEval_RestoreThread(self->thread);
        bool raised = PyErr_CheckSignals() != 0;
        self->thread = PyEval_SaveThread();
        self->looked = milliseconds();
        return raised;
    }
};
// The result of a call, or its exception.
static PyObject* outcome(Status status, PyObject* result) {
    if (status == OK) return result ? result : Py_NewRef(Py_None);
    Py_XDECREF(result);
    if (status == NOT_FINITE) PyErr_SetString(PyExc_FloatingPointError, "samples are not finite");
    if (status == BAD_WEIGHTS) PyErr_SetString(PyExc_ArithmeticError, "weights are not finite");
    if (status == NO_MEMORY) PyErr_NoMemory();
    return nullptr;  // interrupted: the exception is set
}
template <class Call> static Status run(Status (*kernel)(Engine&, Call&), Engine& e, Call& c) {
    Running running;
    c.threads.poll = {Running::stop, &running};
    Status status = kernel(e, c);
    running.end();
    return status;
}
static void engine_dealloc(PyObject* object) {
    auto* self = reinterpret_cast<EngineObject*>(object);
    clear(self->engine.workspaces);
    clear(self->engine.buffers);
    Py_XDECREF(self->plan);
    free_object(object);
}
static PyObject* engine_new(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject* plan;
    int dtype;
    if (!PyArg_ParseTuple(args, "OC", &plan, &dtype)) return nullptr;
    const Plan* found = struct_of<Plan>(plan, 0);
    if (!found) return nullptr;
    if (dtype != 'f' && dtype != 'd') return PyErr_Format(PyExc_ValueError, "dtype must be 'f' or 'd', got '%c'", dtype);
    auto* self = new_object<EngineObject>(type);
    if (!self) return nullptr;
    self->dtype = (char)dtype;
    self->engine = {found, kernels_of((char)dtype), dtype == 'f' ? 4 : 8, {nullptr, 0}, {nullptr, 0}};
    Py_INCREF(plan);
    self->plan = plan;
    return reinterpret_cast<PyObject*>(self);
}
static void take_samples(Arguments& a, const Plan& p, AnyView& values, Samples& s, Threads& t, bool moves = false) {
    values = a.view('T', moves);
    a.take(s.X, s.state, s.check, t.count, t.work);
    s.size = s.X.n[1];
    a.require(values.size == p.n_values, "values");
    a.require(s.X.n[2] == p.n_inputs && (s.X.n[0] == 1 || s.X.n[0] >= p.ticks) && s.X.size == s.X.n[0] * s.size * p.n_inputs, "X");
    a.require(!s.state.size || (s.state.n[0] == s.size && s.state.n[1] == p.n), "the state");
}
// y (n, m) or (ticks, n, m), share (n) or (ticks, n), readout (ticks, n) or none, last ticks (n) or none; with any number of
// additional axes of length 1.
static void take_shape(Arguments& a, AnyView& view, int64_t ticks, int64_t n, int64_t m, const char* what) {
    bool each = view.size == ticks * n * m;
    a.require(view.size == n * m || each, what);
    view.n[0] = each ? ticks : 1, view.n[1] = n, view.n[2] = m;
}
static void take_targets(Arguments& a, const Plan& p, const Samples& s, Targets& t) {
    a.take(t.y, t.share, t.readout, t.stop, t.loss, t.at_ticks);
    take_shape(a, t.y, p.timed ? p.ticks : 1, s.size, t.loss == 0 ? 1 : p.n_outputs, "y");
    take_shape(a, t.share, t.at_ticks ? p.ticks : 1, s.size, 1, "the shares");
    a.require(p.timed || !(t.at_ticks || t.readout.size || t.stop.size), "the readout");
    a.require(!t.at_ticks || t.share.n[0] == p.ticks, "the shares");
    a.require(!t.readout.size || t.readout.size == p.ticks * s.size, "the readout");
    a.require(!t.stop.size || t.stop.size == s.size, "the last ticks");
}
#define ENGINE_METHOD(name) static PyObject* name(PyObject* object, PyObject* const* arguments, Py_ssize_t n)
#define ENGINE_START(expected)                                  \
    auto* self = reinterpret_cast<EngineObject*>(object);       \
    Engine& e = self->engine;                                   \
    const Plan& p = *e.plan;                                    \
    Arguments a(arguments, n, expected, self->dtype);

// forward(values, X, state, check, threads, work, out, end, wanted)
ENGINE_METHOD(engine_forward) {
    ENGINE_START(9)
    ForwardCall c;
    take_samples(a, p, c.values, c.samples, c.threads);
    a.take(out(c.out), out(c.end), c.wanted);
    int64_t ticks = c.wanted == LAST ? 1 : c.wanted == EVERY ? p.ticks : p.ticks + 1;
    a.require(c.out.n[0] == ticks && c.out.n[1] == c.samples.size && c.out.n[2] == (c.wanted == STATES ? p.n : p.n_outputs) &&
              c.out.size == c.out.n[0] * c.out.n[1] * c.out.n[2], "out");
    a.require(!c.end.size || (c.end.n[0] == c.samples.size && c.end.n[1] == p.n), "the end state");
    if (!a.good) return nullptr;
    return outcome(run(e.kernels->forward, e, c), nullptr);
}
// loss(values, X, state, check, threads, work, y, share, readout, stop, loss, at_ticks, grad, influence) -> loss, fraction of correct samples
static const StreamPlan* influence_of(Arguments& a) {
    PyObject* plan = a.object();
    if (!plan || plan == Py_None) return nullptr;
    const StreamPlan* found = struct_of<StreamPlan>(plan, 0);
    if (!found) a.good = false;
    return found;
}
ENGINE_METHOD(engine_loss) {
    ENGINE_START(14)
    LossCall c;
    take_samples(a, p, c.values, c.samples, c.threads);
    take_targets(a, p, c.samples, c.targets);
    a.take(out(c.grad));
    a.require(!c.grad.size || c.grad.size == p.n_gradient, "grad");
    c.influence = influence_of(a);
    a.require(!c.grad.size || (c.influence ? p.grad_index.size == p.n_gradient : p.adjoint), "the plan");
    if (!a.good) return nullptr;
    Status status = run(e.kernels->loss, e, c);
    return outcome(status, status == OK ? Py_BuildValue("dd", c.loss, c.correct) : nullptr);
}
// jacobian(values, X, state, check, threads, work, out, influence)
ENGINE_METHOD(engine_jacobian) {
    ENGINE_START(8)
    JacobianCall c;
    take_samples(a, p, c.values, c.samples, c.threads);
    a.take(out(c.out));
    c.influence = influence_of(a);
    a.require((p.jacobian || c.influence) && c.out.n[0] == c.samples.size && c.out.n[1] == p.n_outputs && c.out.n[2] == p.n_gradient &&
              c.out.size == c.out.n[0] * c.out.n[1] * c.out.n[2], "out");
    if (!a.good) return nullptr;
    return outcome(run(e.kernels->jacobian, e, c), nullptr);
}
// curvature(values, X, state, check, threads, work, y, share, readout, stop, loss, at_ticks, live, pieces, grad, matrix)
ENGINE_METHOD(engine_curvature) {
    ENGINE_START(16)
    CurvatureCall c;
    take_samples(a, p, c.values, c.samples, c.threads);
    take_targets(a, p, c.samples, c.targets);
    a.take(c.live, c.pieces, out(c.grad), out(c.matrix));
    a.require(p.jacobian && c.grad.size == c.live.size && c.matrix.size == c.live.size * c.live.size && c.pieces >= p.n_outputs, "grad or matrix");
    for (int64_t k = 0; a.good && k < c.live.size; ++k) a.require(c.live[k] >= 0 && c.live[k] < p.n_gradient, "live");
    if (!a.good) return nullptr;
    Status status = run(e.kernels->curvature, e, c);
    return outcome(status, status == OK ? Py_BuildValue("dd", c.loss, c.correct) : nullptr);
}
// epochs(values, X, None, 0, threads, work, y, share, readout, stop, loss, at_ticks, order, optimizer, rates, record, batch, per, done)
// -> number of finished epochs
ENGINE_METHOD(engine_epochs) {
    ENGINE_START(19)
    EpochsCall c;
    take_samples(a, p, c.values, c.samples, c.threads, true);
    take_targets(a, p, c.samples, c.targets);
    PyObject* optimizer;
    a.take(c.order, optimizer, c.rates, out(c.record), c.batch, c.per, c.done);
    c.finished = 0;
    if (!a.good || !(c.optimizer = struct_of<OptimizerState>(optimizer, self->dtype))) return nullptr;
    int64_t samples = c.samples.size, epochs = c.record.n[0], lanes = 256 / e.itemsize, learned = c.optimizer->first.size;
    a.require(c.batch > 0 && c.batch <= samples && (c.per == lanes || c.per == lanes / 2), "a batch");
    a.require(c.record.size == 3 * epochs && (c.batch < 1 || c.rates.size == epochs * ((samples + c.batch - 1) / c.batch)), "rates or record");
    a.require(c.batch >= samples || c.order.size == epochs * samples, "the order");
    a.require(learned <= p.n_values && optimizer_fits(*c.optimizer, learned), "the optimiser's state");
    a.require(p.adjoint && p.n_gradient == p.n_values, "the plan");
    for (int64_t k = 0; a.good && k < c.order.size; ++k) a.require(c.order[k] >= 0 && c.order[k] < samples, "the order");
    if (!a.good) return nullptr;
    Status status = run(e.kernels->epochs, e, c);
    return outcome(status, status == OK ? PyLong_FromLongLong(c.finished) : nullptr);
}
// A workspace that holds the states of a forward pass.
struct KeptObject { PyObject_HEAD PyObject* engine; void* workspace; int64_t size; };
static void kept_dealloc(PyObject* object) {
    auto* self = reinterpret_cast<KeptObject*>(object);
    if (self->workspace) give_back(reinterpret_cast<EngineObject*>(self->engine)->engine.workspaces, self->workspace, true);
    Py_XDECREF(self->engine);
    free_object(object);
}
// Layers of other libraries pass addresses of C-contiguous arrays of the dtype; 0 is an empty array.
static AnyView at_address(Arguments& a, int64_t n0, int64_t n1, int64_t n2) {
    PyObject* one = a.object();
    AnyView found = {one ? PyLong_AsVoidPtr(one) : nullptr, 0, {n0, n1, n2, 1}};
    if (PyErr_Occurred()) a.good = false;
    found.size = found.data ? n0 * n1 * n2 : 0;
    return found;
}
static void take_layer(Arguments& a, const Plan& p, AnyView& values, Samples& s, Threads& t) {
    int64_t ticks;
    a.take(ticks, s.size, t.count, t.work);
    values = at_address(a, p.n_values, 1, 1);
    s.X = at_address(a, ticks, s.size, p.n_inputs);
    s.state = {nullptr, 0, {0, 0, 0, 0}};
    s.check = 0;
    a.require(s.size >= 0 && values.size == p.n_values, "values");
    a.require(ticks == 1 || (p.timed && ticks == p.ticks), "X");
}
// layer(ticks, size, threads, work, values, X, Y, keep) -> None, or the workspace of a forward pass of one chunk
ENGINE_METHOD(engine_layer) {
    ENGINE_START(8)
    ForwardCall c;
    take_layer(a, p, c.values, c.samples, c.threads);
    c.out = at_address(a, 1, c.samples.size, p.n_outputs);
    c.end = {nullptr, 0, {0, 0, 0, 0}};
    c.wanted = LAST;
    bool keep = a.integer() != 0;
    a.require((!keep || c.samples.size <= 256 / e.itemsize) && (!c.samples.size || (c.samples.X.data && c.out.data)), "X or Y");
    if (!a.good) return nullptr;
    if (!keep) return outcome(run(e.kernels->forward, e, c), nullptr);
    auto* kept = new_object<KeptObject>(kept_type);
    if (!kept) return nullptr;
    kept->engine = Py_NewRef(object), kept->size = c.samples.size;
    Running running;
    Status status = e.kernels->keep(e, c, &kept->workspace);
    running.end();
    return outcome(status, reinterpret_cast<PyObject*>(kept));
}
// vjp(ticks, size, threads, work, values, X, slope_ticks, slopes, grad, grad_X, kept)
ENGINE_METHOD(engine_vjp) {
    ENGINE_START(11)
    VjpCall c;
    take_layer(a, p, c.values, c.samples, c.threads);
    int64_t slope_ticks = a.integer();
    c.slopes = at_address(a, slope_ticks, c.samples.size, p.n_outputs);
    c.grad = at_address(a, p.n_values, 1, 1);
    c.grad_X = at_address(a, c.samples.X.n[0], c.samples.size, p.n_inputs);
    PyObject* kept = a.object();
    if (!a.good) return nullptr;
    c.kept = nullptr;
    if (kept != Py_None) {
        bool ours = Py_TYPE(kept) == kept_type && reinterpret_cast<KeptObject*>(kept)->engine == object;
        a.require(ours && reinterpret_cast<KeptObject*>(kept)->size == c.samples.size, "the kept workspace");
        if (ours) c.kept = reinterpret_cast<KeptObject*>(kept)->workspace;
    }
    a.require(!c.samples.size || (c.slopes.data && (c.kept || c.samples.X.data)), "X or the slopes");
    a.require(slope_ticks == 1 || (p.timed && slope_ticks == p.ticks), "slopes");
    a.require(p.adjoint && p.n_gradient == p.n_values && (!c.grad_X.size || p.out_ptr.size > p.n_inputs), "the plan");
    if (!a.good) return nullptr;
    return outcome(run(e.kernels->vjp, e, c), nullptr);
}
