// Streams, events and graphs as programs use them: pipelines over several streams, captures with forks, memory of streams and graphs, and
// conditional nodes. (On a GPU: nvcc -rdc=true, for cudaGraphSetConditional.)
#include <numeric>

#include "check.hpp"

constexpr int kCount = 4096;

__global__ void scale(float* values, int count, float factor) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] *= factor;
}

__global__ void add(float* to, const float* from, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] += from[i];
}

__global__ void fill(float* values, int count, float value) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] = value;
}

__global__ void halve_until_small(float* value, cudaGraphConditionalHandle handle) {
    *value *= 0.5f;
    cudaGraphSetConditional(handle, *value > 1.0f);
}

int blocks(int count) { return (count + 255) / 256; }

// Chunks go up, are worked on and come back, each in its own stream, from and to pinned memory.
void pipeline() {
    constexpr int kStreams = 4, kChunk = kCount / kStreams;
    float *host, *device;
    CUDA_CHECK(cudaMallocHost(&host, kCount * sizeof(float)));
    CUDA_CHECK(cudaMalloc(&device, kCount * sizeof(float)));
    std::iota(host, host + kCount, 0.0f);
    cudaStream_t streams[kStreams];
    for (cudaStream_t& stream : streams) CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < kStreams; ++i) {
        float* chunk = device + i * kChunk;
        CUDA_CHECK(cudaMemcpyAsync(chunk, host + i * kChunk, kChunk * sizeof(float), cudaMemcpyHostToDevice, streams[i]));
        scale<<<blocks(kChunk), 256, 0, streams[i]>>>(chunk, kChunk, static_cast<float>(i + 1));
        CUDA_CHECK(cudaMemcpyAsync(host + i * kChunk, chunk, kChunk * sizeof(float), cudaMemcpyDeviceToHost, streams[i]));
    }
    for (cudaStream_t& stream : streams) CUDA_CHECK(cudaStreamSynchronize(stream));
    std::vector<float> wanted(kCount);
    for (int i = 0; i < kCount; ++i) wanted[i] = static_cast<float>(i * (i / kChunk + 1));
    expect_equal(std::vector<float>(host, host + kCount), wanted, "chunks in four streams");
    for (cudaStream_t& stream : streams) CUDA_CHECK(cudaStreamDestroy(stream));
    CUDA_CHECK(cudaFreeHost(host));
    CUDA_CHECK(cudaFree(device));
}

// Two branches and their join, captured, replayed over changed input.
void fork_and_join() {
    DeviceVector<float> left(std::vector<float>(kCount, 1.0f)), right(std::vector<float>(kCount, 2.0f));
    cudaStream_t main_stream, side_stream;
    cudaEvent_t fork, join;
    CUDA_CHECK(cudaStreamCreate(&main_stream));
    CUDA_CHECK(cudaStreamCreate(&side_stream));
    CUDA_CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CUDA_CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CUDA_CHECK(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeGlobal));
    CUDA_CHECK(cudaEventRecord(fork, main_stream));
    CUDA_CHECK(cudaStreamWaitEvent(side_stream, fork));
    scale<<<blocks(kCount), 256, 0, main_stream>>>(left.data(), kCount, 3.0f);
    scale<<<blocks(kCount), 256, 0, side_stream>>>(right.data(), kCount, 5.0f);
    CUDA_CHECK(cudaEventRecord(join, side_stream));
    CUDA_CHECK(cudaStreamWaitEvent(main_stream, join));
    add<<<blocks(kCount), 256, 0, main_stream>>>(left.data(), right.data(), kCount);
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CUDA_CHECK(cudaStreamEndCapture(main_stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 2; ++i) CUDA_CHECK(cudaGraphLaunch(executable, main_stream));
    CUDA_CHECK(cudaStreamSynchronize(main_stream));
    expect_equal(left.to_host(), std::vector<float>(kCount, (1.0f * 3 + 2 * 5) * 3 + 2 * 5 * 5), "two replays of two branches");
    CUDA_CHECK(cudaGraphExecDestroy(executable));
    CUDA_CHECK(cudaGraphDestroy(graph));
    CUDA_CHECK(cudaEventDestroy(fork));
    CUDA_CHECK(cudaEventDestroy(join));
    CUDA_CHECK(cudaStreamDestroy(main_stream));
    CUDA_CHECK(cudaStreamDestroy(side_stream));
}

// Memory in stream order, handed from one stream to another, and memory that belongs to a graph.
void memory_in_order() {
    cudaStream_t first, second;
    cudaEvent_t ready;
    CUDA_CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CUDA_CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CUDA_CHECK(cudaEventCreate(&ready));
    std::vector<float> result(kCount);
    for (int round = 0; round < 3; ++round) {
        float* values;
        CUDA_CHECK(cudaMallocAsync(&values, kCount * sizeof(float), first));
        fill<<<blocks(kCount), 256, 0, first>>>(values, kCount, static_cast<float>(round));
        CUDA_CHECK(cudaEventRecord(ready, first));
        CUDA_CHECK(cudaStreamWaitEvent(second, ready));
        CUDA_CHECK(cudaMemcpyAsync(result.data(), values, kCount * sizeof(float), cudaMemcpyDeviceToHost, second));
        CUDA_CHECK(cudaFreeAsync(values, second));
        CUDA_CHECK(cudaStreamSynchronize(second));
        expect_equal(result, std::vector<float>(kCount, static_cast<float>(round)), "memory in stream order");
    }
    DeviceVector<float> sum(std::vector<float>(kCount, 1.0f));
    float* scratch;
    CUDA_CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    CUDA_CHECK(cudaMallocAsync(&scratch, kCount * sizeof(float), first));
    fill<<<blocks(kCount), 256, 0, first>>>(scratch, kCount, 4.0f);
    add<<<blocks(kCount), 256, 0, first>>>(sum.data(), scratch, kCount);
    CUDA_CHECK(cudaFreeAsync(scratch, first));
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CUDA_CHECK(cudaStreamEndCapture(first, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 3; ++i) CUDA_CHECK(cudaGraphLaunch(executable, first));
    CUDA_CHECK(cudaStreamSynchronize(first));
    expect_equal(sum.to_host(), std::vector<float>(kCount, 13.0f), "memory of a graph");
    CUDA_CHECK(cudaGraphExecDestroy(executable));
    CUDA_CHECK(cudaGraphDestroy(graph));
    CUDA_CHECK(cudaEventDestroy(ready));
    CUDA_CHECK(cudaStreamDestroy(first));
    CUDA_CHECK(cudaStreamDestroy(second));
}

// A loop on the device: halves a value until it is 1 or less.
void loop() {
    DeviceVector<float> value(std::vector<float>(1, 100.0f));
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaGraphConditionalHandle handle;
    cudaGraphNode_t node;
    CUDA_CHECK(cudaStreamCreate(&stream));
    CUDA_CHECK(cudaGraphCreate(&graph, 0));
    CUDA_CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams params = {cudaGraphNodeTypeConditional};
    params.conditional.handle = handle;
    params.conditional.type = cudaGraphCondTypeWhile;
    params.conditional.size = 1;
    CUDA_CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
    CUDA_CHECK(cudaStreamBeginCaptureToGraph(stream, params.conditional.phGraph_out[0], nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
    halve_until_small<<<1, 1, 0, stream>>>(value.data(), handle);
    CUDA_CHECK(cudaStreamEndCapture(stream, nullptr));
    CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CUDA_CHECK(cudaGraphLaunch(executable, stream));
    CUDA_CHECK(cudaStreamSynchronize(stream));
    expect_equal(value.to_host(), std::vector<float>(1, 100.0f / 128), "a loop on the device");
    CUDA_CHECK(cudaGraphExecDestroy(executable));
    CUDA_CHECK(cudaGraphDestroy(graph));
    CUDA_CHECK(cudaStreamDestroy(stream));
}

int main() {
    pipeline();
    fork_and_join();
    memory_in_order();
    loop();
    return finish();
}
