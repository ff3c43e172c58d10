struct thread_per_row_plan {
    static constexpr int kThreads = kTunables.threads;
    static std::int64_t count_blocks(const Params& p) { return divide_up(p.rows, kThreads); }
    template <bool with_relu>
    static constexpr auto kKernel = thread_per_row<with_relu>;
};

struct warp_per_row_plan {
    static constexpr int kThreads = kTunables.threads;
    static std::int64_t count_blocks(const Params& p) { return divide_up(p.rows, kThreads / kWarpSize); }
    template <bool with_relu>
    static constexpr auto kKernel = warp_per_row<with_relu>;
};

struct block_per_row_plan {
    static constexpr int kThreads = kTunables.threads;
    static std::int64_t count_blocks(const Params& p) { return p.rows; }
    template <bool with_relu>
    static constexpr auto kKernel = block_per_row<with_relu, kThreads>;
};
