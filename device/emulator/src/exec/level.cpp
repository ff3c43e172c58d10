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

// By single features: compilers differ in the names of levels that they know.
[[maybe_unused]] bool host_has_v3() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2");
}

[[maybe_unused]] bool host_has_v4() {
    return host_has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

const Level& choose() {
    // AICF_EMULATED_LEVEL=v2|v3 asks for a lower level than the best, to compare them; a level that is missing is passed over.
    const char* wish = std::getenv("AICF_EMULATED_LEVEL");
    const std::string_view most = wish ? wish : "v4";
    __builtin_cpu_init();
#ifdef AICF_HAS_LEVEL_v4
    if (most == "v4" && host_has_v4()) return engine_v4::level();
#endif
#ifdef AICF_HAS_LEVEL_v3
    if (most != "v2" && host_has_v3()) return engine_v3::level();
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
