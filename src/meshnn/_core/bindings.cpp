// The Python side of the core: the only file that knows Python. Plain C API, limited to what every Python from 3.11 on has.
//
//   Struct(name, mapping, dtype)   a C struct of views on arrays, which it keeps alive
//   Engine(plan, dtype)            a plan that runs; its methods take arrays and write into arrays
//   isa, isas                      the instruction set in use, and those that are built in
//
// Lengths are checked here, values are not: meshnn/engine does that.
#ifndef MESHNN_FREE_THREADED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "core.hpp"
#include "cpu.h"
#include "stream_structs.hpp"
#include "portable_structs.h"
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <windows.h>
#else
#include <time.h>
#endif

// -- instruction sets --------------------------------------------------------------------------------------------------------
#define MESHNN_SETS_LIST(F) MESHNN_SETS(F)
#define DECLARE_SET(name, level, label) extern "C" const Kernels* meshnn_kernels_##name(int itemsize);
#define DESCRIBE_SET(name, level, label) {label, level, meshnn_kernels_##name},
MESHNN_SETS_LIST(DECLARE_SET)
static const struct { const char* name; int level; const Kernels* (*kernels)(int); } SETS[] = {MESHNN_SETS_LIST(DESCRIBE_SET)};
static int chosen = -1;

static bool choose_set() {
    const char* asked = getenv("MESHNN_ISA");
    int level = meshnn_cpu_level(), count = sizeof(SETS) / sizeof(*SETS);
    if (asked && *asked) {
        for (int k = 0; k < count; ++k)
            if (!strcmp(asked, SETS[k].name) && SETS[k].level <= level) chosen = k;
        if (chosen < 0) {
            PyErr_Format(PyExc_ImportError, "MESHNN_ISA=%s is not built into this installation, or this processor lacks it; built in: %s to %s",
                         asked, SETS[0].name, SETS[count - 1].name);
            return false;
        }
        return true;
    }
    for (int k = 0; k < count; ++k)
        if (SETS[k].level <= level) chosen = k;
    if (chosen < 0)
        PyErr_Format(PyExc_ImportError, "meshnn was built for %s, which this processor lacks; install it from source on this machine: "
                     "pip install --no-binary meshnn meshnn", SETS[0].name);
    return chosen >= 0;
}

static const Kernels* kernels_of(char dtype) { return SETS[chosen].kernels(dtype == 'f' ? 4 : 8); }

// -- arrays --------------------------------------------------------------------------------------------------------------------
static bool has_kind(const Py_buffer& b, char kind) {
    const char* format = b.format ? b.format : "B";
    if (*format == '@' || *format == '=' || *format == '<') ++format;
    if (!*format || format[1]) return false;
    switch (kind) {
        case 'f': return *format == 'f';
        case 'd': return *format == 'd';
        case 'I': return strchr("IL", *format) && b.itemsize == 4;
        case 'l': return strchr("lq", *format) && b.itemsize == 8;
        default: return false;
    }
}
static bool get_view(PyObject* object, char kind, bool writable, const char* name, Py_buffer& buffer, AnyView& view) {
    if (PyObject_GetBuffer(object, &buffer, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0))) return false;
    if (!has_kind(buffer, kind) || buffer.ndim > 4) {
        PyErr_Format(PyExc_TypeError, "%s must be an array of at most four axes of type '%c', got '%s' with %d axes", name, kind,
                     buffer.format ? buffer.format : "?", buffer.ndim);
        PyBuffer_Release(&buffer);
        return false;
    }
    view.data = buffer.buf;
    view.size = 1;
    for (int k = 0; k < 4; ++k) {
        view.n[k] = k < buffer.ndim ? buffer.shape[k] : 1;
        view.size *= view.n[k];
    }
    if (!view.size) view.data = nullptr;
    return true;
}

// -- Struct ----------------------------------------------------------------------------------------------------------------------
static const StructInfo* const STRUCTS[] = {
    &Plan_info::info, &OptimizerState_info::info,
    MESHNN_STREAM_STRUCTS
    MESHNN_PORTABLE_STRUCTS
};
struct StructObject { PyObject_HEAD const StructInfo* info; char* memory; Py_buffer* buffers; int count; char dtype; };
static PyTypeObject *struct_type, *engine_type, *kept_type;

template <class T> static T* new_object(PyTypeObject* type) {
    auto make = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return reinterpret_cast<T*>(make(type, 0));  // zeroed
}
static void free_object(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    auto release_memory = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release_memory(object);
    Py_DECREF(type);
}
static void struct_dealloc(PyObject* object) {
    auto* self = reinterpret_cast<StructObject*>(object);
    for (int k = 0; k < self->count; ++k) PyBuffer_Release(&self->buffers[k]);
    free(self->buffers);
    free(self->memory);
    free_object(object);
}
static bool fill_field(StructObject* self, const Field& field, PyObject* value) {
    char* place = self->memory + field.offset;
    if (field.kind == 'n') {
        long long number = PyLong_AsLongLong(value);
        if (number == -1 && PyErr_Occurred()) return false;
        *reinterpret_cast<int64_t*>(place) = number;
        return true;
    }
    if (field.kind == 'r') {
        double number = PyFloat_AsDouble(value);
        if (number == -1.0 && PyErr_Occurred()) return false;
        *reinterpret_cast<double*>(place) = number;
        return true;
    }
    char kind = field.kind == 'T' ? self->dtype : field.kind;
    if (!get_view(value, kind, self->info->writable, field.name, self->buffers[self->count], *reinterpret_cast<AnyView*>(place))) return false;
    ++self->count;
    return true;
}
static PyObject* struct_new(PyTypeObject* type, PyObject* args, PyObject*) {
    const char* name;
    PyObject* mapping;
    int dtype;
    if (!PyArg_ParseTuple(args, "sOC", &name, &mapping, &dtype)) return nullptr;
    const StructInfo* info = nullptr;
    for (const StructInfo* one : STRUCTS)
        if (!strcmp(one->name, name)) info = one;
    if (!info) return PyErr_Format(PyExc_ValueError, "there is no struct %s", name);
    auto* self = new_object<StructObject>(type);
    if (!self) return nullptr;
    auto* object = reinterpret_cast<PyObject*>(self);
    self->info = info, self->dtype = (char)dtype;
    self->memory = static_cast<char*>(calloc(1, info->size));
    self->buffers = static_cast<Py_buffer*>(calloc(info->count, sizeof(Py_buffer)));
    for (int k = 0; k < info->count; ++k) {
        PyObject* key = PyUnicode_FromString(info->fields[k].name);
        PyObject* value = key ? PyObject_GetItem(mapping, key) : nullptr;
        bool good = value && fill_field(self, info->fields[k], value);
        Py_XDECREF(key);
        Py_XDECREF(value);
        if (!good) {
            Py_DECREF(object);
            return nullptr;
        }
    }
    return object;
}
template <class S> static S* struct_of(PyObject* object, const StructInfo& info, char dtype) {
    if (Py_TYPE(object) == struct_type) {
        auto* self = reinterpret_cast<StructObject*>(object);
        if (self->info == &info && (!dtype || self->dtype == dtype)) return reinterpret_cast<S*>(self->memory);
    }
    PyErr_Format(PyExc_TypeError, "a %s of dtype '%c' is needed", info.name, dtype ? dtype : '?');
    return nullptr;
}

// -- arguments of a call, in order -------------------------------------------------------------------------------------------------
class Arguments {
    PyObject* const* given;
    Py_ssize_t count, next = 0;
    Py_buffer held[16];
    int n_held = 0;
    char dtype;

public:
    bool good = true;
    Arguments(PyObject* const* arguments, Py_ssize_t n, Py_ssize_t expected, char type) : given(arguments), count(n), dtype(type) {
        if (n != expected) fail(PyErr_Format(PyExc_TypeError, "%zd arguments are needed, got %zd", expected, n));
    }
    ~Arguments() { for (int k = 0; k < n_held; ++k) PyBuffer_Release(&held[k]); }
    void fail(PyObject*) { good = false; }
    PyObject* object() { return good && next < count ? given[next++] : nullptr; }
    // An array of a kind ('T': of the dtype); None is an array without elements.
    AnyView view(char kind, bool writable) {
        AnyView found = {nullptr, 0, {0, 0, 0, 0}};
        PyObject* one = object();
        if (!one || one == Py_None) return found;
        good = get_view(one, kind == 'T' ? dtype : kind, writable, "an argument", held[n_held], found);
        n_held += good;
        return found;
    }
    template <class E> View<E> view_of(char kind, bool writable) { AnyView found = view(kind, writable); return as<E>(found); }
    int64_t integer() {
        PyObject* one = object();
        long long found = one ? PyLong_AsLongLong(one) : -1;
        if (found == -1 && PyErr_Occurred()) good = false;
        return found;
    }
    double real() {
        PyObject* one = object();
        double found = one ? PyFloat_AsDouble(one) : -1;
        if (found == -1.0 && PyErr_Occurred()) good = false;
        return found;
    }
    void require(bool holds, const char* what) {
        if (good && !holds) fail(PyErr_Format(PyExc_ValueError, "%s has the wrong length", what));
    }
};

// -- Engine ----------------------------------------------------------------------------------------------------------------------
struct EngineObject { PyObject_HEAD Engine engine; PyObject* plan; char dtype; };
// A call runs without the GIL; between batches it looks for signals now and then.
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
    const Plan* found = struct_of<Plan>(plan, Plan_info::info, 0);
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
    s.X = a.view('T', false);
    s.state = a.view('T', false);
    s.check = a.integer();
    t.count = a.integer();
    t.work = a.real();
    s.size = s.X.n[1];
    a.require(values.size == p.n_values, "values");
    a.require(s.X.n[2] == p.n_inputs && (s.X.n[0] == 1 || s.X.n[0] >= p.ticks) && s.X.size == s.X.n[0] * s.size * p.n_inputs, "X");
    a.require(!s.state.size || (s.state.n[0] == s.size && s.state.n[1] == p.n), "the state");
}
// y (n, m) or (ticks, n, m), shares (n) or (ticks, n), readout (ticks, n) or none, last ticks (n) or none; all with any axes of
// length 1 besides.
static void take_shape(Arguments& a, AnyView& view, int64_t ticks, int64_t n, int64_t m, const char* what) {
    bool each = view.size == ticks * n * m;
    a.require(view.size == n * m || each, what);
    view.n[0] = each ? ticks : 1, view.n[1] = n, view.n[2] = m;
}
static void take_targets(Arguments& a, const Plan& p, const Samples& s, Targets& t) {
    t.y = a.view('T', false);
    t.share = a.view('T', false);
    t.readout = a.view('T', false);
    t.stop = a.view('T', false);
    t.loss = a.integer();
    t.at_ticks = a.integer();
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
static bool take_forward(Arguments& a, const Plan& p, ForwardCall& c) {
    take_samples(a, p, c.values, c.samples, c.threads);
    c.out = a.view('T', true);
    c.end = a.view('T', true);
    c.wanted = a.integer();
    int64_t ticks = c.wanted == LAST ? 1 : c.wanted == EVERY ? p.ticks : p.ticks + 1;
    a.require(c.out.n[0] == ticks && c.out.n[1] == c.samples.size && c.out.n[2] == (c.wanted == STATES ? p.n : p.n_outputs) &&
              c.out.size == c.out.n[0] * c.out.n[1] * c.out.n[2], "out");
    a.require(!c.end.size || (c.end.n[0] == c.samples.size && c.end.n[1] == p.n), "the end state");
    return a.good;
}
ENGINE_METHOD(engine_forward) {
    ENGINE_START(9)
    ForwardCall c;
    if (!take_forward(a, p, c)) return nullptr;
    return outcome(run(e.kernels->forward, e, c), nullptr);
}
// loss(values, X, state, check, threads, work, y, share, readout, stop, loss, at_ticks, grad, influence) -> loss, share of correct samples
static const StreamPlan* influence_of(Arguments& a) {
    PyObject* plan = a.object();
    if (!plan || plan == Py_None) return nullptr;
    const StreamPlan* found = struct_of<StreamPlan>(plan, StreamPlan_info::info, 0);
    if (!found) a.good = false;
    return found;
}
ENGINE_METHOD(engine_loss) {
    ENGINE_START(14)
    LossCall c;
    take_samples(a, p, c.values, c.samples, c.threads);
    take_targets(a, p, c.samples, c.targets);
    c.grad = a.view_of<double>('d', true);
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
    c.out = a.view('T', true);
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
    c.live = a.view_of<int64_t>('l', false);
    c.pieces = a.integer();
    c.grad = a.view_of<double>('d', true);
    c.matrix = a.view_of<double>('d', true);
    a.require(p.jacobian && c.grad.size == c.live.size && c.matrix.size == c.live.size * c.live.size && c.pieces >= p.n_outputs, "grad or matrix");
    for (int64_t k = 0; a.good && k < c.live.size; ++k) a.require(c.live[k] >= 0 && c.live[k] < p.n_gradient, "live");
    if (!a.good) return nullptr;
    Status status = run(e.kernels->curvature, e, c);
    return outcome(status, status == OK ? Py_BuildValue("dd", c.loss, c.correct) : nullptr);
}
// epochs(values, X, None, 0, threads, work, y, share, readout, stop, loss, at_ticks, order, optimizer, rates, record, batch, per, done)
// -> epochs that were finished
ENGINE_METHOD(engine_epochs) {
    ENGINE_START(19)
    EpochsCall c;
    take_samples(a, p, c.values, c.samples, c.threads, true);
    take_targets(a, p, c.samples, c.targets);
    c.order = a.view_of<int64_t>('l', false);
    PyObject* optimizer = a.object();
    c.rates = a.view_of<double>('d', false);
    c.record = a.view_of<double>('d', true);
    c.batch = a.integer();
    c.per = a.integer();
    c.done = a.integer();
    c.finished = 0;
    if (!a.good || !(c.optimizer = struct_of<OptimizerState>(optimizer, OptimizerState_info::info, self->dtype))) return nullptr;
    int64_t samples = c.samples.size, epochs = c.record.n[0], lanes = 256 / e.itemsize, learned = c.optimizer->first.size;
    a.require(c.batch > 0 && c.batch <= samples && (c.per == lanes || c.per == lanes / 2), "a batch");
    a.require(c.record.size == 3 * epochs && (c.batch < 1 || c.rates.size == epochs * ((samples + c.batch - 1) / c.batch)), "rates or record");
    a.require(c.batch >= samples || c.order.size == epochs * samples, "the order");
    a.require(learned <= p.n_values && c.optimizer->penalised.size == learned && (c.optimizer->solver != ADAM || c.optimizer->second.size == learned), "the optimiser's state");
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
// Layers of other libraries hand over addresses of C-contiguous arrays of the dtype; 0 is an array without elements.
static AnyView at_address(Arguments& a, int64_t n0, int64_t n1, int64_t n2) {
    PyObject* one = a.object();
    AnyView found = {one ? PyLong_AsVoidPtr(one) : nullptr, 0, {n0, n1, n2, 1}};
    if (PyErr_Occurred()) a.good = false;
    found.size = found.data ? n0 * n1 * n2 : 0;
    return found;
}
static void take_layer(Arguments& a, const Plan& p, AnyView& values, Samples& s, Threads& t) {
    int64_t ticks = a.integer();
    s.size = a.integer();
    t.count = a.integer();
    t.work = a.real();
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
    KeptObject* kept = nullptr;
    if (keep) {
        if (!(kept = new_object<KeptObject>(kept_type))) return nullptr;
        Py_INCREF(object);
        kept->engine = object, kept->size = c.samples.size;
    }
    if (!keep) return outcome(run(e.kernels->forward, e, c), nullptr);
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

// -- functions of the module ---------------------------------------------------------------------------------------------------------
// update(dtype, optimizer, values, grad, step, rate) -> the norm of the gradient, penalty included
static char dtype_of(PyObject* text) {
    Py_ssize_t length;
    const char* found = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &length) : nullptr;
    if (found && (*found == 'f' || *found == 'd')) return *found;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "dtype must be 'f' or 'd'");
    return 0;
}
static PyObject* module_update(PyObject*, PyObject* const* arguments, Py_ssize_t n) {
    char dtype = n ? dtype_of(arguments[0]) : 'f';
    if (!dtype) return nullptr;
    Arguments a(arguments, n, 6, dtype);
    a.object();
    PyObject* optimizer = a.object();
    AnyView values = a.view('T', true), grad = a.view('T', true);
    int64_t step = a.integer();
    double rate = a.real();
    if (!a.good) return nullptr;
    auto* state = struct_of<OptimizerState>(optimizer, OptimizerState_info::info, dtype);
    if (!state) return nullptr;
    a.require(values.size == state->first.size && grad.size == values.size && state->penalised.size == values.size, "values or grad");
    a.require(state->solver != ADAM || state->second.size == values.size, "the optimiser's state");
    if (!a.good) return nullptr;
    Running running;
    double norm = kernels_of(dtype)->update(*state, values, grad, step, rate);
    running.end();
    return PyFloat_FromDouble(norm);
}
// elementary(dtype, function, x, out): exp, expm1, log and log1p of whole registers
static PyObject* module_elementary(PyObject*, PyObject* const* arguments, Py_ssize_t n) {
    char dtype = n ? dtype_of(arguments[0]) : 'f';
    if (!dtype) return nullptr;
    Arguments a(arguments, n, 4, dtype);
    a.object();
    int function = (int)a.integer();
    AnyView x = a.view('T', false), out = a.view('T', true);
    a.require(x.size == out.size && x.size % 16 == 0, "x");
    if (!a.good) return nullptr;
    kernels_of(dtype)->elementary(function, x, out);
    Py_RETURN_NONE;
}

// -- streams -------------------------------------------------------------------------------------------------------------------------
// Structs of a stream, or null where None is given and allowed; `dtype` is that of the state.
static bool take_stream(PyObject* const* given, const StreamPlan*& plan, StreamState*& state, Filter*& filter, char& dtype) {
    if (!(state = struct_of<StreamState>(given[1], StreamState_info::info, 0))) return false;
    dtype = reinterpret_cast<StructObject*>(given[1])->dtype;
    plan = struct_of<StreamPlan>(given[0], StreamPlan_info::info, 0);
    filter = given[2] == Py_None ? nullptr : struct_of<Filter>(given[2], Filter_info::info, 0);
    return plan && !PyErr_Occurred();
}
// Whether an array has these lengths.
static bool has(const AnyView& v, int64_t a, int64_t b = 1, int64_t c = 1, int64_t d = 1) {
    return v.size == a * b * c * d && (!v.size || (v.n[0] == a && v.n[1] == b && v.n[2] == c && v.n[3] == d));
}
template <class E> static bool has(const View<E>& v, int64_t a, int64_t b = 1) {
    return v.size == a * b && (!v.size || (v.n[0] == a && v.n[1] == b));
}
// Whether every buffer of a stream has the length that the plan asks for, and what is used as an index is one.
static bool state_fits(const StreamPlan& p, const StreamState& s, char dtype) {
    const int64_t B = s.s.n[0], n = s.s.n[1], C = p.n_outputs, N = s.H.n[1], m = s.target.n[1], d = p.n_inputs, L = 256 / (dtype == 'f' ? 4 : 8);
    const int64_t depth = s.past_derivatives.size ? s.past_derivatives.n[0] : 0, places = s.replay_x.size ? s.replay_x.n[0] : 0;
    bool good = has(s.s, B, n) && has(s.J, B, 2, s.J.n[2]) && has(s.side, B) && has(s.peek_states, n) && has(p.offset, n);
    good = good && d <= p.n_clamped && p.n_clamped + C <= n && has(s.weights, p.weight_index.size) && s.values.size == s.grad.size;
    good = good && has(s.H, C, N) && N <= s.values.size && has(s.target, B, m) && (m == 1 || m == C) && has(s.clock, 8);
    good = good && has(s.Y, C, L) && has(s.G, C, L) && has(s.y, m, L) && has(s.share, L);
    good = good && has(s.past_derivatives, depth, B, C, N) && has(s.past_outputs, depth, B, C);
    good = good && (!s.x_moments.size || has(s.x_moments, 7, d)) && (!s.y_moments.size || (has(s.y_moments, 7, m) && m == C));
    good = good && has(s.replay_x, places, d) && has(s.replay_y, places, m) && (!places || s.last_x.size == d);
    for (int64_t q = 0; good && q + 1 < p.pack_start.size; ++q) {
        const int64_t sums = (p.pack_start[q + 1] - p.pack_start[q]) * L;
        good = s.sums.size >= sums && s.slopes.size >= sums;
    }
    for (int64_t g = 0; good && g < p.groups.n[0] && p.groups.size; ++g)
        for (int64_t r = p.groups[3 * g]; good && r < p.groups[3 * g + 1]; ++r) good = p.offset[p.rows[r]] + p.groups[3 * g + 2] <= s.J.n[2];
    for (int64_t b = 0; good && b < B; ++b) good = s.side[b] == 0 || s.side[b] == 1;
    return good && s.clock[SEEN] >= 0 && s.clock[STORED] >= 0;
}
static bool filter_fits(const Filter& f, int64_t C, int64_t N) {
    const int64_t M = f.order.size, blocks = f.offset.size;
    bool good = has(f.memo, 3 + C + N) && has(f.H, C, M) && has(f.U, C, M) && has(f.S, C, C) && has(f.L, C, C) && has(f.T, C, C) && has(f.M, C, C);
    good = good && has(f.v, 8, C) && has(f.chosen, C) && has(f.few, C) && has(f.first, blocks + 1) && has(f.taken, blocks);
    for (int64_t g = 0; good && g < blocks; ++g) {
        const int64_t width = f.first[g + 1] - f.first[g];
        good = f.first[g] >= 0 && width >= f.taken[g] && f.first[g + 1] <= M && f.offset[g] >= 0;
        good = good && f.offset[g] + width * (width + 8) / 2 <= f.P.size;  // strips of 8 rows
    }
    return good;
}
static bool optimizer_fits(const OptimizerState& o, int64_t N) {
    return o.first.size == N && o.penalised.size == N && (o.solver != ADAM || o.second.size == N);
}
// stream(plan, state, filter, optimizer, mode, X, Y, lag, out): X (T, B, inputs), Y (T, B, m), out (T, B, outputs)
static PyObject* module_stream(PyObject*, PyObject* const* arguments, Py_ssize_t n) {
    StreamCall c;
    char dtype;
    if (n != 9) return PyErr_Format(PyExc_TypeError, "9 arguments are needed, got %zd", n);
    if (!take_stream(arguments, c.plan, c.state, c.filter, dtype)) return nullptr;
    c.optimizer = arguments[3] == Py_None ? nullptr : struct_of<OptimizerState>(arguments[3], OptimizerState_info::info, dtype);
    if (PyErr_Occurred()) return nullptr;
    Arguments a(arguments + 4, n - 4, 5, dtype);
    c.mode = a.integer();
    c.X = a.view('T', false);
    c.Y = a.view('T', false);
    c.lag = a.integer();
    c.out = a.view('T', true);
    c.interrupted = false;
    const int64_t B = c.state->s.n[0], T = c.X.n[0];
    const bool runs = c.mode & (ADVANCE | PEEK), learns = c.mode & (LEARN | DERIVE);
    a.require(!runs || (c.X.n[1] == B && c.X.n[2] == c.plan->n_inputs), "X");
    a.require(!runs || (c.out.n[0] >= T && c.out.n[1] == B && c.out.n[2] == c.plan->n_outputs), "out");
    a.require(!learns || (c.Y.n[1] == B && c.Y.n[2] == c.state->target.n[1] && (!runs || c.Y.n[0] == T)), "Y");
    a.require(!learns || c.lag == 0 || c.lag < c.state->past_derivatives.n[0], "the delay");
    a.require(!(c.mode & LEARN) || (c.state->use_filter ? c.filter && dtype == 'd' : c.optimizer != nullptr), "the learner");
    a.require(state_fits(*c.plan, *c.state, dtype), "an array of the stream");
    a.require(!c.filter || filter_fits(*c.filter, c.plan->n_outputs, c.state->H.n[1]), "an array of the filter");
    a.require(!c.optimizer || optimizer_fits(*c.optimizer, c.state->H.n[1]), "the optimiser's state");
    a.require(c.lag >= 0, "the delay");
    if (!a.good) return nullptr;
    Running running;
    c.poll = {Running::stop, &running};
    kernels_of(dtype)->stream(&c);
    running.end();
    if (c.interrupted) return nullptr;
    Py_RETURN_NONE;
}
// variance(plan, state, filter, out): out (B, outputs)
static PyObject* module_variance(PyObject*, PyObject* const* arguments, Py_ssize_t n) {
    VarianceCall c;
    char dtype;
    if (n != 4) return PyErr_Format(PyExc_TypeError, "4 arguments are needed, got %zd", n);
    if (!take_stream(arguments, c.plan, c.state, c.filter, dtype)) return nullptr;
    Arguments a(arguments + 3, n - 3, 1, dtype);
    c.out = a.view_of<double>('d', true);
    a.require(c.filter && dtype == 'd' && c.out.size == c.state->s.n[0] * c.plan->n_outputs, "out");
    a.require(state_fits(*c.plan, *c.state, dtype) && c.filter && filter_fits(*c.filter, c.plan->n_outputs, c.state->H.n[1]), "an array of the stream");
    if (!a.good) return nullptr;
    kernels_of('d')->variance(&c);
    Py_RETURN_NONE;
}
// kalman(filter, values, H, y, target, loss, fresh, rest) -> the loss before the update, NaN if nothing was learned
static PyObject* module_kalman(PyObject*, PyObject* const* arguments, Py_ssize_t n) {
    Arguments a(arguments, n, 8, 'd');
    KalmanCall c;
    PyObject* filter = a.object();
    c.values = a.view_of<double>('d', true);
    c.H = a.view_of<double>('d', false);
    c.y = a.view_of<double>('d', false);
    c.target = a.view_of<double>('d', false);
    c.loss = a.integer();
    c.fresh = a.integer();
    c.rest = a.real();
    if (!a.good || !(c.filter = struct_of<Filter>(filter, Filter_info::info, 0))) return nullptr;
    a.require(c.y.size && c.y.size <= c.filter->S.n[0] && c.H.size == c.y.size * c.values.size, "H or y");
    a.require(c.target.size >= (c.loss == 0 ? 1 : c.y.size), "target");
    a.require(filter_fits(*c.filter, c.filter->S.n[0], c.values.size), "an array of the filter");
    if (!a.good) return nullptr;
    kernels_of('d')->kalman(&c);
    return PyFloat_FromDouble(c.result);
}

static bool portable_fits(const PortableNet& p, const PortableState& s) {
    const int64_t rows = p.code.size, n = p.n_clamped + rows, N = p.n_parameters, C = p.n_outputs, F = p.filters ? N : 0, O = p.filters ? 0 : N;
    int64_t J = 0, widest = 1;
    bool good = has(p.ptr, rows + 1) && p.row_ptr.size == p.par_ptr.size && p.out_row.size == (p.row_ptr.size - 1) * C && p.n_inputs <= p.n_clamped;
    for (int64_t g = 0; good && g + 1 < p.row_ptr.size; ++g) {
        const int64_t width = p.row_ptr[g + 1] - p.row_ptr[g];
        J += width * (p.par_ptr[g + 1] - p.par_ptr[g]);
        if (width > widest) widest = width;
    }
    good = good && s.theta.size >= N && has(s.s, n) && has(s.other, n) && has(s.J, J) && has(s.t, rows) && has(s.d, rows) && s.column.size >= 4 * widest;
    good = good && has(s.first, O) && has(s.second, p.learner == ADAM ? O : s.second.size) && has(s.P, F * (F + 1) / 2) && has(s.last, F);
    good = good && has(s.noise, p.filters ? C : 0) && has(s.memo, 3) && has(s.clock, 4) && has(s.h, N) && has(s.u, F) && has(s.grad, N) && has(s.moved, F);
    good = good && has(s.g, C) && has(s.scaled, p.n_targets) && (p.n_targets == 1 || p.n_targets == C);
    return good && (!s.x_moments.size || has(s.x_moments, 7 * p.n_inputs)) && (!s.y_moments.size || has(s.y_moments, 7 * C));
}
// portable(net, state, rule, mode, X, Y, out): X (T, inputs), Y (T, targets), out (T, outputs); None if the mode has no use for it
static PyObject* module_portable(PyObject*, PyObject* const* arguments, Py_ssize_t n) {
    Arguments a(arguments, n, 7, 'f');
    PyObject *given_net = a.object(), *given_state = a.object();
    const View<float> rule = a.view_of<float>('f', false);
    const int64_t mode = a.integer();
    const View<float> X = a.view_of<float>('f', false), Y = a.view_of<float>('f', false), out = a.view_of<float>('f', true);
    if (!a.good) return nullptr;
    auto* net = struct_of<PortableNet>(given_net, PortableNet_info::info, 'f');
    auto* state = net ? struct_of<PortableState>(given_state, PortableState_info::info, 'f') : nullptr;
    if (!state) return nullptr;
    const bool runs = mode & (ADVANCE | PEEK), learns = mode & (LEARN | DERIVE);
    const int64_t T = runs ? X.n[0] : Y.n[0], d = net->n_inputs, m = net->n_targets, C = net->n_outputs;
    a.require(rule.size == 14, "rule");
    a.require(!runs || (X.n[1] == d && out.n[0] == T && out.n[1] == C), "X or out");
    a.require(!learns || (Y.n[0] == T && Y.n[1] == m), "Y");
    a.require(portable_fits(*net, *state), "an array of the stream");
    if (!a.good) return nullptr;
    Running running;
    const int64_t block = 64;  // samples between two looks for signals
    bool stopped = false;
    for (int64_t k = 0; k < T && !stopped; k += block, stopped = k < T && Running::stop(&running))
        meshnn_portable_run(net, state, rule.data, mode, k + block < T ? block : T - k, runs ? X.data + k * d : nullptr,
                            learns ? Y.data + k * m : nullptr, runs ? out.data + k * C : nullptr);
    running.end();
    if (stopped) return nullptr;
    Py_RETURN_NONE;
}
// portable_activate(code, t, s, d): values and slopes of an activation in portable arithmetic, for the tests
static PyObject* module_portable_activate(PyObject*, PyObject* const* arguments, Py_ssize_t n) {
    Arguments a(arguments, n, 4, 'f');
    const int64_t code = a.integer();
    const View<float> t = a.view_of<float>('f', false), s = a.view_of<float>('f', true), d = a.view_of<float>('f', true);
    a.require(s.size == t.size && d.size == t.size, "s or d");
    if (!a.good) return nullptr;
    meshnn_portable_activate(code, t.size, t.data, s.data, d.data);
    Py_RETURN_NONE;
}

#define FAST(name, function) {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, nullptr}
static PyMethodDef engine_methods[] = {
    FAST("forward", engine_forward), FAST("loss", engine_loss), FAST("jacobian", engine_jacobian), FAST("curvature", engine_curvature),
    FAST("epochs", engine_epochs), FAST("layer", engine_layer), FAST("vjp", engine_vjp), {nullptr, nullptr, 0, nullptr},
};
static PyMethodDef module_methods[] = {
    FAST("update", module_update), FAST("elementary", module_elementary),
    FAST("stream", module_stream), FAST("variance", module_variance), FAST("kalman", module_kalman),
    FAST("portable", module_portable), FAST("portable_activate", module_portable_activate),
    {nullptr, nullptr, 0, nullptr},
};
static PyType_Slot struct_slots[] = {{Py_tp_new, (void*)struct_new}, {Py_tp_dealloc, (void*)struct_dealloc}, {0, nullptr}};
static PyType_Slot engine_slots[] = {
    {Py_tp_new, (void*)engine_new}, {Py_tp_dealloc, (void*)engine_dealloc}, {Py_tp_methods, engine_methods}, {0, nullptr}};
static PyType_Slot kept_slots[] = {{Py_tp_dealloc, (void*)kept_dealloc}, {0, nullptr}};
static PyType_Spec struct_spec = {"meshnn._core.Struct", sizeof(StructObject), 0, Py_TPFLAGS_DEFAULT, struct_slots};
static PyType_Spec engine_spec = {"meshnn._core.Engine", sizeof(EngineObject), 0, Py_TPFLAGS_DEFAULT, engine_slots};
static PyType_Spec kept_spec = {"meshnn._core.Kept", sizeof(KeptObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, kept_slots};

static int module_exec(PyObject* module) {
    if (!choose_set()) return -1;
    struct_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&struct_spec));
    engine_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&engine_spec));
    kept_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kept_spec));
    if (!struct_type || !engine_type || !kept_type) return -1;
    PyObject* isas = PyTuple_New(sizeof(SETS) / sizeof(*SETS));
    for (size_t k = 0; isas && k < sizeof(SETS) / sizeof(*SETS); ++k) PyTuple_SetItem(isas, (Py_ssize_t)k, PyUnicode_FromString(SETS[k].name));
    if (!isas || PyModule_AddObjectRef(module, "isas", isas) || PyModule_AddStringConstant(module, "isa", SETS[chosen].name)) return -1;
    Py_DECREF(isas);
    return PyModule_AddObjectRef(module, "Struct", reinterpret_cast<PyObject*>(struct_type)) ||
                   PyModule_AddObjectRef(module, "Engine", reinterpret_cast<PyObject*>(engine_type)) ? -1 : 0;
}
static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void*)module_exec},
#ifdef MESHNN_FREE_THREADED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, nullptr},
};
static PyModuleDef module_def = {PyModuleDef_HEAD_INIT, "meshnn._core", "The compiled core of meshnn.", 0, module_methods, module_slots, nullptr, nullptr, nullptr};
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&module_def); }
