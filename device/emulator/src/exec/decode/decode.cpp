#include "decode.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <set>

#include "../../memory/round_up.hpp"

namespace aicf::emu {
namespace {

constexpr uint32_t kRecursionFrames = 1024;        // of stack for images whose call graph has a cycle or an indirect call
constexpr uint32_t kRecursionLocalBytes = 32768;   // of local memory per thread for those

constexpr const char* kHighHalf = ":high";  // no PTX name has a colon

RegClass class_of_type(ptx::Type type) {
    if (type == ptx::Type::kPred) return RegClass::kPred;
    return ptx::size_of(type) == 8 ? RegClass::k64 : RegClass::k32;
}

void visit_symbols(const ptx::Operand& operand, const std::function<void(const std::string&)>& visit) {
    if (operand.kind == ptx::Operand::Kind::kSymbol) visit(operand.name);
    if (operand.kind == ptx::Operand::Kind::kAddress && !operand.base_is_register) visit(operand.name);
    for (const ptx::Operand& element : operand.elements) visit_symbols(element, visit);
}

}  // namespace

const ptx::Function* find_body(const ptx::Module& module, const std::string& name) {
    for (const ptx::Function& function : module.functions) {
        if (function.has_body && function.name == name) return &function;
    }
    return nullptr;
}

bool calls_what_is_there(const ptx::Module& module, const ptx::Function& function) {
    static const std::set<std::string> kBuiltins{"vprintf", "__assertfail", "malloc", "free", "cudaGraphSetConditional"};
    const auto is_absent = [&](const std::string& name) {
        if (kBuiltins.contains(name) || find_body(module, name)) return false;
        return std::any_of(module.functions.begin(), module.functions.end(), [&](const ptx::Function& each) { return each.name == name; });
    };
    bool complete = true;
    for (const ptx::Instruction& instruction : function.instructions) {
        if (instruction.opcode != "call") continue;
        for (const ptx::Operand& operand : instruction.operands)
            visit_symbols(operand, [&](const std::string& name) { complete &= !is_absent(name); });
    }
    return complete;
}

uint64_t function_address(const ptx::Module& module, const std::string& name) {
    for (size_t i = 0; i < module.functions.size(); ++i) {
        if (module.functions[i].has_body && module.functions[i].name == name) return kFunctionWindow + (i + 1) * kFunctionStride;
    }
    return 0;
}

ImageBuilder::ImageBuilder(const ProgramImpl& owner, const ptx::Function& entry, ArithFind find)
    : program(owner), kernel(entry), find_arith(find), image(std::make_unique<Image>()) {}

uint32_t ImageBuilder::constant_row(uint64_t bits, bool row64) {
    if (!row64) bits &= 0xFFFFFFFFu;
    auto [it, is_new] = constants_.try_emplace({bits, row64}, 0);
    if (is_new) {
        it->second = static_cast<uint32_t>(image->constants.size());
        image->constants.resize(image->constants.size() + (row64 ? kRow64Bytes : kRow32Bytes));
        for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
            if (row64) {
                std::memcpy(&image->constants[it->second + 8 * lane], &bits, 8);
            } else {
                std::memcpy(&image->constants[it->second + 4 * lane], &bits, 4);
            }
        }
    }
    return make_operand(kBaseConst, it->second);
}

uint32_t ImageBuilder::special_row(Special special, bool row64) {
    auto [it, is_new] = specials_.try_emplace(special, image->special_bytes);
    if (is_new) {
        image->specials.push_back({special, image->special_bytes});
        image->special_bytes += row64 ? kRow64Bytes : kRow32Bytes;
    }
    return make_operand(kBaseSpecial, it->second);
}

uint32_t ImageBuilder::param_row(uint32_t offset, uint8_t bytes, bool sign_extend, bool row64) {
    const uint64_t key =
        static_cast<uint64_t>(offset) << 32 | static_cast<uint64_t>(bytes) << 8 | (sign_extend ? 2u : 0u) | (row64 ? 1u : 0u);
    auto [it, is_new] = params_.try_emplace(key, 0);
    if (is_new) {
        it->second = static_cast<uint32_t>(image->constants.size());
        image->constants.resize(image->constants.size() + (row64 ? kRow64Bytes : kRow32Bytes));
        image->param_rows.push_back({offset, bytes, sign_extend, row64, it->second});
    }
    return make_operand(kBaseConst, it->second);
}

uint32_t ImageBuilder::add_call(CallInfo call) {
    image->calls.push_back(std::move(call));
    return static_cast<uint32_t>(image->calls.size() - 1);
}

uint32_t ImageBuilder::add_branch_table(std::vector<uint32_t> table) {
    image->branch_tables.push_back(std::move(table));
    return static_cast<uint32_t>(image->branch_tables.size() - 1);
}

void ImageBuilder::collect_functions() {
    functions_.push_back(&kernel);
    std::set<const ptx::Function*> seen{&kernel};
    const auto add = [&](const ptx::Function* function) {
        // A kernel's name in a kernel is for a launch from the device, which is refused where it is called.
        if (function && !function->is_entry && seen.insert(function).second) functions_.push_back(function);
    };
    bool all = false;
    for (size_t i = 0; i < functions_.size(); ++i) {
        for (const ptx::Instruction& instruction : functions_[i]->instructions) {
            const bool is_call = instruction.opcode == "call";
            for (const ptx::Operand& operand : instruction.operands) {
                if (is_call && operand.kind == ptx::Operand::Kind::kRegister) all = true;
                visit_symbols(operand, [&](const std::string& name) { add(find_body(program.module, name)); });
            }
        }
        if (all) {
            for (const ptx::Function& function : program.module.functions) {
                if (!function.is_entry && function.has_body && calls_what_is_there(program.module, function)) add(&function);
            }
        }
    }
    for (uint32_t i = 0; i < functions_.size(); ++i) {
        function_indices[functions_[i]->name] = i;
        ImageFunction entry;
        entry.name = functions_[i]->name;
        image->functions.push_back(entry);
        image->function_by_address[function_address(program.module, entry.name)] = i;
    }
}

namespace {
constexpr uint32_t kSharedGap = 1024, kMostSharedGaps = 24;
}

void ImageBuilder::lay_out_shared() {
    // Shared memory that the system keeps for itself, in which cooperative groups lay the barriers of tiles of several warps (288 bytes at
    // %reserved_smem_offset_1: cooperative_groups/details/memory.h). Here a kernel that asks for it has it behind its own variables.
    constexpr const char* kReserved = "%reserved_smem_offset_1";
    constexpr uint32_t kReservedBytes = 288;
    bool wants_reserved = false;
    std::set<std::string> used;
    for (const ptx::Function* function : functions_) {
        for (const ptx::Instruction& instruction : function->instructions) {
            for (const ptx::Operand& operand : instruction.operands) {
                wants_reserved |= operand.kind == ptx::Operand::Kind::kRegister && operand.name == kReserved;
                visit_symbols(operand, [&](const std::string& name) { used.insert(name); });
            }
        }
    }
    uint32_t at = kSharedStart, last = kSharedStart;  // as the program knows it; the end of what was placed, where it is
    uint32_t shift = 0;                               // by how much the gaps move what follows
    std::vector<const ptx::Variable*> dynamic;
    // An access behind the end of a variable is in a gap. Multiples of the gap's size change neither the banks of an address nor the
    // patterns of swizzles, and the sum of all stays within what a matrix descriptor can say.
    const auto leave_gap = [&](uint32_t align) {
        if (last != kSharedStart && image->shared_gaps.size() < kMostSharedGaps) {
            shift += kSharedGap;
            image->shared_gaps.emplace_back(last, round_up(at, align) + shift);
        }
        at = round_up(at, align);
        return at + shift;
    };
    const auto place = [&](const ptx::Variable& variable) {
        if (variable.space != ptx::Space::kShared) return;
        if (variable.size_bytes == 0) {
            dynamic.push_back(&variable);
            return;
        }
        const uint32_t address = leave_gap(std::max(variable.align, 1u));
        const uint32_t bytes = static_cast<uint32_t>(variable.size_bytes);
        shared_symbols[variable.name] = address;
        image->shared_variables.push_back({variable.name, address, bytes});
        at += bytes;
        last = address + bytes;
    };
    for (const ptx::Variable& variable : program.module.variables) {
        if (used.contains(variable.name)) place(variable);
    }
    for (const ptx::Function* function : functions_) {
        for (const ptx::Variable& variable : function->variables) place(variable);
    }
    if (wants_reserved) {
        image->reserved_shared = leave_gap(16);
        image->reserved_shared_bytes = kReservedBytes;
        shared_symbols[kReserved] = image->reserved_shared;
        at += kReservedBytes;
        last = image->reserved_shared + kReservedBytes;
    }
    uint32_t align = 16;
    for (const ptx::Variable* variable : dynamic) align = std::max(align, variable->align);
    image->shared_dynamic = dynamic.empty() ? at + shift : leave_gap(align);
    for (const ptx::Variable* variable : dynamic) {
        shared_symbols[variable->name] = image->shared_dynamic;
        image->shared_variables.push_back({variable->name, image->shared_dynamic, 0});
    }
    image->shared_static_bytes = at - kSharedStart;
}

void ImageBuilder::size_stacks() {
    // Longest chain from the kernel over direct calls; any cycle or indirect call gets a fixed, generous stack.
    const size_t count = image->functions.size();
    std::vector<std::set<uint32_t>> callees(count);
    bool unbounded = false;
    for (size_t pc = 0; pc < image->code.size(); ++pc) {
        const Inst& inst = image->code[pc];
        if (inst.op == Op::kCall) callees[image->info[pc].function].insert(image->calls[inst.imm].callee);
        if (inst.op == Op::kCallIndirect) unbounded = true;
        image->has_calls |= inst.op == Op::kCall || inst.op == Op::kCallIndirect;
    }
    std::vector<uint8_t> state(count, 0);
    struct Need {
        uint32_t bytes32, bytes64, predicates, local;
    };
    std::vector<Need> need(count);
    std::function<void(uint32_t)> visit = [&](uint32_t f) {
        state[f] = 1;
        Need deepest{0, 0, 0, 0};
        for (uint32_t callee : callees[f]) {
            if (state[callee] == 1) {
                unbounded = true;
                continue;
            }
            if (state[callee] == 0) visit(callee);
            const Need& n = need[callee];
            deepest = {std::max(deepest.bytes32, n.bytes32), std::max(deepest.bytes64, n.bytes64),
                       std::max(deepest.predicates, n.predicates), std::max(deepest.local, n.local)};
        }
        const ImageFunction& function = image->functions[f];
        need[f] = {deepest.bytes32 + function.bytes32, deepest.bytes64 + function.bytes64, deepest.predicates + function.predicates,
                   deepest.local + function.local_bytes};
        state[f] = 2;
    };
    visit(0);
    Need total = need[0];
    if (unbounded) {
        Need largest{0, 0, 0, 0};
        for (const ImageFunction& f : image->functions) {
            largest = {std::max(largest.bytes32, f.bytes32), std::max(largest.bytes64, f.bytes64),
                       std::max(largest.predicates, f.predicates), std::max(largest.local, f.local_bytes)};
        }
        const uint32_t frames = kRecursionFrames;
        total = {std::min(largest.bytes32 * frames, 8u << 20), std::min(largest.bytes64 * frames, 8u << 20), largest.predicates * frames,
                 std::max(kRecursionLocalBytes, image->functions[0].local_bytes + 4 * largest.local)};
        total.bytes32 = std::max(total.bytes32, 2 * (image->functions[0].bytes32 + largest.bytes32));
        total.bytes64 = std::max(total.bytes64, 2 * (image->functions[0].bytes64 + largest.bytes64));
    }
    image->stack32 = total.bytes32;
    image->stack64 = total.bytes64;
    image->stack_predicates = round_up(total.predicates, 16);
    image->stack_local = round_up(total.local + kLocalStart, 16);
}

std::unique_ptr<Image> ImageBuilder::build() {
    constant_row(0, true);
    collect_functions();
    lay_out_shared();

    KernelInfo& info = image->kernel;
    info.name = kernel.name;
    uint32_t offset = 0;
    for (const ptx::Variable& param : kernel.params) {
        const uint32_t align = std::max(param.align, 1u);
        offset = round_up(offset, align);
        info.params.push_back({offset, static_cast<uint32_t>(param.size_bytes), align});
        offset += static_cast<uint32_t>(param.size_bytes);
    }
    info.param_bytes = offset;
    info.static_shared_bytes = image->shared_static_bytes;
    info.max_threads = {kernel.max_threads[0], kernel.max_threads[1], kernel.max_threads[2]};
    info.required_threads = {kernel.required_threads[0], kernel.required_threads[1], kernel.required_threads[2]};
    info.required_cluster = {kernel.required_cluster[0], kernel.required_cluster[1], kernel.required_cluster[2]};

    const auto volume = [](const uint32_t (&dim)[3]) { return dim[0] * std::max(dim[1], 1u) * std::max(dim[2], 1u); };
    image->most_threads = kernel.required_threads[0] ? volume(kernel.required_threads) : volume(kernel.max_threads);
    image->least_blocks = std::max(kernel.min_blocks_per_sm, 1u);
    image->most_registers = kernel.max_registers;

    // Frames first: a call site needs the layout of its callee.
    std::vector<std::unique_ptr<FunctionDecoder>> decoders;
    for (uint32_t i = 0; i < functions_.size(); ++i) {
        decoders.push_back(std::make_unique<FunctionDecoder>(*this, *functions_[i], i));
    }
    for (auto& decoder : decoders) decoder->decode();
    for (size_t pc = 0; pc < image->code.size(); ++pc) {
        Inst& inst = image->code[pc];
        if (inst.op == Op::kCall) inst.offset = image->functions[image->calls[inst.imm].callee].entry_pc;
    }
    size_stacks();
    info.local_bytes = image->functions[0].local_bytes;
    const uint32_t registers = image->functions[0].bytes32 / kRow32Bytes + 2 * (image->functions[0].bytes64 / kRow64Bytes);
    info.num_registers = std::min(255u, std::max(16u, round_up(registers, 8)));
    return std::move(image);
}

std::unique_ptr<Image> decode_kernel(const ProgramImpl& program, const ptx::Function& kernel, ArithFind find) {
    return ImageBuilder(program, kernel, find).build();
}

FunctionDecoder::FunctionDecoder(ImageBuilder& builder, const ptx::Function& function, uint32_t index)
    : builder_(builder), function_(function), index_(index) {
    for (const ptx::Register& reg : function.registers) {
        registers_.emplace(reg.name, static_cast<uint32_t>(classes_.size()));
        classes_.push_back(class_of_type(reg.type));
        if (reg.type == ptx::Type::kB128) {
            classes_.back() = RegClass::k64;
            registers_.emplace(reg.name + kHighHalf, static_cast<uint32_t>(classes_.size()));
            classes_.push_back(RegClass::k64);
        }
    }
    lay_out_frame();
}

std::vector<ptx::Operand> FunctionDecoder::halves(const ptx::Operand& operand) const {
    ptx::Operand high = operand;
    if (operand.kind == ptx::Operand::Kind::kVector && operand.elements.size() == 2) return operand.elements;
    if (operand.kind == ptx::Operand::Kind::kImmediate) {
        high.bits = 0;
    } else if (operand.kind == ptx::Operand::Kind::kRegister && is_declared(operand.name + kHighHalf)) {
        high.name += kHighHalf;
    } else if (operand.kind != ptx::Operand::Kind::kSink) {
        fail("a 128-bit register is expected");
    }
    return {operand, high};
}

void FunctionDecoder::lay_out_frame() {
    ImageFunction& entry = builder_.image->functions[index_];
    uint32_t at = 0;
    const auto place = [&](const ptx::Variable& variable) {
        at = round_up(at, std::max(variable.align, 1u));
        frame_[variable.name] = at;
        frame_sizes_[variable.name] = static_cast<uint32_t>(variable.size_bytes);
        at += static_cast<uint32_t>(variable.size_bytes);
        return frame_[variable.name];
    };
    if (function_.is_entry) {
        uint32_t offset = 0;
        for (const ptx::Variable& param : function_.params) {
            offset = round_up(offset, std::max(param.align, 1u));
            kernel_params_[param.name] = offset;
            offset += static_cast<uint32_t>(param.size_bytes);
        }
    } else {
        for (const ptx::Variable& variable : function_.params) {
            entry.param_offsets.push_back(place(variable));
            entry.param_bytes.push_back(static_cast<uint32_t>(variable.size_bytes));
        }
        for (const ptx::Variable& variable : function_.returns) {
            entry.return_offsets.push_back(place(variable));
            entry.return_bytes.push_back(static_cast<uint32_t>(variable.size_bytes));
        }
    }
    for (const ptx::Variable& variable : function_.variables) {
        if (variable.space == ptx::Space::kLocal || variable.space == ptx::Space::kParam) place(variable);
    }
    entry.local_bytes = round_up(at, 16);
}

void FunctionDecoder::fail(const std::string& reason) const {
    std::string text;
    std::string better;
    if (current_) {
        better = refusal();
        text = "unsupported instruction '" + current_->spelling() + "' in " + function_.name + " (PTX line " +
               std::to_string(current_->where.ptx_line);
        const std::string source_line = builder_.program.module.source_of(current_->where);
        if (!source_line.empty()) text += ", " + source_line;
        text += ")";
    } else {
        text = "cannot load " + function_.name;
    }
    throw LoadError(text + ": " + (better.empty() ? reason : better));
}

void FunctionDecoder::decode() {
    find_wgmma_registers();
    save_stack();
    for (const ptx::Instruction& instruction : function_.instructions) decode_instruction(instruction);
    current_ = nullptr;
    finish();
}

void FunctionDecoder::decode_instruction(const ptx::Instruction& instruction) {
    current_ = &instruction;
    first_inst_.push_back(static_cast<uint32_t>(code_.size()));
    pending_.clear();
    after_.clear();
    if (!wgmma_registers_.empty() && instruction.opcode != "wgmma") touch_wgmma_registers();
    if (decode_move() || decode_memory() || decode_control() || decode_collective() || decode_async()) return;
    if (decode_tensor() || decode_bulk() || decode_mbarrier() || decode_cluster() || decode_texture()) return;
    decode_arith();
}

void FunctionDecoder::finish() {
    // Falling off the end of a body is a return.
    Inst end;
    end.op = function_.is_entry ? Op::kExit : Op::kRet;
    end.flags = kFlagHidden;
    first_inst_.push_back(static_cast<uint32_t>(code_.size()));
    code_.push_back(end);
    info_.push_back({info_.empty() ? function_.where : info_.back().where, index_, nullptr});

    for (const ptx::Label& label : function_.labels) labels_[label.name] = first_inst_[label.instruction];
    const auto local_target = [&](const std::string& name) {
        auto it = labels_.find(name);
        if (it == labels_.end()) throw LoadError("label '" + name + "' in " + function_.name + " is not defined");
        return it->second;
    };
    std::vector<std::vector<uint32_t>> successors(code_.size());
    for (uint32_t i = 0; i < code_.size(); ++i) {
        const bool always = code_[i].guard == kPredTrue;
        const bool ends = code_[i].op == Op::kBra || code_[i].op == Op::kBrx || code_[i].op == Op::kRet || code_[i].op == Op::kExit;
        if (!(ends && always) && i + 1 < code_.size()) successors[i].push_back(i + 1);
    }
    for (const auto& [inst, label] : branches_) {
        code_[inst].imm = local_target(label);
        successors[inst].push_back(code_[inst].imm);
    }
    std::vector<std::pair<uint32_t, std::vector<uint32_t>>> tables;
    for (const auto& [inst, names] : tables_) {
        std::vector<uint32_t> table;
        for (const std::string& name : names) {
            table.push_back(local_target(name));
            successors[inst].push_back(table.back());
        }
        tables.emplace_back(inst, std::move(table));
    }

    const auto confirmed = find_confirmed_loads(code_, info_, successors, refs_);
    const FrameSizes sizes = allot_registers(code_, builder_.image->operand_lists, successors, refs_, classes_);
    Image& image = *builder_.image;
    ImageFunction& entry = image.functions[index_];
    entry.bytes32 = sizes.bytes32;
    entry.bytes64 = sizes.bytes64;
    entry.predicates = sizes.predicates;
    entry.entry_pc = static_cast<uint32_t>(image.code.size());
    for (auto& [inst, table] : tables) {
        for (uint32_t& target : table) target += entry.entry_pc;
        code_[inst].imm = builder_.add_branch_table(std::move(table));
    }
    for (Inst& inst : code_) {
        if (inst.op == Op::kBra) inst.imm += entry.entry_pc;
    }
    for (const auto& [load, by] : confirmed) info_[load].confirmed_by = by == kValueDiscarded ? by : by + entry.entry_pc;
    for (const Ref& ref : refs_) {
        const RegClass kind = classes_[ref.reg];
        const uint32_t bytes = kind == RegClass::k32 ? kRow32Bytes : kind == RegClass::k64 ? kRow64Bytes : 1;
        image.operands.push_back({entry.entry_pc + ref.inst, sizes.places[ref.reg] * bytes, kind, ref.is_def});
    }
    image.code.insert(image.code.end(), code_.begin(), code_.end());
    image.info.insert(image.info.end(), info_.begin(), info_.end());
}

}  // namespace aicf::emu
