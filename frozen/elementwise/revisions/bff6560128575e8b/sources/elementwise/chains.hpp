// Generated from the chains' expressions; change them there. What an element of each chain is made of.
#pragma once

#include <cstdint>

#include "elementwise/chain.cuh"
#include "elementwise/functions.cuh"

namespace aicf::elementwise {

// add(a: T, b: T) -> y: T
//     y = a + b
template <>
struct Chain<0> {
    static constexpr const char* kName = "add";
    static constexpr int kCode = 0;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_a = in[0];
        [[maybe_unused]] const float v_b = in[1];
        [[maybe_unused]] const float v_y = (v_a + v_b);
        out[0] = v_y;
    }
};

// mul(a: T, b: T) -> y: T
//     y = a * b
template <>
struct Chain<1> {
    static constexpr const char* kName = "mul";
    static constexpr int kCode = 1;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_a = in[0];
        [[maybe_unused]] const float v_b = in[1];
        [[maybe_unused]] const float v_y = (v_a * v_b);
        out[0] = v_y;
    }
};

// add_bias(x: T, b: T[columns]) -> y: T
//     y = x + b
template <>
struct Chain<2> {
    static constexpr const char* kName = "add_bias";
    static constexpr int kCode = 2;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kColumns}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_x = in[0];
        [[maybe_unused]] const float v_b = in[1];
        [[maybe_unused]] const float v_y = (v_x + v_b);
        out[0] = v_y;
    }
};

// axpby(x: T, y: T, a: f32[], b: f32[]) -> z: T
//     z = a * x + b * y
template <>
struct Chain<3> {
    static constexpr const char* kName = "axpby";
    static constexpr int kCode = 3;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kFull}, {Type::kFloat32, Extent::kOne}, {Type::kFloat32, Extent::kOne}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_x = in[0];
        [[maybe_unused]] const float v_y = in[1];
        [[maybe_unused]] const float v_a = in[2];
        [[maybe_unused]] const float v_b = in[3];
        [[maybe_unused]] const float v_z = ((v_a * v_x) + (v_b * v_y));
        out[0] = v_z;
    }
};

// scale(x: T, a: f32[]) -> y: T
//     y = a * x
template <>
struct Chain<4> {
    static constexpr const char* kName = "scale";
    static constexpr int kCode = 4;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kFloat32, Extent::kOne}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_x = in[0];
        [[maybe_unused]] const float v_a = in[1];
        [[maybe_unused]] const float v_y = (v_a * v_x);
        out[0] = v_y;
    }
};

// relu(x: T) -> y: T
//     y = relu(x)
template <>
struct Chain<5> {
    static constexpr const char* kName = "relu";
    static constexpr int kCode = 5;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_x = in[0];
        [[maybe_unused]] const float v_y = relu(v_x);
        out[0] = v_y;
    }
};

// relu_grad(dy: T, x: T) -> dx: T
//     dx = dy if x > 0 else 0
template <>
struct Chain<6> {
    static constexpr const char* kName = "relu_grad";
    static constexpr int kCode = 6;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_dy = in[0];
        [[maybe_unused]] const float v_x = in[1];
        [[maybe_unused]] const float v_dx = ((v_x > 0x0.0p+0f) ? v_dy : 0x0.0p+0f);
        out[0] = v_dx;
    }
};

// gelu_bias(x: T, b: T[columns]) -> y: T
//     y = gelu(x + b)
template <>
struct Chain<7> {
    static constexpr const char* kName = "gelu_bias";
    static constexpr int kCode = 7;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kColumns}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_x = in[0];
        [[maybe_unused]] const float v_b = in[1];
        [[maybe_unused]] const float v_y = gelu_erf((v_x + v_b));
        out[0] = v_y;
    }
};

// gelu_grad(dy: T, x: T) -> dx: T
//     dx = dy * gelu_grad(x)
template <>
struct Chain<8> {
    static constexpr const char* kName = "gelu_grad";
    static constexpr int kCode = 8;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_dy = in[0];
        [[maybe_unused]] const float v_x = in[1];
        [[maybe_unused]] const float v_dx = (v_dy * find_gelu_slope(v_x));
        out[0] = v_dx;
    }
};

// gelu_tanh(x: T) -> y: T
//     y = gelu_tanh(x)
template <>
struct Chain<9> {
    static constexpr const char* kName = "gelu_tanh";
    static constexpr int kCode = 9;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_x = in[0];
        [[maybe_unused]] const float v_y = gelu_tanh(v_x);
        out[0] = v_y;
    }
};

// gelu_tanh_grad(dy: T, x: T) -> dx: T
//     dx = dy * gelu_tanh_grad(x)
template <>
struct Chain<10> {
    static constexpr const char* kName = "gelu_tanh_grad";
    static constexpr int kCode = 10;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_dy = in[0];
        [[maybe_unused]] const float v_x = in[1];
        [[maybe_unused]] const float v_dx = (v_dy * find_gelu_tanh_slope(v_x));
        out[0] = v_dx;
    }
};

// silu(x: T) -> y: T
//     y = silu(x)
template <>
struct Chain<11> {
    static constexpr const char* kName = "silu";
    static constexpr int kCode = 11;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_x = in[0];
        [[maybe_unused]] const float v_y = silu(v_x);
        out[0] = v_y;
    }
};

// silu_grad(dy: T, x: T) -> dx: T
//     dx = dy * silu_grad(x)
template <>
struct Chain<12> {
    static constexpr const char* kName = "silu_grad";
    static constexpr int kCode = 12;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_dy = in[0];
        [[maybe_unused]] const float v_x = in[1];
        [[maybe_unused]] const float v_dx = (v_dy * find_silu_slope(v_x));
        out[0] = v_dx;
    }
};

// tanh(x: T) -> y: T
//     y = tanh(x)
template <>
struct Chain<13> {
    static constexpr const char* kName = "tanh";
    static constexpr int kCode = 13;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_x = in[0];
        [[maybe_unused]] const float v_y = tanhf(v_x);
        out[0] = v_y;
    }
};

// tanh_grad(dy: T, y: T) -> dx: T
//     dx = dy * tanh_grad_from_y(y)
template <>
struct Chain<14> {
    static constexpr const char* kName = "tanh_grad";
    static constexpr int kCode = 14;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_dy = in[0];
        [[maybe_unused]] const float v_y = in[1];
        [[maybe_unused]] const float v_dx = (v_dy * fmaf(-v_y, v_y, 1.0f));
        out[0] = v_dx;
    }
};

// sigmoid(x: T) -> y: T
//     y = sigmoid(x)
template <>
struct Chain<15> {
    static constexpr const char* kName = "sigmoid";
    static constexpr int kCode = 15;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_x = in[0];
        [[maybe_unused]] const float v_y = sigmoid(v_x);
        out[0] = v_y;
    }
};

// swiglu(a: T, b: T) -> y: T
//     y = swiglu(a, b)
template <>
struct Chain<16> {
    static constexpr const char* kName = "swiglu";
    static constexpr int kCode = 16;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_a = in[0];
        [[maybe_unused]] const float v_b = in[1];
        [[maybe_unused]] const float v_y = (silu(v_a) * v_b);
        out[0] = v_y;
    }
};

// swiglu_grad(dy: T, a: T, b: T) -> da: T, db: T
//     da = dy * b * silu_grad(a)
//     db = dy * silu(a)
template <>
struct Chain<17> {
    static constexpr const char* kName = "swiglu_grad";
    static constexpr int kCode = 17;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_dy = in[0];
        [[maybe_unused]] const float v_a = in[1];
        [[maybe_unused]] const float v_b = in[2];
        [[maybe_unused]] const float v_da = ((v_dy * v_b) * find_silu_slope(v_a));
        [[maybe_unused]] const float v_db = (v_dy * silu(v_a));
        out[0] = v_da;
        out[1] = v_db;
    }
};

// geglu(a: T, b: T) -> y: T
//     y = geglu(a, b)
template <>
struct Chain<18> {
    static constexpr const char* kName = "geglu";
    static constexpr int kCode = 18;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_a = in[0];
        [[maybe_unused]] const float v_b = in[1];
        [[maybe_unused]] const float v_y = (gelu_erf(v_a) * v_b);
        out[0] = v_y;
    }
};

// dropout(x: T, p: f32[]) -> y: T
//     y = dropout(x, p)
template <>
struct Chain<19> {
    static constexpr const char* kName = "dropout";
    static constexpr int kCode = 19;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kFloat32, Extent::kOne}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 1;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_x = in[0];
        [[maybe_unused]] const float v_p = in[1];
        [[maybe_unused]] const float v_y = (is_kept(words[0], v_p) ? (v_x * __fdiv_rn(0x1.0000000000000p+0f, (0x1.0000000000000p+0f - v_p))) : 0x0.0p+0f);
        out[0] = v_y;
    }
};

// bias_dropout_residual(x: T, b: T[columns], r: T, p: f32[]) -> y: T
//     y = r + dropout(x + b, p)
template <>
struct Chain<20> {
    static constexpr const char* kName = "bias_dropout_residual";
    static constexpr int kCode = 20;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kColumns}, {Type::kGeneric, Extent::kFull}, {Type::kFloat32, Extent::kOne}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 1;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_x = in[0];
        [[maybe_unused]] const float v_b = in[1];
        [[maybe_unused]] const float v_r = in[2];
        [[maybe_unused]] const float v_p = in[3];
        [[maybe_unused]] const float v_y = (v_r + (is_kept(words[0], v_p) ? ((v_x + v_b) * __fdiv_rn(0x1.0000000000000p+0f, (0x1.0000000000000p+0f - v_p))) : 0x0.0p+0f));
        out[0] = v_y;
    }
};

// to_float32(x: T) -> y: f32
//     y = x
template <>
struct Chain<21> {
    static constexpr const char* kName = "to_float32";
    static constexpr int kCode = 21;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kFloat32, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_x = in[0];
        [[maybe_unused]] const float v_y = v_x;
        out[0] = v_y;
    }
};

// to_bfloat16(x: T) -> y: bf16
//     y = x
template <>
struct Chain<22> {
    static constexpr const char* kName = "to_bfloat16";
    static constexpr int kCode = 22;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kBfloat16, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_x = in[0];
        [[maybe_unused]] const float v_y = v_x;
        out[0] = v_y;
    }
};

// to_float16(x: T) -> y: f16
//     y = x
template <>
struct Chain<23> {
    static constexpr const char* kName = "to_float16";
    static constexpr int kCode = 23;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kFloat16, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_x = in[0];
        [[maybe_unused]] const float v_y = v_x;
        out[0] = v_y;
    }
};

// where(a: T, b: T, m: bool) -> y: T
//     y = a if m else b
template <>
struct Chain<24> {
    static constexpr const char* kName = "where";
    static constexpr int kCode = 24;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kFull}, {Type::kBool, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_a = in[0];
        [[maybe_unused]] const float v_b = in[1];
        [[maybe_unused]] const bool v_m = in[2] != 0.0f;
        [[maybe_unused]] const float v_y = (v_m ? v_a : v_b);
        out[0] = v_y;
    }
};

// greater(a: T, b: T) -> m: bool
//     m = a > b
template <>
struct Chain<25> {
    static constexpr const char* kName = "greater";
    static constexpr int kCode = 25;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kGeneric, Extent::kFull}};
    static constexpr Operand kOutputs[] = {{Type::kBool, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_a = in[0];
        [[maybe_unused]] const float v_b = in[1];
        [[maybe_unused]] const bool v_m = (v_a > v_b);
        out[0] = v_m ? 1.0f : 0.0f;
    }
};

// scale_rows(x: T, a: f32[rows]) -> y: T
//     y = x * a
template <>
struct Chain<26> {
    static constexpr const char* kName = "scale_rows";
    static constexpr int kCode = 26;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kFloat32, Extent::kRows}};
    static constexpr Operand kOutputs[] = {{Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_x = in[0];
        [[maybe_unused]] const float v_a = in[1];
        [[maybe_unused]] const float v_y = (v_x * v_a);
        out[0] = v_y;
    }
};

// sgd(g: T, p: f32, m: f32, lr: f32[], momentum: f32[]) -> p2: f32, m2: f32, copy: T
//     m2 = momentum * m + g
//     p2 = p - lr * m2
//     copy = p2
template <>
struct Chain<27> {
    static constexpr const char* kName = "sgd";
    static constexpr int kCode = 27;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kFloat32, Extent::kFull}, {Type::kFloat32, Extent::kFull}, {Type::kFloat32, Extent::kOne}, {Type::kFloat32, Extent::kOne}};
    static constexpr Operand kOutputs[] = {{Type::kFloat32, Extent::kFull}, {Type::kFloat32, Extent::kFull}, {Type::kGeneric, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_g = in[0];
        [[maybe_unused]] const float v_p = in[1];
        [[maybe_unused]] const float v_m = in[2];
        [[maybe_unused]] const float v_lr = in[3];
        [[maybe_unused]] const float v_momentum = in[4];
        [[maybe_unused]] const float v_m2 = ((v_momentum * v_m) + v_g);
        [[maybe_unused]] const float v_p2 = (v_p - (v_lr * v_m2));
        [[maybe_unused]] const float v_copy = v_p2;
        out[0] = v_p2;
        out[1] = v_m2;
        out[2] = v_copy;
    }
};

// lion(g: T, p: f32, m: f32, lr: f32[], beta1: f32[], beta2: f32[], decay: f32[]) -> p2: f32, m2: f32
//     p2 = p - lr * (sign(beta1 * m + (1 - beta1) * g) + decay * p)
//     m2 = beta2 * m + (1 - beta2) * g
template <>
struct Chain<28> {
    static constexpr const char* kName = "lion";
    static constexpr int kCode = 28;
    static constexpr Operand kInputs[] = {{Type::kGeneric, Extent::kFull}, {Type::kFloat32, Extent::kFull}, {Type::kFloat32, Extent::kFull}, {Type::kFloat32, Extent::kOne}, {Type::kFloat32, Extent::kOne}, {Type::kFloat32, Extent::kOne}, {Type::kFloat32, Extent::kOne}};
    static constexpr Operand kOutputs[] = {{Type::kFloat32, Extent::kFull}, {Type::kFloat32, Extent::kFull}};
    static constexpr int kNumDraws = 0;

    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {
        [[maybe_unused]] const float v_g = in[0];
        [[maybe_unused]] const float v_p = in[1];
        [[maybe_unused]] const float v_m = in[2];
        [[maybe_unused]] const float v_lr = in[3];
        [[maybe_unused]] const float v_beta1 = in[4];
        [[maybe_unused]] const float v_beta2 = in[5];
        [[maybe_unused]] const float v_decay = in[6];
        [[maybe_unused]] const float v_p2 = (v_p - (v_lr * (find_sign(((v_beta1 * v_m) + ((0x1.0000000000000p+0f - v_beta1) * v_g))) + (v_decay * v_p))));
        [[maybe_unused]] const float v_m2 = ((v_beta2 * v_m) + ((0x1.0000000000000p+0f - v_beta2) * v_g));
        out[0] = v_p2;
        out[1] = v_m2;
    }
};

}  // namespace aicf::elementwise
