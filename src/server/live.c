/* SPDX-License-Identifier: Apache-2.0 */
#include "server/live.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"

enum { LINE = PATH_MAX + 512 };

static char path[PATH_MAX + 32];
static int held = -1;

void live_write(const struct serve_options *options, const char *store)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char line[LINE];

    snprintf(path, sizeof path, "%s/serve-%u.live", options->home, options->port);
    held = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (held < 0)
        return;
    if (fcntl(held, F_OFD_SETLK, &lock) != 0) { /* another server has the same port */
        (void)close(held);
        held = -1;
        return;
    }
    int len = snprintf(line, sizeof line, "%s %u %d %s\n%s\n", options->address,
                       options->port, options->tls_cert != NULL,
                       options->domain ? options->domain : "-", store);
    if (ftruncate(held, 0) != 0 || pwrite(held, line, (size_t)len, 0) != len)
        (void)!ftruncate(held, 0);
}

void live_remove(void)
{
    if (held < 0)
        return;
    (void)unlink(path);
    (void)close(held);
    held = -1;
}

/* "127.0.0.1 3000 0 boxes.example.com\nSTORE\n" */
static bool parse(char *text, const char *store, struct live *ret_live)
{
    char *rest = text, *end;
    const char *address = strsep(&rest, " "), *port = strsep(&rest, " ");
    const char *tls = strsep(&rest, " "), *domain = strsep(&rest, "\n");
    const char *path_of_store = strsep(&rest, "\n");

    if (!path_of_store || !rest || strcmp(path_of_store, store) != 0)
        return false;
    ret_live->port = (unsigned)strtoul(port, &end, 10);
    ret_live->has_tls = strcmp(tls, "1") == 0;
    cay_copy_text(ret_live->address, sizeof ret_live->address, address);
    cay_copy_text(ret_live->domain, sizeof ret_live->domain,
                  strcmp(domain, "-") == 0 ? "" : domain);
    return *end == '\0' && ret_live->port > 0 && ret_live->port <= UINT16_MAX;
}

static bool read_live(int dir, const char *name, const char *store, struct live *ret_live)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    AUTO_FD fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char line[LINE] = "";

    return fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK &&
           read(fd, line, sizeof line - 1) > 0 && parse(line, store, ret_live);
}

unsigned live_find(const char *home, const char *store, struct live *ret_live)
{
    const struct dirent *entry;
    unsigned count = 0;
    DIR *dir = opendir(home);

    while (dir && (entry = readdir(dir))) {
        struct live live;
        if (fnmatch("serve-*.live", entry->d_name, 0) == 0 &&
            read_live(dirfd(dir), entry->d_name, store, &live)) {
            *ret_live = live;
            count++;
        }
    }
    if (dir)
        (void)closedir(dir);
    return count;
}
