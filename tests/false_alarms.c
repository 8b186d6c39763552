/*
 * How often does the verifier fail a right kernel? Simulated kernels with random contracts on random cases: every alarm is a false one, and is printed
 * with what repeats it. usage: false_alarms [ELEMENTS [SEED]]
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../ref/try.h"
#include "../verify/chi.h"
#include "../verify/contract_line.h"
#include "../verify/exactness.h"
#include "../verify/inputs.h"
#include "../verify/judge.h"
#include "../verify/slabs.h"
#include "support_simkernel.h"

enum {
    KERNELS_PER_CASE = 4,
    LONG_KEYS = 768, /* a query token's, on average: of cases with more, one in LONG_SHARE is run */
    LONG_SHARE = 16,
    ROUND = 256 /* most cases between two looks at how many elements were graded */
};

typedef struct tally {
    int64_t runs, rows, elements, alarms;
    int64_t gating, suspected;         /* rows */
    double over_bound, lse_over_bound; /* largest |e| / B */
    double chi, row_chi;               /* largest */
    double row_share;                  /* largest chi / limit of a suspected row */
} tally;

static void add(tally *t, const mla_measure *m, bool alarm) {
    t->runs++;
    t->rows += m->rows;
    t->elements += m->out.total;
    t->alarms += alarm;
    t->gating += m->chi.rows;
    t->suspected += m->chi.suspected;
    t->over_bound = fmax(t->over_bound, m->max_err_over_bound);
    t->lse_over_bound = fmax(t->lse_over_bound, m->max_lse_over_bound);
    t->chi = fmax(t->chi, mla_chi_gating(&m->chi));
    t->row_chi = fmax(t->row_chi, m->chi.worst.chi);
    for (int i = 0; i < MLA_CHI_SUSPECTS && m->chi.suspects[i].chi > 0; i++)
        t->row_share = fmax(t->row_share, m->chi.suspects[i].chi / m->chi.suspects[i].limit);
}

static void print(const char *name, const tally *t) {
    printf("%-10s %7" PRId64 " %9" PRId64 " %13" PRId64 " %7" PRId64 " | %7.2f %7.2f | %9" PRId64 " %9" PRId64 " | %6.3f %6.3f %6.3f\n",
           name, t->runs, t->rows, t->elements, t->alarms, t->over_bound, t->lse_over_bound, t->gating, t->suspected, t->chi, t->row_chi,
           t->row_share);
}

typedef struct comparison {
    const mla_problem *problem;
    const mla_output *output;
    mla_measure *measure;
} comparison;

static mla_status compare_slab(void *context, const mla_truth *truth) {
    const comparison *c = context;
    mla_compare(c->problem, truth, c->output, c->measure);
    return mla_ok();
}

static mla_status grade(const sim_kernel *sim, const mla_case *test, const mla_problem *problem, const mla_output *output,
                        mla_measure *measure) {
    comparison c = {problem, output, measure};
    TRY(mla_measure_init(measure, problem));
    measure->bitwise = mla_is_bitwise(test, &sim->contract);
    TRY(sim_kernel_run(sim, problem, output));
    TRY(mla_slabs_visit(problem, &sim->contract, NULL, compare_slab, &c));
    return mla_chi_settle(problem, &sim->contract, measure);
}

static mla_status run_kernel(uint64_t seed, const mla_case *test, const mla_problem *problem, const mla_output *output, tally *t) {
    const sim_kernel sim = sim_kernel_random(seed);
    mla_measure measure;
    const mla_status status = grade(&sim, test, problem, output, &measure);
    const mla_integrity intact = {.guard_offset = 0};
    const mla_verdict verdict = mla_judge(&measure, &intact);
    const bool alarm = verdict.status != MLA_PASSED;
    if (status.code == MLA_OK) {
        add(t, &measure, alarm);
        if (alarm) {
            char *line = mla_case_print(test), *contract = mla_contract_print(&sim.contract);
            printf("ALARM %s\n  case %s\n  contract %s\n  %d splits, scores in base %s; repeat: false_alarms 1 %" PRIu64 "\n",
                   verdict.reason, line ? line : "?", contract ? contract : "?", sim.splits, sim.natural ? "e" : "2",
                   seed / KERNELS_PER_CASE);
            fflush(stdout);
            free(line);
            free(contract);
        }
    }
    mla_measure_free(&measure);
    return status;
}

static mla_status run_case(uint64_t seed, const mla_case *test, tally *t) {
    mla_inputs inputs;
    mla_status status = mla_inputs_make(test, &inputs);
    const size_t rows = (size_t)inputs.problem.total_q * (size_t)inputs.problem.heads;
    mla_output output = {.out = malloc(rows * MLA_HEAD_DIM_V * sizeof(float) + 1), .lse = malloc(rows * sizeof(float) + 1)};
    if (status.code == MLA_OK && (!output.out || !output.lse))
        status = mla_error(MLA_ENOMEM, "no memory for outputs");
    for (uint64_t i = 0; i < KERNELS_PER_CASE && status.code == MLA_OK && rows > 0; i++)
        status = run_kernel(seed * KERNELS_PER_CASE + i, test, &inputs.problem, &output, t);
    free(output.out);
    free(output.lse);
    mla_inputs_free(&inputs);
    return status;
}

static bool is_long(const mla_case *test) {
    int64_t tokens = 0, keys = 0;
    for (int32_t b = 0; b < test->batch; b++) {
        tokens += test->q_len[b];
        keys += (int64_t)test->q_len[b] * (test->paging == MLA_SPARSE ? test->topk : test->kv_len[b]);
    }
    return keys > LONG_KEYS * tokens;
}

/* Sums and maxima: the order of cases does not matter. */
static void join(tally *to, const tally *from) {
    *to = (tally){to->runs + from->runs,
                  to->rows + from->rows,
                  to->elements + from->elements,
                  to->alarms + from->alarms,
                  to->gating + from->gating,
                  to->suspected + from->suspected,
                  fmax(to->over_bound, from->over_bound),
                  fmax(to->lse_over_bound, from->lse_over_bound),
                  fmax(to->chi, from->chi),
                  fmax(to->row_chi, from->row_chi),
                  fmax(to->row_share, from->row_share)};
}

typedef struct report {
    tally families[MLA_INPUT_COUNT], formats[MLA_KV_FORMAT_COUNT], whole;
} report;

/* The case of one seed; of long cases one in LONG_SHARE. */
static mla_status run_seed(uint64_t seed, report *r) {
    mla_case_list list = {.count = 0};
    tally here = {.runs = 0};
    TRY(mla_case_list_random(&list, 1, seed));
    const mla_case *test = &list.cases[0];
    mla_status status = mla_ok();
    if (seed % LONG_SHARE == 0 || !is_long(test))
        status = run_case(seed, test, &here);
#pragma omp critical(tally)
    {
        join(&r->families[test->input], &here);
        join(&r->formats[test->kv], &here);
        join(&r->whole, &here);
    }
    mla_case_list_free(&list);
    return status;
}

/* A thread a case: most are too small to share. Rounds are whole, so that the number of threads decides nothing. */
static mla_status run(int64_t elements, uint64_t seed, report *r) {
    const int64_t round = elements < ROUND ? elements : ROUND;
    mla_status failed = mla_ok();
    for (; r->whole.elements < elements && failed.code == MLA_OK; seed += (uint64_t)round) {
#pragma omp parallel for schedule(dynamic)
        for (int64_t i = 0; i < round; i++) {
            const mla_status status = run_seed(seed + (uint64_t)i, r);
            if (status.code != MLA_OK) {
#pragma omp critical(failure)
                failed = status;
            }
        }
    }
    return failed;
}

static void print_heading(const char *what) {
    printf("%-10s %7s %9s %13s %7s | %7s %7s | %9s %9s | %6s %6s %6s\n", what, "runs", "rows", "elements", "alarms", "|e|/B", "lse",
           "gating", "> 1.15", "chi", "row", "/limit");
}

int main(int argc, char **argv) {
    static report r;
    const int64_t elements = argc > 1 ? strtoll(argv[1], NULL, 10) : 1000000000;
    const mla_status status = run(elements, argc > 2 ? strtoull(argv[2], NULL, 10) : 0, &r);
    if (status.code != MLA_OK) {
        fprintf(stderr, "false_alarms: %s\n", status.message);
        return 2;
    }
    print_heading("family");
    for (int f = 0; f < MLA_INPUT_COUNT; f++)
        print(mla_family_name((mla_family)f), &r.families[f]);
    print_heading("KV");
    for (int f = 0; f < MLA_KV_FORMAT_COUNT; f++)
        print(mla_kv_format_get((mla_kv_format)f)->name, &r.formats[f]);
    print("all", &r.whole);
    return r.whole.alarms > 0;
}
