// The Python bindings of the core. Only bindings* use Python: the limited C API of Python 3.11.
//
//   Struct(name, mapping, dtype)   a C struct of views of arrays, to which it holds references
//   Engine(plan, dtype)            a plan that runs; its methods take arrays and write into arrays
//   isa, isas                      the instruction set in use, and the available ones
//
// Lengths are checked here; meshnn/engine checks values.
#include "bindings_streams.hpp"

// -- functions of the module ---------------------------------------------------------------------------------------------------------
// update(optimizer, values, grad, step, rate) -> the norm of the gradient including the penalty
static PyObject* module_update(PyObject*, PyObject* const* arguments, Py_ssize_t n) {
    OptimizerState* state = n ? struct_of<OptimizerState>(arguments[0], 0) : nullptr;
    if (!state) return n ? nullptr : PyErr_Format(PyExc_TypeError, "arguments are needed");
    const char dtype = dtype_of(arguments[0]);
    Arguments a(arguments + 1, n - 1, 4, dtype);
    AnyView values, grad;
    int64_t step;
    double rate;
    a.take(out(values), out(grad), step, rate);
    a.require(grad.size == values.size && optimizer_fits(*state, values.size), "values, grad or the optimiser's state");
    if (!a.good) return nullptr;
    Running running;
    double norm = kernels_of(dtype)->update(*state, values, grad, step, rate);
    running.end();
    return PyFloat_FromDouble(norm);
}

#define FAST(name, function) {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, nullptr}
static PyMethodDef engine_methods[] = {
    FAST("forward", engine_forward), FAST("loss", engine_loss), FAST("jacobian", engine_jacobian), FAST("curvature", engine_curvature),
    FAST("epochs", engine_epochs), FAST("layer", engine_layer), FAST("vjp", engine_vjp), {nullptr, nullptr, 0, nullptr},
};
static PyMethodDef module_methods[] = {
    FAST("update", module_update),
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
