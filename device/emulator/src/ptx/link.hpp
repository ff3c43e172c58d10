// Linking of modules that were compiled apart (nvcc -rdc=true). PTX ISA, "Linking Directives".
#pragma once

#include <vector>

#include "module.hpp"

namespace aicf::emu::ptx {

// One module of all: declarations meet their definitions, weak and common symbols become one, what is internal to a module keeps to itself.
// Throws ParseError (line 0) for a symbol that two modules define.
Module link(std::vector<Module> modules);

}  // namespace aicf::emu::ptx
