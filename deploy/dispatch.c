/* The dispatcher of the AICF kernel library: this part is the same in every library, what follows it is tables. Generated; do not edit.
 * docs/frozen.md says how a kernel is chosen; decide.c chooses, and is no part of the library's interface. */
#define AICF_DECIDE_API static inline
#include "decide.c"

#include "status.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

_Static_assert((int)AICF_BY_MEASUREMENT == (int)AICF_MEASURED && (int)AICF_BY_FALLBACK == (int)AICF_FALLBACK, "one numbering of steps");

enum { MAX_ARCHS = 32 };

/* A number in a Params struct: an int64_t (8 bytes) or int32_t (4); 0 bytes: there is none. */
typedef struct Number {
    size_t offset, num_bytes;
    const char* name;
} Number;

/* An attribute: the number in the struct that holds its code, or the pointer whose presence it is; which code each choice has. */
typedef struct Attribute {
    Number number;
    size_t pointer; /* where `number` has 0 bytes */
    int num_choices;
    const int64_t* codes;
} Attribute;

enum { MAX_STRIDES = 7 };

/* A tensor, and the strides of all its dimensions but the last, or that of its rows alone. */
typedef struct Tensor {
    size_t pointer;
    int num_strides;
    Number strides[MAX_STRIDES];
} Tensor;

/* A kernel's entry points take a pointer to the op's Params struct. */
typedef struct Kernel {
    const char* name;
    bool deterministic, capture_safe, needs_workspace;
    AicfStatus (*supports)(const void* params);
    AicfStatus (*workspace_bytes)(const void* params, size_t* bytes);
    AicfStatus (*launch)(const void* params, void* workspace, struct CUstream_st* stream);
} Kernel;

typedef struct Arch {
    const char* name;
    const Kernel* kernels;
    const AicfTable* table;
} Arch;

typedef struct Op {
    const char* name;
    const Number* sizes;
    const Attribute* attributes;
    const Tensor* tensors;
    int num_sizes, num_attributes, num_tensors, num_archs;
    const Arch* archs;
} Op;

static int64_t read_number(const void* params, const Number* number) {
    int64_t wide = 0;
    int32_t narrow = 0;
    const char* from = (const char*)params + number->offset;
    if (number->num_bytes == sizeof wide) memcpy(&wide, from, sizeof wide);
    if (number->num_bytes == sizeof narrow) memcpy(&narrow, from, sizeof narrow);
    return number->num_bytes == sizeof wide ? wide : narrow;
}

static uintptr_t read_pointer(const void* params, size_t offset) {
    uintptr_t pointer;
    memcpy(&pointer, (const char*)params + offset, sizeof pointer);
    return pointer;
}

static int64_t find_common_divisor(int64_t left, int64_t right) {
    while (right != 0) {
        const int64_t rest = left % right;
        left = right;
        right = rest;
    }
    return left;
}

/* Finds a call's sizes, attributes, strides and addresses in a Params struct. */
static AicfStatus gather(const Op* op, const void* params, AicfCall* call) {
    memset(call, 0, sizeof *call);
    for (int i = 0; i < op->num_sizes; ++i) {
        const int64_t size = call->sizes[i] = read_number(params, &op->sizes[i]);
        if (size < 1) return make_status(AICF_INVALID, "%s = %lld: must be at least 1", op->sizes[i].name, (long long)size);
    }
    for (int i = 0; i < op->num_attributes; ++i) {
        const Attribute* a = &op->attributes[i];
        const int64_t code = a->number.num_bytes > 0 ? read_number(params, &a->number) : read_pointer(params, a->pointer) != 0;
        int choice = 0;
        while (choice < a->num_choices && a->codes[choice] != code) ++choice;
        if (choice == a->num_choices) return make_status(AICF_INVALID, "%s: not a value that the op knows", a->number.name);
        call->attributes[i] = choice;
    }
    for (int i = 0; i < op->num_tensors; ++i) {
        const Tensor* t = &op->tensors[i];
        call->addresses[i] = read_pointer(params, t->pointer);
        for (int j = 0; j < t->num_strides && call->addresses[i] != 0; ++j) {
            const int64_t stride = read_number(params, &t->strides[j]);
            if (stride > call->max_strides[i]) call->max_strides[i] = stride;
            call->strides[i] = find_common_divisor(call->strides[i], stride);
        }
    }
    return make_ok();
}

/* Drops kernels that lack what a caller asks for. */
static void keep_preferred(const Arch* arch, const void* params, const AicfPreferences* preferences, uint64_t* kernels) {
    const AicfWishes wishes = {preferences->deterministic != 0, 0, 0, preferences->max_workspace_bytes};
    aicf_keep_preferred(arch->table, &wishes, NULL, kernels);
    if (preferences->max_workspace_bytes < 0) return;
    int64_t workspace_bytes[AICF_MAX_KERNELS] = {0};
    for (int k = 0; k < arch->table->num_kernels; ++k) {
        if ((kernels[k / 64] >> (k % 64) & 1) == 0 || !arch->kernels[k].needs_workspace) continue;
        size_t bytes = 0;
        const AicfStatus status = arch->kernels[k].workspace_bytes(params, &bytes);
        workspace_bytes[k] = status.code == AICF_OK && bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX;
    }
    aicf_keep_preferred(arch->table, &wishes, workspace_bytes, kernels);
}

static AicfStatus decide(const Op* op, const Arch* arch, const void* params, const AicfPreferences* preferences, AicfDecision* decision) {
    AicfCall call;
    AicfQuery query;
    AicfStatus status = gather(op, params, &call);
    if (status.code != AICF_OK) return status;
    aicf_ask(arch->table, &call, &query);
    uint64_t kernels[AICF_MASK_WORDS], serving = 0;
    memcpy(kernels, query.legal, sizeof kernels);
    for (int i = 0; i < AICF_MASK_WORDS; ++i) serving |= kernels[i];
    if (preferences != NULL) keep_preferred(arch, params, preferences, kernels);
    aicf_decide(arch->table, &query, kernels, decision);
    if (decision->kernel >= 0) return make_ok();
    if (serving != 0)
        return make_status(AICF_UNSUPPORTED, "%s: no kernel that serves this call on %s has what is preferred", op->name, arch->name);
    const Kernel* last = &arch->kernels[arch->table->num_kernels - 1];
    status = last->supports(params);
    if (status.code == AICF_INVALID) return status;
    return make_status(AICF_UNSUPPORTED, "%s: none of the kernels for %s serves this call; %s says: %s", op->name, arch->name, last->name,
                       status.code == AICF_OK ? "nothing against it, but its domain does" : status.reason);
}

static AicfStatus choose(const Op* op, const Arch* arch, const void* params, const AicfPreferences* preferences, AicfChoice* choice) {
    AicfDecision decision;
    AicfStatus status = decide(op, arch, params, preferences, &decision);
    if (status.code != AICF_OK) return status;
    const Kernel* kernel = &arch->kernels[decision.kernel];
    size_t bytes = 0;
    if (kernel->needs_workspace) {
        status = kernel->workspace_bytes(params, &bytes);
        if (status.code != AICF_OK) return status;
    }
    *choice = (AicfChoice){kernel->name, decision.us, bytes, decision.how, kernel->deterministic, kernel->capture_safe};
    return make_ok();
}

static AicfStatus find_arch(const Op* op, const char* name, const Arch** arch) {
    for (int i = 0; i < op->num_archs; ++i) {
        *arch = &op->archs[i];
        if (strcmp(op->archs[i].name, name) == 0) return make_ok();
    }
    return make_status(AICF_UNSUPPORTED, "%s: this library has no kernel for %s", op->name, name);
}

/* Finds the architecture whose kernels are the best that the current device runs. */
static AicfStatus find_own_arch(const Op* op, const Arch** arch) {
    int device = 0, major = 0, minor = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (error != cudaSuccess) return make_cuda_error(error);
    const char* names[MAX_ARCHS];
    for (int i = 0; i < op->num_archs; ++i) names[i] = op->archs[i].name;
    const int32_t found = aicf_find_arch(names, op->num_archs, major, minor);
    *arch = &op->archs[found < 0 ? 0 : found];
    if (found >= 0) return make_ok();
    return make_status(AICF_UNSUPPORTED, "%s: this library has no kernel for compute capability %d.%d; the first that it has is for %s",
                       op->name, major, minor, op->archs[0].name);
}

static AicfStatus launch(const Op* op, const void* params, const AicfPreferences* preferences, void* workspace, size_t workspace_bytes,
                         struct CUstream_st* stream) {
    const Arch* arch = NULL;
    AicfDecision decision;
    AicfStatus status = find_own_arch(op, &arch);
    if (status.code == AICF_OK) status = decide(op, arch, params, preferences, &decision);
    if (status.code != AICF_OK) return status;
    const Kernel* kernel = &arch->kernels[decision.kernel];
    if (kernel->needs_workspace) {
        size_t wanted = 0;
        status = kernel->workspace_bytes(params, &wanted);
        if (status.code != AICF_OK) return status;
        if (workspace_bytes < wanted || (wanted > 0 && workspace == NULL)) {
            return make_status(AICF_INVALID, "%s: %s wants %zu bytes of workspace, got %zu", op->name, kernel->name, wanted,
                               workspace_bytes);
        }
    }
    status = bind_thread();
    return status.code == AICF_OK ? kernel->launch(params, workspace, stream) : status;
}
