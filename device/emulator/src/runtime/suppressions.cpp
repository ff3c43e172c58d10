#include "suppressions.hpp"

#include <fnmatch.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <vector>

#include "runtime.hpp"

namespace aicf::emu {
namespace {

struct Rule {
    std::string kind, kernel, source;
    uint64_t count = 0;
};

struct Rules {
    std::string path;
    std::vector<Rule> rules;
    uint64_t count = 0;
};

Rules& all() {
    static auto* rules = new Rules;
    return *rules;
}

bool matches(const std::string& pattern, const std::string& text) { return fnmatch(pattern.c_str(), text.c_str(), 0) == 0; }

}  // namespace

void set_suppressions(const std::string& path) {
    Rules fresh;
    fresh.path = path;
    if (!path.empty()) {
        std::ifstream file(path);
        if (!file) throw Failure{kErrInvalidValue, "option suppressions: \"" + path + "\" cannot be read"};
        std::string line;
        for (int number = 1; std::getline(file, line); ++number) {
            std::istringstream words(line.substr(0, line.find('#')));
            Rule rule;
            std::string more;
            if (!(words >> rule.kind)) continue;
            if (!(words >> rule.kernel >> rule.source) || words >> more)
                throw Failure{kErrInvalidValue, "option suppressions: " + path + ":" + std::to_string(number) +
                                                    " is no rule: kind, kernel and file:line are wanted, * for any"};
            fresh.rules.push_back(rule);
        }
    }
    all() = std::move(fresh);
}

const std::string& suppressions_path() { return all().path; }

bool is_suppressed(const Report& report) {
    for (Rule& rule : all().rules) {
        if (!matches(rule.kind, report.kind) || !matches(rule.kernel, report.kernel) || !matches(rule.source, report.source)) continue;
        if (rule.count == 0)
            std::fprintf(stderr, "aicf emulator: findings are suppressed by the rule \"%s %s %s\" of %s\n", rule.kind.c_str(),
                         rule.kernel.c_str(), rule.source.c_str(), all().path.c_str());
        rule.count += report.count;
        all().count += report.count;
        return true;
    }
    return false;
}

uint64_t count_suppressed() { return all().count; }

}  // namespace aicf::emu
