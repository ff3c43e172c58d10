// An op's Python module, said in one line by its pybind.cpp. What it does is in op_module.cpp, which is compiled once for all ops.
#pragma once

#include <cstddef>

#include "common/contract.hpp"

struct _object;  // CPython's PyObject, whose headers nothing else here needs

namespace aicf {

struct OpModule {
    const char* doc;
    const contract::Description& op;
    std::size_t params_bytes;
};

// The one that the shared library is made for.
extern const OpModule kOpModule;

}  // namespace aicf

// Defines module _<name>: class Variant, whose calls take the arguments that aicf::<name>::kContract describes.
#define AICF_OP_MODULE(name, doc)                                                                    \
    const aicf::OpModule aicf::kOpModule = {doc, aicf::name::kContract, sizeof(aicf::name::Params)}; \
    extern "C" {                                                                                     \
    _object* PyInit__op();                                                                           \
    [[gnu::visibility("default")]] _object* PyInit__##name() { return PyInit__op(); }                \
    }
