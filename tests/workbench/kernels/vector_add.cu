// c = a + b, an element a thread.
extern "C" __global__ void vector_add(float* c, float* a, float* b, int n) {
    const int i = blockIdx.x * block_size_x + threadIdx.x;
#if is_guarded
    if (i < n)
#endif
        c[i] = a[i] + b[i];
}
