// Bulk and tensor copies, tensor maps, fences between proxies. PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy" and
// "membar/fence".
#include <algorithm>
#include <array>
#include <string_view>

#include "../../tensormap/tensor_map.hpp"
#include "../async/bulk.hpp"
#include "decode.hpp"

namespace aicf::emu {

using ptx::Operand;
using ptx::Type;

namespace {

// Modifiers that say what the operands or other words say too, or that have no effect here.
bool is_bulk_word(const std::string& word) {
    constexpr std::array<std::string_view, 9> kWords{"async",      "bulk",           "tensor", "tile", "mbarrier::complete_tx::bytes",
                                                     "bulk_group", "L2::cache_hint", "noftz",  "L2"};
    return std::find(kWords.begin(), kWords.end(), word) != kWords.end();
}

bool parse_reduction(const std::string& word, AtomOp& op) {
    constexpr std::pair<std::string_view, AtomOp> kOps[] = {{"add", AtomOp::kAdd}, {"min", AtomOp::kMin}, {"max", AtomOp::kMax},
                                                            {"and", AtomOp::kAnd}, {"or", AtomOp::kOr},   {"xor", AtomOp::kXor},
                                                            {"inc", AtomOp::kInc}, {"dec", AtomOp::kDec}};
    for (const auto& [name, value] : kOps) {
        if (word != name) continue;
        op = value;
        return true;
    }
    return false;
}

bool parse_reduction_type(const std::string& word, AtomType& type) {
    constexpr std::pair<std::string_view, AtomType> kTypes[] = {
        {"b32", AtomType::kB32}, {"b64", AtomType::kB64}, {"u32", AtomType::kU32},   {"s32", AtomType::kS32}, {"u64", AtomType::kU64},
        {"s64", AtomType::kS64}, {"f16", AtomType::kF16}, {"bf16", AtomType::kBF16}, {"f32", AtomType::kF32}, {"f64", AtomType::kF64}};
    for (const auto& [name, value] : kTypes) {
        if (word != name) continue;
        type = value;
        return true;
    }
    return false;
}

bool is_valid_reduction(AtomOp op, AtomType type) {
    const bool is_bits = type == AtomType::kB32 || type == AtomType::kB64;
    const bool is_half = type == AtomType::kF16 || type == AtomType::kBF16;
    switch (op) {
        case AtomOp::kAdd: return !is_bits;
        case AtomOp::kMin:
        case AtomOp::kMax: return !is_bits && type != AtomType::kF32 && type != AtomType::kF64;
        case AtomOp::kInc:
        case AtomOp::kDec: return type == AtomType::kU32;
        default: return is_bits && !is_half;
    }
}

}  // namespace

void FunctionDecoder::begin_list(Inst& inst) {
    inst.imm = static_cast<uint32_t>(builder_.image->operand_lists.size());
    inst.counter = arith::Class::kControl;
    builder_.image->uses_async = true;
    std::vector<uint32_t>& list = builder_.image->operand_lists;
    list.resize(list.size() + kNumBulkSlots, builder_.constant_row(0, true));
    for (const uint32_t slot : {kSlotTo, kSlotFrom, kSlotBarrier}) list[inst.imm + slot + 1] = list[inst.imm + slot + 2] = 0;
}

void FunctionDecoder::list_source(const Inst& inst, uint32_t slot, const Operand& operand, uint8_t row_bytes, Type type) {
    // As a listed source, then moved to its slot.
    const uint32_t at = listed_source(operand, row_bytes, type);
    std::vector<uint32_t>& list = builder_.image->operand_lists;
    list[inst.imm + slot] = list[at];
    for (Ref& ref : pending_) {
        if (ref.field == Field::kListed && ref.slot == at) ref.slot = inst.imm + slot;
    }
    list.pop_back();
}

void FunctionDecoder::list_address(const Inst& inst, uint32_t slot, const Operand& operand) {
    const Address address = address_of(operand);
    if (address.space == MemSpace::kFrame) fail("an address in local memory");
    std::vector<uint32_t>& list = builder_.image->operand_lists;
    if (address.base_register != ~0u) {
        Operand base;
        base.kind = Operand::Kind::kRegister;
        base.name = operand.name;
        list_source(inst, slot, base, 8, Type::kB64);
    }
    list[inst.imm + slot + 1] = static_cast<uint32_t>(static_cast<uint64_t>(address.offset));
    list[inst.imm + slot + 2] = static_cast<uint32_t>(static_cast<uint64_t>(address.offset) >> 32);
    // A parameter by its name is an address in the parameters' window.
    if (address.space == MemSpace::kParam) list[inst.imm + slot + 2] |= static_cast<uint32_t>(kParamWindow >> 32);
}

// [map, {coordinates}]: fills Inst::bytes with the number of coordinates.
void FunctionDecoder::list_tensor(Inst& inst, uint32_t slot, const Operand& operand, uint32_t rank) {
    if (operand.kind != Operand::Kind::kTensorCoords || operand.elements.size() != 2) fail("a tensor map and coordinates are expected");
    list_address(inst, slot, operand.elements[0]);
    const Operand& where = operand.elements[1];
    const size_t count = where.kind == Operand::Kind::kVector ? where.elements.size() : 1;
    if (count != rank) fail("it has " + std::to_string(count) + " coordinates");
    for (uint32_t i = 0; i < count; ++i) {
        const Operand& coordinate = where.kind == Operand::Kind::kVector ? where.elements[i] : where;
        list_source(inst, kSlotCoordinates + i, coordinate, 4, Type::kS32);
    }
    inst.bytes = static_cast<uint8_t>(rank);
}

bool FunctionDecoder::decode_bulk() {
    const std::string& opcode = current_->opcode;
    const std::vector<std::string>& words = current_->modifiers;
    if ((opcode == "fence" || opcode == "membar") && has("proxy")) return decode_proxy_fence(), true;
    if (opcode == "tensormap") return decode_tensor_map(), true;
    if ((opcode == "st" || opcode == "red") && !words.empty() && words[0] == "async") return decode_store_async(), true;
    if (opcode != "cp" || !has("bulk")) return false;
    Inst inst;
    inst.op = Op::kBulk;
    const bool is_tensor = has("tensor");
    if (has("commit_group") || has("wait_group")) {
        begin_list(inst);
        const bool waits = has("wait_group");
        inst.mode = static_cast<uint8_t>(waits ? BulkOp::kWait : BulkOp::kCommit);
        if (has("read")) inst.mode2 |= kBulkReadOnly;
        expect_operands(waits ? 1 : 0, waits ? 1 : 0);
        if (waits) list_source(inst, kSlotSize, operand(0), 4, Type::kU32);
        return emit(inst), true;
    }
    const bool prefetches = has("prefetch");
    AtomOp op{};
    AtomType type{};
    uint32_t rank = 0;
    bool has_op = false, has_type = false;
    std::vector<std::string> spaces;
    for (const std::string& word : words) {
        if (word == "global" || word == "shared::cluster" || word == "shared::cta") {
            spaces.push_back(word);
        } else if (word == "multicast::cluster") {
            inst.mode2 |= kBulkMulticast;
        } else if (word == "im2col" || word == "im2col_no_offs") {
            inst.mode2 |= word == "im2col" ? kBulkIm2col : 0;
        } else if (word == "reduce") {
            inst.mode2 |= kBulkReduces;
        } else if (word.size() == 2 && word[1] == 'd' && word[0] >= '1' && word[0] <= '5' && is_tensor) {
            rank = static_cast<uint32_t>(word[0] - '0');
        } else if ((inst.mode2 & kBulkReduces) && !has_op && parse_reduction(word, op)) {
            has_op = true;
        } else if ((inst.mode2 & kBulkReduces) && !has_type && parse_reduction_type(word, type)) {
            has_type = true;
        } else if (word != "prefetch" && !is_bulk_word(word)) {
            fail("modifier '." + word + "' is not supported");
        }
    }
    if (is_tensor && rank == 0) fail("the number of dimensions is missing");
    if ((inst.mode2 & kBulkReduces) && (!has_op || (!is_tensor && (!has_type || !is_valid_reduction(op, type)))))
        fail("this operation is not defined for the type");
    inst.vec = static_cast<uint8_t>(op);
    inst.dbytes = static_cast<uint8_t>(type);
    inst.mode = static_cast<uint8_t>(prefetches ? (is_tensor ? BulkOp::kTensorPrefetch : BulkOp::kPrefetch)
                                                : (is_tensor ? BulkOp::kTensor : BulkOp::kCopy));
    begin_list(inst);
    size_t at = 0;
    if (prefetches) {
        if (is_tensor)
            list_tensor(inst, kSlotFrom, operand(at++), rank);
        else
            list_address(inst, kSlotFrom, operand(at++));
    } else {
        if (spaces.size() != 2) fail("two state spaces are expected");
        if (spaces[0] == "global") inst.mode2 |= kBulkToGlobal;
        if (spaces[1] != "global") inst.mode2 |= kBulkFromShared;
        const bool to_global = inst.mode2 & kBulkToGlobal;
        if (to_global != has("bulk_group")) fail("this way of completion does not belong to these state spaces");
        if (to_global && is_tensor) {
            list_tensor(inst, kSlotTo, operand(at++), rank);
            list_address(inst, kSlotFrom, operand(at++));
        } else {
            list_address(inst, kSlotTo, operand(at++));
            if (is_tensor)
                list_tensor(inst, kSlotFrom, operand(at++), rank);
            else
                list_address(inst, kSlotFrom, operand(at++));
        }
    }
    if (!is_tensor) list_source(inst, kSlotSize, operand(at++), 4, Type::kU32);
    if (!prefetches && !(inst.mode2 & kBulkToGlobal)) list_address(inst, kSlotBarrier, operand(at++));
    if (inst.mode2 & kBulkIm2col && !(inst.mode2 & kBulkToGlobal)) {
        const Operand& offsets = operand(at++);
        const size_t count = offsets.kind == Operand::Kind::kVector ? offsets.elements.size() : 1;
        if (rank < 3 || count != rank - 2) fail("it has " + std::to_string(count) + " offsets");
        for (uint32_t i = 0; i < count; ++i)
            list_source(inst, kSlotOffsets + i, offsets.kind == Operand::Kind::kVector ? offsets.elements[i] : offsets, 4, Type::kU16);
    }
    if (inst.mode2 & kBulkMulticast) list_source(inst, kSlotMask, operand(at++), 4, Type::kU16);
    if (has("L2::cache_hint")) ++at;
    expect_operands(at, at);
    return emit(inst), true;
}

void FunctionDecoder::decode_proxy_fence() {
    Inst inst;
    inst.op = Op::kProxyFence;
    inst.counter = arith::Class::kControl;
    // 0: all of the async proxy, 1: global, 2: shared, 3: alias, 4: tensor maps.
    inst.mode = 0;
    for (const std::string& word : current_->modifiers) {
        if (word == "alias")
            inst.mode = 3;
        else if (word == "tensormap::generic")
            inst.mode = 4;
        else if (word == "global")
            inst.mode = 1;
        else if (word == "shared::cta" || word == "shared::cluster")
            inst.mode = 2;
        else if (word != "proxy" && word != "async" && word != "async::generic" && word != "acquire" && word != "release" &&
                 word != "cta" && word != "cluster" && word != "gpu" && word != "sys" && word != "sync_restrict::shared::cta" &&
                 word != "sync_restrict::shared::cluster")
            fail("modifier '." + word + "' is not supported");
    }
    expect_operands(0, inst.mode == 4 ? 2 : 0);
    emit(inst);
}

// tensormap.replace.tile.<field>{.ss}.b1024.<type> [address]{, ordinal}, value; tensormap.cp_fenceproxy... [to], [from], 128.
void FunctionDecoder::decode_tensor_map() {
    Inst inst;
    inst.op = Op::kBulk;
    begin_list(inst);
    if (has("cp_fenceproxy")) {
        inst.mode = static_cast<uint8_t>(BulkOp::kCopyMap);
        expect_operands(3, 3);
        list_address(inst, kSlotTo, operand(0));
        list_address(inst, kSlotFrom, operand(1));
        return emit(inst);
    }
    if (!has("replace") || !has("tile")) fail("it is not supported");
    inst.mode = static_cast<uint8_t>(BulkOp::kReplace);
    constexpr std::pair<std::string_view, MapField> kFields[] = {
        {"global_address", MapField::kAddress},
        {"rank", MapField::kRank},
        {"box_dim", MapField::kBox},
        {"global_dim", MapField::kExtent},
        {"global_stride", MapField::kStride},
        {"element_stride", MapField::kStep},
        {"elemtype", MapField::kType},
        {"interleave_layout", MapField::kInterleave},
        {"swizzle_mode", MapField::kSwizzle},
        {"fill_mode", MapField::kFill},
    };
    bool found = false, row64 = false;
    for (const std::string& word : current_->modifiers) {
        for (const auto& [name, field] : kFields) {
            if (word != name) continue;
            inst.vec = static_cast<uint8_t>(field);
            found = true;
        }
        if (word == "shared::cta") inst.mode2 |= kBulkFromShared;
        row64 |= word == "b64";
    }
    if (!found) fail("this field is not supported");
    const MapField field = static_cast<MapField>(inst.vec);
    const bool has_ordinal =
        field == MapField::kBox || field == MapField::kExtent || field == MapField::kStride || field == MapField::kStep;
    expect_operands(has_ordinal ? 3 : 2, has_ordinal ? 3 : 2);
    list_address(inst, kSlotTo, operand(0));
    if (has_ordinal) list_source(inst, kSlotSize, operand(1), 4, Type::kU32);
    inst.dbytes = row64 ? 8 : 4;
    list_source(inst, kSlotMask, operand(has_ordinal ? 2 : 1), inst.dbytes, row64 ? Type::kB64 : Type::kB32);
    emit(inst);
}

// st.async{.weak}.shared::cluster.mbarrier::complete_tx::bytes{.vec}.type [to], value, [mbarrier]; red.async...op.type likewise.
void FunctionDecoder::decode_store_async() {
    Inst inst;
    inst.op = Op::kBulk;
    inst.mode = static_cast<uint8_t>(BulkOp::kStoreAsync);
    begin_list(inst);
    AtomOp op{};
    AtomType type{};
    uint32_t elements = 1;
    bool has_op = false, has_type = false, row64 = false;
    const bool reduces = current_->opcode == "red";
    if (reduces) inst.mode2 |= kBulkReduces;
    for (size_t i = 1; i < current_->modifiers.size(); ++i) {
        const std::string& word = current_->modifiers[i];
        if (word == "v2" || word == "v4") {
            elements = static_cast<uint32_t>(word[1] - '0');
        } else if (reduces && !has_op && parse_reduction(word, op)) {
            has_op = true;
        } else if (!has_type && parse_reduction_type(word, type)) {
            has_type = true;
            row64 = word.find("64") != std::string::npos;
        } else if (word != "weak" && word != "relaxed" && word != "cluster" && word != "shared::cluster" &&
                   word != "mbarrier::complete_tx::bytes") {
            fail("modifier '." + word + "' is not supported");
        }
    }
    if (!has_type || (reduces && (!has_op || !is_valid_reduction(op, type))) || !has("mbarrier::complete_tx::bytes"))
        fail("this form is not supported");
    expect_operands(3, 3);
    list_address(inst, kSlotTo, operand(0));
    const Operand& data = operand(1);
    if ((data.kind == Operand::Kind::kVector ? data.elements.size() : 1) != elements) fail("the vector has another length");
    for (uint32_t i = 0; i < elements; ++i)
        list_source(inst, kSlotValues + i, data.kind == Operand::Kind::kVector ? data.elements[i] : data, row64 ? 8 : 4,
                    row64 ? Type::kB64 : Type::kB32);
    list_address(inst, kSlotBarrier, operand(2));
    inst.vec = static_cast<uint8_t>(op);
    inst.dbytes = static_cast<uint8_t>(type);
    inst.bytes = static_cast<uint8_t>(elements * (row64 ? 8 : 4));
    emit(inst);
}

}  // namespace aicf::emu
