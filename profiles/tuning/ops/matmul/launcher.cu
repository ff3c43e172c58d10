// Entry points of one variant of matmul: checks, geometry, launch. The build defines the tunables, which kernels.cu knows in lower case.
#include "common/cuda_check.hpp"
#include "common/status.hpp"
#include "matmul/api.hpp"

#define bx AICF_BX
#define by AICF_BY
#define tx AICF_TX
#define ty AICF_TY
#define tk AICF_TK
#include "matmul/kernels.cu"

namespace {

constexpr long long kLargest = 1 << 20;

AicfStatus check_params(const MatmulParams& p) {
    using namespace aicf;
    if (p.a == nullptr || p.b == nullptr || p.c == nullptr) return make_invalid("a, b or c: null pointer");
    if (p.m < 1 || p.n < 1 || p.k < 1 || p.m > kLargest || p.n > kLargest || p.k > kLargest) return make_invalid("sizes must be 1 to 2^20");
    if (p.m % (by * ty) != 0 || p.n % (bx * tx) != 0 || p.k % tk != 0) {
        return make_unsupported("m, n, k must be multiples of %d, %d, %d", by * ty, bx * tx, tk);
    }
    return make_ok();
}

}  // namespace

extern "C" {

AicfStatus AICF_ENTRY(matmul, supports)(const MatmulParams* params) { return check_params(*params); }

AicfStatus AICF_ENTRY(matmul, workspace_bytes)(const MatmulParams* params, size_t* bytes) {
    *bytes = 0;
    return check_params(*params);
}

AicfStatus AICF_ENTRY(matmul, launch)(const MatmulParams* params, void*, struct CUstream_st* stream) {
    AICF_RETURN_IF_NOT_OK(check_params(*params));
    const dim3 grid(static_cast<unsigned>(params->n / (bx * tx)), static_cast<unsigned>(params->m / (by * ty)));
    matmul<<<grid, dim3(bx, by), 0, stream>>>(params->a, params->b, params->c, static_cast<int>(params->m), static_cast<int>(params->n),
                                              static_cast<int>(params->k));
    return AICF_CUDA_STATUS(cudaGetLastError());
}
}
