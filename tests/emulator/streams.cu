// Work that nothing orders, and its mended twin: streams CASE bug|mended, see test_streams_order.py. The result is right either way where
// work runs when it is queued: what is found is found by order, not by chance.
#include <cuda_runtime.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

constexpr int kCount = 4096;
constexpr size_t kBytes = kCount * sizeof(int);
bool mended = false;

#define CHECK(call)                                                                              \
    do {                                                                                         \
        const cudaError_t code = (call);                                                         \
        if (code != cudaSuccess) {                                                               \
            std::printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(code)); \
            std::exit(1);                                                                        \
        }                                                                                        \
    } while (0)

__global__ void fill(int* out, int value) { out[blockIdx.x * blockDim.x + threadIdx.x] = value; }
__global__ void add(int* out, const int* in) { out[blockIdx.x * blockDim.x + threadIdx.x] += in[blockIdx.x * blockDim.x + threadIdx.x]; }
__global__ void put_every_second(int* out, int first) { out[2 * (blockIdx.x * blockDim.x + threadIdx.x) + first] = first; }
__global__ void count(int* out) { atomicAdd(out, 1); }

struct Setting {
    cudaStream_t one, other;
    cudaEvent_t event;
    int *a, *b;           // device
    int *host, *results;  // pinned
    int* managed;
};

void fill_in(cudaStream_t stream, int* out, int value) { fill<<<kCount / 256, 256, 0, stream>>>(out, value); }
void add_in(cudaStream_t stream, int* out, const int* in) { add<<<kCount / 256, 256, 0, stream>>>(out, in); }

// Makes `other` wait for what `one` has.
void hand_over(const Setting& s) {
    CHECK(cudaEventRecord(s.event, s.one));
    CHECK(cudaStreamWaitEvent(s.other, s.event, 0));
}

void kernel_kernel(const Setting& s) {
    fill_in(s.one, s.a, 1);
    if (mended) hand_over(s);
    add_in(s.other, s.b, s.a);
}

void kernel_copy(const Setting& s) {
    fill_in(s.one, s.a, 1);
    if (mended) hand_over(s);
    CHECK(cudaMemcpyAsync(s.host, s.a, kBytes, cudaMemcpyDeviceToHost, s.other));
}

void copy_copy(const Setting& s) {
    CHECK(cudaMemcpyAsync(s.a, s.host, kBytes, cudaMemcpyHostToDevice, s.one));
    if (mended) CHECK(cudaStreamSynchronize(s.one));
    CHECK(cudaMemcpyAsync(s.b, s.a, kBytes, cudaMemcpyDeviceToDevice, s.other));
}

// cudaMemset of device memory does not wait, and a non-blocking stream does not wait for the default stream.
void memset_kernel(const Setting& s) {
    CHECK(cudaMemset(s.a, 0, kBytes));
    if (mended) CHECK(cudaDeviceSynchronize());
    add_in(s.other, s.b, s.a);
}

void rows(const Setting& s) {
    CHECK(cudaMemcpy2DAsync(s.a, 256, s.host, 128, 128, 16, cudaMemcpyHostToDevice, s.one));
    CHECK(cudaMemset2DAsync(s.a + (mended ? 32 : 31), 256, 0, 128, 15, s.other));
}

void per_thread(const Setting& s) {
    cudaStream_t blocking;
    CHECK(cudaStreamCreate(&blocking));
    fill_in(cudaStreamPerThread, s.a, 1);
    if (mended) fill_in(cudaStreamLegacy, s.a, 2);
    fill_in(blocking, s.a, 3);
}

void free_async(const Setting& s) {
    int* c = nullptr;
    CHECK(cudaMallocAsync(&c, kBytes, s.one));
    fill_in(s.one, c, 1);
    if (mended) hand_over(s);
    CHECK(cudaFreeAsync(c, s.other));
}

void early_event_stream(const Setting& s) {
    if (!mended) CHECK(cudaEventRecord(s.event, s.one));
    fill_in(s.one, s.a, 1);
    if (mended) CHECK(cudaEventRecord(s.event, s.one));
    CHECK(cudaStreamWaitEvent(s.other, s.event, 0));
    add_in(s.other, s.b, s.a);
}

void early_event(const Setting& s) {
    if (!mended) CHECK(cudaEventRecord(s.event, s.one));
    CHECK(cudaMemcpyAsync(s.host, s.b, kBytes, cudaMemcpyDeviceToHost, s.one));
    if (mended) CHECK(cudaEventRecord(s.event, s.one));
    CHECK(cudaEventSynchronize(s.event));
    if (s.host[7] != 0) std::printf("host[7] is %d\n", s.host[7]);
}

void host_read(const Setting& s) {
    CHECK(cudaMemcpyAsync(s.host, s.b, kBytes, cudaMemcpyDeviceToHost, s.one));
    if (mended) CHECK(cudaStreamSynchronize(s.one));
    int sum = 0;
    for (int i = 0; i < kCount; ++i) sum += s.host[i];
    if (sum != 0) std::printf("the sum is %d\n", sum);
}

// Results in one small pinned array, each brought by a copy of its own.
void host_part(const Setting& s) {
    CHECK(cudaMemcpyAsync(s.results, s.a, sizeof(int), cudaMemcpyDeviceToHost, s.one));
    CHECK(cudaMemcpyAsync(s.results + 1, s.b, sizeof(int), cudaMemcpyDeviceToHost, s.other));
    if (mended) CHECK(cudaStreamSynchronize(s.other));
    if (s.results[1] != 0) std::printf("results[1] is %d\n", s.results[1]);
}

void other_part(const Setting& s) {
    CHECK(cudaMemcpyAsync(s.results, s.a, sizeof(int), cudaMemcpyDeviceToHost, s.one));
    s.results[2] = 5;
    if (s.results[1] != 0) std::printf("results[1] is %d\n", s.results[1]);
}

void host_copies(const Setting& s) {
    static int copy[kCount];
    CHECK(cudaMemcpyAsync(s.host, s.b, kBytes, cudaMemcpyDeviceToHost, s.one));
    if (mended) CHECK(cudaStreamSynchronize(s.one));
    std::memcpy(copy, s.host, kBytes);
    if (copy[9] != 0) std::printf("copy[9] is %d\n", copy[9]);
}

void host_write(const Setting& s) {
    CHECK(cudaMemcpyAsync(s.a, s.host, kBytes, cudaMemcpyHostToDevice, s.one));
    if (mended) {
        CHECK(cudaEventRecord(s.event, s.one));
        CHECK(cudaEventSynchronize(s.event));
    }
    s.host[3] = 5;
}

void managed_read(const Setting& s) {
    fill_in(s.one, s.managed, 4);
    if (mended) CHECK(cudaDeviceSynchronize());
    if (s.managed[1] != 4) std::printf("managed[1] is %d\n", s.managed[1]);
}

void managed_write(const Setting& s) {
    add_in(s.one, s.a, s.managed);
    if (mended)
        while (cudaStreamQuery(s.one) == cudaErrorNotReady) continue;
    s.managed[1] = 4;
}

cudaGraphExec_t capture(const Setting& s, void (*record)(const Setting&)) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(s.one, cudaStreamCaptureModeThreadLocal));
    record(s);
    CHECK(cudaStreamEndCapture(s.one, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return exec;
}

// The input's upload, and the graph that reads it, in two streams.
void graph_upload(const Setting& s) {
    const cudaGraphExec_t exec = capture(s, [](const Setting& t) { add_in(t.one, t.b, t.a); });
    CHECK(cudaMemcpyAsync(s.a, s.host, kBytes, cudaMemcpyHostToDevice, s.one));
    if (mended) hand_over(s);
    CHECK(cudaGraphLaunch(exec, s.other));
}

// The next launch's input is written while this one's upload may be under way.
void graph_source(const Setting& s) {
    const cudaGraphExec_t exec = capture(s, [](const Setting& t) {
        CHECK(cudaMemcpyAsync(t.a, t.host, kBytes, cudaMemcpyHostToDevice, t.one));
        add_in(t.one, t.b, t.a);
    });
    for (int step = 0; step < 3; ++step) {
        s.host[0] = step;
        CHECK(cudaGraphLaunch(exec, s.one));
        if (mended) CHECK(cudaStreamSynchronize(s.one));
    }
}

void graph_branches(const Setting& s) {
    const cudaGraphExec_t exec = capture(s, [](const Setting& t) {
        CHECK(cudaEventRecord(t.event, t.one));
        if (!mended) CHECK(cudaStreamWaitEvent(t.other, t.event, 0));
        fill_in(t.one, t.a, 1);
        if (mended) hand_over(t);
        add_in(t.other, t.b, t.a);
        CHECK(cudaEventRecord(t.event, t.other));
        CHECK(cudaStreamWaitEvent(t.one, t.event, 0));
    });
    CHECK(cudaGraphLaunch(exec, s.one));
    CHECK(cudaGraphLaunch(exec, s.other));
}

// ---- What is right as it is ----

void disjoint(const Setting& s) {
    put_every_second<<<kCount / 512, 256, 0, s.one>>>(s.a, 0);
    put_every_second<<<kCount / 512, 256, 0, s.other>>>(s.a, 1);
    fill<<<1, 256, 0, s.one>>>(s.b, 1);
    fill<<<1, 256, 0, s.other>>>(s.b + 256, 2);
    CHECK(cudaMemcpyAsync(s.host, s.b, 1024, cudaMemcpyDeviceToHost, s.one));
    CHECK(cudaMemcpyAsync(s.host + 256, s.b + 256, 1024, cudaMemcpyDeviceToHost, s.other));
}

void atomics(const Setting& s) {
    for (int i = 0; i < 4; ++i) {
        count<<<2, 64, 0, s.one>>>(s.a);
        count<<<2, 64, 0, s.other>>>(s.a);
    }
}

void legacy(const Setting& s) {
    cudaStream_t blocking[2];
    for (cudaStream_t& stream : blocking) CHECK(cudaStreamCreate(&stream));
    fill_in(blocking[0], s.a, 1);
    add_in(nullptr, s.b, s.a);
    fill_in(blocking[1], s.a, 2);
    CHECK(cudaStreamDestroy(blocking[1]));
    CHECK(cudaMemcpy(s.host, s.a, kBytes, cudaMemcpyDeviceToHost));
    add_in(s.other, s.b, s.a);
    if (s.host[0] != 2) std::printf("host[0] is %d\n", s.host[0]);
}

void pageable(const Setting& s) {
    static int source[kCount], result[kCount];
    CHECK(cudaMemcpyAsync(s.a, source, kBytes, cudaMemcpyHostToDevice, s.one));
    source[0] = 1;
    CHECK(cudaMemcpyAsync(result, s.a, kBytes, cudaMemcpyDeviceToHost, s.one));
    add_in(s.other, s.b, s.a);
    if (result[0] != 0) std::printf("result[0] is %d\n", result[0]);
}

std::atomic<bool> is_told{false};

void callback(const Setting& s) {
    CHECK(cudaMemcpyAsync(s.host, s.b, kBytes, cudaMemcpyDeviceToHost, s.one));
    CHECK(cudaLaunchHostFunc(s.one, [](void* host) { is_told = static_cast<int*>(host)[5] == 0; }, s.host));
    while (!is_told) continue;
    if (s.host[5] != 0) std::printf("host[5] is %d\n", s.host[5]);
}

// Halves of one pinned buffer in turn, each waited for by its event.
void pipeline(const Setting& s) {
    const cudaStream_t streams[2] = {s.one, s.other};
    cudaEvent_t events[2];
    for (cudaEvent_t& event : events) CHECK(cudaEventCreate(&event));
    for (int step = 0; step < 6; ++step) {
        const int half = step % 2, at = half * kCount / 2;
        CHECK(cudaEventSynchronize(events[half]));
        for (int i = 0; i < kCount / 2; ++i) s.host[at + i] = step;
        CHECK(cudaMemcpyAsync(s.a + at, s.host + at, kBytes / 2, cudaMemcpyHostToDevice, streams[half]));
        fill<<<kCount / 512, 256, 0, streams[half]>>>(s.b + at, step);
        CHECK(cudaEventRecord(events[half], streams[half]));
    }
}

struct Case {
    const char* name;
    void (*run)(const Setting&);
};
#define CASE(name) {#name, name}
constexpr Case kCases[] = {CASE(kernel_kernel), CASE(kernel_copy),    CASE(copy_copy),          CASE(memset_kernel), CASE(rows),
                           CASE(per_thread),    CASE(free_async),     CASE(early_event_stream), CASE(early_event),   CASE(host_read),
                           CASE(host_copies),   CASE(host_write),     CASE(managed_read),       CASE(managed_write), CASE(graph_upload),
                           CASE(graph_source),  CASE(graph_branches), CASE(disjoint),           CASE(atomics),       CASE(legacy),
                           CASE(pageable),      CASE(callback),       CASE(pipeline),           CASE(host_part),     CASE(other_part)};

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    mended = std::strcmp(argv[2], "mended") == 0;
    Setting s{};
    CHECK(cudaStreamCreateWithFlags(&s.one, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&s.other, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&s.event));
    CHECK(cudaMalloc(&s.a, kBytes));
    CHECK(cudaMalloc(&s.b, kBytes));
    CHECK(cudaMallocHost(&s.host, kBytes));
    CHECK(cudaMallocHost(&s.results, 4 * sizeof(int)));
    CHECK(cudaMallocManaged(&s.managed, kBytes));
    CHECK(cudaMemset(s.a, 0, kBytes));
    CHECK(cudaMemset(s.b, 0, kBytes));
    std::memset(s.host, 0, kBytes);
    std::memset(s.results, 0, 4 * sizeof(int));
    std::memset(s.managed, 0, kBytes);
    CHECK(cudaDeviceSynchronize());
    for (const Case& each : kCases) {
        if (std::strcmp(each.name, argv[1]) != 0) continue;
        each.run(s);
        CHECK(cudaDeviceSynchronize());
        std::printf("PASSED\n");
        return 0;
    }
    return 2;
}
