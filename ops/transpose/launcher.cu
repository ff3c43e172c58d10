// How each kernel of transpose is launched.
#include <algorithm>

#include "common/launch.hpp"
#include "transpose/api.hpp"
#include "transpose/contract.hpp"
#include "transpose/kernels.cu"

namespace aicf::transpose {
namespace {

constexpr int kMaxRowWidth = 8;  // columns that tall_rows serves; op.py says so to callers

// Launches a block per tile of X.
AicfStatus launch_tiles(void (*kernel)(Matrices), int tile_rows, int tile_columns, int threads, int shared_bytes, const Matrices& m,
                        cudaStream_t stream) {
    const std::int64_t num_tiles =
        aicf::divide_up(m.rows, std::int64_t{tile_rows}) * aicf::divide_up(m.columns, std::int64_t{tile_columns});
    return launch_kernel(kernel, static_cast<unsigned>(num_tiles), threads, shared_bytes, stream, m);
}

template <Tunables t>
struct naive {
    static AicfStatus launch(const Matrices& m, cudaStream_t stream) {
        return launch_tiles(transpose_naive<t.bm, t.bn>, t.bm, t.bn, t.bm * t.bn, 0, m, stream);
    }
};

template <Tunables t>
struct tiled {
    static AicfStatus launch(const Matrices& m, cudaStream_t stream) {
        return launch_tiles(transpose_tiled<t.bm, t.bn, t.threads, t.pad>, t.bm, t.bn, t.threads, 0, m, stream);
    }
};

template <Tunables t>
struct swizzled {
    static AicfStatus launch(const Matrices& m, cudaStream_t stream) {
        return launch_tiles(transpose_swizzled<t.bm, t.bn, t.threads>, t.bm, t.bn, t.threads, 0, m, stream);
    }
};

template <Tunables t>
struct patches {
    static AicfStatus launch(const Matrices& m, cudaStream_t stream) {
        constexpr int kRows = 4 * t.lm * t.items, kColumns = 4 * (32 / t.lm) * (t.threads / 32);
        return launch_tiles(transpose_patches<t.lm, t.threads, t.items>, kRows, kColumns, t.threads, 0, m, stream);
    }
};

template <Tunables t>
struct vectorised {
    static AicfStatus launch(const Matrices& m, cudaStream_t stream) {
        constexpr int kBytes = t.bm * t.bn * static_cast<int>(sizeof(float));
        return launch_tiles(transpose_vectorised<t.bm, t.bn, t.threads>, t.bm, t.bn, t.threads, kBytes, m, stream);
    }
};

// Launches a block per strip of up to t.items tiles; of fewer where the strips would not fill a chip.
template <Tunables t, class Share>
AicfStatus launch_strips(const Matrices& m, cudaStream_t stream) {
    constexpr std::int64_t kManyBlocks = 1056;  // 8 per multiprocessor of the largest chip
    const std::int64_t rows = aicf::divide_up(m.rows, std::int64_t{t.bm}), columns = aicf::divide_up(m.columns, std::int64_t{t.bn});
    const int num_tiles = static_cast<int>(std::max<std::int64_t>(std::min<std::int64_t>(rows * columns / kManyBlocks, t.items), 1));
    const int shared_bytes = (num_tiles > 1 ? 2 : 1) * t.bm * t.bn * static_cast<int>(sizeof(float));
    const auto num_strips = static_cast<unsigned>(aicf::divide_up(rows, std::int64_t{num_tiles}) * columns);
    return launch_kernel(transpose_strips<Share, t.threads>, num_strips, t.threads, shared_bytes, stream, m, num_tiles);
}

template <Tunables t>
struct strips {
    static AicfStatus launch(const Matrices& m, cudaStream_t stream) {
        return launch_strips<t, PatchShare<t.bm, t.bn, t.threads>>(m, stream);
    }
};

template <Tunables t>
struct elements {
    static AicfStatus launch(const Matrices& m, cudaStream_t stream) {
        return launch_strips<t, ElementShare<t.bm, t.bn, t.threads>>(m, stream);
    }
};

// The grid of lean kernels; a part of a row of Y may end `margin` before the tile does.
dim3 count_lean_tiles(int tile_rows, int tile_columns, int margin, const Matrices& m) {
    return {static_cast<unsigned>(aicf::divide_up(m.columns, std::int64_t{tile_columns})),
            static_cast<unsigned>(aicf::divide_up(m.rows + margin, std::int64_t{tile_rows}))};
}

template <Tunables t>
struct lean {
    static AicfStatus launch(const Matrices& m, cudaStream_t stream) {
        constexpr int kBytes = static_cast<int>(sizeof(float));
        if (t.cut == 0 || has_aligned_rows(m.y, m.ldy, kBytes, t.cut * kBytes)) return launch_cut<0>(m, stream);
        return launch_cut<t.cut>(m, stream);
    }

    template <int kCut>
    static AicfStatus launch_cut(const Matrices& m, cudaStream_t stream) {
        const dim3 grid = count_lean_tiles(t.bm, t.bn, std::max(kCut - 1, 0), m);
        return launch_kernel(transpose_lean<t.bm, t.bn, t.threads, kCut, t.stream != 0>, grid, t.threads, 0, stream, m);
    }
};

template <Tunables t>
struct tall_rows {
    static AicfStatus launch(const Matrices& m, cudaStream_t stream) { return launch_width<kMaxRowWidth>(m, stream); }

    template <int kWidth>
    static AicfStatus launch_width(const Matrices& m, cudaStream_t stream) {
        if constexpr (kWidth > 1) {
            if (m.columns < kWidth) return launch_width<kWidth - 1>(m, stream);
        }
        constexpr int kVector = kWidth % 4 == 0 ? 4 : kWidth % 2 == 0 ? 2 : 1;
        const bool has_vectors = has_aligned_rows(m.x, m.ldx, sizeof(float), kVector * static_cast<int>(sizeof(float)));
        return has_vectors ? launch_as<kWidth, kVector>(m, stream) : launch_as<kWidth, 1>(m, stream);
    }

    template <int kWidth, int kVector>
    static AicfStatus launch_as(const Matrices& m, cudaStream_t stream) {
        constexpr int kItems = std::max(t.items / kWidth, 1);
        const auto blocks = static_cast<unsigned>(aicf::divide_up(m.rows, std::int64_t{t.threads * kItems}));
        return launch_kernel(transpose_tall_rows<t.threads, kItems, kWidth, kVector>, blocks, t.threads, 0, stream, m);
    }
};

// Launches a block per slab, which has as many places along the long side as its threads have elements for.
template <Tunables t>
AicfStatus launch_slabs(void (*kernel)(Matrices, Slab), int long_side, int width, const Matrices& m, cudaStream_t stream) {
    const int length = t.threads * t.items / width / 32 * 32;
    const int num_twos = __builtin_ctz(static_cast<unsigned>(width));
    const Slab slab = {length, std::max(num_twos, 5), (1 << std::min(num_twos, 5)) - 1, make_divisor(width), make_divisor(length / 32)};
    const auto num_slabs = static_cast<unsigned>(aicf::divide_up(long_side, std::int64_t{length}));
    return launch_kernel(kernel, num_slabs, t.threads, 0, stream, m, slab);
}

template <Tunables t>
struct tall {
    static AicfStatus launch(const Matrices& m, cudaStream_t stream) {
        const auto kernel = m.ldx == m.columns ? transpose_tall<t.threads, t.items, true> : transpose_tall<t.threads, t.items, false>;
        return launch_slabs<t>(kernel, m.rows, m.columns, m, stream);
    }
};

template <Tunables t>
struct wide {
    static AicfStatus launch(const Matrices& m, cudaStream_t stream) {
        const auto kernel = m.ldy == m.rows ? transpose_wide<t.threads, t.items, true> : transpose_wide<t.threads, t.items, false>;
        return launch_slabs<t>(kernel, m.columns, m.rows, m, stream);
    }
};

// Whether rows of `width` elements follow each other in memory from a multiple of 16 bytes on.
bool is_packed_run(const float* base, std::int64_t ld, int width) { return ld == width && is_vector_aligned(base); }

template <Tunables t>
struct tall_packs {
    static AicfStatus launch(const Matrices& m, cudaStream_t stream) {
        if (!is_packed_run(m.x, m.ldx, m.columns)) return tall<t>::launch(m, stream);
        const auto kernel =
            has_vector_rows(m.y, m.ldy) ? transpose_tall_packs<t.threads, t.items, true> : transpose_tall_packs<t.threads, t.items, false>;
        return launch_slabs<t>(kernel, m.rows, m.columns, m, stream);
    }
};

template <Tunables t>
struct wide_packs {
    static AicfStatus launch(const Matrices& m, cudaStream_t stream) {
        if (!is_packed_run(m.y, m.ldy, m.rows)) return wide<t>::launch(m, stream);
        const auto kernel =
            has_vector_rows(m.x, m.ldx) ? transpose_wide_packs<t.threads, t.items, true> : transpose_wide_packs<t.threads, t.items, false>;
        return launch_slabs<t>(kernel, m.columns, m.rows, m, stream);
    }
};

// A block per slab of the most groups, a power of two, that hold no more elements than its threads have items; of one at least.
template <Tunables t>
struct lean_wide {
    static AicfStatus launch(const Matrices& m, cudaStream_t stream) {
        const auto kernel = is_packed_run(m.y, m.ldy, m.rows) ? transpose_lean_wide<t.threads, t.items, true>
                                                              : transpose_lean_wide<t.threads, t.items, false>;
        const int num_twos = __builtin_ctz(static_cast<unsigned>(m.rows));
        LeanSlab slab = {make_divisor(m.rows), 0, std::max(num_twos, 5), (1 << std::min(num_twos, 5)) - 1};
        while ((64 << slab.log_groups) * m.rows <= t.threads * t.items) ++slab.log_groups;
        const auto num_slabs = static_cast<unsigned>(divide_up(m.columns, 32 << slab.log_groups));
        return launch_kernel(kernel, num_slabs, t.threads, 0, stream, m, slab);
    }
};

AicfStatus launch(const Params& params, void*, cudaStream_t stream) {
    const Matrices m = {params.x, params.y, params.ldx, params.ldy, static_cast<int>(params.rows), static_cast<int>(params.columns)};
    return AICF_KERNEL<kTunables>::launch(m, stream);
}

}  // namespace
}  // namespace aicf::transpose

#include "transpose/entry_points.hpp"
