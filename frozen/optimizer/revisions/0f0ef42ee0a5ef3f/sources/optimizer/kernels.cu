// Adam and AdamW over flat arrays: p, m and v in fp32 and in place, the gradient and the copy of p in Element.
//
// | kernel         | idea                                                                  | reads and writes           |
// |----------------|-----------------------------------------------------------------------|----------------------------|
// | naive          | a thread per element, which works out the step's factors for itself   | an element an access       |
// | shared_factors | the factors are worked out once per block                             | an element an access       |
// | vectorised     | 16 bytes an access, and several of each array in flight               | 16 bytes of the gradient   |
#include <cstdint>

#include "common/elements.cuh"
#include "common/programmatic.cuh"
#include "optimizer/params.h"

namespace aicf::optimizer {

// What a step multiplies by; the same for all elements.
struct Factors {
    float keep;        // 1 - lr * weight_decay, of p; 1 where the decay is part of the gradient
    float decay;       // of p into the gradient; 0 where it is decoupled
    float beta2;       //
    float take1;       // 1 - beta1
    float take2;       // 1 - beta2
    float rate;        // lr / (1 - beta1^step)
    float root_scale;  // 1 / sqrt(1 - beta2^step)
    float eps;         //
    float gain;        // of the gradient
    bool is_skipped;   // nothing is changed
};

// What both factors of the bias correction are made of. In float64: 1 - beta^step loses half its digits in fp32 at the first steps.
struct Powers {
    double first, second;  // 1 - beta1^step, 1 - beta2^step
};

// What the gradient is multiplied by. A step whose factor is not positive, or NaN, is left out.
__device__ __forceinline__ float read_gain(const OptimizerParams& params) { return params.factor == nullptr ? 1.0f : *params.factor; }

__device__ __forceinline__ Factors make_factors(const OptimizerParams& params, const Powers& powers) {
    const double lr = static_cast<double>(*params.lr);
    Factors f;
    f.keep = params.decoupled ? static_cast<float>(1.0 - lr * params.weight_decay) : 1.0f;
    f.decay = params.decoupled ? 0.0f : static_cast<float>(params.weight_decay);
    f.beta2 = static_cast<float>(params.beta2);
    f.take1 = static_cast<float>(1.0 - params.beta1);
    f.take2 = static_cast<float>(1.0 - params.beta2);
    f.rate = static_cast<float>(lr / powers.first);
    f.root_scale = static_cast<float>(1.0 / sqrt(powers.second));
    f.eps = static_cast<float>(params.eps);
    f.gain = read_gain(params);
    f.is_skipped = !(f.gain > 0.0f);
    return f;
}

__device__ __forceinline__ Factors find_factors(const OptimizerParams& params) {
    const double step = static_cast<double>(*params.step);
    return make_factors(params, {1.0 - pow(params.beta1, step), 1.0 - pow(params.beta2, step)});
}

// base^exponent by squaring: its relative error is about exponent * 2^-53, and where that counts the power itself is close to 0.
__device__ __forceinline__ double find_power(double base, std::uint64_t exponent) {
    double power = 1.0;
    for (; exponent != 0; exponent >>= 1) {
        if ((exponent & 1) != 0) power *= base;
        base *= base;
    }
    return power;
}

// The number of this step, for one thread of each block. Where the kernel counts the steps itself, the upper half of the counter counts the
// blocks that have read it, and the last one sets it to what the next launch is to find: blocks wait for nobody, and nothing is left
// behind. A step that is left out is not counted.
__device__ __forceinline__ std::uint64_t read_step(const OptimizerParams& params) {
    if (params.steps_done == nullptr) return static_cast<std::uint64_t>(*params.step);
    constexpr int kStepBits = 32;
    auto* const counter = reinterpret_cast<unsigned long long*>(params.steps_done);
    const unsigned long long found = atomicAdd(counter, 1ull << kStepBits);
    const unsigned long long step = (found & ((1ull << kStepBits) - 1)) + 1;
    if (found >> kStepBits == gridDim.x - 1) atomicExch(counter, read_gain(params) > 0.0f ? step : step - 1);
    return step;
}

__device__ __forceinline__ void take_step(const Factors& f, float& p, float g, float& m, float& v) {
    if (f.is_skipped) return;
    g = fmaf(f.decay, p, f.gain * g);
    m = fmaf(f.take1, g - m, m);
    v = fmaf(f.take2 * g, g, f.beta2 * v);
    p = fmaf(-f.rate, m / fmaf(sqrtf(v), f.root_scale, f.eps), f.keep * p);
}

template <class Element>
__device__ __forceinline__ void step_element(const OptimizerParams& params, const Factors& f, std::int64_t i) {
    float p = params.p[i], m = params.m[i], v = params.v[i];
    take_step(f, p, to_float(static_cast<const Element*>(params.grad)[i]), m, v);
    params.p[i] = p;
    params.m[i] = m;
    params.v[i] = v;
    if (params.copy != nullptr) static_cast<Element*>(params.copy)[i] = from_float<Element>(p);
}

template <class Element>
__global__ void optimizer_naive(const OptimizerParams params) {
    allow_successor();
    wait_for_predecessor();
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < params.n) step_element<Element>(params, find_factors(params), i);
}

// Every thread of the block gets the factors, which the first warp has worked out: a lane for each power.
__device__ __forceinline__ Factors share_factors(const OptimizerParams& params) {
    constexpr unsigned kAll = 0xffffffffu;
    constexpr int kLanes = 32;
    __shared__ Factors factors;
    if (threadIdx.x < kLanes) {
        const std::uint64_t step = __shfl_sync(kAll, threadIdx.x == 0 ? read_step(params) : 0, 0);
        const double power = 1.0 - find_power(threadIdx.x == 0 ? params.beta1 : params.beta2, step);
        const Powers powers = {__shfl_sync(kAll, power, 0), __shfl_sync(kAll, power, 1)};
        if (threadIdx.x == 0) factors = make_factors(params, powers);
    }
    __syncthreads();
    return factors;
}

template <class Element, int kThreads>
__global__ void __launch_bounds__(kThreads) optimizer_shared_factors(const OptimizerParams params) {
    allow_successor();
    wait_for_predecessor();
    const Factors factors = share_factors(params);
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i < params.n) step_element<Element>(params, factors, i);
}

// One thread's share of one access: kPackElems elements of the gradient, and as many of p, m and v.
template <class Element>
struct Chunk {
    static constexpr int kElems = kPackElems<Element>;
    static constexpr int kPieces = kElems / kPackElems<float>;
    Pack<Element> grad;
    Pack<float> p[kPieces], m[kPieces], v[kPieces];

    __device__ __forceinline__ void load(const OptimizerParams& params, std::int64_t i) {
        grad = load_pack(static_cast<const Element*>(params.grad) + i);
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
            p[piece] = load_pack(params.p + i + piece * kPackElems<float>);
            m[piece] = load_pack(params.m + i + piece * kPackElems<float>);
            v[piece] = load_pack(params.v + i + piece * kPackElems<float>);
        }
    }

    __device__ __forceinline__ void step(const Factors& f) {
#pragma unroll
        for (int e = 0; e < kElems; ++e) {
            constexpr int kWidth = kPackElems<float>;
            take_step(f, p[e / kWidth].values[e % kWidth], grad.values[e], m[e / kWidth].values[e % kWidth],
                      v[e / kWidth].values[e % kWidth]);
        }
    }

    __device__ __forceinline__ void store(const OptimizerParams& params, std::int64_t i) const {
        Pack<Element> copy;
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
            store_pack(params.p + i + piece * kPackElems<float>, p[piece]);
            store_pack(params.m + i + piece * kPackElems<float>, m[piece]);
            store_pack(params.v + i + piece * kPackElems<float>, v[piece]);
#pragma unroll
            for (int e = 0; e < kPackElems<float>; ++e) copy.values[piece * kPackElems<float> + e] = p[piece].values[e];
        }
        if (params.copy != nullptr) store_pack(static_cast<Element*>(params.copy) + i, copy);
    }
};

// A block takes kThreads * kChunks accesses that follow each other. Where an array is not on a 16-byte boundary, and behind the last whole
// access, it goes element by element.
template <class Element, int kThreads, int kChunks>
__global__ void __launch_bounds__(kThreads) optimizer_vectorised(const OptimizerParams params, bool is_aligned) {
    using Piece = Chunk<Element>;
    constexpr std::int64_t kBlockElems = std::int64_t{kThreads} * kChunks * Piece::kElems;
    allow_successor();
    wait_for_predecessor();
    const std::int64_t first = blockIdx.x * kBlockElems;
    const bool is_whole = is_aligned && first + kBlockElems <= params.n;
    Piece pieces[kChunks];
    if (is_whole) {
#pragma unroll
        for (int c = 0; c < kChunks; ++c) pieces[c].load(params, first + (c * kThreads + threadIdx.x) * Piece::kElems);
    }
    const Factors factors = share_factors(params);  // while the pieces arrive
    if (is_whole) {
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
            pieces[c].step(factors);
            pieces[c].store(params, first + (c * kThreads + threadIdx.x) * Piece::kElems);
        }
        return;
    }
    const std::int64_t end = first + kBlockElems < params.n ? first + kBlockElems : params.n;
    for (std::int64_t i = first + threadIdx.x; i < end; i += kThreads) step_element<Element>(params, factors, i);
}

}  // namespace aicf::optimizer
