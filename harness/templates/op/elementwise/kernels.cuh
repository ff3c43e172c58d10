// grid: ceil(n / threads) blocks.
template <bool with_relu>
__global__ void scalar(const Params a) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < a.n) a.y[i] = finish<with_relu>(fmaf(a.x[i], a.scale[i], a.shift[i]));
}

// grid: ceil(ceil(n / 4) / threads) blocks; all pointers 16-byte aligned. The last n % 4 elements go one by one.
template <bool with_relu>
__global__ void vector(const Params a) {
    const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    if (first + 4 <= a.n) {
        const float4 x = *reinterpret_cast<const float4*>(a.x + first);
        const float4 scale = *reinterpret_cast<const float4*>(a.scale + first);
        const float4 shift = *reinterpret_cast<const float4*>(a.shift + first);
        *reinterpret_cast<float4*>(a.y + first) =
            make_float4(finish<with_relu>(fmaf(x.x, scale.x, shift.x)), finish<with_relu>(fmaf(x.y, scale.y, shift.y)),
                        finish<with_relu>(fmaf(x.z, scale.z, shift.z)), finish<with_relu>(fmaf(x.w, scale.w, shift.w)));
        return;
    }
    for (std::int64_t i = first; i < a.n; ++i) a.y[i] = finish<with_relu>(fmaf(a.x[i], a.scale[i], a.shift[i]));
}
