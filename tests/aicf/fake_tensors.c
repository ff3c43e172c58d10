/* A module with tensors as PyTorch has them for those who read and make them in C: DLPack's exchange API on the type, and beside it, in the
   same library, the functions of PyTorch's C interface. Memory is the host's; it says that it is device 0's, and counts what is alive.

   `tell(lie)` makes one thing wrong from then on (0: nothing), `make_type()` returns a new type with an API of its own. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { HONEST, WRONG_SHAPE, WRONG_STRIDES, WRONG_DTYPE, WRONG_TYPE, WRONG_MEMORY, CANNOT_MAKE, HAS_NO_MEMORY, CANNOT_DESCRIBE };
enum { FLOAT32 = 6, FLOAT64 = 7, INT32 = 3, UINT8 = 0, CPU = 0, CUDA = 1, DL_CPU = 1, DL_CUDA = 2 };

static int lie = HONEST, num_alive = 0;
static bool grad_enabled = true;
static uintptr_t current_stream = 0;

/* ---- memory and tensors */
typedef struct {
    int users;
    int64_t shape[2], strides[2]; /* elements */
    int ndim, dtype, device;
    char *block, *data;
} Storage;

static int size_of(int dtype) { return dtype == FLOAT64 ? 8 : dtype == UINT8 ? 1 : 4; }

static Storage* allocate(int ndim, const int64_t* shape, const int64_t* strides, int dtype, int device, int64_t offset) {
    Storage* made = calloc(1, sizeof *made);
    int64_t count = 1;
    made->users = 1;
    made->ndim = ndim;
    made->dtype = dtype;
    made->device = device;
    for (int i = 0; i < ndim; ++i) {
        made->shape[i] = shape[i];
        made->strides[i] = strides[i];
        count += (shape[i] - 1) * strides[i];
    }
    made->block = calloc((size_t)(count + offset) * (size_t)size_of(dtype) + 256, 1);
    made->data = made->block + (256 - (uintptr_t)made->block % 256) + offset * size_of(dtype);
    ++num_alive;
    return made;
}

static void release(Storage* storage) {
    if (--storage->users > 0) return;
    free(storage->block);
    free(storage);
    --num_alive;
}

typedef struct {
    PyObject_HEAD Storage* storage;
    bool requires_grad;
} Tensor;

static PyTypeObject* last_type = NULL;

static PyObject* make_tensor(PyTypeObject* type, PyObject* arguments, PyObject* names) {
    static char* keywords[] = {"rows", "columns", "offset", "padding", "dtype", NULL};
    long long shape[2], offset = 0, padding = 0;
    const char* dtype = "float32";
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "LL|LLs", keywords, &shape[0], &shape[1], &offset, &padding, &dtype)) return NULL;
    const int code = strcmp(dtype, "float64") == 0 ? FLOAT64 : strcmp(dtype, "int32") == 0 ? INT32 : FLOAT32;
    const int64_t sizes[2] = {shape[0], shape[1]}, strides[2] = {shape[1] + padding, 1};
    Tensor* self = (Tensor*)type->tp_alloc(type, 0);
    if (self != NULL) self->storage = allocate(2, sizes, strides, code, CUDA, offset);
    return (PyObject*)self;
}

static void free_tensor(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    release(((Tensor*)self)->storage);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject* get_address(PyObject* self, void* closure) {
    (void)closure;
    return PyLong_FromVoidPtr(((Tensor*)self)->storage->data);
}
static PyObject* get_shape(PyObject* self, void* closure) {
    const Storage* s = ((Tensor*)self)->storage;
    (void)closure;
    return s->ndim == 2 ? Py_BuildValue("(LL)", (long long)s->shape[0], (long long)s->shape[1])
                        : Py_BuildValue("(L)", (long long)s->shape[0]);
}
static PyObject* get_requires_grad(PyObject* self, void* closure) {
    (void)closure;
    return PyBool_FromLong(((Tensor*)self)->requires_grad);
}
static int set_requires_grad(PyObject* self, PyObject* value, void* closure) {
    (void)closure;
    ((Tensor*)self)->requires_grad = value == Py_True;
    return 0;
}

static PyGetSetDef tensor_getters[] = {{"address", get_address, NULL, NULL, NULL},
                                       {"shape", get_shape, NULL, NULL, NULL},
                                       {"requires_grad", get_requires_grad, set_requires_grad, NULL, NULL},
                                       {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot tensor_slots[] = {
    {Py_tp_new, (void*)make_tensor}, {Py_tp_dealloc, (void*)free_tensor}, {Py_tp_getset, tensor_getters}, {0, NULL}};
static PyType_Spec tensor_spec = {"fake_tensors.Tensor", sizeof(Tensor), 0, Py_TPFLAGS_DEFAULT, tensor_slots};

/* ---- DLPack's exchange API, as in dlpack.h 1.3 */
typedef struct {
    void* data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;
typedef struct {
    uint32_t major, minor;
    void *prev, *allocator, *from_object, *to_object;
    int (*describe)(void*, DLTensor*);
    int (*current_work_stream)(int32_t, int32_t, void**);
} ExchangeAPI;

static int describe(void* object, DLTensor* out) {
    Storage* s = ((Tensor*)object)->storage;
    const bool is_float = s->dtype == FLOAT32 || s->dtype == FLOAT64;
    if (lie == CANNOT_DESCRIBE) {
        PyErr_SetString(PyExc_BufferError, "no words for this tensor");
        return -1;
    }
    *out = (DLTensor){
        s->data, s->device == CUDA ? DL_CUDA : DL_CPU, 0, s->ndim, is_float ? 2 : s->dtype == UINT8 ? 1 : 0, 0, 1, s->shape, s->strides, 0};
    out->bits = (uint8_t)(8 * size_of(s->dtype));
    return 0;
}

static int find_stream(int32_t device_type, int32_t device_id, void** out) {
    (void)device_type, (void)device_id;
    *out = (void*)current_stream;
    return 0;
}

static PyObject* make_type(PyObject* module, PyObject* arguments) {
    (void)module, (void)arguments;
    PyObject* type = PyType_FromSpec(&tensor_spec);
    ExchangeAPI* api = calloc(1, sizeof *api); /* lives as long as the process */
    *api = (ExchangeAPI){1, 3, NULL, NULL, NULL, NULL, describe, find_stream};
    PyObject* capsule = PyCapsule_New(api, "dlpack_exchange_api", NULL);
    if (type == NULL || capsule == NULL || PyObject_SetAttrString(type, "__dlpack_c_exchange_api__", capsule) != 0) return NULL;
    Py_DECREF(capsule);
    last_type = (PyTypeObject*)type;
    return type;
}

/* ---- PyTorch's C interface, names and types as in its shim.h */
int32_t aoti_torch_device_type_cpu(void) { return CPU; }
int32_t aoti_torch_device_type_cuda(void) { return CUDA; }
int32_t aoti_torch_dtype_float32(void) { return FLOAT32; }
int32_t aoti_torch_dtype_uint8(void) { return UINT8; }
bool aoti_torch_grad_mode_is_enabled(void) { return grad_enabled; }

int32_t aoti_torch_empty_strided(int64_t ndim, const int64_t* sizes, const int64_t* strides, int32_t dtype, int32_t device, int32_t index,
                                 void** out) {
    int64_t shape[2], steps[2];
    if (lie == CANNOT_MAKE || index != 0) return 1;
    memcpy(shape, sizes, (size_t)ndim * sizeof *sizes);
    memcpy(steps, strides, (size_t)ndim * sizeof *strides);
    if (lie == WRONG_SHAPE) shape[0] = 1;
    if (lie == WRONG_STRIDES) steps[0] += 1;
    *out = allocate((int)ndim, shape, steps, lie == WRONG_DTYPE ? INT32 : dtype, device, 0);
    return 0;
}
int32_t aoti_torch_get_data_ptr(void* tensor, void** out) {
    *out = lie == HAS_NO_MEMORY ? NULL : ((Storage*)tensor)->data + (lie == WRONG_MEMORY ? 64 : 0);
    return 0;
}
int32_t aoti_torch_delete_tensor_object(void* tensor) {
    release(tensor);
    return 0;
}
#ifndef WITHOUT_WRAP
PyObject* _Z16THPVariable_WrapRKN2at10TensorBaseE(const void* tensor) {
    if (lie == WRONG_TYPE) return PyLong_FromLong(1);
    Tensor* self = (Tensor*)last_type->tp_alloc(last_type, 0);
    self->storage = (Storage*)tensor;
    ++self->storage->users;
    return (PyObject*)self;
}
#endif

/* ---- the module */
static PyObject* count_alive(PyObject* module, PyObject* arguments) {
    (void)module, (void)arguments;
    return PyLong_FromLong(num_alive);
}
static PyObject* tell(PyObject* module, PyObject* value) {
    (void)module;
    lie = (int)PyLong_AsLong(value);
    Py_RETURN_NONE;
}
static PyObject* set_stream(PyObject* module, PyObject* value) {
    (void)module;
    current_stream = (uintptr_t)PyLong_AsUnsignedLongLong(value);
    Py_RETURN_NONE;
}
static PyObject* set_grad_enabled(PyObject* module, PyObject* value) {
    (void)module;
    grad_enabled = value == Py_True;
    Py_RETURN_NONE;
}
static PyObject* is_grad_enabled(PyObject* module, PyObject* arguments) {
    (void)module, (void)arguments;
    return PyBool_FromLong(grad_enabled);
}
static PyMethodDef methods[] = {{"make_type", make_type, METH_NOARGS, NULL},
                                {"count_alive", count_alive, METH_NOARGS, NULL},
                                {"tell", tell, METH_O, NULL},
                                {"set_stream", set_stream, METH_O, NULL},
                                {"set_grad_enabled", set_grad_enabled, METH_O, NULL},
                                {"is_grad_enabled", is_grad_enabled, METH_NOARGS, NULL},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "fake_tensors", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit_fake_tensors(void) { return PyModule_Create(&definition); }
