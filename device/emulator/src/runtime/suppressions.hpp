// Findings that the user has judged and does not want to see again: a file of rules, `kind kernel source` on a line, with * and ? in each.
// A suppressed finding is counted and said once for each rule, never dropped in silence.
#pragma once

#include <cstdint>
#include <string>

#include "../exec/exec.hpp"

namespace aicf::emu {

// Replaces the rules by those of the file; "" for none. Throws Failure(1) when the file cannot be read or a line is no rule.
void set_suppressions(const std::string& path);
const std::string& suppressions_path();
// True: a rule covers the finding, and it has been counted.
bool is_suppressed(const Report& report);
uint64_t count_suppressed();

}  // namespace aicf::emu
