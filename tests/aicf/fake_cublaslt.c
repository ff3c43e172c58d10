/* A stand-in for libcublasLt: the functions that the binding calls, computing on the host what lies in device memory. It takes 16-bit
 * matrices, knows no algorithm for K = 8, asks for 4096 bytes of workspace and fails without them. FAKE_VERSION is what it says it is. */
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { kBf16 = 14, kRelu = 2, kGelu = 32, kBias = 4, kWorkspace = 4096 };

typedef struct {
    int32_t trans_a, trans_b, epilogue;
    const void* bias;
} Description;

typedef struct {
    int32_t dtype;
    uint64_t rows, columns;
    int64_t stride;
} Layout;

typedef struct {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
} Heuristic;

static int (*copy)(void*, const void*, size_t, int);

static int make(void** made, size_t bytes) { return (*made = calloc(1, bytes)) == NULL; }

static int destroy(void* made) {
    free(made);
    return 0;
}

size_t cublasLtGetVersion(void) { return FAKE_VERSION; }

int cublasLtCreate(void** handle) {
    void* runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
    if (runtime == NULL) return 1;
    *(void**)&copy = dlsym(runtime, "cudaMemcpy");
    return copy == NULL || make(handle, 8);
}

int cublasLtMatmulDescCreate(void** made, int compute, int scale) { return compute != 68 || scale != 0 || make(made, sizeof(Description)); }
int cublasLtMatmulDescDestroy(void* made) { return destroy(made); }
int cublasLtMatrixLayoutDestroy(void* made) { return destroy(made); }
int cublasLtMatmulPreferenceCreate(void** made) { return make(made, 8); }
int cublasLtMatmulPreferenceDestroy(void* made) { return destroy(made); }

int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value, size_t bytes) {
    if (attribute == 1 && bytes == 8) memcpy(preference, value, 8);
    return 0;
}

int cublasLtMatmulDescSetAttribute(void* description, int attribute, const void* value, size_t bytes) {
    Description* d = description;
    void* places[] = {&d->trans_a, &d->trans_b, &d->epilogue, &d->bias};
    const int numbers[] = {3, 4, 7, 8};
    for (int i = 0; i < 4; ++i) {
        if (attribute == numbers[i] && bytes == (i < 3 ? 4 : 8)) return memcpy(places[i], value, bytes) == NULL;
    }
    return 7;
}

int cublasLtMatrixLayoutCreate(void** made, int dtype, uint64_t rows, uint64_t columns, int64_t stride) {
    if (make(made, sizeof(Layout))) return 3;
    *(Layout*)*made = (Layout){dtype, rows, columns, stride};
    return 0;
}

int cublasLtMatmulAlgoGetHeuristic(void* handle, void* description, void* a, void* b, void* c, void* d, void* preference, int asked,
                                   Heuristic* found, int* count) {
    (void)handle, (void)description, (void)a, (void)c, (void)d;
    const uint64_t limit = *(const uint64_t*)preference;
    *count = asked > 0 && ((const Layout*)b)->rows != 8 && limit >= kWorkspace;
    if (*count) *found = (Heuristic){.algorithm = {77}, .workspace_bytes = kWorkspace};
    return 0;
}

static float read(const uint16_t* bits, int dtype) {
    float value;
    if (dtype == kBf16) {
        const uint32_t wide = (uint32_t)*bits << 16;
        memcpy(&value, &wide, 4);
        return value;
    }
    _Float16 half;
    memcpy(&half, bits, 2);
    return (float)half;
}

static uint16_t round_to(float value, int dtype) {
    uint16_t bits;
    if (dtype == kBf16) {
        uint32_t wide;
        memcpy(&wide, &value, 4);
        return (uint16_t)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
    }
    const _Float16 half = (_Float16)value;
    memcpy(&bits, &half, 2);
    return bits;
}

static uint16_t* fetch(const void* address, const Layout* l) {
    const size_t bytes = 2 * ((size_t)l->stride * (l->columns - 1) + l->rows);
    uint16_t* made = malloc(bytes);
    return made != NULL && copy(made, address, bytes, 2) == 0 ? made : NULL;
}

int cublasLtMatmul(void* handle, void* description, const float* alpha, const void* a, const Layout* la, const void* b, const Layout* lb,
                   const float* beta, const void* c, const Layout* lc, void* d, const Layout* ld, const uint64_t* algorithm,
                   void* workspace, size_t workspace_bytes, void* stream) {
    const Description* desc = description;
    (void)stream;
    if (handle == NULL || *alpha != 1.0f || *beta != 0.0f || c != d || lc != ld || algorithm[0] != 77) return 7;
    if (workspace == NULL || workspace_bytes < kWorkspace || desc->trans_b) return 7;
    const uint64_t rows = ld->rows, columns = ld->columns, depth = lb->rows;
    uint16_t *left = fetch(a, la), *right = fetch(b, lb), *out = fetch(d, ld), *bias = malloc(2 * rows);
    if (left == NULL || right == NULL || out == NULL || bias == NULL) return 14;
    if ((desc->epilogue & kBias) && copy(bias, desc->bias, 2 * rows, 2) != 0) return 14;
    for (uint64_t column = 0; column < columns; ++column) {
        for (uint64_t row = 0; row < rows; ++row) {
            double sum = desc->epilogue & kBias ? read(&bias[row], ld->dtype) : 0.0;
            for (uint64_t k = 0; k < depth; ++k) {
                const uint16_t* x = desc->trans_a ? &left[row * (size_t)la->stride + k] : &left[k * (size_t)la->stride + row];
                sum += (double)read(x, la->dtype) * read(&right[column * (size_t)lb->stride + k], lb->dtype);
            }
            if (desc->epilogue & kRelu) sum = sum < 0.0 ? 0.0 : sum;
            if (desc->epilogue & kGelu) sum = 0.5 * sum * (1.0 + tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
            out[column * (size_t)ld->stride + row] = round_to((float)sum, ld->dtype);
        }
    }
    const int failed = copy(d, out, 2 * ((size_t)ld->stride * (columns - 1) + rows), 1);
    free(left), free(right), free(out), free(bias);
    return failed ? 14 : 0;
}
