// Shared parts of the bindings: the choice of an instruction set, arrays, structs and arguments.
#pragma once
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
    if (field.kind == 'n' || field.kind == 'r') {
        if (field.kind == 'n') *reinterpret_cast<int64_t*>(place) = PyLong_AsLongLong(value);
        else *reinterpret_cast<double*>(place) = PyFloat_AsDouble(value);
        return !PyErr_Occurred();
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
template <class S> static S* struct_of(PyObject* object, char dtype) {
    const StructInfo& info = info_of(static_cast<S*>(nullptr));
    if (Py_TYPE(object) == struct_type) {
        auto* self = reinterpret_cast<StructObject*>(object);
        if (self->info == &info && (!dtype || self->dtype == dtype)) return reinterpret_cast<S*>(self->memory);
    }
    PyErr_Format(PyExc_TypeError, "a %s of dtype '%c' is needed", info.name, dtype ? dtype : '?');
    return nullptr;
}

// The dtype of the arrays of a struct.
static char dtype_of(PyObject* object) { return reinterpret_cast<StructObject*>(object)->dtype; }

// -- arguments of a call, in order -------------------------------------------------------------------------------------------------
// An array that a call writes to.
template <class E> struct Written { View<E>& view; };
template <class E> static Written<E> out(View<E>& view) { return {view}; }
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
    // Take the next arguments, in order: numbers, objects, arrays to read, arrays to write.
    template <class... Each> void take(Each&&... each) { (one(each), ...); }
    void one(int64_t& number) { number = integer(); }
    void one(double& number) { number = real(); }
    void one(PyObject*& given_object) { given_object = object(); }
    void one(AnyView& array) { array = view('T', false); }
    template <class E> void one(View<E>& array) { array = as<E>(view(KindOf<View<E>>::value, false)); }
    void one(const Written<void>& array) { array.view = view('T', true); }
    template <class E> void one(const Written<E>& array) { array.view = as<E>(view(KindOf<View<E>>::value, true)); }
    int64_t integer() {
        PyObject* given_number = object();
        long long found = given_number ? PyLong_AsLongLong(given_number) : -1;
        good = good && !(found == -1 && PyErr_Occurred());
        return found;
    }
    double real() {
        PyObject* given_number = object();
        double found = given_number ? PyFloat_AsDouble(given_number) : -1;
        good = good && !(found == -1.0 && PyErr_Occurred());
        return found;
    }
    void require(bool holds, const char* what) {
        if (good && !holds) fail(PyErr_Format(PyExc_ValueError, "%s has the wrong length", what));
    }
};
