// The kernels of one instruction set: compiled once per set, with the suffix MESHNN_SET in exported names.
#include "epochs.hpp"
#include "stream.hpp"

namespace {
template <class T> double update_call(OptimizerState& m, AnyView given, AnyView grad, i64 step, double rate) {
    FlushDenormals flush;
    double norm = 0;
    const View<T>& values = as<T>(given);
    for (i64 k = 0; k < values.size; k += BLOCK)
        norm += update_block(values.data, as<T>(grad).data, m, step, rate, k, min_of(k + BLOCK, values.size));
    return __builtin_sqrt(norm);
}
template <class T> constexpr Kernels TABLE = {
    forward_call<T>, loss_call<T>, jacobian_call<T>, curvature_call<T>, vjp_call<T>, epochs_call<T>, keep_call<T>,
    update_call<T>, stream_run<T>, stream_variance<T>, kalman_run<T>,
};
}  // namespace
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
extern "C" const Kernels* JOIN(meshnn_kernels_, MESHNN_SET)(int itemsize) { return itemsize == 4 ? &TABLE<float> : &TABLE<double>; }
