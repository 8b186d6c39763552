#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "wire.h"

extern char **environ;

#define PATIENCE 5000 /* pauses of 2 ms for a process to end */

struct mla_worker {
    const char *spec;
    mla_worker_options options;
    pid_t pid; /* 0: there is no process */
    int socket;
};

/* ---- the process ------------------------------------------------------------------------------------------------------------------------ */

/* Its standard output is the verifier's standard error: a kernel that prints must not print into a report. */
static int spawn(const mla_worker *w, int socket, pid_t *pid) {
    char *const arguments[] = {"mla-verify", "worker", (char *)(uintptr_t)w->spec, NULL};
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return error;
    error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, socket, MLA_WORKER_SOCKET);
    if (!error)
        error = posix_spawn(pid, w->options.program ? w->options.program : "/proc/self/exe", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static mla_status start(mla_worker *w) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return mla_error(MLA_EIO, "no socket for a worker: %s", strerror(errno));
    const int error = spawn(w, pair[1], &w->pid);
    close(pair[1]);
    if (!error) {
        w->socket = pair[0];
        return mla_ok();
    }
    close(pair[0]);
    w->pid = 0;
    return mla_error(MLA_EIO, "a worker cannot be started: %s", strerror(error));
}

/* Waits for the process to end by itself; false when it does not. */
static bool reap(pid_t pid, int *how) {
    const struct timespec pause = {.tv_nsec = 2000000};
    for (int pauses = 0; pauses < PATIENCE; pauses++) {
        const pid_t ended = waitpid(pid, how, WNOHANG);
        if (ended == pid || (ended < 0 && errno != EINTR))
            return ended == pid;
        nanosleep(&pause, NULL);
    }
    return false;
}

/* Hangs up, and ends the process: at once, or when it is done. One that a driver does not let die is left behind. False: how it ended is not known. */
static bool stop(mla_worker *w, bool at_once, int *how) {
    const pid_t pid = w->pid;
    close(w->socket);
    w->pid = 0;
    if (at_once)
        kill(pid, SIGKILL);
    if (reap(pid, how))
        return true;
    kill(pid, SIGKILL);
    return reap(pid, how);
}

/* ---- what became of it -------------------------------------------------------------------------------------------------------------------- */

static mla_verdict crashed(bool known, int how) {
    char reason[120] = "its process does not end";
    if (known && WIFSIGNALED(how))
        snprintf(reason, sizeof reason, "killed by SIG%s (%s)", sigabbrev_np(WTERMSIG(how)) ? sigabbrev_np(WTERMSIG(how)) : "?",
                 strsignal(WTERMSIG(how)));
    else if (known)
        snprintf(reason, sizeof reason, "its process exited with status %d before the answer", WEXITSTATUS(how));
    return mla_verdict_make(MLA_CRASHED, reason);
}

/* The worker did not answer as it should: ends it and says why. */
static mla_verdict give_up(mla_worker *w, mla_reception reception) {
    int how = 0;
    const bool known = stop(w, reception != MLA_HUNG_UP, &how);
    char reason[120];
    if (reception == MLA_HUNG_UP)
        return crashed(known, how);
    if (reception == MLA_UNINTELLIGIBLE)
        return mla_verdict_make(MLA_CRASHED, "its process answered with garbage");
    snprintf(reason, sizeof reason, "no sign of life for %g s: killed", w->options.timeout);
    return mla_verdict_make(MLA_TIMEOUT, reason);
}

static mla_status refuse(const mla_worker *w, mla_verdict verdict) {
    return mla_error(MLA_EINVAL, "%.120s: %s while it was opened: %.100s", w->spec, mla_verdict_name(verdict.status), verdict.reason);
}

/* Starts a process and waits until it has opened the kernel. */
static mla_status open_kernel(mla_worker *w) {
    mla_frame frame;
    mla_status opened = start(w);
    if (opened.code != MLA_OK)
        return opened;
    mla_reception reception = mla_frame_receive(w->socket, sizeof opened, w->options.timeout, &frame);
    if (reception == MLA_RECEIVED && (frame.kind != MLA_FRAME_OPENED || frame.bytes != sizeof opened))
        reception = MLA_UNINTELLIGIBLE;
    if (reception == MLA_RECEIVED) {
        memcpy(&opened, frame.data, sizeof opened);
        opened.message[sizeof opened.message - 1] = '\0';
        if (opened.code != MLA_OK)
            stop(w, false, &(int){0});
    } else {
        opened = refuse(w, give_up(w, reception));
    }
    free(frame.data);
    return opened;
}

/* ---- cases ---------------------------------------------------------------------------------------------------------------------------------- */

/* The next answer but signs of life. */
static mla_reception receive_result(mla_worker *w, bool pictures, mla_progress *progress, mla_result *result) {
    for (;;) {
        mla_frame frame;
        double share = 0;
        const mla_reception reception =
            mla_frame_receive(w->socket, mla_result_packed_bytes(result->test->batch, pictures), w->options.timeout, &frame);
        bool understood = reception == MLA_RECEIVED;
        if (understood && frame.kind == MLA_FRAME_ALIVE && frame.bytes == sizeof share) {
            memcpy(&share, frame.data, sizeof share);
            understood = share >= 0 && share <= 1;
        } else if (understood) {
            understood = frame.kind == MLA_FRAME_RESULT && mla_result_unpack(frame.data, frame.bytes, result);
        }
        const bool finished = !understood || frame.kind == MLA_FRAME_RESULT;
        free(frame.data);
        if (finished)
            return reception == MLA_RECEIVED && !understood ? MLA_UNINTELLIGIBLE : reception;
        mla_progress_update(progress, share);
    }
}

/* After damage to memory, or an error, which may be a device's, nothing more is believed of the process. */
static bool is_spoilt(const mla_result *result) {
    return result->verdict.status == MLA_ERROR || *result->integrity.guard_touched || *result->integrity.input_changed;
}

/* Line, folder, when to use it, whether to draw, and contract, each with a zero byte behind it. */
static bool send_case(const mla_worker *w, const mla_subject *subject, const char *line) {
    char *text = NULL;
    const int length =
        asprintf(&text, "%s%c%s%c%s%c%s%c%s", line, 0, subject->outputs ? subject->outputs : "", 0, subject->only_failing ? "failing" : "",
                 0, subject->pictures ? "pictures" : "", 0, subject->contract ? subject->contract : "");
    const bool sent = length >= 0 && mla_frame_send(w->socket, MLA_FRAME_CASE, text, (size_t)length);
    free(text);
    return sent;
}

void mla_worker_run(mla_worker *w, const mla_subject *subject, mla_progress *progress, mla_result *result) {
    const mla_status opened = w->pid ? mla_ok() : open_kernel(w);
    if (opened.code != MLA_OK) {
        result->verdict = mla_verdict_make(MLA_ERROR, opened.message);
        return;
    }
    const bool sent = send_case(w, subject, result->case_line);
    const mla_reception reception = sent ? receive_result(w, subject->pictures, progress, result) : MLA_HUNG_UP;
    if (reception != MLA_RECEIVED)
        result->verdict = give_up(w, reception);
    else if (is_spoilt(result))
        stop(w, true, &(int){0});
}

mla_status mla_worker_open(const char *spec, const mla_worker_options *options, mla_worker **worker) {
    mla_worker *w = malloc(sizeof *w);
    *worker = NULL;
    if (!w)
        return mla_error(MLA_ENOMEM, "no memory for a worker");
    *w = (mla_worker){.spec = spec, .options = *options};
    const mla_status opened = open_kernel(w);
    if (opened.code == MLA_OK)
        *worker = w;
    else
        free(w);
    return opened;
}

void mla_worker_close(mla_worker *w) {
    if (w && w->pid)
        stop(w, false, &(int){0});
    free(w);
}
