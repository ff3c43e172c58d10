// A launch from its arguments to its result.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <thread>
#include <unordered_set>

#include "../../memory/map_zeros.hpp"
#include "../../memory/race_shadow.hpp"
#include "engine.hpp"

namespace aicf::emu {
namespace {

constexpr uint32_t kMostClusterBlocks = 16;  // beyond 8 the kernel has to allow it; the runtime sees to that
constexpr uint32_t kSharedPerMultiprocessor = 228 * 1024, kSharedPerBlock = 227 * 1024;

// One bit for each 32-byte sector of the arena up to its high-water mark.
struct SectorMap {
    std::atomic<uint64_t>* bits = nullptr;
    size_t bytes = 0;
    explicit SectorMap(const DeviceMemory& memory) {
        bytes = round_up((memory.high_water_address() - memory.base()) / 256 + 64, 4096);
        bits = static_cast<std::atomic<uint64_t>*>(map_zeros(bytes));
    }
    ~SectorMap() { munmap(bits, bytes); }
    SectorMap(const SectorMap&) = delete;
    SectorMap& operator=(const SectorMap&) = delete;
    uint64_t count_bytes() const {
        uint64_t sectors = 0;
        for (size_t i = 0; i < bytes / 8; ++i)
            sectors += static_cast<uint64_t>(__builtin_popcountll(bits[i].load(std::memory_order_relaxed)));
        return sectors * 32;
    }
};

int validate(const Launch& launch, const Image& image) {
    const uint64_t threads = static_cast<uint64_t>(launch.block.x) * launch.block.y * launch.block.z;
    if (threads == 0 || threads > kMaxThreads || launch.block.z > 64) return kErrorInvalidConfiguration;
    if (launch.grid.x == 0 || launch.grid.y == 0 || launch.grid.z == 0) return kErrorInvalidConfiguration;
    if (launch.grid.x > 0x7FFFFFFFu || launch.grid.y > 65535 || launch.grid.z > 65535) return kErrorInvalidConfiguration;
    if (static_cast<uint64_t>(image.shared_static_bytes) + launch.dynamic_shared_bytes > kSharedPerBlock) return kErrorInvalidValue;
    const Dim3& most = image.kernel.max_threads;
    if (most.x != 0 && threads > static_cast<uint64_t>(most.x) * std::max(most.y, 1u) * std::max(most.z, 1u))
        return kErrorLaunchOutOfResources;
    const Dim3& required = image.kernel.required_threads;
    if (required.x != 0 &&
        (required.x != launch.block.x || std::max(required.y, 1u) != launch.block.y || std::max(required.z, 1u) != launch.block.z)) {
        return kErrorInvalidConfiguration;
    }
    const Dim3& cluster = launch.cluster;
    const uint64_t blocks = static_cast<uint64_t>(cluster.x) * cluster.y * cluster.z;
    if (blocks == 0 || blocks > kMostClusterBlocks || launch.grid.x % cluster.x || launch.grid.y % cluster.y || launch.grid.z % cluster.z)
        return kErrorInvalidClusterSize;
    const Dim3& wanted = image.kernel.required_cluster;
    if (wanted.x != 0 && (wanted.x != cluster.x || std::max(wanted.y, 1u) != cluster.y || std::max(wanted.z, 1u) != cluster.z)) {
        return kErrorInvalidClusterSize;
    }
    if (launch.params.size() < image.kernel.param_bytes) return kErrorInvalidValue;
    return kSuccess;
}

struct AlignedFree {
    void operator()(std::byte* p) const { std::free(p); }
};
using AlignedBytes = std::unique_ptr<std::byte[], AlignedFree>;

AlignedBytes make_constants(LaunchState& state) {
    const std::vector<std::byte>& rows = state.image->constants;
    AlignedBytes constants(static_cast<std::byte*>(std::aligned_alloc(64, round_up(rows.size() + 64, 64))));
    if (!constants) throw std::bad_alloc();
    std::memcpy(constants.get(), rows.data(), rows.size());
    for (const ParamRow& row : state.image->param_rows) {
        uint64_t value = 0;
        std::memcpy(&value, state.launch->params.data() + row.param_offset, row.bytes);
        if (row.sign_extend && row.bytes < 8) {
            const uint32_t shift = 64 - 8 * row.bytes;
            value = static_cast<uint64_t>(static_cast<int64_t>(value << shift) >> shift);
        }
        for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
            std::memcpy(constants.get() + row.offset_bytes + lane * (row.row64 ? 8 : 4), &value, row.row64 ? 8 : 4);
        }
    }
    state.constants = constants.get();
    return constants;
}

// What the registers %envreg1 and %envreg2 of a cooperative launch point to: two words, the size and the grid's barrier.
void make_workspace(const ProgramImpl& program, DeviceMemory& memory, LaunchState& state) {
    constexpr uint32_t kWords[2] = {8, 0};
    if (!program.grid_workspace) program.grid_workspace = memory.allocate(sizeof kWords, MemoryKind::kModule, "grid workspace");
    if (!program.grid_workspace) throw std::bad_alloc();
    std::memcpy(memory.alias(program.grid_workspace), kWords, sizeof kWords);
    memory.mark_initialized(program.grid_workspace, sizeof kWords);
    state.grid_workspace = program.grid_workspace;
}

// For a launch after this one that may start before its end: what findings about the two have to say.
void note_primary(const LaunchState& state) {
    PrimaryLaunch& primary = state.shadow->primary;
    primary.epoch = state.lets_dependents_start ? state.shadow_epoch : 0;
    primary.global_shift = state.global_shift;
    if (primary.epoch == 0) return;
    const Launch& launch = *state.launch;
    primary.kernel = state.image->kernel.name;
    primary.grid[0] = launch.grid.x, primary.grid[1] = launch.grid.y;
    primary.block[0] = launch.block.x, primary.block[1] = launch.block.y;
    if (!state.image->places) state.image->places = std::make_shared<const std::vector<std::string>>(describe_places(state));
    primary.places = state.image->places;  // which outlive the module
}

// `sampled` of `clusters`, ascending: spread evenly, or with a seed the first, the last, and one drawn in each of the equal bands between.
std::vector<uint64_t> choose_sample(uint64_t clusters, uint64_t sampled, uint64_t seed) {
    std::vector<uint64_t> chosen(sampled);
    for (uint64_t i = 0; i < sampled; ++i) {
        if (seed == 0) {
            chosen[i] = static_cast<uint64_t>((static_cast<double>(i) + 0.5) * clusters / sampled);
        } else if (i == 0 || i + 1 == sampled) {
            chosen[i] = i == 0 ? 0 : clusters - 1;
        } else {
            const auto edge = [&](uint64_t band) {
                return 1 + static_cast<uint64_t>(static_cast<double>(band) * (clusters - 2) / (sampled - 2));
            };
            chosen[i] = edge(i - 1) + next_random(seed) % (edge(i) - edge(i - 1));
        }
    }
    return chosen;
}

using WrittenRuns = std::map<uint64_t, std::vector<std::pair<uint64_t, uint64_t>>>;  // of bytes, by the address of their allocation

// What is written of the allocations that are not given.
WrittenRuns find_written_runs(const DeviceMemory& memory) {
    WrittenRuns found;
    for (const Allocation& allocation : memory.live_allocations())
        if (allocation.kind == MemoryKind::kDevice && !allocation.given)
            found[allocation.address] = memory.find_initialized(allocation.address, allocation.size_bytes);
    return found;
}

// Blocks that were left out may have overwritten anything in the allocations that those which ran have stored to.
void forget_overwritten(DeviceMemory& memory, const WrittenRuns& before, const std::vector<Worker>& pool) {
    if (before.empty()) return;
    std::unordered_set<uint64_t> stored;
    for (const Worker& worker : pool) stored.insert(worker.stored.begin(), worker.stored.end());
    for (const uint64_t address : stored) {
        memory.note_shared(address);
        const auto found = before.find(address);
        if (found == before.end()) continue;
        for (const auto& [begin, end] : found->second) memory.mark_unwritten(begin, end - begin);
    }
}

void print_output(LaunchState& state) {
    std::stable_sort(state.output.begin(), state.output.end(), [](const auto& x, const auto& y) { return x.block < y.block; });
    for (const LaunchState::Output& line : state.output) std::fputs(line.text.c_str(), line.is_error ? stderr : stdout);
    if (!state.output.empty()) std::fflush(stdout);
}

}  // namespace

LaunchResult run(const Launch& launch, DeviceMemory& memory, const ExecOptions& options) {
    LaunchResult result;
    const auto* program = static_cast<const ProgramImpl*>(launch.program);
    const auto found = program ? program->images.find(launch.kernel) : std::map<std::string, std::unique_ptr<Image>>::const_iterator{};
    if (!program || found == program->images.end()) {
        result.status = kErrorInvalidValue;
        return result;
    }
    LaunchState state;
    state.launch = &launch;
    state.program = program;
    state.image = found->second.get();
    state.memory = &memory;
    state.options = options;
    if (memory.has_given()) state.options.checks |= kDependence;
    result.status = validate(launch, *state.image);
    if (result.status != kSuccess) return result;

    static std::atomic<uint64_t> serial{0};
    state.launch_serial = ++serial;
    state.block_threads = launch.block.x * launch.block.y * launch.block.z;
    state.grid_blocks = static_cast<uint64_t>(launch.grid.x) * launch.grid.y * launch.grid.z;
    state.cluster_blocks = launch.cluster.x * launch.cluster.y * launch.cluster.z;
    state.grid_clusters = state.grid_blocks / state.cluster_blocks;
    state.shared_bytes = state.image->shared_static_bytes + launch.dynamic_shared_bytes;
    state.mode = options.counters ? Mode::kCounted : state.options.checks ? Mode::kChecked : Mode::kPlain;
    const AlignedBytes constants = make_constants(state);
    if (options.schedule == Schedule::kRandom) {
        state.cluster_order.resize(state.grid_clusters);
        std::iota(state.cluster_order.begin(), state.cluster_order.end(), uint64_t{0});
        uint64_t random = options.seed;
        for (uint64_t i = state.grid_clusters; i > 1; --i)
            std::swap(state.cluster_order[i - 1], state.cluster_order[next_random(random) % i]);
    }
    state.run_clusters = state.grid_clusters;
    const uint64_t sampled = (options.sample_blocks + state.cluster_blocks - 1) / state.cluster_blocks;
    if (sampled != 0 && sampled < state.grid_clusters && !launch.cooperative) {  // blocks that wait for each other need all of them
        state.run_clusters = sampled;
        state.cluster_order = choose_sample(state.grid_clusters, sampled, options.sample_seed);
    }
    const uint32_t per_sm = std::max(1u, std::min({kBlocksPerMultiprocessor, kThreadsPerMultiprocessor / std::max(32u, state.block_threads),
                                                   kSharedPerMultiprocessor / (state.shared_bytes + 1024)}));
    uint32_t workers = options.workers ? options.workers : std::max(1u, std::thread::hardware_concurrency());
    workers = static_cast<uint32_t>(std::min<uint64_t>(workers, state.grid_clusters));
    const uint64_t on_device = static_cast<uint64_t>(per_sm) * kMultiprocessors;
    if (launch.cooperative && state.grid_blocks > on_device) {
        result.status = 720;  // cudaErrorCooperativeLaunchTooLarge
        return result;
    }
    state.co_resident = static_cast<uint32_t>((std::min(on_device, state.grid_blocks) + workers - 1) / workers);

    if (launch.cooperative && state.image->uses_workspace) make_workspace(*program, memory, state);

    if (state.image->uses_heap) memory.open_heap();

    std::unique_ptr<OrderTable> order;
    state.single_worker = workers == 1;
    state.global_shift = state.image->global_shift;
    if (options.checks & kRacecheck) {
        order = std::make_unique<OrderTable>();
        state.order = order.get();
        if (state.grid_blocks < kMostRaceBlocks) {
            state.shadow = &memory.race_shadow();
            state.shadow_epoch = state.shadow->begin_launch();
            if (launch.primary != 0 && launch.primary == state.shadow->primary.epoch && launch.primary + 1 == state.shadow_epoch &&
                state.global_shift == state.shadow->primary.global_shift)  // else granules hold other ranges
                state.primary = launch.primary;
        }
    }
    std::unique_ptr<SectorMap> reads, writes;
    if (options.counters) {
        reads = std::make_unique<SectorMap>(memory);
        writes = std::make_unique<SectorMap>(memory);
        state.read_sectors = reads->bits;
        state.write_sectors = writes->bits;
    }
    std::vector<Worker> pool(workers);
    for (uint32_t i = 0; i < workers; ++i) {
        pool[i].launch = &state;
        pool[i].id = i;
        pool[i].checks = state.options.checks;
        pool[i].ranges.assign(state.image->code.size(), Range{});
        if (options.counters) pool[i].lines.assign(state.image->code.size(), Counters{});
    }
    const WrittenRuns before = state.is_part() && memory.has_given() ? find_written_runs(memory) : WrittenRuns{};
    run_workers(state, pool);
    forget_overwritten(memory, before, pool);
    for (Worker& worker : pool) {
        if (options.counters) state.counters.add(worker.counters);
        for (const auto& [key, count] : worker.folded) {
            const size_t index = state.report_index[key];
            if (index < state.reports.size()) state.reports[index].count += count;
        }
    }
    merge_copies(state.reports);
    if (options.counters) {
        result.lines = collect_lines(state, pool);
        for (const LineCounters& line : result.lines) state.counters.add(line.counts);
        state.counters.global_unique_bytes_read = reads->count_bytes();
        state.counters.global_unique_bytes_written = writes->count_bytes();
    }
    print_output(state);
    if (state.shadow) {
        result.race_launch = state.shadow_epoch;
        note_primary(state);
    }
    result.status = state.status;
    if (options.instruction_limit != 0) {
        result.instructions = state.instructions.load(std::memory_order_relaxed);
        for (const Worker& worker : pool) result.matrix_work += worker.matrix_products / kWarpLanes;
        result.instructions += result.matrix_work;
    }
    result.reports = std::move(state.reports);
    result.counters = state.counters;
    return result;
}

}  // namespace aicf::emu
