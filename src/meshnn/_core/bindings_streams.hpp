// Streams, filters and portable streams.
#pragma once
#include "bindings_engine.hpp"

// -- streams -------------------------------------------------------------------------------------------------------------------------
// Structs of a stream, or null where None is given and allowed; `dtype` is that of the state.
static bool take_stream(PyObject* const* given, const StreamPlan*& plan, StreamState*& state, Filter*& filter, char& dtype) {
    if (!(state = struct_of<StreamState>(given[1], 0))) return false;
    dtype = dtype_of(given[1]);
    plan = struct_of<StreamPlan>(given[0], 0);
    filter = given[2] == Py_None ? nullptr : struct_of<Filter>(given[2], 0);
    return plan && !PyErr_Occurred();
}
// Whether an array has these lengths.
static bool has(const AnyView& v, int64_t a, int64_t b = 1, int64_t c = 1, int64_t d = 1) {
    return v.size == a * b * c * d && (!v.size || (v.n[0] == a && v.n[1] == b && v.n[2] == c && v.n[3] == d));
}
template <class E> static bool has(const View<E>& v, int64_t a, int64_t b = 1) {
    return v.size == a * b && (!v.size || (v.n[0] == a && v.n[1] == b));
}
// Whether every buffer of a stream has the length that the plan requires, and all indices are valid.
static bool state_fits(const StreamPlan& p, const StreamState& s, char dtype) {
    const int64_t B = s.s.n[0], n = s.s.n[1], C = p.n_outputs, N = s.H.n[1], m = s.target.n[1], d = p.n_inputs, L = 256 / (dtype == 'f' ? 4 : 8);
    const int64_t depth = s.past_derivatives.size ? s.past_derivatives.n[0] : 0, places = s.replay_x.size ? s.replay_x.n[0] : 0;
    bool good = has(s.s, B, n) && has(s.J, B, 2, s.J.n[2]) && s.J.n[2] >= p.columns && has(s.side, B) && has(s.peek_states, n) && has(p.offset, n);
    good = good && d <= p.n_clamped && p.n_clamped + C <= n && has(s.weights, p.weight_index.size) && s.values.size == s.grad.size;
    good = good && has(s.H, C, N) && N <= s.values.size && has(s.target, B, m) && (m == 1 || m == C) && has(s.clock, 8);
    good = good && has(s.Y, C, L) && has(s.G, C, L) && has(s.y, m, L) && has(s.share, L);
    good = good && s.sums.size >= p.most_packs * L && s.slopes.size >= p.most_packs * L && s.panel.size >= p.most_sources * L;
    good = good && has(s.past_derivatives, depth, B, C, N) && has(s.past_outputs, depth, B, C);
    good = good && (!s.x_moments.size || has(s.x_moments, 7, d)) && (!s.y_moments.size || (has(s.y_moments, 7, m) && m == C));
    good = good && has(s.replay_x, places, d) && has(s.replay_y, places, m) && (!places || s.last_x.size == d);
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
// stream(plan, state, filter, optimizer, mode, X, Y, lag, out): X (T, B, inputs), Y (T, B, m), out (T, B, outputs)
static PyObject* module_stream(PyObject*, PyObject* const* arguments, Py_ssize_t n) {
    StreamCall c;
    char dtype;
    if (n != 9) return PyErr_Format(PyExc_TypeError, "9 arguments are needed, got %zd", n);
    if (!take_stream(arguments, c.plan, c.state, c.filter, dtype)) return nullptr;
    c.optimizer = arguments[3] == Py_None ? nullptr : struct_of<OptimizerState>(arguments[3], dtype);
    if (PyErr_Occurred()) return nullptr;
    Arguments a(arguments + 4, n - 4, 5, dtype);
    a.take(c.mode, c.X, c.Y, c.lag, out(c.out));
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
    kernels_of(dtype)->stream(c);
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
    a.take(out(c.out));
    a.require(c.filter && dtype == 'd' && c.out.size == c.state->s.n[0] * c.plan->n_outputs, "out");
    a.require(state_fits(*c.plan, *c.state, dtype) && c.filter && filter_fits(*c.filter, c.plan->n_outputs, c.state->H.n[1]), "an array of the stream");
    if (!a.good) return nullptr;
    kernels_of('d')->variance(c);
    Py_RETURN_NONE;
}
// kalman(filter, values, H, y, target, loss, fresh, rest) -> the loss before the update, NaN if nothing was learned
static PyObject* module_kalman(PyObject*, PyObject* const* arguments, Py_ssize_t n) {
    Arguments a(arguments, n, 8, 'd');
    KalmanCall c;
    PyObject* filter;
    a.take(filter, out(c.values), c.H, c.y, c.target, c.loss, c.fresh, c.rest);
    if (!a.good || !(c.filter = struct_of<Filter>(filter, 0))) return nullptr;
    a.require(c.y.size && c.y.size <= c.filter->S.n[0] && c.H.size == c.y.size * c.values.size, "H or y");
    a.require(c.target.size >= (c.loss == 0 ? 1 : c.y.size), "target");
    a.require(filter_fits(*c.filter, c.filter->S.n[0], c.values.size), "an array of the filter");
    if (!a.good) return nullptr;
    kernels_of('d')->kalman(c);
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
// portable(net, state, rule, mode, X, Y, out): X (T, inputs), Y (T, targets), out (T, outputs); None if the mode does not use it
static PyObject* module_portable(PyObject*, PyObject* const* arguments, Py_ssize_t n) {
    Arguments a(arguments, n, 7, 'f');
    PyObject *given_net, *given_state;
    View<float> rule, X, Y, outputs;
    int64_t mode;
    a.take(given_net, given_state, rule, mode, X, Y, out(outputs));
    if (!a.good) return nullptr;
    auto* net = struct_of<PortableNet>(given_net, 'f');
    auto* state = net ? struct_of<PortableState>(given_state, 'f') : nullptr;
    if (!state) return nullptr;
    const bool runs = mode & (ADVANCE | PEEK), learns = mode & (LEARN | DERIVE);
    const int64_t T = runs ? X.n[0] : Y.n[0], d = net->n_inputs, m = net->n_targets, C = net->n_outputs;
    a.require(rule.size == 14, "rule");
    a.require(!runs || (X.n[1] == d && outputs.n[0] == T && outputs.n[1] == C), "X or out");
    a.require(!learns || (Y.n[0] == T && Y.n[1] == m), "Y");
    a.require(portable_fits(*net, *state), "an array of the stream");
    if (!a.good) return nullptr;
    Running running;
    const int64_t block = 64;  // samples between two checks for signals
    bool stopped = false;
    for (int64_t k = 0; k < T && !stopped; k += block, stopped = k < T && Running::stop(&running))
        meshnn_portable_run(net, state, rule.data, mode, k + block < T ? block : T - k, runs ? X.data + k * d : nullptr,
                            learns ? Y.data + k * m : nullptr, runs ? outputs.data + k * C : nullptr);
    running.end();
    if (stopped) return nullptr;
    Py_RETURN_NONE;
}
// portable_activate(code, t, s, d): values and slopes of an activation in portable arithmetic, for the tests
static PyObject* module_portable_activate(PyObject*, PyObject* const* arguments, Py_ssize_t n) {
    Arguments a(arguments, n, 4, 'f');
    int64_t code;
    View<float> t, s, d;
    a.take(code, t, out(s), out(d));
    a.require(s.size == t.size && d.size == t.size, "s or d");
    if (!a.good) return nullptr;
    meshnn_portable_activate(code, t.size, t.data, s.data, d.data);
    Py_RETURN_NONE;
}
