// Where in the program a call came from.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace aicf::emu {

// Return addresses outside this library, the innermost first; 0 where there are no more.
using HostPlace = std::array<uint64_t, 8>;  // a launch without optimisation has four frames of its own

// A call of CUDA's by the program.
struct CallSite {
    const char* function = "";
    uint64_t call = 0;  // its number
    HostPlace place{};
};

// Of the call that runs, with the runtime's mutex held. The stack is unwound once for each way that leads to a call; then it takes about a
// tenth of a microsecond.
HostPlace capture_host_place();
// Of a signal handler: the code that was interrupted, or what called it where that is the C library's.
HostPlace capture_interrupted_place();

// "void shop::scale<float>(float*, int)", mangled -> "shop::scale<float>".
std::string short_name(const std::string& mangled);

// "fill_in at prog.cu:42, called from main at prog.cu:57" where the program has debug information and there is an addr2line, else
// "fill_in", "prog+0x1234"; "" for none, and where Python made the call. The stub of a `kernel` (its mangled name) that is launched is
// passed over.
std::string describe_host_place(const HostPlace& place, const std::string& kernel = {});

}  // namespace aicf::emu
