// The interpreter of one warp: what the warp_*.cpp files share. Compiled once for each level.
#pragma once

#include <bit>
#include <cstring>

#include "../../memory/race_shadow.hpp"
#include "../launch/engine.hpp"

namespace aicf::emu {
struct TextureDescriptor;
struct ImageDescriptor;
struct ImageLevel;
struct MatrixForm;

inline namespace AICF_ENGINE_NAMESPACE {

#define AICF_INLINE inline __attribute__((always_inline))

// How the addresses of a full warp lie: as one run in lane order or one address, over the whole warp or over each half of 16 lanes.
enum class Shape : uint8_t { kScattered, kContiguous, kContiguousHalves, kUniform, kUniformHalves };

// Order of memory accesses, for the race check (race/warp_order.cpp). An object is what threads synchronise through.
enum class OrderKind : uint8_t { kMbarrier, kNamedBarrier, kClusterBarrier, kSharedWord, kGlobalWord, kGridDependency };
enum class Proxy : uint8_t { kGeneric, kAsync };
enum class ProxyFence : uint8_t { kAsync, kAsyncGlobal, kAsyncShared, kAlias, kTensormap };
// An asynchronous operation, which accesses memory on its own account between its issue and its completion.
struct Agent {
    uint32_t id = 0;  // 0: not tracked
};

template <Mode M>
class Interpreter {
public:
    static constexpr bool kChecks = M != Mode::kPlain;
    static constexpr bool kCount = M == Mode::kCounted;

    Interpreter(Worker& worker, Block& block, Warp& warp)
        : worker_(worker),
          block_(block),
          warp_(warp),
          image_(*block.launch->image),
          memory_(*block.launch->memory),
          checks_(worker.checks) {}

    StopReason run(uint64_t budget) {
        const StopReason reason = run_turn(budget);
        if (kChecks && worker_.pending) note_pending_reads();
        return reason;
    }

private:
    StopReason run_turn(uint64_t budget);
    // warp/run.cpp: scheduling of the warp's threads
    void run_straight(const Inst& first, uint32_t mask, uint64_t& left);
    void count_execution(const Inst& inst, uint32_t pc, uint32_t mask);
    bool pick();
    void bind_frame();
    void update_merge();
    void reconverge();
    void push_entry(uint32_t pc, uint32_t mask, EntryState state, uint8_t barrier = 0);
    void retain(int32_t frame) { ++warp_.frames[frame].refs; }
    void drop(int32_t frame);
    void leave(uint32_t lanes);  // removes lanes from the current entry, picks another one when none is left
    bool gather(const Inst& inst, uint32_t& mask, uint32_t required_of_all, const uint32_t* required);
    void branch(const Inst& inst, uint32_t taken, uint32_t target);
    void branch_indexed(const Inst& inst, uint32_t mask);
    void count_loop(uint32_t from, uint32_t to, uint32_t lanes);
    void stop_loop(uint32_t from, uint32_t lanes);
    void call(const Inst& inst, uint32_t mask, uint32_t function);
    void call_indirect(const Inst& inst, uint32_t mask);
    void call_builtin(const Inst& inst, uint32_t mask);
    void heap_free(uint32_t lane, uint64_t address);
    void return_from(uint32_t mask);
    void exit_threads(uint32_t mask);
    void copy_frame_bytes(uint32_t mask, uint32_t from, uint32_t to, uint32_t bytes);
    void stop_launch(int status);

    // warp/sync.cpp: barriers and warp-wide instructions
    void barrier(const Inst& inst, uint32_t mask);
    void arrive(uint32_t id, const Inst& inst, uint32_t mask, uint32_t expected);
    void check_barrier_place(uint32_t other_pc, uint32_t mask);
    void complete_barrier(uint32_t id);
    void check_barriers_after_exit();
    void bar_warp_sync(const Inst& inst, uint32_t mask);
    void shuffle(const Inst& inst, uint32_t mask);
    void vote(const Inst& inst, uint32_t mask);
    void match(const Inst& inst, uint32_t mask);
    void reduce(const Inst& inst, uint32_t mask);
    void elect(const Inst& inst, uint32_t mask);
    bool together(const Inst& inst, uint32_t& mask);
    void exchange_known(const uint32_t* named, uint32_t mask);

    // warp/move.cpp
    void pack(const Inst& inst, uint32_t mask);
    void unpack(const Inst& inst, uint32_t mask);
    void read_clock(const Inst& inst, uint32_t mask);
    void is_space(const Inst& inst, uint32_t mask);

    // warp/memory.cpp
    void load(const Inst& inst, uint32_t mask);
    void store(const Inst& inst, uint32_t mask);
    void addresses(const Inst& inst, uint64_t* out);
    template <bool kStore>
    void access(const Inst& inst, uint32_t mask, uint64_t* address, MemSpace space);
    template <bool kStore>
    void access_global(const Inst& inst, uint32_t mask, const uint64_t* address, bool is_const);
    template <bool kStore>
    void access_shared(const Inst& inst, uint32_t mask, const uint64_t* address);
    template <bool kStore>
    void access_local(const Inst& inst, uint32_t mask, const uint64_t* address, bool is_param);
    template <bool kStore>
    bool access_shared_simply(const Inst& inst);  // warp/shared.cpp
    template <bool kStore>
    bool check_shared_simply(uint32_t low, uint32_t high, uint32_t run, uint32_t size, bool uniform);
    void access_param(const Inst& inst, uint32_t mask, const uint64_t* address);
    uint32_t check_global(uint32_t mask, const uint64_t* address, uint32_t size, bool is_write, bool is_atomic, uint64_t lo, uint64_t hi,
                          uint64_t bits);
    uint32_t check_shared(uint32_t mask, const uint64_t* address, uint32_t size, bool is_write, bool is_atomic);
    void check_global_init(uint32_t mask, const uint64_t* address, uint32_t size, uint64_t lo, uint64_t hi);
    void check_shared_init(uint32_t mask, const uint64_t* address, uint32_t size, uint64_t lo, uint64_t hi);
    void mark_global(uint32_t mask, const uint64_t* address, uint32_t size, uint64_t lo, uint64_t hi, bool contiguous);
    // kDependence: what blocks that do not run may have a part in.
    bool is_unknown(uint64_t address, uint64_t bytes, bool is_strong) const;
    void note_dependence();
    void inherit_dependence(MemSpace space) {
        if (kChecks && block_.has_dependent && (space == MemSpace::kShared || space == MemSpace::kGeneric)) [[unlikely]]
            warp_.depends = true;
    }
    void follow_reads(uint32_t mask, const uint64_t* address, uint32_t size, uint64_t lo, uint64_t hi, bool is_strong);
    void follow_updates(uint32_t mask, const uint64_t* address, uint32_t size, bool reads, bool returns);
    void unmark_global(uint32_t mask, const uint64_t* address, uint32_t size);
    // Lanes whose address is in the host's own memory: outside the arena, for what check_global() lets pass.
    uint32_t lanes_on_host(uint32_t mask, const uint64_t* address) const {
        return memory_.has_host_ranges() ? find_lanes_on_host(mask, address) : 0;
    }
    uint32_t find_lanes_on_host(uint32_t mask, const uint64_t* address) const;
    template <bool kStore>
    void move_elements(const Inst& inst, uint32_t mask, uint8_t* base, const uint64_t* address, Shape shape);

    // warp/undefined.cpp: values that nothing wrote. Only while warp_.undefined is not empty, but for the first, which the loads call.
    void uninitialized(uint32_t lane, MemSpace space, uint64_t address, uint32_t size,
                       uint32_t bytes);  // bytes: a bit for each unwritten one
    void matrix_undefined(const Inst& inst, uint32_t lane, uint32_t bytes, uint32_t origin);
    void use_undefined(const void* place, uint32_t lanes);           // of a row or predicate: reports the load that it comes from
    void track_undefined(const Inst& inst, uint32_t mask);           // before the instruction
    void mma_undefined(const Inst& inst, uint32_t mask);
    void store_undefined(const Inst& inst, uint32_t mask);           // after a store
    void store_matrix_undefined(const Inst& inst, uint32_t rows, const uint64_t* address);
    void shuffle_undefined(const Inst& inst, uint32_t mask, const uint8_t* from);
    Undefined undefined_of(uint32_t operand) const;
    Undefined undefined_result(const Inst& inst) const;
    Undefined undefined_by_predicates(const Inst& inst, Undefined all) const;
    void undefined_to_global(const Inst& inst, uint32_t element, const Undefined& value, uint32_t lanes, const uint64_t* address);

    // counters/warp_count.cpp: to be called only `if constexpr (kCount)`. All count at the current instruction.
    Counters& count() { return worker_.lines[pc_]; }
    void count_global(uint32_t mask, const uint64_t* address, uint32_t size, bool is_store, bool is_atomic, bool past_l1 = false);
    void count_shared(uint32_t mask, const uint64_t* address, uint32_t size, bool is_store, bool is_atomic);
    void count_local(uint32_t mask, const uint64_t* address, uint32_t size, bool is_store);
    void count_async_copy(uint32_t mask, uint32_t reading, const uint64_t* to, const uint64_t* from, uint32_t size);
    // ldmatrix, stmatrix: shared addresses of 8 rows of 16 bytes for each matrix, in lane order.
    void count_matrix(const uint64_t* row_address, uint32_t num_matrices, bool is_store);
    // A tensor instruction of this warp and its share of the operations (2 m n k): in every mode, as they count for what is limited.
    void count_tensor(TensorType type, uint64_t flops);
    // The sectors of a run of bytes that a bulk copy reads or writes in global memory (its bytes are the caller's to count).
    void count_bulk_global(uint64_t address, uint32_t bytes, bool read, bool written);
    void note_sectors(const uint64_t* sectors, uint32_t count, bool read, bool written);

    // race/warp_race.cpp, race/warp_race_global.cpp
    void race_read(uint32_t mask, const uint64_t* address, uint32_t size, bool strong);
    void race_write(uint32_t mask, const uint64_t* address, uint32_t size, bool strong, const Inst* store);
    bool race_read_halves(uint32_t low, uint32_t high, uint32_t run, uint32_t size, bool uniform);
    bool race_write_halves(uint32_t low, uint32_t high, uint32_t size);
    bool strong_access(uint32_t stamp) const;
    void race_agent(Block& owner, uint32_t slot, uint32_t lane, uint64_t address, uint32_t bytes, bool is_write);
    void race_global(uint32_t mask, const uint64_t* address, uint32_t size, bool is_write, AccessKind kind, const Inst* store);
    bool defer_reads(uint32_t mask, const uint64_t* address, uint32_t size);
    void note_pending_reads();
    void note_pending_slot(uint32_t index);
    bool race_read_uniform(uint64_t address, uint32_t size);
    void global_range(uint32_t lane, uint64_t address, uint64_t bytes, bool is_write, bool async_proxy);
    bool thread_ordered(uint64_t block, uint32_t thread, uint32_t clock, uint32_t lane) const;
    bool record_ordered(const AccessRecord& record, uint32_t lane) const;
    bool ordered_before(uint32_t stamp, uint32_t lane) const;
    bool readers_ordered(const Block& owner, uint32_t unit, uint32_t lane, uint32_t& other) const;
    bool epoch_ordered(uint64_t epoch, uint32_t thread, uint32_t lane) const;
    bool strong_together(AccessKind kind, uint64_t epoch) const;
    bool writes_same_value(const Inst& inst, uint32_t lane, const uint64_t* address, uint64_t memory) const;
    void race_read_unit(uint32_t unit, uint32_t lane, bool strong);
    void race_write_unit(uint32_t unit, uint32_t lane, bool strong, bool same_value);
    void granule_read(Granule& granule, uint64_t units, const uint8_t* by_unit, AccessKind kind, uint64_t base);
    // What lanes in a row are about to store: where a write races with another one, whether memory holds it already.
    struct Stored {
        const Inst* inst;
        uint32_t first, count;
        const uint64_t* address;
        uint64_t memory;
    };
    bool is_there(const Stored& stored) const;
    bool comes_to_be_there(const Stored& stored) const;
    void granule_write(Granule& granule, uint64_t units, const uint8_t* by_unit, AccessKind kind, uint64_t base, const Stored* stored);
    void report_unordered(const Block& owner, uint32_t unit, uint32_t lane, uint32_t stamp, uint32_t other_pc, bool is_write,
                          bool other_is_write, bool same_value, bool by_agent);
    void check_primary(const Granule& granule, uint64_t written, uint64_t read, const uint8_t* by_unit, bool is_write, uint64_t base);
    void report_global(uint64_t address, uint32_t lane, uint64_t epoch, uint32_t thread, uint32_t other_pc, bool is_write,
                       bool other_is_write, Finding finding);

    // race/warp_order.cpp: no-ops unless races are checked
    void order_words(const Inst& inst, uint32_t mask, const uint64_t* address, bool is_read, bool is_write, OrderKind kind,
                     const Block* owner = nullptr);
    void memory_fence(const Inst& inst, uint32_t mask);
    uint64_t order_object(OrderKind kind, const Block& owner, uint64_t address) const;
    void release_to(uint32_t lanes, uint64_t object);    // what the lanes did, and know of, is handed to the object
    void release_fenced(uint32_t lanes, uint64_t object);  // the same of what each lane did before its last fence of the device
    void acquire_from(uint32_t lanes, uint64_t object);  // what the object holds is ordered before what the lanes do next
    Agent agent_start(uint32_t lane, Proxy proxy);       // ordered after what the lane did; async proxy: as far as a proxy fence reaches
    void agent_access(Agent agent, MemSpace space, Block* owner, uint64_t address, uint32_t bytes, bool is_write);
    void agent_release(Agent agent, uint64_t object);    // its completion is handed to the object
    void agent_join(Agent agent, uint32_t lanes);        // its completion is seen by the lanes
    void proxy_fence(uint32_t lanes, ProxyFence kind);

    // warp/atomic.cpp
    void atomic(const Inst& inst, uint32_t mask);
    void note_atomic(bool changed, uint64_t address);
    bool atomic_lanes(const Inst& inst, uint32_t mask, const uint64_t* address, uint8_t* base, bool shared);

    // async/groups.cpp
    void async_copy(const Inst& inst, uint32_t mask);
    void async_commit(uint32_t mask);
    void async_wait(const Inst& inst, uint32_t mask);
    void finish_async(uint32_t lanes, uint32_t groups_left, bool all);
    void finish_async_of(Warp& warp, uint32_t lane, uint32_t serial, uint64_t object);
    void make_async_copies(const AsyncCopy& copy, uint32_t lanes);

    // tensor/mma.cpp and tensor/wgmma.cpp. These and all below see to pc_ themselves: some have threads wait.
    void mma(const Inst& inst, uint32_t mask);
    void load_matrix(const Inst& inst, uint32_t mask);
    void store_matrix(const Inst& inst, uint32_t mask);
    void move_matrix(const Inst& inst, uint32_t mask);
    void quad_pair_mma(const Inst& inst, uint32_t mask);
    void wmma_access(const Inst& inst, uint32_t mask, bool is_store);
    uint32_t matrix_rows(const Inst& inst, uint32_t mask, bool is_store, uint64_t* address);
    void wgmma(const Inst& inst, uint32_t mask);
    void wgmma_issue(const Inst& inst, uint32_t mask);
    void wgmma_touch(const Inst& inst, uint32_t mask);
    void finish_wgmma(size_t count);
    void check_wgmma_order(const MatrixForm& form, const uint32_t* operands, uint32_t serial);
    void check_warpgroup_after_exit();
    void wgmma_wait(const Inst& inst, uint32_t mask, bool forced);
    void carry_out_wgmma(Warp& warp, size_t count);
    void join_warpgroup(uint32_t last, uint32_t lanes);
    void wake_warpgroup();

    // async/mbarrier.cpp, async/bulk.cpp
    void mbarrier(const Inst& inst, uint32_t mask);
    struct MbarrierRef {
        Block* owner = nullptr;
        uint32_t address = 0;
        Mbarrier* barrier = nullptr;
        uint64_t object = 0;  // of its current phase
    };
    MbarrierRef mbarrier_place(uint32_t lane, uint64_t address);  // of a copy that will count on it
    MbarrierRef mbarrier_at(uint32_t lane, uint64_t address, bool generic, bool needs_valid);
    void mbarrier_arrive(const Inst& inst, uint32_t lane, MbarrierRef ref);
    void mbarrier_wait(const Inst& inst, uint32_t mask);
    void mbarrier_settle(Block& owner, uint32_t address, Mbarrier& barrier, bool deliver);  // ends the phase when nothing is missing
    void mbarrier_write_back(Block& owner, uint32_t address, const Mbarrier& barrier);
    void shared_addresses(const Inst& inst, uint64_t* out) const;
    void race_word(uint32_t lanes, const uint64_t* address, bool is_write, bool strong);
    void misuse(uint32_t lane, Finding finding, const std::string& detail);
    void give_way();  // after a poll that found nothing
    void bulk(const Inst& inst, uint32_t mask);
    uint64_t listed_address(const Inst& inst, uint32_t slot, uint32_t lane) const;
    void bad_access(uint32_t lane, Finding finding, MemSpace space, uint64_t address, uint32_t bytes, bool is_write);
    bool check_run(uint32_t lane, uint64_t address, uint32_t bytes, bool is_write);
    Block* check_shared_run(uint32_t lane, uint64_t address, uint32_t bytes, uint32_t alignment, bool is_write, uint32_t& offset);
    bool read_tensor_map(const Inst& inst, uint32_t slot, uint32_t lane, TensorCopy& copy);
    bool check_global_side(uint32_t lane, const BulkCopy& copy, bool is_write);
    void issue_load(const Inst& inst, uint32_t lane);
    void issue_load_to(uint32_t lane, BulkCopy copy, uint64_t to, uint64_t barrier_address, uint32_t alignment);
    void register_load(uint32_t lane, BulkCopy copy, uint64_t barrier_address);
    void issue_store(const Inst& inst, uint32_t lane);
    void store_async(const Inst& inst, uint32_t lane);
    void change_tensor_map(const Inst& inst, uint32_t mask);
    void finish_bulk(uint32_t lanes, uint32_t groups_left, bool all, bool read_only);
    void exit_bulk(uint32_t lanes);
    void deliver_bulk(BulkCopy& copy);
    void stage_store(BulkCopy& copy);
    void write_store(BulkCopy& copy);
    size_t draw(size_t count);  // of the random schedule
    void fence_proxy(const Inst& inst, uint32_t mask);

    // warp/cluster.cpp, texture/warp_texture.cpp
    void map_shared(const Inst& inst, uint32_t mask);
    void alloca_stack(const Inst& inst, uint32_t mask);
    void cluster_barrier(const Inst& inst, uint32_t mask);
    void grid_dependency(const Inst& inst, uint32_t mask);
    void set_max_registers(const Inst& inst, uint32_t mask);
    void settle_cluster_barrier();
    void leave_cluster(uint32_t mask);
    void race_peer_lane(Block& owner, uint32_t lane, uint64_t address, uint32_t size, bool is_write, bool strong);
    void race_peer(Block& owner, uint32_t mask, const uint64_t* offset, uint32_t size, bool is_write, bool strong);
    void atomic_shared(Block& owner, const Inst& inst, uint32_t mask, const uint64_t* offset);
    bool peer_alive(const Block& owner, uint32_t mask, const uint64_t* address, bool is_write, uint32_t size);
    template <bool kStore>
    void access_cluster(const Inst& inst, uint32_t mask, const uint64_t* address);
    template <bool kStore>
    void access_peer(Block& owner, const Inst& inst, uint32_t mask, const uint64_t* offset);
    bool come_together(uint32_t& mask, const Inst& inst);
    void note_poll(uint64_t address);
    void texture(const Inst& inst, uint32_t mask);
    void texture_fetch(const Inst& inst, uint32_t lane, const TextureDescriptor& texture);
    void surface_access(const Inst& inst, uint32_t lane, const ImageDescriptor& surface);
    void texture_misuse(uint32_t lane, Finding finding, const std::string& detail);
    bool image_alive(uint32_t lane, const ImageDescriptor& image, const ImageLevel& level);

    // The block that a 32-bit address in shared memory belongs to, and the offset in it; null: no block of the cluster has that rank.
    Block* shared_of(uint32_t address, uint32_t& offset) const {
        offset = address & kSharedOffsetMask;
        const uint32_t rank = address >> kSharedRankShift;
        if (rank == 0) return &block_;
        if (!block_.cluster) return rank == 1 ? &block_ : nullptr;
        return rank <= block_.cluster->blocks.size() ? block_.cluster->blocks[rank - 1] : nullptr;
    }
    // Operand i of those that an instruction has in a list.
    uint32_t listed(const Inst& inst, uint32_t i) const { return image_.operand_lists[inst.imm + i]; }

    AICF_INLINE uint8_t* row(uint32_t operand) const { return bases_[operand >> 30] + (operand & 0x3FFFFFFFu); }
    AICF_INLINE uint32_t* row32(uint32_t operand) const { return reinterpret_cast<uint32_t*>(row(operand)); }
    AICF_INLINE uint64_t* row64(uint32_t operand) const { return reinterpret_cast<uint64_t*>(row(operand)); }
    AICF_INLINE uint32_t predicate(uint16_t slot) const { return predicates_[slot >> 1] ^ (0u - (slot & 1u)); }
    AICF_INLINE uint32_t& predicate_slot(uint16_t slot) const { return predicates_[slot >> 1]; }
    bool checking(Check check) const { return kChecks && (checks_ & check); }
    uint32_t thread_of(uint32_t lane) const { return warp_.id * kWarpLanes + lane; }

    Worker& worker_;
    Block& block_;
    Warp& warp_;
    const Image& image_;
    DeviceMemory& memory_;
    const uint32_t checks_;
    uint8_t* bases_[4] = {};
    uint32_t* predicates_ = nullptr;
    bool deferring_ = false;  // an ordinary load: what it finds unwritten is reported when the value matters
    uint32_t pc_ = 0;
    uint32_t mask_ = 0;
    int32_t frame_ = 0;
    uint32_t merge_pc_ = ~0u;
    uint32_t local_base_ = kLocalStart;
    uint32_t back_edges_ = 0;
    bool running_ = false;  // there is a current entry
    bool polled_ = false;   // the warp's turn is over: it waits for others by polling
    uint32_t polls_ = 0;    // of this turn
    uint32_t poll_repeats_ = 0;  // in a row, of one read
    bool fatal_ = false;
};

// Where a lane's address is in host memory. `base` may stand for address 0 of the device, outside of any object of the host: a sum of
// integers wraps, one of pointers must not.
template <typename Byte>
AICF_INLINE Byte* byte_at(Byte* base, uint64_t address) {
    return reinterpret_cast<Byte*>(reinterpret_cast<uintptr_t>(base) + address);
}

template <typename F>
AICF_INLINE void for_lanes(uint32_t mask, F&& body) {
    if (mask == ~0u) {
        for (uint32_t lane = 0; lane < kWarpLanes; ++lane) body(lane);
        return;
    }
    while (mask) {
        body(static_cast<uint32_t>(std::countr_zero(mask)));
        mask &= mask - 1;
    }
}

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu
