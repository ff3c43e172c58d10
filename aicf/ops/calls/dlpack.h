// DLPack's C exchange API (dlpack.h 1.3, https://dmlc.github.io/dlpack/latest/c_api.html), as far as it is used; names as there.
#pragma once

#include <cstdint>

namespace aicf::calls {

struct DLDevice {
    std::int32_t device_type;
    std::int32_t device_id;
};
struct DLDataType {
    std::uint8_t code;
    std::uint8_t bits;
    std::uint16_t lanes;
};
struct DLTensor {
    void* data;
    DLDevice device;
    std::int32_t ndim;
    DLDataType dtype;
    std::int64_t* shape;
    std::int64_t* strides;
    std::uint64_t byte_offset;
};
struct DLPackExchangeAPI {
    std::uint32_t major;
    std::uint32_t minor;
    DLPackExchangeAPI* prev_api;
    void* managed_tensor_allocator;
    void* managed_tensor_from_py_object_no_sync;
    void* managed_tensor_to_py_object_no_sync;
    int (*dltensor_from_py_object_no_sync)(void* object, DLTensor* out);
    int (*current_work_stream)(std::int32_t device_type, std::int32_t device_id, void** out);
};
constexpr std::int32_t kDLCPU = 1;
constexpr std::int32_t kDLCUDA = 2;

}  // namespace aicf::calls
