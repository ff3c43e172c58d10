struct scalar_plan {
    static constexpr int kThreads = kTunables.threads;
    static std::int64_t count_blocks(const Params& p) { return divide_up(p.n, kThreads); }
    template <bool with_relu>
    static constexpr auto kKernel = scalar<with_relu>;
};

struct vector_plan {
    static constexpr int kThreads = kTunables.threads;
    static std::int64_t count_blocks(const Params& p) { return divide_up(p.n, 4 * kThreads); }
    template <bool with_relu>
    static constexpr auto kKernel = vector<with_relu>;
};
