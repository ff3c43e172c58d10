// cuBLASLt's matrix product with a fused epilogue, behind the entry points of a frozen kernel. The library is opened at run time, so
// nothing is needed to build this; its types and constants are declared here as NVIDIA documents them for CUDA 12 and 13.
//
// A process opens the library once, then creates its handle once, on the device that is current. After that a launch allocates nothing on
// the device and does not synchronise: it may be captured into a CUDA graph. What the heuristic says of a product is kept.
#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#define AICF_EXPORT extern "C" __attribute__((visibility("default")))

// The kernels' ABI, as in common/status.h.
struct AicfStatus {
    int32_t code;
    int32_t cuda_code;
    char reason[248];
};

// Y[m, n] = act(A B + bias), row-major: A is [m, k], B [k, n], or [n, k] where `is_nk`. Addresses are on the device, 0 where there is no
// bias; strides are in elements. `dtype` is a cudaDataType_t, `compute` a cublasComputeType_t, `act` a cublasLtEpilogue_t without bias.
struct AicfProduct {
    const void *a, *b, *bias;
    void* y;
    int64_t m, n, k, lda, ldb, ldy;
    int32_t dtype, compute, act, is_nk;
};

// The beginning of GemmBiasActParams; the interface only grows behind it.
struct GemmBiasActParams {
    const void *a, *b, *bias;
    void *y, *z;
    int64_t m, n, k, lda, ldb, ldy, ldz;
    int32_t act, dtype, b_layout, precision;
};

namespace {

enum { kOk = 0, kUnsupported = 1, kCudaError = 3, kCudaErrorUnknown = 999 };

constexpr int kSuccess = 0, kNotSupported = 15;                                              // cublasStatus_t
constexpr int32_t kComputeF32 = 68, kF32 = 0, kF16 = 2, kBf16 = 14;                          // cublasComputeType_t, cudaDataType_t
constexpr int32_t kPlain = 1, kRelu = 2, kGelu = 32, kBias = 4;                              // cublasLtEpilogue_t
constexpr int kTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8, kMaxWorkspace = 1;  // attributes of descriptors
constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr size_t kMaxPlans = 4096;

struct Algorithm {
    uint64_t data[8];
};

struct Heuristic {
    Algorithm algorithm;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};

// The library's functions, by the names that it exports.
struct Functions {
    size_t (*cublasLtGetVersion)();
    int (*cublasLtCreate)(void**);
    int (*cublasLtMatmulDescCreate)(void**, int, int);
    int (*cublasLtMatmulDescDestroy)(void*);
    int (*cublasLtMatmulDescSetAttribute)(void*, int, const void*, size_t);
    int (*cublasLtMatrixLayoutCreate)(void**, int, uint64_t, uint64_t, int64_t);
    int (*cublasLtMatrixLayoutDestroy)(void*);
    int (*cublasLtMatmulPreferenceCreate)(void**);
    int (*cublasLtMatmulPreferenceDestroy)(void*);
    int (*cublasLtMatmulPreferenceSetAttribute)(void*, int, const void*, size_t);
    int (*cublasLtMatmulAlgoGetHeuristic)(void*, void*, void*, void*, void*, void*, void*, int, Heuristic*, int*);
    int (*cublasLtMatmul)(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*, void*, void*,
                          const Algorithm*, void*, size_t, void*);
};

struct Plan {
    void* description = nullptr;
    std::array<void*, 3> layouts{};  // of B, A and Y
    Heuristic chosen{};
};

using Key = std::array<int64_t, 11>;

// A descriptor holds the bias' address, which each launch sets: one launch at a time prepares and queues its product.
std::mutex mutex;
Functions functions{};
void* library = nullptr;
void* handle = nullptr;
std::map<Key, Plan> plans;

template <typename... Values>
AicfStatus fail(int32_t code, const char* format, Values... values) {
    AicfStatus status{code, code == kCudaError ? kCudaErrorUnknown : 0, ""};
    std::snprintf(status.reason, sizeof status.reason, format, values...);
    return status;
}

AicfStatus fail_call(const char* name, int status) { return fail(kCudaError, "%s failed with cublasStatus_t %d", name, status); }

template <typename Function>
bool find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

const char* find_functions() {
#define AICF_FIND(name) \
    if (!find(functions.name, #name)) return #name
    AICF_FIND(cublasLtGetVersion);
    AICF_FIND(cublasLtCreate);
    AICF_FIND(cublasLtMatmulDescCreate);
    AICF_FIND(cublasLtMatmulDescDestroy);
    AICF_FIND(cublasLtMatmulDescSetAttribute);
    AICF_FIND(cublasLtMatrixLayoutCreate);
    AICF_FIND(cublasLtMatrixLayoutDestroy);
    AICF_FIND(cublasLtMatmulPreferenceCreate);
    AICF_FIND(cublasLtMatmulPreferenceDestroy);
    AICF_FIND(cublasLtMatmulPreferenceSetAttribute);
    AICF_FIND(cublasLtMatmulAlgoGetHeuristic);
    AICF_FIND(cublasLtMatmul);
#undef AICF_FIND
    return nullptr;
}

void destroy(const Plan& plan) {
    if (plan.description != nullptr) functions.cublasLtMatmulDescDestroy(plan.description);
    for (void* layout : plan.layouts) {
        if (layout != nullptr) functions.cublasLtMatrixLayoutDestroy(layout);
    }
}

// The library is column-major: it computes Y^T = B^T A^T on the same memory.
const char* describe(const AicfProduct& p, Plan& plan, int& status) {
    const auto set = [&](int attribute, const auto& value) {
        status = functions.cublasLtMatmulDescSetAttribute(plan.description, attribute, &value, sizeof value);
        return status == kSuccess;
    };
    status = functions.cublasLtMatmulDescCreate(&plan.description, p.compute, kF32);
    if (status != kSuccess) return "cublasLtMatmulDescCreate";
    const int32_t transposes = p.is_nk ? 1 : 0, keeps = 0;
    const int32_t epilogue = p.bias == nullptr ? p.act : (p.act == kPlain ? 0 : p.act) | kBias;
    if (!set(kTransA, transposes) || !set(kTransB, keeps)) return "cublasLtMatmulDescSetAttribute";
    if ((p.bias != nullptr && !set(kBiasPointer, p.bias)) || !set(kEpilogue, epilogue)) return "cublasLtMatmulDescSetAttribute";
    const int64_t shapes[3][3] = {{p.is_nk ? p.k : p.n, p.is_nk ? p.n : p.k, p.ldb}, {p.k, p.m, p.lda}, {p.n, p.m, p.ldy}};
    for (int i = 0; i < 3; ++i) {
        const auto rows = static_cast<uint64_t>(shapes[i][0]), columns = static_cast<uint64_t>(shapes[i][1]);
        status = functions.cublasLtMatrixLayoutCreate(&plan.layouts[i], p.dtype, rows, columns, shapes[i][2]);
        if (status != kSuccess) return "cublasLtMatrixLayoutCreate";
    }
    return nullptr;
}

AicfStatus choose(Plan& plan) {
    void* preference = nullptr;
    int status = functions.cublasLtMatmulPreferenceCreate(&preference);
    if (status != kSuccess) return fail_call("cublasLtMatmulPreferenceCreate", status);
    functions.cublasLtMatmulPreferenceSetAttribute(preference, kMaxWorkspace, &kWorkspaceBytes, sizeof kWorkspaceBytes);
    int count = 0;
    const auto& [b, a, y] = plan.layouts;
    status = functions.cublasLtMatmulAlgoGetHeuristic(handle, plan.description, b, a, y, y, preference, 1, &plan.chosen, &count);
    functions.cublasLtMatmulPreferenceDestroy(preference);
    if (status == kNotSupported || (status == kSuccess && (count == 0 || plan.chosen.state != kSuccess))) {
        return fail(kUnsupported, "cuBLASLt's heuristic knows no algorithm for this product");
    }
    return status == kSuccess ? AicfStatus{} : fail_call("cublasLtMatmulAlgoGetHeuristic", status);
}

// Returns the plan of a product, made where there is none yet; under the mutex.
AicfStatus find_plan(const AicfProduct& p, Plan*& found) {
    if (handle == nullptr) return fail(kUnsupported, "cuBLASLt's handle has not been created");
    const Key key{p.m, p.n, p.k, p.lda, p.ldb, p.ldy, p.dtype, p.compute, p.act, p.is_nk, p.bias != nullptr};
    const auto known = plans.find(key);
    if (known != plans.end()) {
        found = &known->second;
        return {};
    }
    Plan plan;
    int status = kSuccess;
    const char* failed = describe(p, plan, status);
    const AicfStatus made = failed != nullptr ? fail_call(failed, status) : choose(plan);
    if (made.code != kOk) {
        destroy(plan);
        return made;
    }
    if (plans.size() >= kMaxPlans) {
        for (const auto& each : plans) destroy(each.second);
        plans.clear();
    }
    found = &plans.emplace(key, plan).first->second;
    return {};
}

// Fills in a product from the op's parameters.
AicfStatus read_params(const GemmBiasActParams& p, AicfProduct& product) {
    constexpr int32_t acts[] = {kPlain, kRelu, kGelu};  // none, relu, gelu_tanh
    if (p.act < 0 || p.act > 2) return fail(kUnsupported, "cuBLASLt has no epilogue for this activation: it has none, relu and gelu_tanh");
    if (p.dtype != 1 && p.dtype != 2) return fail(kUnsupported, "cuBLASLt is called for bfloat16 and float16");
    if (p.z != nullptr) return fail(kUnsupported, "cuBLASLt is called without z");
    const int32_t dtype = p.dtype == 1 ? kBf16 : kF16;
    product = {p.a, p.b, p.bias, p.y, p.m, p.n, p.k, p.lda, p.ldb, p.ldy, dtype, kComputeF32, acts[p.act], p.b_layout == 1 ? 1 : 0};
    return {};
}

}  // namespace

// Opens the shared library at `path`, once per process.
AICF_EXPORT AicfStatus aicf_cublaslt_open(const char* path) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (library != nullptr) return {};
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return fail(kUnsupported, "%.200s", dlerror());
    const char* missing = find_functions();
    if (missing == nullptr) return {};
    dlclose(library);
    library = nullptr;
    return fail(kUnsupported, "%.160s has no %s", path, missing);
}

// Returns the version of the open library as it numbers versions: 130002 is 13.0.2.
AICF_EXPORT size_t aicf_cublaslt_version() { return library == nullptr ? 0 : functions.cublasLtGetVersion(); }

// Creates the library's handle on the current device, once per process; must not run while a stream is captured.
AICF_EXPORT AicfStatus aicf_cublaslt_create() {
    const std::lock_guard<std::mutex> lock(mutex);
    if (handle != nullptr) return {};
    if (library == nullptr) return fail(kUnsupported, "cuBLASLt has not been opened");
    const int status = functions.cublasLtCreate(&handle);
    if (status != kSuccess) handle = nullptr;
    return status == kSuccess ? AicfStatus{} : fail_call("cublasLtCreate", status);
}

AICF_EXPORT AicfStatus aicf_cublaslt_supports(const AicfProduct* product) {
    const std::lock_guard<std::mutex> lock(mutex);
    Plan* plan = nullptr;
    return find_plan(*product, plan);
}

AICF_EXPORT AicfStatus aicf_cublaslt_workspace_bytes(const AicfProduct* product, size_t* bytes) {
    const std::lock_guard<std::mutex> lock(mutex);
    Plan* plan = nullptr;
    const AicfStatus status = find_plan(*product, plan);
    *bytes = status.code == kOk ? plan->chosen.workspace_bytes : 0;
    return status;
}

AICF_EXPORT AicfStatus aicf_cublaslt_launch(const AicfProduct* product, void* workspace, void* stream) {
    const std::lock_guard<std::mutex> lock(mutex);
    const AicfProduct& p = *product;
    Plan* plan = nullptr;
    const AicfStatus made = find_plan(p, plan);
    if (made.code != kOk) return made;
    if (p.bias != nullptr) {
        const int status = functions.cublasLtMatmulDescSetAttribute(plan->description, kBiasPointer, &p.bias, sizeof p.bias);
        if (status != kSuccess) return fail_call("cublasLtMatmulDescSetAttribute", status);
    }
    const float one = 1.0F, zero = 0.0F;
    const auto& [b, a, y] = plan->layouts;
    const Heuristic& h = plan->chosen;
    const int status = functions.cublasLtMatmul(handle, plan->description, &one, p.b, b, p.a, a, &zero, p.y, y, p.y, y, &h.algorithm,
                                                workspace, h.workspace_bytes, stream);
    return status == kSuccess ? AicfStatus{} : fail_call("cublasLtMatmul", status);
}

AICF_EXPORT AicfStatus gemm_bias_act_supports(const GemmBiasActParams* params) {
    AicfProduct product{};
    const AicfStatus status = read_params(*params, product);
    return status.code == kOk ? aicf_cublaslt_supports(&product) : status;
}

AICF_EXPORT AicfStatus gemm_bias_act_workspace_bytes(const GemmBiasActParams* params, size_t* bytes) {
    AicfProduct product{};
    *bytes = 0;
    const AicfStatus status = read_params(*params, product);
    return status.code == kOk ? aicf_cublaslt_workspace_bytes(&product, bytes) : status;
}

AICF_EXPORT AicfStatus gemm_bias_act_launch(const GemmBiasActParams* params, void* workspace, void* stream) {
    AicfProduct product{};
    const AicfStatus status = read_params(*params, product);
    return status.code == kOk ? aicf_cublaslt_launch(&product, workspace, stream) : status;
}
