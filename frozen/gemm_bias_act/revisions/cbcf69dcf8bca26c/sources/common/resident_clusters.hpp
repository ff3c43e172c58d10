// How many clusters of a kernel run at a time, asked of the device: the groups of multiprocessors in which clusters lie differ from chip to
// chip of a kind.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "common/launch.hpp"

namespace aicf {

// Counts by size, kept once a device was asked. One of these serves kernels that take the same of a multiprocessor.
class ResidentClusters {
public:
    template <class Kernel>
    AicfStatus count(Kernel kernel, int threads, int shared_bytes, int size, int* result) {
        int device = 0;
        AICF_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
        const auto place = static_cast<std::size_t>(device);
        const bool is_kept = place < counts_.size();
        *result = is_kept ? counts_[place][static_cast<std::size_t>(size)].load(std::memory_order_relaxed) : 0;
        if (*result > 0) return make_ok();
        AICF_RETURN_IF_NOT_OK(allow_shared_memory(kernel, shared_bytes));
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim = {static_cast<unsigned>(size), 1, 1};
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(static_cast<unsigned>(size));
        config.blockDim = dim3(static_cast<unsigned>(threads));
        config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
        config.attrs = &attribute;
        config.numAttrs = 1;
        AICF_RETURN_IF_CUDA_ERROR(cudaOccupancyMaxActiveClusters(result, reinterpret_cast<const void*>(kernel), &config));
        if (is_kept) counts_[place][static_cast<std::size_t>(size)].store(*result, std::memory_order_relaxed);
        return make_ok();
    }

private:
    static constexpr int kMaxDevices = 16, kMaxSize = 8;
    std::array<std::array<std::atomic<int>, kMaxSize + 1>, kMaxDevices> counts_ = {};
};

}  // namespace aicf
