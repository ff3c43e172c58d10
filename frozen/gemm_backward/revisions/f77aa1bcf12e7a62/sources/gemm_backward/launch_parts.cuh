// What the plans of all kernels share: the tunables that the build binds, checks of a problem, and dbias from partial sums.
//
// The build names the kernel and binds its tunables: AICF_KERNEL, AICF_VARIANT, AICF_BM, ... A tunable that the kernel does not have is 0.
#pragma once

#include <algorithm>
#include <climits>
#include <cstdint>
#include <type_traits>

#include "common/launch.hpp"
#include "gemm_backward/api.hpp"
#include "gemm_backward/kernels.cu"

#ifndef AICF_BM
#define AICF_BM 0
#endif
#ifndef AICF_BN
#define AICF_BN 0
#endif
#ifndef AICF_ROWS
#define AICF_ROWS 0
#endif
#ifndef AICF_UNROLL
#define AICF_UNROLL 0
#endif
#ifndef AICF_WM
#define AICF_WM 0
#endif
#ifndef AICF_WN
#define AICF_WN 0
#endif
#ifndef AICF_STAGES
#define AICF_STAGES 0
#endif
#ifndef AICF_SLABS
#define AICF_SLABS 0
#endif
#ifndef AICF_CLUSTERM
#define AICF_CLUSTERM 0
#endif
#ifndef AICF_CLUSTERN
#define AICF_CLUSTERN 0
#endif
#ifndef AICF_PINGPONG
#define AICF_PINGPONG 0
#endif
#ifndef AICF_GROUP
#define AICF_GROUP 0
#endif
#ifndef AICF_BK
#define AICF_BK 0
#endif
#ifndef AICF_TM
#define AICF_TM 0
#endif
#ifndef AICF_TN
#define AICF_TN 0
#endif
#ifndef AICF_SLICES
#define AICF_SLICES 0
#endif
#ifndef AICF_SPLITS
#define AICF_SPLITS 0
#endif
#ifndef AICF_MINBLOCKS
#define AICF_MINBLOCKS 0
#endif
#ifndef AICF_TILE
#define AICF_TILE 0
#endif
#ifndef AICF_DWBM
#define AICF_DWBM 0
#endif
#ifndef AICF_DWBN
#define AICF_DWBN 0
#endif
#ifndef AICF_DWPINGPONG
#define AICF_DWPINGPONG 0
#endif
#ifndef AICF_DWCLUSTERM
#define AICF_DWCLUSTERM 0
#endif
#ifndef AICF_DWCLUSTERN
#define AICF_DWCLUSTERN 0
#endif

namespace aicf::gemm_backward {
namespace {

// Meanings and units of the tunables are in space.py.
struct Tunables {
    int bm, bn, wm, wn, stages, slabs, clusterm, clustern, pingpong, group, dwbm, dwbn, dwclusterm, dwclustern, dwpingpong, rows, unroll;
    int bk, tm, tn, slices, minblocks, tile, splits;
};

constexpr Tunables kTunables = {AICF_BM,         AICF_BN,         AICF_WM,         AICF_WN,        AICF_STAGES, AICF_SLABS,
                                AICF_CLUSTERM,   AICF_CLUSTERN,   AICF_PINGPONG,   AICF_GROUP,     AICF_DWBM,   AICF_DWBN,
                                AICF_DWCLUSTERM, AICF_DWCLUSTERN, AICF_DWPINGPONG, AICF_ROWS,      AICF_UNROLL, AICF_BK,
                                AICF_TM,         AICF_TN,         AICF_SLICES,     AICF_MINBLOCKS, AICF_TILE,   AICF_SPLITS};

std::int64_t divide_up_64(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

bool is_nk(const GemmBackwardParams& params) { return params.w_layout == AICF_W_NK; }

// dW as a product: which operand gives its rows. kn: X' dY, [k, n]; nk: dY' X, [n, k].
struct WeightGrad {
    const void *a, *b;
    std::int64_t lda, ldb, rows, columns;
    void* d;  // null: not wanted
    std::int64_t ldd;
    bool is_added;  // to what is there
};

[[maybe_unused]] WeightGrad find_weight_grad(const GemmBackwardParams& p) {
    const bool is_added = p.dw_total != nullptr;
    void* const d = is_added ? p.dw_total : p.dw;
    const std::int64_t ldd = is_added ? p.lddw_total : p.lddw;
    if (is_nk(p)) return {p.dy, p.x, p.lddy, p.ldx, p.n, p.k, d, ldd, is_added};
    return {p.x, p.dy, p.ldx, p.lddy, p.k, p.n, d, ldd, is_added};
}

// Calls `use` with what a problem is in types: its element (a value of it), and whether W is [n, k], across the k of wgmma.
template <class Use>
[[maybe_unused]] AicfStatus dispatch(const GemmBackwardParams& params, Use use) {
    const bool is_bf16 = params.dtype == AICF_DTYPE_BFLOAT16;
    if (is_nk(params)) return is_bf16 ? use(Bf16{}, std::true_type{}) : use(Fp16{}, std::true_type{});
    return is_bf16 ? use(Bf16{}, std::false_type{}) : use(Fp16{}, std::false_type{});
}

// Adds `num_rows` rows of partial sums.
template <class Element>
AicfStatus finish_bias(const float* partial, std::int64_t num_rows, const GemmBackwardParams& params, cudaStream_t stream) {
    const auto columns = static_cast<int>(params.k);
    const auto num_blocks = static_cast<unsigned>(divide_up_64(columns, kSumColumns));
    return launch_early(add_partial_sums<Element>, dim3(num_blocks), kSumColumns * kSumRows, 0, 1, stream, partial,
                        static_cast<Element*>(params.dbias), static_cast<int>(num_rows), columns);
}

// Bytes of partial sums, and what lies behind them begins on a 16-byte boundary.
std::int64_t count_sum_bytes(std::int64_t num_rows, const GemmBackwardParams& params) {
    if (params.dbias == nullptr) return 0;
    return divide_up_64(num_rows * params.k * static_cast<std::int64_t>(sizeof(float)), 16) * 16;
}

// Tiles of dz, and of dw in either layout, are counted in 32 bits.
[[maybe_unused]] AicfStatus check_tiles(const GemmBackwardParams& params, int rows, int columns, int dw_rows, int dw_columns) {
    constexpr std::int64_t kMaxTiles = INT_MAX / 64;
    const auto count = [](std::int64_t m, std::int64_t n, int tile_m, int tile_n) {
        return divide_up_64(m, tile_m) * divide_up_64(n, tile_n);
    };
    if (count(params.m, params.k, rows, columns) <= kMaxTiles && count(params.n, params.k, dw_rows, dw_columns) <= kMaxTiles &&
        count(params.k, params.n, dw_rows, dw_columns) <= kMaxTiles) {
        return make_ok();
    }
    return make_unsupported("m, n, k = %lld, %lld, %lld: more than %lld tiles of %d x %d of dz, or of %d x %d of dw",
                            static_cast<long long>(params.m), static_cast<long long>(params.n), static_cast<long long>(params.k),
                            static_cast<long long>(kMaxTiles), rows, columns, dw_rows, dw_columns);
}

[[maybe_unused]] AicfStatus require_half(const GemmBackwardParams& params) {
    if (params.dtype != AICF_DTYPE_FLOAT32) return make_ok();
    return make_unsupported("dy: float32; this kernel is for bfloat16 and float16, 'ffma' and 'plain' are for float32");
}

[[maybe_unused]] AicfStatus require_fp32(const GemmBackwardParams& params) {
    if (params.dtype == AICF_DTYPE_FLOAT32) return make_ok();
    return make_unsupported("dy: a 16-bit float; this kernel is for float32, 'mma' and 'wgmma' are for bfloat16 and float16");
}

[[maybe_unused]] AicfStatus require_weights(const GemmBackwardParams& params) {
    if (params.w != nullptr) return make_ok();
    return make_unsupported("w: null pointer; this kernel multiplies by it, 'streamed' does without");
}

}  // namespace
}  // namespace aicf::gemm_backward
