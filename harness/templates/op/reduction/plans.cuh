constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;

struct thread_per_row_plan {
    static constexpr int kThreads = AICF_THREADS;
    static constexpr int kAlignment = 4;
    static std::int64_t count_blocks(const @{ camel }@Params& p) { return divide_up(p.rows, kThreads); }
    template <bool with_relu>
    static constexpr auto kKernel = thread_per_row<with_relu>;
};

struct warp_per_row_plan {
    static constexpr int kThreads = AICF_THREADS;
    static constexpr int kAlignment = 4;
    static std::int64_t count_blocks(const @{ camel }@Params& p) { return divide_up(p.rows, kThreads / kWarpSize); }
    template <bool with_relu>
    static constexpr auto kKernel = warp_per_row<with_relu>;
};

struct block_per_row_plan {
    static constexpr int kThreads = AICF_THREADS;
    static constexpr int kAlignment = 4;
    static std::int64_t count_blocks(const @{ camel }@Params& p) { return p.rows; }
    template <bool with_relu>
    static constexpr auto kKernel = block_per_row<with_relu, kThreads>;
};
