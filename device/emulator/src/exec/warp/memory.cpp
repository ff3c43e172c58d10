// Loads and stores.
#include <emmintrin.h>

#include <algorithm>

#include "../../memory/footprint.hpp"
#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

namespace {

// What a warp's addresses have in common, so that one test serves all lanes.
struct Span {
    uint64_t lo, hi;  // lowest and highest address
    uint64_t bits;    // or of all addresses: alignment
    Shape shape;
    bool contiguous() const { return shape == Shape::kContiguous; }
};

AICF_INLINE Span span_of(const uint64_t* address, uint32_t mask, uint32_t size) {
    if (mask == ~0u) {
        uint64_t strided = 0, uniform = 0;
        for (uint32_t lane = 0; lane < 16; ++lane) {
            const uint64_t step = static_cast<uint64_t>(lane) * size;
            strided |= (address[lane] ^ (address[0] + step)) | (address[lane + 16] ^ (address[16] + step));
            uniform |= (address[lane] ^ address[0]) | (address[lane + 16] ^ address[16]);
        }
        const uint64_t lo = std::min(address[0], address[16]), hi = std::max(address[0], address[16]);
        if (strided == 0) {
            const bool whole = address[16] == address[0] + 16ull * size;
            return {lo, hi + 15ull * size, address[0] | address[16], whole ? Shape::kContiguous : Shape::kContiguousHalves};
        }
        if (uniform == 0) return {lo, hi, address[0] | address[16], lo == hi ? Shape::kUniform : Shape::kUniformHalves};
        Span span{address[0], address[0], 0, Shape::kScattered};
        for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
            span.lo = std::min(span.lo, address[lane]);
            span.hi = std::max(span.hi, address[lane]);
            span.bits |= address[lane];
        }
        return span;
    }
    Span span{~0ull, 0, 0, Shape::kScattered};
    for_lanes(mask, [&](uint32_t lane) {
        span.lo = std::min(span.lo, address[lane]);
        span.hi = std::max(span.hi, address[lane]);
        span.bits |= address[lane];
    });
    return span;
}

template <typename Cell>
AICF_INLINE Cell read_cell(const uint8_t* at) {
    Cell value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

template <typename Memory, typename Row>
AICF_INLINE void load_element(Row* to, const uint8_t* base, const uint64_t* address, uint32_t mask, Shape shape) {
    switch (shape) {
        case Shape::kContiguous:
        case Shape::kContiguousHalves:
            if constexpr (sizeof(Memory) == sizeof(Row)) {
                std::memcpy(to, byte_at(base, address[0]), sizeof(Row) * 16);
                std::memcpy(to + 16, byte_at(base, address[16]), sizeof(Row) * 16);
                return;
            }
            break;
        case Shape::kUniform:
        case Shape::kUniformHalves: {
            const Row low = static_cast<Row>(read_cell<Memory>(byte_at(base, address[0]))),
                      high = static_cast<Row>(read_cell<Memory>(byte_at(base, address[16])));
            for (uint32_t lane = 0; lane < 16; ++lane) to[lane] = low;
            for (uint32_t lane = 16; lane < 32; ++lane) to[lane] = high;
            return;
        }
        case Shape::kScattered: break;
    }
    for_lanes(mask, [&](uint32_t lane) { to[lane] = static_cast<Row>(read_cell<Memory>(byte_at(base, address[lane]))); });
}

template <typename Memory, typename Row>
AICF_INLINE void store_element(const Row* from, uint8_t* base, const uint64_t* address, uint32_t mask, bool contiguous) {
    if constexpr (sizeof(Memory) == sizeof(Row)) {
        if (contiguous) {
            std::memcpy(byte_at(base, address[0]), from, sizeof(Row) * kWarpLanes);
            return;
        }
    }
    for_lanes(mask, [&](uint32_t lane) {
        const Memory value = static_cast<Memory>(from[lane]);
        std::memcpy(byte_at(base, address[lane]), &value, sizeof value);
    });
}

template <typename Row>
AICF_INLINE void load_row(const Inst& inst, Row* to, const uint8_t* base, const uint64_t* address, uint32_t mask, Shape shape) {
    using Signed = std::make_signed_t<Row>;
    const bool extend = inst.flags & kFlagSignExtend;
    switch (inst.bytes) {
        case 1:
            if (extend)
                load_element<int8_t, Signed>(reinterpret_cast<Signed*>(to), base, address, mask, shape);
            else
                load_element<uint8_t, Row>(to, base, address, mask, shape);
            break;
        case 2:
            if (extend)
                load_element<int16_t, Signed>(reinterpret_cast<Signed*>(to), base, address, mask, shape);
            else
                load_element<uint16_t, Row>(to, base, address, mask, shape);
            break;
        case 4:
            if (extend)
                load_element<int32_t, Signed>(reinterpret_cast<Signed*>(to), base, address, mask, shape);
            else
                load_element<uint32_t, Row>(to, base, address, mask, shape);
            break;
        default: load_element<uint64_t, Row>(to, base, address, mask, shape); break;
    }
}

template <typename Row>
AICF_INLINE void store_row(const Inst& inst, const Row* from, uint8_t* base, const uint64_t* address, uint32_t mask, bool contiguous) {
    switch (inst.bytes) {
        case 1: store_element<uint8_t, Row>(from, base, address, mask, contiguous); break;
        case 2: store_element<uint16_t, Row>(from, base, address, mask, contiguous); break;
        case 4: store_element<uint32_t, Row>(from, base, address, mask, contiguous); break;
        default: store_element<uint64_t, Row>(from, base, address, mask, contiguous); break;
    }
}

// Vectors. Each thread's is one access of the host's, of 2 to 16 bytes: a block on another host thread sees all of it or nothing. Intel and
// AMD promise that of an aligned 16-byte move wherever there is AVX. Compilers are free to make two moves of an intrinsic: hence assembly.
#ifdef __AVX__
#define AICF_MOVE_16 "vmovdqa"
#else
#define AICF_MOVE_16 "movdqa"
#endif

template <uint32_t kBytes>
struct CellOf;
template <>
struct CellOf<2> {
    using Type = uint16_t;
};
template <>
struct CellOf<4> {
    using Type = uint32_t;
};
template <>
struct CellOf<8> {
    using Type = uint64_t;
};
template <>
struct CellOf<16> {
    using Type = __m128i;
};

template <typename Cell>
AICF_INLINE Cell load_cell(const uint8_t* at) {
    if constexpr (sizeof(Cell) == 16) {
        Cell value;
        asm volatile(AICF_MOVE_16 " %1, %0" : "=x"(value) : "m"(*reinterpret_cast<const Cell*>(at)));
        return value;
    } else {
        return __atomic_load_n(reinterpret_cast<const Cell*>(at), __ATOMIC_RELAXED);
    }
}

template <typename Cell>
AICF_INLINE void store_cell(uint8_t* at, Cell value) {
    if constexpr (sizeof(Cell) == 16)
        asm volatile(AICF_MOVE_16 " %1, %0" : "=m"(*reinterpret_cast<Cell*>(at)) : "x"(value));
    else
        __atomic_store_n(reinterpret_cast<Cell*>(at), value, __ATOMIC_RELAXED);
}

template <typename Element, typename Row, uint32_t kCount>
AICF_INLINE void load_vectors(uint8_t* const* rows, const uint8_t* base, const uint64_t* address, uint32_t mask) {
    using Cell = typename CellOf<sizeof(Element) * kCount>::Type;
    for_lanes(mask, [&](uint32_t lane) {
        const Cell cell = load_cell<Cell>(byte_at(base, address[lane]));
        Element parts[kCount];
        std::memcpy(parts, &cell, sizeof cell);
        for (uint32_t i = 0; i < kCount; ++i) reinterpret_cast<Row*>(rows[i])[lane] = static_cast<Row>(parts[i]);
    });
}

template <typename Element, typename Row, uint32_t kCount>
AICF_INLINE void store_vectors(uint8_t* const* rows, uint8_t* base, const uint64_t* address, uint32_t mask) {
    using Cell = typename CellOf<sizeof(Element) * kCount>::Type;
    for_lanes(mask, [&](uint32_t lane) {
        Element parts[kCount];
        for (uint32_t i = 0; i < kCount; ++i) parts[i] = static_cast<Element>(reinterpret_cast<const Row*>(rows[i])[lane]);
        Cell cell;
        std::memcpy(&cell, parts, sizeof cell);
        store_cell<Cell>(byte_at(base, address[lane]), cell);
    });
}

// The most frequent vectors of a whole warp, turned round in registers of the host.
AICF_INLINE void load_quads(uint8_t* const* rows, const uint8_t* base, const uint64_t* address) {
    for (uint32_t lane = 0; lane < kWarpLanes; lane += 4) {
        __m128i cell[4];
        for (uint32_t i = 0; i < 4; ++i) cell[i] = load_cell<__m128i>(byte_at(base, address[lane + i]));
        const __m128i low01 = _mm_unpacklo_epi32(cell[0], cell[1]), low23 = _mm_unpacklo_epi32(cell[2], cell[3]);
        const __m128i high01 = _mm_unpackhi_epi32(cell[0], cell[1]), high23 = _mm_unpackhi_epi32(cell[2], cell[3]);
        const __m128i turned[4] = {_mm_unpacklo_epi64(low01, low23), _mm_unpackhi_epi64(low01, low23), _mm_unpacklo_epi64(high01, high23),
                                   _mm_unpackhi_epi64(high01, high23)};
        for (uint32_t i = 0; i < 4; ++i) std::memcpy(rows[i] + 4 * lane, &turned[i], sizeof turned[i]);
    }
}

AICF_INLINE void store_quads(uint8_t* const* rows, uint8_t* base, const uint64_t* address) {
    for (uint32_t lane = 0; lane < kWarpLanes; lane += 4) {
        __m128i row[4];
        for (uint32_t i = 0; i < 4; ++i) std::memcpy(&row[i], rows[i] + 4 * lane, sizeof row[i]);
        const __m128i low01 = _mm_unpacklo_epi32(row[0], row[1]), low23 = _mm_unpacklo_epi32(row[2], row[3]);
        const __m128i high01 = _mm_unpackhi_epi32(row[0], row[1]), high23 = _mm_unpackhi_epi32(row[2], row[3]);
        const __m128i turned[4] = {_mm_unpacklo_epi64(low01, low23), _mm_unpackhi_epi64(low01, low23), _mm_unpacklo_epi64(high01, high23),
                                   _mm_unpackhi_epi64(high01, high23)};
        for (uint32_t i = 0; i < 4; ++i) store_cell<__m128i>(byte_at(base, address[lane + i]), turned[i]);
    }
}

template <bool kStore, typename Element, typename Row, uint32_t kCount>
AICF_INLINE void move_vectors(uint8_t* const* rows, uint8_t* base, const uint64_t* address, uint32_t mask) {
    constexpr bool kQuads = sizeof(Element) == 4 && sizeof(Row) == 4 && kCount == 4;
    if constexpr (kStore) {
        if (kQuads && mask == ~0u) return store_quads(rows, base, address);
        store_vectors<Element, Row, kCount>(rows, base, address, mask);
    } else {
        if (kQuads && mask == ~0u) return load_quads(rows, base, address);
        load_vectors<Element, Row, kCount>(rows, base, address, mask);
    }
}

template <bool kStore, typename Element, typename Row>
AICF_INLINE void move_vectors(const Inst& inst, uint8_t* const* rows, uint8_t* base, const uint64_t* address, uint32_t mask) {
    if (inst.vec == 2) return move_vectors<kStore, Element, Row, 2>(rows, base, address, mask);
    if constexpr (sizeof(Element) <= 4) move_vectors<kStore, Element, Row, 4>(rows, base, address, mask);
}

// Signs matter to loads alone.
template <bool kStore, typename Row>
void move_vectors(const Inst& inst, uint8_t* const* rows, uint8_t* base, const uint64_t* address, uint32_t mask) {
    using Signed = std::make_signed_t<Row>;
    const bool extend = !kStore && (inst.flags & kFlagSignExtend) && inst.bytes < sizeof(Row);
    switch (inst.bytes) {
        case 1:
            return extend ? move_vectors<kStore, int8_t, Signed>(inst, rows, base, address, mask)
                          : move_vectors<kStore, uint8_t, Row>(inst, rows, base, address, mask);
        case 2:
            return extend ? move_vectors<kStore, int16_t, Signed>(inst, rows, base, address, mask)
                          : move_vectors<kStore, uint16_t, Row>(inst, rows, base, address, mask);
        case 4:
            return extend ? move_vectors<kStore, int32_t, Signed>(inst, rows, base, address, mask)
                          : move_vectors<kStore, uint32_t, Row>(inst, rows, base, address, mask);
        default:
            if constexpr (sizeof(Row) == 8) move_vectors<kStore, uint64_t, Row>(inst, rows, base, address, mask);
    }
}

bool all_equal(const uint8_t* state, uint64_t count, uint8_t value) {
    uint8_t differs = 0;
    for (uint64_t i = 0; i < count; ++i) differs |= state[i] ^ value;
    return differs == 0;
}

}  // namespace

// Moves all elements between memory (at byte_at(base, address[lane])) and rows. Addresses have been checked.
template <Mode M>
template <bool kStore>
void Interpreter<M>::move_elements(const Inst& inst, uint32_t mask, uint8_t* base, const uint64_t* address, Shape shape) {
    if (inst.vec > 1) {
        uint8_t* const rows[4] = {row(inst.d), row(inst.b), row(inst.c), row(inst.e)};
        if (inst.dbytes == 8)
            move_vectors<kStore, uint64_t>(inst, rows, base, address, mask);
        else
            move_vectors<kStore, uint32_t>(inst, rows, base, address, mask);
    } else if constexpr (kStore) {
        if (inst.dbytes == 8)
            store_row<uint64_t>(inst, row64(inst.d), base, address, mask, shape == Shape::kContiguous);
        else
            store_row<uint32_t>(inst, row32(inst.d), base, address, mask, shape == Shape::kContiguous);
    } else {
        if (inst.dbytes == 8)
            load_row<uint64_t>(inst, row64(inst.d), base, address, mask, shape);
        else
            load_row<uint32_t>(inst, row32(inst.d), base, address, mask, shape);
    }
}

template <Mode M>
AICF_INLINE void Interpreter<M>::addresses(const Inst& inst, uint64_t* out) {
    const uint64_t offset = static_cast<uint64_t>(inst.offset) + (inst.mode2 && inst.op != Op::kAtomic ? local_base_ : 0);
    if (!(inst.flags & kFlagHasBase)) {
        for (uint32_t lane = 0; lane < kWarpLanes; ++lane) out[lane] = offset;
    } else if (inst.flags & kFlagBase64) {
        const uint64_t* base = row64(inst.a);
        for (uint32_t lane = 0; lane < kWarpLanes; ++lane) out[lane] = base[lane] + offset;
    } else {
        const uint32_t* base = row32(inst.a);
        const uint32_t offset32 = static_cast<uint32_t>(offset);
        for (uint32_t lane = 0; lane < kWarpLanes; ++lane) out[lane] = base[lane] + offset32;
    }
}

template <Mode M>
void Interpreter<M>::load(const Inst& inst, uint32_t mask) {
    alignas(64) uint64_t address[kWarpLanes];
    addresses(inst, address);
    deferring_ = true;
    access<false>(inst, mask, address, inst.space);
    deferring_ = false;
    if (inst.order & kOrderStrong) note_poll(address[std::countr_zero(mask)]);
}

template <Mode M>
void Interpreter<M>::store(const Inst& inst, uint32_t mask) {
    alignas(64) uint64_t address[kWarpLanes];
    addresses(inst, address);
    access<true>(inst, mask, address, inst.space);
    if (kChecks && !warp_.undefined.empty()) [[unlikely]]
        store_undefined(inst, mask);
}

template <Mode M>
template <bool kStore>
void Interpreter<M>::access(const Inst& inst, uint32_t mask, uint64_t* address, MemSpace space) {
    switch (space) {
        case MemSpace::kGlobal: return access_global<kStore>(inst, mask, address, false);
        case MemSpace::kConst: return access_global<kStore>(inst, mask, address, true);
        case MemSpace::kShared: return access_shared<kStore>(inst, mask, address);
        case MemSpace::kLocal: return access_local<kStore>(inst, mask, address, false);
        case MemSpace::kFrame: return access_local<kStore>(inst, mask, address, true);
        case MemSpace::kParam: return access_param(inst, mask, address);
        case MemSpace::kGeneric: break;
    }
    uint32_t in_shared = 0, in_local = 0, in_param = 0, in_global = 0;
    for_lanes(mask, [&](uint32_t lane) {
        const uint64_t window = address[lane] & kWindowMask;
        const uint32_t bit = 1u << lane;
        if (window == kSharedWindow)
            in_shared |= bit;
        else if (window == kLocalWindow)
            in_local |= bit;
        else if (window == kParamWindow)
            in_param |= bit;
        else
            in_global |= bit;
    });
    if (in_global) access_global<kStore>(inst, in_global, address, false);
    if (!(in_shared | in_local | in_param)) return;
    for_lanes(in_shared | in_local | in_param, [&](uint32_t lane) { address[lane] &= ~kWindowMask; });
    if (in_shared) access_shared<kStore>(inst, in_shared, address);
    if (in_local) access_local<kStore>(inst, in_local, address, false);
    if (in_param) {
        if (kStore) {
            report_access(worker_, block_, warp_, pc_, std::countr_zero(in_param),
                          {Finding::kInvalidSpace, MemSpace::kParam, true, false, address[std::countr_zero(in_param)], inst.bytes});
            stop_launch(kErrorInvalidAddressSpace);
        } else {
            access_param(inst, in_param, address);
        }
    }
}

// Lanes of `mask` that may access `size` bytes of global memory; the others are reported.
template <Mode M>
uint32_t Interpreter<M>::check_global(uint32_t mask, const uint64_t* address, uint32_t size, bool is_write, bool is_atomic, uint64_t lo,
                                      uint64_t hi, uint64_t bits) {
    Range& range = worker_.ranges[pc_];
    if (lo >= range.begin && hi + size <= range.end && hi <= hi + size && ((bits & (size - 1)) == 0)) [[likely]]
        return mask;
    uint32_t good = 0;
    int status = kSuccess;
    for_lanes(mask, [&](uint32_t lane) {
        const uint64_t at = address[lane];
        AccessFinding finding{Finding::kMisaligned, MemSpace::kGlobal, is_write, is_atomic, at, size};
        if (at & (size - 1)) {
            report_access(worker_, block_, warp_, pc_, lane, finding);
            status = status ? status : kErrorMisalignedAddress;
            return;
        }
        if (at >= range.begin && at + size <= range.end && at + size > at) {
            good |= 1u << lane;
            return;
        }
        const Allocation* allocation = memory_.find(at);
        const bool inside = allocation && at >= allocation->address && at + size <= allocation->address + allocation->size_bytes;
        if (inside && allocation->live && memory_.reaches(*allocation)) {
            good |= 1u << lane;
            if (is_write && allocation->read_only && checking(kMemcheck)) {  // told, and done all the same
                finding.finding = Finding::kReadOnlyWrite;
                report_access(worker_, block_, warp_, pc_, lane, finding);
                return;
            }
            if (is_write && checking(kDependence)) worker_.stored.insert(allocation->address);
            range = {allocation->address, allocation->address + allocation->size_bytes, allocation->given, allocation->is_shared};
            return;
        }
        finding.finding = inside && allocation->live ? Finding::kPeerAccess
                          : inside                   ? Finding::kUseAfterFree
                          : is_write                 ? Finding::kOutOfBoundsWrite
                                                     : Finding::kOutOfBoundsRead;
        report_access(worker_, block_, warp_, pc_, lane, finding);
        status = kErrorIllegalAddress;
    });
    if (status != kSuccess && !warp_.depends) {
        if (checking(kMemcheck)) {
            std::lock_guard lock(block_.launch->mutex);  // go on, to collect all findings; the launch fails at its end
            if (block_.launch->status == kSuccess) block_.launch->status = status;
        } else {
            stop_launch(status);
        }
    }
    return good;
}

template <Mode M>
uint32_t Interpreter<M>::check_shared(uint32_t mask, const uint64_t* address, uint32_t size, bool is_write, bool is_atomic) {
    uint32_t good = 0;
    int status = kSuccess;
    for_lanes(mask, [&](uint32_t lane) {
        const uint64_t at = address[lane];
        const bool misaligned = at & (size - 1);
        if (!misaligned && block_.has_shared(at, size)) {
            good |= 1u << lane;
            return;
        }
        const Finding kind = misaligned ? Finding::kMisaligned : is_write ? Finding::kOutOfBoundsWrite : Finding::kOutOfBoundsRead;
        report_access(worker_, block_, warp_, pc_, lane, {kind, MemSpace::kShared, is_write, is_atomic, at, size});
        status = misaligned ? kErrorMisalignedAddress : kErrorIllegalAddress;
    });
    if (status != kSuccess && !warp_.depends) {
        if (checking(kMemcheck)) {
            std::lock_guard lock(block_.launch->mutex);
            if (block_.launch->status == kSuccess) block_.launch->status = status;
        } else {
            stop_launch(status);
        }
    }
    return good;
}

template <Mode M>
void Interpreter<M>::check_global_init(uint32_t mask, const uint64_t* address, uint32_t size, uint64_t lo, uint64_t hi) {
    if (hi - lo <= 1024) {
        const uint8_t* bits = memory_.init_bits() + (lo - memory_.base()) / 8;
        const uint64_t first = (lo - memory_.base()) % 8;
        const uint64_t count = hi + size - lo;
        bool fine;
        if (first == 0 && count % 8 == 0)
            fine = all_equal(bits, count / 8, 0xFF);
        else
            fine = memory_.is_initialized(lo, count);
        if (fine) return;
    }
    for_lanes(mask, [&](uint32_t lane) {
        const uint64_t at = address[lane] - memory_.base();
        const uint32_t wanted = (1u << size) - 1;
        uint32_t have;
        std::memcpy(&have, memory_.init_bits() + at / 8, 4);
        if (((have >> (at % 8)) & wanted) == wanted) return;
        uninitialized(lane, MemSpace::kGlobal, address[lane], size, ~(have >> (at % 8)) & wanted);
    });
}

template <Mode M>
void Interpreter<M>::mark_global(uint32_t mask, const uint64_t* address, uint32_t size, uint64_t lo, uint64_t hi, bool contiguous) {
    if (checking(kDependence) && warp_.depends) [[unlikely]]
        return unmark_global(mask, address, size);
    if (contiguous) {
        memory_.mark_initialized(lo, hi + size - lo);
        return;
    }
    if (hi - lo <= 1024 && memory_.is_initialized(lo, hi + size - lo)) return;
    for_lanes(mask, [&](uint32_t lane) {
        const uint64_t at = address[lane] - memory_.base();
        const uint32_t wanted = ((1u << size) - 1) << (at % 8);
        uint8_t* bits = memory_.init_bits() + at / 8;
        if ((bits[0] & (wanted & 0xFF)) != (wanted & 0xFF)) __atomic_fetch_or(bits, static_cast<uint8_t>(wanted), __ATOMIC_RELAXED);
        if (wanted >> 8 && (bits[1] & (wanted >> 8 & 0xFF)) != (wanted >> 8 & 0xFF))
            __atomic_fetch_or(bits + 1, static_cast<uint8_t>(wanted >> 8), __ATOMIC_RELAXED);
        if (wanted >> 16) __atomic_fetch_or(bits + 2, static_cast<uint8_t>(wanted >> 16), __ATOMIC_RELAXED);
    });
}

// Whether bytes that nothing which ran has written, and that are not given, may have been written by a block that was left out: of an
// earlier launch, or, where the access is one by which blocks of a launch talk to each other, of this one. Else they are garbage for
// everybody.
template <Mode M>
bool Interpreter<M>::is_unknown(uint64_t address, uint64_t bytes, bool is_strong) const {
    if (memory_.is_initialized(address, bytes)) return false;
    const Range& range = worker_.ranges[pc_];
    if (address >= range.begin && address + bytes <= range.end) return !range.given && (is_strong || range.is_shared);
    const Allocation* allocation = memory_.find(address);
    return allocation != nullptr && !allocation->given && (is_strong || allocation->is_shared);
}

template <Mode M>
void Interpreter<M>::note_dependence() {
    warp_.depends = true;
    if (block_.has_dependent) return;
    block_.has_dependent = true;
    if (block_.cluster != nullptr)
        for (Block* block : block_.cluster->blocks) block->has_dependent = true;
    memory_.num_dependent_blocks.fetch_add(1, std::memory_order_relaxed);
}

template <Mode M>
void Interpreter<M>::follow_reads(uint32_t mask, const uint64_t* address, uint32_t size, uint64_t lo, uint64_t hi, bool is_strong) {
    if (warp_.depends) return;
    const Range& range = worker_.ranges[pc_];
    if ((range.given || !(is_strong || range.is_shared)) && lo >= range.begin && hi + size <= range.end) return;
    if (hi - lo <= 1024 && memory_.is_initialized(lo, hi + size - lo)) return;
    bool unknown = false;
    for_lanes(mask, [&](uint32_t lane) { unknown = unknown || is_unknown(address[lane], size, is_strong); });
    if (unknown) note_dependence();
}

// What outlives a launch, such as a module's variables, stays written.
template <Mode M>
void Interpreter<M>::unmark_global(uint32_t mask, const uint64_t* address, uint32_t size) {
    for_lanes(mask, [&](uint32_t lane) {
        const Allocation* allocation = memory_.find(address[lane]);
        if (allocation && allocation->kind == MemoryKind::kDevice) memory_.mark_unwritten(address[lane], size);
    });
}

// An atomic or a reduction: where blocks are left out, they may update the same word.
template <Mode M>
void Interpreter<M>::follow_updates(uint32_t mask, const uint64_t* address, uint32_t size, bool reads, bool returns) {
    bool unknown = block_.launch->is_part();
    if (unknown) memory_.num_shared_updates.fetch_add(1, std::memory_order_relaxed);
    for_lanes(mask, [&](uint32_t lane) { unknown = unknown || (reads && is_unknown(address[lane], size, true)); });
    if (unknown && returns) note_dependence();
    if (unknown || warp_.depends) return unmark_global(mask, address, size);
    for_lanes(mask, [&](uint32_t lane) { memory_.mark_initialized(address[lane], size); });
}

template <Mode M>
uint32_t Interpreter<M>::find_lanes_on_host(uint32_t mask, const uint64_t* address) const {
    uint32_t found = 0;
    for_lanes(mask, [&](uint32_t lane) { found |= memory_.contains(address[lane]) ? 0 : 1u << lane; });
    return found;
}

template <Mode M>
template <bool kStore>
void Interpreter<M>::access_global(const Inst& inst, uint32_t mask, const uint64_t* address, bool is_const) {
    const uint32_t size = inst.bytes * inst.vec;
    const Span span = span_of(address, mask, size);
    uint32_t good = check_global(mask, address, size, kStore, false, span.lo, span.hi, span.bits);
    if (good == 0) return;
    if (const uint32_t on_host = lanes_on_host(good, address)) [[unlikely]] {  // nothing is known of what the host does there
        if constexpr (kCount) count_global(on_host, address, size, kStore, false);
        move_elements<kStore>(inst, on_host, nullptr, address, Shape::kScattered);
        good &= ~on_host;
        if (good == 0) return;
    }
    uint8_t* base = reinterpret_cast<uint8_t*>(memory_.alias(0));
    const bool whole = good == mask;
    if constexpr (kChecks) {
        if (checking(kInitcheck)) {
            const Span part = whole ? span : span_of(address, good, size);
            if constexpr (kStore)
                mark_global(good, address, size, part.lo, part.hi, part.contiguous());
            else
                check_global_init(good, address, size, part.lo, part.hi);
        } else if constexpr (kStore) {
            const Span part = whole ? span : span_of(address, good, size);
            mark_global(good, address, size, part.lo, part.hi, part.contiguous());
        }
    } else if constexpr (kStore) {
        // Also without checks: a later launch may be checked.
        const Span part = whole ? span : span_of(address, good, size);
        mark_global(good, address, size, part.lo, part.hi, part.contiguous());
    }
    if constexpr (!kStore) {
        if (checking(kDependence) && !is_const) {
            const Span part = whole ? span : span_of(address, good, size);
            follow_reads(good, address, size, part.lo, part.hi, inst.order & kOrderStrong);
        }
    }
    if (checking(kStreamcheck)) {
        const bool strong = inst.order & kOrderStrong;
        const Touch touch = kStore ? (strong ? Touch::kStrongWrite : Touch::kWrite) : strong ? Touch::kStrongRead : Touch::kRead;
        const Span part = whole ? span : span_of(address, good, size);
        memory_.footprints().mark_lanes(touch, good, address, size, part.lo, part.hi, part.contiguous());
    }
    if (checking(kRacecheck) && !is_const) {
        const bool strong = inst.order & kOrderStrong;
        const Shape shape = whole ? span.shape : Shape::kScattered;
        const bool is_simple = !kStore && !strong && shape == Shape::kUniform && mask == ~0u && race_read_uniform(address[0], size);
        const bool is_deferred = !kStore && !strong && shape == Shape::kScattered && defer_reads(good, address, size);
        if (!is_simple && !is_deferred)
            race_global(good, address, size, kStore,
                        !strong                    ? AccessKind::kWeak
                        : inst.order & kOrderBlock ? AccessKind::kStrongBlock
                                                   : AccessKind::kStrong,
                        kStore ? &inst : nullptr);
        if (strong && kStore) order_words(inst, good, address, false, true, OrderKind::kGlobalWord);  // before the others can see it
    }
    if constexpr (kCount) {
        if (is_const)
            count().const_loads++;
        else
            count_global(good, address, size, kStore, false);
    }
    move_elements<kStore>(inst, good, base, address, whole ? span.shape : Shape::kScattered);
    // After the value is known: what came with it has been handed over by then.
    if (!kStore && (inst.order & kOrderStrong) && !is_const && checking(kRacecheck))
        order_words(inst, good, address, true, false, OrderKind::kGlobalWord);
}

template <Mode M>
void Interpreter<M>::check_shared_init(uint32_t mask, const uint64_t* address, uint32_t size, uint64_t lo, uint64_t hi) {
    if (hi - lo <= 1024 && all_equal(block_.shared_state + lo, hi + size - lo, 1)) return;
    for_lanes(mask, [&](uint32_t lane) {
        const uint8_t* state = block_.shared_state + address[lane];
        bool in_flight = false;
        uint32_t unwritten = 0;
        bool mbarrier = false;
        for (uint32_t i = 0; i < size; ++i) {
            in_flight |= state[i] & 2;
            unwritten |= (state[i] == 0 ? 1u : 0u) << i;
            mbarrier |= state[i] & 4;
        }
        if (mbarrier) {
            report_event(worker_, block_, warp_, pc_, lane, Finding::kMbarrierInvalid,
                         "an ordinary load reads the mbarrier at shared address " + std::to_string(address[lane]) + ", which is opaque");
        }
        if (in_flight)
            report_access(worker_, block_, warp_, pc_, lane,
                          {Finding::kAsyncInFlight, MemSpace::kShared, false, false, address[lane], size});
        else if (unwritten)
            uninitialized(lane, MemSpace::kShared, address[lane], size, unwritten);
    });
}

template <Mode M>
template <bool kStore>
void Interpreter<M>::access_shared(const Inst& inst, uint32_t mask, const uint64_t* address) {
    const uint32_t size = inst.bytes * inst.vec;
    Span span = span_of(address, mask, size);
    const uint64_t bits = span.bits;
    if (span.lo < kSharedStart || span.hi + size > block_.shared_end || span.hi + size < span.hi || (bits & (size - 1)) ||
        (kChecks && image_.crosses_shared_gap(span.lo, span.hi + size))) [[unlikely]] {
        if (span.hi >> kSharedRankShift && ((inst.flags & kFlagCluster) || inst.space == MemSpace::kGeneric))
            return access_cluster<kStore>(inst, mask, address);
        mask = check_shared(mask, address, size, kStore, false);
        if (mask == 0) return;
        span = span_of(address, mask, size);
    }
    if constexpr (kChecks) {
        if (checking(kRacecheck)) {
            const bool strong = inst.order & kOrderStrong;
            if constexpr (kStore)
                race_write(mask, address, size, strong, &inst);
            else
                race_read(mask, address, size, strong);
            if (strong) order_words(inst, mask, address, !kStore, kStore, OrderKind::kSharedWord);
        }
        if (checking(kInitcheck)) {
            if constexpr (kStore) {
                if (span.contiguous())
                    std::memset(block_.shared_state + span.lo, 1, span.hi + size - span.lo);
                else
                    for_lanes(mask, [&](uint32_t lane) { std::memset(block_.shared_state + address[lane], 1, size); });
            } else {
                check_shared_init(mask, address, size, span.lo, span.hi);
            }
        }
    }
    if constexpr (kCount) count_shared(mask, address, size, kStore, false);
    move_elements<kStore>(inst, mask, block_.shared, address, span.shape);
}

template <Mode M>
template <bool kStore>
void Interpreter<M>::access_local(const Inst& inst, uint32_t mask, const uint64_t* address, bool is_param) {
    const uint32_t size = inst.bytes * inst.vec;
    alignas(64) uint64_t at[kWarpLanes];
    uint32_t bad = 0;
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
        bad |= (address[lane] < kLocalStart || address[lane] + size > block_.local_stride || (address[lane] & (size - 1))) ? 1u << lane : 0;
        at[lane] = address[lane] + static_cast<uint64_t>(thread_of(lane)) * block_.local_stride;
    }
    bad &= mask;
    if (bad) [[unlikely]] {
        for_lanes(bad, [&](uint32_t lane) {
            const bool misaligned = address[lane] & (size - 1);
            const Finding kind = misaligned ? Finding::kMisaligned : kStore ? Finding::kOutOfBoundsWrite : Finding::kOutOfBoundsRead;
            report_access(worker_, block_, warp_, pc_, lane, {kind, MemSpace::kLocal, kStore, false, address[lane], size});
        });
        const int status = address[std::countr_zero(bad)] & (size - 1) ? kErrorMisalignedAddress : kErrorIllegalAddress;
        if (checking(kMemcheck)) {
            std::lock_guard lock(block_.launch->mutex);
            if (block_.launch->status == kSuccess) block_.launch->status = status;
        } else {
            stop_launch(status);
        }
        mask &= ~bad;
        if (mask == 0) return;
    }
    if constexpr (kChecks) {
        if (checking(kInitcheck)) {
            if constexpr (kStore) {
                for_lanes(mask, [&](uint32_t lane) { std::memset(block_.local_state + at[lane], 1, size); });
            } else {
                for_lanes(mask, [&](uint32_t lane) {
                    if (all_equal(block_.local_state + at[lane], size, 1)) return;
                    uint32_t unwritten = 0;
                    for (uint32_t i = 0; i < size; ++i) unwritten |= (block_.local_state[at[lane] + i] == 0 ? 1u : 0u) << i;
                    uninitialized(lane, MemSpace::kLocal, address[lane], size, unwritten);
                });
            }
        }
    }
    if constexpr (kCount) {
        if (is_param)
            count().param_loads += !kStore;
        else
            count_local(mask, address, size, kStore);
    }
    move_elements<kStore>(inst, mask, block_.local, at, Shape::kScattered);
}

template <Mode M>
void Interpreter<M>::access_param(const Inst& inst, uint32_t mask, const uint64_t* address) {
    const uint32_t size = inst.bytes * inst.vec;
    const std::vector<std::byte>& params = block_.launch->launch->params;
    uint32_t good = 0;
    for_lanes(mask, [&](uint32_t lane) {
        if (address[lane] + size <= params.size() && (address[lane] & (size - 1)) == 0 && address[lane] + size > address[lane]) {
            good |= 1u << lane;
            return;
        }
        const bool misaligned = address[lane] & (size - 1);
        report_access(worker_, block_, warp_, pc_, lane,
                      {misaligned ? Finding::kMisaligned : Finding::kOutOfBoundsRead, MemSpace::kParam, false, false, address[lane], size});
        stop_launch(misaligned ? kErrorMisalignedAddress : kErrorIllegalAddress);
    });
    if constexpr (kCount) count().param_loads++;
    if (good == 0) return;
    move_elements<false>(inst, good, reinterpret_cast<uint8_t*>(const_cast<std::byte*>(params.data())), address, Shape::kScattered);
}

#define AICF_INSTANTIATE(MODE)                                                                                      \
    template void Interpreter<MODE>::access<false>(const Inst&, uint32_t, uint64_t*, MemSpace);                     \
    template void Interpreter<MODE>::access<true>(const Inst&, uint32_t, uint64_t*, MemSpace);                      \
    template class Interpreter<MODE>;                                                                               \
    template void Interpreter<MODE>::access_shared<false>(const Inst&, uint32_t, const uint64_t*);                  \
    template void Interpreter<MODE>::access_shared<true>(const Inst&, uint32_t, const uint64_t*);                   \
    template void Interpreter<MODE>::move_elements<false>(const Inst&, uint32_t, uint8_t*, const uint64_t*, Shape); \
    template void Interpreter<MODE>::move_elements<true>(const Inst&, uint32_t, uint8_t*, const uint64_t*, Shape);
AICF_INSTANTIATE(Mode::kPlain)
AICF_INSTANTIATE(Mode::kChecked)
AICF_INSTANTIATE(Mode::kCounted)

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu
