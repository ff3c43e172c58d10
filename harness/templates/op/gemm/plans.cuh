// So that the number of tiles fits 64 bits.
constexpr std::int64_t kMaxSize = INT_MAX;

struct tile_plan {
    static constexpr int kThreads = AICF_TILE * AICF_TILE;
    static constexpr int kAlignment = 4;
    static std::int64_t count_blocks(const @{ camel }@Params& p) { return divide_up(p.m, AICF_TILE) * divide_up(p.n, AICF_TILE); }
};

struct naive_plan : tile_plan {
    template <bool with_relu>
    static constexpr auto kKernel = naive<with_relu, AICF_TILE>;
};

struct smem_tiled_plan : tile_plan {
    template <bool with_relu>
    static constexpr auto kKernel = smem_tiled<with_relu, AICF_TILE>;
};
