/* mla-verify merge: the reports of all shards of a run become the report of the run. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/try.h"
#include "ledger.h"
#include "output_file.h"
#include "report.h"

#define SHOWN 20 /* missing cases */

static const char help[] =
    "Joins the reports of a run that several processes shared (run --shard) into the one that a single process had written.\n"
    "\n"
    "usage: mla-verify merge OUT.json IN.json...\n"
    "\n"
    "  OUT.json         '-' is standard output, and the text then goes to standard error\n"
    "  -h, --help       this text\n"
    "\n"
    "exit: 0 all that ran passed   1 a case is missing, FAILED, CRASHED, or ended in TIMEOUT or ERROR   2 bad usage or input\n"
    "      3 nothing could run\n";

typedef struct merging {
    FILE *text;
    mla_ledger ledger;
    const char **shards; /* [shards], the file that each came from */
    int32_t missing;
    mla_summary summary;
    struct cJSON *report;
} merging;

/* ---- reading --------------------------------------------------------------------------------------------------------------------------- */

static mla_status read_report(const char *path, cJSON **report) {
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;
    *report = NULL;
    if (!file)
        return mla_error(MLA_EIO, "%.150s: %s", path, strerror(errno));
    const bool good = getdelim(&text, &size, '\0', file) > 0 && !ferror(file);
    fclose(file);
    *report = good ? cJSON_ParseWithOpts(text, NULL, true) : NULL;
    free(text);
    return cJSON_IsObject(*report) ? mla_ok() : mla_error(MLA_EINVAL, "%.150s is no report of mla-verify run --json", path);
}

/* The first report says what run it is; every other must be of the same run, and of another shard. */
static mla_status join_run(merging *m, cJSON *run, const char *path) {
    const mla_shard shard = mla_ledger_shard(run);
    if (!m->shards) {
        TRY(mla_ledger_make(run, &m->ledger));
        m->shards = calloc((size_t)shard.count, sizeof *m->shards);
        if (!m->shards)
            return mla_error(MLA_ENOMEM, "no memory for %d shards", shard.count);
    } else {
        const bool same = mla_ledger_same_run(&m->ledger, run);
        cJSON_Delete(run);
        if (!same)
            return mla_error(MLA_EINVAL, "it is of another run: other cases, kernels or number of shards");
    }
    if (m->shards[shard.index])
        return mla_error(MLA_EINVAL, "it is of shard %d, and so is %.100s", shard.index, m->shards[shard.index]);
    m->shards[shard.index] = path;
    return mla_ok();
}

static mla_status join_report(merging *m, cJSON *report, const char *path) {
    cJSON *run = cJSON_DetachItemFromObjectCaseSensitive(report, "run");
    cJSON *cases = cJSON_GetObjectItemCaseSensitive(report, "cases");
    if (!run || !cJSON_IsArray(cases)) {
        cJSON_Delete(run);
        return mla_error(MLA_EINVAL, "it is no report of mla-verify run");
    }
    TRY(join_run(m, run, path));
    while (cases->child)
        TRY(mla_ledger_put(&m->ledger, cJSON_DetachItemViaPointer(cases, cases->child)));
    return mla_ok();
}

static mla_status join_file(merging *m, const char *path) {
    cJSON *report;
    mla_status status = read_report(path, &report);
    if (status.code == MLA_OK) {
        status = join_report(m, report, path);
        if (status.code != MLA_OK)
            status = mla_error(status.code, "%.100s: %s", path, status.message);
    }
    cJSON_Delete(report);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------------------------------------------------- */

static bool note_missing(merging *m, cJSON *missing, const char *line, const char *kernel, int32_t test) {
    if (m->missing++ < SHOWN)
        fprintf(m->text, "MISSING %-88s  %s\n", line && *line ? line : line ? "(all defaults)" : "(a case)", kernel);
    cJSON *o = cJSON_CreateObject();
    const bool good = o && cJSON_AddNumberToObject(o, "index", test) && cJSON_AddStringToObject(o, "case", line ? line : "") &&
                      cJSON_AddStringToObject(o, "kernel", kernel) && cJSON_AddItemToArray(missing, o);
    if (!good)
        cJSON_Delete(o);
    return good;
}

static void print_bad(const merging *m, const cJSON *result) {
    const char *text = mla_json_text(result, "text");
    fputs(text ? text : "", m->text);
}

/* Results in the order of a single process, and what is missing. False: out of memory. */
static bool collect(merging *m, cJSON *missing) {
    const cJSON *lines = cJSON_GetObjectItem(m->ledger.run, "lines"), *line = lines ? lines->child : NULL;
    for (int32_t i = 0; i < m->ledger.cases; i++, line = line ? line->next : NULL) {
        for (int32_t k = 0; k < m->ledger.kernels; k++) {
            cJSON *result = mla_ledger_take(&m->ledger, i, k);
            if (result) {
                print_bad(m, result);
                mla_summary_add(&m->summary, result);
            }
            if (result ? !mla_json_add(m->report, result)
                       : !note_missing(m, missing, cJSON_GetStringValue(line), mla_ledger_kernel(&m->ledger, k), i))
                return false;
        }
    }
    return true;
}

/* Of a whole run; of an incomplete one the list of its lines stays, and what is missing is named. */
static bool describe(merging *m, cJSON *missing) {
    cJSON *run = m->ledger.run;
    m->ledger.run = NULL;
    cJSON_SetNumberValue(cJSON_GetObjectItem(run, "shard"), 0);
    cJSON_SetNumberValue(cJSON_GetObjectItem(run, "shards"), 1);
    if (m->missing == 0) {
        cJSON_DeleteItemFromObject(run, "lines");
        cJSON_Delete(missing);
    } else if (!cJSON_AddItemToObject(run, "missing", missing)) {
        cJSON_Delete(missing);
        cJSON_Delete(run);
        return false;
    }
    return mla_json_describe(m->report, run);
}

static void print_missing(const merging *m, int32_t shards) {
    if (m->missing > SHOWN)
        fprintf(m->text, "and %d more\n", m->missing - SHOWN);
    bool first = true;
    for (int32_t s = 0; s < shards; s++) {
        if (!m->shards[s]) {
            fprintf(m->text, "%s%d", first ? "no report of shard " : ", ", s);
            first = false;
        }
    }
    if (!first)
        fprintf(m->text, " of %d\n", shards);
    if (m->missing > 0)
        fprintf(m->text, "%d results are missing: this is not a pass\n", m->missing);
}

static mla_status write_report(merging *m, const char *path) {
    const int32_t shards = mla_ledger_shard(m->ledger.run).count;
    cJSON *missing = cJSON_CreateArray();
    m->report = mla_json_begin();
    bool good = missing && m->report && collect(m, missing);
    if (good)
        good = describe(m, missing);
    else
        cJSON_Delete(missing);
    char *text = good ? mla_json_print(m->report, &m->summary) : NULL;
    mla_status status = text ? mla_output_file_write(path, text, strlen(text)) : mla_error(MLA_ENOMEM, "no memory for the JSON report");
    free(text);
    if (status.code == MLA_OK)
        print_missing(m, shards);
    return status;
}

static mla_exit merge(const char *out, char **inputs, int count) {
    merging m = {.text = strcmp(out, "-") == 0 ? stderr : stdout};
    mla_status status = mla_output_file_check(out);
    for (int i = 0; i < count && status.code == MLA_OK; i++)
        status = join_file(&m, inputs[i]);
    if (status.code == MLA_OK)
        status = write_report(&m, out);
    if (status.code == MLA_OK)
        mla_text_summary(m.text, mla_text_style_for(m.text, false), &m.summary);
    mla_ledger_free(&m.ledger);
    mla_json_free(m.report);
    free(m.shards);
    if (status.code != MLA_OK)
        return mla_usage_error("%s", status.message);
    return mla_finish_stdout(m.missing > 0 ? MLA_EXIT_MISMATCH : mla_summary_exit(&m.summary));
}

mla_exit mla_command_merge(int argc, char **argv) {
    static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
        if (option != 'h')
            return mla_option_error(option, argv);
        fputs(help, stdout);
        return mla_finish_stdout(MLA_EXIT_PASSED);
    }
    if (argc - optind < 2)
        return mla_usage_error("expected files OUT.json IN.json... (see mla-verify merge --help)");
    return merge(argv[optind], argv + optind + 1, argc - optind - 1);
}
