// C++ side of status.h: build an AicfStatus with a printf-style reason.
#pragma once

#include <cstdarg>
#include <cstdio>

#include "common/status.h"

namespace aicf {

inline AicfStatus make_ok() {
    AicfStatus status = {};
    status.code = AICF_OK;
    return status;
}

[[gnu::format(printf, 2, 0)]] inline AicfStatus make_status(int code, const char* format, std::va_list arguments) {
    AicfStatus status = {};
    status.code = code;
    // A reason longer than the field is cut, never overrun.
    std::vsnprintf(status.reason, sizeof status.reason, format, arguments);
    return status;
}

// The variant does not serve this problem; the reason names the argument and the limit.
[[gnu::format(printf, 1, 2)]] inline AicfStatus make_unsupported(const char* format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    const AicfStatus status = make_status(AICF_UNSUPPORTED, format, arguments);
    va_end(arguments);
    return status;
}

// The parameters contradict themselves; the reason names the argument.
[[gnu::format(printf, 1, 2)]] inline AicfStatus make_invalid(const char* format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    const AicfStatus status = make_status(AICF_INVALID, format, arguments);
    va_end(arguments);
    return status;
}

inline bool is_ok(const AicfStatus& status) { return status.code == AICF_OK; }

}  // namespace aicf

// Leaves the enclosing function when an AicfStatus expression is not AICF_OK.
#define AICF_RETURN_IF_NOT_OK(expression)                      \
    do {                                                       \
        const AicfStatus aicf_status_ = (expression);          \
        if (!::aicf::is_ok(aicf_status_)) return aicf_status_; \
    } while (false)
