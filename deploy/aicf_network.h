/* Networks that were compiled and saved by AICF, linked with their kernels and weights: one call runs one. No Python, no compiler.
 *
 *   AicfNetwork* network;
 *   aicf_network_open(&aicf_network_mlp, &network);              // device memory, and the weights in it
 *   cudaMemcpy(aicf_network_input(network, 0), x, ...);          // the shapes stand in aicf_network_mlp.h
 *   aicf_network_run(network, stream);
 *   cudaMemcpy(y, aicf_network_output(network, 0), ...);
 *   aicf_network_close(network);
 *
 * A run allocates nothing and waits for nothing, and can be captured into a CUDA graph. A network has one set of buffers: its runs must
 * come one after the other; open it again for a second one at the same time. Link with -laicf_kernels -lcudart -lm. */
#ifndef AICF_NETWORK_H_
#define AICF_NETWORK_H_

#include "aicf_kernels.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A network as it was saved; each has a header of its own that declares it. */
typedef struct AicfNetworkPlan AicfNetworkPlan;
/* A network with memory on the device that was current when it was opened. */
typedef struct AicfNetwork AicfNetwork;

/* What a caller writes or reads: `dtype` is a name such as "float32", `shape` has `rank` extents, the last one is contiguous. */
typedef struct AicfNetworkValue {
    const char* name;
    const char* dtype;
    int rank;
    const int64_t* shape;
    size_t num_bytes;
} AicfNetworkValue;

AicfStatus aicf_network_open(const AicfNetworkPlan* plan, AicfNetwork** network);
void aicf_network_close(AicfNetwork* network);

/* Queues a run on a stream. */
AicfStatus aicf_network_run(AicfNetwork* network, struct CUstream_st* stream);

int aicf_network_num_inputs(const AicfNetworkPlan* plan);
int aicf_network_num_outputs(const AicfNetworkPlan* plan);
/* NULL where there is no such input or output. */
const AicfNetworkValue* aicf_network_describe_input(const AicfNetworkPlan* plan, int index);
const AicfNetworkValue* aicf_network_describe_output(const AicfNetworkPlan* plan, int index);

/* Device addresses; NULL where there is no such input or output. What is written to an input stays there for later runs. */
void* aicf_network_input(AicfNetwork* network, int index);
const void* aicf_network_output(const AicfNetwork* network, int index);

#ifdef __cplusplus
}
#endif
#endif /* AICF_NETWORK_H_ */
