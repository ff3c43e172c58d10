// Launches whose counters are compared with Nsight Compute's. Probes are one warp and one access at addresses from a table, so that each
// launch says what one pattern costs; the kernels after them are small programs. run_corpus() makes every launch, in a fixed order, and
// case_names() names them in that order. Each probe's own table load and result store are one coalesced request each.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#define EXPORT extern "C"

namespace {

constexpr unsigned kLanes = 32;
constexpr unsigned kSharedBytes = 32 * 1024;
constexpr unsigned kArenaBytes = 1 << 20;

struct Pattern {
    std::string name;
    unsigned offsets[kLanes];  // bytes
    unsigned mask = ~0u;
};

__device__ unsigned shared_base(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

#define SHARED_PROBE(NAME, ...)                                                              \
    __global__ void NAME(const unsigned* offsets, unsigned mask, unsigned*, unsigned* out) { \
        extern __shared__ __align__(1024) unsigned char memory[];                            \
        const unsigned lane = threadIdx.x, address = shared_base(memory) + offsets[lane];    \
        unsigned r0 = lane, r1 = lane, r2 = lane, r3 = lane;                                 \
        if (mask >> lane & 1) asm volatile(__VA_ARGS__);                                     \
        out[lane] = r0 ^ r1 ^ r2 ^ r3;                                                       \
    }
#define REGS : "+r"(r0), "+r"(r1), "+r"(r2), "+r"(r3) : "r"(address) : "memory"

SHARED_PROBE(shared_load8, "ld.shared.u8 %0, [%4];" REGS)
SHARED_PROBE(shared_load16, "{.reg .b16 h; ld.shared.b16 h, [%4]; mov.b32 %0, {h, h};}" REGS)
SHARED_PROBE(shared_load32, "ld.shared.b32 %0, [%4];" REGS)
SHARED_PROBE(shared_load64, "ld.shared.v2.b32 {%0, %1}, [%4];" REGS)
SHARED_PROBE(shared_load128, "ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" REGS)
SHARED_PROBE(shared_store8, "st.shared.u8 [%4], %0;" REGS)
SHARED_PROBE(shared_store32, "st.shared.b32 [%4], %0;" REGS)
SHARED_PROBE(shared_store64, "st.shared.v2.b32 [%4], {%0, %1};" REGS)
SHARED_PROBE(shared_store128, "st.shared.v4.b32 [%4], {%0, %1, %2, %3};" REGS)
SHARED_PROBE(shared_atom_add, "atom.shared.add.u32 %0, [%4], %1;" REGS)
SHARED_PROBE(shared_atom_exch, "atom.shared.exch.b32 %0, [%4], %1;" REGS)
SHARED_PROBE(shared_atom_cas, "atom.shared.cas.b32 %0, [%4], %1, %2;" REGS)

// Matrix accesses take all threads of the warp.
#define MATRIX_PROBE(NAME, ...)                                                           \
    __global__ void NAME(const unsigned* offsets, unsigned, unsigned*, unsigned* out) {   \
        extern __shared__ __align__(1024) unsigned char memory[];                         \
        const unsigned lane = threadIdx.x, address = shared_base(memory) + offsets[lane]; \
        unsigned r0 = lane, r1 = lane, r2 = lane, r3 = lane;                              \
        asm volatile(__VA_ARGS__);                                                        \
        out[lane] = r0 ^ r1 ^ r2 ^ r3;                                                    \
    }
MATRIX_PROBE(ldmatrix_x1, "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%4];" REGS)
MATRIX_PROBE(ldmatrix_x2, "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%4];" REGS)
MATRIX_PROBE(ldmatrix_x4, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" REGS)
MATRIX_PROBE(ldmatrix_x4_trans, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" REGS)
MATRIX_PROBE(stmatrix_x1, "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%4], {%0};" REGS)
MATRIX_PROBE(stmatrix_x2, "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%4], {%0, %1};" REGS)
MATRIX_PROBE(stmatrix_x4, "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%4], {%0, %1, %2, %3};" REGS)
MATRIX_PROBE(stmatrix_x4_trans, "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%4], {%0, %1, %2, %3};" REGS)

#define GLOBAL_PROBE(NAME, ...)                                                                    \
    __global__ void NAME(const unsigned* offsets, unsigned mask, unsigned* arena, unsigned* out) { \
        const unsigned lane = threadIdx.x;                                                         \
        char* const address = reinterpret_cast<char*>(arena) + offsets[lane];                      \
        unsigned r0 = lane, r1 = lane, r2 = lane, r3 = lane;                                       \
        if (mask >> lane & 1) asm volatile(__VA_ARGS__);                                           \
        out[lane] = r0 ^ r1 ^ r2 ^ r3;                                                             \
    }
#define REGS64 : "+r"(r0), "+r"(r1), "+r"(r2), "+r"(r3) : "l"(address) : "memory"
GLOBAL_PROBE(global_load8, "ld.global.u8 %0, [%4];" REGS64)
GLOBAL_PROBE(global_load32, "ld.global.b32 %0, [%4];" REGS64)
GLOBAL_PROBE(global_load64, "ld.global.v2.b32 {%0, %1}, [%4];" REGS64)
GLOBAL_PROBE(global_load128, "ld.global.v4.b32 {%0, %1, %2, %3}, [%4];" REGS64)
GLOBAL_PROBE(global_store8, "st.global.u8 [%4], %0;" REGS64)
GLOBAL_PROBE(global_store32, "st.global.b32 [%4], %0;" REGS64)
GLOBAL_PROBE(global_store64, "st.global.v2.b32 [%4], {%0, %1};" REGS64)
GLOBAL_PROBE(global_store128, "st.global.v4.b32 [%4], {%0, %1, %2, %3};" REGS64)
GLOBAL_PROBE(global_atom_add, "atom.global.add.u32 %0, [%4], %1;" REGS64)
GLOBAL_PROBE(global_atom_cas64, "{.reg .b64 a, b; mov.b64 a, {%0, %1}; atom.global.cas.b64 b, [%4], a, a; mov.b64 {%0, %1}, b;}" REGS64)
GLOBAL_PROBE(global_red_add, "red.global.add.u32 [%4], %1;" REGS64)

#define COPY_PROBE(NAME, BYTES, CACHE)                                                                                       \
    __global__ void NAME(const unsigned* offsets, unsigned mask, unsigned* arena, unsigned* out) {                           \
        extern __shared__ __align__(1024) unsigned char memory[];                                                            \
        const unsigned lane = threadIdx.x;                                                                                   \
        const unsigned to = shared_base(memory) + lane * BYTES;                                                              \
        const char* from = reinterpret_cast<const char*>(arena) + offsets[lane];                                             \
        if (mask >> lane & 1) asm volatile("cp.async." CACHE ".shared.global [%0], [%1], " #BYTES ";" ::"r"(to), "l"(from)); \
        asm volatile("cp.async.wait_all;" ::: "memory");                                                                     \
        out[lane] = to;                                                                                                      \
    }
COPY_PROBE(async_copy4, 4, "ca")
COPY_PROBE(async_copy8, 8, "ca")
COPY_PROBE(async_copy16, 16, "cg")

using Probe = void (*)(const unsigned*, unsigned, unsigned*, unsigned*);
struct Access {
    const char* name;
    Probe probe;
    unsigned bytes;
    enum Kind { kShared, kMatrix, kGlobal, kCopy } kind;
};
#define ACCESS(NAME, BYTES, KIND) {#NAME, NAME, BYTES, Access::KIND}
const Access kAccesses[] = {
    ACCESS(shared_load8, 1, kShared),       ACCESS(shared_load16, 2, kShared),      ACCESS(shared_load32, 4, kShared),
    ACCESS(shared_load64, 8, kShared),      ACCESS(shared_load128, 16, kShared),    ACCESS(shared_store8, 1, kShared),
    ACCESS(shared_store32, 4, kShared),     ACCESS(shared_store64, 8, kShared),     ACCESS(shared_store128, 16, kShared),
    ACCESS(shared_atom_add, 4, kShared),    ACCESS(shared_atom_exch, 4, kShared),   ACCESS(shared_atom_cas, 4, kShared),
    ACCESS(ldmatrix_x1, 16, kMatrix),       ACCESS(ldmatrix_x2, 16, kMatrix),       ACCESS(ldmatrix_x4, 16, kMatrix),
    ACCESS(ldmatrix_x4_trans, 16, kMatrix), ACCESS(stmatrix_x1, 16, kMatrix),       ACCESS(stmatrix_x2, 16, kMatrix),
    ACCESS(stmatrix_x4, 16, kMatrix),       ACCESS(stmatrix_x4_trans, 16, kMatrix), ACCESS(global_load8, 1, kGlobal),
    ACCESS(global_load32, 4, kGlobal),      ACCESS(global_load64, 8, kGlobal),      ACCESS(global_load128, 16, kGlobal),
    ACCESS(global_store8, 1, kGlobal),      ACCESS(global_store32, 4, kGlobal),     ACCESS(global_store64, 8, kGlobal),
    ACCESS(global_store128, 16, kGlobal),   ACCESS(global_atom_add, 4, kGlobal),    ACCESS(global_atom_cas64, 8, kGlobal),
    ACCESS(global_red_add, 4, kGlobal),     ACCESS(async_copy4, 4, kCopy),          ACCESS(async_copy8, 8, kCopy),
    ACCESS(async_copy16, 16, kCopy),
};

uint32_t next_random(uint32_t& state) {  // xorshift
    state ^= state << 13;
    state ^= state >> 17;
    return state ^= state << 5;
}

std::vector<Pattern> make_patterns(const Access& access, uint32_t seed) {
    const unsigned size = access.bytes;
    const unsigned limit = (access.kind == Access::kShared || access.kind == Access::kMatrix) ? kSharedBytes : kArenaBytes;
    std::vector<Pattern> patterns;
    const auto add = [&](const char* name, auto&& element, unsigned mask = ~0u) {
        Pattern pattern{name, {}, mask};
        for (unsigned lane = 0; lane < kLanes; ++lane) pattern.offsets[lane] = element(lane) * size % limit;
        patterns.push_back(pattern);
    };
    add("unit", [](unsigned l) { return l; });
    add("broadcast", [](unsigned) { return 5u; });
    add("reversed", [](unsigned l) { return 31 - l; });
    add("stride2", [](unsigned l) { return 2 * l; });
    add("stride8", [](unsigned l) { return 8 * l; });
    add("stride32", [](unsigned l) { return 32 * l; });
    add("random", [&](unsigned) { return next_random(seed) % 512; });
    add("random_near", [&](unsigned) { return next_random(seed) % 24; });
    if (access.kind == Access::kMatrix) {
        add("padded", [](unsigned l) { return l * 9; });
        add("swizzled", [](unsigned l) { return l * 8 + (l % 8); });
        add("pairs", [](unsigned l) { return l / 2 * 8; });
        add("stride4", [](unsigned l) { return 4 * l; });
        return patterns;
    }
    add("lower_half", [](unsigned l) { return 4 * l; }, 0x0000FFFFu);
    add("even_lanes", [](unsigned l) { return l; }, 0x55555555u);
    add("random_mask", [&](unsigned) { return next_random(seed) % 256; }, next_random(seed) | 1);
    if (access.kind == Access::kShared) {
        add("stride4", [](unsigned l) { return 4 * l; });
        add("stride16", [](unsigned l) { return 16 * l; });
        add("stride33", [](unsigned l) { return 33 * l; });
        add("pairs", [](unsigned l) { return l / 2; });
        add("pairs_far", [](unsigned l) { return l / 2 * 5; });
        add("across2", [](unsigned l) { return (l & ~2u) * 3; });
        add("quads", [](unsigned l) { return l / 4; });
        add("halves_same", [](unsigned l) { return l % 16; });
        add("quarters_same", [](unsigned l) { return l % 8; });
        add("two_rows", [](unsigned l) { return (l % 2) * 128 + l / 2; });
        add("one_lane", [](unsigned) { return 3u; }, 0x00000400u);
        if (size >= 8) {
            add("random2", [&](unsigned) { return next_random(seed) % 512; });
            add("random_pairs", [&, last = 0u](unsigned l) mutable { return last = l % 2 ? last : next_random(seed) % 512; });
            add("upper_quarter", [](unsigned l) { return 2 * l; }, 0xFF000000u);
            add("scattered_mask", [&](unsigned) { return next_random(seed) % 512; }, 0x01010101u);
        }
    } else {
        add("shifted", [](unsigned l) { return l + 4; });
        add("stride33", [](unsigned l) { return 33 * l; });
        add("rows8", [](unsigned l) { return l / 8 * 64 + l % 8; });
        add("halves_apart", [](unsigned l) { return 2 * (l % 16) + l / 16; });
        add("halves_apart_masked", [](unsigned l) { return 2 * (l % 16) + l / 16; }, 0x7FFFFFFEu);
        add("masked_near", [&](unsigned) { return next_random(seed) % 24; }, next_random(seed) | 1);
        add("masked_far", [&](unsigned) { return next_random(seed) % 128; }, next_random(seed) | 1);
        add("masked_broadcast", [](unsigned) { return 7u; }, 0x00FFF000u);
    }
    return patterns;
}

// Small programs.
constexpr int kSide = 64;

__global__ void copy_vectors(const float4* in, float4* out) { out[blockIdx.x * 128 + threadIdx.x] = in[blockIdx.x * 128 + threadIdx.x]; }

__global__ void copy_strided(const float* in, float* out, int stride) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i * stride];
}

__global__ void saxpy(int n, float a, const float* x, float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

template <int kPad>
__global__ void transpose(const float* in, float* out) {
    __shared__ float tile[32][32 + kPad];
    const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32;
    for (int j = threadIdx.y; j < 32; j += 8) tile[j][threadIdx.x] = in[(y + j) * kSide + x];
    __syncthreads();
    for (int j = threadIdx.y; j < 32; j += 8) out[(blockIdx.x * 32 + j) * kSide + y + threadIdx.x] = tile[threadIdx.x][j];
}

template <int kTile>
__global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float as[kTile][kTile], bs[kTile][kTile];
    const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * kTile + ty, column = blockIdx.x * kTile + tx;
    float sum = 0;
    for (int k = 0; k < n; k += kTile) {
        as[ty][tx] = a[row * n + k + tx];
        bs[ty][tx] = b[(k + ty) * n + column];
        __syncthreads();
        for (int i = 0; i < kTile; ++i) sum += as[ty][i] * bs[i][tx];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

__global__ void reduce_interleaved(const float* in, float* out) {  // conflicts grow with the stride
    __shared__ float part[256];
    const unsigned t = threadIdx.x;
    part[t] = in[blockIdx.x * 256 + t];
    __syncthreads();
    for (unsigned s = 1; s < 256; s *= 2) {
        if (2 * s * t < 256) part[2 * s * t] += part[2 * s * t + s];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}

__global__ void reduce_sequential(const float* in, float* out) {
    __shared__ float part[256];
    const unsigned t = threadIdx.x;
    part[t] = in[blockIdx.x * 256 + t];
    __syncthreads();
    for (unsigned s = 128; s > 0; s /= 2) {
        if (t < s) part[t] += part[t + s];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}

__global__ void reduce_shuffled(const float* in, float* out) {
    __shared__ float part[8];
    const unsigned t = threadIdx.x;
    float sum = in[blockIdx.x * 256 + t];
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    if (t % 32 == 0) part[t / 32] = sum;
    __syncthreads();
    if (t != 0) return;
    for (int w = 1; w < 8; ++w) sum += part[w];
    out[blockIdx.x] = sum;
}

__global__ void scan(const int* in, int* out) {
    extern __shared__ int values[];
    const int t = threadIdx.x;
    values[t] = in[t];
    __syncthreads();
    for (unsigned d = 1; d < blockDim.x; d *= 2) {
        const int before = t >= d ? values[t - d] : 0;
        __syncthreads();
        values[t] += before;
        __syncthreads();
    }
    out[t] = values[t];
}

__global__ void histogram(const unsigned* in, unsigned* bins) {
    __shared__ unsigned part[64];
    if (threadIdx.x < 64) part[threadIdx.x] = 0;
    __syncthreads();
    const unsigned value = in[blockIdx.x * blockDim.x + threadIdx.x];
    atomicExch(&part[value % 61], value);
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], part[threadIdx.x]);
}

__global__ void gather(const unsigned* index, const float* in, float* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[index[i] % 4096];
}

__global__ void stencil(const float* in, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0 || i >= n - 1) return;
    out[i] = 0.25f * in[i - 1] + 0.5f * in[i] + 0.25f * in[i + 1];
}

struct Particle {
    float x, y, z;
};
__global__ void move_particles(Particle* p) {  // 12-byte elements
    Particle& own = p[blockIdx.x * blockDim.x + threadIdx.x];
    own.x += 1.f;
    own.y += 2.f;
    own.z += 3.f;
}

__global__ void collatz(int* out) {
    int n = blockIdx.x * blockDim.x + threadIdx.x + 1, steps = 0;
    while (n != 1) {
        n = n % 2 ? 3 * n + 1 : n / 2;
        ++steps;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = steps;
}

// Local memory: words of `table` at an index of each thread's own, written and read back; the assembly keeps it from being optimised away.
template <int kWords>
__global__ void local_table(const unsigned* in, unsigned* out, unsigned limit) {
    __align__(16) unsigned table[64];
    uint64_t base;
    asm volatile("cvta.to.local.u64 %0, %1;" : "=l"(base) : "l"(table));
    const unsigned t = threadIdx.x;
    for (unsigned i = 0; i < 8; ++i) {
        const uint64_t to = base + (i * kWords + in[t] % limit * kWords) % 64 * 4, from = base + (i * kWords) % 64 * 4;
        unsigned a = t, b = i, c = t, d = i;
        if constexpr (kWords == 1) {
            asm volatile("st.local.b32 [%0], %1;" ::"l"(to), "r"(a) : "memory");
            asm volatile("ld.local.b32 %0, [%1];" : "=r"(a) : "l"(from) : "memory");
        } else {
            asm volatile("st.local.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
            asm volatile("ld.local.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(from) : "memory");
        }
        out[t] = a + b + c + d;
    }
}

__global__ void pipeline_tiles(const float4* in, float4* out, int tiles) {  // cp.async, two stages
    __shared__ float4 stage[2][128];
    const unsigned t = threadIdx.x;
    const auto fetch = [&](int tile) {
        const unsigned to = shared_base(&stage[tile % 2][t]);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + tile * 128 + t));
        asm volatile("cp.async.commit_group;");
    };
    fetch(0);
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile + 1 < tiles) fetch(tile + 1);
        if (tile + 1 < tiles)
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        else
            asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        out[tile * 128 + t] = stage[tile % 2][t ^ 1];
        __syncthreads();
    }
}

// D = A B for one 16 x 8 x 16 tile a warp; A and B by ldmatrix from rows of kStride bytes.
template <int kStride>
__global__ void tensor_tile(const uint4* a, const uint4* b, float* d) {
    __shared__ __align__(128) unsigned char as[16 * kStride], bs[16 * kStride];
    const unsigned lane = threadIdx.x;
    *reinterpret_cast<uint4*>(as + lane / 2 * kStride + lane % 2 * 16) = a[lane];
    if (lane < 16) *reinterpret_cast<uint4*>(bs + lane * kStride) = b[lane];
    __syncwarp();
    unsigned a0, a1, a2, a3, b0, b1;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a0), "=r"(a1), "=r"(a2), "=r"(a3)
                 : "r"(shared_base(as + lane % 16 * kStride + lane / 16 * 16)));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(b0), "=r"(b1)
                 : "r"(shared_base(bs + lane % 16 * kStride)));
    float c[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    float2* row = reinterpret_cast<float2*>(d) + lane / 4 * 4 + lane % 4;
    row[0] = make_float2(c[0], c[1]);
    row[32] = make_float2(c[2], c[3]);
}

}  // namespace

static void fill(unsigned* arena) {
    std::vector<unsigned> values(kArenaBytes / 4);
    uint32_t seed = 12345;
    for (unsigned& value : values) value = next_random(seed) >> 8;
    cudaMemcpy(arena, values.data(), kArenaBytes, cudaMemcpyHostToDevice);
}

// Calls `visit(name)` before every launch; launches only where `launch` is set. Returns the CUDA error.
template <class Visit>
static int walk(bool launch, Visit&& visit) {
    unsigned *offsets = nullptr, *arena = nullptr, *out = nullptr;
    if (launch) {
        cudaMalloc(&offsets, kLanes * 4);
        cudaMalloc(&arena, kArenaBytes);
        cudaMalloc(&out, kArenaBytes);
        fill(arena);
        cudaMemset(out, 0, kArenaBytes);
    }
    uint32_t seed = 1;
    for (const Access& access : kAccesses) {
        const bool in_shared = access.kind != Access::kGlobal;
        for (const Pattern& pattern : make_patterns(access, seed += 77)) {
            visit(std::string(access.name) + "/" + pattern.name);
            if (!launch) continue;
            cudaMemcpy(offsets, pattern.offsets, sizeof pattern.offsets, cudaMemcpyHostToDevice);
            access.probe<<<1, kLanes, in_shared ? kSharedBytes : 0>>>(offsets, pattern.mask, arena, out);
        }
    }
    if (launch) fill(arena);  // the probes have written to it
    const auto program = [&](const char* name, auto&& run) {
        visit(std::string(name));
        if (launch) run();
    };
    float *x = reinterpret_cast<float*>(arena), *y = reinterpret_cast<float*>(out);
    const dim3 side(kSide / 32, kSide / 32), rows(32, 8);
    program("copy_vectors", [&] { copy_vectors<<<8, 128>>>(reinterpret_cast<float4*>(x), reinterpret_cast<float4*>(y)); });
    program("copy_strided2", [&] { copy_strided<<<8, 128>>>(x, y, 2); });
    program("copy_strided9", [&] { copy_strided<<<8, 128>>>(x, y, 9); });
    program("copy_misaligned", [&] { copy_strided<<<8, 128>>>(x + 3, y + 5, 1); });
    program("saxpy", [&] { saxpy<<<8, 128>>>(1000, 2.f, x, y); });
    program("transpose", [&] { transpose<0><<<side, rows>>>(x, y); });
    program("transpose_padded", [&] { transpose<1><<<side, rows>>>(x, y); });
    program("matmul16", [&] { matmul<16><<<dim3(4, 4), dim3(16, 16)>>>(x, x + 4096, y, kSide); });
    program("matmul32", [&] { matmul<32><<<dim3(2, 2), dim3(32, 32)>>>(x, x + 4096, y, kSide); });
    program("reduce_interleaved", [&] { reduce_interleaved<<<4, 256>>>(x, y); });
    program("reduce_sequential", [&] { reduce_sequential<<<4, 256>>>(x, y); });
    program("reduce_shuffled", [&] { reduce_shuffled<<<4, 256>>>(x, y); });
    program("scan", [&] { scan<<<1, 256, 1024>>>(reinterpret_cast<int*>(x), reinterpret_cast<int*>(y)); });
    program("histogram", [&] { histogram<<<4, 256>>>(arena, out); });
    program("gather", [&] { gather<<<8, 128>>>(arena, x + 1024, y); });
    program("stencil", [&] { stencil<<<8, 128>>>(x, y, 1000); });
    program("move_particles", [&] { move_particles<<<4, 128>>>(reinterpret_cast<Particle*>(y)); });
    program("collatz", [&] { collatz<<<4, 128>>>(reinterpret_cast<int*>(y)); });
    program("local_table", [&] { local_table<1><<<1, 128>>>(arena, out, 64); });
    program("local_table_uniform", [&] { local_table<1><<<1, 128>>>(arena, out, 1); });
    program("local_table_vector", [&] { local_table<4><<<1, 128>>>(arena, out, 16); });
    program("pipeline_tiles", [&] { pipeline_tiles<<<1, 128>>>(reinterpret_cast<float4*>(x), reinterpret_cast<float4*>(y), 8); });
    program("tensor_tile32", [&] { tensor_tile<32><<<1, 32>>>(reinterpret_cast<uint4*>(x), reinterpret_cast<uint4*>(x + 1024), y); });
    program("tensor_tile128", [&] { tensor_tile<128><<<1, 32>>>(reinterpret_cast<uint4*>(x), reinterpret_cast<uint4*>(x + 1024), y); });
    program("tensor_tile144", [&] { tensor_tile<144><<<1, 32>>>(reinterpret_cast<uint4*>(x), reinterpret_cast<uint4*>(x + 1024), y); });
    if (!launch) return 0;
    cudaDeviceSynchronize();
    const int error = cudaGetLastError();
    cudaFree(offsets);
    cudaFree(arena);
    cudaFree(out);
    return error;
}

EXPORT int run_corpus() {
    return walk(true, [](const std::string&) {});
}

// One name a line, in the order of the launches.
EXPORT const char* case_names() {
    static std::string names;
    names.clear();
    walk(false, [](const std::string& name) { names += name + "\n"; });
    return names.c_str();
}

// One probe with a pattern of the caller's own: byte offsets below 32 KiB, aligned to the access. Returns the CUDA error, or -1 for no such
// probe.
EXPORT int run_probe(const char* name, const unsigned* pattern, unsigned mask) {
    static unsigned *offsets = nullptr, *arena = nullptr, *out = nullptr;
    if (!offsets) {
        cudaMalloc(&offsets, kLanes * 4);
        cudaMalloc(&arena, kArenaBytes);
        cudaMalloc(&out, kLanes * 4);
    }
    for (const Access& access : kAccesses) {
        if (std::string(access.name) != name) continue;
        cudaMemcpy(offsets, pattern, kLanes * 4, cudaMemcpyHostToDevice);
        access.probe<<<1, kLanes, access.kind == Access::kGlobal ? 0 : kSharedBytes>>>(offsets, mask, arena, out);
        cudaDeviceSynchronize();
        return cudaGetLastError();
    }
    return -1;
}

#ifdef AICF_CORPUS_MAIN
int main() {
    const int error = run_corpus();
    std::fprintf(stderr, "%s", case_names());
    return error;
}
#endif
