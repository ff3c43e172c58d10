// Exchanges between the lanes of a warp.
#pragma once

namespace aicf {

// Four lanes, kStride apart, of which this is number `place`, exchange their values: lane j's i-th becomes lane i's j-th.
template <int kStride>
__device__ __forceinline__ float4 exchange_fours(float4 own, int place) {
    const auto swap = [](bool has_second, int lanes, float& first, float& second) {
        const float other = __shfl_xor_sync(0xffffffffu, has_second ? first : second, lanes);
        first = has_second ? other : first;
        second = has_second ? second : other;
    };
    swap(place % 2 != 0, kStride, own.x, own.y);
    swap(place % 2 != 0, kStride, own.z, own.w);
    swap(place / 2 != 0, 2 * kStride, own.x, own.z);
    swap(place / 2 != 0, 2 * kStride, own.y, own.w);
    return own;
}

}  // namespace aicf
