#include "run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"
#include "replica.h"
#include "slabs.h"

typedef struct launch {
    const mla_kernel *kernel;
    mla_device *device; /* NULL: the kernel works in host memory */
    mla_inputs inputs;
    mla_replica replica;
    mla_outputs outputs;
    mla_output result;  /* host copies of out and lse */
    const char *folder; /* for the outputs; NULL: none */
} launch;

static mla_status run_kernel(launch *l) {
    const mla_launch arguments = mla_launch_make(l->device, &l->inputs.problem, &l->replica, &l->outputs);
    mla_status status = mla_kernel_prepare(l->kernel, &arguments);
    if (status.code == MLA_OK)
        status = mla_kernel_run(l->kernel, &arguments);
    if (status.code != MLA_OK)
        return status;
    return l->device ? l->device->synchronize(l->device) : mla_ok();
}

static mla_status download(launch *l) {
    l->result.out = malloc(l->outputs.out.bytes + 1);
    l->result.lse = malloc(l->outputs.lse.bytes + 1);
    if (!l->result.out || !l->result.lse)
        return mla_error(MLA_ENOMEM, "no memory for %zu bytes of output", l->outputs.out.bytes);
    mla_status status = mla_buffer_download(&l->outputs.out, l->result.out);
    return status.code == MLA_OK ? mla_buffer_download(&l->outputs.lse, l->result.lse) : status;
}

static mla_status save_outputs(const launch *l, const mla_result *result) {
    char *name = mla_golden_result_name(result->case_line, result->kernel), *path = NULL;
    mla_status status = mla_error(MLA_ENOMEM, "no memory for a file name");
    if (name && asprintf(&path, "%s/%s", l->folder, name) >= 0)
        status = mla_golden_result_write(path, result->case_line, result->kernel, &l->inputs.problem, &l->result);
    free(path);
    free(name);
    return status;
}

/* The first touched guard is the one reported. */
static mla_status check_guards(const mla_buffer *buffer, const char *name, mla_integrity *integrity) {
    bool touched = false;
    int64_t offset = 0;
    if (buffer->bytes == 0 || integrity->guard_touched)
        return mla_ok();
    mla_status status = mla_buffer_guards(buffer, &touched, &offset);
    if (status.code == MLA_OK && touched) {
        integrity->guard_touched = name;
        integrity->guard_offset = offset;
        integrity->guard_size = (int64_t)buffer->bytes;
    }
    return status;
}

static mla_status check_unchanged(const mla_mirror *m, mla_integrity *integrity) {
    int64_t offset = -1;
    if (m->original->bytes == 0 || integrity->input_changed)
        return mla_ok();
    mla_status status = mla_buffer_changed(&m->copy, m->original->data, &offset);
    if (status.code == MLA_OK && offset >= 0) {
        integrity->input_changed = m->name;
        integrity->input_offset = offset;
    }
    return status;
}

static mla_status check_integrity(const launch *l, mla_integrity *integrity) {
    mla_status status = check_guards(&l->outputs.out, "out", integrity);
    if (status.code == MLA_OK)
        status = check_guards(&l->outputs.lse, "lse", integrity);
    if (status.code == MLA_OK)
        status = check_guards(&l->outputs.workspace, "workspace", integrity);
    for (const mla_mirror *m = l->replica.mirrors; m < l->replica.mirrors + MLA_MIRRORS && status.code == MLA_OK; m++) {
        status = check_guards(&m->copy, m->name, integrity);
        if (status.code == MLA_OK)
            status = check_unchanged(m, integrity);
    }
    return status;
}

typedef struct comparison {
    const launch *launch;
    mla_measure *measure;
} comparison;

static mla_status compare_slab(void *context, const mla_truth *truth) {
    const comparison *c = context;
    mla_compare(&c->launch->inputs.problem, truth, &c->launch->result, c->measure);
    return mla_ok();
}

static mla_status measure_outputs(const launch *l, mla_progress *progress, mla_measure *measure) {
    const mla_problem *p = &l->inputs.problem;
    const mla_contract contract = mla_kernel_contract(l->kernel, p);
    comparison c = {l, measure};
    const mla_status status = mla_measure_init(measure, p);
    return status.code == MLA_OK ? mla_slabs_visit(p, &contract, progress, compare_slab, &c) : status;
}

static mla_status launch_and_measure(launch *l, mla_progress *progress, mla_result *result) {
    mla_status status = mla_replica_make(l->device, &l->inputs, &l->replica);
    if (status.code == MLA_OK)
        status = mla_outputs_make(l->device, l->kernel, &l->inputs.problem, &l->outputs);
    if (status.code != MLA_OK)
        return status;
    status = run_kernel(l);
    if (status.code == MLA_OK)
        status = check_integrity(l, &result->integrity);
    if (status.code == MLA_OK)
        status = download(l);
    if (status.code == MLA_OK && l->folder)
        status = save_outputs(l, result);
    if (status.code == MLA_OK)
        status = measure_outputs(l, progress, &result->measure);
    result->measured = status.code == MLA_OK;
    return status;
}

static mla_verdict grade(launch *l, mla_progress *progress, mla_result *result) {
    char reason[200] = "the kernel gave no reason";
    const mla_kernel *k = l->kernel;
    mla_status status = mla_contract_check(&k->contract);
    if (status.code == MLA_OK)
        status = mla_inputs_make(result->test, &l->inputs);
    if (status.code == MLA_OK)
        status = mla_problem_check(&l->inputs.problem);
    if (status.code != MLA_OK)
        return mla_verdict_make(MLA_ERROR, status.message);
    if (l->inputs.problem.total_q == 0)
        return mla_verdict_make(MLA_SKIPPED, "the case has no query rows: there is nothing to compare");
    if (k->supports && !k->supports(k, &l->inputs.problem, reason, sizeof reason))
        return mla_verdict_make(MLA_SKIPPED, reason);
    status = launch_and_measure(l, progress, result);
    if (status.code != MLA_OK)
        return mla_verdict_make(MLA_ERROR, status.message);
    return mla_judge(&result->measure, &result->integrity);
}

static void launch_free(launch *l) {
    mla_replica_free(&l->replica);
    mla_outputs_free(&l->outputs);
    mla_inputs_free(&l->inputs);
    free(l->result.out);
    free(l->result.lse);
}

void mla_run_case(const mla_subject *subject, const mla_case *test, mla_progress *progress, mla_result *result) {
    *result = (mla_result){.test = test, .kernel = subject->spec, .case_line = mla_case_print(test)};
    if (!result->case_line) {
        result->verdict = mla_verdict_make(MLA_ERROR, "no memory to print the case");
    } else if (subject->opened.code != MLA_OK) {
        result->verdict = mla_verdict_make(MLA_SKIPPED, subject->opened.message);
    } else {
        const mla_kernel *kernel = subject->handle.kernel;
        launch l = {
            .kernel = kernel, .device = kernel->space == MLA_SPACE_HOST ? NULL : subject->handle.device, .folder = subject->outputs};
        result->verdict = grade(&l, progress, result);
        launch_free(&l);
    }
}

void mla_result_free(mla_result *result) {
    free(result->case_line);
    mla_measure_free(&result->measure);
    *result = (mla_result){0};
}
