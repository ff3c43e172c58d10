// Tensor-core instructions. PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions".
#include <algorithm>
#include <cstdio>
#include <span>

#include "../tensor/tensor.hpp"
#include "decode.hpp"

namespace aicf::emu {

using ptx::Operand;
using ptx::Type;

namespace {

bool parse_elem(const std::string& word, Elem& elem) {
    constexpr std::pair<const char*, Elem> kNames[] = {
        {"f16", Elem::kF16},   {"bf16", Elem::kBF16}, {"tf32", Elem::kTF32}, {"f64", Elem::kF64}, {"e4m3", Elem::kE4M3},
        {"e5m2", Elem::kE5M2}, {"s8", Elem::kS8},     {"u8", Elem::kU8},     {"s4", Elem::kS4},   {"u4", Elem::kU4},
        {"b1", Elem::kB1},     {"f32", Elem::kF32},   {"s32", Elem::kS32}};
    for (const auto& [name, value] : kNames) {
        if (word != name) continue;
        elem = value;
        return true;
    }
    return false;
}

bool parse_shape(const std::string& word, MatrixForm& form) {
    unsigned m = 0, n = 0, k = 0;
    char rest = 0;
    if (std::sscanf(word.c_str(), "m%un%uk%u%c", &m, &n, &k, &rest) != 3 || m > 64 || n > 256 || n % 8 || k > 256) return false;
    form.m = static_cast<uint8_t>(m);
    form.n8 = static_cast<uint8_t>(n / 8);
    form.k = static_cast<uint16_t>(k);
    return true;
}

struct Shape {
    Elem factor;  // kS8, kS4 and kE4M3 stand for their kin as well
    uint8_t m, n;
    uint16_t k;
};

constexpr Shape kMmaShapes[] = {
    {Elem::kF16, 8, 8, 4},   {Elem::kF16, 16, 8, 8},   {Elem::kF16, 16, 8, 16},  {Elem::kBF16, 16, 8, 8}, {Elem::kBF16, 16, 8, 16},
    {Elem::kTF32, 16, 8, 4}, {Elem::kTF32, 16, 8, 8},  {Elem::kF64, 8, 8, 4},    {Elem::kF64, 16, 8, 4},  {Elem::kF64, 16, 8, 8},
    {Elem::kF64, 16, 8, 16}, {Elem::kE4M3, 16, 8, 16}, {Elem::kE4M3, 16, 8, 32}, {Elem::kS8, 8, 8, 16},   {Elem::kS8, 16, 8, 16},
    {Elem::kS8, 16, 8, 32},  {Elem::kS4, 8, 8, 32},    {Elem::kS4, 16, 8, 32},   {Elem::kS4, 16, 8, 64},  {Elem::kB1, 8, 8, 128},
    {Elem::kB1, 16, 8, 128}, {Elem::kB1, 16, 8, 256},
};
constexpr Shape kSparseShapes[] = {
    {Elem::kF16, 16, 8, 16}, {Elem::kF16, 16, 8, 32},  {Elem::kBF16, 16, 8, 16}, {Elem::kBF16, 16, 8, 32},
    {Elem::kTF32, 16, 8, 8}, {Elem::kTF32, 16, 8, 16}, {Elem::kE4M3, 16, 8, 64}, {Elem::kS8, 16, 8, 32},
    {Elem::kS8, 16, 8, 64},  {Elem::kS4, 16, 8, 64},   {Elem::kS4, 16, 8, 128},
};
constexpr Shape kWmmaShapes[] = {
    {Elem::kF16, 16, 16, 16}, {Elem::kF16, 32, 8, 16}, {Elem::kF16, 8, 32, 16}, {Elem::kBF16, 16, 16, 16}, {Elem::kBF16, 32, 8, 16},
    {Elem::kBF16, 8, 32, 16}, {Elem::kS8, 16, 16, 16}, {Elem::kS8, 32, 8, 16},  {Elem::kS8, 8, 32, 16},    {Elem::kTF32, 16, 16, 8},
    {Elem::kF64, 8, 8, 4},    {Elem::kS4, 8, 8, 32},   {Elem::kB1, 8, 8, 128},
};

bool is_kin(Elem factor, Elem of) {
    const auto head = [](Elem elem) {
        return elem == Elem::kU8 ? Elem::kS8 : elem == Elem::kU4 ? Elem::kS4 : elem == Elem::kE5M2 ? Elem::kE4M3 : elem;
    };
    return head(factor) == head(of);
}

bool is_listed(const MatrixForm& form, Elem factor, std::span<const Shape> shapes) {
    return std::any_of(shapes.begin(), shapes.end(), [&](const Shape& shape) {
        return is_kin(factor, shape.factor) && form.m == shape.m && form.n() == shape.n && form.k == shape.k;
    });
}

// The accumulator types that go with a factor type.
bool can_accumulate(Elem factor, Elem accumulator) {
    if (is_integer(factor)) return accumulator == Elem::kS32;
    if (factor == Elem::kF64) return accumulator == Elem::kF64;
    if (factor == Elem::kF16 || is_float8(factor)) return accumulator == Elem::kF16 || accumulator == Elem::kF32;
    return accumulator == Elem::kF32;
}

std::span<const Operand> elements_of(const Operand& operand) {
    if (operand.kind == Operand::Kind::kVector) return operand.elements;
    return {&operand, 1};
}

Type immediate_type(Elem elem) { return elem == Elem::kF32 ? Type::kF32 : elem == Elem::kF64 ? Type::kF64 : Type::kB32; }

}  // namespace

bool FunctionDecoder::decode_tensor() {
    const std::string& opcode = current_->opcode;
    if (opcode == "mma") {
        decode_mma();
    } else if (opcode == "wmma") {
        if (has("mma"))
            decode_mma();
        else
            decode_wmma_access();
    } else if (opcode == "wgmma") {
        decode_wgmma();
    } else if (opcode == "ldmatrix" || opcode == "stmatrix") {
        decode_matrix_access(opcode == "ldmatrix");
    } else if (opcode == "movmatrix") {
        if (!has("m8n8") || !has("trans") || !has("b16")) fail("its shape or type is not supported");
        expect_operands(2, 2);
        Inst inst;
        inst.op = Op::kMoveMatrix;
        inst.c = builder_.constant_row(~0u, false);
        source(inst, Field::kA, operand(1), 4, Type::kB32);
        destination(inst, Field::kD, operand(0), 4);
        emit(inst);
    } else {
        return false;
    }
    return true;
}

// Appends what the instruction is to the list of operands; returns its index.
uint32_t FunctionDecoder::list_form(const MatrixForm& form) {
    std::vector<uint32_t>& list = builder_.image->operand_lists;
    const uint32_t at = static_cast<uint32_t>(list.size());
    list.resize(at + kFormWords);
    put_form(form, &list[at]);
    return at;
}

void FunctionDecoder::decode_mma() {
    const bool is_wmma = current_->opcode == "wmma";
    MatrixForm form;
    std::vector<Elem> types;
    std::vector<bool> layouts;
    bool has_shape = false;
    for (const std::string& word : current_->modifiers) {
        Elem elem;
        if (parse_elem(word, elem)) {
            types.push_back(elem);
        } else if (parse_shape(word, form)) {
            has_shape = true;
        } else if (word == "row" || word == "col") {
            layouts.push_back(word == "row");
        } else if (word == "satfinite") {
            form.satfinite = 1;
        } else if (word == "and") {
            form.bit_and = 1;
        } else if (!is_wmma && (word == "sp" || word == "sp::ordered_metadata")) {
            form.sparse = 1;
        } else if (word != "sync" && word != "aligned" && word != "popc" && word != "xor" && word != "mma" && word != "rn") {
            fail("modifier '." + word + "' is not supported");
        }
    }
    if (is_wmma && types.size() == 2) types = {types[0], Elem::kF16, Elem::kF16, types[1]};
    if (!has_shape || types.size() != 4 || layouts.size() != 2) fail("its shape, layouts or types are not known");
    form.d = types[0];
    form.a = types[1];
    form.b = types[2];
    form.c = types[3];
    const std::span<const Shape> shapes = is_wmma       ? std::span<const Shape>(kWmmaShapes)
                                          : form.sparse ? std::span<const Shape>(kSparseShapes)
                                                        : std::span<const Shape>(kMmaShapes);
    if (!is_kin(form.a, form.b) || !is_listed(form, form.a, shapes)) fail("this shape does not exist for its types");
    if (!can_accumulate(form.a, form.c) || !can_accumulate(form.a, form.d)) fail("its factors and accumulators do not go together");
    form.quad_pairs = !is_wmma && form.a == Elem::kF16 && form.m == 8;
    form.a_col = !layouts[0];
    form.b_row = layouts[1];
    // Fragments of wmma have one form for both layouts; mma fixes the layout, but for quad pairs.
    if (!is_wmma && !form.quad_pairs && (form.a_col || form.b_row)) fail("A has to be .row and B .col");

    expect_operands(form.sparse ? 6 : 4, form.sparse ? 6 : 4);
    if (form.sparse) form.selector = sparse_selector(form, operand(5));
    const auto d = elements_of(operand(0)), a = elements_of(operand(1)), b = elements_of(operand(2)), c = elements_of(operand(3));
    const bool copies = is_wmma && form.a == Elem::kF16;  // always 8 registers
    const auto expect = [&](std::span<const Operand> elements, uint32_t count) {
        if (elements.size() != count)
            fail("an operand has " + std::to_string(elements.size()) + " registers, not " + std::to_string(count));
    };
    expect(a, form.quad_pairs ? 2 : copies ? 8 : operand_registers(form.m, form.sparse ? form.k / 2 : form.k, form.a));
    expect(b, form.quad_pairs ? 2 : copies ? 8 : operand_registers(form.n(), form.k, form.b));
    const auto accumulator = [&](Elem elem) {
        return form.quad_pairs ? (elem == Elem::kF16 ? 4u : 8u) : accumulator_registers(form.m, form.n(), elem);
    };
    expect(c, accumulator(form.c));
    expect(d, accumulator(form.d));
    Inst inst;
    inst.op = Op::kMma;
    inst.bytes = static_cast<uint8_t>(d.size());
    inst.vec = static_cast<uint8_t>(a.size());
    inst.dbytes = static_cast<uint8_t>(b.size());
    inst.c = builder_.constant_row(~0u, false);
    inst.imm = list_form(form);
    const uint8_t row = form.a == Elem::kF64 ? 8 : 4;
    for (const Operand& element : d) listed_destination(element, row);
    for (const Operand& element : a) listed_source(element, row, immediate_type(form.a));
    for (const Operand& element : b) listed_source(element, row, immediate_type(form.b));
    for (const Operand& element : c) listed_source(element, row, immediate_type(form.c));
    if (form.sparse) listed_source(operand(4), 4, Type::kB32);
    emit(inst);
}

// Which lanes of four hold the metadata of a sparse A: one of them, two neighbours, or all.
uint8_t FunctionDecoder::sparse_selector(const MatrixForm& form, const Operand& operand) const {
    if (operand.kind != Operand::Kind::kImmediate) fail("the sparsity selector must be a constant");
    const uint32_t bits = form.a == Elem::kTF32 ? 4 : bits_of(form.a) == 4 ? 1 : 2;  // of an element
    const uint32_t lanes = form.k * bits / 32;
    const uint64_t most = lanes <= 1 ? 3 : lanes == 2 ? 1 : 0;
    if (operand.bits > most) fail("the sparsity selector is at most " + std::to_string(most));
    return static_cast<uint8_t>(operand.bits);
}

void FunctionDecoder::decode_wmma_access() {
    const bool is_store = has("store");
    MatrixForm form;
    Inst inst;
    inst.op = Op::kMma;
    inst.mode = is_store ? 2 : 1;
    Elem elem = Elem::kF16;
    bool has_shape = false, has_type = false, is_row = true;
    for (const std::string& word : current_->modifiers) {
        if (parse_elem(word, elem)) {
            has_type = true;
        } else if (parse_shape(word, form)) {
            has_shape = true;
        } else if (word == "a" || word == "b" || word == "c" || word == "d") {
            form.fragment = static_cast<uint8_t>(word == "d" ? 'c' : word[0]);
        } else if (word == "row" || word == "col") {
            is_row = word == "row";
        } else if (word == "global") {
            inst.space = MemSpace::kGlobal;
        } else if (word == "shared" || word == "shared::cta") {
            inst.space = MemSpace::kShared;
        } else if (word != "load" && word != "store" && word != "sync" && word != "aligned") {
            fail("modifier '." + word + "' is not supported");
        }
    }
    if (!has_shape || !has_type || !form.fragment) fail("its shape, type or fragment is not known");
    form.a = form.b = form.c = elem;
    form.a_col = !is_row;  // of A, and of accumulators
    form.b_row = is_row;
    const bool is_accumulator = form.fragment == 'c';
    const auto fits = [&](Elem factor) {
        return is_listed(form, factor, kWmmaShapes) && (!is_accumulator || can_accumulate(factor, elem));
    };
    constexpr Elem kFactors[] = {Elem::kF16, Elem::kBF16, Elem::kTF32, Elem::kF64, Elem::kS8, Elem::kS4, Elem::kB1};
    if (!(is_accumulator ? std::any_of(std::begin(kFactors), std::end(kFactors), fits) : fits(elem)))
        fail("this shape does not exist for its type");
    if ((elem == Elem::kS4 || elem == Elem::kU4 || elem == Elem::kB1) && is_row != (form.fragment == 'a'))
        fail("A has to be .row and B .col");

    expect_operands(2, 3);
    const Operand& data = operand(is_store ? 1 : 0);
    const auto elements = elements_of(data);
    const uint32_t rows = form.fragment == 'b' ? form.n() : form.m;
    const uint32_t expected = is_accumulator       ? accumulator_registers(form.m, form.n(), elem)
                              : elem == Elem::kF16 ? 8
                                                   : operand_registers(rows, form.k, elem);
    if (elements.size() != expected) fail("the fragment has " + std::to_string(elements.size()) + " registers");
    inst.vec = static_cast<uint8_t>(elements.size());
    inst.c = builder_.constant_row(~0u, false);
    inst.imm = list_form(form);
    const uint8_t row = elem == Elem::kF64 ? 8 : 4;
    for (const Operand& element : elements) {
        if (is_store)
            listed_source(element, row, immediate_type(elem));
        else
            listed_destination(element, row);
    }
    const Address address = address_of(operand(is_store ? 0 : 1));
    if (address.space == MemSpace::kFrame) fail("a fragment in local memory");
    if (address.is_symbol && address.space == MemSpace::kShared) inst.space = MemSpace::kShared;
    if (current_->operands.size() == 3) {
        source(inst, Field::kB, operand(2), 4, Type::kU32);
    } else {
        // The matrix lies densely.
        const uint32_t row_elems = is_accumulator ? form.n() : form.fragment == 'a' ? form.k : form.n();
        const uint32_t column_elems = form.fragment == 'b' ? form.k : form.m;
        inst.b = builder_.constant_row(is_row ? row_elems : column_elems, false);
    }
    // A row to put elements together in. Written and, so that it is no source's row, read.
    const uint32_t scratch = new_temporary(RegClass::k32);
    reference(Field::kE, scratch, false);
    reference(Field::kE, scratch, true);
    narrow_access(std::max(1u, bits_of(elem) / 8), inst.space);
    apply_address(inst, address);
    emit(inst);
}

void FunctionDecoder::decode_matrix_access(bool is_load) {
    Inst inst;
    inst.op = is_load ? Op::kLoadMatrix : Op::kStoreMatrix;
    inst.vec = 0;
    bool has_shape = false, has_type = false;
    for (const std::string& word : current_->modifiers) {
        if (word == "x1" || word == "x2" || word == "x4") {
            inst.vec = static_cast<uint8_t>(word[1] - '0');
        } else if (word == "m8n8") {
            has_shape = true;
        } else if (word == "b16") {
            has_type = true;
        } else if (word == "trans") {
            inst.mode = 1;
        } else if (word == "m16n16" || word == "m8n16" || word == "m16n8" || word == "b8") {
            fail("shape or type '." + word + "' needs a newer target than sm_90");
        } else if (word != "sync" && word != "aligned" && word != "shared" && word != "shared::cta") {
            fail("modifier '." + word + "' is not supported");
        }
    }
    if (!has_shape || !has_type || inst.vec == 0) fail("its shape, number or type is not known");
    expect_operands(2, 2);
    const auto elements = elements_of(operand(is_load ? 0 : 1));
    if (elements.size() != inst.vec) fail("the vector has " + std::to_string(elements.size()) + " elements");
    inst.imm = static_cast<uint32_t>(builder_.image->operand_lists.size());
    inst.c = builder_.constant_row(~0u, false);
    for (const Operand& element : elements) {
        if (is_load)
            listed_destination(element, 4);
        else
            listed_source(element, 4, Type::kB32);
    }
    const Address address = address_of(operand(is_load ? 1 : 0));
    if (address.space == MemSpace::kFrame || address.space == MemSpace::kParam) fail("an address in shared memory is expected");
    narrow_access(16, MemSpace::kShared);
    apply_address(inst, address);
    emit(inst);
}

// Registers of a function that wgmma reads or writes while the program goes on.
void FunctionDecoder::find_wgmma_registers() {
    std::set<uint32_t> accumulators;
    for (const ptx::Instruction& instruction : function_.instructions) {
        if (instruction.opcode != "wgmma" || !instruction.has("mma_async")) continue;
        for (size_t i = 0; i < 2 && i < instruction.operands.size(); ++i) {
            if (instruction.operands[i].kind != Operand::Kind::kVector) continue;
            for (const Operand& element : instruction.operands[i].elements) {
                auto it = registers_.find(element.name);
                if (element.kind != Operand::Kind::kRegister || it == registers_.end()) continue;
                wgmma_registers_.insert(it->second);
                if (i == 0) accumulators.insert(it->second);
            }
        }
    }
    wgmma_accumulators_.assign(accumulators.begin(), accumulators.end());
}

void FunctionDecoder::touch_wgmma_registers() {
    Inst inst;
    inst.op = Op::kWgmma;
    inst.mode = static_cast<uint8_t>(WgmmaMode::kTouch);
    inst.flags = kFlagHidden;
    inst.vec = current_->opcode == "mov";
    std::vector<uint32_t>& list = builder_.image->operand_lists;
    inst.imm = static_cast<uint32_t>(list.size());
    uint32_t count = 0;
    const auto visit = [&](const auto& self, const Operand& operand, bool is_written) -> void {
        for (const Operand& element : operand.elements) self(self, element, is_written);
        const bool is_register =
            operand.kind == Operand::Kind::kRegister || (operand.kind == Operand::Kind::kAddress && operand.base_is_register);
        if (!is_register || count == 32) return;
        auto it = registers_.find(operand.name);
        if (it == registers_.end() || !wgmma_registers_.contains(it->second)) return;
        pending_.push_back({0, Field::kListed, false, it->second, static_cast<uint32_t>(list.size())});
        list.push_back(0);
        if (is_written) inst.e |= 1u << count;
        ++count;
    };
    // Destinations come first; where there is none, the first operand is an address or a label.
    for (size_t i = 0; i < current_->operands.size(); ++i) visit(visit, current_->operands[i], i == 0);
    if (count == 0) return;
    inst.bytes = static_cast<uint8_t>(count);
    emit(inst);
}

void FunctionDecoder::decode_wgmma() {
    Inst inst;
    inst.op = Op::kWgmma;
    inst.c = builder_.constant_row(~0u, false);
    if (has("fence") || has("commit_group")) {
        expect_operands(0, 0);
        inst.mode = static_cast<uint8_t>(has("fence") ? WgmmaMode::kFence : WgmmaMode::kCommit);
        return emit(inst);
    }
    std::vector<uint32_t>& list = builder_.image->operand_lists;
    if (has("wait_group")) {
        expect_operands(1, 1);
        if (operand(0).kind != Operand::Kind::kImmediate) fail("the number of groups must be a constant");
        inst.mode = static_cast<uint8_t>(WgmmaMode::kWait);
        inst.offset = static_cast<int64_t>(operand(0).bits);
        // Accumulators are written here at the earliest: their registers must not be anybody else's until then.
        for (uint32_t reg : wgmma_accumulators_) {
            pending_.push_back({0, Field::kListed, false, reg, static_cast<uint32_t>(list.size())});
            list.push_back(0);
        }
        return emit(inst);
    }
    if (!has("mma_async")) fail("it is not known");
    inst.mode = static_cast<uint8_t>(WgmmaMode::kMultiply);
    MatrixForm form;
    std::vector<Elem> types;
    bool has_shape = false;
    for (const std::string& word : current_->modifiers) {
        Elem elem;
        if (parse_elem(word, elem))
            types.push_back(elem);
        else if (parse_shape(word, form))
            has_shape = true;
        else if (word == "satfinite")
            form.satfinite = 1;
        else if (word == "and")
            form.bit_and = 1;
        else if (word == "sp")
            form.sparse = 1;
        else if (word != "mma_async" && word != "sync" && word != "aligned" && word != "popc")
            fail("modifier '." + word + "' is not supported");
    }
    if (!has_shape || types.size() != 3) fail("its shape or types are not known");
    form.d = form.c = types[0];
    form.a = types[1];
    form.b = types[2];
    const bool is_known = form.a == Elem::kF16 || form.a == Elem::kBF16 || form.a == Elem::kTF32 || is_float8(form.a) ||
                          form.a == Elem::kS8 || form.a == Elem::kU8 || (form.a == Elem::kB1 && form.bit_and);
    if (form.sparse && form.a == Elem::kB1) fail("its types do not go together");
    if (!is_known || !is_kin(form.a, form.b) || !can_accumulate(form.a, form.d)) fail("its types do not go together");
    const uint32_t n = form.n();
    const bool has_n = n >= 8 && (!is_integer(form.a) || n <= 24 || n % 16 == 0);
    if (form.m != 64 || form.k != (form.sparse ? 512 : 256) / bits_of(form.a) || !has_n) fail("this shape does not exist for its types");

    form.a_in_registers = operand(1).kind == Operand::Kind::kVector;
    const bool is_16_bit = bits_of(form.a) == 16;
    const size_t constants = is_integer(form.a) ? 0 : 2 + (is_16_bit ? (form.a_in_registers ? 1 : 2) : 0);
    const size_t shift = form.sparse ? 2 : 0;  // metadata and selector
    expect_operands(4 + shift + constants, 4 + shift + constants);
    if (form.sparse) form.selector = sparse_selector(form, operand(4));
    const auto constant = [&](size_t number) {
        const size_t index = number + shift;
        if (operand(index).kind != Operand::Kind::kImmediate) fail("operand " + std::to_string(index + 1) + " must be a constant");
        return static_cast<int64_t>(operand(index).bits);
    };
    if (constants) {
        form.negate_a = constant(4) == -1;
        form.negate_b = constant(5) == -1;
    }
    if (is_16_bit) {
        if (!form.a_in_registers) form.a_col = constant(6) != 0;
        form.b_row = constant(form.a_in_registers ? 6 : 7) != 0;
    }
    const auto d = elements_of(operand(0));
    if (d.size() != accumulator_registers(16, n, form.d)) fail("the accumulator has " + std::to_string(d.size()) + " registers");
    source_predicate(inst, Field::kPa, operand(3 + shift));
    source(inst, Field::kB, operand(2), 8, Type::kB64);
    if (!form.a_in_registers) source(inst, Field::kA, operand(1), 8, Type::kB64);
    inst.imm = list_form(form);
    for (const Operand& element : d) {
        const uint32_t slot = listed_destination(element, 4);
        if (element.kind == Operand::Kind::kRegister) pending_.push_back({0, Field::kListed, false, register_id(element.name), slot});
    }
    if (form.a_in_registers) {
        if (operand(1).elements.size() != 4) fail("A has " + std::to_string(operand(1).elements.size()) + " registers");
        for (const Operand& element : operand(1).elements) listed_source(element, 4, Type::kB32);
    }
    if (form.sparse) listed_source(operand(3), 4, Type::kB32);
    emit(inst);
}

}  // namespace aicf::emu
