// Sizes and addresses rounded up to a multiple.
#pragma once

#include <type_traits>

namespace aicf::emu {

template <class T>
constexpr T round_up(T value, std::type_identity_t<T> multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

}  // namespace aicf::emu
