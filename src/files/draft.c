/* SPDX-License-Identifier: Apache-2.0 */
#include "files/draft.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/auto.h"

static int open_draft(const struct fs *fs, int dir, mode_t mode, int model, uint64_t room,
                      struct draft *ret_draft)
{
    *ret_draft = (struct draft){.fs = fs, .fd = -1, .dir = dir};
    int fd = fs->draft(fs, dir, mode, model, room, ret_draft->temp);
    if (fd < 0)
        return fd;
    ret_draft->fd = fd;
    return 0;
}

int draft_open(const struct fs *fs, int dir, mode_t mode, struct draft *ret_draft)
{
    return open_draft(fs, dir, mode, -1, 0, ret_draft);
}

int draft_open_like(int dir, const struct target *target, uint64_t room,
                    struct draft *ret_draft)
{
    return open_draft(target->fs, dir, 0666, target->fd, room, ret_draft);
}

int draft_like(const struct draft *draft, const struct target *target)
{
    return draft->fs->like(draft->fs, draft->fd, target->fd);
}

int draft_commit(struct draft *draft, const char *name, enum draft_commit how,
                 bool durable)
{
    const struct fs *fs = draft->fs;
    AUTO_FD dir = -1;
    bool copied;

    if (durable) { /* what can fail does so before the name means the new file */
        dir = fs->reopen(fs, draft->dir, O_RDONLY | O_DIRECTORY, &copied);
        if (dir < 0)
            return dir;
        if (fsync(draft->fd) != 0)
            return -errno;
    }
    int error =
        fs->commit(fs, draft->fd, draft->dir, draft->temp, name, how == DRAFT_REPLACE);
    if (!error)
        draft->temp[0] = '\0';
    if (error || !durable)
        return error;
    return fsync(dir) == 0 ? 0 : -errno;
}

void draft_done(struct draft *draft)
{
    if (draft->temp[0])
        (void)draft->fs->remove(draft->fs, draft->dir, draft->temp, 0);
    draft->temp[0] = '\0';
    if (draft->fd >= 0)
        (void)close(draft->fd);
    draft->fd = -1;
}
