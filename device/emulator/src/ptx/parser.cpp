#include "parser.hpp"

namespace aicf::emu::ptx {

Parser::Parser(std::string_view text) : lexer_(text) { module_.files.emplace_back(); }

const Token& Parser::peek(size_t ahead) {
    while (ahead_.size() - ahead_at_ <= ahead) {
        if (ahead_at_ > 64) {
            ahead_.erase(ahead_.begin(), ahead_.begin() + static_cast<ptrdiff_t>(ahead_at_));
            ahead_at_ = 0;
        }
        ahead_.push_back(lexer_.next());
    }
    return ahead_[ahead_at_ + ahead];
}

Token Parser::take() {
    const Token token = peek();
    ++ahead_at_;
    last_line_ = token.line;
    return token;
}

bool Parser::accept(std::string_view punctuation) {
    if (!peek().is(punctuation)) return false;
    take();
    return true;
}

bool Parser::accept_dot(std::string_view word) {
    if (!peek().is_dot(word)) return false;
    take();
    return true;
}

Token Parser::expect(std::string_view punctuation) {
    if (!peek().is(punctuation)) fail("'" + std::string(punctuation) + "'");
    return take();
}

std::string Parser::expect_name(const char* what) {
    if (peek().kind != Token::Kind::kIdentifier) fail(what);
    return std::string(take().text);
}

std::string Parser::expect_dot(const char* what) {
    if (peek().kind != Token::Kind::kDotted) fail(what);
    return std::string(take().text);
}

uint64_t Parser::expect_integer(const char* what) {
    if (!starts_constant()) fail(what);
    const Constant value = parse_constant();
    if (value.type == Type::kF32 || value.type == Type::kF64) fail(what);
    return value.bits;
}

void Parser::fail(const std::string& expected) {
    const Token& token = peek();
    std::string found;
    switch (token.kind) {
        case Token::Kind::kEnd: found = "the end of the text"; break;
        case Token::Kind::kDotted: found = "'." + std::string(token.text) + "'"; break;
        default: found = "'" + std::string(token.text) + "'";
    }
    throw ParseError(token.line, "expected " + expected + ", found " + found);
}

void Parser::skip_braces() {
    expect("{");
    for (int depth = 1; depth > 0;) {
        const Token token = take();
        if (token.kind == Token::Kind::kEnd) throw ParseError(token.line, "expected '}', found the end of the text");
        depth += token.is("{") ? 1 : token.is("}") ? -1 : 0;
    }
}

bool Parser::skip_parentheses(std::string_view word) {
    expect("(");
    bool found = false;
    for (int depth = 1; depth > 0;) {
        const Token token = take();
        if (token.kind == Token::Kind::kEnd) throw ParseError(token.line, "expected ')', found the end of the text");
        depth += token.is("(") ? 1 : token.is(")") ? -1 : 0;
        found |= token.kind == Token::Kind::kDotted && token.text == word;
    }
    return found;
}

Module Parser::parse_module() {
    while (peek().kind != Token::Kind::kEnd) parse_module_statement();
    if (module_.version_major == 0) throw ParseError(1, "no .version directive: this is not a PTX module");
    return std::move(module_);
}

Module parse(std::string_view text) { return Parser(text).parse_module(); }

}  // namespace aicf::emu::ptx
