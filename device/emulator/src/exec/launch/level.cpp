#include "level.hpp"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "host_level.hpp"

namespace aicf::emu {

#ifdef AICF_HAS_LEVEL_v2
namespace engine_v2 {
const Level& level();
}
#endif
#ifdef AICF_HAS_LEVEL_v3
namespace engine_v3 {
const Level& level();
}
#endif
#ifdef AICF_HAS_LEVEL_v4
namespace engine_v4 {
const Level& level();
}
#endif

namespace {

// nullptr where this host has none of the levels that were built.
const Level* choose() {
    // AICF_EMULATED_LEVEL=v2|v3 asks for a lower level than the best, to compare them; a level that is missing is passed over.
    const char* wish = std::getenv("AICF_EMULATED_LEVEL");
    [[maybe_unused]] const std::string_view most = wish ? wish : "v4";
    __builtin_cpu_init();
    const Level* lowest = nullptr;  // serves a wish that is below all that was built
#ifdef AICF_HAS_LEVEL_v4
    if (host_has_v4()) {
        lowest = &engine_v4::level();
        if (most == "v4") return lowest;
    }
#endif
#ifdef AICF_HAS_LEVEL_v3
    if (host_has_v3()) {
        lowest = &engine_v3::level();
        if (most != "v2") return lowest;
    }
#endif
#ifdef AICF_HAS_LEVEL_v2
    lowest = &engine_v2::level();
#endif
    return lowest;
}

const Level* find_engine() {
    static const Level* chosen = choose();
    return chosen;
}

}  // namespace

const Level& engine() {
    const Level* level = find_engine();
    if (level == nullptr) {
        std::fputs(
            "emulated device: this library was built for x86-64 levels that this machine does not have; build it again here: make env\n",
            stderr);
        std::_Exit(3);
    }
    return *level;
}

const char* engine_level() {
    const Level* level = find_engine();
    return level != nullptr ? level->name : "none";
}

}  // namespace aicf::emu
