// Loads, stores, atomics, asynchronous copies.
#include <algorithm>
#include <array>
#include <string_view>

#include "decode.hpp"

namespace aicf::emu {

using ptx::Operand;
using ptx::Type;

namespace {

template <size_t N>
bool is_one_of(const std::string& word, const std::array<std::string_view, N>& words) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

// Ordering, scope and cache operators: the emulator is at least as strong as each of them, and has no caches.
bool is_memory_hint(const std::string& word) {
    constexpr std::array<std::string_view, 23> kWords{"weak",    "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "cta",
                                                      "cluster", "gpu",      "sys",     "ca",      "cg",      "cs",      "lu",   "cv",
                                                      "wb",      "wt",       "nc",      "unified", "noftz",   "sc",      "async"};
    return is_one_of(word, kWords) || word.rfind("L1::", 0) == 0 || word.rfind("L2::", 0) == 0;
}

bool parse_space(const std::string& word, MemSpace& space) {
    if (word == "global")
        space = MemSpace::kGlobal;
    else if (word == "shared" || word == "shared::cta" || word == "shared::cluster")
        space = MemSpace::kShared;
    else if (word == "local")
        space = MemSpace::kLocal;
    else if (word == "const")
        space = MemSpace::kConst;
    else if (word == "param" || word == "param::entry" || word == "param::func")
        space = MemSpace::kParam;
    else
        return false;
    return true;
}

bool is_signed(Type type) { return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64; }

}  // namespace

bool FunctionDecoder::decode_memory() {
    const std::string& opcode = current_->opcode;
    if ((opcode == "st" || opcode == "red") && has("async")) return false;  // decode/bulk.cpp
    if (opcode == "ld" || opcode == "ldu") {
        decode_load_store(true);
    } else if (opcode == "st") {
        decode_load_store(false);
    } else if (opcode == "atom" || opcode == "red") {
        if (has("async")) fail("asynchronous reductions are not supported yet");
        decode_atomic(opcode == "atom");
    } else if (opcode == "prefetch" || opcode == "prefetchu" || opcode == "applypriority" || opcode == "discard") {
        Inst inst;
        inst.op = Op::kPrefetch;
        emit(inst);
    } else {
        return false;
    }
    return true;
}

void FunctionDecoder::decode_load_store(bool is_load) {
    if (has("async") || has("bulk")) fail("asynchronous stores are not supported yet");
    Inst inst;
    inst.op = is_load ? Op::kLoad : Op::kStore;
    Type type = Type::kNone;
    for (const std::string& word : current_->modifiers) {
        if (word == "shared::cluster") inst.flags |= kFlagCluster;
        if (parse_space(word, inst.space) || is_memory_hint(word)) continue;
        if (word == "v2" || word == "v4" || word == "v8") {
            inst.vec = static_cast<uint8_t>(word[1] - '0');
            continue;
        }
        const Type candidate = ptx::type_from_name(word);
        if (candidate == Type::kNone || type != Type::kNone) fail("modifier '." + word + "' is not supported");
        type = candidate;
    }
    inst.bytes = static_cast<uint8_t>(ptx::size_of(type));
    if (type == Type::kB128 && inst.vec == 1) {  // as two halves; alignment and bounds are those of the whole
        inst.bytes = 8;
        inst.vec = 2;
    }
    if (type == Type::kNone || type == Type::kPred || inst.bytes > 8) fail("its type is not supported");
    if (inst.vec * inst.bytes > 16) fail("vectors of more than 16 bytes need sm_100");
    expect_operands(2, has("L2::cache_hint") ? 3 : 2);
    const Operand& data = is_load ? operand(0) : operand(1);
    const Operand& where = is_load ? operand(1) : operand(0);
    if (where.kind != Operand::Kind::kAddress) fail("an address in brackets is expected");
    const std::vector<Operand> split = type == Type::kB128                   ? halves(data)
                                       : data.kind == Operand::Kind::kVector ? data.elements
                                                                             : std::vector<Operand>{data};
    const size_t elements = split.size();
    if (elements != inst.vec) fail("the vector has " + std::to_string(elements) + " elements");

    const Address address = address_of(where);
    if (inst.space == MemSpace::kParam) {
        if (address.space == MemSpace::kFrame)
            inst.space = MemSpace::kFrame;
        else if (!function_.is_entry && !address.is_symbol)
            inst.space = MemSpace::kLocal;
    } else if (address.space == MemSpace::kFrame) {
        if (inst.space != MemSpace::kLocal && inst.space != MemSpace::kGeneric) fail("the variable is not in this state space");
        inst.space = MemSpace::kLocal;
    } else if (inst.space == MemSpace::kGeneric && address.is_symbol && address.space == MemSpace::kShared) {
        inst.space = MemSpace::kShared;  // a symbol without cvta names its own space
    }
    if (!is_load && (inst.space == MemSpace::kConst || inst.space == MemSpace::kParam)) fail("this state space cannot be written");
    const bool frame_relative = address.space == MemSpace::kFrame;
    if (frame_relative) inst.mode2 = 1;
    if (!is_load) narrow_access(inst.bytes, inst.space);

    constexpr Field kFields[] = {Field::kD, Field::kB, Field::kC, Field::kE};
    const auto element = [&](size_t i) -> const Operand& { return split[i]; };
    // The register may be wider than the type: the row kind follows the first register, and all elements share it.
    inst.dbytes = inst.bytes == 8 ? 8 : 4;
    for (size_t i = 0; i < elements; ++i) {
        const Operand& op = element(i);
        if (op.kind == Operand::Kind::kRegister && is_declared(op.name) && class_of(register_id(op.name)) == RegClass::k64) inst.dbytes = 8;
        if (op.kind == Operand::Kind::kRegister && is_declared(op.name) && class_of(register_id(op.name)) == RegClass::kPred)
            fail("a predicate as data");
    }
    if (is_signed(type)) inst.flags |= kFlagSignExtend;
    if (is_load && inst.space == MemSpace::kParam && address.is_symbol) {
        for (size_t i = 0; i < elements; ++i) {
            Inst part;
            part.op = inst.dbytes == 8 ? Op::kLoadParam64 : Op::kLoadParam32;
            part.flags = i == 0 ? 0 : kFlagHidden;
            part.a = builder_.param_row(static_cast<uint32_t>(address.offset + static_cast<int64_t>(i) * inst.bytes), inst.bytes,
                                        is_signed(type), inst.dbytes == 8);
            if (address.offset < 0 || address.offset + static_cast<int64_t>((i + 1) * inst.bytes) > builder_.image->kernel.param_bytes) {
                fail("it reads past the kernel's parameters");
            }
            destination(part, Field::kD, element(i), inst.dbytes);
            emit(part);
        }
        return;
    }
    for (size_t i = 0; i < elements; ++i) {
        if (is_load) {
            destination(inst, kFields[i], element(i), inst.dbytes, is_signed(type));
        } else {
            source(inst, kFields[i], element(i), inst.dbytes, type);
        }
    }
    apply_address(inst, address);
    emit(inst);
}

void FunctionDecoder::decode_atomic(bool returns) {
    Inst inst;
    inst.op = Op::kAtomic;
    bool found_op = false;
    bool found_type = false;
    for (const std::string& word : current_->modifiers) {
        if (word == "shared::cluster") inst.flags |= kFlagCluster;
        if (parse_space(word, inst.space)) continue;
        constexpr std::pair<std::string_view, AtomOp> kOps[] = {
            {"add", AtomOp::kAdd}, {"min", AtomOp::kMin},   {"max", AtomOp::kMax}, {"and", AtomOp::kAnd}, {"or", AtomOp::kOr},
            {"xor", AtomOp::kXor}, {"exch", AtomOp::kExch}, {"cas", AtomOp::kCas}, {"inc", AtomOp::kInc}, {"dec", AtomOp::kDec}};
        constexpr std::pair<std::string_view, AtomType> kTypes[] = {
            {"b16", AtomType::kB16}, {"b32", AtomType::kB32},   {"b64", AtomType::kB64},     {"b128", AtomType::kB128},
            {"u32", AtomType::kU32}, {"s32", AtomType::kS32},   {"u64", AtomType::kU64},     {"s64", AtomType::kS64},
            {"f16", AtomType::kF16}, {"bf16", AtomType::kBF16}, {"f16x2", AtomType::kF16x2}, {"bf16x2", AtomType::kBF16x2},
            {"f32", AtomType::kF32}, {"f64", AtomType::kF64}};
        bool known = false;
        if (word == "v2" || word == "v4" || word == "v8") {
            inst.vec = static_cast<uint8_t>(word[1] - '0');
            known = true;
        }
        for (const auto& [name, op] : kOps) {
            if (word == name) {
                inst.mode = static_cast<uint8_t>(op);
                found_op = known = true;
            }
        }
        for (const auto& [name, type] : kTypes) {
            if (word == name) {
                inst.mode2 = static_cast<uint8_t>(type);
                found_type = known = true;
            }
        }
        if (!known && !is_memory_hint(word)) fail("modifier '." + word + "' is not supported");
    }
    if (!found_op || !found_type) fail("its operation or type is not supported");
    if (inst.space != MemSpace::kGeneric && inst.space != MemSpace::kGlobal && inst.space != MemSpace::kShared)
        fail("atomics need global or shared memory");
    const AtomType type = static_cast<AtomType>(inst.mode2);
    const AtomOp op = static_cast<AtomOp>(inst.mode);
    const bool is_float = type >= AtomType::kF16;
    const bool is_bits = type <= AtomType::kB128;
    const bool bitwise = op == AtomOp::kAnd || op == AtomOp::kOr || op == AtomOp::kXor;
    const bool is_half = type >= AtomType::kF16 && type <= AtomType::kBF16x2;
    const bool is_extreme = op == AtomOp::kMin || op == AtomOp::kMax;
    const bool packed = type == AtomType::kF16x2 || type == AtomType::kBF16x2;
    if (inst.vec > 1) {
        if (inst.space == MemSpace::kShared) fail("vector forms are of global memory");
        const bool fits = type == AtomType::kF32 || packed ? inst.vec <= 4 : is_half;
        if (!fits || (op != AtomOp::kAdd && !(is_half && is_extreme))) fail("this vector form does not exist");
    } else if (is_float && op != AtomOp::kAdd) {
        fail("this operation has no floating-point form");
    }
    if (type == AtomType::kB128 && op != AtomOp::kExch && op != AtomOp::kCas) fail("128-bit atomics are exch and cas only");
    if (type == AtomType::kB128 && !returns) fail("a reduction of this kind does not exist");
    if (type == AtomType::kB16 && op != AtomOp::kCas) fail("16-bit atomics are cas only");
    if (is_bits && !bitwise && op != AtomOp::kExch && op != AtomOp::kCas) fail("this operation needs an arithmetic type");
    inst.bytes = type == AtomType::kB64 || type == AtomType::kU64 || type == AtomType::kS64 || type == AtomType::kF64 ? 8
                 : type == AtomType::kB128                                                                            ? 16
                 : type == AtomType::kB16 || type == AtomType::kF16 || type == AtomType::kBF16                        ? 2
                                                                                                                      : 4;
    const uint8_t row = inst.bytes >= 8 ? 8 : 4;
    inst.dbytes = row;
    size_t index = 0;
    const size_t sources = op == AtomOp::kCas ? 2 : 1;
    const size_t expected = (returns ? 1 : 0) + 1 + sources;
    expect_operands(expected, expected + (has("L2::cache_hint") ? 1 : 0));
    const bool wide = inst.vec > 1 || inst.bytes == 16;
    const Operand* result = returns ? &operand(index++) : nullptr;
    if (result && result->kind != Operand::Kind::kSink) inst.flags |= kFlagReturnsValue;
    if (result && !wide) destination(inst, Field::kD, *result, row);
    const Address address = address_of(operand(index++));
    if (address.is_symbol && address.space == MemSpace::kShared) inst.space = MemSpace::kShared;
    const Type immediate = type == AtomType::kF32 ? Type::kF32 : type == AtomType::kF64 ? Type::kF64 : row == 8 ? Type::kB64 : Type::kB32;
    if (wide) {
        // Listed: of a vector the values, then the results; of 128 bits value, swap and result by halves.
        const auto parts = [&](const Operand& all) {
            if (inst.bytes == 16) return halves(all);
            if (all.kind != Operand::Kind::kVector || all.elements.size() != inst.vec) fail("a vector of that length is expected");
            return all.elements;
        };
        const Operand& value = operand(index++);
        bool first = true;
        const auto list = [&](uint32_t slot) {
            if (first) inst.imm = slot;
            first = false;
        };
        for (const Operand& part : parts(value)) list(listed_source(part, row, immediate));
        if (inst.bytes == 16) {
            for (const Operand& part : parts(sources == 2 ? operand(index++) : value)) list(listed_source(part, row, immediate));
        }
        if (inst.flags & kFlagReturnsValue) {
            for (const Operand& part : parts(*result)) list(listed_destination(part, row));
        }
        narrow_access(inst.bytes, inst.space);
        apply_address(inst, address);
        return emit(inst);
    }
    source(inst, Field::kB, operand(index++), row, immediate);
    if (sources == 2) source(inst, Field::kC, operand(index++), row, immediate);
    narrow_access(inst.bytes, inst.space);
    apply_address(inst, address);
    emit(inst);
}

bool FunctionDecoder::decode_async() {
    if (current_->opcode != "cp" || current_->modifiers.empty()) return false;
    if (current_->modifiers[0] != "async" || has("bulk") || has("mbarrier")) return false;
    builder_.image->uses_async = true;
    Inst inst;
    if (has("commit_group")) {
        inst.op = Op::kAsyncCommit;
        return emit(inst), true;
    }
    if (has("wait_all") || has("wait_group")) {
        inst.op = Op::kAsyncWait;
        if (has("wait_all")) {
            inst.flags |= kFlagWaitAll;
        } else {
            if (operand(0).kind != Operand::Kind::kImmediate) fail("the number of groups must be a constant");
            inst.imm = static_cast<uint32_t>(operand(0).bits);
        }
        return emit(inst), true;
    }
    if (!has("ca") && !has("cg")) fail("it is not supported yet");
    const bool hint = has("L2::cache_hint");
    expect_operands(3, hint ? 5 : 4);
    inst.op = Op::kAsyncCopy;
    const Address to = address_of(operand(0));
    const Address from = address_of(operand(1));
    if (operand(2).kind != Operand::Kind::kImmediate) fail("the copy size must be a constant");
    const uint64_t bytes = operand(2).bits;
    if (bytes != 4 && bytes != 8 && bytes != 16) fail("a copy of " + std::to_string(bytes) + " bytes");
    if (has("cg") && bytes != 16) fail(".cg copies 16 bytes");
    inst.bytes = static_cast<uint8_t>(bytes);
    const auto base = [&](const Address& address, Field field, uint8_t row) {
        if (address.base_register == ~0u) {
            const uint32_t zero = builder_.constant_row(0, row == 8);
            (field == Field::kA ? inst.a : inst.b) = zero;
            return;
        }
        if ((address.base64 ? 8 : 4) == row) return reference(field, address.base_register, false);
        Inst convert;
        convert.op = row == 8 ? Op::kWiden : Op::kNarrow;
        const uint32_t temporary = new_temporary(row == 8 ? RegClass::k64 : RegClass::k32);
        emit_hidden(convert, {{0, Field::kA, false, address.base_register}, {0, Field::kD, true, temporary}});
        reference(field, temporary, false);
    };
    base(to, Field::kA, 4);
    base(from, Field::kB, 8);
    inst.imm = static_cast<uint32_t>(to.offset);
    inst.offset = from.offset;
    inst.pa = kPredFalse;
    inst.c = builder_.constant_row(bytes, false);
    const size_t extras = current_->operands.size() - 3 - (hint ? 1 : 0);
    if (extras == 1) {
        const Operand& extra = operand(3);
        const bool predicate =
            extra.kind == Operand::Kind::kRegister && is_declared(extra.name) && class_of(register_id(extra.name)) == RegClass::kPred;
        if (predicate)
            source_predicate(inst, Field::kPa, extra);
        else
            source(inst, Field::kC, extra, 4, Type::kU32);
    }
    narrow_access(4, MemSpace::kShared);
    emit(inst);
    return true;
}

}  // namespace aicf::emu
