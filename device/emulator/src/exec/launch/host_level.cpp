// A program for the build: prints this machine's x86-64 level.
#include "host_level.hpp"

#include <cstdio>

int main() {
    __builtin_cpu_init();
    std::fputs(aicf::emu::host_has_v4() ? "v4" : aicf::emu::host_has_v3() ? "v3" : "v2", stdout);
}
