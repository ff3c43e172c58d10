// Adam and AdamW over flat arrays: p, m and v in fp32 and in place, the gradient and the copy of p in Element.
//
// | kernel         | idea                                                                  | reads and writes           |
// |----------------|-----------------------------------------------------------------------|----------------------------|
// | naive          | a thread per element, which works out the step's factors for itself   | an element an access       |
// | shared_factors | the factors are worked out once per block                             | an element an access       |
// | vectorised     | 16 bytes an access, and several of each array in flight               | 16 bytes of the gradient   |
#include <cstdint>

#include "common/elements.cuh"
#include "common/plain_quotients.cuh"
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

// What the gradient is multiplied by. A step whose factor is not positive, or NaN, is left out.
__device__ __forceinline__ float read_gain(const OptimizerParams& params) { return params.factor == nullptr ? 1.0f : *params.factor; }

// `rate` and `root_scale` are made of float64: 1 - beta^step loses half its digits in fp32 at the first steps.
__device__ __forceinline__ Factors make_factors(const OptimizerParams& params, double lr, float gain, double rate, double root_scale) {
    Factors f;
    f.keep = params.decoupled ? static_cast<float>(1.0 - lr * params.weight_decay) : 1.0f;
    f.decay = params.decoupled ? 0.0f : static_cast<float>(params.weight_decay);
    f.beta2 = static_cast<float>(params.beta2);
    f.take1 = static_cast<float>(1.0 - params.beta1);
    f.take2 = static_cast<float>(1.0 - params.beta2);
    f.rate = static_cast<float>(rate);
    f.root_scale = static_cast<float>(root_scale);
    f.eps = static_cast<float>(params.eps);
    f.gain = gain;
    f.is_skipped = !(gain > 0.0f);
    return f;
}

__device__ __forceinline__ Factors find_factors(const OptimizerParams& params) {
    const double step = static_cast<double>(*params.step), lr = static_cast<double>(*params.lr);
    const double first = 1.0 - pow(params.beta1, step), second = 1.0 - pow(params.beta2, step);
    return make_factors(params, lr, read_gain(params), lr / first, 1.0 / sqrt(second));
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

inline constexpr int kStepBits = 32;

// What there is of the step's number in memory. Where the kernel counts the steps itself, the lower half of the counter has those that are
// done, and keeps them until all blocks have counted themselves in its upper half (StepCount).
__device__ __forceinline__ std::uint64_t read_counter(const OptimizerParams& params) {
    const void* const source = params.steps_done == nullptr ? static_cast<const void*>(params.step) : params.steps_done;
    std::uint64_t found;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(found) : "l"(source) : "memory");
    return found;
}

__device__ __forceinline__ std::uint64_t find_step(const OptimizerParams& params, std::uint64_t counter) {
    return params.steps_done == nullptr ? counter : (counter & ((1ull << kStepBits) - 1)) + 1;
}

// The upper half of the counter counts the blocks that have read it, and the last one sets it to what the next launch is to find: blocks
// wait for nobody, and nothing is left behind. A step that is left out is not counted. Reading is apart from counting, for which blocks
// have to queue: begin() comes behind a barrier behind read_counter(), and end() when there is nothing else to do, for its answer takes
// long.
struct StepCount {
    unsigned long long* counter;  // null for threads that do not count
    unsigned long long found;

    __device__ __forceinline__ void begin(const OptimizerParams& params) {
        counter = threadIdx.x == 0 ? reinterpret_cast<unsigned long long*>(params.steps_done) : nullptr;
        if (counter != nullptr) found = atomicAdd(counter, 1ull << kStepBits);
    }

    __device__ __forceinline__ void end(bool is_skipped) const {
        if (counter == nullptr || found >> kStepBits != gridDim.x - 1) return;
        const unsigned long long done = found & ((1ull << kStepBits) - 1);
        atomicExch(counter, is_skipped ? done : done + 1);
    }
};

__device__ __forceinline__ void step_moments(const Factors& f, float p, float g, float& m, float& v) {
    g = fmaf(f.decay, p, f.gain * g);
    m = fmaf(f.take1, g - m, m);
    v = fmaf(f.take2 * g, g, f.beta2 * v);
}

__device__ __forceinline__ float find_update(const Factors& f, float m, float v) { return m / fmaf(sqrtf(v), f.root_scale, f.eps); }

__device__ __forceinline__ float step_parameter(const Factors& f, float p, float update) { return fmaf(-f.rate, update, f.keep * p); }

// One element.
template <class Element>
struct Single {
    float p, m, v;
    Element grad;

    __device__ __forceinline__ void load(const OptimizerParams& params, std::int64_t i) {
        p = params.p[i];
        grad = static_cast<const Element*>(params.grad)[i];
        m = params.m[i];
        v = params.v[i];
    }

    // Keeps the compiler from converting the gradient, and so from waiting for it, before this.
    __device__ __forceinline__ void hold() {
        if constexpr (sizeof(Element) == 2) asm volatile("" : "+h"(grad.bits));
    }

    __device__ __forceinline__ void step(const Factors& f) {
        if (f.is_skipped) return;
        step_moments(f, p, to_float(grad), m, v);
        p = step_parameter(f, p, find_update(f, m, v));
    }

    __device__ __forceinline__ void store(const OptimizerParams& params, std::int64_t i) const {
        params.p[i] = p;
        params.m[i] = m;
        params.v[i] = v;
        if (params.copy != nullptr) static_cast<Element*>(params.copy)[i] = from_float<Element>(p);
    }
};

template <class Element>
__device__ __forceinline__ void step_element(const OptimizerParams& params, const Factors& f, std::int64_t i) {
    Single<Element> single;
    single.load(params, i);
    single.step(f);
    single.store(params, i);
}

template <class Element>
__global__ void optimizer_naive(const OptimizerParams params) {
    allow_successor();
    wait_for_predecessor();
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < params.n) step_element<Element>(params, find_factors(params), i);
}

inline constexpr int kFactorThreads = 32;

// What factors are made of that is in memory, for the threads that make them. A kernel asks for it before all else: it takes the longest to
// be of use.
struct Scalars {
    float lr, gain;
    std::uint64_t counter;
};

__device__ __forceinline__ Scalars read_scalars(const OptimizerParams& params) {
    if (threadIdx.x >= kFactorThreads) return {};
    return {*params.lr, read_gain(params), read_counter(params)};
}

// Every thread of the block gets the factors, which the first warp works out: its first lane by way of beta1, the others of beta2.
__device__ __forceinline__ Factors share_factors(const OptimizerParams& params, const Scalars& scalars) {
    __shared__ Factors factors;
    if (threadIdx.x < kFactorThreads) {
        const bool is_first = threadIdx.x == 0;
        const double lr = static_cast<double>(scalars.lr);
        const std::uint64_t step = find_step(params, scalars.counter);
        const double power = 1.0 - find_power(is_first ? params.beta1 : params.beta2, step), root = sqrt(power);
        const double scale = (is_first ? lr : 1.0) / (is_first ? power : root);
        const double root_scale = __shfl_sync(0xffffffffu, scale, 1);
        if (is_first) factors = make_factors(params, lr, scalars.gain, scale, root_scale);
    }
    __syncthreads();
    return factors;
}

template <class Element, int kThreads>
__global__ void __launch_bounds__(kThreads) optimizer_shared_factors(const OptimizerParams params) {
    allow_successor();
    wait_for_predecessor();
    const Factors factors = share_factors(params, read_scalars(params));
    StepCount count;
    count.begin(params);
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i < params.n) step_element<Element>(params, factors, i);
    count.end(factors.is_skipped);
}

// One thread's share of one access: kPackElems elements of the gradient, and as many of p, m and v.
template <class Element>
struct Chunk {
    static constexpr int kElems = kPackElems<Element>;
    static constexpr int kWidth = kPackElems<float>, kPieces = kElems / kWidth;
    uint4 grad;  // as it is in memory: nobody waits for it before it is wanted
    Pack<float> p[kPieces], m[kPieces], v[kPieces];

    __device__ __forceinline__ void load(const OptimizerParams& params, std::int64_t i) {
        grad = *reinterpret_cast<const uint4*>(static_cast<const Element*>(params.grad) + i);
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
            p[piece] = load_pack(params.p + i + piece * kWidth);
            m[piece] = load_pack(params.m + i + piece * kWidth);
            v[piece] = load_pack(params.v + i + piece * kWidth);
        }
    }

    __device__ __forceinline__ void step(const Factors& f) {
        if (f.is_skipped) return;
        const Pack<Element> g = unpack<Element>(grad);
        float updates[kElems];
        bool is_plain = true;
#pragma unroll
        for (int e = 0; e < kElems; ++e) {
            float &new_m = m[e / kWidth].values[e % kWidth], &new_v = v[e / kWidth].values[e % kWidth];
            step_moments(f, p[e / kWidth].values[e % kWidth], g.values[e], new_m, new_v);
            const float divisor = fmaf(find_plain_root(new_v), f.root_scale, f.eps);
            updates[e] = find_plain_quotient(new_m, divisor);
            is_plain = is_plain & has_plain_root(new_v) & has_plain_quotient(new_m, divisor);
        }
        if (!is_plain) {
#pragma unroll
            for (int e = 0; e < kElems; ++e)
                updates[e] = find_update(f, m[e / kWidth].values[e % kWidth], v[e / kWidth].values[e % kWidth]);
        }
#pragma unroll
        for (int e = 0; e < kElems; ++e) {
            float& new_p = p[e / kWidth].values[e % kWidth];
            new_p = step_parameter(f, new_p, updates[e]);
        }
    }

    __device__ __forceinline__ void store(const OptimizerParams& params, std::int64_t i) const {
        Pack<Element> copy;
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
            store_pack(params.p + i + piece * kWidth, p[piece]);
            store_pack(params.m + i + piece * kWidth, m[piece]);
            store_pack(params.v + i + piece * kWidth, v[piece]);
#pragma unroll
            for (int e = 0; e < kWidth; ++e) copy.values[piece * kWidth + e] = p[piece].values[e];
        }
        if (params.copy != nullptr) store_pack(static_cast<Element*>(params.copy) + i, copy);
    }
};

// A block takes kThreads * kChunks accesses that follow each other; the last block, the elements behind the last whole access too, a thread
// each. Where an array is not on a 16-byte boundary, all goes element by element.
template <class Element, int kThreads, int kChunks>
__global__ void __launch_bounds__(kThreads) optimizer_vectorised(const OptimizerParams params, bool is_aligned) {
    using Piece = Chunk<Element>;
    constexpr std::int64_t kElems = Piece::kElems, kBlockElems = kThreads * kChunks * kElems;
    static_assert(kElems <= kThreads, "a thread for each element of less than an access");
    allow_successor();
    wait_for_predecessor();
    const Scalars scalars = read_scalars(params);
    StepCount count;
    const std::int64_t first = blockIdx.x * kBlockElems;
    if (!is_aligned) {
        const Factors factors = share_factors(params, scalars);
        count.begin(params);
        const std::int64_t end = first + kBlockElems < params.n ? first + kBlockElems : params.n;
        for (std::int64_t i = first + threadIdx.x; i < end; i += kThreads) step_element<Element>(params, factors, i);
        count.end(factors.is_skipped);
        return;
    }
    const auto find_place = [&](int c) { return first + (c * kThreads + threadIdx.x) * kElems; };
    const std::int64_t behind = params.n / kElems * kElems;
    const std::int64_t rest = behind + threadIdx.x;
    const bool has_rest = blockIdx.x == gridDim.x - 1 && rest < params.n;
    Piece pieces[kChunks];
    Single<Element> single;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        if (find_place(c) < behind) pieces[c].load(params, find_place(c));
    }
    if (has_rest) single.load(params, rest);
    const Factors factors = share_factors(params, scalars);  // while the pieces arrive
    count.begin(params);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        if (find_place(c) >= behind) break;
        pieces[c].step(factors);
        pieces[c].store(params, find_place(c));
    }
    if (has_rest) {
        single.hold();
        single.step(factors);
        single.store(params, rest);
    }
    count.end(factors.is_skipped);
}

}  // namespace aicf::optimizer
