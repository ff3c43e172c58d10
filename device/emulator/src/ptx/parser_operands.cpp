// Operands and constant expressions. PTX ISA, "Instruction Operands" and "Constant Expressions".
#include <bit>

#include "parser.hpp"

namespace aicf::emu::ptx {
namespace {

constexpr uint64_t kWarpSize = 32;

bool is_float(const Constant& value) { return value.type == Type::kF32 || value.type == Type::kF64; }

double to_double(const Constant& value) {
    if (value.type == Type::kF64) return std::bit_cast<double>(value.bits);
    if (value.type == Type::kF32) return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(value.bits)));
    return value.type == Type::kU64 ? static_cast<double>(value.bits) : static_cast<double>(static_cast<int64_t>(value.bits));
}

// Binary operators by precedence, loosest first.
constexpr std::string_view kLevels[][4] = {
    {"||"}, {"&&"}, {"|"}, {"^"}, {"&"}, {"==", "!="}, {"<", "<=", ">", ">="}, {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"},
};
constexpr int kNumLevels = static_cast<int>(std::size(kLevels));

int8_t member_index(std::string_view word) {
    if (word.size() != 1) return -1;
    const size_t xyzw = std::string_view("xyzw").find(word[0]);
    if (xyzw != std::string_view::npos) return static_cast<int8_t>(xyzw);
    const size_t rgba = std::string_view("rgba").find(word[0]);
    return rgba == std::string_view::npos ? int8_t{-1} : static_cast<int8_t>(rgba);
}

}  // namespace

Operand Parser::parse_operand() {
    Operand first = parse_plain_operand();
    if (!accept("|")) return first;
    Operand pair;
    pair.kind = Operand::Kind::kPair;
    pair.elements.push_back(std::move(first));
    pair.elements.push_back(parse_plain_operand());
    return pair;
}

Operand Parser::parse_plain_operand() {
    const Nesting nesting(*this);
    if (peek().is("[")) return parse_bracket();
    if (accept("{")) return parse_sequence("}", Operand::Kind::kVector);
    if (in_call_ && accept("(")) return parse_sequence(")", Operand::Kind::kList);
    if (peek().is("!") && peek(1).kind == Token::Kind::kIdentifier) {
        take();
        Operand operand = parse_named();
        operand.negated = true;
        return operand;
    }
    if (peek().is("-") && peek(1).kind == Token::Kind::kIdentifier && !peek(1).is_word("WARP_SZ")) {
        take();
        Operand operand = parse_named();
        operand.negated = true;
        return operand;
    }
    if (starts_constant()) return make_immediate(parse_constant());
    if (peek().kind == Token::Kind::kIdentifier) return parse_named();
    fail("an operand");
}

Operand Parser::make_immediate(const Constant& value) {
    Operand operand;
    operand.kind = Operand::Kind::kImmediate;
    operand.bits = value.bits;
    operand.immediate_type = value.type;
    return operand;
}

Operand Parser::parse_sequence(std::string_view close, Operand::Kind kind) {
    Operand operand;
    operand.kind = kind;
    while (!peek().is(close)) {
        operand.elements.push_back(parse_operand());
        if (!accept(",")) break;
    }
    expect(close);
    return operand;
}

Operand Parser::parse_named() {
    Operand operand;
    const std::string name = expect_name("a register or symbol");
    if (name == "_") {
        operand.kind = Operand::Kind::kSink;
        return operand;
    }
    const Name* known = lookup(name);
    const bool is_register = name.front() == '%' || (known != nullptr && known->kind == Name::Kind::kRegister);
    const bool is_bound = is_register || (known != nullptr && known->kind == Name::Kind::kVariable);
    operand.name = !is_bound ? refer(name) : known == nullptr ? name : known->unique;
    operand.kind = is_register ? Operand::Kind::kRegister : Operand::Kind::kSymbol;
    if (is_register && peek().kind == Token::Kind::kDotted && !peek().space_before) {
        const std::string_view word = take().text;
        operand.member = member_index(word);
        if (operand.member < 0) operand.name += "." + std::string(word);  // .b0, .h1 of the video instructions
    }
    if (!is_register && (peek().is("+") || peek().is("-"))) {
        operand.offset = static_cast<int64_t>(expect_integer("an offset"));  // with its sign
    }
    return operand;
}

Operand Parser::parse_bracket() {
    expect("[");
    Operand address;
    address.kind = Operand::Kind::kAddress;
    if (peek().kind == Token::Kind::kIdentifier && !peek().is_word("WARP_SZ")) {
        if (peek().is_word("_")) fail("an address");
        const Operand base = parse_named();
        address.name = base.name;
        address.offset = base.offset;
        address.base_is_register = base.kind == Operand::Kind::kRegister;
        if (address.base_is_register && (peek().is("+") || peek().is("-"))) {
            address.offset = static_cast<int64_t>(expect_integer("an offset"));  // with its sign
        }
    } else if (starts_constant()) {
        address.offset = static_cast<int64_t>(parse_constant().bits);
    } else {
        fail("an address");
    }
    if (!peek().is(",")) {
        expect("]");
        return address;
    }
    Operand list;
    list.kind = Operand::Kind::kTensorCoords;
    list.elements.push_back(std::move(address));
    while (accept(",")) list.elements.push_back(parse_operand());
    expect("]");
    return list;
}

bool Parser::starts_constant() {
    const Token& token = peek();
    if (token.kind == Token::Kind::kInteger || token.kind == Token::Kind::kFloat) return true;
    return token.is("-") || token.is("+") || token.is("~") || token.is("!") || token.is("(") || token.is_word("WARP_SZ");
}

Constant Parser::parse_constant() {
    const Nesting nesting(*this);
    const Constant condition = parse_binary(0);
    if (!accept("?")) return condition;
    const Constant yes = parse_constant();
    expect(":");
    const Constant no = parse_constant();
    return condition.bits != 0 ? yes : no;
}

Constant Parser::parse_unary() {
    const Nesting nesting(*this);
    if (accept("+")) return parse_unary();
    if (accept("-")) {
        Constant value = parse_unary();
        if (value.type == Type::kF64) {
            value.bits ^= uint64_t{1} << 63;
        } else if (value.type == Type::kF32) {
            value.bits ^= uint64_t{1} << 31;
        } else {
            value.bits = 0 - value.bits;
        }
        return value;
    }
    if (peek().is("~") || peek().is("!")) {
        const bool logical = take().is("!");
        Constant value = parse_unary();
        if (is_float(value)) throw ParseError(last_line_, "'~' and '!' take an integer");
        value.bits = logical ? (value.bits == 0 ? 1 : 0) : ~value.bits;
        return value;
    }
    if (accept("(")) {
        if (peek().is_dot("s64") || peek().is_dot("u64")) {  // a cast: (.s64) x
            const Type type = take().is_dot("s64") ? Type::kS64 : Type::kU64;
            expect(")");
            const Constant value = parse_unary();
            if (is_float(value)) throw ParseError(last_line_, "a cast takes an integer");
            return {value.bits, type};
        }
        const Constant value = parse_constant();
        expect(")");
        return value;
    }
    const Token token = take();
    if (token.is_word("WARP_SZ")) return {kWarpSize, Type::kS64};
    if (token.kind != Token::Kind::kInteger && token.kind != Token::Kind::kFloat) {
        throw ParseError(token.line, "expected a constant, found '" + std::string(token.text) + "'");
    }
    return {token.bits, token.immediate};
}

namespace {

Constant apply_float(std::string_view op, const Constant& a, const Constant& b, uint32_t line) {
    const double x = to_double(a), y = to_double(b);
    double value = 0;
    if (op == "+") {
        value = x + y;
    } else if (op == "-") {
        value = x - y;
    } else if (op == "*") {
        value = x * y;
    } else if (op == "/") {
        value = x / y;
    } else {
        throw ParseError(line, "'" + std::string(op) + "' takes integers");
    }
    return {std::bit_cast<uint64_t>(value), Type::kF64};
}

Constant apply_integer(std::string_view op, const Constant& a, const Constant& b, uint32_t line) {
    const bool is_unsigned = a.type == Type::kU64 || b.type == Type::kU64;
    const auto sa = static_cast<int64_t>(a.bits), sb = static_cast<int64_t>(b.bits);
    const auto truth = [](bool value) { return Constant{value ? 1u : 0u, Type::kS64}; };
    const auto number = [&](uint64_t bits) { return Constant{bits, is_unsigned ? Type::kU64 : Type::kS64}; };
    if (op == "+") return number(a.bits + b.bits);
    if (op == "-") return number(a.bits - b.bits);
    if (op == "*") return number(a.bits * b.bits);
    if (op == "/" || op == "%") {
        if (b.bits == 0) throw ParseError(line, "division by zero in a constant expression");
        if (is_unsigned) return number(op == "/" ? a.bits / b.bits : a.bits % b.bits);
        if (sb == -1) return number(op == "/" ? 0 - a.bits : 0);
        return number(static_cast<uint64_t>(op == "/" ? sa / sb : sa % sb));
    }
    if (op == "<<") return {b.bits > 63 ? 0 : a.bits << b.bits, a.type};
    if (op == ">>") {
        const uint64_t shift = b.bits > 63 ? 63 : b.bits;
        return {a.type == Type::kU64 ? (b.bits > 63 ? 0 : a.bits >> shift) : static_cast<uint64_t>(sa >> shift), a.type};
    }
    if (op == "&") return number(a.bits & b.bits);
    if (op == "|") return number(a.bits | b.bits);
    if (op == "^") return number(a.bits ^ b.bits);
    if (op == "&&") return truth(a.bits != 0 && b.bits != 0);
    if (op == "||") return truth(a.bits != 0 || b.bits != 0);
    if (op == "==") return truth(a.bits == b.bits);
    if (op == "!=") return truth(a.bits != b.bits);
    const bool less = is_unsigned ? a.bits < b.bits : sa < sb;
    if (op == "<") return truth(less);
    if (op == ">=") return truth(!less);
    const bool greater = is_unsigned ? a.bits > b.bits : sa > sb;
    return truth(op == ">" ? greater : !greater);
}

}  // namespace

Constant Parser::parse_binary(int level) {
    if (level == kNumLevels) return parse_unary();
    Constant left = parse_binary(level + 1);
    for (bool found = true; found;) {
        found = false;
        for (const std::string_view op : kLevels[level]) {
            if (op.empty() || !peek().is(op)) continue;
            take();
            const Constant right = parse_binary(level + 1);
            left =
                is_float(left) || is_float(right) ? apply_float(op, left, right, last_line_) : apply_integer(op, left, right, last_line_);
            found = true;
            break;
        }
    }
    return left;
}

}  // namespace aicf::emu::ptx
