/* What a saved network is to network.c: tables that deploy/networks.py writes. No part of the interface. */
#ifndef AICF_DEPLOY_NETWORK_PLAN_H_
#define AICF_DEPLOY_NETWORK_PLAN_H_

#include "aicf_network.h"

/* Offsets are of the one block of memory that a network has. */
typedef struct AicfNetworkCopy {
    size_t target, source, num_bytes;
} AicfNetworkCopy;

/* An address in a Params struct: where it stands there, and what it is the address of. */
typedef struct AicfNetworkPointer {
    size_t place, offset;
} AicfNetworkPointer;

/* Copies, and behind them a kernel's launch, NULL where there is none. The bytes of `params` are whole but for the addresses. */
typedef struct AicfNetworkStep {
    const char* name;
    int num_copies, num_pointers;
    const AicfNetworkCopy* copies;
    AicfStatus (*launch)(const void* params, void* workspace, struct CUstream_st* stream);
    const unsigned char* params;
    size_t num_params_bytes;
    const AicfNetworkPointer* pointers;
    int has_workspace;
    size_t workspace;
} AicfNetworkStep;

/* `count` elements of `num_bytes` bytes each, all the same. */
typedef struct AicfNetworkConstant {
    size_t offset, count;
    int num_bytes;
    unsigned char element[8];
} AicfNetworkConstant;

struct AicfNetworkPlan {
    const char* name;
    int major, minor;         /* the compute capability that the kernels are for */
    int runs_on_later_minors; /* not 0: on later minor versions too */
    size_t num_bytes;         /* of the block */
    size_t states, num_states_bytes;
    const unsigned char* weights; /* what the states are at first */
    int num_inputs, num_outputs, num_constants, num_steps;
    const AicfNetworkValue* inputs;
    const size_t* input_offsets;
    const AicfNetworkValue* outputs;
    const size_t* output_offsets;
    const AicfNetworkConstant* constants;
    const AicfNetworkStep* steps;
};

#endif /* AICF_DEPLOY_NETWORK_PLAN_H_ */
