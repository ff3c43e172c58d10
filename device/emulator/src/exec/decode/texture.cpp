// Textures and surfaces by bindless objects: tex, tld4, txq, istypep, suld, sust, sured, suq. PTX ISA, "Texture Instructions" and "Surface
// Instructions".
#include "decode.hpp"

namespace aicf::emu {

using ptx::Operand;
using ptx::Type;

namespace {

struct Name {
    const char* word;
    uint8_t value;
    uint8_t count;  // coordinates
};

constexpr Name kGeometries[] = {{"1d", static_cast<uint8_t>(Geometry::k1d), 1},
                                {"2d", static_cast<uint8_t>(Geometry::k2d), 2},
                                {"3d", static_cast<uint8_t>(Geometry::k3d), 3},
                                {"a1d", static_cast<uint8_t>(Geometry::kLayered1d), 2},
                                {"a2d", static_cast<uint8_t>(Geometry::kLayered2d), 3},
                                {"cube", static_cast<uint8_t>(Geometry::kCube), 3},
                                {"acube", static_cast<uint8_t>(Geometry::kLayeredCube), 4}};

constexpr Name kQueries[] = {{"width", static_cast<uint8_t>(TextureQuery::kWidth), 0},
                             {"height", static_cast<uint8_t>(TextureQuery::kHeight), 0},
                             {"depth", static_cast<uint8_t>(TextureQuery::kDepth), 0},
                             {"array_size", static_cast<uint8_t>(TextureQuery::kLayers), 0},
                             {"num_mipmap_levels", static_cast<uint8_t>(TextureQuery::kLevels), 0},
                             {"normalized_coords", static_cast<uint8_t>(TextureQuery::kNormalized), 0}};

bool parse_surface_reduction(const std::string& word, AtomOp& op) {
    constexpr std::pair<const char*, AtomOp> kOps[] = {
        {"add", AtomOp::kAdd}, {"min", AtomOp::kMin}, {"max", AtomOp::kMax}, {"and", AtomOp::kAnd}, {"or", AtomOp::kOr}};
    for (const auto& [name, value] : kOps) {
        if (word != name) continue;
        op = value;
        return true;
    }
    return false;
}

}  // namespace

// txq{.level}.query.b32 d, [object]{, level}; suq likewise; istypep.(texref|surfref|samplerref) p, object.
void FunctionDecoder::decode_texture_query() {
    Inst inst;
    inst.op = Op::kTexture;
    inst.counter = arith::Class::kSpecial;
    if (current_->opcode == "istypep") {
        expect_operands(2, 2);
        if (!has("texref") && !has("surfref")) fail("there are no sampler objects; textures and surfaces are reached by objects only");
        inst.mode = static_cast<uint8_t>(has("texref") ? TextureOp::kIsTexture : TextureOp::kIsSurface);
        destination_predicate(inst, Field::kPd, operand(0));
        source(inst, Field::kA, operand(1), 8, Type::kU64);
        return emit(inst);
    }
    const bool of_level = current_->opcode == "txq" && has("level");
    expect_operands(of_level ? 3 : 2, of_level ? 3 : 2);
    inst.mode = static_cast<uint8_t>(current_->opcode == "txq" ? TextureOp::kQuery : TextureOp::kSurfaceQuery);
    inst.bytes = 0xFF;
    for (const Name& query : kQueries) {
        if (has(query.word)) inst.bytes = query.value;
    }
    if (inst.bytes == 0xFF || (of_level && inst.bytes > static_cast<uint8_t>(TextureQuery::kDepth))) fail("this query is not supported");
    Operand object = operand(1);
    if (object.kind != Operand::Kind::kAddress || !object.base_is_register) fail("textures are reached by objects only");
    object.kind = Operand::Kind::kRegister;
    destination(inst, Field::kD, operand(0), 4);
    source(inst, Field::kA, object, 8, Type::kU64);
    inst.b = builder_.constant_row(0, false);
    if (of_level) source(inst, Field::kB, operand(2), 4, Type::kU32);
    emit(inst);
}

bool FunctionDecoder::decode_texture() {
    const std::string& opcode = current_->opcode;
    if (opcode == "txq" || opcode == "suq" || opcode == "istypep") return decode_texture_query(), true;
    const bool is_reduction = opcode == "sured", is_store = opcode == "sust" || is_reduction, is_load = opcode == "suld";
    const bool is_fetch = opcode == "tex" || opcode == "tld4";
    if (!is_store && !is_load && !is_fetch) return false;
    Inst inst;
    inst.op = Op::kTexture;
    inst.counter = arith::Class::kSpecial;
    const bool is_formatted = is_store && has("p");
    TextureOp op = opcode == "tex"    ? TextureOp::kFetch
                   : opcode == "tld4" ? TextureOp::kGather
                   : is_load          ? TextureOp::kSurfaceLoad
                   : is_reduction     ? (is_formatted ? TextureOp::kSurfaceReduceFormatted : TextureOp::kSurfaceReduce)
                   : is_formatted     ? TextureOp::kSurfaceStoreFormatted
                                      : TextureOp::kSurfaceStore;
    uint32_t coordinates = 0, gradients = 0, types = 0;
    AtomOp reduction{};
    bool has_reduction = false, is_float = false;
    inst.vec = 1;
    inst.c = static_cast<uint32_t>(SurfaceBounds::kTrap);
    for (const std::string& word : current_->modifiers) {
        bool known = false;
        for (const Name& geometry : kGeometries) {
            if (word != geometry.word) continue;
            inst.mode2 = geometry.value;
            coordinates = geometry.count;
            known = true;
        }
        if (known) continue;
        if (word == "v2" || word == "v4") {
            inst.vec = static_cast<uint8_t>(word[1] - '0');
        } else if (is_fetch && word == "level" && op == TextureOp::kFetch) {
            op = TextureOp::kFetchLevel;
        } else if (op == TextureOp::kFetch && word == "base") {
            continue;  // the first level, as where no level is given
        } else if (is_fetch && word == "grad" && op == TextureOp::kFetch) {
            op = TextureOp::kFetchGradient;
        } else if (op == TextureOp::kGather && (word == "r" || word == "g" || word == "b" || word == "a")) {
            inst.bytes = word == "r" ? 0 : word == "g" ? 1 : word == "b" ? 2 : 3;
        } else if (!is_fetch && (word == "b" || (word == "p" && is_formatted))) {
            continue;  // without conversion, or with it
        } else if (is_reduction && parse_surface_reduction(word, reduction)) {
            has_reduction = true;
        } else if (!is_fetch && (word == "trap" || word == "clamp" || word == "zero")) {
            inst.c = static_cast<uint32_t>(word == "trap"    ? SurfaceBounds::kTrap
                                           : word == "clamp" ? SurfaceBounds::kClamp
                                                             : SurfaceBounds::kZero);
        } else if (const Type type = ptx::type_from_name(word); type != Type::kNone) {
            if (is_fetch) {
                const bool is_word = type == Type::kF32 || type == Type::kS32 || type == Type::kU32;
                if (types == 0 && !is_word) fail("its type is not supported");
                if (types == 0) inst.e = type == Type::kF32 ? 0 : type == Type::kS32 ? 1 : 2;
                if (types == 1 && type != Type::kF32 && type != Type::kS32) fail("its type of coordinates is not supported");
                if (types == 1) inst.dbytes = type == Type::kS32;
            } else {
                inst.bytes = static_cast<uint8_t>(ptx::size_of(type));
                const bool is_word = inst.bytes == 4 || (is_reduction && inst.bytes == 8);
                if (inst.bytes > 8 || ((is_formatted || is_reduction) && !is_word)) fail("its type is not supported");
                inst.dbytes = type == Type::kS32 || type == Type::kS64;
                is_float |= type == Type::kF32 || type == Type::kF64;
            }
            ++types;
        } else if (word.rfind("L1::", 0) != 0 && word.rfind("L2::", 0) != 0 && word != "ca" && word != "cg" && word != "cs" &&
                   word != "cv" && word != "wb" && word != "wt") {
            fail("modifier '." + word + "' is not supported");
        }
    }
    inst.mode = static_cast<uint8_t>(op);
    if (is_reduction && (!has_reduction || inst.vec != 1 || is_float)) fail("this operation does not exist for its type");
    if (is_reduction) inst.e = static_cast<uint32_t>(reduction);
    if (coordinates == 0 || types != (is_fetch ? 2u : 1u)) fail("its geometry or type is missing");
    const Geometry geometry = static_cast<Geometry>(inst.mode2);
    const bool is_cube = geometry == Geometry::kCube || geometry == Geometry::kLayeredCube;
    if (!is_fetch && is_cube) fail("this geometry does not exist for surfaces");
    if (op == TextureOp::kGather && geometry != Geometry::k2d && geometry != Geometry::kLayered2d)
        fail("a gather from this geometry is not supported");
    if (op == TextureOp::kFetchGradient) {
        if (is_cube) fail("gradients of cube maps are not supported");
        gradients = coordinates - (geometry == Geometry::kLayered1d || geometry == Geometry::kLayered2d ? 1 : 0);
    }
    const uint8_t row = !is_fetch && inst.bytes == 8 ? 8 : 4;
    const size_t extra = op == TextureOp::kFetchLevel ? 1 : op == TextureOp::kFetchGradient ? 2 : 0;
    expect_operands(2 + extra, 2 + extra);
    const Operand& data = is_store ? operand(1) : operand(0);
    const Operand& where = is_store ? operand(0) : operand(1);
    if (where.kind != Operand::Kind::kTensorCoords || where.elements.size() != 2)
        fail("[object, {coordinates}] is expected; textures are reached by objects only");
    Operand object = where.elements[0];
    if (object.kind == Operand::Kind::kAddress && object.base_is_register) object.kind = Operand::Kind::kRegister;
    source(inst, Field::kA, object, 8, Type::kU64);
    const auto parts = [](const Operand& all) { return all.kind == Operand::Kind::kVector ? all.elements : std::vector<Operand>{all}; };
    const auto list = [&](const Operand& all, uint32_t count, bool is_destination, uint8_t bytes, Type type) {
        const std::vector<Operand> each = parts(all);
        if (each.size() < count) fail("it has too few elements");
        for (uint32_t i = 0; i < count; ++i) {
            const uint32_t slot = is_destination ? listed_destination(each[i], bytes) : listed_source(each[i], bytes, type);
            if (inst.imm == ~0u) inst.imm = slot;
        }
    };
    // Listed: the data, the coordinates, then the level of detail or the gradients.
    inst.imm = ~0u;
    list(data, inst.vec, !is_store, row, row == 8 ? Type::kB64 : Type::kB32);
    list(where.elements[1], coordinates, false, 4, is_fetch && !inst.dbytes ? Type::kF32 : Type::kB32);
    if (op == TextureOp::kFetchLevel) list(operand(2), 1, false, 4, Type::kF32);
    for (uint32_t i = 0; i < 2 && gradients; ++i) list(operand(2 + i), gradients, false, 4, Type::kF32);
    emit(inst);
    return true;
}

}  // namespace aicf::emu
