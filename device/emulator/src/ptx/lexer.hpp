// Tokens of PTX text (PTX ISA, "Lexical structure"). The lexer hands out views into the text and copies nothing.
#pragma once

#include <cstdint>
#include <string_view>

#include "module.hpp"

namespace aicf::emu::ptx {

struct Token {
    enum class Kind : uint8_t { kEnd, kIdentifier, kDotted /* ".global": text without the dot */, kInteger, kFloat, kString, kPunctuation };
    Kind kind = Kind::kEnd;
    std::string_view text;
    uint32_t line = 0;
    bool space_before = false;
    uint64_t bits = 0;             // kInteger: the value; kFloat: raw IEEE bits
    Type immediate = Type::kNone;  // kInteger: kS64 or kU64; kFloat: kF32 (0f...) or kF64

    bool is(std::string_view punctuation) const { return kind == Kind::kPunctuation && text == punctuation; }
    bool is_dot(std::string_view word) const { return kind == Kind::kDotted && text == word; }
    bool is_word(std::string_view word) const { return kind == Kind::kIdentifier && text == word; }
};

class Lexer {
public:
    explicit Lexer(std::string_view text) : text_(text) {}

    Token next();  // throws ParseError on a character or number that PTX does not know

private:
    void skip_space();
    Token read_number(Token token);
    Token read_hex_float(Token token, size_t digits, Type type);

    std::string_view text_;
    size_t at_ = 0;
    uint32_t line_ = 1;
    bool space_ = false;
};

}  // namespace aicf::emu::ptx
