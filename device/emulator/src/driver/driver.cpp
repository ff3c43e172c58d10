// The driver API by its linked names: jumps into the emulated device's runtime, which implements it.
//
// A jump hands over registers and stack as they are, so that no signature is repeated here. The targets are looked up when the library is
// loaded: a program's first call may come from any thread.
#include "../../include/aicf_emulator.h"

#include <cstddef>

namespace {

// What a name without an implementation does, one function each, so that it can say which it is.
#define AICF_ROW(name) \
    int missing_##name() { return aicfEmulatorMissingFunction(#name); }
#include "driver_rows.inc"
#undef AICF_ROW

struct Row {
    const char* name;
    int (*missing)();
};
constexpr Row kRows[] = {
#define AICF_ROW(name) {#name, missing_##name},
#include "driver_rows.inc"
#undef AICF_ROW
};

}  // namespace

extern "C" __attribute__((visibility("hidden"))) void* aicf_driver_targets[sizeof kRows / sizeof kRows[0]];
void* aicf_driver_targets[sizeof kRows / sizeof kRows[0]];

namespace {

__attribute__((constructor)) void find_targets() {
    for (size_t i = 0; i < sizeof kRows / sizeof kRows[0]; ++i) {
        void* function = aicfEmulatorDriverFunction(kRows[i].name);
        aicf_driver_targets[i] = function != nullptr ? function : reinterpret_cast<void*>(kRows[i].missing);
    }
}

}  // namespace

#define AICF_JUMP(name, index)                                 \
    asm(".globl " #name "\n.type " #name ", @function\n" #name \
        ":\n"                                                  \
        "jmp *aicf_driver_targets + 8 * " #index "(%rip)\n.size " #name ", . - " #name "\n");
asm(".text\n");
#include "driver_jumps.inc"
