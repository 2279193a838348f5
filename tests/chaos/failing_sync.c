/* Preloaded into the broker: while the file named by FAILING_SYNC_WHEN exists, syncing a file whose path holds
   FAILING_SYNC_PATH fails with EIO. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(int fd) {
    const char *when = getenv("FAILING_SYNC_WHEN"), *part = getenv("FAILING_SYNC_PATH");
    char link[64], path[PATH_MAX];
    if (!when || !part || access(when, F_OK) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, part) != NULL;
}

static int sync_or_fail(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    if (!fails(fd)) return real(fd);
    errno = EIO;
    return -1;
}

int fsync(int fd) { return sync_or_fail("fsync", fd); }
int fdatasync(int fd) { return sync_or_fail("fdatasync", fd); }
