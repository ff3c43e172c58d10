struct tile_plan {
    static constexpr int kThreads = kTunables.tile * kTunables.tile;
    static std::int64_t count_blocks(const Params& p) { return divide_up(p.m, kTunables.tile) * divide_up(p.n, kTunables.tile); }
};

struct naive_plan : tile_plan {
    template <bool with_relu>
    static constexpr auto kKernel = naive<with_relu, kTunables.tile>;
};

struct smem_tiled_plan : tile_plan {
    template <bool with_relu>
    static constexpr auto kKernel = smem_tiled<with_relu, kTunables.tile>;
};
