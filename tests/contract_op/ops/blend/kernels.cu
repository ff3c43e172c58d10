// One honest kernel of blend, and its liars: each is honest but for what its name says.
#include <cstdint>

#include "blend/params.h"
#include "common/elements.cuh"

namespace aicf::blend {

enum Kind {
    honest,
    only_wide,
    drops_stride,
    drops_last_stride,
    leaves_state,
    default_decay,
    constant_rate,
    first_row,
    ignores_mask,
    ignores_step,
    spoils_index,
    skips_rows
};

// A thread per element of state [B, H, P, D].
template <Kind kind, class Element>
__global__ void blend_elements(const BlendParams p) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= p.b * p.h * p.p * p.d) return;
    const std::int64_t d = i % p.d, place = i / p.d % p.p, h = i / p.d / p.p % p.h, b = i / p.d / p.p / p.h;
    const std::int64_t head = kind == drops_stride ? p.s * p.d : p.x_stride1;
    const int step = kind == ignores_step ? 1 : p.step;
    const auto* x = static_cast<const Element*>(p.x) + b * p.x_stride0 + h * head + place * step * p.x_stride2 + d;
    float window = 0.0f;
    for (int r = 0; r < p.r; ++r) window += p.w[r] * to_float(x[r * p.x_stride2]);
    float* state = p.state + b * p.state_stride0 + h * p.state_stride1 + place * p.state_stride2 + d;
    const std::int64_t row = kind == first_row ? 0 : p.index[b * p.p + place];
    const float decay = kind == default_decay ? 0.5f : p.decay;
    const float rate = kind == constant_rate ? 1.0f : *p.rate;
    float value = decay * *state + rate * window + p.table[row * p.ldtable + d];
    if (kind != ignores_mask && p.mask != nullptr && p.mask[b * p.p + place] == 0) value = *state;
    const std::int64_t last = kind == drops_last_stride ? d : d * p.y_stride3;
    p.y[b * p.y_stride0 + h * p.y_stride1 + place * p.y_stride2 + last] = 2.0f * value;
    if (kind == leaves_state || (kind == skips_rows && place == p.p - 1 && p.p > 1)) return;
    *state = value;
    if (kind == spoils_index && i == 0) const_cast<std::int64_t*>(p.index)[0] = row + 1;
}

}  // namespace aicf::blend
