/* Which part of a run a process takes, and how parts are dealt. */
#include "../verify/shard.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static mla_case_list cases;

static void clear_environment(void) {
    const char *names[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",  "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS",
                           "SLURM_STEP_NUM_TASKS", "JOB_COMPLETION_INDEX", "MLA_SHARDS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

static void free_cases(void) {
    mla_case_list_free(&cases);
}

TestSuite(shard, .init = clear_environment, .fini = free_cases);

static void expect_parsed(const char *text, int32_t index, int32_t count) {
    mla_shard shard;
    cr_expect_eq(mla_shard_parse(text, &shard).code, MLA_OK, "%s", text);
    cr_expect(shard.index == index && shard.count == count && !shard.origin, "%s", text);
}

Test(shard, options) {
    expect_parsed("0/1", 0, 1);
    expect_parsed("63/64", 63, 64);
    const char *bad[] = {
        "", "1", "1/", "/2", "2/2", "3/2", "-1/2", "0/0", "0/2 ", " 0/2", "0/2x", "0x0/2", "0/1048577", "0/99999999999999999999", "1.0/2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mla_shard shard;
        cr_expect_eq(mla_shard_parse(bad[i], &shard).code, MLA_EINVAL, "'%s'", bad[i]);
    }
}

static void expect_environment(int32_t index, int32_t count, const char *origin) {
    mla_shard shard;
    cr_expect_eq(mla_shard_from_environment(&shard).code, MLA_OK);
    cr_expect(shard.index == index && shard.count == count, "%d/%d", shard.index, shard.count);
    cr_expect(origin ? shard.origin && !strcmp(shard.origin, origin) : !shard.origin);
}

Test(shard, launchers) {
    expect_environment(0, 1, NULL);
    setenv("JOB_COMPLETION_INDEX", "4", 1);
    expect_environment(0, 1, NULL); /* how many there are, nobody says */
    setenv("MLA_SHARDS", "5", 1);
    expect_environment(4, 5, "JOB_COMPLETION_INDEX");
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "64", 1); /* a batch script: it is alone */
    expect_environment(4, 5, "JOB_COMPLETION_INDEX");
    setenv("SLURM_STEP_NUM_TASKS", "3", 1);
    expect_environment(0, 3, "SLURM_PROCID");
    setenv("PMI_RANK", "6", 1);
    setenv("PMI_SIZE", "7", 1);
    expect_environment(6, 7, "PMI_RANK");
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    expect_environment(1, 2, "OMPI_COMM_WORLD_RANK");
    mla_shard shard;
    setenv("OMPI_COMM_WORLD_RANK", "2", 1);
    mla_status status = mla_shard_from_environment(&shard);
    cr_expect_eq(status.code, MLA_EINVAL);
    cr_expect_str_eq(status.message, "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=2: no part of a run");
    setenv("OMPI_COMM_WORLD_RANK", "", 1);
    cr_expect_eq(mla_shard_from_environment(&shard).code, MLA_EINVAL);
}

Test(shard, paths) {
    const mla_shard shard = {.index = 12, .count = 64};
    const char *pairs[][2] = {
        {"out.%r.json", "out.12.json"}, {"%r%r", "1212"}, {"100%", "100%"}, {"%%r", "%12"}, {"", ""}, {"plain", "plain"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char *path = mla_shard_path(&shard, pairs[i][0]);
        cr_expect_str_eq(path, pairs[i][1]);
        free(path);
    }
}

/* ---- dealing ------------------------------------------------------------------------------------------------------------------------- */

static double cost_of(const char *line) {
    mla_case c;
    cr_assert_eq(mla_case_parse(line, &c).code, MLA_OK);
    const double cost = mla_case_cost(&c);
    mla_case_free(&c);
    return cost;
}

Test(shard, costs) {
    /* one key, one row: 2 * 1088 flops; 1152 bytes of kv and 2 * (576 + 8 * 512) of rows, 16 flops each; 1e7 for the case */
    cr_expect_float_eq(cost_of("heads=1 kv_len=1"), 2176 + 16 * (1152 + 9344) + 1e7, 1e-3);
    cr_expect_float_eq(cost_of("heads=3 kv_len=5,0") - 1e7, 15 * 2176 + 16 * (5 * 1152 + 6 * 9344), 1e-3);
    cr_expect_float_eq(cost_of("heads=1 kv_len=100 page=topk:7") - cost_of("heads=1 kv_len=100"), -93 * 2176, 1e-3);
    cr_expect_float_eq(cost_of("heads=1 kv_len=100 kv=fp8") - cost_of("heads=1 kv_len=100"), -16 * 57600, 1e-3);
}

/* Kv lengths 7, 6, 5, 4, 3 of large cases on two shards, by hand: 7 | 6; 5 to the second; 4 to the first; both 11, so 3 to the first. */
Test(shard, longest_first) {
    const char *lines[] = {"kv_len=3000000", "kv_len=5000000", "kv_len=7000000", "kv_len=4000000", "kv_len=6000000"};
    int32_t owner[5];
    for (int i = 0; i < 5; i++)
        cr_assert_eq(mla_case_list_add(&cases, lines[i]).code, MLA_OK);
    cr_assert_eq(mla_shard_deal(&cases, 2, owner).code, MLA_OK);
    cr_expect_arr_eq(owner, ((int32_t[]){0, 1, 0, 0, 1}), sizeof owner);
    cr_assert_eq(mla_shard_deal(&cases, 1, owner).code, MLA_OK);
    cr_expect_arr_eq(owner, ((int32_t[]){0, 0, 0, 0, 0}), sizeof owner);
    cr_assert_eq(mla_shard_deal(&cases, 9, owner).code, MLA_OK);
    cr_expect_arr_eq(owner, ((int32_t[]){4, 2, 0, 3, 1}), sizeof owner);
}

/* When the last case of the heaviest shard was dealt, no other shard was lighter: so the heaviest less that case is at most the lightest. */
Test(shard, parts_are_balanced) {
    enum { CASES = 500, SHARDS = 7 };
    int32_t owner[CASES], again[CASES];
    double load[SHARDS] = {0}, least_of[SHARDS];
    cr_assert_eq(mla_case_list_random(&cases, CASES, 3).code, MLA_OK);
    cr_assert_eq(mla_shard_deal(&cases, SHARDS, owner).code, MLA_OK);
    cr_assert_eq(mla_shard_deal(&cases, SHARDS, again).code, MLA_OK);
    cr_expect_arr_eq(owner, again, sizeof owner);
    for (int s = 0; s < SHARDS; s++)
        least_of[s] = HUGE_VAL;
    for (int i = 0; i < CASES; i++) {
        cr_assert(owner[i] >= 0 && owner[i] < SHARDS);
        const double cost = mla_case_cost(&cases.cases[i]);
        load[owner[i]] += cost;
        least_of[owner[i]] = fmin(least_of[owner[i]], cost);
    }
    for (int s = 0; s < SHARDS; s++)
        for (int t = 0; t < SHARDS; t++)
            cr_expect_leq(load[s] - least_of[s], load[t] * (1 + 1e-12));
}
