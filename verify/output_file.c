#include "output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_stdout(const char *path) {
    return strcmp(path, "-") == 0;
}

mla_status mla_output_file_check(const char *path) {
    if (is_stdout(path))
        return mla_ok();
    if (!*path)
        return mla_error(MLA_EINVAL, "an empty file name cannot be written");
    struct stat info;
    bool exists = stat(path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode))
        return mla_error(MLA_EINVAL, "%s is a folder", path);
    if (exists && !S_ISREG(info.st_mode))
        return access(path, W_OK) == 0 ? mla_ok() : mla_error(MLA_EIO, "cannot write %s: %s", path, strerror(errno));
    char *copy = strdup(path);
    if (!copy)
        return mla_error(MLA_ENOMEM, "no memory for a file name");
    bool writable = access(dirname(copy), W_OK | X_OK) == 0;
    int reason = errno;
    free(copy);
    return writable ? mla_ok() : mla_error(MLA_EIO, "cannot write %s: %s", path, strerror(reason));
}

mla_status mla_output_folder_make(const char *name, const char *path) {
    struct stat info;
    if (mkdir(path, 0777) == 0)
        return mla_ok();
    if (errno != EEXIST)
        return mla_error(MLA_EIO, "%s %s: cannot make this folder: %s", name, path, strerror(errno));
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return mla_error(MLA_EINVAL, "%s %s: not a folder", name, path);
    return access(path, W_OK | X_OK) == 0 ? mla_ok() : mla_error(MLA_EIO, "%s %s: cannot write there: %s", name, path, strerror(errno));
}

static bool write_all(int fd, const char *text, size_t bytes) {
    while (bytes > 0) {
        ssize_t written = write(fd, text, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        text += written;
        bytes -= (size_t)written;
    }
    return true;
}

/* mkstemp makes files for the owner alone; a report gets the permissions any new file would have. */
static bool open_to_all(int fd) {
    mode_t mask = umask(0);
    umask(mask);
    return fchmod(fd, 0666 & ~mask) == 0;
}

/* A device or a pipe is written, never replaced. */
static mla_status write_in_place(const char *path, const char *text, size_t bytes) {
    int fd = open(path, O_WRONLY);
    bool good = fd >= 0 && write_all(fd, text, bytes);
    int reason = errno;
    if (fd >= 0 && close(fd) != 0 && good) {
        good = false;
        reason = errno;
    }
    return good ? mla_ok() : mla_error(MLA_EIO, "cannot write %s: %s", path, strerror(reason));
}

static bool write_parts(int fd, const mla_output_part *parts, int count) {
    bool good = true;
    for (int i = 0; i < count && good; i++)
        good = write_all(fd, parts[i].data, parts[i].bytes);
    return good;
}

static mla_status write_and_rename(const char *path, char *temporary, const mla_output_part *parts, int count) {
    int fd = mkstemp(temporary);
    if (fd < 0)
        return mla_error(MLA_EIO, "cannot write %s: %s", path, strerror(errno));
    bool good = write_parts(fd, parts, count) && open_to_all(fd) && fsync(fd) == 0;
    good = close(fd) == 0 && good;
    good = good && rename(temporary, path) == 0;
    if (good)
        return mla_ok();
    mla_status status = mla_error(MLA_EIO, "cannot write %s: %s", path, strerror(errno));
    unlink(temporary);
    return status;
}

mla_status mla_output_file_write_parts(const char *path, const mla_output_part *parts, int count) {
    char *temporary = NULL;
    if (asprintf(&temporary, "%s.XXXXXX", path) < 0)
        return mla_error(MLA_ENOMEM, "no memory for a file name");
    mla_status status = write_and_rename(path, temporary, parts, count);
    free(temporary);
    return status;
}

mla_status mla_output_file_write(const char *path, const char *text, size_t bytes) {
    if (is_stdout(path)) {
        bool good = fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0;
        return good ? mla_ok() : mla_error(MLA_EIO, "cannot write standard output: %s", strerror(errno));
    }
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return write_in_place(path, text, bytes);
    return mla_output_file_write_parts(path, &(mla_output_part){text, bytes}, 1);
}
