/* The dispatcher of the AICF kernel library. Generated; do not edit. docs/frozen.md says how a kernel is chosen. */
#include "aicf_kernels.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAX_SIZES = 8, MAX_ATTRIBUTES = 8, MAX_UNITS = 8, MAX_READS = 8, NUM_AXES = 4, NUM_GROUP_AXES = 3, NUM_SURVEY_AXES = 2, NUM_TERMS = 5 };

/* A call as decisions see it: sizes in the order of their names, attributes by their place among the choices, its class on each axis (-1:
 * none), which kernels serve it (a bit each), the blocks that each would use (0: not known), and its least work. */
typedef struct Query {
    int64_t sizes[MAX_SIZES];
    int attributes[MAX_ATTRIBUTES];
    int classes[NUM_AXES];
    uint64_t legal;
    int64_t tiles[64];
    double flops, bytes;
    int unit; /* of the flops, -1: not known */
    int num_reads;
    double reads[MAX_READS];        /* bytes of each input */
    unsigned read_sizes[MAX_READS]; /* the sizes that its shape names, a bit each */
} Query;

typedef struct Facts {
    const char* name;
    const char* arch;
    int deterministic, capture_safe, needs_workspace;
} Facts;

/* A kernel's share in estimates: blocks that the chip runs at once, its tile's edge along each size (0: none), and the chip's peak rates
 * (0: not known), of the flops by unit. */
typedef struct Rates {
    int64_t slots;
    int64_t edges[MAX_SIZES];
    double bytes_per_s, l2_bytes_per_s;
    double flops_per_s[MAX_UNITS];
} Rates;

typedef struct Median {
    int kernel;
    double median_us;
    int group[NUM_GROUP_AXES];
    int region;
    int attributes[MAX_ATTRIBUTES];
    int64_t sizes[MAX_SIZES];
    double log2_sizes[MAX_SIZES];
} Median;

/* A problem of a survey: the group that it is in, and by kernel how far the model of the kernel's time was off, as a share (NAN: not timed). */
typedef struct Point {
    int group[NUM_SURVEY_AXES];
    double log2_sizes[MAX_SIZES];
    const double* errors;
} Point;

/* The survey of an architecture: its kernels, and those that it knows, a bit each; by kernel the weights of the model's terms. */
typedef struct Survey {
    uint64_t of_arch, known;
    const double (*weights)[NUM_TERMS];
    const Point* points;
    int num_points;
} Survey;

typedef struct Winner {
    int kernel;
    int classes[NUM_AXES];
} Winner;

/* What is known of an op. Kernels are in the order of their names; medians are sorted by problem, time, kernel; lists may be empty, then
 * they hold one row with kernel -1. */
typedef struct Tables {
    const char* op;
    const Rates* rates;
    const Median* medians;
    const Winner* winners;
    const Winner* fallbacks;
    const Survey* surveys;
    int num_sizes, num_attributes, num_medians, num_winners, num_fallbacks, num_surveys, num_kernels;
} Tables;

typedef struct Decision {
    int kernel; /* -1: none */
    int how;
    double predicted_us;
} Decision;

static AicfStatus make_status(int code, const char* format, ...) {
    AicfStatus status;
    memset(&status, 0, sizeof status);
    status.code = code;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(status.reason, sizeof status.reason, format, arguments);
    va_end(arguments);
    return status;
}

static AicfStatus make_ok(void) {
    AicfStatus status;
    memset(&status, 0, sizeof status);
    return status;
}

/* Products stay at the largest number that fits, which is beyond every limit. */
static inline int64_t multiply(int64_t left, int64_t right) {
    int64_t product;
    return __builtin_mul_overflow(left, right, &product) ? INT64_MAX : product;
}

static inline int64_t divide_up(int64_t size, int64_t step) { return size / step + (size % step != 0); }

static inline bool is_legal(const Query* q, int kernel) { return kernel >= 0 && (q->legal >> kernel & 1) != 0; }

static bool has_sizes(const Tables* t, const Query* q, const Median* m) {
    for (int i = 0; i < t->num_sizes; ++i) {
        if (m->sizes[i] != q->sizes[i]) return false;
    }
    for (int i = 0; i < t->num_attributes; ++i) {
        if (m->attributes[i] != q->attributes[i]) return false;
    }
    return true;
}

static bool decide_by_measurement(const Tables* t, const Query* q, Decision* d) {
    for (int i = 0; i < t->num_medians; ++i) {
        const Median* m = &t->medians[i];
        if (!is_legal(q, m->kernel) || !has_sizes(t, q, m)) continue;
        const bool is_better =
            d->kernel < 0 || m->median_us < d->predicted_us || (m->median_us == d->predicted_us && m->kernel < d->kernel);
        if (is_better) *d = (Decision){m->kernel, AICF_BY_MEASUREMENT, m->median_us};
    }
    return d->kernel >= 0;
}

/* The bytes that a kernel's tiles read: of an input once for every step along each edge that its shape does not name. */
static double find_traffic(const Tables* t, const Query* q, int kernel) {
    const Rates* r = &t->rates[kernel];
    double total = 0.0;
    for (int i = 0; i < q->num_reads; ++i) {
        double bytes = q->reads[i];
        for (int size = 0; size < t->num_sizes; ++size) {
            if (r->edges[size] > 0 && (q->read_sizes[i] >> size & 1) == 0) bytes *= (double)divide_up(q->sizes[size], r->edges[size]);
        }
        total += bytes;
    }
    return total;
}

/* The model's time: a launch, the waves of blocks, their arithmetic with what tiles pad, the least traffic of memory, what tiles read. */
static double model_us(const Tables* t, const Query* q, int kernel, const double* weights) {
    const Rates* r = &t->rates[kernel];
    double blocks = 1.0, share = 1.0;
    for (int i = 0; i < t->num_sizes; ++i) {
        if (r->edges[i] <= 0) continue;
        share = share * ((double)r->edges[i] / (double)q->sizes[i]);
        blocks = blocks * (double)divide_up(q->sizes[i], r->edges[i]);
    }
    const double waves = ceil(blocks / (double)r->slots);
    const double rate = q->unit < 0 ? 0.0 : r->flops_per_s[q->unit];
    const double compute = rate > 0.0 ? q->flops * share / rate * (waves * (double)r->slots) * 1e6 : 0.0;
    const double memory = q->bytes / r->bytes_per_s * 1e6;
    const double tiles = r->l2_bytes_per_s > 0.0 ? find_traffic(t, q, kernel) / r->l2_bytes_per_s * 1e6 : 0.0;
    return weights[0] + waves * weights[1] + compute * weights[2] + memory * weights[3] + tiles * weights[4];
}

/* A survey is asked where it knows all winners of the call's bucket: none is passed over for want of times. */
static const Survey* find_survey(const Tables* t, const Query* q) {
    for (int i = 0; i < t->num_surveys; ++i) {
        const Survey* s = &t->surveys[i];
        if ((q->legal & s->known) == 0) continue;
        for (int j = 0; j < t->num_winners; ++j) {
            const Winner* w = &t->winners[j];
            if (w->kernel < 0 || (s->of_arch >> w->kernel & 1) == 0 || (s->known >> w->kernel & 1) != 0) continue;
            if (memcmp(w->classes, q->classes, sizeof w->classes) == 0) return NULL;
        }
        return s;
    }
    return NULL;
}

/* Problems of the call's group set the model right, each with a say that falls with the square of its squared distance. */
static bool decide_by_survey(const Tables* t, const Query* q, Decision* d) {
    const Survey* s = find_survey(t, q);
    if (s == NULL) return false;
    double off[64] = {0.0}, says[64] = {0.0}, logs[MAX_SIZES];
    for (int i = 0; i < t->num_sizes; ++i) logs[i] = log2((double)q->sizes[i]);
    for (int i = 0; i < s->num_points; ++i) {
        const Point* p = &s->points[i];
        if (p->group[0] != q->classes[0] || p->group[1] != q->classes[1]) continue;
        double distance = 0.3;
        for (int j = 0; j < t->num_sizes; ++j) {
            const double difference = p->log2_sizes[j] - logs[j];
            distance = distance + difference * difference;
        }
        const double say = 1.0 / (distance * distance);
        for (int k = 0; k < t->num_kernels; ++k) {
            if (isnan(p->errors[k])) continue;
            off[k] = off[k] + say * p->errors[k];
            says[k] = says[k] + say;
        }
    }
    for (int k = 0; k < t->num_kernels; ++k) {
        if ((s->known >> k & 1) == 0 || !is_legal(q, k)) continue;
        const double time = model_us(t, q, k, s->weights[k]) * (1.0 + off[k] / (1.0 + says[k]));
        if (d->kernel < 0 || time < d->predicted_us) *d = (Decision){k, AICF_BY_SURVEY, time};
    }
    return d->kernel >= 0;
}

/* Of points equally near the first in the table counts, and there the first kernel, which is the fastest. */
static bool decide_by_neighbour(const Tables* t, const Query* q, bool any_region, Decision* d) {
    double logs[MAX_SIZES];
    double nearest = 9.0;
    for (int i = 0; i < t->num_sizes; ++i) logs[i] = log2((double)q->sizes[i]);
    for (int i = 0; i < t->num_medians; ++i) {
        const Median* m = &t->medians[i];
        if (!is_legal(q, m->kernel)) continue;
        if (m->group[0] != q->classes[0] || m->group[1] != q->classes[1] || m->group[2] != q->classes[2]) continue;
        if (!any_region && m->region != q->classes[NUM_GROUP_AXES]) continue;
        double distance = 0.0;
        for (int j = 0; j < t->num_sizes; ++j) {
            const double difference = logs[j] - m->log2_sizes[j];
            distance = distance + difference * difference;
        }
        if (d->kernel < 0 ? distance <= nearest : distance < nearest) {
            nearest = distance;
            *d = (Decision){m->kernel, AICF_BY_NEIGHBOUR, m->median_us};
        }
    }
    return d->kernel >= 0;
}

static double estimate_us(const Tables* t, const Query* q, int kernel) {
    const Rates* r = &t->rates[kernel];
    const double rate = q->unit < 0 ? 0.0 : r->flops_per_s[q->unit];
    const double compute = rate > 0.0 ? q->flops / rate : 0.0;
    double memory = q->bytes / r->bytes_per_s;
    if (q->tiles[kernel] > 0 && r->l2_bytes_per_s > 0.0) {
        const double again = find_traffic(t, q, kernel) / r->l2_bytes_per_s;
        if (again > memory) memory = again;
    }
    double factor = 1.0;
    if (q->tiles[kernel] > 0) factor = (double)multiply(divide_up(q->tiles[kernel], r->slots), r->slots) / (double)q->tiles[kernel];
    return (compute > memory ? compute : memory) * factor * 1e6;
}

static bool decide_by_prior(const Tables* t, const Query* q, bool any_bucket, Decision* d) {
    for (int i = 0; i < t->num_winners; ++i) {
        const Winner* w = &t->winners[i];
        if (!is_legal(q, w->kernel)) continue;
        if (!any_bucket && memcmp(w->classes, q->classes, sizeof w->classes) != 0) continue;
        const double time = estimate_us(t, q, w->kernel);
        if (d->kernel < 0 || time < d->predicted_us || (time == d->predicted_us && w->kernel < d->kernel)) {
            *d = (Decision){w->kernel, AICF_BY_PRIOR, time};
        }
    }
    return d->kernel >= 0;
}

static Decision decide(const Tables* t, const Query* q) {
    Decision d = {-1, 0, -1.0};
    if (decide_by_measurement(t, q, &d) || decide_by_survey(t, q, &d)) return d;
    if (decide_by_neighbour(t, q, false, &d) || decide_by_prior(t, q, false, &d)) return d;
    if (decide_by_neighbour(t, q, true, &d) || decide_by_prior(t, q, true, &d)) return d;
    for (int i = 0; i < t->num_fallbacks; ++i) {
        if (is_legal(q, t->fallbacks[i].kernel)) return (Decision){t->fallbacks[i].kernel, AICF_BY_FALLBACK, -1.0};
    }
    return d;
}

/* The architecture of `archs` whose machine code the current device runs: sm_XYa on X.Y alone, sm_XY on X.Y and later minors. */
static AicfStatus make_cuda_error(cudaError_t error) {
    AicfStatus status = make_status(AICF_CUDA_ERROR, "%s: %s", cudaGetErrorName(error), cudaGetErrorString(error));
    status.cuda_code = (int32_t)error;
    return status;
}

/* Makes the current device's context current on this thread, once: a launcher's calls of the driver (encoders of tensor maps) need one, and
 * a thread whose first CUDA call is a launch has none. */
static AicfStatus bind_thread(void) {
    static _Thread_local int bound = -1;
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess && device != bound) error = cudaSetDevice(device);
    if (error != cudaSuccess) return make_cuda_error(error);
    bound = device;
    return make_ok();
}

static AicfStatus find_arch(const char* op, const char* const* archs, int num_archs, const char** arch) {
    int device = 0, major = 0, minor = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (error != cudaSuccess) return make_cuda_error(error);
    int best = -1;
    for (int i = 0; i < num_archs; ++i) {
        int number = 0;
        char letter = 0;
        if (sscanf(archs[i], "sm_%d%c", &number, &letter) < 1 || number / 10 != major) continue;
        if (letter != 0 ? number % 10 != minor : number % 10 > minor) continue;
        if (2 * number + (letter != 0) > best) {
            best = 2 * number + (letter != 0);
            *arch = archs[i];
        }
    }
    if (best >= 0) return make_ok();
    return make_status(AICF_UNSUPPORTED, "%s: this library has no kernel for compute capability %d.%d; the first that it has is for %s", op,
                       major, minor, archs[0]);
}
