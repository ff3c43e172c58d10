// Four neighbouring elements of fp32, bf16 or fp16, as floats.
#pragma once

#include "common/elements.cuh"
#include "common/vector_access.cuh"

namespace aicf {

// Of four neighbouring elements the first `num_valid`, and zeros.
template <class Element>
__device__ __forceinline__ float4 load_quad(const Element* source, int num_valid, bool is_aligned) {
    if (is_aligned && num_valid >= kVectorElems) {
        if constexpr (sizeof(Element) == 4) {
            return load_vector(source);
        } else {
            const uint2 words = *reinterpret_cast<const uint2*>(source);
            const float2 low = unpack_pair<Element>(words.x), high = unpack_pair<Element>(words.y);
            return {low.x, low.y, high.x, high.y};
        }
    }
    float4 quad = {0.0f, 0.0f, 0.0f, 0.0f};
    if (num_valid > 0) quad.x = to_float(source[0]);
    if (num_valid > 1) quad.y = to_float(source[1]);
    if (num_valid > 2) quad.z = to_float(source[2]);
    if (num_valid > 3) quad.w = to_float(source[3]);
    return quad;
}

template <class Element>
__device__ __forceinline__ void store_quad(Element* target, const float4& quad, int num_valid, bool is_aligned) {
    if (is_aligned && num_valid >= kVectorElems) {
        if constexpr (sizeof(Element) == 4) {
            store_vector(target, quad);
        } else {
            *reinterpret_cast<uint2*>(target) = {pack_pair<Element>(quad.x, quad.y), pack_pair<Element>(quad.z, quad.w)};
        }
        return;
    }
    if (num_valid > 0) target[0] = from_float<Element>(quad.x);
    if (num_valid > 1) target[1] = from_float<Element>(quad.y);
    if (num_valid > 2) target[2] = from_float<Element>(quad.z);
    if (num_valid > 3) target[3] = from_float<Element>(quad.w);
}

__device__ __forceinline__ float4 add_quads(const float4& a, const float4& b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

}  // namespace aicf
