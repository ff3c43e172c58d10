// A parsed PTX module, as written: no instruction is interpreted or dropped here.
// Grammar: PTX ISA, chapters "Syntax", "State Spaces, Types, and Variables", "Instruction Operands", "Directives".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace aicf::emu::ptx {

enum class Type : uint8_t {
    kNone,
    kB1,
    kB8,
    kB16,
    kB32,
    kB64,
    kB128,
    kU8,
    kU16,
    kU32,
    kU64,
    kS8,
    kS16,
    kS32,
    kS64,
    kF16,
    kF16x2,
    kBF16,
    kBF16x2,
    kTF32,
    kF32,
    kF32x2,
    kF64,
    kE4M3,
    kE5M2,
    kE4M3x2,
    kE5M2x2,
    kU8x4,
    kS8x4,
    kU16x2,
    kS16x2,
    kPred,
    kTexref,
    kSamplerref,
    kSurfref,
};
uint32_t size_of(Type type);  // bytes; kPred and kB1 are 1
const char* name_of(Type type);
Type type_from_name(std::string_view name);  // "f32" -> kF32; kNone for a word that is no type

enum class Space : uint8_t { kNone, kReg, kSreg, kConst, kGlobal, kLocal, kParam, kShared, kGeneric };

// Where an instruction comes from: a line of the PTX text, and (with -lineinfo) a file and line of the CUDA source.
struct Location {
    uint32_t ptx_line = 0;
    uint32_t file = 0;  // index of a .file directive, 0 = unknown
    uint32_t line = 0;
    uint32_t column = 0;
    uint32_t inlined_at = 0;  // index into Module::call_sites: where the function that the place is in was called; 0: nowhere
};

class ParseError : public std::runtime_error {
public:
    ParseError(uint32_t ptx_line, const std::string& message);
    uint32_t ptx_line;
};

struct Operand {
    enum class Kind : uint8_t {
        kRegister,    // name; `member` for %tid.x (0..3 = x y z w, -1 none)
        kImmediate,   // `bits` (integers sign-extended; 0f/0d immediates as raw IEEE bits), `immediate_type` kS64, kU64, kF32 or kF64
        kSymbol,      // variable, function or label, `offset` for sym+imm
        kAddress,     // [base + offset]; base register or symbol in `name` (empty: absolute), `base_is_register`
        kVector,      // {a, b, c, d} in `elements`
        kSink,        // _
        kPair,        // a|b  (destination and predicate) in `elements`
        kList,        // ( ... ) argument list of a call, in `elements`
        kTensorCoords // [map, {c0, c1, ...}] and its cousins: `elements` = everything between the brackets, in order
    };
    Kind kind = Kind::kRegister;
    bool negated = false;         // !p, also unary minus on a register where the grammar allows it
    bool base_is_register = false;
    int8_t member = -1;
    Type immediate_type = Type::kNone;
    std::string name;
    int64_t offset = 0;
    uint64_t bits = 0;
    std::vector<Operand> elements;
};

struct Instruction {
    std::string opcode;                  // base: "ld", "fma", "cp" ...
    std::vector<std::string>
        modifiers;  // the rest, without dots, in order: {"global", "v4", "f32"}; "cp.async.cg..." -> opcode "cp", {"async","cg",...}
    std::string guard;                   // predicate register, empty = none
    bool guard_negated = false;
    std::vector<Operand> operands;       // destinations first, as written
    Location where;

    std::string spelling() const;  // opcode and modifiers joined by dots
    bool has(std::string_view modifier) const;
};

struct Initializer {
    // Bytes of the image with relocations: `generic(symbol)+offset`, `symbol+offset`, or a byte of one (mask operator).
    struct Relocation {
        uint32_t at_byte;
        uint32_t size_bytes;
        std::string symbol;
        int64_t offset;
        bool generic;
        uint32_t shift_bits;  // 0xFF00(symbol) style byte extraction
    };
    std::vector<uint8_t> bytes;
    std::vector<Relocation> relocations;
};

struct Variable {
    enum class Linkage : uint8_t { kInternal, kVisible, kExtern, kWeak, kCommon };
    Linkage linkage = Linkage::kInternal;
    Space space = Space::kNone;
    Type type = Type::kNone;
    uint32_t vector_length = 1;        // .v2 -> 2, .v4 -> 4
    uint32_t align = 0;                // bytes; natural alignment when the text gives none
    std::string name;
    std::vector<uint64_t> dimensions;  // empty for a scalar; first may be 0 for an unsized extern array
    uint64_t size_bytes = 0;           // 0 for an unsized extern array
    std::optional<Initializer> initial;
    bool is_managed = false;           // .attribute(.managed)
    bool is_grid_constant_pointer = false;  // .param .ptr attributes are accepted and not otherwise kept
    Location where;
};

// Registers of one .reg directive are expanded: `%r<100>` becomes 100 names with consecutive ids.
struct Register {
    std::string name;
    Type type = Type::kNone;
    uint32_t vector_length = 1;
};

struct Label {
    std::string name;
    uint32_t instruction = 0;  // index of the instruction that follows; == instructions.size() at the end
};

struct BranchTargets {  // name: .branchtargets a, b, c;  (brx.idx), or .calltargets
    std::string name;
    std::vector<std::string> targets;
};

struct Prototype {  // name: .callprototype (ret) _ (params);
    std::string name;
    std::vector<Variable> returns;
    std::vector<Variable> params;
};

struct Function {
    Variable::Linkage linkage = Variable::Linkage::kInternal;
    bool is_entry = false;
    bool has_body = false;   // false: a declaration (.extern .func vprintf)
    bool no_return = false;
    std::string name;
    std::vector<Variable> returns;
    std::vector<Variable> params;       // for entries: the kernel's parameters with sizes and alignments
    std::vector<Register> registers;    // nested scopes { } are flattened; a shadowed name is made unique by the parser
    std::vector<Variable> variables;    // .local .shared .param declared in the body (also flattened and made unique)
    std::vector<Instruction> instructions;
    std::vector<Label> labels;
    std::vector<BranchTargets> branch_targets;
    std::vector<Prototype> prototypes;
    // Performance directives, 0 = not given: .maxntid, .reqntid, .minnctapersm, .maxnreg, .reqnctapercluster
    uint32_t max_threads[3] = {0, 0, 0};
    uint32_t required_threads[3] = {0, 0, 0};
    uint32_t required_cluster[3] = {0, 0, 0};
    bool explicit_cluster = false;
    uint32_t min_blocks_per_sm = 0;
    uint32_t max_registers = 0;
    Location where;
};

struct Module {
    uint32_t version_major = 0, version_minor = 0;
    std::string target;             // "sm_90a"
    uint32_t address_size = 64;
    std::vector<std::string> files;  // by .file index; [0] is empty
    std::vector<Location> call_sites;  // of inlined functions; [0] is none
    std::vector<Variable> variables;  // module scope: .global .const .shared (also .extern .shared) .texref
    std::vector<Function> functions;

    const Function* find(std::string_view name) const;
    std::string source_of(const Location& where) const;  // "kernels.cu:42", or "" when unknown
    std::vector<std::string> callers_of(const Location& where) const;  // the calls that were inlined, the innermost first
};

// Parses a whole module. Throws ParseError with the line and what was expected there.
Module parse(std::string_view text);

}  // namespace aicf::emu::ptx
