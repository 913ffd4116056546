// The kernels of one instruction set: compiled once for each, with MESHNN_SET as the suffix of what is exported.
#include "epochs.hpp"
#include "stream.hpp"

namespace {
template <class T> void elementary_call(int function, AnyView given, AnyView found) {
    const View<T>&x = as<T>(given), &out = as<T>(found);
    for (i64 k = 0; k + WIDTH<T> <= x.size; k += WIDTH<T>) {
        Vec<T> v = load_vec<Vec<T>>(x.data + k);
        v = function == 0 ? exp_of<T>(v) : function == 1 ? expm1_of<T>(v) : function == 2 ? log_of<T>(v) : log1p_of<T>(v);
        store_vec(out.data + k, v);
    }
}
template <class T> double update_call(OptimizerState& m, AnyView given, AnyView grad, i64 step, double rate) {
    FlushDenormals flush;
    double norm = 0;
    const View<T>& values = as<T>(given);
    for (i64 k = 0; k < values.size; k += BLOCK)
        norm += update_block(values.data, as<T>(grad).data, m, step, rate, k, min_of(k + BLOCK, values.size));
    return __builtin_sqrt(norm);
}
template <class T> void stream_entry(void* call) { stream_run<T>(*static_cast<StreamCall*>(call)); }
template <class T> void variance_entry(void* call) { stream_variance<T>(*static_cast<VarianceCall*>(call)); }
template <class T> void kalman_entry(void* call) { kalman_run<T>(*static_cast<KalmanCall*>(call)); }
template <class T> constexpr Kernels TABLE = {
    forward_call<T>, loss_call<T>, jacobian_call<T>, curvature_call<T>, vjp_call<T>, epochs_call<T>, keep_call<T>,
    update_call<T>, elementary_call<T>, stream_entry<T>, variance_entry<T>, kalman_entry<T>,
};
}  // namespace
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
extern "C" const Kernels* JOIN(meshnn_kernels_, MESHNN_SET)(int itemsize) { return itemsize == 4 ? &TABLE<float> : &TABLE<double>; }
