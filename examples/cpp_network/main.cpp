// A network that AICF compiled in Python, run without Python: its launches, kernels and weights are linked into this program.
//
// usage: cpp_network X Y, the files that make_network.py writes. Runs the network on X launch by launch and as a CUDA graph, and exits with
// 1 where a bit of the output is not that of Y.
#include <aicf_network_mlp.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

namespace {

[[noreturn]] void fail(const char* what, const char* why) {
    std::fprintf(stderr, "cpp_network: %s: %s\n", what, why);
    std::exit(1);
}

void check(const char* what, cudaError_t error) {
    if (error != cudaSuccess) fail(what, cudaGetErrorString(error));
}

void check(const char* what, const AicfStatus& status) {
    if (status.code != AICF_OK) fail(what, status.reason);
}

std::vector<char> read_file(const char* path, const AicfNetworkValue& value) {
    std::ifstream file(path, std::ios::binary);
    std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (bytes.size() != value.num_bytes) fail(path, "does not have the bytes of the network's value");
    return bytes;
}

// Puts x in, runs the network by `run`, and compares what comes out.
template <typename Run>
void compare(const char* how, AicfNetwork* network, const std::vector<char>& x, const std::vector<char>& expected, const Run& run) {
    check("cudaMemcpy", cudaMemcpy(aicf_network_input(network, 0), x.data(), x.size(), cudaMemcpyHostToDevice));
    run();
    std::vector<char> y(expected.size());
    check("cudaMemcpy", cudaMemcpy(y.data(), aicf_network_output(network, 0), y.size(), cudaMemcpyDeviceToHost));
    for (std::size_t i = 0; i < y.size(); i += sizeof(float)) {
        if (std::memcmp(&y[i], &expected[i], sizeof(float)) == 0) continue;
        float found = 0.0f, wanted = 0.0f;
        std::memcpy(&found, &y[i], sizeof found);
        std::memcpy(&wanted, &expected[i], sizeof wanted);
        std::fprintf(stderr, "cpp_network: %s: value %zu is %.9g, expected %.9g\n", how, i / sizeof(float), found, wanted);
        std::exit(1);
    }
    std::printf("%s: %zu values, the same bits\n", how, y.size() / sizeof(float));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) fail("usage", "cpp_network X Y");
    const auto x = read_file(argv[1], *aicf_network_describe_input(&aicf_network_mlp, 0));
    const auto y = read_file(argv[2], *aicf_network_describe_output(&aicf_network_mlp, 0));

    AicfNetwork* network = nullptr;
    check("aicf_network_open", aicf_network_open(&aicf_network_mlp, &network));
    cudaStream_t stream = nullptr;
    check("cudaStreamCreate", cudaStreamCreate(&stream));
    compare("launch by launch", network, x, y, [&] {
        check("aicf_network_run", aicf_network_run(network, stream));
        check("cudaStreamSynchronize", cudaStreamSynchronize(stream));
    });

    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    check("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    check("aicf_network_run", aicf_network_run(network, stream));
    check("cudaStreamEndCapture", cudaStreamEndCapture(stream, &graph));
    check("cudaGraphInstantiate", cudaGraphInstantiate(&replay, graph, 0));
    compare("as one graph", network, x, y, [&] {
        check("cudaGraphLaunch", cudaGraphLaunch(replay, stream));
        check("cudaStreamSynchronize", cudaStreamSynchronize(stream));
    });
    check("cudaGraphExecDestroy", cudaGraphExecDestroy(replay));
    check("cudaGraphDestroy", cudaGraphDestroy(graph));
    check("cudaStreamDestroy", cudaStreamDestroy(stream));
    aicf_network_close(network);
    return 0;
}
