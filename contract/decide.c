/* The decision of docs/frozen.md. Sums and products are rounded one by one (-ffp-contract=off), so that every build finds the same bits. */
#include "decide.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#ifdef AICF_TABLE_BYTES
_Static_assert(sizeof(AicfTable) == AICF_TABLE_BYTES && sizeof(AicfQuery) == AICF_QUERY_BYTES, "decision_structs.py is not decide.h's");
#endif

/* Squared distances in doublings: what is farther is not near; what a surveyed problem at distance 0 is taken to be away, and by how much
 * farther one is of which rows begin anywhere where the call's do not, or the other way round: kernels have other code for those. */
static const double kMaxDistance = 9.0, kNearest = 0.3, kOtherRows = 16.0;
/* Elements of 16 bits in an access of 16 bytes. */
static const int64_t kPackElems = 8;
/* Memory comes in lines of so many bytes; where rows begin, in parts of a line: smaller ones are not told apart. */
static const int64_t kLineBytes = 128, kLeastPart = 8;

/* Products stay at the largest number that fits, which is beyond every limit. */
static int64_t multiply(int64_t left, int64_t right) {
    int64_t product;
    return __builtin_mul_overflow(left, right, &product) ? INT64_MAX : product;
}

static int64_t divide_up(int64_t size, int64_t step) { return size / step + (size % step != 0); }

int32_t aicf_find_arch(const char* const* archs, int32_t count, int32_t major, int32_t minor) {
    int32_t found = -1;
    int best = -1;
    for (int32_t i = 0; i < count; ++i) {
        int number = 0;
        char letter = 0;
        if (sscanf(archs[i], "sm_%d%c", &number, &letter) < 1 || number / 10 != major) continue;
        if (letter != 0 ? number % 10 != minor : number % 10 > minor) continue;
        const int rank = 2 * number + (letter != 0);
        if (rank > best) found = i;
        if (rank > best) best = rank;
    }
    return found;
}

static bool has_kernel(const uint64_t* kernels, int32_t kernel) { return (kernels[kernel / 64] >> (kernel % 64) & 1) != 0; }

static bool has_any(const uint64_t* left, const uint64_t* right) {
    uint64_t both = 0;
    for (int i = 0; i < AICF_MASK_WORDS; ++i) both |= left[i] & right[i];
    return both != 0;
}

static bool has_classes(const int32_t* left, const int32_t* right, int count) {
    return memcmp(left, right, (size_t)count * sizeof *left) == 0;
}

/* Whether a query's classes are all among those of a survey's point. */
static bool speaks_for(const AicfSurveyPoint* point, const int32_t* classes, int count) {
    for (int axis = 0; axis < count; ++axis) {
        if (classes[axis] < 0 || (point->classes[axis] >> classes[axis] & 1) == 0) return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------- what a call is */

static bool holds(const AicfTable* t, const AicfCondition* c, const AicfCall* call) {
    if (c->kind == AICF_ON_ATTRIBUTE) return (c->choices >> call->attributes[c->place] & 1) != 0;
    if (c->kind == AICF_ON_ADDRESS) return call->addresses[c->place] % (uint64_t)c->multiple == 0;
    if (c->kind == AICF_ON_STRIDE) return call->max_strides[c->place] <= c->most && call->strides[c->place] % c->multiple == 0;
    int64_t value = 1;
    for (int i = 0; i < t->num_sizes; ++i) {
        if (c->steps[i] > 0) value = multiply(value, divide_up(call->sizes[i], c->steps[i]));
    }
    return c->least <= value && value <= c->most && value % c->multiple == 0;
}

static void find_legal(const AicfTable* t, AicfQuery* q) {
    memset(q->legal, 0, sizeof q->legal);
    for (int k = 0; k < t->num_kernels; ++k) q->legal[k / 64] |= (uint64_t)1 << (k % 64);
    for (int i = 0; i < t->num_conditions; ++i) {
        const AicfCondition* c = &t->conditions[i];
        if (!has_any(q->legal, c->kernels) || holds(t, c, &q->call)) continue;
        for (int word = 0; word < AICF_MASK_WORDS; ++word) q->legal[word] &= ~c->kernels[word];
    }
}

static void find_classes(const AicfTable* t, AicfQuery* q) {
    for (int i = 0; i < AICF_MAX_AXES; ++i) q->classes[i] = -1;
    for (int i = 0; i < t->num_classes; ++i) {
        const AicfClass* c = &t->classes[i];
        if (q->classes[c->axis] >= 0) continue;
        int held = 0;
        while (held < c->count && holds(t, &t->conditions[c->first + held], &q->call)) ++held;
        if (held == c->count) q->classes[c->axis] = c->number;
    }
}

static double evaluate(const AicfTable* t, int first, int count, const int64_t* sizes) {
    double stack[AICF_MAX_STACK];
    int top = -1;
    for (const AicfStep* step = t->steps + first; step < t->steps + first + count; ++step) {
        if (step->code == AICF_PUSH_NUMBER || step->code == AICF_PUSH_SIZE) {
            stack[++top] = step->code == AICF_PUSH_SIZE ? (double)sizes[step->size] : step->number;
            continue;
        }
        const double right = stack[top--], left = stack[top];
        switch (step->code) {
            case AICF_ADD: stack[top] = left + right; break;
            case AICF_SUB: stack[top] = left - right; break;
            case AICF_MUL: stack[top] = left * right; break;
            case AICF_DIV: stack[top] = left / right; break;
            case AICF_FLOOR_DIV: stack[top] = floor(left / right); break;
            case AICF_CEIL_DIV: stack[top] = ceil(left / right); break;
            case AICF_SELECT:
                stack[top - 1] = stack[top - 1] != 0.0 ? left : right;
                --top;
                break;
            case AICF_LESS: stack[top] = left < right ? 1.0 : 0.0; break;
            case AICF_MIN: stack[top] = right < left ? right : left; break;
            default: stack[top] = right > left ? right : left; break;
        }
    }
    return count > 0 ? stack[0] : 0.0;
}

static const AicfRow* find_row(const AicfTable* t, const AicfRow* rows, int count, const AicfCall* call) {
    for (const AicfRow* row = rows; row < rows + count; ++row) {
        int i = 0;
        while (i < t->num_attributes && (row->when[i] < 0 || row->when[i] == call->attributes[i])) ++i;
        if (i == t->num_attributes) return row;
    }
    return NULL;
}

/* How many more parts than one each line of an input's rows begins in: 0 where all rows begin on lines. */
static double count_parts_off(const AicfInput* input, const AicfCall* call) {
    if (input->tensor < 0) return 0.0;
    int64_t part = kLineBytes;
    while (part > kLeastPart && multiply(call->strides[input->tensor], input->item_bytes) % part != 0) part /= 2;
    return (double)(kLineBytes / part - 1);
}

static void find_work(const AicfTable* t, AicfQuery* q) {
    const int64_t* sizes = q->call.sizes;
    const AicfRow* flops = find_row(t, t->flops, t->num_flops, &q->call);
    const AicfRow* bytes = find_row(t, t->bytes, t->num_bytes, &q->call);
    const AicfRow* unit = find_row(t, t->units, t->num_units, &q->call);
    const AicfRow* reads = find_row(t, t->reads, t->num_reads, &q->call);
    q->flops = flops != NULL ? evaluate(t, flops->first, flops->count, sizes) : 0.0;
    q->bytes = bytes != NULL ? evaluate(t, bytes->first, bytes->count, sizes) : 0.0;
    q->unit = unit != NULL ? unit->first : -1;
    q->num_reads = reads != NULL ? reads->count : 0;
    for (int i = 0; i < q->num_reads; ++i) {
        const AicfInput* input = &t->inputs[reads->first + i];
        q->reads[i] = evaluate(t, input->first, input->count, sizes);
        q->off_line[i] = q->reads[i] * count_parts_off(input, &q->call);
        q->shapes[i] = input->shape;
    }
}

void aicf_ask(const AicfTable* t, const AicfCall* call, AicfQuery* q) {
    q->call = *call;
    find_legal(t, q);
    find_classes(t, q);
    find_work(t, q);
    q->is_loose = 0;
    for (int i = 0; i < t->num_tensors; ++i) q->is_loose |= call->strides[i] % kPackElems != 0;
    for (int i = 0; i < t->num_sizes; ++i) q->logs[i] = log2((double)call->sizes[i]);
}

int32_t aicf_find_broken(const AicfTable* t, const AicfQuery* q, int32_t kernel) {
    for (int i = 0; i < t->num_conditions; ++i) {
        if (has_kernel(t->conditions[i].kernels, kernel) && !holds(t, &t->conditions[i], &q->call)) return i;
    }
    return -1;
}

void aicf_keep_preferred(const AicfTable* t, const AicfWishes* wishes, const int64_t* workspace_bytes, uint64_t* kernels) {
    int64_t most = wishes->max_workspace_bytes >= 0 ? wishes->max_workspace_bytes : INT64_MAX;
    for (int k = 0; k < t->num_kernels && workspace_bytes != NULL && wishes->least_workspace; ++k) {
        if (has_kernel(kernels, k) && workspace_bytes[k] < most) most = workspace_bytes[k];
    }
    for (int k = 0; k < t->num_kernels; ++k) {
        bool keeps = !wishes->deterministic || t->kernels[k].deterministic;
        if (wishes->accumulate != 0 && t->kernels[k].accumulate != wishes->accumulate) keeps = false;
        if (workspace_bytes != NULL && workspace_bytes[k] > most) keeps = false;
        if (!keeps) kernels[k / 64] &= ~((uint64_t)1 << (k % 64));
    }
}

/* ------------------------------------------------------------------------------------------------ times of kernels */

/* The bytes that tiles read: of an input once for every step along each edge that its shape does not name. */
static double find_traffic(const AicfTable* t, const AicfQuery* q, const double* reads, const int64_t* edges) {
    double total = 0.0;
    for (int i = 0; i < q->num_reads; ++i) {
        double bytes = reads[i];
        for (int size = 0; size < t->num_sizes; ++size) {
            if (edges[size] > 0 && (q->shapes[i] >> size & 1) == 0) bytes = bytes * (double)divide_up(q->call.sizes[size], edges[size]);
        }
        total = total + bytes;
    }
    return total;
}

/* Tiles of one problem: their number, the seconds of arithmetic of one, and the waves that they are worked on in. */
typedef struct Tiles {
    int64_t edges[AICF_MAX_SIZES];
    double count, seconds, waves;
} Tiles;

static void count_tiles(const AicfTable* t, const AicfQuery* q, double rate, const AicfModel* model, Tiles* tiles) {
    double count = 1.0, share = 1.0;
    for (int i = 0; i < t->num_sizes; ++i) {
        const int64_t size = q->call.sizes[i], edge = tiles->edges[i];
        if (edge <= 0) continue;
        share = share * ((double)edge / (double)size);
        count = count * (double)divide_up(size, edge);
    }
    const double tile_s = rate > 0.0 ? q->flops * share / rate : 0.0;
    const double wave_us = tile_s * model->slots * 1e6, even = count / model->slots;
    double waves = ceil(even);
    if (model->idle_us >= 0.0 && (waves - even) * wave_us > model->idle_us) waves = even + model->idle_us / wave_us;
    tiles->count = count;
    tiles->seconds = tile_s;
    tiles->waves = waves;
}

/* Gives the tiles the edge that takes the least time along a size. A tile takes as long as its edge and so much more are long: what comes
 * along the other edge takes its time, however short this one is. */
static void choose_edge(const AicfTable* t, const AicfQuery* q, double rate, const AicfModel* model, int size, Tiles* tiles) {
    const int64_t kStep = 8, kMore = 80;
    const int64_t first = model->edges[size];
    double least = tiles->waves * (double)(first + kMore);
    Tiles each = *tiles;
    for (int i = 1; i < AICF_MOST_EDGES && first - i * kStep >= model->least[size]; ++i) {
        each.edges[size] = first - i * kStep;
        count_tiles(t, q, rate, model, &each);
        const double time = each.waves * (double)(each.edges[size] + kMore);
        if (time >= least) continue;
        least = time;
        *tiles = each;
    }
}

static void find_terms(const AicfTable* t, const AicfQuery* q, const AicfKernel* kernel, const AicfModel* model, double* terms) {
    const double rate = q->unit < 0 ? 0.0 : kernel->flops_per_s[q->unit];
    Tiles tiles;
    memcpy(tiles.edges, model->edges, sizeof(tiles.edges));
    count_tiles(t, q, rate, model, &tiles);
    for (int i = 0; i < t->num_sizes; ++i) {
        if (model->least[i] > 0) choose_edge(t, q, rate, model, i, &tiles);
    }
    terms[0] = 1.0;
    terms[1] = tiles.waves;
    terms[2] = tiles.seconds * (tiles.waves * model->slots) * 1e6;
    terms[3] = q->bytes / kernel->bytes_per_s * 1e6;
    terms[4] = t->l2_bytes_per_s > 0.0 ? find_traffic(t, q, q->reads, tiles.edges) / t->l2_bytes_per_s * 1e6 : 0.0;
    terms[5] = t->l2_bytes_per_s > 0.0 ? find_traffic(t, q, q->off_line, tiles.edges) / t->l2_bytes_per_s * 1e6 : 0.0;
    terms[6] = tiles.seconds * tiles.count * 1e6;
}

void aicf_find_terms(const AicfTable* t, const AicfQuery* q, int32_t kernel, const AicfModel* models, int32_t count, double* terms) {
    for (int32_t i = 0; i < count; ++i) find_terms(t, q, &t->kernels[kernel], &models[i], terms + (size_t)i * AICF_NUM_TERMS);
}

double aicf_estimate_us(const AicfTable* t, const AicfQuery* q, int32_t number) {
    const AicfKernel* kernel = &t->kernels[number];
    const double rate = q->unit < 0 ? 0.0 : kernel->flops_per_s[q->unit];
    double time_s = q->bytes / kernel->bytes_per_s;
    if (rate > 0.0 && q->flops / rate > time_s) time_s = q->flops / rate;
    int64_t blocks = 1;
    bool has_tile = false;
    for (int i = 0; i < t->num_sizes; ++i) {
        if (kernel->edges[i] <= 0) continue;
        has_tile = true;
        blocks = multiply(blocks, divide_up(q->call.sizes[i], kernel->edges[i]));
    }
    if (!has_tile) return time_s * 1e6;
    if (t->l2_bytes_per_s > 0.0) {
        const double traffic_s = find_traffic(t, q, q->reads, kernel->edges) / t->l2_bytes_per_s;
        if (traffic_s > time_s) time_s = traffic_s;
    }
    return time_s * ((double)multiply(divide_up(blocks, kernel->slots), kernel->slots) / (double)blocks) * 1e6;
}

static bool is_surveyed(const AicfTable* t, const AicfQuery* q, const uint64_t* kernels) {
    if (!t->has_survey || !has_any(t->surveyed, kernels)) return false;
    for (int i = 0; i < t->num_winners; ++i) {
        const AicfWinner* w = &t->winners[i];
        if ((w->is_apart || !has_kernel(t->surveyed, w->kernel)) && has_classes(w->classes, q->classes, t->num_axes)) return false;
    }
    return true;
}

/* How far kernels' times are from their models, as a share, by problems of the call's group: by those of the call's own sizes where there
 * are any, else by all, each with a weight that falls with the square of its squared distance. */
static void find_corrections(const AicfTable* t, const AicfQuery* q, double* corrections) {
    double off[AICF_MAX_KERNELS], says[AICF_MAX_KERNELS], exact[AICF_MAX_KERNELS];
    int counts[AICF_MAX_KERNELS];
    for (int k = 0; k < t->num_kernels; ++k) off[k] = says[k] = exact[k] = counts[k] = 0;
    for (int p = 0; p < t->num_survey_points; ++p) {
        const AicfSurveyPoint* point = &t->survey_points[p];
        if (!speaks_for(point, q->classes, t->num_survey_axes)) continue;
        double distance = kNearest + (point->is_loose >= 0 && point->is_loose != q->is_loose ? kOtherRows : 0.0);
        for (int i = 0; i < t->num_sizes; ++i) {
            const double difference = point->logs[i] - q->logs[i];
            distance = distance + difference * difference;
        }
        const double say = 1.0 / (distance * distance);
        const double* errors = t->errors + (size_t)p * (size_t)t->num_kernels;
        for (int k = 0; k < t->num_kernels; ++k) {
            if (isnan(errors[k])) continue;
            off[k] = off[k] + say * errors[k];
            says[k] = says[k] + say;
            if (distance > kNearest) continue;
            exact[k] = exact[k] + errors[k];
            counts[k] += 1;
        }
    }
    for (int k = 0; k < t->num_kernels; ++k) corrections[k] = counts[k] ? exact[k] / counts[k] : off[k] / (1.0 + says[k]);
}

int32_t aicf_predict(const AicfTable* t, const AicfQuery* q, const uint64_t* kernels, double* us) {
    if (!is_surveyed(t, q, kernels)) return 0;
    double corrections[AICF_MAX_KERNELS];
    find_corrections(t, q, corrections);
    for (int k = 0; k < t->num_kernels; ++k) {
        us[k] = NAN;
        if (!has_kernel(t->surveyed, k)) continue;
        const double* w = t->weights + (size_t)k * AICF_NUM_TERMS;
        double terms[AICF_NUM_TERMS];
        find_terms(t, q, &t->kernels[k], &t->models[k], terms);
        double modelled = 0.0;
        for (int i = 0; i < AICF_NUM_TERMS; ++i) modelled = modelled + terms[i] * w[i];
        us[k] = modelled * (1.0 + corrections[k]);
    }
    return 1;
}

/* ------------------------------------------------------------------------------------------------ steps of the decision */

static bool has_problem(const AicfTable* t, const AicfQuery* q, const AicfPoint* p) {
    for (int i = 0; i < t->num_sizes; ++i) {
        if (p->sizes[i] != q->call.sizes[i]) return false;
    }
    for (int i = 0; i < t->num_attributes; ++i) {
        if (p->attributes[i] != q->call.attributes[i]) return false;
    }
    return true;
}

static const AicfTime* find_fastest(const AicfTable* t, const AicfPoint* p, const uint64_t* kernels) {
    for (const AicfTime* time = t->times + p->first; time < t->times + p->first + p->count; ++time) {
        if (has_kernel(kernels, time->kernel)) return time;
    }
    return NULL;
}

static bool is_better(const AicfDecision* d, double us, int32_t kernel) {
    return d->kernel < 0 || us < d->us || (us == d->us && kernel < d->kernel);
}

static bool decide_by_measurement(const AicfTable* t, const AicfQuery* q, const uint64_t* kernels, AicfDecision* d) {
    for (int i = 0; i < t->num_points; ++i) {
        const AicfPoint* p = &t->points[i];
        if (!has_problem(t, q, p)) continue;
        const AicfTime* time = find_fastest(t, p, kernels);
        if (time != NULL && is_better(d, time->us, time->kernel)) *d = (AicfDecision){time->kernel, AICF_MEASURED, i, 1, time->us, 0.0};
    }
    return d->kernel >= 0;
}

static bool decide_by_survey(const AicfTable* t, const AicfQuery* q, const uint64_t* kernels, AicfDecision* d) {
    double us[AICF_MAX_KERNELS];
    if (!aicf_predict(t, q, kernels, us)) return false;
    for (int k = 0; k < t->num_kernels; ++k) {
        if (!has_kernel(kernels, k) || isnan(us[k])) continue;
        if (is_better(d, us[k], k)) *d = (AicfDecision){k, AICF_SURVEYED, -1, 1, us[k], 0.0};
    }
    return d->kernel >= 0;
}

/* Of points equally near the first one counts. */
int32_t aicf_find_nearest(const AicfTable* t, const AicfQuery* q, const uint64_t* kernels, int32_t in_bucket, double* nearest) {
    const int num_axes = in_bucket ? t->num_axes : t->num_group_axes;
    int32_t found = -1;
    for (int i = 0; i < t->num_points; ++i) {
        const AicfPoint* p = &t->points[i];
        if (!has_classes(p->classes, q->classes, num_axes) || !has_any(p->kernels, kernels)) continue;
        double distance = 0.0;
        for (int j = 0; j < t->num_sizes; ++j) {
            const double difference = p->logs[j] - q->logs[j];
            distance = distance + difference * difference;
        }
        if (found < 0 ? distance <= kMaxDistance : distance < *nearest) {
            *nearest = distance;
            found = i;
        }
    }
    return found;
}

static bool decide_by_neighbour(const AicfTable* t, const AicfQuery* q, const uint64_t* kernels, bool in_bucket, AicfDecision* d) {
    double distance = 0.0;
    const int32_t nearest = aicf_find_nearest(t, q, kernels, in_bucket, &distance);
    if (nearest < 0) return false;
    const AicfTime* time = find_fastest(t, &t->points[nearest], kernels);
    *d = (AicfDecision){time->kernel, AICF_NEAR, nearest, in_bucket, time->us, distance};
    return true;
}

static bool decide_by_prior(const AicfTable* t, const AicfQuery* q, const uint64_t* kernels, bool in_bucket, AicfDecision* d) {
    for (int i = 0; i < t->num_winners; ++i) {
        const AicfWinner* w = &t->winners[i];
        if (!has_kernel(kernels, w->kernel)) continue;
        if (in_bucket && !has_classes(w->classes, q->classes, t->num_axes)) continue;
        const double us = aicf_estimate_us(t, q, w->kernel);
        if (is_better(d, us, w->kernel)) *d = (AicfDecision){w->kernel, AICF_PRIOR, -1, in_bucket, us, 0.0};
    }
    if (d->kernel >= 0 && q->unit < 0) d->us = -1.0; /* without a cost all estimates are alike: the first by name */
    return d->kernel >= 0;
}

void aicf_decide(const AicfTable* t, const AicfQuery* q, const uint64_t* kernels, AicfDecision* d) {
    *d = (AicfDecision){-1, 0, -1, 0, -1.0, 0.0};
    if (decide_by_measurement(t, q, kernels, d) || decide_by_survey(t, q, kernels, d)) return;
    if (decide_by_neighbour(t, q, kernels, true, d) || decide_by_prior(t, q, kernels, true, d)) return;
    if (decide_by_neighbour(t, q, kernels, false, d) || decide_by_prior(t, q, kernels, false, d)) return;
    for (int i = 0; i < t->num_fallbacks; ++i) {
        if (!has_kernel(kernels, t->fallbacks[i])) continue;
        *d = (AicfDecision){t->fallbacks[i], AICF_FALLBACK, -1, 0, -1.0, 0.0};
        return;
    }
}
