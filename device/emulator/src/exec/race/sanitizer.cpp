// Findings and their texts.
#include <cxxabi.h>
#include <algorithm>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "../../memory/race_shadow.hpp"
#include "../launch/engine.hpp"

namespace aicf::emu {
namespace {

constexpr FindingInfo kFindings[] = {
    {"out_of_bounds_read", Severity::kError, "Invalid read"},
    {"out_of_bounds_write", Severity::kError, "Invalid write"},
    {"use_after_free", Severity::kError, "Use of freed memory"},
    {"peer_access", Severity::kError, "Access to another device's memory without peer access"},
    {"misaligned_access", Severity::kError, "Misaligned access"},
    {"invalid_address_space", Severity::kError, "Access not allowed in this address space"},
    {"uninitialized_read", Severity::kError, "Uninitialized read"},
    {"async_copy_in_flight", Severity::kError, "Read of the destination of a copy that is still in flight"},
    {"mbarrier_invalid", Severity::kError, "Invalid use of an mbarrier"},
    {"mbarrier_overflow", Severity::kError, "Count of an mbarrier out of range"},
    {"mbarrier_reinit", Severity::kWarning, "An mbarrier that is in use is initialized again"},
    {"tensormap_invalid", Severity::kError, "Invalid tensor map"},
    {"multicast_invalid", Severity::kError, "Invalid mask of a multicast"},
    {"bulk_copy_unfinished", Severity::kWarning, "A bulk copy to or from shared memory is not waited for"},
    {"divergent_barrier", Severity::kError, "Barrier reached by divergent threads of a warp"},
    {"barrier_count", Severity::kError, "Invalid or inconsistent thread count of a barrier"},
    {"sync_mask_missing_lanes", Severity::kError, "Threads named in the mask of a warp instruction do not take part"},
    {"sync_mask_excludes_caller", Severity::kError, "The mask of a warp instruction does not name its own thread"},
    {"sync_mask_exited_lanes", Severity::kWarning, "The mask of a warp instruction names threads that have exited"},
    {"shuffle_inactive_lane", Severity::kError, "Shuffle from a thread that does not take part"},
    {"shared_race", Severity::kError, "Race in shared memory"},
    {"shared_race_same_value", Severity::kNote, "Race in shared memory between writes of the same value"},
    {"shared_race_benign", Severity::kNote, "Race in shared memory that cannot change the result"},
    {"wgmma_register_hazard", Severity::kError, "Register of a wgmma.mma_async touched while it is under way"},
    {"wgmma_missing_fence", Severity::kError, "wgmma.mma_async without the wgmma.fence that orders its registers"},
    {"wgmma_divergent_warpgroup", Severity::kError, "The warps of a warpgroup execute different wgmma.mma_async"},
    {"global_race", Severity::kError, "Race in global memory"},
    {"global_race_same_value", Severity::kNote, "Race in global memory between writes of the same value"},
    {"global_race_benign", Severity::kNote, "Race in global memory that cannot change the result"},
    {"missing_proxy_fence", Severity::kError, "Asynchronous read of memory that no fence.proxy.async has made visible to the async proxy"},
    {"wgmma_operand_overwritten", Severity::kError, "Write to shared memory that a wgmma may still be reading"},
    {"async_source_overwritten", Severity::kError, "Write to memory that an asynchronous copy may still be reading"},
    {"deadlock", Severity::kError, "Deadlock: no warp of the block can go on"},
    {"instruction_limit", Severity::kError, "The launch's limit of instructions is used up"},
    {"endless_loop", Severity::kError, "A loop that does not end"},
    {"assertion_failed", Severity::kError, "Device-side assertion failed"},
    {"trap", Severity::kError, "Trap"},
    {"breakpoint", Severity::kError, "Breakpoint"},
    {"stack_overflow", Severity::kError, "Stack overflow"},
    {"invalid_pc", Severity::kError, "Jump or call to an invalid address"},
    {"invalid_barrier", Severity::kError, "Invalid barrier"},
    {"cluster_rank", Severity::kError, "No block of the cluster has this rank"},
    {"cluster_block_exited", Severity::kError, "Access to the shared memory of a block that has exited"},
    {"cluster_block_not_started", Severity::kError, "Access to the shared memory of a block that may not have started"},
    {"cluster_barrier", Severity::kError, "Misuse of the cluster's barrier"},
    {"no_cluster", Severity::kError, "Instruction that only kernels launched with clusters may run"},
    {"texture_object", Severity::kError, "Misuse of a texture or surface object"},
    {"invalid_free", Severity::kError, "Free of an address that malloc did not give"},
    {"double_free", Severity::kError, "Memory freed twice"},
    {"register_budget", Severity::kError, "Misuse of setmaxnreg"},
    {"conditional_handle", Severity::kError, "Value set for a conditional handle that no graph has"},
    {"grid_dependency_missing", Severity::kError, "Access to what the kernel before has touched, which may not be over"},
    {"read_only_write", Severity::kError, "Write to an allocation that is marked read-only"},
    {"barrier_places", Severity::kWarning, "Warps of a block meet at two different barriers"},
    {"interrupted", Severity::kError, "Interrupted"},
    {"fresh_memory_read", Severity::kNote, "Read of memory that nothing wrote, and that is zero only because zero_memory is set:"},
};

std::string hex(uint64_t value) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
    return text;
}

std::string triple(const uint32_t v[3]) {
    return "(" + std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]) + ")";
}

std::string demangle(const std::string& name) {
    int status = 0;
    char* demangled = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
    std::string text = demangled ? demangled : name;
    std::free(demangled);
    return text;
}

// A kernel's name as its source has it, without the types of its parameters, and cut where it is longer than a line.
std::string kernel_name(const LaunchState& state) {
    constexpr size_t kLongest = 120;
    std::string text = demangle(state.image->kernel.name);
    int depth = 0;
    for (size_t i = text.size(); i-- > 0 && text.back() == ')';) {
        depth += text[i] == ')' ? 1 : text[i] == '(' ? -1 : 0;
        if (depth == 0) text.resize(i);
    }
    if (text.starts_with("void ")) text.erase(0, 5);
    return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

// The last part of a mangled name: "tile" of a variable declared in a function.
std::string short_name(const std::string& name) {
    const std::string text = demangle(name);
    const size_t scope = text.rfind("::");
    return scope == std::string::npos ? text : text.substr(scope + 2);
}

struct Place {
    std::string text;    // "kernels.cu:42 (PTX line 118)"
    std::string source;
    uint32_t ptx_line;
};

Place place_of(const LaunchState& state, uint32_t pc) {
    const InstInfo& info = state.image->info[pc];
    Place place;
    place.ptx_line = info.where.ptx_line;
    place.source = state.program->module.source_of(info.where);
    const std::string line = "PTX line " + std::to_string(place.ptx_line);
    place.text = place.source.empty() ? line : place.source + " (" + line + ")";
    for (const std::string& caller : state.program->module.callers_of(info.where)) place.text += ", called at " + caller;
    if (info.function != 0) place.text += " in " + state.image->functions[info.function].name;
    return place;
}

// True when the finding is new at this instruction and should be written out; else it has been counted.
bool is_new(Worker& worker, Finding finding, uint32_t pc, uint64_t& key) {
    key = static_cast<uint64_t>(pc) << 8 | static_cast<uint64_t>(finding);
    auto [it, fresh] = worker.folded.try_emplace(key, 0);
    ++it->second;
    if (!fresh) return false;
    std::lock_guard lock(worker.launch->mutex);
    auto [index, first] = worker.launch->report_index.try_emplace(key, worker.launch->reports.size());
    if (!first) return false;
    if (worker.launch->reports.size() >= worker.launch->options.max_reports) {
        index->second = ~size_t{0};
        return false;
    }
    worker.launch->reports.emplace_back();
    return true;
}

void publish(Worker& worker, uint64_t key, Report report) {
    std::lock_guard lock(worker.launch->mutex);
    report.count = 0;  // counts are added when the launch ends
    worker.launch->reports[worker.launch->report_index[key]] = std::move(report);
}

Report make_report(const LaunchState& state, const Block& block, const Warp& warp, uint32_t pc, uint32_t lane, Finding finding) {
    Report report;
    const FindingInfo& info = finding_info(finding);
    report.kind = info.kind;
    report.severity = info.severity;
    report.kernel = state.image->kernel.name;
    report.kernel_name = demangle(report.kernel);
    report.inlined_at = state.program->module.callers_of(state.image->info[pc].where);
    const Place place = place_of(state, pc);
    report.ptx_line = place.ptx_line;
    report.source = place.source;
    report.block = {block.ctaid[0], block.ctaid[1], block.ctaid[2]};
    uint32_t thread[3];
    thread_index(state, warp.id * kWarpLanes + lane, thread);
    report.thread = {thread[0], thread[1], thread[2]};
    return report;
}

std::string where_line(const LaunchState& state, const Block& block, uint32_t pc, uint32_t thread_linear) {
    uint32_t thread[3];
    thread_index(state, thread_linear, thread);
    return "    at " + place_of(state, pc).text + ", kernel " + kernel_name(state) + "\n    by thread " + triple(thread) + " of block " +
           triple(block.ctaid) + "\n";
}

const char* space_name(MemSpace space) {
    switch (space) {
        case MemSpace::kGlobal: return "global";
        case MemSpace::kShared: return "shared";
        case MemSpace::kLocal: return "local";
        case MemSpace::kConst: return "constant";
        case MemSpace::kParam: return "parameter";
        default: return "generic";
    }
}

const char* kind_name(MemoryKind kind) {
    switch (kind) {
        case MemoryKind::kPinned: return "pinned host memory";
        case MemoryKind::kManaged: return "managed memory";
        case MemoryKind::kModule: return "variable";
        case MemoryKind::kAsync: return "stream-ordered allocation";
        case MemoryKind::kHeap: return "allocation by malloc in a kernel";
        case MemoryKind::kManagedVariable: return "managed variable";
        case MemoryKind::kRegistered: return "registered host memory";
        default: return "allocation";
    }
}

std::string describe_allocation(const DeviceMemory& memory, uint64_t address) {
    const Allocation* nearest = memory.find(address);
    if (!nearest) {
        uint64_t best = ~0ull;
        static thread_local Allocation copy;
        for (const Allocation& candidate : memory.live_allocations()) {
            const uint64_t distance = address < candidate.address ? candidate.address - address : address - candidate.address;
            if (distance < best) {
                best = distance;
                copy = candidate;
            }
        }
        if (best == ~0ull) return "    the device has no live allocation\n";
        nearest = &copy;
    }
    const Allocation& a = *nearest;
    std::string what = kind_name(a.kind);
    if (!a.label.empty()) what += " '" + a.label + "'";
    what += " #" + std::to_string(a.serial) + " of " + std::to_string(a.size_bytes) + " bytes at " + hex(a.address);
    if (!a.live) what += ", which was freed";
    if (!memory.reaches(a)) what += ", which belongs to device " + std::to_string(a.device);
    if (address < a.address) return "    the address is " + std::to_string(a.address - address) + " bytes before the " + what + "\n";
    if (address >= a.address + a.size_bytes)
        return "    the address is " + std::to_string(address - a.address - a.size_bytes) + " bytes past the end of the " + what + "\n";
    return "    the address is at byte " + std::to_string(address - a.address) + " of the " + what + "\n";
}

}  // namespace

const FindingInfo& finding_info(Finding finding) { return kFindings[static_cast<size_t>(finding)]; }

void thread_index(const LaunchState& state, uint32_t linear, uint32_t out[3]) {
    const Dim3& block = state.launch->block;
    out[0] = linear % block.x;
    out[1] = linear / block.x % block.y;
    out[2] = linear / (block.x * block.y);
}

void LaunchState::end_with(int launch_status) {
    {
        std::lock_guard lock(mutex);
        if (status == kSuccess) status = launch_status;
    }
    stop.store(true, std::memory_order_release);
}

namespace {

// An address that is in no variable: how far it is past the one before it.
std::string describe_shared_near(const LaunchState& state, uint64_t address) {
    std::string text = "    the block has " + std::to_string(state.shared_bytes) + " bytes of shared memory at " + hex(kSharedStart);
    const SharedVariable* before = nullptr;
    for (const SharedVariable& variable : state.image->shared_variables) {
        if (variable.address <= address && (!before || variable.address >= before->address)) before = &variable;
    }
    if (before && before->bytes != 0 && address >= before->address + before->bytes) {
        text += "; this is " + std::to_string(address - before->address - before->bytes) + " bytes past the end of '" +
                short_name(before->name) + "', which has " + std::to_string(before->bytes) + " bytes";
    } else if (address >= kSharedStart && state.image->shared_gaps.empty()) {
        text += "; this is byte " + std::to_string(address - kSharedStart) + " of it";
    }
    return text + "\n";
}

}  // namespace

void report_access(Worker& worker, Block& block, Warp& warp, uint32_t pc, uint32_t lane, const AccessFinding& found) {
    if (warp.depends) return;
    const LaunchState& state = *worker.launch;
    AccessFinding access = found;
    if (access.finding == Finding::kUninitialized && access.space == MemSpace::kGlobal && state.options.zero_memory)
        access.finding = Finding::kFreshRead;
    uint64_t key;
    if (!is_new(worker, access.finding, pc, key)) return;
    Report report = make_report(state, block, warp, pc, lane, access.finding);
    report.address = access.address;
    std::string text = std::string(finding_info(access.finding).title) + " of size " + std::to_string(access.size_bytes) + " bytes";
    if (access.finding == Finding::kMisaligned || access.finding == Finding::kUseAfterFree)
        text += access.is_write ? " (write)" : " (read)";
    if (access.is_atomic) text += " (atomic)";
    text += " in " + std::string(space_name(access.space)) + " memory\n" + where_line(state, block, pc, warp.id * kWarpLanes + lane);
    text += "    address " + hex(access.address);
    if (access.finding == Finding::kMisaligned) text += " is not a multiple of " + std::to_string(access.size_bytes);
    text += "\n";
    switch (access.space) {
        case MemSpace::kGlobal:
        case MemSpace::kConst:
            text += access.address == 0 ? "    the address is null\n" : describe_allocation(*state.memory, access.address);
            break;
        case MemSpace::kShared:
            if (access.address >> kSharedRankShift) {
                text += "    it names the block of rank " + std::to_string((access.address >> kSharedRankShift) - 1) +
                        " in the cluster, which .shared::cta cannot reach\n";
                break;
            }
            text += describe_shared_near(state, access.address);
            break;
        case MemSpace::kLocal:
            text += "    the thread has " + std::to_string(block.local_stride - kLocalStart) + " bytes of local memory\n";
            break;
        case MemSpace::kParam:
            text += "    the kernel has " + std::to_string(state.launch->params.size()) + " bytes of parameters\n";
            break;
        default: break;
    }
    if (access.finding == Finding::kAsyncInFlight)
        text +=
            "  The thread that issued the copy has to wait for it (cp.async.wait_group, an mbarrier), and a barrier has to follow that "
            "wait,\n  before another thread reads.\n";
    if (access.used_pc != ~0u) text += "    its value matters at " + place_of(state, access.used_pc).text + "\n";
    report.text = std::move(text);
    publish(worker, key, std::move(report));
}

namespace {

void block_index(const LaunchState& state, uint64_t linear, uint32_t out[3]) {
    const Dim3& grid = state.launch->grid;
    out[0] = static_cast<uint32_t>(linear % grid.x);
    out[1] = static_cast<uint32_t>(linear / grid.x % grid.y);
    out[2] = static_cast<uint32_t>(linear / (static_cast<uint64_t>(grid.x) * grid.y));
}

// "at kernels.cu:42 ...", the other party of a race.
std::string other_party(const LaunchState& state, const RaceFinding& race) {
    if (race.other_is_primary) {
        const PrimaryLaunch& primary = state.shadow->primary;
        const auto index = [](uint64_t linear, const uint64_t extent[2]) {
            const uint32_t at[3] = {static_cast<uint32_t>(linear % extent[0]), static_cast<uint32_t>(linear / extent[0] % extent[1]),
                                    static_cast<uint32_t>(linear / extent[0] / extent[1])};
            return triple(at);
        };
        const std::string who = race.other_thread < kIdWarp ? "thread " + index(race.other_thread, primary.block)
                                                            : "several threads of warp " + std::to_string(race.other_thread - kIdWarp);
        return "    at " + (*primary.places)[race.other_pc] + ", kernel " + primary.kernel + "\n    by " + who + " of block " +
               index(race.other_block, primary.grid) + "\n";
    }
    uint32_t block[3];
    block_index(state, race.other_block, block);
    std::string text = "    at " + place_of(state, race.other_pc).text + ", kernel " + kernel_name(state) + "\n    ";
    if (race.other_thread < state.block_threads) {
        uint32_t thread[3];
        thread_index(state, race.other_thread, thread);
        text += "by thread " + triple(thread);
    } else if (race.other_thread >= kIdWarp && race.other_thread < kIdChannel) {
        text += "by several threads of warp " + std::to_string(race.other_thread - kIdWarp);
    } else {
        text += "by several threads";
    }
    return text + " of block " + triple(block) + "\n";
}

std::string access_name(bool is_write, bool by_agent) {
    return std::string(is_write ? "write" : "read") + (by_agent ? " by an asynchronous operation" : "");
}

std::string describe_shared(const LaunchState& state, uint64_t address) {
    for (const SharedVariable& variable : state.image->shared_variables) {
        if (address < variable.address || (variable.bytes != 0 && address >= variable.address + variable.bytes)) continue;
        return "    byte " + std::to_string(address - variable.address) + " of '" + short_name(variable.name) + "', " +
               (variable.bytes ? std::to_string(variable.bytes) + " bytes of shared memory\n" : "dynamic shared memory\n");
    }
    return "    byte " + std::to_string(address - kSharedStart) + " of the block's shared memory\n";
}

// The compare-and-swap that confirms what the race's plain load has read, or kValueDiscarded; ~0: its value matters.
uint32_t confirming_swap(const LaunchState& state, uint32_t pc, const RaceFinding& race) {
    const bool plain = race.finding == Finding::kRace || race.finding == Finding::kGlobalRace;
    if (!plain || race.by_agent || race.other_by_agent || race.is_write == race.other_is_write) return ~0u;
    return state.image->info[race.is_write ? race.other_pc : pc].confirmed_by;
}

const char* race_advice(const LaunchState& state, const Block& block, const Warp& warp, uint32_t pc, const RaceFinding& race) {
    switch (race.finding) {
        case Finding::kRaceSameValue:
        case Finding::kGlobalRaceSameValue: return "  Both write the same value, so that it does not matter which one is last.\n";
        case Finding::kMissingProxyFence:
            return "  fence.proxy.async after the write, before the barrier that leads to the asynchronous operation, makes it visible.\n";
        case Finding::kWgmmaOperandOverwritten:
            return "  wgmma.wait_group, and a barrier after it where the writer is another thread, orders them.\n";
        case Finding::kAsyncSourceOverwritten:
            return "  cp.async.bulk.wait_group.read, and a barrier after it where the writer is another thread, orders them.\n";
        case Finding::kGridDependencyMissing:
            return "  That kernel lets its dependents start before its end (griddepcontrol.launch_dependents), and this one was launched "
                   "so\n"
                   "  (programmatic stream serialization): cudaGridDependencySynchronize() (griddepcontrol.wait) before the access orders "
                   "them.\n";
        default: break;
    }
    if (race.in_flight) return "  The asynchronous operation may not be over: its completion has to be waited for.\n";
    if (race.other_by_agent)
        return "  The operation is over, but this thread has not waited for its completion, nor for a thread that has.\n";
    const bool global = race.finding == Finding::kGlobalRace || race.finding == Finding::kGlobalRaceSameValue;
    // A barrier may well be there, and says nothing of a copy that nobody has waited for.
    if (!global && race.other_is_write && state.image->code[race.other_pc].op == Op::kAsyncCopy)
        return "  The write is an asynchronous copy, which a barrier alone does not complete: the thread that issued it has to wait for "
               "it\n"
               "  (cp.async.wait_group, __pipeline_wait_prior, consumer_wait) before the barrier that leads here.\n";
    if (!global && race.is_write && state.image->code[pc].op == Op::kAsyncCopy)
        return "  The write is an asynchronous copy, which may be made as late as the wait for it. A read of what it brings belongs "
               "behind\n"
               "  that wait (cp.async.wait_group, __pipeline_wait_prior, consumer_wait) and a barrier; one of what was there, and a "
               "barrier, "
               "before its issue.\n";
    if (race.other_block != block.linear)
        return global ? "  Blocks of one launch are ordered by a release and an acquire only (fences with atomics, or a grid barrier).\n"
                      : "  A barrier of the cluster between the two orders them.\n";
    if (race.other_thread < state.block_threads && race.other_thread / kWarpLanes == warp.id)
        return "  Both threads are of one warp: __syncwarp() orders them; where threads of other warps take part, __syncthreads() does.\n";
    return "  __syncthreads() between the two orders them.\n";
}

}  // namespace

void report_race(Worker& worker, Block& block, Warp& warp, uint32_t pc, uint32_t lane, const RaceFinding& found) {
    if (block.has_dependent) return;
    const LaunchState& state = *worker.launch;
    RaceFinding race = found;
    const uint32_t swap = confirming_swap(state, pc, race);
    if (swap != ~0u) race.finding = race.finding == Finding::kRace ? Finding::kRaceBenign : Finding::kGlobalRaceBenign;
    uint64_t key;
    if (!is_new(worker, race.finding, pc, key)) return;
    Report report = make_report(state, block, warp, pc, lane, race.finding);
    const bool global = race.finding == Finding::kGlobalRace || race.finding == Finding::kGlobalRaceSameValue ||
                        race.finding == Finding::kGlobalRaceBenign || race.address > kSharedOffsetMask;
    report.address = race.address;
    const char* hazard = race.is_write ? (race.other_is_write ? "write after write" : "write after read") : "read after write";
    std::string text = std::string(finding_info(race.finding).title) + " (" + hazard + ") at " + (global ? "" : "shared ") + "address " +
                       hex(race.address) + "\n";
    if (global) {
        text += describe_allocation(*state.memory, race.address);
    } else {
        text += describe_shared(state, race.address);
        if (race.owner_block != ~0ull) {
            uint32_t owner[3];
            block_index(state, race.owner_block, owner);
            text += "    in the shared memory of block " + triple(owner) + " of the cluster\n";
        }
    }
    text += "  " + access_name(race.is_write, race.by_agent) + "\n" + where_line(state, block, pc, warp.id * kWarpLanes + lane);
    const std::string_view relation =
        race.finding == Finding::kMissingProxyFence ? "reads through the async proxy what was left by an" : "is not ordered after an";
    text += "  " + std::string(relation) + " earlier " + access_name(race.other_is_write, race.other_by_agent) + "\n" +
            other_party(state, race);
    if (swap == kValueDiscarded)
        text += "  Nothing comes of the value that is read: no branch, address or store depends on it.\n";
    else if (swap != ~0u)
        text += "  The value that is read is only what the compare-and-swap at " + place_of(state, swap).text +
                " begins with: where it is not up to date,\n  that one finds out and goes on with what is there. A read by "
                "cuda::atomic_ref (relaxed) or volatile would be no race.\n";
    else
        text += race_advice(state, block, warp, pc, race);
    report.text = std::move(text);
    publish(worker, key, std::move(report));
}

void report_event(Worker& worker, Block& block, Warp& warp, uint32_t pc, uint32_t lane, Finding finding, const std::string& detail) {
    if (block.has_dependent) return;
    uint64_t key;
    if (!is_new(worker, finding, pc, key)) return;
    const LaunchState& state = *worker.launch;
    Report report = make_report(state, block, warp, pc, lane, finding);
    report.text = std::string(finding_info(finding).title) + "\n" + where_line(state, block, pc, warp.id * kWarpLanes + lane) + "    " +
                  detail + "\n";
    publish(worker, key, std::move(report));
}

void report_barrier_places(Worker& worker, Block& block, Warp& warp, uint32_t pc, uint32_t lane, uint32_t other_pc) {
    const LaunchState& state = *worker.launch;
    report_event(worker, block, warp, pc, lane, Finding::kBarrierPlaces,
                 "others of the block wait at " + place_of(state, other_pc).text +
                     "\n  PTX counts arrivals, so that both are passed here; in CUDA all threads of the block have to reach the same "
                     "__syncthreads().");
}

std::vector<std::string> describe_places(const LaunchState& state) {
    std::vector<std::string> places;
    for (uint32_t pc = 0; pc < state.image->info.size(); ++pc) places.push_back(place_of(state, pc).text);
    return places;
}

namespace {

// The lines of report_waits(): the first few groups of threads in words, and where the first one is.
struct Waits {
    const LaunchState& state;
    bool many_blocks;
    std::string text;
    Block* block = nullptr;
    Warp* warp = nullptr;
    uint32_t pc = 0, lane = 0, num_groups = 0;
    static constexpr uint32_t kMostShown = 8;

    void add(Block& at_block, Warp& at_warp, uint32_t at_pc, uint32_t mask, const std::string& what) {
        if (!warp) {
            block = &at_block;
            warp = &at_warp;
            pc = at_pc;
            lane = static_cast<uint32_t>(__builtin_ctz(mask));
        }
        if (++num_groups > kMostShown) return;
        text += "\n      " + (many_blocks ? "block " + triple(at_block.ctaid) + ", " : std::string()) + "warp " +
                std::to_string(at_warp.id) + ", threads " + hex(mask) + ": " + what;
    }

    std::string at(uint32_t where) const { return place_of(state, where).text; }
};

std::string describe_mbarrier(const Warp& warp) {
    std::string text = " the mbarrier at shared address " + hex(warp.polled_address);
    const auto found = warp.polled_block->mbarriers.find(warp.polled_address);
    if (found == warp.polled_block->mbarriers.end()) return text;
    const Mbarrier& barrier = found->second;
    return text + ", whose phase " + std::to_string(barrier.phase) + " (parity " + std::to_string(barrier.phase & 1) + ") lacks " +
           std::to_string(barrier.pending) + " of " + std::to_string(barrier.expected) + " arrivals and " + std::to_string(barrier.tx) +
           " bytes: " + std::to_string(barrier.announced_bytes) + " were announced, " + std::to_string(barrier.delivered_bytes) +
           " delivered";
}

bool is_waiting(const Entry& entry) { return entry.state != EntryState::kRunnable && entry.state != EntryState::kYielded; }

// Threads that wait for others at an instruction that brings them together.
void add_waiting(Waits& waits, Block& block) {
    for (Warp& warp : block.warps) {
        for (const Entry& entry : warp.entries) {
            if (!is_waiting(entry)) continue;
            std::string what = "waits at " + waits.at(entry.pc);
            if (entry.state == EntryState::kBarrier) {
                const Barrier& barrier = block.barriers[entry.barrier];
                what += " for barrier " + std::to_string(entry.barrier) + ", where " + std::to_string(barrier.arrived) + " of " +
                        std::to_string(barrier.expected ? barrier.expected : block.live_threads) + " threads have arrived";
            } else if (entry.state == EntryState::kCluster) {
                what += " for the barrier of the cluster, where " + std::to_string(block.cluster->arrived) + " of " +
                        std::to_string(block.cluster->live_threads) + " threads have arrived";
            }
            waits.add(block, warp, entry.pc, entry.mask, what);
        }
    }
}

// Threads that run, most of them to no avail.
void add_running(Waits& waits, Block& block) {
    for (Warp& warp : block.warps) {
        for (const Entry& entry : warp.entries) {
            if (is_waiting(entry)) continue;
            if (warp.polled_block) {
                waits.add(block, warp, warp.polled_pc, warp.polled_mask, "polls at " + waits.at(warp.polled_pc) + describe_mbarrier(warp));
            } else if (warp.is_vain) {
                const Poll& poll = warp.polls[warp.last_poll];
                const bool is_shared = (poll.address & kWindowMask) == kSharedWindow || poll.address <= kSharedOffsetMask;
                waits.add(block, warp, poll.pc, entry.mask,
                          "reads again and again " + std::string(is_shared ? "shared " : "") + "address " +
                              hex(poll.address & ~kWindowMask) + " at " + waits.at(poll.pc));
            } else {
                waits.add(block, warp, entry.pc, entry.mask, "is at " + waits.at(entry.pc));
            }
        }
    }
}

}  // namespace

void report_waits(Worker& worker, const std::vector<Block*>& blocks, Finding finding, const std::string& head) {
    Waits waits{*worker.launch, blocks.size() > 1, head};
    for (Block* block : blocks) add_waiting(waits, *block);
    for (Block* block : blocks) add_running(waits, *block);
    if (waits.num_groups > Waits::kMostShown)
        waits.text += "\n      and " + std::to_string(waits.num_groups - Waits::kMostShown) + " more groups of threads";
    if (waits.warp) report_event(worker, *waits.block, *waits.warp, waits.pc, waits.lane, finding, waits.text);
}

void report_deadlock(Worker& worker, Block& stuck) {
    const std::vector<Block*> alone{&stuck};
    const std::vector<Block*>& blocks = stuck.cluster ? stuck.cluster->blocks : alone;
    report_waits(worker, blocks, Finding::kDeadlock,
                 blocks.size() > 1 ? "no thread of the cluster can go on:" : "no thread of the block can go on:");
}

}  // namespace aicf::emu
