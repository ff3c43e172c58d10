// The options of aicf_emulator.h: one table of names, readers and writers.
#pragma once

#include <string>

#include "runtime.hpp"

namespace aicf::emu {

// Built-in values, then AICF_EMULATED_<NAME> of the environment; a wrong name or value there is said on
// stderr, and is Runtime::wrong_setting.
void set_default_options(Runtime& runtime);

// Throws Failure(1) with the reason.
void set_option(Runtime& runtime, const std::string& name, const std::string& value);

std::string option_names();  // comma-separated

// False: no such option.
bool get_option(const Runtime& runtime, const std::string& name, std::string* value);

}  // namespace aicf::emu
