// Undefined values (initcheck). To load what nothing wrote is no fault yet: code that works on whole tiles or copies structures loads
// padding, carries it along and drops it. So a register knows which of its bytes hold such a value, lane by lane, and the load is reported
// when the value matters: when it decides a branch, makes an address, goes into an atomic, or is stored to global memory. (The idea is
// Memcheck's: Seward and Nethercote, "Using Valgrind to detect undefined value errors with bit-precision", USENIX 2005; here with bytes in
// place of bits.)
//
// All of this runs only in a warp that has such values.
#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "../tensor/tensor.hpp"
#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {
namespace {

constexpr uint32_t kBytes = 8;  // of a register at most

const Undefined* find(const Warp& warp, const void* place) {
    const auto found = warp.undefined.find(place);
    return found == warp.undefined.end() ? nullptr : &found->second;
}

void set(Warp& warp, const void* place, uint32_t mask, const Undefined& value) {
    const auto found = warp.undefined.find(place);
    if (found == warp.undefined.end()) {
        Undefined made = value;
        for (uint32_t& lanes : made.bytes) lanes &= mask;
        if (made.lanes() != 0) warp.undefined.emplace(place, made);
        return;
    }
    for (uint32_t i = 0; i < kBytes; ++i) found->second.bytes[i] = (found->second.bytes[i] & ~mask) | (value.bytes[i] & mask);
    if (value.lanes() & mask) found->second.origin = value.origin;
    if (found->second.lanes() == 0) warp.undefined.erase(found);
}

bool is_register(uint32_t operand) { return operand >> 30 == kBase32 || operand >> 30 == kBase64; }

// What an instruction is called, as far as it is modelled.
struct Name {
    explicit Name(const ptx::Instruction* from) : instruction(from) {}
    const ptx::Instruction* instruction;
    bool is(std::string_view opcode) const { return instruction != nullptr && instruction->opcode == opcode; }
    bool has(std::string_view word) const {
        return std::find(instruction->modifiers.begin(), instruction->modifiers.end(), word) != instruction->modifiers.end();
    }
    // Bytes of the integer type that is the modifier at `index` from the end; 0: none.
    uint32_t integer_bytes(size_t index, bool& is_signed) const {
        if (index >= instruction->modifiers.size()) return 0;
        const std::string_view word = instruction->modifiers[instruction->modifiers.size() - 1 - index];
        if (word.size() < 2 || (word[0] != 'u' && word[0] != 's' && word[0] != 'b')) return 0;
        is_signed = word[0] == 's';
        const std::string_view bits = word.substr(1);
        return bits == "8" ? 1 : bits == "16" ? 2 : bits == "32" ? 4 : bits == "64" ? 8 : 0;
    }
};

// Shifted by whole and broken bytes; what is shifted in is defined, but for the sign.
Undefined shift(const Undefined& value, uint32_t bits, bool left, bool is_signed, uint32_t width) {
    Undefined out;
    out.origin = value.origin;
    const uint32_t whole = bits / 8;
    for (uint32_t i = 0; i < width; ++i) {
        const auto take = [&](uint32_t distance) {
            if (left) {
                if (i >= distance) out.bytes[i] |= value.bytes[i - distance];
            } else if (i + distance < width) {
                out.bytes[i] |= value.bytes[i + distance];
            } else if (is_signed) {
                out.bytes[i] |= value.bytes[width - 1];
            }
        };
        take(whole);
        if (bits % 8 != 0) take(whole + 1);
    }
    return out;
}

// Of an 8x8 matrix of 16-bit elements, one register of a warp: the transposed one.
Undefined turn(const Undefined& value) {
    Undefined out;
    out.origin = value.origin;
    for (uint32_t half = 0; half < 2; ++half)
        for (uint32_t b = 0; b < 2; ++b)
            for_lanes(value.bytes[half * 2 + b], [&](uint32_t lane) {
                const uint32_t r = lane / 4, c = lane % 4 * 2 + half;
                out.bytes[r % 2 * 2 + b] |= 1u << (c * 4 + r / 2);
            });
    return out;
}

}  // namespace

template <Mode M>
void Interpreter<M>::uninitialized(uint32_t lane, MemSpace space, uint64_t address, uint32_t size, uint32_t bytes) {
    if (!deferring_) {
        const AccessFinding finding{Finding::kUninitialized, space, false, false, address, size};
        return report_access(worker_, block_, warp_, pc_, lane, finding);
    }
    const Inst& inst = image_.code[pc_];
    uint32_t origin = 0;
    while (origin < warp_.undefined_origins.size() && warp_.undefined_origins[origin].pc != pc_) ++origin;
    if (origin == warp_.undefined_origins.size()) warp_.undefined_origins.push_back({pc_, lane, space, address, size});
    if (inst.op == Op::kLoadMatrix) return matrix_undefined(inst, lane, bytes, origin);
    const uint32_t operands[4] = {inst.d, inst.b, inst.c, inst.e};
    for (uint32_t i = 0; i < inst.vec && i < 4; ++i) {
        if (!is_register(operands[i])) continue;
        Undefined value;
        value.origin = origin;
        for (uint32_t k = 0; k < kBytes; ++k) {  // beyond the element: the sign
            const uint32_t from = k < inst.bytes ? k : inst.bytes - 1u;
            if (k >= inst.bytes && !(inst.flags & kFlagSignExtend)) break;
            value.bytes[k] = (bytes >> (i * inst.bytes + from) & 1) << lane;
        }
        set(warp_, row(operands[i]), 1u << lane, value);
    }
}

// Of the row of a matrix that `lane` gave the address of: bytes of it that nothing wrote, in the lanes and bytes where ldmatrix puts them.
template <Mode M>
void Interpreter<M>::matrix_undefined(const Inst& inst, uint32_t lane, uint32_t bytes, uint32_t origin) {
    const uint32_t matrix = lane / 8, r = lane % 8;
    const void* const place = row(listed(inst, matrix));
    const Undefined* const before = find(warp_, place);
    Undefined value = before == nullptr ? Undefined{} : *before;
    value.origin = origin;
    for (uint32_t k = 0; k < 16; ++k) {
        if (!(bytes >> k & 1)) continue;
        const uint32_t c = k / 2, y = inst.mode ? c : r, x = inst.mode ? r : c;  // mode: transposed
        value.bytes[x % 2 * 2 + k % 2] |= 1u << (y * 4 + x / 2);
    }
    set(warp_, place, ~0u, value);
}

template <Mode M>
void Interpreter<M>::use_undefined(const void* place, uint32_t lanes) {
    const auto found = warp_.undefined.find(place);
    if (found == warp_.undefined.end() || (found->second.lanes() & lanes) == 0) return;
    const UndefinedOrigin& origin = warp_.undefined_origins[found->second.origin];
    AccessFinding finding{Finding::kUninitialized, origin.space, false, false, origin.address, origin.size};
    finding.used_pc = pc_;
    for (int32_t left = std::popcount(found->second.lanes() & lanes); left > 0; --left)  // one report, counted by threads
        report_access(worker_, block_, warp_, origin.pc, origin.lane, finding);
    warp_.undefined.erase(found);  // once is enough
}

template <Mode M>
Undefined Interpreter<M>::undefined_of(uint32_t operand) const {
    const Undefined* found = is_register(operand) ? find(warp_, row(operand)) : nullptr;
    return found == nullptr ? Undefined{} : *found;
}

template <Mode M>
void Interpreter<M>::track_undefined(const Inst& inst, uint32_t mask) {
    if (inst.guard > kPredFalse) use_undefined(&predicate_slot(inst.guard), mask_);
    if (mask == 0) return;
    const auto define = [&](uint32_t operand, const Undefined& value) {
        if (is_register(operand)) set(warp_, row(operand), mask, value);
    };
    const uint32_t parts[4] = {inst.d, inst.b, inst.c, inst.e};
    switch (inst.op) {
        case Op::kArith: {
            const Undefined value = undefined_result(inst);
            define(inst.d, value);
            if (inst.flags & kFlagPredicates) {
                Undefined whole = value;
                whole.spread();
                set(warp_, &predicate_slot(inst.pd), mask, whole);
                set(warp_, &predicate_slot(inst.qd), mask, whole);
                warp_.undefined.erase(&predicates_[kPredSlotTrash]);
            }
            break;
        }
        case Op::kMov32:
        case Op::kMov64:
        case Op::kLoadParam32:
        case Op::kLoadParam64: define(inst.d, undefined_of(inst.a)); break;
        case Op::kNarrow:
        case Op::kWiden: {
            Undefined value = undefined_of(inst.a);
            const bool sign = inst.op == Op::kWiden && (inst.flags & kFlagSignExtend);
            for (uint32_t k = 4; k < kBytes; ++k) value.bytes[k] = sign ? value.bytes[3] : 0;
            define(inst.d, value);
            break;
        }
        case Op::kCvtaTo:
        case Op::kCvtaFrom: {
            Undefined value = undefined_of(inst.a);
            value.spread();
            define(inst.d, value);
            break;
        }
        case Op::kLocalAddress:
        case Op::kClock:
        case Op::kActivemask: define(inst.d, {}); break;
        case Op::kIsspacep: set(warp_, &predicate_slot(inst.pd), mask, {}); break;
        case Op::kPack: {
            const uint32_t from[4] = {inst.a, inst.b, inst.c, inst.e};
            Undefined value;
            for (uint32_t i = 0; i < inst.vec; ++i) {
                const Undefined part = undefined_of(from[i]);
                if (part.lanes() != 0) value.origin = part.origin;
                for (uint32_t k = 0; k < inst.bytes && i * inst.bytes + k < kBytes; ++k) value.bytes[i * inst.bytes + k] = part.bytes[k];
            }
            define(inst.d, value);
            break;
        }
        case Op::kUnpack: {
            const Undefined value = undefined_of(inst.a);
            for (uint32_t i = 0; i < inst.vec; ++i) {
                Undefined part;
                part.origin = value.origin;
                for (uint32_t k = 0; k < inst.bytes && i * inst.bytes + k < kBytes; ++k) part.bytes[k] = value.bytes[i * inst.bytes + k];
                define(parts[i], part);
            }
            break;
        }
        case Op::kLoad:
            if ((inst.flags & kFlagHasBase) && is_register(inst.a)) use_undefined(row(inst.a), mask);
            for (uint32_t i = 0; i < inst.vec && i < 4; ++i) define(parts[i], {});
            break;
        case Op::kStore:
            if ((inst.flags & kFlagHasBase) && is_register(inst.a)) use_undefined(row(inst.a), mask);
            break;  // the values: store_undefined()
        case Op::kRedux: {
            Undefined value = undefined_of(inst.a);
            for (uint32_t& lanes : value.bytes) lanes = (value.lanes() & mask) != 0 ? mask : 0;
            define(inst.d, value);
            break;
        }
        case Op::kShfl:  // shuffle() itself
        case Op::kBarrier:
        case Op::kBarWarpSync:
        case Op::kFence:
        case Op::kPrefetch:
        case Op::kNanosleep:
        case Op::kNop:
        case Op::kBra:
        case Op::kBrx:
        case Op::kCall:
        case Op::kCallIndirect:
        case Op::kBuiltin:
        case Op::kRet:
        case Op::kExit:
        case Op::kEnd:
        case Op::kAsyncCopy:
        case Op::kAsyncCommit:
        case Op::kAsyncWait: break;
        case Op::kMma:
            if (inst.mode == 0)
                mma_undefined(inst, mask);
            else
                warp_.undefined.clear();
            break;
        case Op::kLoadMatrix:
            for (uint32_t i = 0; i < inst.vec; ++i) define(listed(inst, i), {});
            break;
        case Op::kMoveMatrix: define(inst.d, turn(undefined_of(inst.a))); break;
        case Op::kStoreMatrix: break;  // store_matrix() itself
        case Op::kWgmma: break;  // reports what it reads of shared memory; registers keep what they have
        case Op::kAtomic:
            for (const uint32_t operand : {inst.a, inst.b, inst.c})
                if (is_register(operand)) use_undefined(row(operand), mask);
            [[fallthrough]];
        default: warp_.undefined.clear();  // it may write registers in ways not modelled here: rather forget than accuse
    }
}

// Of a matrix product: a row of A, or a column of B, that holds an undefined value anywhere makes that row or column of the result
// undefined, and no other. For the layout see tensor.hpp.
template <Mode M>
void Interpreter<M>::mma_undefined(const Inst& inst, uint32_t mask) {
    const MatrixForm form = get_form(&image_.operand_lists[inst.imm]);
    const uint32_t* operands = &image_.operand_lists[inst.imm + kFormWords];
    const uint32_t num_d = inst.bytes, num_a = inst.vec, num_b = inst.dbytes, down = form.m / 8;
    uint64_t rows = 0, columns = 0;
    Undefined value;
    const auto look = [&](uint32_t operand) {
        const Undefined found = undefined_of(operand);
        if (found.lanes() != 0) value.origin = found.origin;
        return found.lanes();
    };
    const uint32_t real_a = form.quad_pairs || form.sparse ? num_a : operand_registers(form.m, form.k, form.a);
    const uint32_t real_b = form.quad_pairs ? num_b : operand_registers(form.n(), form.k, form.b);
    const uint32_t across = real_b / form.n8;
    for (uint32_t i = 0; i < real_a; ++i)
        for_lanes(look(operands[num_d + i]), [&](uint32_t lane) { rows |= 1ull << (i % down * 8 + lane / 4); });
    for (uint32_t i = 0; i < real_b && !form.sparse; ++i)  // of a sparse product not all of B is read
        for_lanes(look(operands[num_d + num_a + i]), [&](uint32_t lane) { columns |= 1ull << (i / across * 8 + lane / 4); });
    if (form.quad_pairs && (rows | columns)) rows = ~0ull;  // another layout: all of it
    const bool halves = form.d == Elem::kF16, same = form.c == form.d;
    std::array<uint32_t, 64> lanes{};
    for (uint32_t i = 0; i < num_d; ++i) {
        const uint32_t tile = halves ? i : i / 2, y = tile % down, x = tile / down;
        lanes[i] = same ? look(operands[num_d + num_a + num_b + i]) : 0;
        for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
            const uint32_t column = x * 8 + lane % 4 * 2 + (halves ? 0 : i % 2);
            const bool is_undefined =
                (rows >> (y * 8 + lane / 4) & 1) || (columns >> column & 1) || (halves && columns >> (column + 1) & 1);
            lanes[i] |= is_undefined ? 1u << lane : 0;
        }
    }
    for (uint32_t i = 0; i < num_d; ++i) {
        value.bytes.fill(lanes[i]);
        if (is_register(operands[i])) set(warp_, row(operands[i]), mask, value);
    }
}

// Of lane arithmetic. Whole bytes survive what moves bytes about; everything else makes of an undefined byte an undefined result.
template <Mode M>
Undefined Interpreter<M>::undefined_result(const Inst& inst) const {
    const Undefined a = undefined_of(inst.a), b = undefined_of(inst.b), c = undefined_of(inst.c);
    Undefined all = undefined_of(inst.e);
    for (const Undefined* each : {&c, &b, &a}) all.merge(*each);
    const Name name(inst.flags & kFlagHidden ? nullptr : image_.info[pc_].instruction);
    if (inst.flags & (kFlagPredicates | kFlagFourth)) return undefined_by_predicates(inst, all);
    if (all.lanes() == 0) return all;
    bool is_signed = false, from_signed = false;
    if (name.is("and") || name.is("or") || name.is("xor")) {
        if (!name.is("and")) return all;
        const uint32_t width = inst.d >> 30 == kBase64 ? 8 : 4;
        const auto byte_of = [&](uint32_t operand, uint32_t lane, uint32_t k) { return row(operand)[lane * width + k]; };
        for (uint32_t k = 0; k < width; ++k)
            for_lanes(all.bytes[k], [&](uint32_t lane) {  // a zero hides the other operand
                const bool hidden = (!(a.bytes[k] >> lane & 1) && byte_of(inst.a, lane, k) == 0) ||
                                    (!(b.bytes[k] >> lane & 1) && byte_of(inst.b, lane, k) == 0);
                if (hidden) all.bytes[k] &= ~(1u << lane);
            });
        return all;
    }
    if ((name.is("shl") || name.is("shr")) && !is_register(inst.b)) {
        const uint32_t width = name.integer_bytes(0, is_signed);
        const uint32_t bits = *row32(inst.b);
        if (width != 0 && bits < width * 8) return shift(a, bits, name.is("shl"), is_signed, width);
    }
    if (name.is("cvt") && !name.has("sat")) {
        const uint32_t from = name.integer_bytes(0, from_signed), to = name.integer_bytes(1, is_signed);
        if (from != 0 && to != 0) {
            Undefined out = a;
            for (uint32_t k = 0; k < kBytes; ++k) {
                if (k >= from) out.bytes[k] = from_signed ? out.bytes[from - 1] : 0;
                if (k >= to) out.bytes[k] = is_signed ? out.bytes[to - 1] : 0;
            }
            return out;
        }
    }
    if (name.is("prmt") && !is_register(inst.c) && name.instruction->modifiers.size() == 1) {
        Undefined out;
        out.origin = all.origin;
        const uint32_t selector = *row32(inst.c);
        for (uint32_t k = 0; k < 4; ++k) {
            const uint32_t from = selector >> (4 * k) & 7;
            out.bytes[k] = from < 4 ? a.bytes[from] : b.bytes[from - 4];
        }
        return out;
    }
    all.spread();
    return all;
}

// Of lane arithmetic with predicates, or a fourth operand; `all`: what its registers bring.
template <Mode M>
Undefined Interpreter<M>::undefined_by_predicates(const Inst& inst, Undefined all) const {
    const Undefined* a = find(warp_, &predicate_slot(inst.pa));
    const Undefined* b = find(warp_, &predicate_slot(inst.pb));
    const uint32_t undefined_a = a ? a->lanes() : 0, undefined_b = b ? b->lanes() : 0;
    if ((all.lanes() | undefined_a | undefined_b) == 0) return all;
    const Name name(inst.flags & kFlagHidden ? nullptr : image_.info[pc_].instruction);
    if (name.is("selp")) {  // the operand that is not chosen does not matter
        const uint32_t truth = predicate(inst.pa);
        Undefined chosen = undefined_of(inst.a), other = undefined_of(inst.b);
        for (uint32_t k = 0; k < kBytes; ++k) {
            chosen.bytes[k] &= truth;
            other.bytes[k] &= ~truth;
        }
        chosen.merge(other);
        if (a) chosen.merge(*a);
        return chosen;
    }
    all.spread();
    if (a) all.merge(*a);
    if (b) all.merge(*b);
    uint32_t decided = 0;  // lanes in which one defined operand decides
    if (name.is("and") || name.is("or")) {
        const uint32_t flip = name.is("or") ? 0u : ~0u;
        decided = ((predicate(inst.pa) ^ flip) & ~undefined_a) | ((predicate(inst.pb) ^ flip) & ~undefined_b);
    } else if (name.is("setp") && (name.has("and") || name.has("or"))) {  // p = comparison op predicate
        decided = (predicate(inst.pa) ^ (name.has("or") ? 0u : ~0u)) & ~undefined_a;
    }
    for (uint32_t& lanes : all.bytes) lanes &= ~decided;
    return all;
}

template <Mode M>
void Interpreter<M>::shuffle_undefined(const Inst& inst, uint32_t mask, const uint8_t* from) {
    const Undefined source = undefined_of(inst.a);
    Undefined value;
    value.origin = source.origin;
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane)
        for (uint32_t k = 0; k < kBytes; ++k) value.bytes[k] |= (source.bytes[k] >> from[lane] & 1) << lane;
    if (is_register(inst.d)) set(warp_, row(inst.d), mask, value);
    set(warp_, &predicate_slot(inst.pd), mask, {});
}

template <Mode M>
void Interpreter<M>::store_undefined(const Inst& inst, uint32_t mask) {
    const uint32_t operands[4] = {inst.d, inst.b, inst.c, inst.e};
    alignas(64) uint64_t address[kWarpLanes];
    bool have_addresses = false;
    for (uint32_t i = 0; i < inst.vec && i < 4; ++i) {
        const Undefined value = undefined_of(operands[i]);
        if ((value.lanes() & mask) == 0) continue;
        if (!have_addresses) addresses(inst, address);
        have_addresses = true;
        uint32_t global = 0;
        for (uint32_t k = 0; k < inst.bytes && k < kBytes; ++k) {
            for_lanes(value.bytes[k] & mask, [&](uint32_t lane) {
                const uint64_t window = inst.space == MemSpace::kGeneric ? address[lane] & kWindowMask : 0;
                const uint64_t at = (window == 0 ? address[lane] : address[lane] & ~kWindowMask) + i * inst.bytes + k;
                if (inst.space == MemSpace::kShared || window == kSharedWindow) {
                    if (at >= kSharedStart && at < block_.shared_end) block_.shared_state[at] = 0;
                } else if (inst.space == MemSpace::kLocal || inst.space == MemSpace::kFrame || window == kLocalWindow) {
                    if (at >= kLocalStart && at < block_.local_stride)
                        block_.local_state[static_cast<uint64_t>(thread_of(lane)) * block_.local_stride + at] = 0;
                } else {
                    global |= 1u << lane;
                }
            });
        }
        if (global != 0) undefined_to_global(inst, i, value, global, address);
    }
}

// What stmatrix puts into shared memory of values that nothing wrote is unwritten there, too. `rows`: the lanes whose rows were stored.
template <Mode M>
void Interpreter<M>::store_matrix_undefined(const Inst& inst, uint32_t rows, const uint64_t* address) {
    for (uint32_t i = 0; i < inst.vec; ++i) {
        const Undefined stored = undefined_of(listed(inst, i)), value = inst.mode ? turn(stored) : stored;
        for (uint32_t k = 0; k < 4; ++k)
            for_lanes(value.bytes[k], [&](uint32_t lane) {
                const uint32_t giver = i * 8 + lane / 4;
                if (rows >> giver & 1) block_.shared_state[address[giver] + lane % 4 * 4 + k] = 0;
            });
    }
}

// A word that starts with a defined byte ends, or goes on, with a structure's padding: that stays unwritten. Any other word matters.
template <Mode M>
void Interpreter<M>::undefined_to_global(const Inst& inst, uint32_t element, const Undefined& value, uint32_t lanes,
                                         const uint64_t* address) {
    const uint32_t operands[4] = {inst.d, inst.b, inst.c, inst.e};
    const uint32_t whole = lanes & value.bytes[0];
    for_lanes(lanes & ~whole, [&](uint32_t lane) {
        for (uint32_t k = 0; k < inst.bytes && k < kBytes; ++k) {
            const uint64_t at = address[lane] + element * inst.bytes + k;
            if ((value.bytes[k] >> lane & 1) && memory_.contains(at) && memory_.accessible(at, 1))
                __atomic_fetch_and(memory_.init_bits() + (at - memory_.base()) / 8,
                                   static_cast<uint8_t>(~(1u << (at - memory_.base()) % 8)), __ATOMIC_RELAXED);
        }
    });
    if (whole != 0) use_undefined(row(operands[element]), whole);
}

#define AICF_INSTANTIATE(MODE)                                                                        \
    template void Interpreter<MODE>::uninitialized(uint32_t, MemSpace, uint64_t, uint32_t, uint32_t); \
    template void Interpreter<MODE>::matrix_undefined(const Inst&, uint32_t, uint32_t, uint32_t);     \
    template void Interpreter<MODE>::use_undefined(const void*, uint32_t);                            \
    template void Interpreter<MODE>::track_undefined(const Inst&, uint32_t);                          \
    template void Interpreter<MODE>::mma_undefined(const Inst&, uint32_t);                            \
    template Undefined Interpreter<MODE>::undefined_of(uint32_t) const;                               \
    template Undefined Interpreter<MODE>::undefined_result(const Inst&) const;                        \
    template Undefined Interpreter<MODE>::undefined_by_predicates(const Inst&, Undefined) const;      \
    template void Interpreter<MODE>::shuffle_undefined(const Inst&, uint32_t, const uint8_t*);        \
    template void Interpreter<MODE>::store_undefined(const Inst&, uint32_t);                          \
    template void Interpreter<MODE>::store_matrix_undefined(const Inst&, uint32_t, const uint64_t*);  \
    template void Interpreter<MODE>::undefined_to_global(const Inst&, uint32_t, const Undefined&, uint32_t, const uint64_t*);
AICF_INSTANTIATE(Mode::kPlain)
AICF_INSTANTIATE(Mode::kChecked)
AICF_INSTANTIATE(Mode::kCounted)

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu
