// Bulk and tensor copies: the bytes, and the sums that reducing copies form.
#include <algorithm>
#include <type_traits>

#include "../../tensormap/tensor_map.hpp"
#include "../arith/values.hpp"
#include "../warp/warp.hpp"
#include "bulk.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

namespace {

constexpr uint8_t kInFlight = 2, kWritten = 1;

// to[i] = combine(to[i], from[i]), each element atomically: other blocks may add to the same memory.
template <typename T, typename Combine>
void combine_elements(uint8_t* to, const uint8_t* from, uint32_t bytes, Combine&& combine) {
    for (uint32_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
        T value;
        std::memcpy(&value, from + i, sizeof value);
        T* at = reinterpret_cast<T*>(to + i);
        T old = __atomic_load_n(at, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(at, &old, static_cast<T>(combine(old, value)), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        }
    }
}

template <typename T>
void reduce_integers(AtomOp op, uint8_t* to, const uint8_t* from, uint32_t bytes) {
    using Bits = std::make_unsigned_t<T>;
    combine_elements<Bits>(to, from, bytes, [op](Bits a, Bits b) -> Bits {
        switch (op) {
            case AtomOp::kAdd: return a + b;
            case AtomOp::kMin: return static_cast<Bits>(std::min(static_cast<T>(a), static_cast<T>(b)));
            case AtomOp::kMax: return static_cast<Bits>(std::max(static_cast<T>(a), static_cast<T>(b)));
            case AtomOp::kAnd: return a & b;
            case AtomOp::kOr: return a | b;
            case AtomOp::kXor: return a ^ b;
            case AtomOp::kInc: return a >= b ? 0 : a + 1;
            case AtomOp::kDec: return a == 0 || a > b ? b : a - 1;
            default: return a;
        }
    });
}

template <typename Half, typename Narrow>
void reduce_halves(AtomOp op, uint8_t* to, const uint8_t* from, uint32_t bytes, Narrow&& narrow) {
    combine_elements<uint16_t>(to, from, bytes, [&](uint16_t a, uint16_t b) -> uint16_t {
        const float x = arith::widen(Half{a}), y = arith::widen(Half{b});
        if (op == AtomOp::kAdd) return narrow(x + y).bits;
        if (x != x) return b;
        if (y != y) return a;
        return (op == AtomOp::kMin) == (x < y || (x == y && (a >> 15) > (b >> 15))) ? a : b;
    });
}

void reduce_run(AtomOp op, AtomType type, uint8_t* to, const uint8_t* from, uint32_t bytes) {
    switch (type) {
        case AtomType::kB32:
        case AtomType::kU32: return reduce_integers<uint32_t>(op, to, from, bytes);
        case AtomType::kS32: return reduce_integers<int32_t>(op, to, from, bytes);
        case AtomType::kB64:
        case AtomType::kU64: return reduce_integers<uint64_t>(op, to, from, bytes);
        case AtomType::kS64: return reduce_integers<int64_t>(op, to, from, bytes);
        case AtomType::kF16: return reduce_halves<arith::F16>(op, to, from, bytes, [](float x) { return arith::to_f16(x); });
        case AtomType::kBF16: return reduce_halves<arith::BF16>(op, to, from, bytes, [](float x) { return arith::to_bf16(x); });
        case AtomType::kF32:
            return combine_elements<uint32_t>(to, from, bytes, [](uint32_t a, uint32_t b) {
                return std::bit_cast<uint32_t>(arith::canonical(std::bit_cast<float>(a) + std::bit_cast<float>(b)));
            });
        case AtomType::kF64:
            return combine_elements<uint64_t>(to, from, bytes, [](uint64_t a, uint64_t b) {
                return std::bit_cast<uint64_t>(std::bit_cast<double>(a) + std::bit_cast<double>(b));
            });
        default: return;
    }
}

template <typename Visit>
void visit_copy(const BulkCopy& copy, Visit&& visit) {
    if (copy.tensor)
        visit_box(*copy.tensor, copy.shared, visit);
    else
        visit(copy.global, copy.shared, copy.bytes);
}

}  // namespace

// A load, or a copy between blocks: from memory as it is now.
template <Mode M>
void Interpreter<M>::deliver_bulk(BulkCopy& copy) {
    Block& to = *copy.shared_block;
    if (copy.kind == BulkKind::kSharedToShared) {
        const uint8_t* from = copy.is_staged ? copy.staged.data() : copy.source_block->shared + copy.source_shared;
        if (copy.reduces)
            reduce_run(static_cast<AtomOp>(copy.reduce_op), static_cast<AtomType>(copy.reduce_type), to.shared + copy.shared, from,
                       copy.bytes);
        else
            std::memmove(to.shared + copy.shared, from, copy.bytes);
        if (!to.shared_state) return;
        const uint8_t* state = copy.is_staged ? nullptr : copy.source_block->shared_state + copy.source_shared;
        for (uint32_t i = 0; i < copy.bytes; ++i) to.shared_state[copy.shared + i] = state ? state[i] & kWritten : kWritten;
        return;
    }
    visit_copy(copy, [&](uint64_t global, uint32_t shared, uint32_t bytes) {
        uint8_t* at = to.shared + shared;
        if (global == kOutOfBounds) {
            fill_out_of_bounds(copy.tensor->map, at, bytes);
        } else {
            if (checking(kDependence) && is_unknown(global, bytes, false)) note_dependence();
            std::memcpy(at, memory_.alias(memory_.data_offset(global)), bytes);
            if (copy.tensor) convert_loaded(copy.tensor->map, at, bytes);
        }
        if (!to.shared_state) return;
        // Bytes that nothing wrote stay so on their way.
        uint8_t* state = to.shared_state + shared;
        if (global == kOutOfBounds || memory_.is_initialized(global, bytes)) {
            std::memset(state, kWritten, bytes);
        } else {
            for (uint32_t i = 0; i < bytes; ++i) state[i] = memory_.is_initialized(global + i, 1) ? kWritten : 0;
        }
    });
}

// Reads the source of a store.
template <Mode M>
void Interpreter<M>::stage_store(BulkCopy& copy) {
    copy.is_staged = true;
    copy.staged.reserve(copy.bytes);
    const Block& from = *copy.shared_block;
    bool in_flight = false;
    visit_copy(copy, [&](uint64_t, uint32_t shared, uint32_t bytes) {
        copy.staged.insert(copy.staged.end(), from.shared + shared, from.shared + shared + bytes);
        if (!from.shared_state) return;
        const uint8_t* state = from.shared_state + shared;
        copy.staged_state.insert(copy.staged_state.end(), state, state + bytes);
        for (uint32_t i = 0; i < bytes; ++i) in_flight |= state[i] & kInFlight;
    });
    if (in_flight) {
        report_access(worker_, block_, warp_, copy.pc, copy.thread,
                      {Finding::kAsyncInFlight, MemSpace::kShared, false, false, copy.shared, copy.bytes});
    }
}

// Writes what stage_store() has read.
template <Mode M>
void Interpreter<M>::write_store(BulkCopy& copy) {
    uint32_t at = 0;
    Range range;
    visit_copy(copy, [&](uint64_t global, uint32_t, uint32_t bytes) {
        const uint8_t* from = copy.staged.data() + at;
        const uint32_t first = at;
        at += bytes;
        if (global == kOutOfBounds) return;
        if (copy.tensor && copy.tensor->whole_units && !(global >= range.begin && global + bytes <= range.end)) {
            // What was asked for is known to be there; the rest of its last unit may not be.
            const Allocation* allocation = memory_.find(global);
            if (!allocation) return;
            range = {allocation->address, allocation->address + allocation->size_bytes};
            bytes = static_cast<uint32_t>(std::min<uint64_t>(bytes, range.end - global));
        }
        uint8_t* to = reinterpret_cast<uint8_t*>(memory_.alias(memory_.data_offset(global)));
        if (copy.reduces)
            reduce_run(static_cast<AtomOp>(copy.reduce_op), static_cast<AtomType>(copy.reduce_type), to, from, bytes);
        else
            std::memcpy(to, from, bytes);
        if (checking(kDependence) && (copy.reduces || block_.has_dependent)) {
            if (copy.reduces && block_.launch->is_part()) memory_.num_shared_updates.fetch_add(1, std::memory_order_relaxed);
            if (block_.launch->is_part() || block_.has_dependent) memory_.mark_unwritten(global, bytes);
            return;
        }
        if (copy.reduces) return;
        if (copy.staged_state.empty()) return memory_.mark_initialized(global, bytes);
        uint32_t begin = 0;
        for (uint32_t i = 0; i <= bytes; ++i) {
            if (i < bytes && copy.staged_state[first + i] & kWritten) continue;
            if (i > begin) memory_.mark_initialized(global + begin, i - begin);
            begin = i + 1;
        }
    });
}

#define AICF_INSTANTIATE(MODE)                                \
    template void Interpreter<MODE>::deliver_bulk(BulkCopy&); \
    template void Interpreter<MODE>::stage_store(BulkCopy&);  \
    template void Interpreter<MODE>::write_store(BulkCopy&);
AICF_INSTANTIATE(Mode::kPlain)
AICF_INSTANTIATE(Mode::kChecked)
AICF_INSTANTIATE(Mode::kCounted)

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu
