#include "errors.hpp"

#include <algorithm>
#include <array>

namespace aicf::emu {
namespace {

struct ErrorRow {
    int code;
    const char* name;
    const char* text;
};

constexpr ErrorRow kErrors[] = {{kNoError, "cudaSuccess", "no error"},
#define AICF_ROW(name, code, text) {code, "cudaError" #name, text},
                                AICF_CUDA_ERRORS(AICF_ROW)
#undef AICF_ROW
};

const ErrorRow* find_row(int code) {
    const auto* row = std::find_if(std::begin(kErrors), std::end(kErrors), [code](const ErrorRow& r) { return r.code == code; });
    return row == std::end(kErrors) ? nullptr : row;
}

constexpr std::array kSticky = {kErrIllegalAddress,      kErrLaunchTimeout,      kErrAssert,
                                kErrHardwareStackError,  kErrIllegalInstruction, kErrMisalignedAddress,
                                kErrInvalidAddressSpace, kErrInvalidPc,          kErrLaunchFailure};

}  // namespace

const char* error_name(int code) {
    const ErrorRow* row = find_row(code);
    return row != nullptr ? row->name : "unrecognized error code";
}

const char* error_text(int code) {
    const ErrorRow* row = find_row(code);
    return row != nullptr ? row->text : "unrecognized error code";
}

bool is_sticky(int code) { return std::find(kSticky.begin(), kSticky.end(), code) != kSticky.end(); }

}  // namespace aicf::emu
