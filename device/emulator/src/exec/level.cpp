#include "level.hpp"

#include <cstdlib>
#include <string_view>

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

const Level& choose() {
    // AICF_EMULATED_LEVEL=v2|v3 asks for a lower level than the best, to compare them; a level that is missing is passed over.
    const char* wish = std::getenv("AICF_EMULATED_LEVEL");
    const std::string_view most = wish ? wish : "v4";
    __builtin_cpu_init();
#ifdef AICF_HAS_LEVEL_v4
    if (most == "v4" && __builtin_cpu_supports("x86-64-v4")) return engine_v4::level();
#endif
#ifdef AICF_HAS_LEVEL_v3
    if (most != "v2" && __builtin_cpu_supports("x86-64-v3")) return engine_v3::level();
#endif
#ifdef AICF_HAS_LEVEL_v2
    return engine_v2::level();
#elif defined(AICF_HAS_LEVEL_v3)
    return engine_v3::level();
#else
    return engine_v4::level();
#endif
}

}  // namespace

const Level& engine() {
    static const Level& chosen = choose();
    return chosen;
}

const char* engine_level() { return engine().name; }

}  // namespace aicf::emu
