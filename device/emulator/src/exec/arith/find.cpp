// The syntax table: which spellings exist on sm_90, what their operands are, and who picks the function.
//
// A row is a syntax line of the PTX ISA: `{...}` is optional, `(a|b)` a choice, `<name>` a choice with a name in kSets. Since a spelling
// has to match a row from its first to its last modifier, no modifier is ever ignored.
#include <algorithm>
#include <string>
#include <string_view>

#include "form.hpp"

namespace aicf::emu::arith {
inline namespace AICF_ENGINE_NAMESPACE {
namespace {

struct Set {
    std::string_view name, choices;
};
constexpr Set kSets[] = {
    {"rnd", "rn|rz|rm|rp"},
    {"irnd", "rni|rzi|rmi|rpi"},
    {"int", "u16|u32|u64|s16|s32|s64"},
    {"signed", "s16|s32|s64"},
    {"byteint", "u8|u16|u32|u64|s8|s16|s32|s64"},
    {"bits", "b16|b32|b64"},
    {"all", "b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64"},
    {"half", "f16|f16x2"},
    {"brain", "bf16|bf16x2"},
    {"bool", "and|or|xor"},
    {"equality", "eq|ne"},
    {"unsigned", "u16|u32|u64"},
    {"scmp", "eq|ne|lt|le|gt|ge"},
    {"ucmp", "eq|ne|lt|le|gt|ge|lo|ls|hi|hs"},
    {"fcmp", "eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"},
};

// Kinds of a row, one letter for each operand: t u v = the first, second, third type of the spelling; w = twice the width of the first;
// 4 = 32 bits; i = s32; - = no register row.
struct Row {
    std::string_view syntax;
    const char* operands;
    const char* kinds;
    Pick (*pick)(const Form&);
    bool is_special = false;  // counted as a special-function operation
    std::string_view refusal = {};
};

constexpr Row kRows[] = {
    // Integer arithmetic
    {"add.(<int>|u16x2|s16x2)", "dab", "ttt", pick_integer},
    {"add{.sat}.s32", "dab", "ttt", pick_integer},
    {"sub.<int>", "dab", "ttt", pick_integer},
    {"sub{.sat}.s32", "dab", "ttt", pick_integer},
    {"mul.(hi|lo).<int>", "dab", "ttt", pick_integer},
    {"mul.wide.(u16|u32|s16|s32)", "dab", "wtt", pick_integer},
    {"mad.(hi|lo).<int>", "dabc", "tttt", pick_integer},
    {"mad.wide.(u16|u32|s16|s32)", "dabc", "wttw", pick_integer},
    {"mad.hi.sat.s32", "dabc", "tttt", pick_integer},
    {"mul24.(hi|lo).(u32|s32)", "dab", "ttt", pick_integer},
    {"mad24.(hi|lo).(u32|s32)", "dabc", "tttt", pick_integer},
    {"mad24.hi.sat.s32", "dabc", "tttt", pick_integer},
    {"sad.<int>", "dabc", "tttt", pick_integer},
    {"div.<int>", "dab", "ttt", pick_integer},
    {"rem.<int>", "dab", "ttt", pick_integer},
    {"abs.<signed>", "da", "tt", pick_integer},
    {"neg.<signed>", "da", "tt", pick_integer},
    {"min.(<int>|u16x2)", "dab", "ttt", pick_integer},
    {"min{.relu}.(s32|s16x2)", "dab", "ttt", pick_integer},
    {"max.(<int>|u16x2)", "dab", "ttt", pick_integer},
    {"max{.relu}.(s32|s16x2)", "dab", "ttt", pick_integer},
    {"popc.(b32|b64)", "da", "4t", pick_bits},
    {"clz.(b32|b64)", "da", "4t", pick_bits},
    {"bfind{.shiftamt}.(u32|u64|s32|s64)", "da", "4t", pick_bits},
    {"fns.b32", "dabc", "t4ii", pick_bits},
    {"brev.(b32|b64)", "da", "tt", pick_bits},
    {"bfe.(u32|u64|s32|s64)", "dabc", "tt44", pick_bits},
    {"bfi.(b32|b64)", "dabce", "ttt44", pick_bits},
    {"szext.(clamp|wrap).(u32|s32)", "dab", "tt4", pick_bits},
    {"bmsk.(clamp|wrap).b32", "dab", "t44", pick_bits},
    {"dp4a.(u32|s32).(u32|s32)", "dabc", "4444", pick_dot},
    {"dp2a.(lo|hi).(u32|s32).(u32|s32)", "dabc", "4444", pick_dot},
    {"vabsdiff4.u32.u32.u32{.add}", "dabc", "4444", pick_video},
    {"vabsdiff4.s32.s32.s32{.add}", "dabc", "4444", pick_video},
    // Extended precision
    {"add.cc.(u32|s32|u64|s64)", "dab", "ttt", pick_carry},
    {"addc{.cc}.(u32|s32|u64|s64)", "dab", "ttt", pick_carry},
    {"sub.cc.(u32|s32|u64|s64)", "dab", "ttt", pick_carry},
    {"subc{.cc}.(u32|s32|u64|s64)", "dab", "ttt", pick_carry},
    {"mad.(hi|lo).cc.(u32|s32|u64|s64)", "dabc", "tttt", pick_carry},
    {"madc.(hi|lo){.cc}.(u32|s32|u64|s64)", "dabc", "tttt", pick_carry},
    // Single and double precision
    {"add{.<rnd>}{.ftz}{.sat}.f32", "dab", "ttt", pick_float},
    {"sub{.<rnd>}{.ftz}{.sat}.f32", "dab", "ttt", pick_float},
    {"mul{.<rnd>}{.ftz}{.sat}.f32", "dab", "ttt", pick_float},
    {"fma.<rnd>{.ftz}{.sat}.f32", "dabc", "tttt", pick_float},
    {"mad.<rnd>{.ftz}{.sat}.f32", "dabc", "tttt", pick_float},
    {"add{.<rnd>}.f64", "dab", "ttt", pick_float},
    {"sub{.<rnd>}.f64", "dab", "ttt", pick_float},
    {"mul{.<rnd>}.f64", "dab", "ttt", pick_float},
    {"fma.<rnd>.f64", "dabc", "tttt", pick_float},
    {"mad.<rnd>.f64", "dabc", "tttt", pick_float},
    {"div.<rnd>{.ftz}.f32", "dab", "ttt", pick_float},
    {"div.(approx|full){.ftz}.f32", "dab", "ttt", pick_float},
    {"div.<rnd>.f64", "dab", "ttt", pick_float},
    {"abs{.ftz}.f32", "da", "tt", pick_float},
    {"neg{.ftz}.f32", "da", "tt", pick_float},
    {"abs.f64", "da", "tt", pick_float},
    {"neg.f64", "da", "tt", pick_float},
    {"min{.ftz}{.NaN}{.xorsign.abs}.f32", "dab", "ttt", pick_float},
    {"max{.ftz}{.NaN}{.xorsign.abs}.f32", "dab", "ttt", pick_float},
    {"min.f64", "dab", "ttt", pick_float},
    {"max.f64", "dab", "ttt", pick_float},
    {"copysign.(f32|f64)", "dab", "ttt", pick_float},
    {"testp.(finite|infinite|number|notanumber|normal|subnormal).(f32|f64)", "Pa", "-t", pick_testp},
    {"rcp.approx{.ftz}.f32", "da", "tt", pick_special, true},
    {"rcp.<rnd>{.ftz}.f32", "da", "tt", pick_special, true},
    {"rcp.<rnd>.f64", "da", "tt", pick_special, true},
    {"rcp.approx.ftz.f64", "da", "tt", pick_special, true},
    {"sqrt.approx{.ftz}.f32", "da", "tt", pick_special, true},
    {"sqrt.<rnd>{.ftz}.f32", "da", "tt", pick_special, true},
    {"sqrt.<rnd>.f64", "da", "tt", pick_special, true},
    {"rsqrt.approx{.ftz}.(f32|f64)", "da", "tt", pick_special, true},
    {"sin.approx{.ftz}.f32", "da", "tt", pick_special, true},
    {"cos.approx{.ftz}.f32", "da", "tt", pick_special, true},
    {"lg2.approx{.ftz}.f32", "da", "tt", pick_special, true},
    {"ex2.approx{.ftz}.f32", "da", "tt", pick_special, true},
    {"ex2.approx.<half>", "da", "tt", pick_special, true},
    {"ex2.approx.ftz.<brain>", "da", "tt", pick_special, true},
    {"tanh.approx.(f32|<half>|<brain>)", "da", "tt", pick_special, true},
    // Half precision
    {"add{.rn}{.ftz}{.sat}.<half>", "dab", "ttt", pick_half},
    {"sub{.rn}{.ftz}{.sat}.<half>", "dab", "ttt", pick_half},
    {"mul{.rn}{.ftz}{.sat}.<half>", "dab", "ttt", pick_half},
    {"add{.rn}.<brain>", "dab", "ttt", pick_half},
    {"sub{.rn}.<brain>", "dab", "ttt", pick_half},
    {"mul{.rn}.<brain>", "dab", "ttt", pick_half},
    {"fma.rn{.ftz}{.sat}.<half>", "dabc", "tttt", pick_half},
    {"fma.rn{.ftz}.relu.<half>", "dabc", "tttt", pick_half},
    {"fma.rn{.relu}.<brain>", "dabc", "tttt", pick_half},
    {"neg{.ftz}.<half>", "da", "tt", pick_half},
    {"abs{.ftz}.<half>", "da", "tt", pick_half},
    {"neg.<brain>", "da", "tt", pick_half},
    {"abs.<brain>", "da", "tt", pick_half},
    {"min{.ftz}{.NaN}{.xorsign.abs}.<half>", "dab", "ttt", pick_half},
    {"max{.ftz}{.NaN}{.xorsign.abs}.<half>", "dab", "ttt", pick_half},
    {"min{.NaN}{.xorsign.abs}.<brain>", "dab", "ttt", pick_half},
    {"max{.NaN}{.xorsign.abs}.<brain>", "dab", "ttt", pick_half},
    // Comparison and selection
    {"setp.<equality>.<bits>", "Pab", "-tt", pick_setp},
    {"setp.<equality>.<bool>.<bits>", "Pabp", "-tt-", pick_setp},
    {"setp.<ucmp>.<unsigned>", "Pab", "-tt", pick_setp},
    {"setp.<scmp>.<signed>", "Pab", "-tt", pick_setp},
    {"setp.<ucmp>.<bool>.<unsigned>", "Pabp", "-tt-", pick_setp},
    {"setp.<scmp>.<bool>.<signed>", "Pabp", "-tt-", pick_setp},
    {"setp.<fcmp>{.ftz}.(f32|<half>)", "Pab", "-tt", pick_setp},
    {"setp.<fcmp>.<bool>{.ftz}.(f32|<half>)", "Pabp", "-tt-", pick_setp},
    {"setp.<fcmp>.(f64|<brain>)", "Pab", "-tt", pick_setp},
    {"setp.<fcmp>.<bool>.(f64|<brain>)", "Pabp", "-tt-", pick_setp},
    {"set.<equality>.(u32|s32|f32).<bits>", "dab", "tuu", pick_set},
    {"set.<equality>.<bool>.(u32|s32|f32).<bits>", "dabp", "tuu-", pick_set},
    {"set.<ucmp>.(u32|s32|f32).<unsigned>", "dab", "tuu", pick_set},
    {"set.<scmp>.(u32|s32|f32).<signed>", "dab", "tuu", pick_set},
    {"set.<ucmp>.<bool>.(u32|s32|f32).<unsigned>", "dabp", "tuu-", pick_set},
    {"set.<scmp>.<bool>.(u32|s32|f32).<signed>", "dabp", "tuu-", pick_set},
    {"set.<fcmp>{.ftz}.(u32|s32|f32).f32", "dab", "tuu", pick_set},
    {"set.<fcmp>.<bool>{.ftz}.(u32|s32|f32).f32", "dabp", "tuu-", pick_set},
    {"set.<fcmp>.(u32|s32|f32).f64", "dab", "tuu", pick_set},
    {"set.<fcmp>.<bool>.(u32|s32|f32).f64", "dabp", "tuu-", pick_set},
    {"set.<fcmp>{.ftz}.(f16|u16|s16|u32|s32).f16", "dab", "tuu", pick_set},
    {"set.<fcmp>.<bool>{.ftz}.(f16|u16|s16|u32|s32).f16", "dabp", "tuu-", pick_set},
    {"set.<fcmp>.(bf16|u16|s16|u32|s32).bf16", "dab", "tuu", pick_set},
    {"set.<fcmp>.<bool>.(bf16|u16|s16|u32|s32).bf16", "dabp", "tuu-", pick_set},
    {"set.<equality>.f16.<bits>", "dab", "tuu", pick_set},
    {"set.<equality>.<bool>.f16.<bits>", "dabp", "tuu-", pick_set},
    {"set.<equality>.bf16.<bits>", "dab", "tuu", pick_set},
    {"set.<equality>.<bool>.bf16.<bits>", "dabp", "tuu-", pick_set},
    {"set.<ucmp>.f16.<unsigned>", "dab", "tuu", pick_set},
    {"set.<scmp>.f16.<signed>", "dab", "tuu", pick_set},
    {"set.<ucmp>.<bool>.f16.<unsigned>", "dabp", "tuu-", pick_set},
    {"set.<scmp>.<bool>.f16.<signed>", "dabp", "tuu-", pick_set},
    {"set.<ucmp>.bf16.<unsigned>", "dab", "tuu", pick_set},
    {"set.<scmp>.bf16.<signed>", "dab", "tuu", pick_set},
    {"set.<ucmp>.<bool>.bf16.<unsigned>", "dabp", "tuu-", pick_set},
    {"set.<scmp>.<bool>.bf16.<signed>", "dabp", "tuu-", pick_set},
    {"set.<fcmp>{.ftz}.f16.f32", "dab", "tuu", pick_set},
    {"set.<fcmp>.f16.f64", "dab", "tuu", pick_set},
    {"set.<fcmp>.<bool>{.ftz}.f16.f32", "dabp", "tuu-", pick_set},
    {"set.<fcmp>.<bool>.f16.f64", "dabp", "tuu-", pick_set},
    {"set.<fcmp>.bf16.(f16|f32|f64)", "dab", "tuu", pick_set},
    {"set.<fcmp>.<bool>.bf16.(f16|f32|f64)", "dabp", "tuu-", pick_set},
    {"set.<fcmp>{.ftz}.(f16x2|u32|s32).f16x2", "dab", "tuu", pick_set},
    {"set.<fcmp>.<bool>{.ftz}.(f16x2|u32|s32).f16x2", "dabp", "tuu-", pick_set},
    {"set.<fcmp>.(bf16x2|u32|s32).bf16x2", "dab", "tuu", pick_set},
    {"set.<fcmp>.<bool>.(bf16x2|u32|s32).bf16x2", "dabp", "tuu-", pick_set},
    {"selp.<all>", "dabp", "ttt-", pick_select},
    {"slct.<all>.s32", "dabc", "tttu", pick_select},
    {"slct{.ftz}.<all>.f32", "dabc", "tttu", pick_select},
    // Logic and shifts
    {"and.<bits>", "dab", "ttt", pick_logic},
    {"or.<bits>", "dab", "ttt", pick_logic},
    {"xor.<bits>", "dab", "ttt", pick_logic},
    {"not.<bits>", "da", "tt", pick_logic},
    {"cnot.<bits>", "da", "tt", pick_logic},
    {"and.pred", "Ppq", "---", pick_predicate},
    {"or.pred", "Ppq", "---", pick_predicate},
    {"xor.pred", "Ppq", "---", pick_predicate},
    {"not.pred", "Pp", "--", pick_predicate},
    {"lop3.b32", "dabci", "tttt-", pick_logic},
    {"lop3.(or|and).b32", "Dabcip", "tttt--", pick_logic},
    {"shf.(l|r).(clamp|wrap).b32", "dabc", "ttt4", pick_shift},
    {"shl.<bits>", "dab", "tt4", pick_shift},
    {"shr.(<bits>|<int>)", "dab", "tt4", pick_shift},
    {"prmt.b32{.(f4e|b4e|rc8|ecl|ecr|rc16)}", "dabc", "ttt4", pick_bits},
    // Moves and conversions
    {"mov.<all>", "da", "tt", pick_move},
    {"mov.pred", "Pp", "--", pick_predicate},
    {"cvt{.sat}.<byteint>.<byteint>", "da", "tu", pick_convert},
    {"cvt.<irnd>{.ftz}{.sat}.<byteint>.f32", "da", "tu", pick_convert},
    {"cvt.<irnd>{.sat}.<byteint>.(f16|f64)", "da", "tu", pick_convert},
    {"cvt.<irnd>.<int>.bf16", "da", "tu", pick_convert},
    {"cvt.<rnd>{.ftz}{.sat}.f32.(<byteint>|f64)", "da", "tu", pick_convert},
    {"cvt.<rnd>{.sat}.(f16|f64).<byteint>", "da", "tu", pick_convert},
    {"cvt.<rnd>.bf16.<int>", "da", "tu", pick_convert},
    {"cvt{.<irnd>}{.ftz}{.sat}.f32.f32", "da", "tu", pick_convert},
    {"cvt{.<irnd>}{.sat}.f64.f64", "da", "tu", pick_convert},
    {"cvt{.<irnd>}{.sat}.f16.f16", "da", "tu", pick_convert},
    {"cvt{.<irnd>}.bf16.bf16", "da", "tu", pick_convert},
    {"cvt{.ftz}{.sat}.f32.f16", "da", "tu", pick_convert},
    {"cvt{.ftz}{.sat}.f64.f32", "da", "tu", pick_convert},
    {"cvt{.sat}.f64.f16", "da", "tu", pick_convert},
    {"cvt{.<rnd>}{.ftz}.f32.bf16", "da", "tu", pick_convert},
    {"cvt{.<rnd>}.(f16|f64).bf16", "da", "tu", pick_convert},
    {"cvt{.<rnd>}.bf16.f16", "da", "tu", pick_convert},
    {"cvt.<rnd>.bf16.f64", "da", "tu", pick_convert},
    {"cvt.<rnd>{.sat}.f16.f64", "da", "tu", pick_convert},
    {"cvt.<rnd>{.ftz}{.sat}.f16.f32", "da", "tu", pick_convert},
    {"cvt.<rnd>{.ftz}.bf16.f32", "da", "tu", pick_convert},
    {"cvt.(rn|rz){.relu}{.satfinite}.(f16|bf16).f32", "da", "tu", pick_convert},
    {"cvt.rna{.satfinite}.tf32.f32", "da", "tu", pick_convert},
    {"cvt.(rn|rz){.relu}.tf32.f32", "da", "tu", pick_convert},
    {"cvt.(rn|rz){.relu}{.satfinite}.(f16x2|bf16x2).f32", "dab", "tuu", pick_convert_pair},
    {"cvt.rn.satfinite{.relu}.(e4m3x2|e5m2x2).f32", "dab", "tuu", pick_convert_pair},
    {"cvt.rn.satfinite{.relu}.(e4m3x2|e5m2x2).f16x2", "da", "tu", pick_convert_pair},
    {"cvt.rn{.relu}.f16x2.(e4m3x2|e5m2x2)", "da", "tu", pick_convert_pair},
    {"cvt.pack.sat.(u16|s16).s32", "dab", "4uu", pick_convert_pack},
    {"cvt.pack.sat.(u2|s2|u4|s4).s32.b32", "dabc", "4tt4", pick_convert_pack},
    {"cvt.pack.sat.(u8|s8).s32.b32", "dabc", "4uu4", pick_convert_pack},
    // Known, and refused
    {"add{.<rnd>}{.ftz}.f32x2", "dab", "ttt", nullptr, false, "packed f32 arithmetic needs sm_100"},
    {"sub{.<rnd>}{.ftz}.f32x2", "dab", "ttt", nullptr, false, "packed f32 arithmetic needs sm_100"},
    {"mul{.<rnd>}{.ftz}.f32x2", "dab", "ttt", nullptr, false, "packed f32 arithmetic needs sm_100"},
    {"fma.<rnd>{.ftz}.f32x2", "dabc", "tttt", nullptr, false, "packed f32 arithmetic needs sm_100"},
    {"add{.<rnd>}{.sat}.f32.(f16|bf16)", "dab", "tut", nullptr, false, "mixed precision arithmetic needs sm_100"},
    {"sub{.<rnd>}{.sat}.f32.(f16|bf16)", "dab", "tut", nullptr, false, "mixed precision arithmetic needs sm_100"},
    {"fma.<rnd>{.sat}.f32.(f16|bf16)", "dabc", "tuut", nullptr, false, "mixed precision arithmetic needs sm_100"},
    {"cvt.(rn|rz).satfinite{.relu}.tf32.f32", "da", "tu", nullptr, false, "this saturation needs sm_100"},
    {"fma.rn.oob{.relu}.(<half>|<brain>)", "dabc", "tttt", nullptr, false, "the out-of-bounds NaN of .oob is not emulated"},
    {"min{.ftz}{.NaN}{.abs}.f32", "dabc", "tttt", nullptr, false, "three-input min and max need sm_100"},
    {"max{.ftz}{.NaN}{.abs}.f32", "dabc", "tttt", nullptr, false, "three-input min and max need sm_100"},
    {"mad{.ftz}{.sat}.f32", "dabc", "tttt", nullptr, false, "mad.f32 without a rounding modifier exists before sm_20 only"},
};

// What a modifier sets in a Form, whatever the instruction.
struct Modifier {
    std::string_view name;
    Round round = Round::kNone;
    uint32_t flag = 0;
    uint8_t compare = 0;
    Bool boolean = Bool::kNone;
    bool is_mode = false;
};
constexpr uint8_t kOrdered = kLess | kEqual | kGreater;
constexpr Modifier kModifiers[] = {
    {"rn", Round::kRn},
    {"rz", Round::kRz},
    {"rm", Round::kRm},
    {"rp", Round::kRp},
    {"rna", Round::kRna},
    {"rni", Round::kRni},
    {"rzi", Round::kRzi},
    {"rmi", Round::kRmi},
    {"rpi", Round::kRpi},
    {.name = "ftz", .flag = kFtz},
    {.name = "sat", .flag = kSat},
    {.name = "relu", .flag = kRelu},
    {.name = "satfinite", .flag = kSatfinite},
    {.name = "NaN", .flag = kNan},
    {.name = "xorsign", .flag = kXorsign},
    {.name = "abs", .flag = kAbs},
    {.name = "wide", .flag = kWide},
    {.name = "cc", .flag = kCc},
    {.name = "clamp", .flag = kClamp},
    {.name = "wrap", .flag = kWrap},
    {.name = "shiftamt", .flag = kShiftamt},
    {.name = "approx", .flag = kApprox},
    {.name = "full", .flag = kFull},
    {.name = "l", .flag = kLeft},
    {.name = "r", .flag = kRight},
    {.name = "pack", .flag = kPack},
    {.name = "add", .flag = kSum},
    // .lo and .hi are halves of a product, and unsigned comparisons
    {.name = "lo", .flag = kLo, .compare = kLess},
    {.name = "hi", .flag = kHi, .compare = kGreater},
    {.name = "ls", .compare = kLess | kEqual},
    {.name = "hs", .compare = kGreater | kEqual},
    {.name = "eq", .compare = kEqual},
    {.name = "ne", .compare = kLess | kGreater},
    {.name = "lt", .compare = kLess},
    {.name = "le", .compare = kLess | kEqual},
    {.name = "gt", .compare = kGreater},
    {.name = "ge", .compare = kGreater | kEqual},
    {.name = "equ", .compare = kEqual | kUnordered},
    {.name = "neu", .compare = kLess | kGreater | kUnordered},
    {.name = "ltu", .compare = kLess | kUnordered},
    {.name = "leu", .compare = kLess | kEqual | kUnordered},
    {.name = "gtu", .compare = kGreater | kUnordered},
    {.name = "geu", .compare = kGreater | kEqual | kUnordered},
    {.name = "num", .compare = kOrdered},
    {.name = "nan", .compare = kUnordered},
    {.name = "and", .boolean = Bool::kAnd},
    {.name = "or", .boolean = Bool::kOr},
    {.name = "xor", .boolean = Bool::kXor},
};

ptx::Type type_named(std::string_view name) {
    for (auto i = static_cast<uint8_t>(ptx::Type::kB1); i < static_cast<uint8_t>(ptx::Type::kTexref); ++i) {
        if (name == ptx::name_of(static_cast<ptx::Type>(i))) return static_cast<ptx::Type>(i);
    }
    return ptx::Type::kNone;
}

// Enters one modifier, which a row has already admitted; what is neither a type nor in kModifiers is a mode by name.
void enter(std::string_view name, Form& form) {
    const ptx::Type type = type_named(name);
    if (type != ptx::Type::kNone) {
        if (form.num_types < 3) form.types[form.num_types++] = type;
        return;
    }
    for (const Modifier& modifier : kModifiers) {
        if (modifier.name != name) continue;
        if (modifier.round != Round::kNone) form.round = modifier.round;
        if (modifier.compare != 0) form.compare = modifier.compare;
        if (modifier.boolean != Bool::kNone) form.boolean = modifier.boolean;
        form.flags |= modifier.flag;
        return;
    }
    form.mode = name;
}

// Is `word` among the choices of `text`, which are separated by `|` and may name sets?
bool is_choice(std::string_view word, std::string_view text) {
    while (!text.empty()) {
        const size_t bar = text.find('|');
        const std::string_view choice = text.substr(0, bar);
        if (choice.starts_with('<')) {
            for (const Set& set : kSets) {
                if (set.name == choice.substr(1, choice.size() - 2) && is_choice(word, set.choices)) return true;
            }
        } else if (choice == word) {
            return true;
        }
        text = bar == std::string_view::npos ? std::string_view{} : text.substr(bar + 1);
    }
    return false;
}

// The next `.element` of a syntax line, cut off its front. Parentheses are dropped.
std::string_view take_element(std::string_view& syntax) {
    size_t end = 1;
    if (syntax.size() > 1 && syntax[1] == '(') {
        end = syntax.find(')') + 1;
    } else {
        while (end < syntax.size() && syntax[end] != '.' && syntax[end] != '{') ++end;
    }
    std::string_view element = syntax.substr(1, end - 1);
    syntax.remove_prefix(end);
    return element.starts_with('(') ? element.substr(1, element.size() - 2) : element;
}

// Matches modifiers from `at` on against a run of elements; gives the index behind the last one, or -1.
int64_t match_run(std::string_view run, const ptx::Instruction& instruction, size_t at) {
    while (!run.empty()) {
        const std::string_view element = take_element(run);
        if (at >= instruction.modifiers.size() || !is_choice(instruction.modifiers[at], element)) return -1;
        ++at;
    }
    return static_cast<int64_t>(at);
}

std::string_view opcode_of(std::string_view syntax) { return syntax.substr(0, syntax.find_first_of(".{")); }

bool matches(std::string_view syntax, const ptx::Instruction& instruction) {
    syntax.remove_prefix(opcode_of(syntax).size());
    size_t at = 0;
    while (!syntax.empty()) {
        const bool is_optional = syntax.front() == '{';
        std::string_view run;
        if (is_optional) {
            const size_t end = syntax.find('}');
            run = syntax.substr(1, end - 1);
            syntax.remove_prefix(end + 1);
        } else {
            const std::string_view before = syntax;
            take_element(syntax);
            run = before.substr(0, before.size() - syntax.size());
        }
        const int64_t next = match_run(run, instruction, at);
        if (next >= 0) {
            at = static_cast<size_t>(next);
        } else if (!is_optional) {
            return false;
        }
    }
    return at == instruction.modifiers.size();
}

Class class_of(const Row& row, const Form& form) {
    using enum ptx::Type;
    if (row.is_special) return Class::kSpecial;
    if (form.opcode == "mov" || form.opcode == "prmt" || form.opcode == "selp") return Class::kMove;
    if (form.opcode == "cvt") return Class::kConversion;
    // A comparison counts by what it compares.
    switch (form.opcode == "set" ? form.types[1] : form.types[0]) {
        case kF32: return Class::kFp32;
        case kF64: return Class::kFp64;
        case kF16:
        case kF16x2:
        case kBF16:
        case kBF16x2: return Class::kFp16;
        default: return Class::kInteger;
    }
}

ptx::Type twice_as_wide(ptx::Type type) {
    using enum ptx::Type;
    switch (type) {
        case kU16: return kU32;
        case kS16: return kS32;
        case kU32: return kU64;
        default: return kS64;
    }
}

ptx::Type type_of(char kind, const Form& form) {
    switch (kind) {
        case 't': return form.types[0];
        case 'u': return form.types[1];
        case 'v': return form.types[2];
        case 'w': return twice_as_wide(form.types[0]);
        case '4': return ptx::Type::kU32;
        case 'i': return ptx::Type::kS32;
        default: return ptx::Type::kNone;
    }
}

void describe_operands(const Row& row, const Form& form, Operation& operation) {
    operation.operands = row.operands;
    for (size_t i = 0; row.operands[i] != 0; ++i) {
        const ptx::Type type = type_of(row.kinds[i], form);
        const uint8_t bytes = ptx::size_of(type) == 8 ? 8 : 4;
        switch (row.operands[i]) {
            case 'd': operation.d_bytes = bytes; break;
            case 'D':
                operation.d_bytes = bytes;
                operation.writes_predicate = true;
                break;
            case 'a':
                operation.a_bytes = bytes;
                operation.a_type = type;
                break;
            case 'b':
                operation.b_bytes = bytes;
                operation.b_type = type;
                break;
            case 'c':
                operation.c_bytes = bytes;
                operation.c_type = type;
                break;
            case 'e': operation.e_bytes = bytes; break;
            case 'P': operation.writes_predicate = true; break;
            case 'p':
            case 'q': operation.reads_predicate = true; break;
            default: break;
        }
    }
}

Operation describe(const Row& row, const ptx::Instruction& instruction) {
    Form form;
    form.opcode = instruction.opcode;
    for (const std::string& modifier : instruction.modifiers) enter(modifier, form);
    Operation operation;
    if (!row.refusal.empty()) {
        operation.reason = instruction.spelling() + ": " + std::string(row.refusal);
        return operation;
    }
    const Pick pick = row.pick(form);
    operation.fn = pick.fn;
    operation.immediate = pick.immediate;
    operation.counter = class_of(row, form);
    operation.is_fma = (form.opcode == "fma" || form.opcode == "mad") && form.type() == ptx::Type::kF32;
    operation.uses_carry = row.pick == pick_carry;
    describe_operands(row, form, operation);
    if (operation.fn == nullptr) operation.reason = instruction.spelling() + ": no lane arithmetic for this combination of types";
    return operation;
}

bool matches_whole(const Row& row, const ptx::Instruction& instruction) {
    return opcode_of(row.syntax) == instruction.opcode && std::string_view(row.operands).size() == instruction.operands.size() &&
           matches(row.syntax, instruction);
}

// What to say of a spelling that no row admits: the forms that its opcode has.
Operation refuse(const ptx::Instruction& instruction) {
    std::string known;
    for (const Row& row : kRows) {
        if (opcode_of(row.syntax) != instruction.opcode) continue;
        if (!known.empty()) known += ", ";
        known += row.syntax;
        if (matches(row.syntax, instruction)) known += " with " + std::to_string(std::string_view(row.operands).size()) + " operands";
    }
    Operation operation;
    operation.reason = known.empty() ? "no lane arithmetic is called '" + instruction.opcode + "'"
                                     : instruction.spelling() + " with " + std::to_string(instruction.operands.size()) +
                                           " operands is not one of the forms of sm_90: " + known;
    return operation;
}

// ptxas, and so NVIDIA's own headers (`min.s32.relu`), also takes modifiers behind the types: types are put last, in their order.
ptx::Instruction with_types_last(ptx::Instruction instruction) {
    std::stable_partition(instruction.modifiers.begin(), instruction.modifiers.end(),
                          [](const std::string& modifier) { return type_named(modifier) == ptx::Type::kNone; });
    return instruction;
}

}  // namespace

Operation find(const ptx::Instruction& instruction) {
    for (const Row& row : kRows) {
        if (matches_whole(row, instruction)) return describe(row, instruction);
    }
    const ptx::Instruction reordered = with_types_last(instruction);
    for (const Row& row : kRows) {
        if (matches_whole(row, reordered)) return describe(row, reordered);
    }
    return refuse(instruction);
}

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu::arith
