
/* ---------------------------------------------------------------------------------------------------------------- @OP@ */

@DECLARATIONS@
typedef struct @OP@_Kernel {
    Facts facts;
    AicfStatus (*supports)(const @STRUCT@* params);
    AicfStatus (*workspace_bytes)(const @STRUCT@* params, size_t* bytes);
    AicfStatus (*launch)(const @STRUCT@* params, void* workspace, struct CUstream_st* stream);
} @OP@_Kernel;

static const @OP@_Kernel @OP@_kernels[] = {
@KERNELS@};

static const Rates @OP@_rates[] = {
@RATES@};

static const Median @OP@_medians[] = {
@MEDIANS@};

static const Winner @OP@_winners[] = {
@WINNERS@};

static const Winner @OP@_fallbacks[] = {
@FALLBACKS@};

@SURVEYS@
static const char* const @OP@_archs[] = {@ARCHS@};

#define COUNT(table) ((int)(sizeof(table) / sizeof((table)[0])))

static const Tables @OP@_tables = {"@OP@",
                                   @OP@_rates,
                                   @OP@_medians,
                                   @OP@_winners,
                                   @OP@_fallbacks,
                                   @OP@_surveys,
                                   @NUM_SIZES@,
                                   @NUM_ATTRIBUTES@,
                                   COUNT(@OP@_medians),
                                   COUNT(@OP@_winners),
                                   COUNT(@OP@_fallbacks),
                                   @NUM_SURVEYS@,
                                   @NUM_KERNELS@};

/* Reads a call's sizes and attributes. */
static AicfStatus @OP@_gather(const @STRUCT@* p, Query* q) {
    memset(q, 0, sizeof *q);
@GATHER@
@CLASSES@    return make_ok();
}

/* Finds the kernels that serve a call. */
static void @OP@_find_legal(const @STRUCT@* p, Query* q) {
    (void)p;
@SERVES@
}

/* Finds a call's least work, and each kernel's blocks. */
static void @OP@_find_work(Query* q) {
    int64_t* const tiles = q->tiles;
@COST@
@TILES@
}

static AicfStatus @OP@_decide(const char* arch, const @STRUCT@* params, const AicfPreferences* preferences, Decision* decision) {
    Query q;
    AicfStatus status = @OP@_gather(params, &q);
    if (status.code != AICF_OK) return status;
    @OP@_find_legal(params, &q);
    const uint64_t serving = q.legal;
    int last = -1;
    for (int i = 0; i < @NUM_KERNELS@; ++i) {
        const Facts* facts = &@OP@_kernels[i].facts;
        bool keeps = strcmp(facts->arch, arch) == 0;
        if (keeps) last = i;
        if (keeps && preferences != NULL) {
            if (preferences->deterministic && !facts->deterministic) keeps = false;
            if (is_legal(&q, i) && preferences->max_workspace_bytes >= 0 && facts->needs_workspace) {
                size_t bytes = 0;
                status = @OP@_kernels[i].workspace_bytes(params, &bytes);
                if (status.code != AICF_OK || bytes > (size_t)preferences->max_workspace_bytes) keeps = false;
            }
        }
        if (!keeps) q.legal &= ~((uint64_t)1 << i);
    }
    @OP@_find_work(&q);
    *decision = decide(&@OP@_tables, &q);
    if (decision->kernel >= 0) return make_ok();
    if (last < 0) return make_status(AICF_UNSUPPORTED, "@OP@: this library has no kernel for %s", arch);
    if (serving != 0) return make_status(AICF_UNSUPPORTED, "@OP@: no kernel that serves this call on %s has what is preferred", arch);
    status = @OP@_kernels[last].supports(params);
    if (status.code == AICF_INVALID) return status;
    return make_status(AICF_UNSUPPORTED, "@OP@: none of the kernels for %s serves this call; %s says: %s", arch, @OP@_kernels[last].facts.name,
                       status.code == AICF_OK ? "nothing against it, but its domain does" : status.reason);
}

AicfStatus aicf_@OP@_choose_on(const char* arch, const @STRUCT@* params, const AicfPreferences* preferences, AicfChoice* choice) {
    Decision decision;
    AicfStatus status = @OP@_decide(arch, params, preferences, &decision);
    if (status.code != AICF_OK) return status;
    const @OP@_Kernel* kernel = &@OP@_kernels[decision.kernel];
    size_t bytes = 0;
    if (kernel->facts.needs_workspace) {
        status = kernel->workspace_bytes(params, &bytes);
        if (status.code != AICF_OK) return status;
    }
    *choice = (AicfChoice){kernel->facts.name,         decision.predicted_us,           bytes, decision.how,
                           kernel->facts.deterministic, kernel->facts.capture_safe};
    return make_ok();
}

AicfStatus aicf_@OP@_choose(const @STRUCT@* params, const AicfPreferences* preferences, AicfChoice* choice) {
    const char* arch = NULL;
    const AicfStatus status = find_arch("@OP@", @OP@_archs, COUNT(@OP@_archs), &arch);
    return status.code == AICF_OK ? aicf_@OP@_choose_on(arch, params, preferences, choice) : status;
}

AicfStatus aicf_@OP@_workspace_bytes(const @STRUCT@* params, const AicfPreferences* preferences, size_t* bytes) {
    AicfChoice choice;
    const AicfStatus status = aicf_@OP@_choose(params, preferences, &choice);
    if (status.code == AICF_OK) *bytes = choice.workspace_bytes;
    return status;
}

AicfStatus aicf_@OP@(const @STRUCT@* params, const AicfPreferences* preferences, void* workspace, size_t workspace_bytes,
                     struct CUstream_st* stream) {
    const char* arch = NULL;
    AicfStatus status = find_arch("@OP@", @OP@_archs, COUNT(@OP@_archs), &arch);
    if (status.code != AICF_OK) return status;
    Decision decision;
    status = @OP@_decide(arch, params, preferences, &decision);
    if (status.code != AICF_OK) return status;
    const @OP@_Kernel* kernel = &@OP@_kernels[decision.kernel];
    if (kernel->facts.needs_workspace) {
        size_t wanted = 0;
        status = kernel->workspace_bytes(params, &wanted);
        if (status.code != AICF_OK) return status;
        if (workspace_bytes < wanted || (wanted > 0 && workspace == NULL)) {
            return make_status(AICF_INVALID, "@OP@: %s wants %zu bytes of workspace, got %zu", kernel->facts.name, wanted, workspace_bytes);
        }
    }
    status = bind_thread();
    return status.code == AICF_OK ? kernel->launch(params, workspace, stream) : status;
}
