// Decoding of one kernel image: what the functions of decode_*.cpp share.
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "program.hpp"

namespace aicf::emu {

struct MatrixForm;

// The parts of an image that all its functions share.
class ImageBuilder {
public:
    ImageBuilder(const ProgramImpl& program, const ptx::Function& kernel, ArithFind find);
    std::unique_ptr<Image> build();

    uint32_t constant_row(uint64_t bits, bool row64);
    uint32_t special_row(Special special, bool row64);
    uint32_t param_row(uint32_t offset, uint8_t bytes, bool sign_extend, bool row64);
    uint32_t add_call(CallInfo call);
    uint32_t add_branch_table(std::vector<uint32_t> table);

    const ProgramImpl& program;
    const ptx::Function& kernel;
    ArithFind find_arith;
    std::map<std::string, uint32_t> shared_symbols;    // name -> address in the shared window
    std::map<std::string, uint32_t> function_indices;  // name -> index into image->functions
    std::unique_ptr<Image> image;

private:
    void collect_functions();
    void lay_out_shared();
    void size_stacks();

    std::vector<const ptx::Function*> functions_;
    std::map<std::pair<uint64_t, bool>, uint32_t> constants_;
    std::map<Special, uint32_t> specials_;
    std::map<uint64_t, uint32_t> params_;
};

uint64_t function_address(const ptx::Module& module, const std::string& name);  // 0: no such function with a body
const ptx::Function* find_body(const ptx::Module& module, const std::string& name);
// Whether all functions that it calls by name are there. nvcc links its device runtime library into every -rdc program, whose functions
// call what only a GPU's system has: they matter where they are called.
bool calls_what_is_there(const ptx::Module& module, const ptx::Function& function);

class FunctionDecoder {
public:
    FunctionDecoder(ImageBuilder& builder, const ptx::Function& function, uint32_t index);
    // Appends the function's code to the image.
    void decode();

private:
    struct Address {
        uint32_t base_register = ~0u;
        bool base64 = true;
        int64_t offset = 0;
        MemSpace space = MemSpace::kGeneric;  // as implied by a symbol; kGeneric: not implied
        bool is_symbol = false;
    };

    // Throws LoadError, for the reason that decode/refused.cpp knows, or else for this one.
    [[noreturn]] void fail(const std::string& reason) const;
    std::string refusal() const;
    void lay_out_frame();
    void decode_instruction(const ptx::Instruction& instruction);
    void finish();

    // Instruction families; each one decodes `current()` or returns false when the opcode is not its own.
    bool decode_move();
    bool decode_memory();
    bool decode_control();
    bool decode_collective();
    bool decode_async();
    bool decode_tensor();    // mma, wmma, ldmatrix, stmatrix, movmatrix, wgmma
    bool decode_bulk();      // cp.async.bulk and its kin, tensor maps, fence.proxy
    bool decode_mbarrier();
    bool decode_cluster();   // mapa, getctarank, barrier.cluster, griddepcontrol, setmaxnreg
    bool decode_texture();
    void decode_texture_query();
    void decode_proxy_fence();
    void decode_tensor_map();
    void decode_store_async();
    // Operands of bulk copies, in the slots of bulk.hpp.
    void begin_list(Inst& inst);
    void list_source(const Inst& inst, uint32_t slot, const ptx::Operand& operand, uint8_t row_bytes, ptx::Type type);
    void list_address(const Inst& inst, uint32_t slot, const ptx::Operand& operand);
    void list_tensor(Inst& inst, uint32_t slot, const ptx::Operand& operand, uint32_t rank);
    void decode_arith();

    void decode_mov();
    void decode_vector_mov();
    void decode_load_store(bool is_load);
    void decode_atomic(bool returns);
    void decode_cvta();
    void decode_isspacep();
    void decode_barrier();
    void decode_alloca();
    void save_stack();
    void restore_stack();
    void decode_call();
    void decode_branch();
    void decode_vote();
    void decode_shfl();
    void decode_match();
    void decode_redux();
    void decode_mma();
    void decode_wmma_access();
    void decode_matrix_access(bool is_load);
    void decode_wgmma();
    void find_wgmma_registers();
    void touch_wgmma_registers();  // before an instruction that uses registers of a wgmma
    uint32_t list_form(const MatrixForm& form);
    uint8_t sparse_selector(const MatrixForm& form, const ptx::Operand& operand) const;

    // Operands.
    uint32_t register_id(const std::string& name) const;
    bool is_declared(const std::string& name) const { return registers_.contains(name); }
    RegClass class_of(uint32_t reg) const { return classes_[reg]; }
    uint32_t new_temporary(RegClass kind);
    // A 128-bit register as the two 64-bit ones that stand for it, the lower first; an immediate, with its upper half 0.
    std::vector<ptx::Operand> halves(const ptx::Operand& operand) const;
    void reference(Field field, uint32_t reg, bool is_def);
    void source(Inst& inst, Field field, const ptx::Operand& operand, uint8_t row_bytes, ptx::Type immediate_type);
    // Operands in Image::operand_lists: each call appends one and returns its index; Inst::imm takes the first one's. A sink gives a trash
    // row.
    uint32_t listed_source(const ptx::Operand& operand, uint8_t row_bytes, ptx::Type immediate_type);
    uint32_t listed_destination(const ptx::Operand& operand, uint8_t row_bytes);
    void source_predicate(Inst& inst, Field field, const ptx::Operand& operand);
    void destination(Inst& inst, Field field, const ptx::Operand& operand, uint8_t row_bytes, bool sign_extend = false);
    void destination_predicate(Inst& inst, Field field, const ptx::Operand& operand);
    void apply_guard(Inst& inst);
    Address address_of(const ptx::Operand& operand) const;
    void apply_address(Inst& inst, const Address& address);
    bool symbol_value(const std::string& name, uint64_t& value) const;  // false: a frame variable or unknown
    void emit(Inst inst);
    void emit_hidden(Inst inst, const std::vector<Ref>& refs);
    bool has(const char* modifier) const { return current_->has(modifier); }
    const ptx::Operand& operand(size_t index) const;
    void expect_operands(size_t least, size_t most) const;
    void narrow_access(uint32_t bytes, MemSpace space);

    ImageBuilder& builder_;
    const ptx::Function& function_;
    uint32_t index_;
    const ptx::Instruction* current_ = nullptr;
    std::vector<Inst> code_;
    std::vector<InstInfo> info_;
    std::vector<Ref> refs_, pending_;                     // of the instruction being decoded
    std::vector<std::pair<Inst, std::vector<Ref>>> after_;  // hidden instructions that follow it
    std::vector<RegClass> classes_;
    std::unordered_map<std::string, uint32_t> registers_;
    uint32_t saved_stack_ = ~0u;                // register that has the stack of `alloca` at the function's start
    std::vector<uint32_t> wgmma_accumulators_;  // registers
    std::set<uint32_t> wgmma_registers_;        // with those of A
    std::unordered_map<std::string, uint32_t> frame_;        // variable -> offset in the frame
    std::unordered_map<std::string, uint32_t> frame_sizes_;
    std::unordered_map<std::string, uint32_t> kernel_params_;
    std::vector<uint32_t> first_inst_;  // of each PTX instruction
    std::unordered_map<std::string, uint32_t> labels_;
    std::vector<std::pair<uint32_t, std::string>> branches_;  // instruction, label
    std::vector<std::pair<uint32_t, std::vector<std::string>>> tables_;
    std::vector<std::pair<uint32_t, std::string>> call_sites_;
};

}  // namespace aicf::emu
