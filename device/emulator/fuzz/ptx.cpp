// Fuzzing the PTX front end: parser, then the decoder of everything that parses.
#include <string_view>

#include "exec/exec.hpp"
#include "memory/device_memory.hpp"
#include "ptx/module.hpp"

using namespace aicf::emu;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static DeviceMemory memory(uint64_t{64} << 20);
    try {
        Program::load(ptx::parse(std::string_view(reinterpret_cast<const char*>(data), size)), memory);
    } catch (const ptx::ParseError&) {  // how the parser refuses
    } catch (const LoadError&) {        // how the decoder does
    }
    return 0;
}
