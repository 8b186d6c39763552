/* mla-verify worker: the other side of worker.c. It opens one kernel, then grades case after case, until the verifier hangs up or ends. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "command.h"
#include "wire.h"
#include "worker.h"

static void report_alive(void *context, double share) {
    (void)context;
    mla_frame_send(MLA_WORKER_SOCKET, MLA_FRAME_ALIVE, &share, sizeof share);
}

static bool answer(const mla_result *result) {
    size_t bytes = 0;
    void *packed = mla_result_pack(result, &bytes);
    const bool sent = packed && mla_frame_send(MLA_WORKER_SOCKET, MLA_FRAME_RESULT, packed, bytes);
    free(packed);
    return sent;
}

/* False when there is nobody to answer, or nothing to answer with. */
static bool grade(mla_subject *subject, const char *line) {
    mla_case test;
    mla_result result = {.test = &test};
    mla_progress progress = {.notify = report_alive};
    const char *folder = line + strlen(line) + 1;
    subject->outputs = *folder ? folder : NULL;
    const char *when = folder + strlen(folder) + 1;
    subject->only_failing = *when;
    const char *pictures = when + strlen(when) + 1, *contract = pictures + strlen(pictures) + 1;
    subject->pictures = *pictures;
    subject->contract = *contract ? contract : NULL;
    const mla_status status = mla_case_parse(line, &test);
    if (status.code == MLA_OK)
        mla_run_case(subject, &test, &progress, &result);
    else
        result.verdict = mla_verdict_make(MLA_ERROR, status.message);
    const bool answered = answer(&result);
    mla_result_free(&result);
    mla_case_free(&test);
    return answered;
}

static void serve(mla_subject *subject) {
    mla_frame frame;
    for (bool good = true; good && mla_frame_receive(MLA_WORKER_SOCKET, SIZE_MAX - 1, 0, &frame) == MLA_RECEIVED; free(frame.data))
        good = frame.kind == MLA_FRAME_CASE && grade(subject, frame.data);
}

mla_exit mla_command_worker(int argc, char **argv) {
    if (argc != MLA_WORKER_ARGUMENTS)
        return mla_usage_error("worker is what mla-verify starts itself");
    mla_subject subject = {.spec = argv[MLA_WORKER_SPEC]};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fcntl(MLA_WORKER_SOCKET, F_SETFD, FD_CLOEXEC);
    subject.opened = mla_kernel_open(subject.spec, &subject.handle);
    if (!mla_frame_send(MLA_WORKER_SOCKET, MLA_FRAME_OPENED, &subject.opened, sizeof subject.opened))
        return MLA_EXIT_USAGE;
    if (subject.opened.code == MLA_OK) {
        serve(&subject);
        mla_kernel_close(&subject.handle);
    }
    return MLA_EXIT_PASSED;
}
