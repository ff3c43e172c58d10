// The state of a block: its memory on the host, and its start.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "../../memory/map_zeros.hpp"
#include "../race/race.hpp"
#include "engine.hpp"

namespace aicf::emu {
namespace {

// Small regions of blocks that are gone, for the next launch of the same thread: the pages of new ones are faulted in one by one, which
// takes longer than a block that has little to do.
class SpareRegions {
public:
    ~SpareRegions() {
        for (const Region& region : regions_) munmap(region.at, region.bytes);
    }

    // Memory that is all zeros.
    void* take(size_t bytes) {
        const auto found = std::find_if(regions_.begin(), regions_.end(), [&](const Region& region) { return region.bytes == bytes; });
        if (found != regions_.end()) {
            void* at = found->at;
            regions_.erase(found);
            return std::memset(at, 0, bytes);
        }
        return map_zeros(bytes);
    }

    void give_back(void* at, size_t bytes) {
        if (bytes > kMostBytes) {
            munmap(at, bytes);
            return;
        }
        if (regions_.size() == kMostRegions) {
            munmap(regions_.front().at, regions_.front().bytes);
            regions_.erase(regions_.begin());
        }
        regions_.push_back({at, bytes});
    }

private:
    // More are the blocks of no cluster; of larger ones most is not touched, and would be cleared all the same.
    static constexpr size_t kMostRegions = 16, kMostBytes = 1024 * 1024;
    struct Region {
        void* at;
        size_t bytes;
    };
    std::vector<Region> regions_;
};

thread_local SpareRegions spare_regions;

}  // namespace

Block::~Block() {
    if (region) spare_regions.give_back(region, region_bytes);
}

void Block::allocate(LaunchState& state) {
    launch = &state;
    const Image& image = *state.image;
    num_threads = state.block_threads;
    num_warps = (num_threads + kWarpLanes - 1) / kWarpLanes;
    shared_end = image.shared_dynamic + state.launch->dynamic_shared_bytes;
    local_stride = image.stack_local + image.alloca_bytes;
    const bool init = state.options.checks & kInitcheck;
    const bool race = state.options.checks & kRacecheck;
    const size_t units = (shared_end >> image.race_shift) + 64;
    const size_t per_warp32 = round_up(image.stack32, 256), per_warp64 = round_up(image.stack64, 256);
    const size_t per_warp_predicates = round_up(4ull * image.stack_predicates + 64, 256),
                 per_warp_specials = round_up(image.special_bytes, 256);
    const size_t threads = static_cast<size_t>(num_warps) * kWarpLanes;

    size_t at = 0;
    const auto reserve = [&](size_t bytes) {
        const size_t offset = at;
        at = round_up(at + bytes, 256);
        return offset;
    };
    const size_t rows_at = reserve(num_warps * (per_warp32 + per_warp64 + per_warp_predicates + per_warp_specials));
    const size_t shared_at = reserve(shared_end + 64);
    const size_t shared_state_at = reserve(init ? shared_end + 64 : 0);
    const size_t local_at = reserve(threads * local_stride + 64);
    const size_t local_state_at = reserve(init ? threads * local_stride + 64 : 0);
    const size_t writes_at = reserve(race ? 4 * units : 0), reads_at = reserve(race ? 4 * units : 0),
                 warps_at = reserve(race ? 4 * units : 0);
    region_bytes = round_up(at, 4096);
    region = spare_regions.take(region_bytes);
    uint8_t* base = static_cast<uint8_t*>(region);
    shared = base + shared_at;
    shared_state = init ? base + shared_state_at : nullptr;
    local = base + local_at;
    local_state = init ? base + local_state_at : nullptr;
    if (race) {
        last_write = reinterpret_cast<uint32_t*>(base + writes_at);
        last_read = reinterpret_cast<uint32_t*>(base + reads_at);
        read_warps = reinterpret_cast<uint32_t*>(base + warps_at);
        write_pc.assign(units, 0);
        read_pc.assign(units, 0);
        // Blocks of a cluster ask for reads that are older than the last barrier.
        read_log.active = state.cluster_blocks == 1;
        read_log.page_read.assign((shared_end >> ReadLog::kPageShift) + 2, 0);
        read_log.page_write.assign((shared_end >> ReadLog::kPageShift) + 2, 0);
    }
    warps.resize(num_warps);
    uint8_t* rows = base + rows_at;
    for (uint32_t w = 0; w < num_warps; ++w) {
        Warp& warp = warps[w];
        warp.id = w;
        warp.rows32 = rows;
        warp.rows64 = rows + per_warp32;
        warp.predicates = reinterpret_cast<uint32_t*>(rows + per_warp32 + per_warp64);
        warp.specials = rows + per_warp32 + per_warp64 + per_warp_predicates;
        rows += per_warp32 + per_warp64 + per_warp_predicates + per_warp_specials;
        const uint32_t first = w * kWarpLanes;
        const uint32_t lanes = std::min(kWarpLanes, num_threads - first);
        warp.initial = lanes == kWarpLanes ? ~0u : (1u << lanes) - 1;
    }
}

namespace {

uint32_t extent(const Dim3& dim, int member) { return member == 0 ? dim.x : member == 1 ? dim.y : dim.z; }

uint64_t special_value(const LaunchState& state, const Block& block, const Warp& warp, uint32_t lane, Special kind) {
    const Dim3& grid = state.launch->grid;
    const Dim3& size = state.launch->block;
    const Dim3& cluster = state.launch->cluster;
    const auto member = [&](Special first) { return static_cast<int>(kind) - static_cast<int>(first); };
    switch (kind) {
        case Special::kTidX:
        case Special::kTidY:
        case Special::kTidZ: {
            uint32_t thread[3];
            thread_index(state, std::min(warp.id * kWarpLanes + lane, state.block_threads - 1), thread);
            return thread[member(Special::kTidX)];
        }
        case Special::kNtidX: return size.x;
        case Special::kNtidY: return size.y;
        case Special::kNtidZ: return size.z;
        case Special::kCtaidX: return block.ctaid[0];
        case Special::kCtaidY: return block.ctaid[1];
        case Special::kCtaidZ: return block.ctaid[2];
        case Special::kNctaidX: return grid.x;
        case Special::kNctaidY: return grid.y;
        case Special::kNctaidZ: return grid.z;
        case Special::kLaneid: return lane;
        case Special::kWarpid: return warp.id;
        case Special::kNwarpid: return kThreadsPerMultiprocessor / kWarpLanes;
        case Special::kSmid: return block.linear % kMultiprocessors;
        case Special::kNsmid: return kMultiprocessors;
        case Special::kGridid32:
        case Special::kGridid64: return state.launch_serial;
        case Special::kLanemaskEq: return 1u << lane;
        case Special::kLanemaskLt: return (1u << lane) - 1;
        case Special::kLanemaskLe: return (2ull << lane) - 1;
        case Special::kLanemaskGt: return ~static_cast<uint32_t>((2ull << lane) - 1);
        case Special::kLanemaskGe: return ~((1u << lane) - 1);
        case Special::kClusteridX:
        case Special::kClusteridY:
        case Special::kClusteridZ: return block.ctaid[member(Special::kClusteridX)] / extent(cluster, member(Special::kClusteridX));
        case Special::kNclusteridX:
        case Special::kNclusteridY:
        case Special::kNclusteridZ: return extent(grid, member(Special::kNclusteridX)) / extent(cluster, member(Special::kNclusteridX));
        case Special::kClusterCtaidX:
        case Special::kClusterCtaidY:
        case Special::kClusterCtaidZ:
            return block.ctaid[member(Special::kClusterCtaidX)] % extent(cluster, member(Special::kClusterCtaidX));
        case Special::kClusterNctaidX:
        case Special::kClusterNctaidY:
        case Special::kClusterNctaidZ: return extent(cluster, member(Special::kClusterNctaidX));
        case Special::kClusterCtarank: return block.cluster_rank;
        case Special::kClusterNctarank: return state.cluster_blocks;
        case Special::kIsExplicitCluster: return state.launch->has_cluster;
        case Special::kEnvironment1: return state.grid_workspace >> 32;
        case Special::kEnvironment2: return state.grid_workspace & 0xFFFFFFFFu;
        case Special::kDynamicSmem: return state.launch->dynamic_shared_bytes;
        case Special::kTotalSmem: return state.shared_bytes;
        case Special::kOne32: return 1;
        case Special::kMinusOne32: return 0xFFFFFFFFu;
        default: return 0;
    }
}

bool is_row64(Special kind) { return kind == Special::kGridid64 || kind == Special::kZero64; }

bool changes_with_block(Special kind) {
    return kind == Special::kCtaidX || kind == Special::kCtaidY || kind == Special::kCtaidZ || kind == Special::kSmid ||
           (kind >= Special::kClusteridX && kind <= Special::kClusterCtarank);
}

}  // namespace

void Block::start(uint64_t cluster_index, uint32_t rank) {
    const LaunchState& state = *launch;
    const bool first_time = linear == ~0ull;
    const Dim3& grid = state.launch->grid;
    const Dim3& size = state.launch->cluster;
    const uint64_t across = grid.x / size.x, down = grid.y / size.y;
    ctaid[0] = static_cast<uint32_t>(cluster_index % across) * size.x + rank % size.x;
    ctaid[1] = static_cast<uint32_t>(cluster_index / across % down) * size.y + rank / size.x % size.y;
    ctaid[2] = static_cast<uint32_t>(cluster_index / (across * down)) * size.z + rank / (size.x * size.y);
    linear = (static_cast<uint64_t>(ctaid[2]) * grid.y + ctaid[1]) * grid.x + ctaid[0];
    cluster_rank = rank;
    has_begun = false;
    has_dependent = false;
    live_threads = num_threads;
    next_warp = 0;
    quanta = 0;
    random = state.options.seed * 0x9E3779B97F4A7C15ull + linear;
    for (Barrier& barrier : barriers) barrier = Barrier{};
    mbarriers.clear();
    // What earlier blocks left in the shadow counts as ordered before this one.
    if (++clock > 1u << 26) clock = 2, clock_base = 0;
    // ... but for special stamps, whose records go with the block.
    if (last_write && (clock == 2 || clock - clock_base >= kMaxStampClock / 2 || !agent_read.empty())) order::forget_shared(*this);
    floor = start_clock = clock;
    read_log.entries.clear();
    fence_floor_device = fence_floor_block = 0;
    known.clear();
    records = RecordTable{};
    if (!agent_read.empty()) agent_read.clear();
    sectors.clear();
    if (state.options.counters) l1.reset(state.options.l1_bytes);
    if (shared_state) std::fill(shared_state, shared_state + shared_end, uint8_t{0});
    if (local_state) std::fill(local_state, local_state + static_cast<size_t>(num_warps) * kWarpLanes * local_stride, uint8_t{0});
    if (state.options.checks) std::fill(shared + kSharedStart, shared + shared_end, uint8_t{0xCB});
    wgmma_logs.clear();
    if (const Image& image = *state.image; image.reserved_shared_bytes != 0) {
        std::fill_n(shared + image.reserved_shared, image.reserved_shared_bytes, uint8_t{0});
        if (shared_state) std::fill_n(shared_state + image.reserved_shared, image.reserved_shared_bytes, uint8_t{1});
    }
    for (Warp& warp : warps) {
        warp.live = warp.initial;
        warp.depends = false;
        warp.forced_pc = ~0u;
        warp.carry = 0;
        warp.entries.clear();
        warp.undefined.clear();
        warp.undefined_origins.clear();
        warp.frames.assign(1, Frame{});
        warp.frames[0].refs = 1;
        warp.free_frames.clear();
        warp.async.clear();
        warp.wgmma.reset();
        warp.async_serial = 0;
        std::fill(std::begin(warp.async_handed), std::end(warp.async_handed), 0u);
        warp.init_fenced = 0;
        warp.bulk_stores.clear();
        std::fill(std::begin(warp.bulk_commits), std::end(warp.bulk_commits), 0u);
        warp.polled_block = nullptr;
        std::fill(std::begin(warp.polls), std::end(warp.polls), Poll{});
        warp.last_poll = 0;
        warp.is_vain = false;
        warp.changes = 0;
        std::fill(std::begin(warp.commits), std::end(warp.commits), 0u);
        std::fill(std::begin(warp.alloca_used), std::end(warp.alloca_used), 0u);
        warp.cluster_arrived = warp.cluster_passed = 0;
        warp.registers = warp.register_changes = 0;
        warp.loops = warp.moved_at = 0;
        warp.warp_floor = 0;
        std::fill(std::begin(warp.order), std::end(warp.order), 0u);
        std::fill(std::begin(warp.fence_device), std::end(warp.fence_device), 0u);
        std::fill(std::begin(warp.fence_block), std::end(warp.fence_block), 0u);
        warp.last_fence_device = warp.last_fence_block = 0;
        warp.known.clear();
        warp.lane_order.reset();
        warp.entries.push_back({state.image->functions[0].entry_pc, warp.initial, 0, EntryState::kRunnable, 0});
        warp.predicates[0] = ~0u;
        for (const SpecialRow& row : state.image->specials) {
            if (!first_time && !changes_with_block(row.kind)) continue;
            for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
                const uint64_t value = special_value(state, *this, warp, lane, row.kind);
                if (is_row64(row.kind)) {
                    reinterpret_cast<uint64_t*>(warp.specials + row.offset_bytes)[lane] = value;
                } else {
                    reinterpret_cast<uint32_t*>(warp.specials + row.offset_bytes)[lane] = static_cast<uint32_t>(value);
                }
            }
        }
    }
}

}  // namespace aicf::emu
