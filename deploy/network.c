/* Runs saved networks: one block of device memory, and a list of launches whose parameters are made ready when a network is opened. */
#include "network_plan.h"
#include "status.h"

#include <stdint.h>
#include <stdlib.h>

struct AicfNetwork {
    const AicfNetworkPlan* plan;
    char* block; /* device memory */
    char* params; /* host memory: the steps' Params structs, each at a multiple of PARAMS_ALIGNMENT */
};

enum { PARAMS_ALIGNMENT = 16 };

static size_t align_params(size_t num_bytes) { return (num_bytes + PARAMS_ALIGNMENT - 1) / PARAMS_ALIGNMENT * PARAMS_ALIGNMENT; }

/* Kernels of an architecture such as sm_90a run on that one alone; those of sm_90 on later minor versions too. */
static AicfStatus check_device(const AicfNetworkPlan* plan) {
    int device = 0, major = 0, minor = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (error != cudaSuccess) return make_cuda_error(error);
    if (major == plan->major && (minor == plan->minor || (plan->runs_on_later_minors && minor > plan->minor))) return make_ok();
    return make_status(AICF_UNSUPPORTED, "%s: was compiled for compute capability %d.%d, and this device has %d.%d", plan->name,
                       plan->major, plan->minor, major, minor);
}

static cudaError_t write_constant(char* block, const AicfNetworkConstant* constant) {
    char* values = malloc(constant->count * (size_t)constant->num_bytes);
    if (values == NULL) return cudaErrorMemoryAllocation;
    for (size_t i = 0; i < constant->count; ++i)
        memcpy(values + i * (size_t)constant->num_bytes, constant->element, (size_t)constant->num_bytes);
    const cudaError_t error =
        cudaMemcpy(block + constant->offset, values, constant->count * (size_t)constant->num_bytes, cudaMemcpyHostToDevice);
    free(values);
    return error;
}

static cudaError_t fill_block(const AicfNetworkPlan* plan, char* block) {
    cudaError_t error = cudaMemset(block, 0, plan->num_bytes);
    if (error == cudaSuccess && plan->num_states_bytes > 0)
        error = cudaMemcpy(block + plan->states, plan->weights, plan->num_states_bytes, cudaMemcpyHostToDevice);
    for (int i = 0; i < plan->num_constants && error == cudaSuccess; ++i) error = write_constant(block, &plan->constants[i]);
    return error == cudaSuccess ? cudaDeviceSynchronize() : error;
}

/* Copies the steps' parameters, and puts addresses in their places. */
static void bind_params(AicfNetwork* network) {
    char* params = network->params;
    for (int i = 0; i < network->plan->num_steps; ++i) {
        const AicfNetworkStep* step = &network->plan->steps[i];
        if (step->num_params_bytes > 0) memcpy(params, step->params, step->num_params_bytes);
        for (int j = 0; j < step->num_pointers; ++j) {
            const char* address = network->block + step->pointers[j].offset;
            memcpy(params + step->pointers[j].place, &address, sizeof address);
        }
        params += align_params(step->num_params_bytes);
    }
}

AicfStatus aicf_network_open(const AicfNetworkPlan* plan, AicfNetwork** network) {
    *network = NULL;
    const AicfStatus status = check_device(plan);
    if (status.code != AICF_OK) return status;
    size_t num_params_bytes = 1;
    for (int i = 0; i < plan->num_steps; ++i) num_params_bytes += align_params(plan->steps[i].num_params_bytes);
    AicfNetwork* made = calloc(1, sizeof *made);
    if (made != NULL) made->params = calloc(1, num_params_bytes);
    if (made == NULL || made->params == NULL) {
        free(made);
        return make_status(AICF_INVALID, "%s: no host memory for %zu bytes of parameters", plan->name, num_params_bytes);
    }
    made->plan = plan;
    void* block = NULL;
    cudaError_t error = cudaMalloc(&block, plan->num_bytes > 0 ? plan->num_bytes : 1);
    made->block = block;
    if (error == cudaSuccess) error = fill_block(plan, made->block);
    if (error != cudaSuccess) {
        aicf_network_close(made);
        return make_cuda_error(error);
    }
    bind_params(made);
    *network = made;
    return make_ok();
}

void aicf_network_close(AicfNetwork* network) {
    if (network == NULL) return;
    if (network->block != NULL) cudaFree(network->block);
    free(network->params);
    free(network);
}

AicfStatus aicf_network_run(AicfNetwork* network, struct CUstream_st* stream) {
    AicfStatus status = bind_thread();
    char* params = network->params;
    for (int i = 0; i < network->plan->num_steps && status.code == AICF_OK; ++i) {
        const AicfNetworkStep* step = &network->plan->steps[i];
        for (int j = 0; j < step->num_copies; ++j) {
            const AicfNetworkCopy* copy = &step->copies[j];
            const cudaError_t error = cudaMemcpyAsync(network->block + copy->target, network->block + copy->source, copy->num_bytes,
                                                      cudaMemcpyDeviceToDevice, stream);
            if (error != cudaSuccess) return make_cuda_error(error);
        }
        if (step->launch != NULL) status = step->launch(params, step->has_workspace ? network->block + step->workspace : NULL, stream);
        params += align_params(step->num_params_bytes);
    }
    return status;
}

int aicf_network_num_inputs(const AicfNetworkPlan* plan) { return plan->num_inputs; }

int aicf_network_num_outputs(const AicfNetworkPlan* plan) { return plan->num_outputs; }

const AicfNetworkValue* aicf_network_describe_input(const AicfNetworkPlan* plan, int index) {
    return index >= 0 && index < plan->num_inputs ? &plan->inputs[index] : NULL;
}

const AicfNetworkValue* aicf_network_describe_output(const AicfNetworkPlan* plan, int index) {
    return index >= 0 && index < plan->num_outputs ? &plan->outputs[index] : NULL;
}

void* aicf_network_input(AicfNetwork* network, int index) {
    return index >= 0 && index < network->plan->num_inputs ? network->block + network->plan->input_offsets[index] : NULL;
}

const void* aicf_network_output(const AicfNetwork* network, int index) {
    return index >= 0 && index < network->plan->num_outputs ? network->block + network->plan->output_offsets[index] : NULL;
}
