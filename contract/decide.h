/* Which frozen kernel serves a call: docs/frozen.md, "Who is chosen for a call", compiled once.
 *
 * A table holds what is known of an op's kernels for one architecture, as plain data. contract/decision_tables.py makes it of the frozen
 * set's rows: in memory for the framework and the workbench, as C text for the deployed library. Kernels are numbered in the order of their
 * names, sizes, attributes and tensors as the table's maker numbers them. Nothing here allocates, waits or keeps state. */
#ifndef AICF_DECIDE_H_
#define AICF_DECIDE_H_

#include <stdint.h>

/* A program that has no use for the functions beyond one file includes decide.c there, with this as `static inline`. */
#ifndef AICF_DECIDE_API
#define AICF_DECIDE_API extern
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum {
    AICF_MAX_SIZES = 16,
    AICF_MAX_ATTRIBUTES = 16,
    AICF_MAX_TENSORS = 32,
    AICF_MAX_AXES = 8,
    AICF_MAX_UNITS = 8,
    AICF_MAX_KERNELS = 256,
    AICF_MASK_WORDS = 4, /* of 64 bits: one bit per kernel */
    AICF_MAX_STACK = 32,
    AICF_MOST_EDGES = 64, /* that are looked at along a size */
    AICF_NUM_TERMS = 7
};

/* The step of the decision that found a kernel. */
enum { AICF_MEASURED = 1, AICF_SURVEYED = 2, AICF_NEAR = 3, AICF_PRIOR = 4, AICF_FALLBACK = 5 };

/* A call: sizes in elements, attributes by their place among the choices, and by tensor its address in bytes and its row stride in
 * elements: of several, one for each dimension but the last, the greatest common divisor and the greatest. They are 0 where the tensor is
 * absent or has none; an address of 0 is taken to be aligned. */
typedef struct AicfCall {
    int64_t sizes[AICF_MAX_SIZES];
    int64_t attributes[AICF_MAX_ATTRIBUTES];
    int64_t strides[AICF_MAX_TENSORS];
    int64_t max_strides[AICF_MAX_TENSORS];
    uint64_t addresses[AICF_MAX_TENSORS];
} AicfCall;

enum { AICF_ON_ATTRIBUTE = 0, AICF_ON_COUNT = 1, AICF_ON_ADDRESS = 2, AICF_ON_STRIDE = 3 };

/* What must hold for a kernel to serve a call, or for a call to be in a class.
 *
 * AICF_ON_ATTRIBUTE: attribute `place` has one of `choices` (a bit each). AICF_ON_COUNT: the product of sizes over `steps`, each rounded up
 * (step 0: not a factor), is at least `least`, at most `most` and divisible by `multiple`. AICF_ON_ADDRESS and AICF_ON_STRIDE: the address
 * (bytes) or row strides (elements) of tensor `place` are at most `most` and divisible by `multiple`. */
typedef struct AicfCondition {
    int32_t kind;
    int32_t place;
    uint64_t choices;
    int64_t least, most, multiple;
    int64_t steps[AICF_MAX_SIZES];
    uint64_t kernels[AICF_MASK_WORDS]; /* whose domain asks for it */
} AicfCondition;

/* A class of an axis: a call is in the first class of the axis whose `count` conditions from `first` on all hold. */
typedef struct AicfClass {
    int32_t axis;
    int32_t number; /* among the axis' classes */
    int32_t first, count;
} AicfClass;

/* A kernel: the blocks that the chip runs at once, its tile's edge along each size (0: none), and the chip's peak rates, of the flops by
 * unit (0: not known). */
typedef struct AicfKernel {
    int32_t deterministic;
    int32_t accumulate; /* the dtype of its sums as the table numbers dtypes, from 1 on; 0: it does not say */
    int64_t slots;
    int64_t edges[AICF_MAX_SIZES];
    double bytes_per_s;
    double flops_per_s[AICF_MAX_UNITS];
} AicfKernel;

/* A bucket's kernel; a class that calls no longer have is -2. */
typedef struct AicfWinner {
    int32_t kernel;
    int32_t is_apart; /* calls of this bucket are decided without the survey */
    int32_t classes[AICF_MAX_AXES];
} AicfWinner;

/* A measured problem with its `count` times from `first` on, the fastest first. */
typedef struct AicfPoint {
    int32_t classes[AICF_MAX_AXES]; /* those of its group, then its region */
    int64_t attributes[AICF_MAX_ATTRIBUTES];
    int64_t sizes[AICF_MAX_SIZES];
    double logs[AICF_MAX_SIZES]; /* log2 of the sizes */
    uint64_t kernels[AICF_MASK_WORDS];
    int32_t first, count;
} AicfPoint;

typedef struct AicfTime {
    int32_t kernel;
    double us;
} AicfTime;

/* A surveyed problem; its errors are row `i` of the table's `errors` where this is point `i`. */
typedef struct AicfSurveyPoint {
    uint64_t classes[AICF_MAX_AXES]; /* of each axis those whose calls it speaks for, a bit each */
    int32_t is_loose;                /* as a query's; -1: not known */
    double logs[AICF_MAX_SIZES];
} AicfSurveyPoint;

/* A row of a table by attributes: it fits where all of `when` agree (-1: any). What `first` and `count` number is said by the table. */
typedef struct AicfRow {
    int32_t when[AICF_MAX_ATTRIBUTES];
    int32_t first, count;
} AicfRow;

/* A step of a formula in postfix order, on a stack of numbers. */
enum {
    AICF_PUSH_NUMBER = 0,
    AICF_PUSH_SIZE = 1,
    AICF_ADD = 2,
    AICF_SUB = 3,
    AICF_MUL = 4,
    AICF_DIV = 5,
    AICF_FLOOR_DIV = 6,
    AICF_CEIL_DIV = 7,
    AICF_MIN = 8,
    AICF_MAX = 9,
    AICF_LESS = 10,   /* 1 or 0 */
    AICF_SELECT = 11  /* of three: the second where the first is not 0, else the third */
};

typedef struct AicfStep {
    int32_t code;
    int32_t size; /* of AICF_PUSH_SIZE */
    double number;
} AicfStep;

/* An input: its bytes as a formula of `count` steps from `first` on, the sizes that its shape names, a bit each, and which tensor's row
 * stride it has (-1: none that is known) in elements of `item_bytes`. */
typedef struct AicfInput {
    int32_t first, count;
    uint32_t shape;
    int32_t tensor, item_bytes;
} AicfInput;

/* How a kernel's time grows with the sizes: as if `slots` tiles of such edges (0: none along that size) were worked on at once. What a
 * wave that is not full loses is `idle_us` at most (below 0: no limit). Where `least` is above 0 for a size, the kernel looks for the edge
 * along it when it is launched: from `edges` down to the least in steps of 8, AICF_MOST_EDGES at most, that whose waves take the least
 * time. */
typedef struct AicfModel {
    int64_t edges[AICF_MAX_SIZES], least[AICF_MAX_SIZES];
    double slots, idle_us;
} AicfModel;

typedef struct AicfTable {
    int32_t num_sizes, num_attributes, num_tensors, num_kernels;
    /* Medians of the same classes on the first `num_group_axes` axes may stand for each other; a survey's points have the first
     * `num_survey_axes`. */
    int32_t num_axes, num_group_axes, num_survey_axes;
    int32_t num_conditions; /* of kernels; those of classes follow them */
    int32_t num_classes, num_winners, num_fallbacks, num_points;
    int32_t num_flops, num_bytes, num_units, num_reads; /* rows of the cost; 0: not known */
    int32_t has_survey, num_survey_points;
    double l2_bytes_per_s;              /* 0: not known */
    uint64_t surveyed[AICF_MASK_WORDS]; /* kernels that the survey knows */
    const AicfCondition* conditions;
    const AicfClass* classes;
    const AicfKernel* kernels;
    const AicfWinner* winners;
    const int32_t* fallbacks;
    const AicfPoint* points; /* in the order of the problems' names */
    const AicfTime* times;
    const AicfStep* steps;
    const AicfRow* flops; /* first, count: steps */
    const AicfRow* bytes; /* first, count: steps */
    const AicfRow* units; /* first: the unit */
    const AicfRow* reads; /* first, count: inputs */
    const AicfInput* inputs;
    const AicfModel* models; /* by kernel */
    const double* weights;   /* [kernels, AICF_NUM_TERMS] */
    const AicfSurveyPoint* survey_points;
    const double* errors; /* [survey points, kernels]: how far off the model is, as a share; NAN: not timed */
} AicfTable;

/* A call with all that its decision looks at. */
typedef struct AicfQuery {
    AicfCall call;
    uint64_t legal[AICF_MASK_WORDS]; /* kernels whose domain holds */
    int32_t classes[AICF_MAX_AXES];  /* -1: in none */
    int32_t is_loose;                /* rows of some tensor begin anywhere: not as many elements apart as a multiple of kPackElems */
    int32_t unit;                    /* of the flops; -1: the op has no cost */
    int32_t num_reads;
    double flops, bytes;
    double reads[AICF_MAX_TENSORS];    /* bytes of each input */
    double off_line[AICF_MAX_TENSORS]; /* that times how many lines of 128 bytes its rows are off, on average */
    uint32_t shapes[AICF_MAX_TENSORS]; /* the sizes that its shape names, a bit each */
    double logs[AICF_MAX_SIZES];
} AicfQuery;

typedef struct AicfDecision {
    int32_t kernel; /* -1: none */
    int32_t how;
    int32_t point;     /* the measured problem that decided; -1: none did */
    int32_t in_bucket; /* whether only the call's own bucket was looked at */
    double us;         /* measured, predicted or estimated; below 0: not known */
    double distance;   /* to the point, squared, in doublings */
} AicfDecision;

/* What a caller asks of a kernel beyond the problem. */
typedef struct AicfWishes {
    int32_t deterministic;
    int32_t accumulate;          /* the dtype of sums; 0: any, -1: one that no kernel vouches for */
    int32_t least_workspace;     /* only kernels with the least workspace */
    int64_t max_workspace_bytes; /* below 0: no limit */
} AicfWishes;

/* Returns which of `archs` has the best machine code that a device of compute capability `major`.`minor` runs: sm_XYa on X.Y alone, sm_XY
 * on X.Y and later minors; -1: none runs there. */
AICF_DECIDE_API int32_t aicf_find_arch(const char* const* archs, int32_t count, int32_t major, int32_t minor);

/* Finds the kernels that serve a call, its classes and its least work. */
AICF_DECIDE_API void aicf_ask(const AicfTable* table, const AicfCall* call, AicfQuery* query);

/* Drops kernels that lack what is wished. `workspace_bytes` is what each kept kernel wants; NULL: of workspaces nothing is asked yet. */
AICF_DECIDE_API void aicf_keep_preferred(const AicfTable* table, const AicfWishes* wishes, const int64_t* workspace_bytes,
                                         uint64_t* kernels);

/* Decides among `kernels` (a bit each, all of them legal). */
AICF_DECIDE_API void aicf_decide(const AicfTable* table, const AicfQuery* query, const uint64_t* kernels, AicfDecision* decision);

/* Returns the first condition of a kernel's domain that does not hold; -1: all hold. */
AICF_DECIDE_API int32_t aicf_find_broken(const AicfTable* table, const AicfQuery* query, int32_t kernel);

/* Returns the nearest measured problem of the call's group that one of `kernels` was timed on; -1: none is near enough. */
AICF_DECIDE_API int32_t aicf_find_nearest(const AicfTable* table, const AicfQuery* query, const uint64_t* kernels, int32_t in_bucket,
                                          double* distance);

/* Fills in the microseconds that the survey predicts, by kernel (NAN: it does not know the kernel). Returns 0 where the survey is not asked
 * for this call, since it knows none of `kernels` or not all winners of the bucket. */
AICF_DECIDE_API int32_t aicf_predict(const AicfTable* table, const AicfQuery* query, const uint64_t* kernels, double* us);

/* Fills in the terms of a kernel's time by `count` models, of each in turn: a launch (1 us), waves, and microseconds of arithmetic in whole
 * waves, of memory, of what tiles read, of what they read off the lines of memory, and of arithmetic dealt out evenly. */
AICF_DECIDE_API void aicf_find_terms(const AicfTable* table, const AicfQuery* query, int32_t kernel, const AicfModel* models, int32_t count,
                                     double* terms);

/* Returns the least time of a kernel by the chip's peak rates, stretched by how its blocks fill the chip, in microseconds. */
AICF_DECIDE_API double aicf_estimate_us(const AicfTable* table, const AicfQuery* query, int32_t kernel);

#ifdef __cplusplus
}
#endif
#endif /* AICF_DECIDE_H_ */
