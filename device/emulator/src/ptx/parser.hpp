// Recursive-descent parser of PTX modules; the sources are split by what they read: directives, function bodies, operands.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lexer.hpp"
#include "module.hpp"

namespace aicf::emu::ptx {

// A constant expression's value. Integers carry signedness because >>, / and comparisons depend on it.
struct Constant {
    uint64_t bits = 0;
    Type type = Type::kS64;  // kS64, kU64, kF32 or kF64
};

class Parser {
public:
    explicit Parser(std::string_view text);
    Module parse_module();

private:
    // A braced block: names declared in it, and what they are called after flattening.
    struct Name {
        std::string unique;
        enum class Kind : uint8_t { kRegister, kVariable, kLabel } kind;
    };
    struct Scope {
        std::unordered_map<std::string, Name> names;
        std::vector<size_t> pending;  // indices of references_ that this scope or one around it may define further down
    };

    // Expressions, blocks and lists nest by recursion: a text must not choose how deep the stack gets.
    class Nesting {
    public:
        explicit Nesting(Parser& parser) : depth_(parser.depth_) {
            if (depth_ >= kMaxNesting) throw ParseError(parser.last_line_, "nested more than " + std::to_string(kMaxNesting) + " deep");
            ++depth_;
        }
        ~Nesting() { --depth_; }
        Nesting(const Nesting&) = delete;
        Nesting& operator=(const Nesting&) = delete;

    private:
        static constexpr int kMaxNesting = 256;
        int& depth_;
    };

    // tokens
    const Token& peek(size_t ahead = 0);
    Token take();
    bool accept(std::string_view punctuation);
    bool accept_dot(std::string_view word);
    Token expect(std::string_view punctuation);
    std::string expect_name(const char* what);
    std::string expect_dot(const char* what);
    uint64_t expect_integer(const char* what);
    [[noreturn]] void fail(const std::string& expected);
    void skip_braces();
    bool skip_parentheses(std::string_view word = {});  // whether `.word` is among them

    // module scope (parser_directives.cpp)
    void parse_module_statement();
    void parse_version();
    void parse_target();
    void parse_file();
    void parse_loc();
    uint32_t add_call_site(Location site);
    void parse_section();
    void parse_alias();
    Variable::Linkage parse_linkage();
    void parse_function(Variable::Linkage linkage, bool is_entry);
    void parse_function_directives();
    void parse_dim3(uint32_t (&out)[3]);
    std::vector<Variable> parse_parameters();
    Variable parse_variable_head(Space space, Variable::Linkage linkage);
    void parse_declarator(Variable& variable, bool in_body);
    void parse_variables(Space space, Variable::Linkage linkage, std::vector<Variable>& into, bool in_body);
    void parse_initializer(Variable& variable);
    void parse_initializer_level(Variable& variable, size_t dimension, uint64_t offset, uint64_t size_bytes);
    void parse_initializer_element(Variable& variable, uint64_t offset);

    // function bodies (parser_body.cpp)
    void parse_body();
    void parse_statement();
    void parse_registers();
    void declare_register(const std::string& name, Type type, uint32_t vector_length);
    void parse_label(const std::string& name);
    void parse_prototype(const std::string& name);
    void parse_instruction();
    void open_scope();
    void close_scope();
    std::string declare(const std::string& name, Name::Kind kind);
    const Name* lookup(const std::string& name) const;
    std::string refer(const std::string& name);
    void resolve_references();
    void resolve(std::string& name) const;
    void resolve(Operand& operand) const;

    // operands (parser_operands.cpp)
    Operand parse_operand();
    Operand parse_plain_operand();
    Operand parse_bracket();
    Operand parse_sequence(std::string_view close, Operand::Kind kind);
    Operand parse_named();
    Operand make_immediate(const Constant& value);
    bool starts_constant();
    Constant parse_constant();  // whole expression
    Constant parse_binary(int level);
    Constant parse_unary();

    Lexer lexer_;
    std::vector<Token> ahead_;
    size_t ahead_at_ = 0;
    uint32_t last_line_ = 1;
    Module module_;
    Function* function_ = nullptr;
    Location where_;
    std::map<std::array<uint32_t, 3>, uint32_t> places_;      // of the function: file, line and column, and where it was inlined last
    std::map<std::array<uint32_t, 4>, uint32_t> call_sites_;  // of the module, by what Module::call_sites holds
    int depth_ = 0;
    bool in_call_ = false;  // where a parenthesis opens a list of arguments, and elsewhere a constant expression
    std::vector<Scope> scopes_;
    std::vector<std::string> references_;  // symbols used in the function that may be labels: as written, then as resolved
    std::unordered_map<std::string, uint32_t> taken_;  // names used in the function so far, with the last suffix given
};

}  // namespace aicf::emu::ptx
