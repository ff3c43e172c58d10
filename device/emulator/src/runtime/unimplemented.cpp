// What the generated functions for the rest of the runtime's symbols do (see symbols.cmake).
#include "runtime.hpp"

#include <cstdio>
#include <mutex>
#include <set>

#include "exit_report.hpp"

using namespace aicf::emu;

// `said` is the function's own flag: it is named on stderr once.
extern "C" int aicf_emulator_unimplemented(const char* function, int* said) {
    const std::string message = std::string(function) + ": not implemented by the emulated device";
    if (__atomic_exchange_n(said, 1, __ATOMIC_RELAXED) == 0) {
        std::fprintf(stderr, "aicf emulator: %s\n", message.c_str());
        std::lock_guard lock(Runtime::get().mutex);
        note_unimplemented(function);
    }
    return record_error(kErrNotSupported, message);
}

AICF_EXPORT int aicfEmulatorMissingFunction(const char* name) {
    static std::mutex mutex;
    static std::set<std::string> names;
    std::lock_guard lock(mutex);
    int said = names.insert(name).second ? 0 : 1;
    return aicf_emulator_unimplemented(name, &said);
}
