// Texture fetches and surface operations of every geometry, format and mode, for goldens: texture_corpus.py says which cases there are.
#include <cuda_runtime.h>

#include <cstdint>

namespace {

enum Geometry { k1d, k2d, k3d, kLayered1d, kLayered2d, kCube, kLayeredCube };
enum Operation { kFetch, kLevel, kGradient, kGather, kFetchInteger };

struct Case {
    int geometry, operation, component;
    int bits, channels, kind;  // of a texel; kind as in cudaChannelFormatKind: 0 signed, 1 unsigned, 2 float
    int width, height, depth;  // texels; depth: slices or layers
    int linear, address[3], normalized, normalized_read, srgb;
    int levels, linear_mipmap;
    float bias, least, most;
    float border[4];
    int linear_memory;  // a buffer (1) or pitched memory (2) in the array's place
};

template <class T>
__device__ T fetch(const Case& c, cudaTextureObject_t t, const float* x) {
    const int layer = static_cast<int>(x[3]);
    if (c.operation == kFetchInteger) return tex1Dfetch<T>(t, static_cast<int>(x[0]));
    if (c.operation == kGather) return tex2Dgather<T>(t, x[0], x[1], c.component);
    if (c.operation == kLevel) {
        switch (c.geometry) {
            case k1d: return tex1DLod<T>(t, x[0], x[4]);
            case k2d: return tex2DLod<T>(t, x[0], x[1], x[4]);
            case k3d: return tex3DLod<T>(t, x[0], x[1], x[2], x[4]);
            case kLayered1d: return tex1DLayeredLod<T>(t, x[0], layer, x[4]);
            case kLayered2d: return tex2DLayeredLod<T>(t, x[0], x[1], layer, x[4]);
            case kCube: return texCubemapLod<T>(t, x[0], x[1], x[2], x[4]);
            default: return texCubemapLayeredLod<T>(t, x[0], x[1], x[2], layer, x[4]);
        }
    }
    if (c.operation == kGradient) {
        const float2 dx = make_float2(x[4], x[5]), dy = make_float2(x[6], x[7]);
        switch (c.geometry) {
            case k1d: return tex1DGrad<T>(t, x[0], x[4], x[6]);
            case k2d: return tex2DGrad<T>(t, x[0], x[1], dx, dy);
            case k3d: return tex3DGrad<T>(t, x[0], x[1], x[2], make_float4(x[4], x[5], 0, 0), make_float4(x[6], x[7], 0, 0));
            case kLayered1d: return tex1DLayeredGrad<T>(t, x[0], layer, x[4], x[6]);
            default: return tex2DLayeredGrad<T>(t, x[0], x[1], layer, dx, dy);
        }
    }
    switch (c.geometry) {
        case k1d: return tex1D<T>(t, x[0]);
        case k2d: return tex2D<T>(t, x[0], x[1]);
        case k3d: return tex3D<T>(t, x[0], x[1], x[2]);
        case kLayered1d: return tex1DLayered<T>(t, x[0], layer);
        case kLayered2d: return tex2DLayered<T>(t, x[0], x[1], layer);
        case kCube: return texCubemap<T>(t, x[0], x[1], x[2]);
        default: return texCubemapLayered<T>(t, x[0], x[1], x[2], layer);
    }
}

template <class T>
__global__ void fetch_all(Case c, cudaTextureObject_t texture, const float* points, T* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = fetch<T>(c, texture, points + 8 * i);
}

#define AICF_CHECK(call)                                            \
    do {                                                            \
        const cudaError_t status = (call);                          \
        if (status != cudaSuccess) return 1000 * __LINE__ + status; \
    } while (0)

template <class T>
int run(const Case& c, cudaTextureObject_t texture, const float* points, void* out, int count) {
    fetch_all<T><<<count / 64, 64>>>(c, texture, points, static_cast<T*>(out));
    AICF_CHECK(cudaGetLastError());
    AICF_CHECK(cudaDeviceSynchronize());
    return 0;
}

bool is_flat(const Case& c) { return c.geometry == k1d || c.geometry == kLayered1d; }

int fill(const Case& c, cudaArray_t array, const char* pixels, int level) {
    const size_t texel = c.bits / 8 * c.channels;
    const size_t width = c.width >> level > 0 ? c.width >> level : 1, height = c.height >> level > 0 ? c.height >> level : 1;
    const size_t depth = c.geometry == k3d ? (c.depth >> level > 0 ? c.depth >> level : 1) : c.depth;
    cudaMemcpy3DParms copy{};
    copy.srcPtr = make_cudaPitchedPtr(const_cast<char*>(pixels), width * texel, width, is_flat(c) ? 1 : height);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(width, is_flat(c) ? 1 : height, depth > 0 ? depth : 1);
    copy.kind = cudaMemcpyHostToDevice;
    AICF_CHECK(cudaMemcpy3D(&copy));
    return 0;
}

}  // namespace

// pixels: host memory, level after level, each dense. points: device memory, 8 floats a point. out: device memory, 16 bytes a point.
// 0, or 1000 * line + CUDA's error.
extern "C" int texture_run(const void* which, const void* pixels, const float* points, void* out, int count) {
    const Case& c = *static_cast<const Case*>(which);
    const int bits[4] = {c.bits, c.channels > 1 ? c.bits : 0, c.channels > 2 ? c.bits : 0, c.channels > 3 ? c.bits : 0};
    const cudaChannelFormatDesc format =
        cudaCreateChannelDesc(bits[0], bits[1], bits[2], bits[3], static_cast<cudaChannelFormatKind>(c.kind));
    const size_t texel = c.bits / 8 * c.channels;
    unsigned flags = 0;
    if (c.geometry == kLayered1d || c.geometry == kLayered2d || c.geometry == kLayeredCube) flags |= cudaArrayLayered;
    if (c.geometry == kCube || c.geometry == kLayeredCube) flags |= cudaArrayCubemap;
    if (c.operation == kGather) flags |= cudaArrayTextureGather;
    const cudaExtent extent = make_cudaExtent(c.width, is_flat(c) ? 0 : c.height, c.depth);
    cudaResourceDesc resource{};
    cudaArray_t array = nullptr;
    cudaMipmappedArray_t mipmap = nullptr;
    void* memory = nullptr;
    if (c.linear_memory) {
        size_t pitch = c.width * texel;
        if (c.linear_memory == 1) {
            AICF_CHECK(cudaMalloc(&memory, pitch));
            resource.resType = cudaResourceTypeLinear;
            resource.res.linear = {memory, format, pitch};
        } else {
            AICF_CHECK(cudaMallocPitch(&memory, &pitch, c.width * texel, c.height));
            resource.resType = cudaResourceTypePitch2D;
            resource.res.pitch2D = {memory, format, static_cast<size_t>(c.width), static_cast<size_t>(c.height), pitch};
        }
        AICF_CHECK(cudaMemcpy2D(memory, pitch, pixels, c.width * texel, c.width * texel, c.linear_memory == 1 ? 1 : c.height,
                                cudaMemcpyHostToDevice));
    } else if (c.levels > 1) {
        AICF_CHECK(cudaMallocMipmappedArray(&mipmap, &format, extent, c.levels, flags));
        const char* at = static_cast<const char*>(pixels);
        for (int level = 0; level < c.levels; ++level) {
            cudaArray_t one = nullptr;
            AICF_CHECK(cudaGetMipmappedArrayLevel(&one, mipmap, level));
            if (const int status = fill(c, one, at, level)) return status;
            const auto size = [&](int full) { return static_cast<size_t>(full >> level > 0 ? full >> level : 1); };
            at += texel * size(c.width) * (is_flat(c) ? 1 : size(c.height)) *
                  (c.geometry == k3d ? size(c.depth)
                   : c.depth > 0     ? c.depth
                                     : 1);
        }
        resource.resType = cudaResourceTypeMipmappedArray;
        resource.res.mipmap.mipmap = mipmap;
    } else {
        AICF_CHECK(cudaMalloc3DArray(&array, &format, extent, flags));
        if (const int status = fill(c, array, static_cast<const char*>(pixels), 0)) return status;
        resource.resType = cudaResourceTypeArray;
        resource.res.array.array = array;
    }
    cudaTextureDesc how{};
    for (int axis = 0; axis < 3; ++axis) how.addressMode[axis] = static_cast<cudaTextureAddressMode>(c.address[axis]);
    how.filterMode = c.linear ? cudaFilterModeLinear : cudaFilterModePoint;
    how.readMode = c.normalized_read ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
    how.sRGB = c.srgb;
    for (int i = 0; i < 4; ++i) how.borderColor[i] = c.border[i];
    how.normalizedCoords = c.normalized;
    how.mipmapFilterMode = c.linear_mipmap ? cudaFilterModeLinear : cudaFilterModePoint;
    how.mipmapLevelBias = c.bias;
    how.minMipmapLevelClamp = c.least;
    how.maxMipmapLevelClamp = c.most;
    cudaTextureObject_t texture = 0;
    AICF_CHECK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
    const bool is_float = c.kind == 2 || c.normalized_read;
    const int status = is_float      ? run<float4>(c, texture, points, out, count)
                       : c.kind == 0 ? run<int4>(c, texture, points, out, count)
                                     : run<uint4>(c, texture, points, out, count);
    if (status) return status;
    AICF_CHECK(cudaDestroyTextureObject(texture));
    if (memory) AICF_CHECK(cudaFree(memory));
    if (array) AICF_CHECK(cudaFreeArray(array));
    if (mipmap) AICF_CHECK(cudaFreeMipmappedArray(mipmap));
    return 0;
}

// Surface instructions on a 2D surface: each thread acts on one place with one value; `out` has what came back, `after` the surface.
namespace {

#define AICF_STORE(name, instruction)                                                                             \
    __global__ void name(cudaSurfaceObject_t s, const int2* at, const uint4* v, uint4*) {                         \
        const int2 p = at[threadIdx.x];                                                                           \
        const uint4 x = v[threadIdx.x];                                                                           \
        asm volatile(instruction::"l"(s), "r"(p.x), "r"(p.y), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory"); \
    }
#define AICF_LOAD(name, instruction)                                                                                    \
    __global__ void name(cudaSurfaceObject_t s, const int2* at, const uint4*, uint4* out) {                             \
        const int2 p = at[threadIdx.x];                                                                                 \
        uint4 x = make_uint4(0, 0, 0, 0);                                                                               \
        asm volatile(instruction : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w) : "l"(s), "r"(p.x), "r"(p.y) : "memory"); \
        out[threadIdx.x] = x;                                                                                           \
    }
AICF_STORE(store_b32_clamp, "sust.b.2d.b32.clamp [%0, {%1, %2}], %3;")
AICF_STORE(store_v4_b8_zero,
           "{.reg .b8 a, b, c, d; cvt.u8.u32 a, %3; cvt.u8.u32 b, %4; cvt.u8.u32 c, %5; cvt.u8.u32 d, %6;\n"
           "sust.b.2d.v4.b8.zero [%0, {%1, %2}], {a, b, c, d};}")
AICF_STORE(store_v2_b16_clamp, "{.reg .b16 a, b; cvt.u16.u32 a, %3; cvt.u16.u32 b, %4; sust.b.2d.v2.b16.clamp [%0, {%1, %2}], {a, b};}")
AICF_STORE(store_p_v4, "sust.p.2d.v4.b32.zero [%0, {%1, %2}], {%3, %4, %5, %6};")
AICF_STORE(store_p_one, "sust.p.2d.b32.clamp [%0, {%1, %2}], %3;")
AICF_STORE(add_u32, "sured.b.add.2d.u32.zero [%0, {%1, %2}], %3;")
AICF_STORE(min_s32, "sured.b.min.2d.s32.clamp [%0, {%1, %2}], %3;")
AICF_STORE(max_u32, "sured.b.max.2d.u32.zero [%0, {%1, %2}], %3;")
AICF_STORE(and_b32, "sured.b.and.2d.b32.zero [%0, {%1, %2}], %3;")
AICF_STORE(or_b32, "sured.b.or.2d.b32.clamp [%0, {%1, %2}], %3;")
AICF_STORE(add_p, "sured.p.add.2d.b32.zero [%0, {%1, %2}], %3;")
AICF_STORE(min_p, "sured.p.min.2d.b32.clamp [%0, {%1, %2}], %3;")
AICF_LOAD(load_b32_zero, "suld.b.2d.b32.zero %0, [%4, {%5, %6}];")
AICF_LOAD(load_v4_b32_clamp, "suld.b.2d.v4.b32.clamp {%0, %1, %2, %3}, [%4, {%5, %6}];")

using Kernel = void (*)(cudaSurfaceObject_t, const int2*, const uint4*, uint4*);
constexpr Kernel kKernels[] = {
    store_b32_clamp, store_v4_b8_zero, store_v2_b16_clamp, store_p_v4, store_p_one, add_u32, min_s32, max_u32, and_b32, or_b32, add_p,
    min_p,           load_b32_zero,    load_v4_b32_clamp};

}  // namespace

// pixels and after: host memory, width x height texels.
extern "C" int surface_run(int kernel, int bits, int channels, int kind, int width, int height, const void* pixels, const void* at,
                           const void* values, void* out, void* after, int count) {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc(bits, channels > 1 ? bits : 0, channels > 2 ? bits : 0,
                                                               channels > 3 ? bits : 0, static_cast<cudaChannelFormatKind>(kind));
    const size_t row = static_cast<size_t>(width) * bits / 8 * channels;
    cudaArray_t array = nullptr;
    AICF_CHECK(cudaMallocArray(&array, &format, width, height, cudaArraySurfaceLoadStore));
    AICF_CHECK(cudaMemcpy2DToArray(array, 0, 0, pixels, row, row, height, cudaMemcpyHostToDevice));
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaSurfaceObject_t surface = 0;
    AICF_CHECK(cudaCreateSurfaceObject(&surface, &resource));
    kKernels[kernel]<<<1, count>>>(surface, static_cast<const int2*>(at), static_cast<const uint4*>(values), static_cast<uint4*>(out));
    AICF_CHECK(cudaGetLastError());
    AICF_CHECK(cudaDeviceSynchronize());
    AICF_CHECK(cudaMemcpy2DFromArray(after, row, array, 0, 0, row, height, cudaMemcpyDeviceToHost));
    AICF_CHECK(cudaDestroySurfaceObject(surface));
    AICF_CHECK(cudaFreeArray(array));
    return 0;
}
