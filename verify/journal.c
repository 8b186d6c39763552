#include "journal.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "../ref/try.h"

static mla_status io_error(const mla_journal *j) {
    return mla_error(MLA_EIO, "cannot use the journal %.150s: %s", j->path, strerror(errno));
}

/* ---- writing --------------------------------------------------------------------------------------------------------------------------- */

/* In one call, so that a line is whole unless the machine itself stops. */
static mla_status write_line(mla_journal *j, const cJSON *object) {
    char *text = cJSON_PrintUnformatted(object);
    const size_t length = text ? strlen(text) : 0;
    if (!text)
        return mla_error(MLA_ENOMEM, "no memory for a line of the journal");
    text[length] = '\n'; /* in place of the zero byte */
    errno = ENOSPC;      /* what a short count means */
    const bool written = write(j->file, text, length + 1) == (ssize_t)(length + 1) && fdatasync(j->file) == 0;
    free(text);
    return written ? mla_ok() : io_error(j);
}

mla_status mla_journal_add(mla_journal *journal, const struct cJSON *result) {
    return write_line(journal, result);
}

/* ---- reading --------------------------------------------------------------------------------------------------------------------------- */

static mla_status check_description(const mla_journal *j, const cJSON *found) {
    const mla_shard mine = mla_ledger_shard(j->finished.run), theirs = mla_ledger_shard(found);
    if (!cJSON_IsObject(found) || theirs.count == 0)
        return mla_error(MLA_EINVAL, "%.150s is no journal", j->path);
    if (mla_ledger_same_run(&j->finished, found) && mine.index == theirs.index)
        return mla_ok();
    return mla_error(MLA_EINVAL, "%.150s is the journal of another run: other cases or kernels, or shard %d/%d instead of %d/%d", j->path,
                     theirs.index, theirs.count, mine.index, mine.count);
}

static mla_status read_line(mla_journal *j, const char *line, int number) {
    cJSON *object = cJSON_ParseWithOpts(line, NULL, true);
    if (number == 1) {
        const mla_status status = check_description(j, object);
        cJSON_Delete(object);
        return status;
    }
    const mla_status status = mla_ledger_put(&j->finished, object);
    return status.code == MLA_OK ? status : mla_error(status.code, "%.100s:%d: %s", j->path, number, status.message);
}

/* Reads all whole lines, and cuts off what comes after the last. */
static mla_status read_lines(mla_journal *j, FILE *file) {
    char *line = NULL;
    size_t size = 0;
    off_t whole = 0;
    int number = 0;
    mla_status status = mla_ok();
    for (ssize_t length; status.code == MLA_OK && (length = getline(&line, &size, file)) > 0 && line[length - 1] == '\n'; whole += length)
        status = read_line(j, line, ++number);
    free(line);
    TRY(status);
    if (ferror(file) || ftruncate(j->file, whole) != 0)
        return io_error(j);
    return number > 0 ? mla_ok() : write_line(j, j->finished.run);
}

static mla_status open_file(mla_journal *j) {
    j->file = open(j->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (j->file < 0)
        return io_error(j);
    if (flock(j->file, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? mla_error(MLA_EIO, "the journal %.150s is in use by another process", j->path) : io_error(j);
    return mla_ok();
}

mla_status mla_journal_open(const char *path, struct cJSON *run, mla_journal *journal) {
    *journal = (mla_journal){.path = path, .file = -1};
    TRY(mla_ledger_make(run, &journal->finished));
    TRY(open_file(journal));
    FILE *file = fopen(path, "r");
    if (!file)
        return io_error(journal);
    const mla_status status = read_lines(journal, file);
    fclose(file);
    return status;
}

void mla_journal_close(mla_journal *journal) {
    if (journal->file >= 0)
        close(journal->file);
    mla_ledger_free(&journal->finished);
    journal->file = -1;
}
