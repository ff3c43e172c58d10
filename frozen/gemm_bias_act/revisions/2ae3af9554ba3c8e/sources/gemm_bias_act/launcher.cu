// Entry points of one variant of gemm_bias_act: checks, geometry, shared memory, launch.
//
// The build names the kernel and binds its tunables: AICF_KERNEL, AICF_VARIANT, AICF_BM, ... A tunable that the kernel does not have is 0.
#include <algorithm>
#include <climits>
#include <cstdint>
#include <type_traits>

#include "common/launch.hpp"
#include "common/repack.cuh"
#include "gemm_bias_act/api.hpp"
#include "gemm_bias_act/boxed.cuh"
#include "gemm_bias_act/decode.cuh"
#include "gemm_bias_act/gemv.cuh"
#include "gemm_bias_act/kernels.cu"
#include "gemm_bias_act/mma.cuh"
#include "gemm_bias_act/rows.cuh"
#include "gemm_bias_act/skinny.cuh"
#include "gemm_bias_act/turned.cuh"
#include "gemm_bias_act/wgmma.cuh"

#ifndef AICF_BM
#define AICF_BM 0
#endif
#ifndef AICF_BN
#define AICF_BN 0
#endif
#ifndef AICF_BK
#define AICF_BK 0
#endif
#ifndef AICF_WM
#define AICF_WM 0
#endif
#ifndef AICF_WN
#define AICF_WN 0
#endif
#ifndef AICF_TM
#define AICF_TM 0
#endif
#ifndef AICF_TN
#define AICF_TN 0
#endif
#ifndef AICF_STAGES
#define AICF_STAGES 0
#endif
#ifndef AICF_GROUP
#define AICF_GROUP 0
#endif
#ifndef AICF_MINBLOCKS
#define AICF_MINBLOCKS 0
#endif
#ifndef AICF_CLUSTERM
#define AICF_CLUSTERM 0
#endif
#ifndef AICF_CLUSTERN
#define AICF_CLUSTERN 0
#endif
#ifndef AICF_SPLITS
#define AICF_SPLITS 0
#endif
#ifndef AICF_PINGPONG
#define AICF_PINGPONG 0
#endif

namespace aicf::gemm_bias_act {
namespace {

// Meanings and units of the tunables are in op.py.
struct Tunables {
    int bm, bn, bk, wm, wn, tm, tn, stages, group, minblocks, clusterm, clustern, pingpong, splits;
};

constexpr Tunables kTunables = {AICF_BM,     AICF_BN,    AICF_BK,        AICF_WM,       AICF_WN,       AICF_TM,       AICF_TN,
                                AICF_STAGES, AICF_GROUP, AICF_MINBLOCKS, AICF_CLUSTERM, AICF_CLUSTERN, AICF_PINGPONG, AICF_SPLITS};

// Tiles of Y; a kernel without one of these tunables counts rows or columns instead.
[[maybe_unused]] std::int64_t count_blocks(const GemmBiasActParams& params) {
    constexpr std::int64_t kRows = std::max(kTunables.bm, 1);
    constexpr std::int64_t kColumns = std::max(kTunables.bn, 1);
    return (params.m + kRows - 1) / kRows * ((params.n + kColumns - 1) / kColumns);
}

constexpr int count_bytes(int num_elems) { return num_elems * static_cast<int>(sizeof(float)); }

// Of either layout of B.
[[maybe_unused]] AicfStatus require_fp32(const GemmBiasActParams& params) {
    if (params.dtype != AICF_DTYPE_FLOAT32)
        return make_unsupported("a: this kernel is for float32; wgmma and mma take bfloat16 and float16");
    if (params.precision != AICF_PRECISION_IEEE) return make_unsupported("precision: this kernel multiplies in fp32 ('ieee')");
    return make_ok();
}

[[maybe_unused]] AicfStatus require_fp32_kn(const GemmBiasActParams& params) {
    AICF_RETURN_IF_NOT_OK(require_fp32(params));
    if (params.b_layout != AICF_B_KN) return make_unsupported("b_layout: this kernel reads b as [k, n] ('kn')");
    return make_ok();
}

[[maybe_unused]] AicfStatus require_vector_rows(const GemmBiasActParams& params) {
    AICF_RETURN_IF_NOT_OK(require_fp32_kn(params));
    const struct {
        const char* name;
        const void* base;
        long long stride;
    } matrices[] = {{"a", params.a, params.lda}, {"b", params.b, params.ldb}};
    for (const auto& matrix : matrices) {
        if (!is_vector_aligned(matrix.base)) {
            return make_unsupported("%s: address %p is not a multiple of %d bytes, which this kernel's float4 reads need", matrix.name,
                                    matrix.base, kVectorBytes);
        }
        if (matrix.stride % kVectorElems != 0) {
            return make_unsupported(
                "%s: row stride %lld is not a multiple of %d elements, which this kernel's float4 reads need; pad the rows", matrix.name,
                matrix.stride, kVectorElems);
        }
    }
    return make_ok();
}

Gemm make_gemm(const GemmBiasActParams& params) {
    const bool has_vector_outputs = has_vector_rows(params.y, params.ldy) && is_vector_aligned(params.bias) &&
                                    (params.z == nullptr || has_vector_rows(params.z, params.ldz));
    return {static_cast<const float*>(params.a),
            static_cast<const float*>(params.b),
            static_cast<const float*>(params.bias),
            static_cast<float*>(params.y),
            static_cast<float*>(params.z),
            params.lda,
            params.ldb,
            params.ldy,
            params.ldz,
            static_cast<int>(params.m),
            static_cast<int>(params.n),
            static_cast<int>(params.k),
            static_cast<int>(params.act),
            has_vector_outputs};
}

[[maybe_unused]] AicfStatus launch_fp32(void (*kernel)(Gemm), int num_threads, int shared_bytes, const GemmBiasActParams& params,
                                        cudaStream_t stream) {
    AICF_RETURN_IF_NOT_OK(allow_shared_memory(kernel, shared_bytes));
    kernel<<<static_cast<unsigned>(count_blocks(params)), num_threads, shared_bytes, stream>>>(make_gemm(params));
    return AICF_CUDA_STATUS(cudaGetLastError());
}

// For grids of (splits, tiles of n, tiles of m).
template <int kBm, int kTileN>
AicfStatus require_grid(const GemmBiasActParams& params) {
    constexpr std::int64_t kMaxTiles = 65535;  // of a grid's second and third dimension
    if ((params.n + kTileN - 1) / kTileN <= kMaxTiles && (params.m + kBm - 1) / kBm <= kMaxTiles) return make_ok();
    return make_unsupported("m, n = %lld, %lld: this kernel takes at most %lld tiles of %d x %d each way", static_cast<long long>(params.m),
                            static_cast<long long>(params.n), static_cast<long long>(kMaxTiles), kBm, kTileN);
}

template <Tunables t>
struct naive_plan {
    static AicfStatus check(const GemmBiasActParams& params) { return require_fp32(params); }
    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        const auto kernel = params.b_layout == AICF_B_NK ? multiply_naive<t.bm, t.bn, true> : multiply_naive<t.bm, t.bn, false>;
        return launch_fp32(kernel, t.bm * t.bn, 0, params, stream);
    }
};

template <Tunables t>
struct coalesced_plan {
    static AicfStatus check(const GemmBiasActParams& params) { return require_fp32_kn(params); }
    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return launch_fp32(multiply_coalesced<t.bm, t.bn>, t.bm * t.bn, 0, params, stream);
    }
};

template <Tunables t>
struct smem_tiled_plan {
    static AicfStatus check(const GemmBiasActParams& params) { return require_fp32_kn(params); }
    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return launch_fp32(multiply_smem_tiled<t.bm, t.bn, t.bk>, t.bm * t.bn, 0, params, stream);
    }
};

// The block's tile of Y takes the place of the tiles of A and B in the epilogue.
[[maybe_unused]] constexpr int count_tile_bytes(const Tunables& t, int padding) {
    return count_bytes(std::max((t.bm + padding + t.bn) * t.bk, t.bm * t.bn));
}

template <Tunables t>
struct reg_tiled_plan {
    static AicfStatus check(const GemmBiasActParams& params) { return require_fp32_kn(params); }
    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return launch_fp32(multiply_reg_tiled<t.bm, t.bn, t.bk, t.tm, t.tn>, t.bm / t.tm * (t.bn / t.tn), count_tile_bytes(t, 0), params,
                           stream);
    }
};

template <Tunables t>
struct vectorised_plan {
    static AicfStatus check(const GemmBiasActParams& params) { return require_vector_rows(params); }
    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return launch_fp32(multiply_vectorised<t.bm, t.bn, t.bk, t.tm, t.tn>, t.bm / t.tm * (t.bn / t.tn),
                           count_tile_bytes(t, kVectorElems), params, stream);
    }
};

template <Tunables t>
struct warp_tiled_plan {
    static AicfStatus check(const GemmBiasActParams& params) { return require_vector_rows(params); }
    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return launch_fp32(multiply_warp_tiled<t.bm, t.bn, t.bk, t.wm, t.wn, t.tm, t.tn>, t.bm / t.tm * (t.bn / t.tn),
                           count_tile_bytes(t, kVectorElems), params, stream);
    }
};

template <Tunables t>
struct pipelined_plan {
    template <bool kIsNk>
    using Config = Pipeline<t.bm, t.bn, t.bk, t.wm, t.wn, t.tm, t.tn, t.stages, kIsNk>;

    static AicfStatus check(const GemmBiasActParams& params) {
        AICF_RETURN_IF_NOT_OK(require_fp32(params));
        constexpr std::int64_t kMaxStride = UINT32_MAX / t.bm;
        if (params.lda > kMaxStride) {
            return make_unsupported("a: row stride %lld exceeds %lld elements, beyond which offsets in this kernel's tile overflow 32 bits",
                                    static_cast<long long>(params.lda), static_cast<long long>(kMaxStride));
        }
        return make_ok();
    }

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        if (params.b_layout == AICF_B_NK) return launch_kernel<1, true>(params, stream);
        if (has_vector_rows(params.b, params.ldb)) return launch_kernel<kVectorElems, false>(params, stream);
        return launch_kernel<1, false>(params, stream);
    }

    template <int kWidthB, bool kIsNk>
    static AicfStatus launch_kernel(const GemmBiasActParams& params, cudaStream_t stream) {
        using C = Config<kIsNk>;
        const auto kernel =
            multiply_pipelined<t.bm, t.bn, t.bk, t.wm, t.wn, t.tm, t.tn, t.stages, t.group, t.minblocks, kWidthB, t.splits, kIsNk>;
        if (t.splits == 1) return launch_fp32(kernel, C::kThreads, C::kSharedBytes, params, stream);
        const dim3 grid(static_cast<unsigned>(count_blocks(params) * t.splits));
        return launch_early(kernel, grid, C::kThreads, C::kSharedBytes, t.splits, stream, make_gemm(params));
    }
};

template <Tunables t>
struct boxed_plan {
    using L = BoxedLayout<t.bm, t.bn, t.bk, t.wm, t.wn, t.stages>;

    static AicfStatus check(const GemmBiasActParams& params) { return require_vector_rows(params); }

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        constexpr auto kType = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
        CUtensorMap a, b;
        AICF_RETURN_IF_NOT_OK(encode_tensor_map(&a, {params.a, params.m, params.k, params.lda, kType, 4, t.bm, t.bk, 0}));
        AICF_RETURN_IF_NOT_OK(encode_tensor_map(&b, {params.b, params.k, params.n, params.ldb, kType, 4, t.bk, t.bn, 0}));
        return launch_early(multiply_boxed<t.bm, t.bn, t.bk, t.wm, t.wn, t.tm, t.tn, t.stages, t.group, t.minblocks, t.splits>,
                            dim3(static_cast<unsigned>(count_blocks(params) * t.splits)), L::kThreads, L::kSharedBytes, t.splits, stream, a,
                            b, make_gemm(params));
    }
};

template <Tunables t>
struct skinny_plan {
    using L = SkinnyLayout<t.bm, t.bn, t.bk, t.stages, t.splits>;

    static AicfStatus check(const GemmBiasActParams& params) {
        AICF_RETURN_IF_NOT_OK(require_fp32_kn(params));
        if (!has_vector_rows(params.b, params.ldb)) {
            return make_unsupported(
                "b: address %p and row stride %lld must be multiples of %d bytes and %d elements, for this kernel's copies", params.b,
                static_cast<long long>(params.ldb), kVectorBytes, kVectorElems);
        }
        return require_grid<t.bm, t.bn>(params);
    }

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        const dim3 grid(t.splits, static_cast<unsigned>((params.n + t.bn - 1) / t.bn), static_cast<unsigned>((params.m + t.bm - 1) / t.bm));
        return launch_early(multiply_skinny<t.bm, t.bn, t.bk, t.stages, t.splits, t.minblocks>, grid, L::kThreads, L::kSharedBytes,
                            t.splits, stream, make_gemm(params));
    }
};

// Calls `use` with what a problem of 16-bit floats is in types: its element (a value of it), and whether B is [k, n].
template <class Use>
AicfStatus dispatch_half(const GemmBiasActParams& params, Use use) {
    const bool is_bf16 = params.dtype == AICF_DTYPE_BFLOAT16;
    if (params.b_layout == AICF_B_NK) return is_bf16 ? use(Bf16{}, std::false_type{}) : use(Fp16{}, std::false_type{});
    return is_bf16 ? use(Bf16{}, std::true_type{}) : use(Fp16{}, std::true_type{});
}

[[maybe_unused]] AicfStatus require_half(const GemmBiasActParams& params) {
    if (params.dtype == AICF_DTYPE_FLOAT32) return make_unsupported("a: this kernel is for bfloat16 and float16, not float32");
    return make_ok();
}

template <class Element>
HalfGemm<Element> make_half_gemm(const GemmBiasActParams& params) {
    const auto is_pair_aligned = [](const void* base, std::int64_t stride) { return has_aligned_rows(base, stride, kHalfBytes, 4); };
    return {
        static_cast<const Element*>(params.a),
        static_cast<const Element*>(params.b),
        static_cast<const Element*>(params.bias),
        static_cast<Element*>(params.y),
        static_cast<Element*>(params.z),
        params.lda,
        params.ldb,
        params.ldy,
        params.ldz,
        static_cast<int>(params.m),
        static_cast<int>(params.n),
        static_cast<int>(params.k),
        static_cast<int>(params.act),
        is_mappable(params.a, params.lda, kHalfBytes),
        is_mappable(params.b, params.ldb, kHalfBytes),
        is_pair_aligned(params.y, params.ldy) && (params.z == nullptr || is_pair_aligned(params.z, params.ldz)),
    };
}

template <Tunables t>
struct mma_plan {
    static AicfStatus check(const GemmBiasActParams& params) { return require_half(params); }

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return dispatch_half(params, [&]<class Element, class IsTransposed>(Element, IsTransposed) {
            using L = MmaLayout<t.bm, t.bn, t.wm, t.wn, t.stages>;
            const auto kernel = multiply_mma<Element, IsTransposed::value, t.bm, t.bn, t.wm, t.wn, t.stages, t.group>;
            AICF_RETURN_IF_NOT_OK(allow_shared_memory(kernel, L::kSharedBytes));
            kernel<<<static_cast<unsigned>(count_blocks(params)), L::kThreads, L::kSharedBytes, stream>>>(make_half_gemm<Element>(params));
            return AICF_CUDA_STATUS(cudaGetLastError());
        });
    }
};

// A tensor map of boxes of 128 bytes, swizzled as wgmma reads them: of 16-bit floats, or of fp32, which is rounded to TF32 where it is read.
template <int kItemBytes>
AicfStatus encode_operand(CUtensorMap* map, std::int32_t dtype, const void* base, std::int64_t rows, std::int64_t columns,
                          std::int64_t stride, int box_rows, bool is_output = false) {
    return kItemBytes == kHalfBytes ? encode_half(map, dtype, base, rows, columns, stride, box_rows)
                                    : encode_tf32(map, base, rows, columns, stride, box_rows, is_output);
}

[[maybe_unused]] AicfStatus require_tf32(const GemmBiasActParams& params) {
    if (params.dtype != AICF_DTYPE_FLOAT32 || params.precision != AICF_PRECISION_TF32)
        return make_unsupported("precision: this kernel is for float32 with precision 'tf32'");
    if (params.b_layout != AICF_B_NK) return make_unsupported("b_layout: this kernel reads b as [n, k] ('nk')");
    return make_ok();
}

template <Tunables t, int kItemBytes>
struct WgmmaPlan {
    static constexpr int kNumSlabs = 2;
    using Config = WgmmaTunables<t.bm, t.bn, t.stages, t.clusterm, t.clustern, t.pingpong, t.group, kNumSlabs,
                                 count_bias_bytes(t.bn, kItemBytes), kItemBytes>;
    using L = WgmmaLayout<Config>;

    static AicfStatus check_rows(const GemmBiasActParams& params) {
        // Tensor copies store whole units of 16 bytes: what lies behind a row that ends inside of one would be overwritten.
        if (params.n * kItemBytes % kTensorMapAlignment != 0) {
            return make_unsupported("n = %lld: must be a multiple of %d, so that rows of y end on 16-byte boundaries",
                                    static_cast<long long>(params.n), kTensorMapAlignment / kItemBytes);
        }
        return require_mappable(
            {{"a", params.a, params.lda}, {"b", params.b, params.ldb}, {"y", params.y, params.ldy}, {"z", params.z, params.ldz}},
            kItemBytes);
    }

    struct Maps {
        CUtensorMap a, b, y, z;
    };

    static AicfStatus encode_maps(const GemmBiasActParams& params, Maps* maps) {
        const auto encode = [&](CUtensorMap* map, const void* base, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                int box_rows, bool is_output) {
            return encode_operand<kItemBytes>(map, params.dtype, base, rows, columns, stride, box_rows, is_output);
        };
        AICF_RETURN_IF_NOT_OK(encode(&maps->a, params.a, params.m, params.k, params.lda, t.bm / t.clustern, false));
        if (params.b_layout == AICF_B_NK) {
            AICF_RETURN_IF_NOT_OK(encode(&maps->b, params.b, params.n, params.k, params.ldb, t.bn / t.clusterm, false));
        } else {
            AICF_RETURN_IF_NOT_OK(encode(&maps->b, params.b, params.k, params.n, params.ldb, L::kTileK / t.clusterm, false));
        }
        AICF_RETURN_IF_NOT_OK(encode(&maps->y, params.y, params.m, params.n, params.ldy, L::kSlabRows, true));
        maps->z = maps->y;
        if (params.z == nullptr) return make_ok();
        return encode(&maps->z, params.z, params.m, params.n, params.ldz, L::kSlabRows, true);
    }

    static WgmmaProblem make_problem(const GemmBiasActParams& params) {
        WgmmaProblem problem = {};
        problem.bias = params.bias;
        problem.n = static_cast<int>(params.n);
        problem.act = static_cast<int>(params.act);
        problem.has_z = params.z != nullptr;
        problem.grid = make_tile_grid<Config>(params.m, params.n, params.k);
        return problem;
    }

    template <class Kernel>
    static AicfStatus launch_kernel(Kernel kernel, const GemmBiasActParams& params, cudaStream_t stream) {
        Maps maps;
        AICF_RETURN_IF_NOT_OK(encode_maps(params, &maps));
        const WgmmaProblem problem = make_problem(params);
        int num_sms = 0;
        AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_sms));
        const int num_resident = std::max(num_sms / L::kClusterSize, 1);
        const dim3 grid(static_cast<unsigned>(std::min(problem.grid.num_tiles, num_resident) * L::kClusterSize));
        return launch_early(kernel, grid, L::kThreads, L::kSharedBytes, L::kClusterSize, stream, maps.a, maps.b, maps.y, maps.z, problem);
    }
};

template <Tunables t>
struct wgmma_plan : WgmmaPlan<t, kHalfBytes> {
    using Plan = WgmmaPlan<t, kHalfBytes>;

    static AicfStatus check(const GemmBiasActParams& params) {
        AICF_RETURN_IF_NOT_OK(require_half(params));
        return Plan::check_rows(params);
    }

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return dispatch_half(params, [&]<class Element, class IsTransposed>(Element, IsTransposed) {
            return Plan::launch_kernel(multiply_wgmma<Element, typename Plan::Config, IsTransposed::value>, params, stream);
        });
    }
};

template <Tunables t>
struct tf32_plan : WgmmaPlan<t, 4> {
    using Plan = WgmmaPlan<t, 4>;

    static AicfStatus check(const GemmBiasActParams& params) {
        AICF_RETURN_IF_NOT_OK(require_tf32(params));
        return Plan::check_rows(params);
    }

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return Plan::launch_kernel(multiply_wgmma<Tf32, typename Plan::Config, false>, params, stream);
    }
};

template <int kItemBytes>
OutputProblem make_output_problem(const GemmBiasActParams& params) {
    return {params.bias,
            params.y,
            params.z,
            params.ldy,
            params.ldz,
            static_cast<int>(params.m),
            static_cast<int>(params.n),
            static_cast<int>(params.act),
            is_mappable(params.y, params.ldy, kItemBytes) && (params.z == nullptr || is_mappable(params.z, params.ldz, kItemBytes))};
}

// The clusters and the workspace of a grid of tiles whose steps of k are split where that gains, and the kernels before and behind.
template <class Config, bool kHasSecondKernel, bool kTurned>
struct SplitPlan {
    using L = WgmmaLayout<Config>;
    SplitGrid grid;
    SplitWorkspace workspace;

    static AicfStatus make(const GemmBiasActParams& params, SplitPlan* result) {
        // A ring of steps is on its way at once: fewer of them a cluster take as long.
        constexpr int kLeastSteps = Config::stages;
        int num_sms = 0;
        AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_sms));
        const TileGrid tiles = make_tile_grid<Config>(kTurned ? params.n : params.m, kTurned ? params.m : params.n, params.k);
        result->grid = split_tile_grid(tiles, std::max(num_sms / L::kClusterSize, 1), count_join_steps<Config>(), kLeastSteps);
        result->workspace = plan_split_workspace<Config>(result->grid, kHasSecondKernel);
        return make_ok();
    }

    static AicfStatus count_workspace(const GemmBiasActParams& params, std::int64_t* bytes) {
        SplitPlan split;
        AICF_RETURN_IF_NOT_OK(make(params, &split));
        *bytes = split.workspace.count_bytes();
        return make_ok();
    }

    // Gives the grid its workspace, and clears the flags in it.
    AicfStatus prepare(void* base, cudaStream_t stream) {
        grid.slots = static_cast<float*>(base);
        grid.flags = reinterpret_cast<std::uint32_t*>(static_cast<std::uint8_t*>(base) + workspace.slot_bytes);
        if (workspace.num_flags == 0) return make_ok();
        return launch_early(clear_flags<std::uint32_t>, dim3(1), 256, 0, 1, stream, grid.flags, workspace.num_flags);
    }

    dim3 count_blocks() const { return dim3(static_cast<unsigned>(grid.num_clusters * L::kClusterSize)); }

    template <class Element>
    AicfStatus finish(const GemmBiasActParams& params, cudaStream_t stream) const {
        if constexpr (kHasSecondKernel) {
            if (grid.num_split == 0) return make_ok();
            const dim3 blocks(static_cast<unsigned>(grid.num_split * L::kClusterSize), count_add_blocks<Config>());
            return launch_early(add_split_parts<Element, Config, kTurned>, blocks, kAddThreads, 0, 1, stream,
                                make_output_problem<Config::item_bytes>(params), grid);
        } else {
            return make_ok();
        }
    }
};

// The wgmma kernel with split steps. Parts of large tiles cost most by their bytes, of which a second kernel moves more.
template <Tunables t, int kItemBytes>
struct StreamKPlan : WgmmaPlan<t, kItemBytes> {
    static constexpr bool kHasSecondKernel = t.bm * t.bn <= 128 * 128;
    using Plan = WgmmaPlan<t, kItemBytes>;
    using Config = typename Plan::Config;
    using L = typename Plan::L;
    using Split = SplitPlan<Config, kHasSecondKernel, false>;

    static AicfStatus count_workspace(const GemmBiasActParams& params, std::int64_t* bytes) { return Split::count_workspace(params, bytes); }

    template <class Element, bool kTransposedB>
    static AicfStatus launch_kernel(const GemmBiasActParams& params, void* workspace, cudaStream_t stream) {
        typename Plan::Maps maps;
        AICF_RETURN_IF_NOT_OK(Plan::encode_maps(params, &maps));
        Split split;
        AICF_RETURN_IF_NOT_OK(Split::make(params, &split));
        AICF_RETURN_IF_NOT_OK(split.prepare(workspace, stream));
        AICF_RETURN_IF_NOT_OK(launch_early(multiply_streamk<Element, Config, kTransposedB, kHasSecondKernel>, split.count_blocks(),
                                           L::kThreads, L::kSharedBytes, L::kClusterSize, stream, maps.a, maps.b, maps.y, maps.z,
                                           Plan::make_problem(params), split.grid));
        return split.template finish<Element>(params, stream);
    }
};

template <Tunables t>
struct streamk_plan : StreamKPlan<t, kHalfBytes> {
    using Plan = StreamKPlan<t, kHalfBytes>;

    static AicfStatus check(const GemmBiasActParams& params) {
        AICF_RETURN_IF_NOT_OK(require_half(params));
        return Plan::check_rows(params);
    }

    static AicfStatus launch(const GemmBiasActParams& params, void* workspace, cudaStream_t stream) {
        return dispatch_half(params, [&]<class Element, class IsTransposed>(Element, IsTransposed) {
            return Plan::template launch_kernel<Element, IsTransposed::value>(params, workspace, stream);
        });
    }
};

template <Tunables t>
struct streamk_tf32_plan : StreamKPlan<t, 4> {
    using Plan = StreamKPlan<t, 4>;

    static AicfStatus check(const GemmBiasActParams& params) {
        AICF_RETURN_IF_NOT_OK(require_tf32(params));
        return Plan::check_rows(params);
    }

    static AicfStatus launch(const GemmBiasActParams& params, void* workspace, cudaStream_t stream) {
        return Plan::template launch_kernel<Tf32, false>(params, workspace, stream);
    }
};

// Columns of Y are the rows of its tiles, and rows of Y their columns.
template <Tunables t, int kItemBytes>
struct TurnedPlan {
    using Config = WgmmaTunables<t.bn, t.bm, t.stages, t.clustern, t.clusterm, 0, t.group, 0, TurnedStage<t.bm, kItemBytes>::kAllBytes,
                                 kItemBytes>;
    using L = WgmmaLayout<Config>;
    using Split = SplitPlan<Config, true, true>;

    // Rows may begin anywhere: those of operands that are off 16-byte boundaries are copied first.
    static AicfStatus check_rows(const GemmBiasActParams& params) {
        AICF_RETURN_IF_NOT_OK(require_mappable({{"a", params.a, 0}, {"b", params.b, 0}}, kItemBytes));
        AICF_RETURN_IF_NOT_OK(require_repackable("a", params.m, params.k));
        AICF_RETURN_IF_NOT_OK(require_repackable("b", params.n, params.k));
        return require_repackable("b", params.k, params.n);
    }

    static void bring_operands(GemmBiasActParams* p, Repacker* repacker) {
        const bool is_nk = p->b_layout == AICF_B_NK;
        repacker->bring(&p->a, &p->lda, p->m, p->k);
        repacker->bring(&p->b, &p->ldb, is_nk ? p->n : p->k, is_nk ? p->k : p->n);
    }

    static AicfStatus count_workspace(const GemmBiasActParams& params, std::int64_t* bytes) {
        AICF_RETURN_IF_NOT_OK(Split::count_workspace(params, bytes));
        GemmBiasActParams copied = params;
        Repacker repacker(kItemBytes, nullptr);
        bring_operands(&copied, &repacker);
        *bytes += repacker.count_bytes();
        return make_ok();
    }

    template <class Element, bool kTransposedB>
    static AicfStatus launch_kernel(GemmBiasActParams params, void* workspace, cudaStream_t stream) {
        Repacker repacker(kItemBytes, workspace);
        bring_operands(&params, &repacker);
        AICF_RETURN_IF_NOT_OK(repacker.launch(stream));
        CUtensorMap a, b;
        const auto encode = encode_operand<kItemBytes>;
        AICF_RETURN_IF_NOT_OK(encode(&a, params.dtype, params.a, params.m, params.k, params.lda, t.bm / t.clustern, false));
        if (kTransposedB) {
            AICF_RETURN_IF_NOT_OK(encode(&b, params.dtype, params.b, params.k, params.n, params.ldb, L::kTileK / t.clusterm, false));
        } else {
            AICF_RETURN_IF_NOT_OK(encode(&b, params.dtype, params.b, params.n, params.k, params.ldb, t.bn / t.clusterm, false));
        }
        Split split;
        AICF_RETURN_IF_NOT_OK(Split::make(params, &split));
        AICF_RETURN_IF_NOT_OK(split.prepare(repacker.place(), stream));
        AICF_RETURN_IF_NOT_OK(launch_early(multiply_turned<Element, Config, kTransposedB>, split.count_blocks(), L::kThreads,
                                           L::kSharedBytes, L::kClusterSize, stream, b, a, make_output_problem<kItemBytes>(params),
                                           split.grid));
        return split.template finish<Element>(params, stream);
    }
};

template <Tunables t>
struct turned_plan : TurnedPlan<t, kHalfBytes> {
    using Plan = TurnedPlan<t, kHalfBytes>;

    static AicfStatus check(const GemmBiasActParams& params) {
        AICF_RETURN_IF_NOT_OK(require_half(params));
        return Plan::check_rows(params);
    }

    static AicfStatus launch(const GemmBiasActParams& params, void* workspace, cudaStream_t stream) {
        return dispatch_half(params, [&]<class Element, class IsTransposed>(Element, IsTransposed) {
            return Plan::template launch_kernel<Element, IsTransposed::value>(params, workspace, stream);
        });
    }
};

template <Tunables t>
struct turned_tf32_plan : TurnedPlan<t, 4> {
    using Plan = TurnedPlan<t, 4>;

    static AicfStatus check(const GemmBiasActParams& params) {
        AICF_RETURN_IF_NOT_OK(require_tf32(params));
        return Plan::check_rows(params);
    }

    static AicfStatus launch(const GemmBiasActParams& params, void* workspace, cudaStream_t stream) {
        return Plan::template launch_kernel<Tf32, false>(params, workspace, stream);
    }
};

template <Tunables t>
struct gemv_plan {
    static AicfStatus check(const GemmBiasActParams& params) {
        AICF_RETURN_IF_NOT_OK(require_half(params));
        if (params.b_layout != AICF_B_NK) return make_unsupported("b_layout: this kernel reads b as [n, k] ('nk')");
        if (params.m > kGemvMaxRows)
            return make_unsupported("m = %lld: this kernel takes at most %d", static_cast<long long>(params.m), kGemvMaxRows);
        if (params.k % 8 != 0) return make_unsupported("k = %lld: must be a multiple of 8", static_cast<long long>(params.k));
        return require_mappable({{"a", params.a, params.lda}, {"b", params.b, params.ldb}});
    }

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return params.dtype == AICF_DTYPE_BFLOAT16 ? launch_rows<Bf16>(params, stream) : launch_rows<Fp16>(params, stream);
    }

    template <class Element>
    static AicfStatus launch_rows(const GemmBiasActParams& params, cudaStream_t stream) {
        if (params.m == 1) return launch_kernel<Element, 1>(params, stream);
        if (params.m == 2) return launch_kernel<Element, 2>(params, stream);
        return launch_kernel<Element, kGemvMaxRows>(params, stream);
    }

    template <class Element, int kRows>
    static AicfStatus launch_kernel(const GemmBiasActParams& params, cudaStream_t stream) {
        constexpr int kColumnsPerBlock = t.bn;
        constexpr int kColumns = t.tn;
        constexpr int kWarps = kColumnsPerBlock / kColumns;
        // Each chunk of B meets kRows chunks of A: with four of them the registers hold half as many.
        constexpr int kUnroll = kRows < kGemvMaxRows ? t.stages : (t.stages + 1) / 2;
        const auto num_blocks = static_cast<unsigned>((params.n + kColumnsPerBlock - 1) / kColumnsPerBlock);
        return launch_early(multiply_gemv<Element, kRows, kColumns, kWarps, kUnroll>, dim3(num_blocks), kWarps * 32, 0, 1, stream,
                            make_half_gemm<Element>(params));
    }
};

template <Tunables t>
struct rows_plan {
    static constexpr int kMostRows = 16;

    static AicfStatus check(const GemmBiasActParams& params) {
        AICF_RETURN_IF_NOT_OK(require_fp32(params));
        if (params.b_layout != AICF_B_NK) return make_unsupported("b_layout: this kernel reads b as [n, k] ('nk')");
        if (params.m > kMostRows) {
            return make_unsupported("m = %lld: this kernel takes at most %d", static_cast<long long>(params.m), kMostRows);
        }
        if (params.k % 4 != 0) return make_unsupported("k = %lld: must be a multiple of 4", static_cast<long long>(params.k));
        return require_mappable({{"a", params.a, params.lda}, {"b", params.b, params.ldb}}, 4);
    }

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        if (params.m == 1) return launch_kernel<1>(params, stream);
        if (params.m == 2) return launch_kernel<2>(params, stream);
        if (params.m <= 4) return launch_kernel<4>(params, stream);
        if (params.m <= 8) return launch_kernel<8>(params, stream);
        return launch_kernel<kMostRows>(params, stream);
    }

    template <int kRows>
    static AicfStatus launch_kernel(const GemmBiasActParams& params, cudaStream_t stream) {
        constexpr int kUnroll = kRows < 8 ? t.stages : (t.stages + 1) / 2;  // many sums leave few registers for what is on its way
        const auto num_blocks = static_cast<unsigned>((params.n + t.bn - 1) / t.bn);
        return launch_early(multiply_rows<kRows, t.bn, t.splits, kUnroll>, dim3(num_blocks), t.splits * 32, 0, 1, stream,
                            make_gemm(params));
    }
};

template <Tunables t>
struct decode_plan {
    using L = DecodeLayout<t.bm, t.bn, t.stages, t.splits>;

    static AicfStatus check(const GemmBiasActParams& params) {
        AICF_RETURN_IF_NOT_OK(require_half(params));
        AICF_RETURN_IF_NOT_OK((require_grid<t.bm, t.bn>(params)));
        return require_mappable({{"a", params.a, params.lda}, {"b", params.b, params.ldb}});
    }

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return dispatch_half(params, [&]<class Element, class IsTransposed>(Element, IsTransposed) {
            return launch_kernel(multiply_decode<Element, IsTransposed::value, t.bm, t.bn, t.stages, t.splits>, params, stream);
        });
    }

    template <class Kernel>
    static AicfStatus launch_kernel(Kernel kernel, const GemmBiasActParams& params, cudaStream_t stream) {
        CUtensorMap a, b;
        AICF_RETURN_IF_NOT_OK(encode_half(&a, params.dtype, params.a, params.m, params.k, params.lda, t.bm));
        if (params.b_layout == AICF_B_NK) {
            AICF_RETURN_IF_NOT_OK(encode_half(&b, params.dtype, params.b, params.n, params.k, params.ldb, t.bn));
        } else {
            AICF_RETURN_IF_NOT_OK(encode_half(&b, params.dtype, params.b, params.k, params.n, params.ldb, L::kTileK));
        }
        const dim3 grid(t.splits, static_cast<unsigned>((params.n + t.bn - 1) / t.bn), static_cast<unsigned>((params.m + t.bm - 1) / t.bm));
        const DecodeProblem problem = {params.bias,
                                       params.y,
                                       params.z,
                                       params.ldy,
                                       params.ldz,
                                       static_cast<int>(params.m),
                                       static_cast<int>(params.n),
                                       static_cast<int>(params.k),
                                       static_cast<int>(params.act)};
        return launch_early(kernel, grid, L::kThreads, L::kSharedBytes, t.splits, stream, a, b, problem);
    }
};

using Chosen = AICF_CONCAT(AICF_KERNEL, _plan)<kTunables>;

AicfStatus check_params(const GemmBiasActParams& params) {
    AICF_RETURN_IF_NOT_OK(check_size("m", params.m));
    AICF_RETURN_IF_NOT_OK(check_size("n", params.n));
    AICF_RETURN_IF_NOT_OK(check_size("k", params.k));
    AICF_RETURN_IF_NOT_OK(check_code("act", params.act, AICF_ACT_COUNT));
    AICF_RETURN_IF_NOT_OK(check_code("dtype", params.dtype, AICF_DTYPE_COUNT));
    AICF_RETURN_IF_NOT_OK(check_code("b_layout", params.b_layout, AICF_B_LAYOUT_COUNT));
    AICF_RETURN_IF_NOT_OK(check_code("precision", params.precision, AICF_PRECISION_COUNT));
    if (params.precision == AICF_PRECISION_TF32 && params.dtype != AICF_DTYPE_FLOAT32)
        return make_invalid("precision: tf32 is what fp32 inputs may be multiplied in, 16-bit floats are not");
    AICF_RETURN_IF_NOT_OK(check_matrix("a", params.a, params.k, params.lda));
    AICF_RETURN_IF_NOT_OK(check_matrix("b", params.b, params.b_layout == AICF_B_NK ? params.k : params.n, params.ldb));
    AICF_RETURN_IF_NOT_OK(check_matrix("y", params.y, params.n, params.ldy));
    if (params.z) AICF_RETURN_IF_NOT_OK(check_matrix("z", params.z, params.n, params.ldz));
    // Rows, columns and blocks are counted in 32 bits; the last tile may end this far past the matrix.
    constexpr std::int64_t kMaxExtent = INT_MAX - 1024;
    if (params.m > kMaxExtent || params.n > kMaxExtent || params.k > kMaxExtent || count_blocks(params) > kMaxExtent / 64) {
        return make_unsupported("m, n, k = %lld, %lld, %lld: sizes must not exceed %lld, nor %d x %d tiles of y %lld",
                                static_cast<long long>(params.m), static_cast<long long>(params.n), static_cast<long long>(params.k),
                                static_cast<long long>(kMaxExtent), kTunables.bm, kTunables.bn, static_cast<long long>(kMaxExtent / 64));
    }
    return Chosen::check(params);
}

// Kernels that split k hand sums over through memory; the others want none.
template <class Plan>
concept HasWorkspace = requires(const GemmBiasActParams& params, std::int64_t* bytes) { Plan::count_workspace(params, bytes); };

template <class Plan>
AicfStatus launch(const GemmBiasActParams& params, void* workspace, cudaStream_t stream) {
    AICF_RETURN_IF_NOT_OK(check_params(params));
    if constexpr (HasWorkspace<Plan>) {
        return Plan::launch(params, workspace, stream);
    } else {
        return Plan::launch(params, stream);
    }
}

template <class Plan>
AicfStatus count_workspace(const GemmBiasActParams& params, size_t* result) {
    *result = 0;
    AICF_RETURN_IF_NOT_OK(check_params(params));
    if constexpr (HasWorkspace<Plan>) {
        std::int64_t bytes = 0;
        AICF_RETURN_IF_NOT_OK(Plan::count_workspace(params, &bytes));
        *result = static_cast<size_t>(bytes);
    }
    return make_ok();
}

}  // namespace
}  // namespace aicf::gemm_bias_act

extern "C" {

AicfStatus AICF_ENTRY(gemm_bias_act, supports)(const GemmBiasActParams* params) { return aicf::gemm_bias_act::check_params(*params); }

AicfStatus AICF_ENTRY(gemm_bias_act, workspace_bytes)(const GemmBiasActParams* params, size_t* bytes) {
    return aicf::gemm_bias_act::count_workspace<aicf::gemm_bias_act::Chosen>(*params, bytes);
}

AicfStatus AICF_ENTRY(gemm_bias_act, launch)(const GemmBiasActParams* params, void* workspace, struct CUstream_st* stream) {
    return aicf::gemm_bias_act::launch<aicf::gemm_bias_act::Chosen>(*params, workspace, stream);
}
}
