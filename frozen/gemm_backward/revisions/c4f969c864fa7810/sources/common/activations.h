/* Activation codes of the C ABI, and their names in the same order. */
#ifndef AICF_OPS_COMMON_ACTIVATIONS_H_
#define AICF_OPS_COMMON_ACTIVATIONS_H_

enum {
    AICF_ACT_NONE = 0,
    AICF_ACT_RELU = 1,
    AICF_ACT_GELU_TANH = 2, /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    AICF_ACT_GELU_ERF = 3,  /* 0.5 x (1 + erf(x / sqrt 2)) */
    AICF_ACT_SILU = 4,      /* x / (1 + e^-x) */
    AICF_ACT_COUNT = 5
};

#define AICF_ACT_NAMES {"none", "relu", "gelu_tanh", "gelu_erf", "silu"}

#endif /* AICF_OPS_COMMON_ACTIVATIONS_H_ */
