// Module scope: directives, variables with initialisers, function headers. PTX ISA, "Directives" and "State Spaces, Types, and Variables".
#include <bit>
#include <cstring>
#include <limits>

#include "parser.hpp"

namespace aicf::emu::ptx {
namespace {

constexpr uint64_t kMaxVariableBytes = uint64_t{1} << 40;
constexpr uint64_t kMaxInitialBytes = uint64_t{1} << 32;
constexpr uint64_t kMaxAlign = uint64_t{1} << 16;

Space space_from_name(std::string_view word) {
    if (word == "global") return Space::kGlobal;
    if (word == "const") return Space::kConst;
    if (word == "shared") return Space::kShared;
    if (word == "local") return Space::kLocal;
    if (word == "param") return Space::kParam;
    if (word == "reg") return Space::kReg;
    return Space::kNone;
}

}  // namespace

void Parser::parse_module_statement() {
    if (accept(";")) return;
    if (peek().kind != Token::Kind::kDotted) fail("a directive");
    const Variable::Linkage linkage = parse_linkage();
    const Token directive = take();
    const std::string_view word = directive.kind == Token::Kind::kDotted ? directive.text : std::string_view();
    if (word == "version") return parse_version();
    if (word == "target") return parse_target();
    if (word == "address_size") {
        module_.address_size = static_cast<uint32_t>(expect_integer("32 or 64"));
        return;
    }
    if (word == "file") return parse_file();
    if (word == "loc") return parse_loc();
    if (word == "section") return parse_section();
    if (word == "alias") return parse_alias();
    if (word == "pragma") {
        while (!accept(";")) {
            if (take().kind == Token::Kind::kEnd) fail("';'");
        }
        return;
    }
    if (word == "entry" || word == "func") return parse_function(linkage, word == "entry");
    if (const Type reference = type_from_name(word); reference >= Type::kTexref && reference <= Type::kSurfref) {
        Variable variable;
        variable.linkage = linkage;
        variable.space = Space::kGlobal;
        variable.type = reference;
        variable.name = expect_name("a name");
        variable.size_bytes = size_of(reference);
        module_.variables.push_back(variable);
        expect(";");
        return;
    }
    const Space space = space_from_name(word);
    if (space == Space::kNone || space == Space::kReg || space == Space::kParam) {
        throw ParseError(directive.line, "directive '." + std::string(directive.text) + "' is not known at module scope");
    }
    parse_variables(space, linkage, module_.variables, false);
}

void Parser::parse_version() {
    const Token token = take();  // "9.0" reads as one floating-point constant
    const size_t dot = token.text.find('.');
    if (token.kind != Token::Kind::kFloat || dot == std::string_view::npos) throw ParseError(token.line, "expected a version such as 9.0");
    const auto read = [](std::string_view digits) {
        uint32_t value = 0;
        for (const char c : digits) value = value * 10 + static_cast<uint32_t>(c - '0');
        return value;
    };
    module_.version_major = read(token.text.substr(0, dot));
    module_.version_minor = read(token.text.substr(dot + 1));
}

void Parser::parse_target() {
    module_.target = expect_name("a target such as sm_90a");
    while (accept(",")) expect_name("a target option");
}

void Parser::parse_file() {
    const uint64_t index = expect_integer("a file index");
    if (index > 1'000'000) fail("a file index below a million");
    if (peek().kind != Token::Kind::kString) fail("a file name in quotes");
    if (module_.files.size() <= index) module_.files.resize(index + 1);
    module_.files[index] = std::string(take().text);
    while (accept(",")) expect_integer("a time stamp or size");
}

void Parser::parse_loc() {
    where_.file = static_cast<uint32_t>(expect_integer("a file index"));
    where_.line = static_cast<uint32_t>(expect_integer("a line"));
    where_.column = static_cast<uint32_t>(expect_integer("a column"));
    where_.inlined_at = 0;
    while (accept(",")) {
        const std::string word = expect_name("function_name or inlined_at");
        if (word == "function_name") {
            expect_name("a label");
            if (accept("+")) expect_integer("an offset");
        } else if (word == "inlined_at") {
            Location site;
            site.file = static_cast<uint32_t>(expect_integer("a file index"));
            site.line = static_cast<uint32_t>(expect_integer("a line"));
            site.column = static_cast<uint32_t>(expect_integer("a column"));
            where_.inlined_at = add_call_site(site);
        } else {
            throw ParseError(last_line_, "expected function_name or inlined_at, found '" + word + "'");
        }
    }
    places_[{where_.file, where_.line, where_.column}] = where_.inlined_at;
}

// A call that was inlined itself was the place of a .loc before, which says where.
uint32_t Parser::add_call_site(Location site) {
    const auto caller = places_.find({site.file, site.line, site.column});
    if (caller != places_.end()) site.inlined_at = caller->second;
    const auto [found, is_new] = call_sites_.try_emplace({site.file, site.line, site.column, site.inlined_at}, 0);
    if (is_new) {
        if (module_.call_sites.empty()) module_.call_sites.emplace_back();
        found->second = static_cast<uint32_t>(module_.call_sites.size());
        module_.call_sites.push_back(site);
    }
    return found->second;
}

void Parser::parse_section() {
    if (peek().kind != Token::Kind::kDotted && peek().kind != Token::Kind::kIdentifier) fail("a section name");
    take();
    accept(",");
    skip_braces();
}

void Parser::parse_alias() {
    const std::string alias = expect_name("a function");
    expect(",");
    const std::string target = expect_name("a function");
    expect(";");
    const Function* function = module_.find(target);
    if (function == nullptr || !function->has_body)
        throw ParseError(last_line_, ".alias names '" + target + "', which is not defined before it");
    Function copy = *function;
    copy.name = alias;
    std::erase_if(module_.functions, [&](const Function& f) { return f.name == alias && !f.has_body; });
    module_.functions.push_back(std::move(copy));
}

Variable::Linkage Parser::parse_linkage() {
    if (accept_dot("visible")) return Variable::Linkage::kVisible;
    if (accept_dot("extern")) return Variable::Linkage::kExtern;
    if (accept_dot("weak")) return Variable::Linkage::kWeak;
    if (accept_dot("common")) return Variable::Linkage::kCommon;
    return Variable::Linkage::kInternal;
}

void Parser::parse_dim3(uint32_t (&out)[3]) {
    out[0] = static_cast<uint32_t>(expect_integer("a size"));
    out[1] = out[2] = 1;
    for (int i = 1; i < 3 && accept(","); ++i) out[i] = static_cast<uint32_t>(expect_integer("a size"));
}

std::vector<Variable> Parser::parse_parameters() {
    std::vector<Variable> params;
    expect("(");
    while (!peek().is(")")) {
        const std::string word = expect_dot("'.param' or '.reg'");
        const Space space = space_from_name(word);
        if (space != Space::kParam && space != Space::kReg)
            throw ParseError(last_line_, "expected '.param' or '.reg', found '." + word + "'");
        Variable variable = parse_variable_head(space, Variable::Linkage::kInternal);
        parse_declarator(variable, false);
        params.push_back(std::move(variable));
        if (!accept(",")) break;
    }
    expect(")");
    return params;
}

void Parser::parse_function(Variable::Linkage linkage, bool is_entry) {
    Function function;
    function.linkage = linkage;
    function.is_entry = is_entry;
    function.where.ptx_line = last_line_;
    function_ = &function;
    where_ = {};
    places_.clear();
    while (peek().is_dot("attribute")) {
        take();
        skip_parentheses();
    }
    if (!is_entry && peek().is("(")) function.returns = parse_parameters();
    function.name = expect_name("a function name");
    if (peek().is("(")) function.params = parse_parameters();
    parse_function_directives();
    if (!accept(";")) {
        function.has_body = true;
        parse_body();
    }
    function_ = nullptr;
    module_.functions.push_back(std::move(function));
}

void Parser::parse_function_directives() {
    Function& function = *function_;
    uint32_t ignored[3];
    while (peek().kind == Token::Kind::kDotted) {
        const Token directive = take();
        const std::string_view word = directive.text;
        if (word == "maxntid") {
            parse_dim3(function.max_threads);
        } else if (word == "reqntid") {
            parse_dim3(function.required_threads);
        } else if (word == "reqnctapercluster") {
            parse_dim3(function.required_cluster);
        } else if (word == "minnctapersm") {
            function.min_blocks_per_sm = static_cast<uint32_t>(expect_integer("a count"));
        } else if (word == "maxnreg") {
            function.max_registers = static_cast<uint32_t>(expect_integer("a count"));
        } else if (word == "explicitcluster") {
            function.explicit_cluster = true;
        } else if (word == "noreturn") {
            function.no_return = true;
        } else if (word == "maxnctapersm" || word == "maxclusterrank" || word == "abi_preserve" || word == "abi_preserve_control") {
            parse_dim3(ignored);
        } else if (word == "blocksareclusters" || word == "unified") {
            continue;
        } else if (word == "pragma") {
            while (!peek().is(";") && !peek().is("{") && peek().kind != Token::Kind::kDotted) {
                if (take().kind == Token::Kind::kEnd) fail("a function body");
            }
            if (peek().is(";") && (peek(1).is("{") || peek(1).kind == Token::Kind::kDotted)) take();
        } else {
            throw ParseError(directive.line, "function directive '." + std::string(word) + "' is not known");
        }
    }
}

Variable Parser::parse_variable_head(Space space, Variable::Linkage linkage) {
    Variable variable;
    variable.space = space;
    variable.linkage = linkage;
    variable.where.ptx_line = last_line_;
    if (space == Space::kConst && accept("[")) {  // .const[bank] of old PTX
        expect_integer("a bank");
        expect("]");
    }
    while (peek().kind == Token::Kind::kDotted) {
        const Token token = take();
        const std::string_view word = token.text;
        if (word == "align") {
            const uint64_t align = expect_integer("an alignment in bytes");
            if (!std::has_single_bit(align) || align > kMaxAlign)
                throw ParseError(token.line, "an alignment is a power of two up to 65536");
            variable.align = static_cast<uint32_t>(align);
        } else if (word == "v2" || word == "v4" || word == "v8") {
            variable.vector_length = static_cast<uint32_t>(word[1] - '0');
        } else if (word == "attribute") {
            variable.is_managed |= skip_parentheses("managed");
        } else if (word == "ptr") {
            variable.is_grid_constant_pointer = true;
            // .ptr{.space}{.align N} describes what the pointer points to
            if (peek().kind == Token::Kind::kDotted && space_from_name(peek().text) != Space::kNone) take();
            if (accept_dot("align")) expect_integer("an alignment in bytes");
        } else if (const Type type = type_from_name(word); type != Type::kNone) {
            variable.type = type;
        } else {
            throw ParseError(token.line, "'." + std::string(word) + "' is not known in a variable declaration");
        }
    }
    if (variable.type == Type::kNone) fail("a type");
    return variable;
}

void Parser::parse_declarator(Variable& variable, bool in_body) {
    const std::string name = expect_name("a name");
    variable.name = in_body ? declare(name, Name::Kind::kVariable) : name;
    variable.dimensions.clear();
    variable.initial.reset();
    uint64_t count = variable.vector_length;
    bool unsized = false;
    while (accept("[")) {
        const uint64_t extent = peek().is("]") ? 0 : expect_integer("an array size");
        expect("]");
        unsized |= extent == 0;
        variable.dimensions.push_back(extent);
        if (extent != 0 && count > kMaxVariableBytes / extent) throw ParseError(last_line_, "variable '" + name + "' is larger than 1 TiB");
        count *= extent == 0 ? 1 : extent;
    }
    variable.size_bytes = unsized ? 0 : count * size_of(variable.type);
    if (variable.align == 0) variable.align = size_of(variable.type) * variable.vector_length;
}

void Parser::parse_variables(Space space, Variable::Linkage linkage, std::vector<Variable>& into, bool in_body) {
    const Variable head = parse_variable_head(space, linkage);
    do {
        Variable variable = head;
        parse_declarator(variable, in_body);
        if (accept("=")) parse_initializer(variable);
        into.push_back(std::move(variable));
    } while (accept(","));
    expect(";");
}

void Parser::parse_initializer(Variable& variable) {
    variable.initial.emplace();
    const bool unsized = variable.size_bytes == 0 && !variable.dimensions.empty();
    if (!unsized && variable.size_bytes > kMaxInitialBytes) throw ParseError(last_line_, "initialised variable is larger than 4 GiB");
    variable.initial->bytes.resize(variable.size_bytes);
    parse_initializer_level(variable, 0, 0, unsized ? std::numeric_limits<uint64_t>::max() : variable.size_bytes);
    if (unsized) {
        variable.size_bytes = variable.initial->bytes.size();
        variable.dimensions[0] = variable.size_bytes / (size_of(variable.type) * variable.vector_length);
    }
}

// Reads a value, or a braced list of what lies one dimension deeper, into `size_bytes` at `offset`; what is left out stays zero.
void Parser::parse_initializer_level(Variable& variable, size_t dimension, uint64_t offset, uint64_t size_bytes) {
    const Nesting nesting(*this);
    if (!peek().is("{")) return parse_initializer_element(variable, offset);
    expect("{");
    uint64_t inner = size_of(variable.type);
    if (dimension < variable.dimensions.size()) {
        inner *= variable.vector_length;
        for (size_t d = dimension + 1; d < variable.dimensions.size(); ++d) inner *= variable.dimensions[d];
    }
    uint64_t at = 0;
    while (!peek().is("}")) {
        if (at + inner > size_bytes) throw ParseError(peek().line, "more initialisers than elements for '" + variable.name + "'");
        // A flat list may initialise a nested array element by element.
        const bool nested = peek().is("{");
        parse_initializer_level(variable, dimension + 1, offset + at, inner);
        at += nested ? inner : size_of(variable.type);
        if (!accept(",")) break;
    }
    expect("}");
}

void Parser::parse_initializer_element(Variable& variable, uint64_t offset) {
    Initializer& initial = *variable.initial;
    const uint32_t size = size_of(variable.type);
    if (offset + size > kMaxInitialBytes) throw ParseError(peek().line, "initialised variable is larger than 4 GiB");
    if (initial.bytes.size() < offset + size) initial.bytes.resize(offset + size);
    Initializer::Relocation relocation{static_cast<uint32_t>(offset), size, "", 0, false, 0};
    const bool masked = peek().kind == Token::Kind::kInteger && peek(1).is("(");
    if (masked) {  // 0xFF00(symbol): one byte of an address
        const uint64_t mask = take().bits;
        relocation.shift_bits = mask == 0 ? 0 : static_cast<uint32_t>(std::countr_zero(mask));
        expect("(");
    }
    if (peek().kind == Token::Kind::kIdentifier && !peek().is_word("WARP_SZ")) {
        relocation.symbol = expect_name("a symbol");
        if (relocation.symbol == "generic" && accept("(")) {
            relocation.generic = true;
            relocation.symbol = expect_name("a symbol");
            expect(")");
        }
        if (peek().is("+") || peek().is("-")) {
            relocation.offset = static_cast<int64_t>(expect_integer("an offset"));  // with its sign
        }
        if (masked) expect(")");
        initial.relocations.push_back(std::move(relocation));
        return;
    }
    if (masked) fail("a symbol");
    if (!starts_constant()) fail("an initialiser");
    Constant value = parse_constant();
    if (variable.type == Type::kF32 && value.type != Type::kF32) {
        const double number =
            value.type == Type::kF64 ? std::bit_cast<double>(value.bits) : static_cast<double>(static_cast<int64_t>(value.bits));
        value.bits = std::bit_cast<uint32_t>(static_cast<float>(number));
    } else if (variable.type == Type::kF64 && value.type != Type::kF64) {
        const double number = value.type == Type::kF32 ? static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(value.bits)))
                                                       : static_cast<double>(static_cast<int64_t>(value.bits));
        value.bits = std::bit_cast<uint64_t>(number);
    }
    std::memcpy(initial.bytes.data() + offset, &value.bits, std::min<size_t>(size, sizeof value.bits));
}

}  // namespace aicf::emu::ptx
