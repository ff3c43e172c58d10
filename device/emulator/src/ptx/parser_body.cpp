// Function bodies: registers, labels, scopes, instructions.
#include <algorithm>

#include "parser.hpp"

namespace aicf::emu::ptx {

namespace {

constexpr char kReference = '\x01';  // begins a symbol's name until the function ends: then its index in references_

}  // namespace

void Parser::open_scope() { scopes_.emplace_back(); }

// Labels are used before they are seen, and an inner one hides an outer one wherever it stands in its block. So a symbol is bound
// when a block that defines it ends; what no block defines is left as written, and belongs to the module.
void Parser::close_scope() {
    const Scope scope = std::move(scopes_.back());
    scopes_.pop_back();
    for (const size_t index : scope.pending) {
        if (const auto found = scope.names.find(references_[index]); found != scope.names.end()) {
            references_[index] = found->second.unique;
        } else if (!scopes_.empty()) {
            scopes_.back().pending.push_back(index);
        }
    }
}

// Makes a name unique in the function: nested scopes are flattened, and inline assembly reuses its names.
std::string Parser::declare(const std::string& name, Name::Kind kind) {
    if (scopes_.back().names.contains(name)) throw ParseError(last_line_, "'" + name + "' is declared twice in one block");
    auto [place, is_new] = taken_.try_emplace(name, 0);
    std::string unique = name;
    while (!is_new) {
        unique = name + "$" + std::to_string(++place->second);
        if (taken_.try_emplace(unique, 0).second) break;
    }
    scopes_.back().names.emplace(name, Name{unique, kind});
    return unique;
}

const Parser::Name* Parser::lookup(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
        if (const auto found = scope->names.find(name); found != scope->names.end()) return &found->second;
    }
    return nullptr;
}

std::string Parser::refer(const std::string& name) {
    scopes_.back().pending.push_back(references_.size());
    references_.push_back(name);
    return kReference + std::to_string(references_.size() - 1);
}

void Parser::resolve(std::string& name) const {
    if (!name.empty() && name.front() == kReference) name = references_[std::stoul(name.substr(1))];
}

void Parser::resolve(Operand& operand) const {
    resolve(operand.name);
    for (Operand& element : operand.elements) resolve(element);
}

void Parser::resolve_references() {
    for (Instruction& instruction : function_->instructions) {
        for (Operand& operand : instruction.operands) resolve(operand);
    }
    for (BranchTargets& list : function_->branch_targets) {
        for (std::string& target : list.targets) resolve(target);
    }
}

void Parser::parse_body() {
    taken_.clear();
    scopes_.clear();
    references_.clear();
    expect("{");
    open_scope();
    for (std::vector<Variable>* list : {&function_->returns, &function_->params}) {
        for (Variable& variable : *list) {
            if (variable.name == "_") continue;
            if (variable.space == Space::kReg) {
                declare_register(variable.name, variable.type, variable.vector_length);
            } else {
                variable.name = declare(variable.name, Name::Kind::kVariable);
            }
        }
    }
    while (!accept("}")) parse_statement();
    close_scope();
    resolve_references();
}

void Parser::parse_statement() {
    const Nesting nesting(*this);
    const Token& token = peek();
    switch (token.kind) {
        case Token::Kind::kEnd: fail("'}'");
        case Token::Kind::kIdentifier:
            if (peek(1).is(":")) {
                const std::string name(take().text);
                take();
                return parse_label(name);
            }
            return parse_instruction();
        case Token::Kind::kPunctuation:
            if (accept(";")) return;
            if (accept("{")) {
                open_scope();
                while (!accept("}")) parse_statement();
                return close_scope();
            }
            if (token.is("@")) return parse_instruction();
            fail("a statement");
        case Token::Kind::kDotted: break;
        default: fail("a statement");
    }
    const Variable::Linkage linkage = parse_linkage();
    const Token directive = take();
    const std::string_view word = directive.text;
    if (word == "reg") return parse_registers();
    if (word == "loc") return parse_loc();
    if (word == "file") return parse_file();
    if (word == "section") return parse_section();
    if (word == "pragma") {
        while (!accept(";")) {
            if (take().kind == Token::Kind::kEnd) fail("';'");
        }
        return;
    }
    Space space = Space::kNone;
    if (word == "local") space = Space::kLocal;
    if (word == "shared") space = Space::kShared;
    if (word == "param") space = Space::kParam;
    if (word == "const") space = Space::kConst;
    if (word == "global") space = Space::kGlobal;
    if (space == Space::kNone) throw ParseError(directive.line, "directive '." + std::string(word) + "' is not known in a function");
    parse_variables(space, linkage, function_->variables, true);
}

void Parser::declare_register(const std::string& name, Type type, uint32_t vector_length) {
    function_->registers.push_back({declare(name, Name::Kind::kRegister), type, vector_length});
}

void Parser::parse_registers() {
    constexpr uint64_t kMaxRegisters = 1'000'000;
    const Variable head = parse_variable_head(Space::kReg, Variable::Linkage::kInternal);
    do {
        const std::string name = expect_name("a register name");
        if (accept("<")) {
            if (peek().kind != Token::Kind::kInteger) fail("a count");
            const uint64_t count = take().bits;  // not an expression: '>' closes the list
            expect(">");
            if (count > kMaxRegisters) throw ParseError(last_line_, "more than a million registers in one range");
            for (uint64_t i = 0; i < count; ++i) declare_register(name + std::to_string(i), head.type, head.vector_length);
        } else {
            declare_register(name, head.type, head.vector_length);
        }
    } while (accept(","));
    expect(";");
}

void Parser::parse_label(const std::string& name) {
    if (accept_dot("branchtargets") || accept_dot("calltargets")) {
        BranchTargets list;
        list.name = declare(name, Name::Kind::kLabel);
        do {
            list.targets.push_back(refer(expect_name("a label or function")));
        } while (accept(","));
        expect(";");
        function_->branch_targets.push_back(std::move(list));
        return;
    }
    if (accept_dot("callprototype")) return parse_prototype(name);
    function_->labels.push_back({declare(name, Name::Kind::kLabel), static_cast<uint32_t>(function_->instructions.size())});
}

void Parser::parse_prototype(const std::string& name) {
    Prototype prototype;
    prototype.name = declare(name, Name::Kind::kLabel);
    if (peek().is("(")) prototype.returns = parse_parameters();
    expect_name("'_'");
    if (peek().is("(")) prototype.params = parse_parameters();
    while (peek().kind == Token::Kind::kDotted) {  // .noreturn, .abi_preserve N
        take();
        if (starts_constant()) parse_constant();
    }
    expect(";");
    function_->prototypes.push_back(std::move(prototype));
}

void Parser::parse_instruction() {
    Instruction instruction;
    if (accept("@")) {
        instruction.guard_negated = accept("!");
        const std::string name = expect_name("a predicate register");
        const Name* known = lookup(name);
        if (known == nullptr || known->kind != Name::Kind::kRegister)
            throw ParseError(last_line_, "guard '" + name + "' is not a declared predicate");
        instruction.guard = known->unique;
    }
    instruction.opcode = expect_name("an instruction");
    in_call_ = instruction.opcode == "call";
    instruction.where = where_;
    instruction.where.ptx_line = last_line_;
    while (peek().kind == Token::Kind::kDotted) instruction.modifiers.emplace_back(take().text);
    if (!peek().is(";")) {
        do {
            instruction.operands.push_back(parse_operand());
        } while (accept(","));
    }
    expect(";");
    function_->instructions.push_back(std::move(instruction));
}

}  // namespace aicf::emu::ptx
