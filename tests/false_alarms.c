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
#include "../verify/inputs.h"
#include "../verify/judge.h"
#include "../verify/slabs.h"
#include "support_simkernel.h"

enum {
    KERNELS_PER_CASE = 4,
    LONG_KEYS = 768, /* a query token's, on average: of cases with more, one in LONG_SHARE is run */
    LONG_SHARE = 16
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

static mla_status grade(const sim_kernel *sim, const mla_problem *problem, const mla_output *output, mla_measure *measure) {
    comparison c = {problem, output, measure};
    TRY(mla_measure_init(measure, problem));
    TRY(sim_kernel_run(sim, problem, output));
    TRY(mla_slabs_visit(problem, &sim->contract, NULL, compare_slab, &c));
    return mla_chi_settle(problem, &sim->contract, measure);
}

static mla_status run_kernel(uint64_t seed, const mla_case *test, const mla_problem *problem, const mla_output *output, tally *t) {
    const sim_kernel sim = sim_kernel_random(seed);
    mla_measure measure;
    const mla_status status = grade(&sim, problem, output, &measure);
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

static mla_status run(int64_t elements, uint64_t seed, tally *families, tally *whole) {
    for (uint64_t i = 0; whole->elements < elements; i++) {
        mla_case_list list = {.count = 0};
        mla_status status = mla_case_list_random(&list, 1, seed + i);
        const bool skipped = status.code == MLA_OK && i % LONG_SHARE > 0 && is_long(&list.cases[0]);
        if (status.code == MLA_OK && !skipped) {
            tally here = {.runs = 0};
            status = run_case(seed + i, &list.cases[0], &here);
            tally *both[] = {&families[list.cases[0].input], whole};
            for (int k = 0; k < 2; k++) {
                tally *t = both[k];
                *t = (tally){t->runs + here.runs,
                             t->rows + here.rows,
                             t->elements + here.elements,
                             t->alarms + here.alarms,
                             t->gating + here.gating,
                             t->suspected + here.suspected,
                             fmax(t->over_bound, here.over_bound),
                             fmax(t->lse_over_bound, here.lse_over_bound),
                             fmax(t->chi, here.chi),
                             fmax(t->row_chi, here.row_chi),
                             fmax(t->row_share, here.row_share)};
            }
        }
        mla_case_list_free(&list);
        TRY(status);
    }
    return mla_ok();
}

int main(int argc, char **argv) {
    tally families[MLA_INPUT_COUNT] = {{0}}, whole = {0};
    const int64_t elements = argc > 1 ? strtoll(argv[1], NULL, 10) : 1000000000;
    const mla_status status = run(elements, argc > 2 ? strtoull(argv[2], NULL, 10) : 0, families, &whole);
    if (status.code != MLA_OK) {
        fprintf(stderr, "false_alarms: %s\n", status.message);
        return 2;
    }
    printf("%-10s %7s %9s %13s %7s | %7s %7s | %9s %9s | %6s %6s %6s\n", "family", "runs", "rows", "elements", "alarms", "|e|/B", "lse",
           "gating", "> 1.15", "chi", "row", "/limit");
    for (int f = 0; f < MLA_INPUT_COUNT; f++)
        print(mla_family_name((mla_family)f), &families[f]);
    print("all", &whole);
    return whole.alarms > 0;
}
