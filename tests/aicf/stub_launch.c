/* A launch function that does on the host what a kernel would do: y = x for n floats; n = 0 does nothing, n < 0 refuses. */
#include <stdint.h>
#include <string.h>

typedef struct {
    int32_t code, cuda_code;
    char reason[248];
} Status;
typedef struct {
    const float* x;
    float* y;
    int64_t n;
    void* workspace; /* what launch was given */
} Params;

static Params last;

Status launch(const Params* p, void* workspace, void* stream) {
    Status status;
    memset(&status, 0, sizeof status);
    if (p->n < 0) {
        status.code = 1;
        strcpy(status.reason, "n = -1: too few");
        return status;
    }
    if (p->n > 0) memcpy(p->y, p->x, (size_t)p->n * sizeof(float));
    last = *p;
    last.workspace = workspace;
    (void)stream;
    return status;
}

const Params* last_params(void) { return &last; }
