// Textures and surfaces by object: fetches with every address mode and filter, arrays with layers, surfaces, and faults.
#include <cuda_runtime.h>

#include <cstdint>

namespace {

template <class T>
struct Image {
    cudaArray_t array = nullptr;
    cudaTextureObject_t texture = 0;
    cudaSurfaceObject_t surface = 0;

    Image(const T* pixels, int width, int height, int depth, unsigned flags, const cudaTextureDesc& how) {
        const cudaChannelFormatDesc format = cudaCreateChannelDesc<T>();
        cudaMalloc3DArray(&array, &format, make_cudaExtent(width, height, depth), flags);
        if (pixels) {
            cudaMemcpy3DParms copy{};
            copy.srcPtr = make_cudaPitchedPtr(const_cast<T*>(pixels), width * sizeof(T), width, height ? height : 1);
            copy.dstArray = array;
            copy.extent = make_cudaExtent(width, height ? height : 1, depth ? depth : 1);
            copy.kind = cudaMemcpyDeviceToDevice;
            cudaMemcpy3D(&copy);
        }
        cudaResourceDesc resource{};
        resource.resType = cudaResourceTypeArray;
        resource.res.array.array = array;
        cudaCreateTextureObject(&texture, &resource, &how, nullptr);
        if (flags & cudaArraySurfaceLoadStore) cudaCreateSurfaceObject(&surface, &resource);
    }
    ~Image() {
        cudaDeviceSynchronize();
        cudaDestroyTextureObject(texture);
        if (surface) cudaDestroySurfaceObject(surface);
        cudaFreeArray(array);
    }
};

cudaTextureDesc describe(int linear, int address, int normalized, int normalized_read = 0) {
    cudaTextureDesc how{};
    how.filterMode = linear ? cudaFilterModeLinear : cudaFilterModePoint;
    for (auto& mode : how.addressMode) mode = static_cast<cudaTextureAddressMode>(address);
    how.normalizedCoords = normalized;
    how.readMode = normalized_read ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
    return how;
}

__global__ void fetch(cudaTextureObject_t texture, const float* at, float* out, int count) {
    const int i = threadIdx.x;
    if (i < count) out[i] = tex2D<float>(texture, at[2 * i], at[2 * i + 1]);
}
__global__ void bytes(cudaTextureObject_t texture, float4* out) {
    out[threadIdx.x] = tex2D<float4>(texture, threadIdx.x % 4, threadIdx.x / 4);
}
__global__ void words(cudaTextureObject_t texture, int* out) {
    out[threadIdx.x] = tex1Dfetch<int>(texture, static_cast<int>(threadIdx.x) - 4);
}
__global__ void layers(cudaTextureObject_t texture, float* out) {
    out[threadIdx.x] = tex2DLayered<float>(texture, threadIdx.x % 4, threadIdx.x / 4 % 4, threadIdx.x / 16);
}
__global__ void volume(cudaTextureObject_t texture, float* out) {
    out[threadIdx.x] = tex3D<float>(texture, 1.0f, 1.0f, 0.5f + threadIdx.x * 0.25f);
}
__global__ void cube(cudaTextureObject_t texture, float* out) {
    const float sign = threadIdx.x & 1 ? -1.0f : 1.0f;
    const int axis = threadIdx.x / 2;
    out[threadIdx.x] = texCubemap<float>(texture, axis == 0 ? sign : 0.1f, axis == 1 ? sign : 0.1f, axis == 2 ? sign : 0.1f);
}
__global__ void gather(cudaTextureObject_t texture, float4* out) { out[0] = tex2Dgather<float4>(texture, 2.0f, 3.0f, 0); }
__global__ void surface(cudaSurfaceObject_t image, float* out, int fault) {
    const int x = threadIdx.x % 4, y = threadIdx.x / 4;
    if (fault != 1) surf2Dwrite(static_cast<float>(x + 10 * y), image, x * 4 + (fault == 2 ? 4 : 0), y);
    surf2Dwrite(7.0f, image, 4 * (x + 4), y, cudaBoundaryModeZero);
    __syncthreads();
    out[threadIdx.x] = surf2Dread<float>(image, (x ^ 1) * 4, y) + surf2Dread<float>(image, (x + 4) * 4, y, cudaBoundaryModeZero) +
                       surf2Dread<float>(image, (x + 4) * 4, y, cudaBoundaryModeClamp);
}
__device__ int is_texture(unsigned long long object) {
    int found;
    asm("{.reg .pred p; istypep.texref p, %1; selp.s32 %0, 1, 0, p;}" : "=r"(found) : "l"(object));
    return found;
}
__device__ int is_surface(unsigned long long object) {
    int found;
    asm("{.reg .pred p; istypep.surfref p, %1; selp.s32 %0, 1, 0, p;}" : "=r"(found) : "l"(object));
    return found;
}
__global__ void queries(cudaTextureObject_t texture, cudaSurfaceObject_t surface, int* out, int level) {
    asm("txq.width.b32 %0, [%1];" : "=r"(out[0]) : "l"(texture));
    asm("txq.level.height.b32 %0, [%1], %2;" : "=r"(out[1]) : "l"(texture), "r"(level));
    asm("suq.height.b32 %0, [%1];" : "=r"(out[2]) : "l"(surface));
    const unsigned long long objects[3] = {texture, surface, 0};
    for (int i = 0; i < 3; ++i) out[3 + i] = 10 * is_texture(objects[i]) + is_surface(objects[i]);
}

}  // namespace

extern "C" {
void run_queries(const float* pixels, int* out, int level) {
    Image<float> image(pixels, 16, 8, 0, cudaArraySurfaceLoadStore, describe(0, 1, 0));
    queries<<<1, 1>>>(image.texture, image.surface, out, level);
}
void run_fetch(const float* pixels, const float* at, float* out, int width, int height, int count, int linear, int address,
               int normalized) {
    Image<float> image(pixels, width, height, 0, 0, describe(linear, address, normalized));
    fetch<<<1, 64>>>(image.texture, at, out, count);
}
void run_bytes(const uchar4* pixels, float4* out) {
    Image<uchar4> image(pixels, 4, 4, 0, 0, describe(0, 1, 0, 1));
    bytes<<<1, 16>>>(image.texture, out);
}
void run_words(const int* values, int* out) {
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = const_cast<int*>(values);
    resource.res.linear.desc = cudaCreateChannelDesc<int>();
    resource.res.linear.sizeInBytes = 24 * sizeof(int);
    const cudaTextureDesc how = describe(0, 1, 0);
    cudaTextureObject_t texture = 0;
    cudaCreateTextureObject(&texture, &resource, &how, nullptr);
    words<<<1, 32>>>(texture, out);
    cudaDeviceSynchronize();
    cudaDestroyTextureObject(texture);
}
void run_layers(const float* pixels, float* out) {
    Image<float> image(pixels, 4, 4, 3, cudaArrayLayered, describe(0, 1, 0));
    layers<<<1, 64>>>(image.texture, out);
}
void run_volume(const float* pixels, float* out) {
    Image<float> image(pixels, 2, 2, 4, 0, describe(1, 1, 0));
    volume<<<1, 16>>>(image.texture, out);
}
void run_cube(const float* pixels, float* out) {
    Image<float> image(pixels, 4, 4, 6, cudaArrayCubemap, describe(0, 1, 1));
    cube<<<1, 6>>>(image.texture, out);
}
void run_gather(const float* pixels, float4* out) {
    Image<float> image(pixels, 8, 8, 0, cudaArrayTextureGather, describe(0, 1, 0));
    gather<<<1, 1>>>(image.texture, out);
}
void run_surface(float* out, int fault) {
    Image<float> image(nullptr, 4, 8, 0, cudaArraySurfaceLoadStore, describe(0, 1, 0));
    cudaSurfaceObject_t object = image.surface;
    if (fault == 3) cudaDestroySurfaceObject(object);
    surface<<<1, 32>>>(object, out, fault);
}
}
