/* Kernels that crash, hang, leave or scribble, each in its worker: the case is lost, the verifier and the next case are not. */
#include "../verify/worker.h"

#include <criterion/criterion.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../verify/report.h"
#include "../verify/wire.h"

/* The example, but for what some numbers of heads make it do. The constructor does the same for opening. */
static const char source[] = "#define mla_plugin_kernel right_kernel\n"
                             "#include \"example_plugin.c\"\n"
                             "#undef mla_plugin_kernel\n"
                             "#include <signal.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
                             "static int calls;\n"
                             "static void scribble(void) {\n"
                             "    char line[200];\n"
                             "    unsigned long from, to;\n"
                             "    FILE *maps = fopen(\"/proc/self/maps\", \"r\");\n"
                             "    while (fgets(line, sizeof line, maps))\n"
                             "        if (strstr(line, \"[heap]\") && sscanf(line, \"%lx-%lx\", &from, &to) == 2)\n"
                             "            for (char *c = (char *)from; c < (char *)to; c++) *c = 0x55;\n"
                             "    for (volatile char *c = line; c < line + 4096; c++) *c = 0x55;\n" /* and over those who called */
                             "}\n"
                             "static int run_badly(const mla_kernel *kernel, const mla_launch *launch, char *reason, size_t size) {\n"
                             "    calls++;\n"
                             "    switch (launch->host->heads) {\n"
                             "    case 2: *(volatile int *)8 = 1; break;\n"
                             "    case 3: for (;;) pause();\n"
                             "    case 4: exit(0);\n"
                             "    case 5: scribble(); break;\n"
                             "    case 6: for (int i = 0; i < 100; i++) if (write(3, \"nonsense\", 8) < 0) break; break;\n"
                             "    case 7: ((char *)launch->output->lse)[-1] = 0; break;\n"
                             "    case 8: snprintf(reason, size, \"call %d\", calls); return 1;\n"
                             "    case 9: abort();\n"
                             "    }\n"
                             "    return run(kernel, launch, reason, size);\n"
                             "}\n"
                             "__attribute__((constructor)) static void opening(void) {\n"
                             "    const char *fault = getenv(\"MLA_TEST_OPENING\");\n"
                             "    if (fault && *fault == 'c') *(volatile int *)8 = 1;\n"
                             "    if (fault && *fault == 'h') for (;;) pause();\n"
                             "}\n"
                             "__attribute__((visibility(\"default\"))) const mla_kernel *mla_plugin_kernel(void) {\n"
                             "    static mla_kernel bad;\n"
                             "    bad = *right_kernel();\n"
                             "    bad.run = run_badly;\n"
                             "    return &bad;\n"
                             "}\n";

static char folder[] = "/tmp/mla-worker-XXXXXX", plugin[64], verify[4100];
static mla_worker *worker;
static mla_case test_case;
static mla_result result;

static void compile(void) {
    char here[] = __FILE__, command[2000];
    snprintf(plugin, sizeof plugin, "%s/bad.so", folder);
    snprintf(command, sizeof command, "cc -shared -fPIC -w -D_GNU_SOURCE -include string.h -include stdio.h -I'%s/../gpu' -x c -o %s - -lm",
             dirname(here), plugin);
    FILE *compiler = popen(command, "w");
    cr_assert_not_null(compiler);
    fputs(source, compiler);
    cr_assert_eq(pclose(compiler), 0, "cc failed");
}

static void setup(void) {
    char self[4000];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    cr_assert_gt(length, 0);
    self[length] = '\0';
    snprintf(verify, sizeof verify, "%s/../mla-verify", dirname(self));
    cr_assert_eq(access(verify, X_OK), 0, "%s is not there: make all", verify);
    cr_assert_not_null(mkdtemp(folder));
    setenv("ASAN_OPTIONS", "handle_segv=0:handle_abort=0", 1); /* a crash is to be a crash there too */
    compile();
}

static void teardown(void) {
    mla_worker_close(worker);
    mla_result_free(&result);
    mla_case_free(&test_case);
    remove(plugin);
    rmdir(folder);
}

TestSuite(worker, .init = setup, .fini = teardown);

static mla_status open_worker(double timeout) {
    return mla_worker_open(plugin, &(mla_worker_options){.program = verify, .timeout = timeout}, &worker);
}

static void grade(const char *line) {
    if (!worker)
        cr_assert_eq(open_worker(60).code, MLA_OK);
    mla_result_free(&result);
    mla_case_free(&test_case);
    cr_assert_eq(mla_case_parse(line, &test_case).code, MLA_OK);
    const mla_subject subject = {.spec = plugin, .opened = mla_ok(), .worker = worker};
    mla_run_case(&subject, &test_case, NULL, &result);
}

static void expect_verdict(mla_verdict_status status, const char *reason) {
    cr_expect_eq(result.verdict.status, status, "%s: %s", mla_verdict_name(result.verdict.status), result.verdict.reason);
    cr_expect(strstr(result.verdict.reason, reason), "'%s' is not in '%s'", reason, result.verdict.reason);
}

static void expect_loss(const char *line, mla_verdict_status status, const char *reason) {
    grade(line);
    expect_verdict(status, reason);
    cr_expect_not(result.measured);
    grade("heads=1 kv_len=5");
    expect_verdict(MLA_PASSED, "");
}

Test(worker, a_crash_costs_one_case) {
    expect_loss("heads=2 kv_len=5", MLA_CRASHED, "killed by SIGSEGV");
    expect_loss("heads=9 kv_len=5", MLA_CRASHED, "killed by SIGABRT");
}

Test(worker, so_does_leaving) {
    expect_loss("heads=4 kv_len=5", MLA_CRASHED, "exited with status 0 before the answer");
}

/* How such a process ends is anybody's guess: it may even hang in the handler of its own crash. */
Test(worker, so_does_scribbling_over_the_process) {
    cr_assert_eq(open_worker(5).code, MLA_OK);
    grade("heads=5 kv_len=5");
    cr_expect(result.verdict.status == MLA_CRASHED || result.verdict.status == MLA_TIMEOUT, "%s", mla_verdict_name(result.verdict.status));
    cr_expect_not(result.measured);
    grade("heads=1 kv_len=5");
    expect_verdict(MLA_PASSED, "");
}

Test(worker, so_does_garbage_in_the_answer) {
    expect_loss("heads=6 kv_len=5", MLA_CRASHED, "answered with garbage");
}

Test(worker, so_does_a_hang) {
    cr_assert_eq(open_worker(2).code, MLA_OK);
    expect_loss("heads=3 kv_len=5", MLA_TIMEOUT, "no sign of life for 2 s");
}

static char *json_of(const mla_result *r) {
    struct cJSON *report = mla_json_begin();
    cr_assert(mla_json_add(report, mla_json_result(r)));
    char *text = mla_json_print(report, &(mla_summary){.passed = 0});
    mla_json_free(report);
    return text;
}

Test(worker, the_result_is_the_one_of_the_process_itself) {
    mla_subject subject = {.spec = plugin};
    mla_result here;
    grade("heads=1 kv_len=17,0,300 seed=3");
    expect_verdict(MLA_PASSED, "");
    subject.opened = mla_kernel_open(plugin, &subject.handle);
    cr_assert_eq(subject.opened.code, MLA_OK);
    mla_run_case(&subject, &test_case, NULL, &here);
    result.seconds = here.seconds = 0;
    char *there_text = json_of(&result), *here_text = json_of(&here);
    cr_expect_str_eq(there_text, here_text);
    cr_expect(strstr(here_text, "\"status\":\t\"PASSED\""), "%s", here_text);
    cr_expect_arr_eq(here.measure.ulp_histogram, result.measure.ulp_histogram, sizeof here.measure.ulp_histogram);
    cr_expect_arr_eq(here.measure.sequences, result.measure.sequences, 4 * sizeof(mla_counts));
    free(there_text);
    free(here_text);
    mla_result_free(&here);
    mla_kernel_close(&subject.handle);
}

/* The kernel counts its calls: the count starts anew in a new process. */
Test(worker, only_a_process_that_may_be_spoilt_is_replaced) {
    grade("heads=1 kv_len=5");
    grade("heads=1 kv_len=5");
    grade("heads=8 kv_len=5");
    expect_verdict(MLA_ERROR, "call 3");
    grade("heads=8 kv_len=5");
    expect_verdict(MLA_ERROR, "call 1");
    grade("heads=1 kv_len=5");
    grade("heads=7 kv_len=5");
    expect_verdict(MLA_FAILED, "wrote outside lse: byte -1");
    grade("heads=8 kv_len=5");
    expect_verdict(MLA_ERROR, "call 1");
}

Test(worker, opening_that_crashes_or_hangs_is_refused) {
    setenv("MLA_TEST_OPENING", "crash", 1);
    mla_status status = open_worker(60);
    cr_expect_eq(status.code, MLA_EINVAL);
    cr_expect(strstr(status.message, "CRASHED while it was opened: killed by SIGSEGV"), "%s", status.message);
    cr_expect_null(worker);
    setenv("MLA_TEST_OPENING", "hang", 1);
    status = open_worker(1);
    cr_expect(strstr(status.message, "TIMEOUT while it was opened"), "%s", status.message);
}

Test(worker, opening_fails_as_in_the_process_itself) {
    mla_status status = mla_worker_open("nosuch", &(mla_worker_options){.program = verify}, &worker);
    cr_expect_eq(status.code, MLA_EINVAL);
    cr_expect(strstr(status.message, "no kernel 'nosuch'"), "%s", status.message);
    status = mla_worker_open(plugin, &(mla_worker_options){.program = "/nowhere/mla-verify"}, &worker);
    cr_expect_eq(status.code, MLA_EIO);
    cr_expect(strstr(status.message, "cannot be started"), "%s", status.message);
}

/* ---- frames ------------------------------------------------------------------------------------------------------------------------------ */

static mla_reception receive(size_t most, const void *sent, size_t bytes, bool hang_up) {
    int pair[2];
    mla_frame frame;
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    cr_assert_eq(write(pair[0], sent, bytes), (ssize_t)bytes);
    if (hang_up)
        close(pair[0]);
    const mla_reception reception = mla_frame_receive(pair[1], most, 0.05, &frame);
    cr_expect_null(frame.data);
    close(pair[1]);
    if (!hang_up)
        close(pair[0]);
    return reception;
}

Test(wire, what_is_no_frame_is_not_taken_for_one) {
    int pair[2];
    char bytes[64];
    mla_frame frame;
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    cr_assert(mla_frame_send(pair[0], MLA_FRAME_CASE, "heads=1", 7));
    const ssize_t length = read(pair[1], bytes, sizeof bytes);
    cr_assert(mla_frame_send(pair[0], MLA_FRAME_CASE, "heads=1", 7));
    cr_assert_eq(mla_frame_receive(pair[1], 7, 0, &frame), MLA_RECEIVED);
    cr_expect_str_eq(frame.data, "heads=1");
    free(frame.data);
    cr_expect_eq(receive(6, bytes, (size_t)length, false), MLA_UNINTELLIGIBLE);
    cr_expect_eq(receive(7, "heads=1 heads=1 heads=1", 23, false), MLA_UNINTELLIGIBLE);
    cr_expect_eq(receive(7, bytes, (size_t)length - 1, false), MLA_SILENT);
    cr_expect_eq(receive(7, bytes, (size_t)length - 1, true), MLA_HUNG_UP);
    cr_expect_eq(receive(7, bytes, 0, false), MLA_SILENT);
    bytes[0] ^= 1;
    cr_expect_eq(receive(7, bytes, (size_t)length, false), MLA_UNINTELLIGIBLE);
    close(pair[1]);
    cr_expect_not(mla_frame_send(pair[0], MLA_FRAME_CASE, "heads=1", 7));
    close(pair[0]);
}

Test(wire, a_malformed_result_is_refused) {
    mla_counts counts[3] = {{.total = 1}, {.total = 2}, {.total = 3}};
    mla_result sent = {.measured = true, .measure = {.batch = 2, .rows = 7, .sequences = counts}}, got = {.test = &(mla_case){.batch = 2}};
    size_t bytes;
    char *packed = mla_result_pack(&sent, &bytes);
    mla_verdict *verdict = (mla_verdict *)packed; /* comes first */
    cr_expect_eq(bytes, mla_result_packed_bytes(2, false));
    cr_expect_not(mla_result_unpack(packed, bytes - 1, &got));
    cr_expect_not(mla_result_unpack(packed, 3, &got));
    verdict->status = MLA_VERDICT_STATUSES;
    cr_expect_not(mla_result_unpack(packed, bytes, &got));
    verdict->status = MLA_PASSED;
    memset(verdict->reason, 'x', sizeof verdict->reason);
    cr_expect_not(mla_result_unpack(packed, bytes, &got));
    verdict->reason[0] = verdict->reason[sizeof verdict->reason - 1] = '\0';
    got.test = &(mla_case){.batch = 1};
    cr_expect_not(mla_result_unpack(packed, bytes, &got));
    got.test = &(mla_case){.batch = 2};
    cr_assert(mla_result_unpack(packed, bytes, &got));
    cr_expect(got.measured && got.measure.rows == 7 && got.measure.sequences[2].total == 3);
    mla_measure_free(&got.measure);
    free(packed);
}
