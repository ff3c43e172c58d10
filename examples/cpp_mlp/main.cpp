// A two-layer perceptron with a softmax behind it, on the AICF kernel library: no Python, no framework, no compiler at run time.
//
//   hidden = gelu_tanh(x w1 + b1)    x [64, 96],      w1 [96, 256]
//   logits = hidden w2 + b2          hidden [64, 256], w2 [256, 32]
//   y      = softmax(logits)         over the last axis, [64, 32]
//
// usage: cpp_mlp EXPECTED, as make_expected.py writes it: by how much a value may be off, and the 64 x 32 values of y, one a line. Exits
// with 1 where one is off by more.
#include <aicf_kernels.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

namespace {

constexpr int kBatch = 64, kInputs = 96, kHidden = 256, kOutputs = 32;

[[noreturn]] void fail(const char* what, const char* why) {
    std::fprintf(stderr, "cpp_mlp: %s: %s\n", what, why);
    std::exit(1);
}

void check(const char* what, cudaError_t error) {
    if (error != cudaSuccess) fail(what, cudaGetErrorString(error));
}

void check(const char* what, const AicfStatus& status) {
    if (status.code != AICF_OK) fail(what, status.reason);
}

// Values that make_expected.py makes too: multiples of 2^-8 in [-1, 1) times a scale, from a linear congruential generator.
std::vector<float> make_values(std::uint32_t seed, int count, float scale) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (auto& value : values) {
        seed = seed * 1664525u + 1013904223u;
        value = (static_cast<float>(seed >> 23) / 256.0f - 1.0f) * scale;
    }
    return values;
}

float* upload(const std::vector<float>& values) {
    void* address = nullptr;
    check("cudaMalloc", cudaMalloc(&address, values.size() * sizeof(float)));
    check("cudaMemcpy", cudaMemcpy(address, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice));
    return static_cast<float*>(address);
}

float* allocate(int count) { return upload(std::vector<float>(static_cast<std::size_t>(count), NAN)); }

GemmBiasActParams make_layer(const float* x, const float* w, const float* bias, float* y, int n, int k, int act) {
    GemmBiasActParams params = {};
    params.a = x;
    params.b = w;
    params.bias = bias;
    params.y = y;
    params.m = kBatch;
    params.n = n;
    params.k = k;
    params.lda = k;
    params.ldb = params.ldy = params.ldz = n;
    params.act = act;
    params.dtype = AICF_DTYPE_FLOAT32;
    params.b_layout = AICF_B_KN;
    return params;
}

void describe(const char* what, const AicfChoice& choice) {
    const char* const how[] = {"", "measured", "surveyed", "measured nearby", "by estimate", "fallback"};  // AICF_BY_...
    std::printf("%-8s %s (%s)\n", what, choice.kernel, how[choice.how]);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) fail("usage", "cpp_mlp EXPECTED");
    std::ifstream file(argv[1]);
    std::vector<double> expected;
    for (double value = 0; file >> value;) expected.push_back(value);
    if (expected.size() != static_cast<std::size_t>(1 + kBatch * kOutputs)) fail(argv[1], "not the expected number of values");
    const double tolerance = expected.front();
    expected.erase(expected.begin());

    const float* const x = upload(make_values(1, kBatch * kInputs, 1.0f));
    const float* const w1 = upload(make_values(2, kInputs * kHidden, 0.125f));
    const float* const b1 = upload(make_values(3, kHidden, 0.5f));
    const float* const w2 = upload(make_values(4, kHidden * kOutputs, 0.125f));
    const float* const b2 = upload(make_values(5, kOutputs, 0.5f));
    float* const hidden = allocate(kBatch * kHidden);
    float* const logits = allocate(kBatch * kOutputs);
    float* const y = allocate(kBatch * kOutputs);

    const auto layer1 = make_layer(x, w1, b1, hidden, kHidden, kInputs, AICF_ACT_GELU_TANH);
    const auto layer2 = make_layer(hidden, w2, b2, logits, kOutputs, kHidden, AICF_ACT_NONE);
    SoftmaxParams output = {};
    output.x = logits;
    output.y = y;
    output.rows = kBatch;
    output.columns = output.ldx = output.ldy = kOutputs;

    const AicfPreferences preferences = {1, 0};  // the same bits on every run, and no workspace
    AicfChoice choice = {};
    check("layer 1", aicf_gemm_bias_act_choose(&layer1, &preferences, &choice));
    describe("layer 1", choice);
    check("layer 2", aicf_gemm_bias_act_choose(&layer2, &preferences, &choice));
    describe("layer 2", choice);
    check("softmax", aicf_softmax_choose(&output, &preferences, &choice));
    describe("softmax", choice);

    // The whole network is captured once and replayed: a launch allocates nothing and waits for nothing.
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t network = nullptr;
    check("cudaStreamCreate", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    check("layer 1", aicf_gemm_bias_act(&layer1, &preferences, nullptr, 0, stream));
    check("layer 2", aicf_gemm_bias_act(&layer2, &preferences, nullptr, 0, stream));
    check("softmax", aicf_softmax(&output, &preferences, nullptr, 0, stream));
    check("cudaStreamEndCapture", cudaStreamEndCapture(stream, &graph));
    check("cudaGraphInstantiate", cudaGraphInstantiate(&network, graph, 0));
    for (int i = 0; i < 2; ++i) check("cudaGraphLaunch", cudaGraphLaunch(network, stream));
    check("cudaStreamSynchronize", cudaStreamSynchronize(stream));

    std::vector<float> result(expected.size());
    check("cudaMemcpy", cudaMemcpy(result.data(), y, result.size() * sizeof(float), cudaMemcpyDeviceToHost));
    double worst = 0.0;
    for (std::size_t i = 0; i < result.size(); ++i) {
        const double error = std::fabs(static_cast<double>(result[i]) - expected[i]);
        if (!(error <= tolerance)) {  // NaN fails
            std::fprintf(stderr, "cpp_mlp: y[%zu, %zu] = %.9g, expected %.9g\n", i / kOutputs, i % kOutputs, static_cast<double>(result[i]),
                         expected[i]);
            return 1;
        }
        worst = std::max(worst, error);
    }
    std::printf("%zu values, the worst off by %.2g of %.2g allowed\n", result.size(), worst, tolerance);
    return 0;
}
