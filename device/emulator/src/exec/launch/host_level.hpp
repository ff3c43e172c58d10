// Which x86-64 level this machine has.
#pragma once

namespace aicf::emu {

// By single features: compilers differ in the names of levels that they know.
inline bool host_has_v3() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2");
}

inline bool host_has_v4() {
    return host_has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace aicf::emu
