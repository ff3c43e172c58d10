// A decoded program: what decode/decode.cpp makes of a ptx::Module, and what the interpreter runs.
//
// Each kernel has an image of its own: its code and that of every function it can reach, so that addresses of shared variables, which
// depend on the kernel's layout, are plain constants.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "../arith/arith.hpp"
#include "../exec.hpp"

namespace aicf::emu {

constexpr uint32_t kWarpLanes = 32;
constexpr uint32_t kRow32Bytes = 4 * kWarpLanes;
constexpr uint32_t kRow64Bytes = 8 * kWarpLanes;
constexpr uint32_t kMaxWarps = 32;  // of a block
constexpr uint32_t kMaxThreads = 1024;

// Generic addresses: windows far above anything the host maps, told apart by their upper 16 bits.
// A 32-bit address in shared memory is an offset in one's own block, or names a block of the cluster in its upper byte: rank + 1.
constexpr uint32_t kSharedRankShift = 24, kSharedOffsetMask = (1u << kSharedRankShift) - 1;
constexpr uint64_t kSharedWindow = 0x0100'0000'0000'0000ull;
constexpr uint64_t kLocalWindow = 0x0200'0000'0000'0000ull;
constexpr uint64_t kParamWindow = 0x0300'0000'0000'0000ull;
constexpr uint64_t kFunctionWindow = 0x0400'0000'0000'0000ull;
constexpr uint64_t kWindowMask = 0xFF00'0000'0000'0000ull;
constexpr uint32_t kFunctionStride = 16;

// The first KiB of shared memory belongs to the system, as on sm_90; so address 0 is never valid. Local memory keeps a gap for the same
// reason.
constexpr uint32_t kSharedStart = 1024;
constexpr uint32_t kLocalStart = 64;

enum class Op : uint8_t {
    kArith,
    kMov32,
    kMov64,
    kLoadParam32,
    kLoadParam64,
    kLocalAddress,
    kClock,
    kPack,
    kUnpack,
    kNarrow,
    kWiden,
    kLoad,
    kStore,
    kAtomic,
    kCvtaTo,
    kCvtaFrom,
    kIsspacep,
    kPrefetch,
    kBra,
    kBrx,
    kCall,
    kCallIndirect,
    kBuiltin,
    kRet,
    kExit,
    kTrap,
    kBreakpoint,
    kBarrier,
    kBarWarpSync,
    kShfl,
    kVote,
    kMatch,
    kRedux,
    kActivemask,
    kElect,
    kFence,
    kNanosleep,
    kNop,
    kAsyncCopy,
    kAsyncCommit,
    kAsyncWait,
    kMma,             // tensor/mma.cpp
    kLoadMatrix,
    kStoreMatrix,
    kMoveMatrix,
    kWgmma,           // tensor/wgmma.cpp: the family; `mode` says which
    kMbarrier,        // async/mbarrier.cpp: the family
    kBulk,            // async/bulk.cpp: cp.async.bulk, cp.reduce.async.bulk, prefetches, groups, tensor maps
    kProxyFence,
    kMapShared,       // warp/cluster.cpp: mapa, getctarank
    kClusterBarrier,
    kGridDependency,
    kSetMaxRegisters,
    kAlloca,          // warp/move.cpp: alloca, stacksave, stackrestore
    kTexture,         // texture/warp_texture.cpp: textures and surfaces
    kEnd,
};

enum class MemSpace : uint8_t {
    kGeneric,
    kGlobal,
    kShared,
    kLocal,
    kConst,
    kParam /* of a kernel */,
    kFrame /* .param of device functions */
};

enum class AtomOp : uint8_t { kAdd, kMin, kMax, kAnd, kOr, kXor, kExch, kCas, kInc, kDec };
enum class AtomType : uint8_t { kB16, kB32, kB64, kB128, kU32, kS32, kU64, kS64, kF16, kBF16, kF16x2, kBF16x2, kF32, kF64 };
enum class ShflMode : uint8_t { kUp, kDown, kBfly, kIdx };
enum class VoteMode : uint8_t { kAll, kAny, kUni, kBallot };
enum class ReduxOp : uint8_t { kAddU, kMinS, kMinU, kMaxS, kMaxU, kAnd, kOr, kXor, kMinF, kMaxF };
enum class BarrierMode : uint8_t { kSync, kArrive, kRedPopc, kRedAnd, kRedOr };
enum class ClockKind : uint8_t { kClock32, kClockHigh, kClock64, kGlobalTimer, kGlobalTimerLow, kGlobalTimerHigh };
enum class AllocaMode : uint8_t { kAllocate, kSave, kRestore };
enum class WgmmaMode : uint8_t { kFence, kCommit, kWait, kMultiply, kTouch /* put in: registers of a wgmma are about to be used */ };
enum class TextureOp : uint8_t {
    kFetch,
    kFetchLevel,
    kFetchGradient,
    kGather,
    kQuery,
    kIsTexture,
    kIsSurface,
    kSurfaceQuery,
    kSurfaceLoad,
    kSurfaceStore,
    kSurfaceStoreFormatted,   // sust.p
    kSurfaceReduce,           // sured.b
    kSurfaceReduceFormatted,  // sured.p
};
enum class Geometry : uint8_t { k1d, k2d, k3d, kLayered1d, kLayered2d, kCube, kLayeredCube };
enum class TextureQuery : uint8_t { kWidth, kHeight, kDepth, kLayers, kLevels, kNormalized };
enum class SurfaceBounds : uint8_t { kTrap, kClamp, kZero };
enum class Builtin : uint8_t { kVprintf, kAssertFail, kMalloc, kFree, kSetConditional };

// Operands: 2 bits of base, 30 bits of byte offset from it.
enum OperandBase : uint32_t { kBase32 = 0, kBase64 = 1, kBaseConst = 2, kBaseSpecial = 3 };
constexpr uint32_t make_operand(OperandBase base, uint32_t offset_bytes) { return (static_cast<uint32_t>(base) << 30) | offset_bytes; }

// Predicates: slot << 1 | negated. Slot 0 is always true, slot 1 takes what nobody reads.
constexpr uint16_t kPredTrue = 0, kPredFalse = 1;
constexpr uint16_t kPredPending = 0xFFFE;  // a guard whose register has no place yet
constexpr uint32_t kPredSlotTrash = 1, kPredFirstFree = 2;

enum InstFlags : uint8_t {
    kFlagUnsignedExtend = 0,
    kFlagSignExtend = 1,     // narrow loads: sign-extend into the destination row
    kFlagAligned = 2,        // barriers: .aligned, all threads of the warp must come together
    kFlagUnread = 2,         // atomics: nothing reads the destination
    kFlagHasCount = 4,       // barriers: operand b is a thread count
    kFlagReturnsValue = 8,   // atomics: atom (not red) with a destination
    kFlagHidden = 16,        // put in by the decoder: not an instruction of the program, not counted
    kFlagWaitAll = 32,       // cp.async.wait_all
    kFlagCluster = 32,       // memory: .shared::cluster, the address may name another block
    kFlagBase64 = 64,        // memory: the base operand is a 64-bit row
    kFlagHasBase = 128,      // memory: there is a base operand
    kFlagPredicates = 1,     // kArith: it reads or writes predicates
    kFlagFourth = 2,         // kArith: it has a fourth source
};

// Memory instructions and fences: their place in the memory model (PTX ISA, "Memory consistency model").
enum OrderFlags : uint8_t {
    kOrderStrong = 1,   // atomic, volatile, relaxed and above
    kOrderAcquire = 2,
    kOrderRelease = 4,
    kOrderBlock = 8,    // its scope is the block, not the device
};

struct Inst {
    union {
        arith::Fn fn = nullptr;  // kArith
        int64_t offset;          // memory: added to the base; kLocalAddress: offset in the frame; kCall: target pc
    };
    uint32_t d = 0, a = 0, b = 0, c = 0, e = 0;
    uint16_t pd = 0, qd = 0, pa = 0, pb = 0;
    uint16_t guard = kPredTrue;
    Op op = Op::kNop;
    uint8_t flags = 0;
    uint8_t bytes = 0;    // element size in memory; pack and unpack: bytes of one part
    uint8_t vec = 1;      // elements
    uint8_t dbytes = 0;   // row kind of the destination elements: 4, 8, or 0 for none
    MemSpace space = MemSpace::kGeneric;
    uint8_t mode = 0;     // one of the small enums above
    uint8_t mode2 = 0;    // atomics: AtomType
    arith::Class counter = arith::Class::kMove;
    uint8_t is_fma = 0;
    uint8_t order = 0;    // OrderFlags
    uint32_t imm = 0;  // kArith: constant; branches: target pc; kBrx, kCall: index of a side table; listed operands: index of the first
};
static_assert(sizeof(Inst) <= 64);

constexpr uint32_t kValueDiscarded = ~0u - 1;

struct InstInfo {
    ptx::Location where;
    uint32_t function = 0;  // index into Image::functions
    const ptx::Instruction* instruction = nullptr;  // null: the end of a function
    // Of a plain load: the compare-and-swap that repeats it before its value matters, or kValueDiscarded (analysis/confirmed_loads.cpp).
    uint32_t confirmed_by = ~0u;
};

// Special registers that are rows of the warp, filled once a block.
enum class Special : uint8_t {
    kTidX,
    kTidY,
    kTidZ,
    kTidW,
    kNtidX,
    kNtidY,
    kNtidZ,
    kNtidW,
    kCtaidX,
    kCtaidY,
    kCtaidZ,
    kCtaidW,
    kNctaidX,
    kNctaidY,
    kNctaidZ,
    kNctaidW,
    kLaneid,
    kWarpid,
    kNwarpid,
    kSmid,
    kNsmid,
    kGridid32,
    kGridid64,
    kLanemaskEq,
    kLanemaskLt,
    kLanemaskLe,
    kLanemaskGt,
    kLanemaskGe,
    kClusteridX,
    kClusteridY,
    kClusteridZ,
    kClusteridW,
    kNclusteridX,
    kNclusteridY,
    kNclusteridZ,
    kNclusteridW,
    kClusterCtaidX,
    kClusterCtaidY,
    kClusterCtaidZ,
    kClusterCtaidW,
    kClusterNctaidX,
    kClusterNctaidY,
    kClusterNctaidZ,
    kClusterNctaidW,
    kClusterCtarank,
    kClusterNctarank,
    kIsExplicitCluster,
    kEnvironment1,
    kEnvironment2,
    kDynamicSmem,
    kTotalSmem,
    kZero32,
    kZero64,
    kOne32,
    kMinusOne32,
};

struct SpecialRow {
    Special kind;
    uint32_t offset_bytes;
};

// A kernel parameter (or a piece of one) that a load reads at a constant offset: a row of the launch's constants.
struct ParamRow {
    uint32_t param_offset;
    uint8_t bytes;
    bool sign_extend;
    bool row64;
    uint32_t offset_bytes;  // of the row, in the constants
};

enum class RegClass : uint8_t { k32, k64, kPred };

// Where an instruction reads or sets a register: a row of its frame, in bytes, or a slot of predicates.
struct OperandPlace {
    uint32_t pc = 0, offset = 0;
    RegClass kind = RegClass::k32;
    bool is_def = false;
};

struct CallInfo {
    struct Copy {
        uint32_t caller_offset, callee_offset, bytes;
    };
    std::vector<Copy> arguments;  // caller frame -> callee frame, before
    std::vector<Copy> results;  // callee frame -> caller frame, at return
    uint32_t callee = 0;  // index into Image::functions; indirect calls: unused
    std::vector<uint32_t> argument_offsets, argument_bytes, result_offsets, result_bytes;  // of the caller, for indirect and built-in calls
    bool tail_exit = false;
};

struct ImageFunction {
    std::string name;
    uint32_t entry_pc = 0;
    uint32_t bytes32 = 0, bytes64 = 0, predicates = 0;  // frame sizes
    uint32_t local_bytes = 0;  // frame of local memory: params, returns, .local and .param variables
    std::vector<uint32_t> param_offsets, param_bytes, return_offsets, return_bytes;
    uint32_t module_index = 0;
};

struct SharedVariable {
    std::string name;
    uint32_t address = 0, bytes = 0;  // 0: dynamic shared memory
};

struct Image {
    mutable std::shared_ptr<const std::vector<std::string>> places;  // of the instructions, in words; made when a launch needs them
    std::vector<Inst> code;
    std::vector<InstInfo> info;
    std::vector<OperandPlace> operands;  // by pc
    std::vector<ImageFunction> functions;  // [0] is the kernel
    std::vector<CallInfo> calls;
    std::vector<std::vector<uint32_t>> branch_tables;
    std::vector<uint32_t> operand_lists;  // operands of instructions that have more than an Inst has fields for
    std::vector<SpecialRow> specials;
    uint32_t special_bytes = 0;
    std::vector<std::byte> constants;  // rows; parameters' rows are filled at launch
    std::vector<ParamRow> param_rows;
    std::map<uint64_t, uint32_t> function_by_address;  // generic function address -> index into functions
    uint32_t stack32 = 0, stack64 = 0, stack_predicates = 0, stack_local = 0;  // for the deepest call chain
    uint32_t alloca_bytes = 0;  // of local memory behind stack_local, which `alloca` hands out; 0: no function has it
    uint32_t shared_static_bytes = 0;  // as the program knows it, without the gaps
    uint32_t shared_dynamic = kSharedStart;  // where dynamic shared memory begins
    std::vector<std::pair<uint32_t, uint32_t>> shared_gaps;  // between variables: first byte, and the one past the last
    std::vector<SharedVariable> shared_variables;
    uint32_t race_shift = 2;  // log2 of the race check's unit: narrowest write to shared memory
    uint32_t global_shift = 2;  // the same of global memory
    uint32_t reserved_shared = 0, reserved_shared_bytes = 0;  // the system's part of it, zero when a block starts; 0: none is asked for
    bool has_calls = false;
    // Of the kernel's performance directives, 0: not given. Threads of a block at most, blocks of a multiprocessor, registers of a thread.
    bool uses_workspace = false;
    bool uses_heap = false;
    uint32_t most_threads = 0, least_blocks = 1, most_registers = 0;
    bool uses_async = false;
    bool crosses_shared_gap(uint64_t begin, uint64_t end) const {
        for (const auto& [first, last] : shared_gaps) {
            if (begin < last && end > first) return true;
        }
        return false;
    }
    KernelInfo kernel;
};

struct ProgramImpl final : Program {
    ptx::Module module;
    DeviceMemory* memory = nullptr;
    std::map<std::string, std::unique_ptr<Image>> images;
    std::map<std::string, VariableInfo> variables;
    std::vector<uint64_t> allocations;
    mutable uint64_t grid_workspace = 0;  // of cooperative launches; made when first needed

    ~ProgramImpl() override;
    const KernelInfo* find_kernel(const std::string& name) const override;
    const VariableInfo* find_variable(const std::string& name) const override;
    std::vector<std::string> kernel_names() const override;
};

// How a decoder asks for lane arithmetic: the find() of the level in use.
using ArithFind = arith::Operation (*)(const ptx::Instruction&);

// Decodes one kernel and all that it reaches. Throws LoadError.
std::unique_ptr<Image> decode_kernel(const ProgramImpl& program, const ptx::Function& kernel, ArithFind find);

// Where an operand of an Inst refers to a virtual register, before registers are allotted.
enum class Field : uint8_t { kD, kA, kB, kC, kE, kPd, kQd, kPa, kPb, kGuard, kListed /* Image::operand_lists[Ref::slot] */ };
struct Ref {
    uint32_t inst;  // index into the function's own instructions
    Field field;
    bool is_def;
    uint32_t reg;
    uint32_t slot = 0;
};

struct FrameSizes {
    uint32_t bytes32 = 0, bytes64 = 0, predicates = 0;
    std::vector<uint32_t> places;  // by virtual register: its row, or its slot
};

// Gives every virtual register a place by liveness (linear scan over the intervals of a data-flow analysis) and patches `code` and
// `operand_lists`.
// `successors[i]` lists the local instruction indices that may follow instruction i. `refs` is sorted by instruction.
FrameSizes allot_registers(std::vector<Inst>& code, std::vector<uint32_t>& operand_lists,
                           const std::vector<std::vector<uint32_t>>& successors, const std::vector<Ref>& refs,
                           const std::vector<RegClass>& classes);

// Plain loads, and the compare-and-swap that confirms each, or kValueDiscarded.
std::vector<std::pair<uint32_t, uint32_t>> find_confirmed_loads(const std::vector<Inst>& code, const std::vector<InstInfo>& info,
                                                                const std::vector<std::vector<uint32_t>>& successors,
                                                                const std::vector<Ref>& refs);

}  // namespace aicf::emu
