// The domain of the variant that is built: the conditions of op.py, which the build passes as one identifier (AICF_DOMAIN).
//
// D[_condition]*, where a condition is C_min_max_multiple_n[_size_step]*n (a count of tiles; a max of 0 is none), A_attribute_n[_code]*n
// (one of these choices) or T_tensor_address_stride_max (bytes, elements, elements; 0 is none). A minus is written m.
#pragma once

#include <cstdint>

#ifndef AICF_DOMAIN
#define AICF_DOMAIN D
#endif

#define AICF_TEXT_(words) #words
#define AICF_TEXT(words) AICF_TEXT_(words)

namespace aicf {

constexpr int count_words(const char* text) {
    int count = 0;
    for (; *text != '\0'; ++text) count += *text == '_';
    return count;
}

template <int kCount>
struct Words {
    std::int64_t words[kCount > 0 ? kCount : 1] = {};
    int count = kCount;
};

template <int kCount>
constexpr Words<kCount> parse_words(const char* text) {
    Words<kCount> parsed;
    int at = -1;
    bool is_negative = false;
    for (; *text != '\0'; ++text) {
        if (*text == '_') {
            ++at;
            is_negative = false;
        } else if (at >= 0 && *text >= '0' && *text <= '9') {
            const std::int64_t digit = *text - '0';
            parsed.words[at] = parsed.words[at] * 10 + (is_negative ? -digit : digit);
        } else if (at >= 0 && *text == 'm') {
            is_negative = true;
        } else if (at >= 0) {
            parsed.words[at] = *text;
        }
    }
    return parsed;
}

inline constexpr auto kDomain = parse_words<count_words(AICF_TEXT(AICF_DOMAIN))>(AICF_TEXT(AICF_DOMAIN));

}  // namespace aicf
