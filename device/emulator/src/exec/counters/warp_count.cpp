// Counters of memory accesses: sectors, passes over the banks of shared memory, distinct bytes. Everything is counted at the instruction
// that is being executed. Rules and sources: device/emulator/README.md, "Counters".
#include <algorithm>

#include "../warp/warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

namespace {

constexpr uint32_t kBanks = 32;
constexpr uint32_t kSectorShift = 5, kLineShift = 7;

// A set of few numbers.
template <uint32_t kSlots>
class SmallSet {
public:
    SmallSet() { std::memset(slots_, 0xFF, sizeof slots_); }
    bool insert(uint64_t value) {  // false: it was there
        uint32_t at = static_cast<uint32_t>((value * 0x9E3779B97F4A7C15ull) >> 40) % kSlots;
        while (slots_[at] != ~0ull) {
            if (slots_[at] == value) return false;
            at = (at + 1) % kSlots;
        }
        slots_[at] = value;
        return true;
    }

private:
    uint64_t slots_[kSlots];
};

// The distinct values of address >> shift over the lanes of `mask`; returns how many.
uint32_t distinct(uint32_t mask, const uint64_t* address, uint32_t shift, uint64_t* out) {
    uint32_t count = 0;
    if (mask == ~0u) {
        bool ascending = true;
        for (uint32_t lane = 1; lane < kWarpLanes; ++lane) ascending &= address[lane] >> shift >= address[lane - 1] >> shift;
        if (ascending) {
            out[count++] = address[0] >> shift;
            for (uint32_t lane = 1; lane < kWarpLanes; ++lane) {
                out[count] = address[lane] >> shift;
                count += out[count] != out[count - 1];
            }
            return count;
        }
    }
    SmallSet<64> seen;
    for_lanes(mask, [&](uint32_t lane) {
        const uint64_t value = address[lane] >> shift;
        if (count && out[count - 1] == value) return;
        if (seen.insert(value)) out[count++] = value;
    });
    return count;
}

// Passes that the banks take to serve lanes at once: a bank serves one 4-byte word in a pass, to any number of lanes.
uint32_t bank_passes(uint32_t mask, const uint64_t* address, uint32_t size) {
    const uint32_t words = std::max(1u, size / 4);
    uint64_t first[kBanks];
    uint32_t used = 0;
    bool clash = false;
    for_lanes(mask, [&](uint32_t lane) {
        const uint64_t begin = address[lane] / 4;
        for (uint64_t word = begin; word < begin + words; ++word) {
            const uint32_t bank = word % kBanks;
            if (used >> bank & 1) {
                clash |= first[bank] != word;
            } else {
                used |= 1u << bank;
                first[bank] = word;
            }
        }
    });
    if (!clash) return mask != 0;
    SmallSet<256> seen;
    uint32_t per_bank[kBanks] = {};
    uint32_t most = 0;
    for_lanes(mask, [&](uint32_t lane) {
        const uint64_t begin = address[lane] / 4;
        for (uint64_t word = begin; word < begin + words; ++word) {
            if (seen.insert(word)) most = std::max(most, ++per_bank[word % kBanks]);
        }
    });
    return most;
}

// Whether lane i and lane i ^ step have the same address, for all active lanes.
bool pairs_agree(uint32_t mask, const uint64_t* address, uint32_t step) {
    bool agree = true;
    for_lanes(mask, [&](uint32_t lane) {
        const uint32_t other = lane ^ step;
        agree &= !(mask >> other & 1) || address[lane] == address[other];
    });
    return agree;
}

// Sectors of an atomic operation: a sector comes up again for each further thread at the same word of it.
uint32_t atomic_sectors(uint32_t mask, const uint64_t* address) {
    uint32_t total = 0;
    uint32_t rest = mask;
    while (rest) {
        const uint64_t sector = address[std::countr_zero(rest)] >> kSectorShift;
        uint32_t here = 0, most = 0;
        for_lanes(rest, [&](uint32_t lane) { here |= address[lane] >> kSectorShift == sector ? 1u << lane : 0; });
        rest &= ~here;
        while (here) {
            const uint64_t word = address[std::countr_zero(here)];
            uint32_t same = 0;
            for_lanes(here, [&](uint32_t lane) { same |= address[lane] == word ? 1u << lane : 0; });
            most = std::max(most, static_cast<uint32_t>(std::popcount(same)));
            here &= ~same;
        }
        total += most;
    }
    return total;
}

struct Passes {
    uint64_t taken = 0, least = 0;
};

// Accesses of 8 bytes go by half warps, of 16 bytes by quarter warps. Loads whose lanes have the same address in pairs return two
// registers at once, and take half as many groups.
Passes shared_passes(uint32_t mask, const uint64_t* address, uint32_t size, bool is_load) {
    uint32_t groups = std::max(1u, size / 4);
    if (groups > 1 && is_load && (pairs_agree(mask, address, 1) || pairs_agree(mask, address, 2))) groups /= 2;
    if (groups == 1) return {bank_passes(mask, address, size), 1};
    Passes passes;
    const uint32_t lanes = kWarpLanes / groups;
    for (uint32_t group = 0; group < groups; ++group) {
        const uint32_t part = mask & (((1u << lanes) - 1) << (group * lanes));
        if (part == 0) continue;
        passes.taken += bank_passes(part, address, size);
        passes.least += 1;
    }
    return passes;
}

}  // namespace

template <Mode M>
void Interpreter<M>::note_sectors(const uint64_t* sectors, uint32_t count, bool read, bool written) {
    const uint64_t base = memory_.base() >> kSectorShift;
    LaunchState& state = *block_.launch;
    const auto note = [&](std::atomic<uint64_t>* bits, uint64_t at) {
        const uint64_t bit = 1ull << (at % 64);
        if (!(bits[at / 64].load(std::memory_order_relaxed) & bit)) bits[at / 64].fetch_or(bit, std::memory_order_relaxed);
    };
    for (uint32_t i = 0; i < count; ++i) {
        const uint64_t at = sectors[i] - base;
        if (read) note(state.read_sectors, at);
        if (written) note(state.write_sectors, at);
        const uint32_t news = block_.sectors.insert(at, (read ? 1u : 0u) | (written ? 2u : 0u));
        if (news & 1) worker_.counters.global_block_bytes_read += 32;
        if (news & 2) worker_.counters.global_block_bytes_written += 32;
        for (const uint32_t kind : {1u, 2u}) {
            if (news & kind)
                worker_.counters.global_block_runs += 1 - block_.sectors.holds(at - 1, kind) - block_.sectors.holds(at + 1, kind);
        }
    }
}

template <Mode M>
void Interpreter<M>::count_global(uint32_t mask, const uint64_t* address, uint32_t size, bool is_store, bool is_atomic, bool past_l1) {
    Counters& counters = count();
    uint64_t sectors[kWarpLanes + 1];
    // An access is aligned to its size, which is 32 bytes at most: each lane has one sector.
    const uint32_t found = distinct(mask, address, kSectorShift, sectors);
    const uint64_t bytes = static_cast<uint64_t>(std::popcount(mask)) * size;
    if (is_atomic) {
        counters.global_atomics++;
        counters.global_atomic_sectors += atomic_sectors(mask, address);
        counters.global_atomic_bytes += bytes;
    } else if (is_store) {
        counters.global_stores++;
        counters.global_store_sectors += found;
        counters.global_store_bytes += bytes;
    } else {
        counters.global_loads++;
        counters.global_load_sectors += found;
        counters.global_load_bytes += bytes;
        if (block_.l1.enabled()) counters.l1_load_miss_sectors += past_l1 ? found : block_.l1.load(sectors, found);
    }
    if (block_.l1.enabled()) {
        uint64_t lines[kWarpLanes + 1];
        counters.l1_lines += distinct(mask, address, kLineShift, lines);
    }
    if (memory_.contains(address[std::countr_zero(mask)]))  // not in the host's memory
        note_sectors(sectors, found, is_atomic || !is_store, is_atomic || is_store);
}

template <Mode M>
void Interpreter<M>::count_shared(uint32_t mask, const uint64_t* address, uint32_t size, bool is_store, bool is_atomic) {
    Counters& counters = count();
    const uint64_t bytes = static_cast<uint64_t>(std::popcount(mask)) * size;
    if (is_atomic) {
        // Threads that update the same word take turns, as do words of one bank.
        uint32_t per_bank[kBanks] = {};
        uint32_t most = 0;
        for_lanes(mask, [&](uint32_t lane) { most = std::max(most, ++per_bank[address[lane] / 4 % kBanks]); });
        const Inst& inst = image_.code[pc_];
        const bool reads_first = inst.op == Op::kAtomic && static_cast<AtomOp>(inst.mode) == AtomOp::kCas;
        counters.shared_atomics++;
        counters.shared_atomic_wavefronts += reads_first ? 2 * most : most;
        counters.shared_atomic_conflicts += most - 1;
        return;
    }
    const Passes passes = shared_passes(mask, address, size, !is_store);
    if (is_store) {
        counters.shared_stores++;
        counters.shared_store_wavefronts += passes.taken;
        counters.shared_store_conflicts += passes.taken - passes.least;
        counters.shared_store_bytes += bytes;
    } else {
        counters.shared_loads++;
        counters.shared_load_wavefronts += passes.taken;
        counters.shared_load_conflicts += passes.taken - passes.least;
        counters.shared_load_bytes += bytes;
    }
}

template <Mode M>
void Interpreter<M>::count_async_copy(uint32_t mask, uint32_t reading, const uint64_t* to, const uint64_t* from, uint32_t size) {
    Counters& counters = count();
    counters.async_copies++;
    counters.async_copy_bytes += static_cast<uint64_t>(std::popcount(mask)) * size;
    counters.async_copy_wavefronts += shared_passes(mask, to, size, false).taken;
    if (reading == 0) return;
    const uint64_t before = counters.global_load_sectors;
    count_global(reading, from, size, false, false, size == 16);
    if (size != 16) return;
    // Copies of 16 bytes go past the L1: it looks up the line of each pair of threads, not their sectors.
    counters.async_bypass_sectors += counters.global_load_sectors - before;
    for (uint32_t lane = 0; lane < kWarpLanes; lane += 2) {
        const bool first = reading >> lane & 1, second = reading >> (lane + 1) & 1;
        const bool same = first && second && from[lane] / 128 == from[lane + 1] / 128;
        counters.async_bypass_lookups += first + second - same;
    }
}

template <Mode M>
void Interpreter<M>::count_matrix(const uint64_t* row_address, uint32_t num_matrices, bool is_store) {
    // Each matrix is 8 rows of 16 bytes: one pass over the banks where they do not clash.
    uint64_t taken = 0;
    for (uint32_t i = 0; i < num_matrices; ++i) taken += bank_passes(0xFFu << (8 * i), row_address, 16);
    Counters& counters = count();
    if (is_store) {
        counters.matrix_stores++;
        counters.shared_stores++;
        counters.shared_store_wavefronts += taken;
        counters.shared_store_conflicts += taken - num_matrices;
        counters.shared_store_bytes += 128ull * num_matrices;
    } else {
        counters.matrix_loads++;
        counters.shared_loads++;
        counters.shared_load_wavefronts += taken;
        counters.shared_load_conflicts += taken - num_matrices;
        counters.shared_load_bytes += 128ull * num_matrices;
    }
}

template <Mode M>
void Interpreter<M>::count_local(uint32_t mask, const uint64_t* address, uint32_t size, bool is_store) {
    // Local memory is laid out word by word over the lanes of a warp: the same word of 8 neighbouring lanes is a sector.
    uint64_t cells[kWarpLanes + 1];
    alignas(64) uint64_t at[kWarpLanes];
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) at[lane] = address[lane] / 4 * kWarpLanes + lane;
    const uint64_t sectors = static_cast<uint64_t>(distinct(mask, at, 3, cells)) * std::max(1u, size / 4);
    Counters& counters = count();
    (is_store ? counters.local_stores : counters.local_loads)++;
    (is_store ? counters.local_store_sectors : counters.local_load_sectors) += sectors;
}

template <Mode M>
void Interpreter<M>::count_tensor(TensorType type, uint64_t flops) {
    worker_.matrix_products += flops / 2;
    if constexpr (!kCount) return;
    Counters& counters = count();
    counters.tensor++;
    switch (type) {
        case TensorType::kF16: counters.tensor_flops_f16 += flops; break;
        case TensorType::kBF16: counters.tensor_flops_bf16 += flops; break;
        case TensorType::kTF32: counters.tensor_flops_tf32 += flops; break;
        case TensorType::kF64: counters.tensor_flops_f64 += flops; break;
        case TensorType::kF8: counters.tensor_flops_f8 += flops; break;
        case TensorType::kI8: counters.tensor_flops_i8 += flops; break;
        case TensorType::kI4: counters.tensor_flops_i4 += flops; break;
        case TensorType::kB1: counters.tensor_flops_b1 += flops; break;
    }
}

template <Mode M>
void Interpreter<M>::count_bulk_global(uint64_t address, uint32_t bytes, bool read, bool written) {
    if (bytes == 0) return;
    Counters& counters = count();
    const uint64_t first = address >> kSectorShift, last = (address + bytes - 1) >> kSectorShift;
    if (read) counters.bulk_load_sectors += last - first + 1;
    if (written) counters.bulk_store_sectors += last - first + 1;
    for (uint64_t sector = first; sector <= last; ++sector) note_sectors(&sector, 1, read, written);
}

#define AICF_INSTANTIATE(MODE)                                                                                         \
    template void Interpreter<MODE>::note_sectors(const uint64_t*, uint32_t, bool, bool);                              \
    template void Interpreter<MODE>::count_global(uint32_t, const uint64_t*, uint32_t, bool, bool, bool);              \
    template void Interpreter<MODE>::count_shared(uint32_t, const uint64_t*, uint32_t, bool, bool);                    \
    template void Interpreter<MODE>::count_async_copy(uint32_t, uint32_t, const uint64_t*, const uint64_t*, uint32_t); \
    template void Interpreter<MODE>::count_matrix(const uint64_t*, uint32_t, bool);                                    \
    template void Interpreter<MODE>::count_local(uint32_t, const uint64_t*, uint32_t, bool);                           \
    template void Interpreter<MODE>::count_tensor(TensorType, uint64_t);                                               \
    template void Interpreter<MODE>::count_bulk_global(uint64_t, uint32_t, bool, bool);
AICF_INSTANTIATE(Mode::kPlain)
AICF_INSTANTIATE(Mode::kChecked)
AICF_INSTANTIATE(Mode::kCounted)

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu
