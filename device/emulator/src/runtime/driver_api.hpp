// Driver entry points: what cudaGetDriverEntryPoint and cuGetProcAddress answer with. There is no libcuda of ours; these functions have the
// driver API's signatures and stand on the runtime's.
#pragma once

#include <string_view>

namespace aicf::emu {

// By the driver API's name, with or without its version suffix ("cuMemAlloc", "cuMemAlloc_v2"); nullptr: there is none.
void* find_driver_function(std::string_view name);

}  // namespace aicf::emu
