#include "lexer.hpp"

#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>

namespace aicf::emu::ptx {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_follow(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '$'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

constexpr std::string_view kTwoCharacter[] = {"<<", ">>", "<=", ">=", "==", "!=", "&&", "||"};

}  // namespace

void Lexer::skip_space() {
    space_ = false;
    while (at_ < text_.size()) {
        const char c = text_[at_];
        if (c == '\n') {
            ++line_;
            ++at_;
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v' || c == '\0') {
            ++at_;
        } else if (c == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '/') {
            while (at_ < text_.size() && text_[at_] != '\n') ++at_;
        } else if (c == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '*') {
            const uint32_t start = line_;
            at_ += 2;
            while (at_ + 1 < text_.size() && !(text_[at_] == '*' && text_[at_ + 1] == '/')) {
                if (text_[at_] == '\n') ++line_;
                ++at_;
            }
            if (at_ + 1 >= text_.size()) throw ParseError(start, "comment is not closed");
            at_ += 2;
        } else {
            return;
        }
        space_ = true;
    }
}

Token Lexer::next() {
    skip_space();
    Token token;
    token.line = line_;
    token.space_before = space_;
    if (at_ >= text_.size()) return token;
    const size_t start = at_;
    const char c = text_[at_];
    const auto take = [&](Token::Kind kind, size_t skip) {
        token.kind = kind;
        token.text = text_.substr(start + skip, at_ - start - skip);
        return token;
    };
    if (is_digit(c)) return read_number(token);
    const bool is_remainder = c == '%' && (at_ + 1 >= text_.size() || !is_follow(text_[at_ + 1]));
    if (is_letter(c) || c == '_' || c == '$' || (c == '%' && !is_remainder)) {
        ++at_;
        while (at_ < text_.size() && is_follow(text_[at_])) ++at_;
        return take(Token::Kind::kIdentifier, 0);
    }
    if (c == '.' && at_ + 1 < text_.size() && (is_follow(text_[at_ + 1]))) {
        ++at_;
        // "::" joins qualifiers such as shared::cta into one word
        while (at_ < text_.size()) {
            if (is_follow(text_[at_])) {
                ++at_;
            } else if (text_.compare(at_, 2, "::") == 0) {
                at_ += 2;
            } else {
                break;
            }
        }
        return take(Token::Kind::kDotted, 1);
    }
    if (c == '"') {
        ++at_;
        while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') at_ += text_[at_] == '\\' ? 2 : 1;
        if (at_ >= text_.size() || text_[at_] != '"') throw ParseError(line_, "string is not closed");
        ++at_;
        token.kind = Token::Kind::kString;
        token.text = text_.substr(start + 1, at_ - start - 2);
        return token;
    }
    for (const std::string_view two : kTwoCharacter) {
        if (text_.compare(at_, 2, two) == 0) {
            at_ += 2;
            return take(Token::Kind::kPunctuation, 0);
        }
    }
    if (std::strchr("{}()[]<>,;:=+-*/%!~&|^?@.#", c) == nullptr) {
        char shown[8] = {c};
        if (c < 0x20 || c > 0x7e) std::snprintf(shown, sizeof shown, "0x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
        throw ParseError(line_, std::string("character '") + shown + "' is not part of PTX");
    }
    ++at_;
    return take(Token::Kind::kPunctuation, 0);
}

Token Lexer::read_hex_float(Token token, size_t digits, Type type) {
    const size_t first = at_ + 2;
    uint64_t value = 0;
    const char* begin = text_.data() + first;
    const size_t available = std::min(digits, text_.size() - first);
    const auto [end, error] = std::from_chars(begin, begin + available, value, 16);
    if (error != std::errc() || end != begin + digits) {
        throw ParseError(line_, "floating-point constant needs " + std::to_string(digits) + " hexadecimal digits");
    }
    at_ = first + digits;
    token.kind = Token::Kind::kFloat;
    token.bits = value;
    token.immediate = type;
    return token;
}

Token Lexer::read_number(Token token) {
    const size_t start = at_;
    const char second = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (text_[at_] == '0' && at_ + 2 < text_.size() && is_hex(text_[at_ + 2])) {
        if (second == 'f' || second == 'F') return read_hex_float(token, 8, Type::kF32);
        if (second == 'd' || second == 'D') return read_hex_float(token, 16, Type::kF64);
    }
    int base = 10;
    if (text_[at_] == '0' && (second == 'x' || second == 'X')) {
        base = 16;
        at_ += 2;
    } else if (text_[at_] == '0' && (second == 'b' || second == 'B')) {
        base = 2;
        at_ += 2;
    }
    const size_t digits = at_;
    while (at_ < text_.size() && (base == 16 ? is_hex(text_[at_]) : is_digit(text_[at_]))) ++at_;
    const bool is_float = base == 10 && at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E');
    if (is_float) {
        double value = 0;
        const auto [end, error] = std::from_chars(text_.data() + start, text_.data() + text_.size(), value);
        if (error != std::errc()) throw ParseError(line_, "floating-point constant cannot be read");
        at_ = static_cast<size_t>(end - text_.data());
        token.kind = Token::Kind::kFloat;
        std::memcpy(&token.bits, &value, sizeof value);
        token.immediate = Type::kF64;
        token.text = text_.substr(start, at_ - start);
        return token;
    }
    if (base == 10 && at_ - digits > 1 && text_[digits] == '0') base = 8;
    const auto [end, error] = std::from_chars(text_.data() + digits, text_.data() + at_, token.bits, base);
    if (error != std::errc() || end != text_.data() + at_)
        throw ParseError(line_, "integer constant '" + std::string(text_.substr(start, at_ - start)) + "' cannot be read");
    token.kind = Token::Kind::kInteger;
    token.immediate = token.bits >> 63 != 0 ? Type::kU64 : Type::kS64;  // what .s64 cannot hold is .u64
    if (at_ < text_.size() && text_[at_] == 'U') {
        token.immediate = Type::kU64;
        ++at_;
    }
    token.text = text_.substr(start, at_ - start);
    return token;
}

}  // namespace aicf::emu::ptx
