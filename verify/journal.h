/*
 * The journal of a long run: what is finished, so that a later run goes on from there. One line of JSON a result, after a line that describes the run;
 * lines are only ever added, each synced to the disk. A line that was cut off in the middle is taken for none.
 */
#ifndef MLA_JOURNAL_H
#define MLA_JOURNAL_H

#include "ledger.h"

typedef struct mla_journal {
    const char *path;
    int file;
    mla_ledger finished;
} mla_journal;

/*
 * Opens `path`, or makes it, and reads what is finished; the file stays locked. Takes the description `run`, also when it fails. MLA_EINVAL: it is no
 * journal, or that of another run or shard; MLA_EIO: it cannot be used, or another process does. Close with mla_journal_close, also after failure.
 */
mla_status mla_journal_open(const char *path, struct cJSON *run, mla_journal *journal) MLA_CHECKED;
/* Returns when the result is on the disk. */
mla_status mla_journal_add(mla_journal *journal, const struct cJSON *result) MLA_CHECKED;
void mla_journal_close(mla_journal *journal);

#endif
