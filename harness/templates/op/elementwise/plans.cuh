constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;

struct scalar_plan {
    static constexpr int kThreads = AICF_THREADS;
    static constexpr int kAlignment = 4;
    static std::int64_t count_blocks(const @{ camel }@Params& p) { return divide_up(p.n, kThreads); }
    template <bool with_relu>
    static constexpr auto kKernel = scalar<with_relu>;
};

struct vector_plan {
    static constexpr int kThreads = AICF_THREADS;
    static constexpr int kAlignment = 16;
    static std::int64_t count_blocks(const @{ camel }@Params& p) { return divide_up(p.n, 4 * kThreads); }
    template <bool with_relu>
    static constexpr auto kKernel = vector<with_relu>;
};
