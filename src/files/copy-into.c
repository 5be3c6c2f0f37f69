/* SPDX-License-Identifier: Apache-2.0 */
#include "files/copy-into.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "sys/copy.h"

/* Holes from KEPT on are kept by copy_bytes(). */
enum { PIECE = 1 << 20, FIRST_PIECE = 64 << 10, KEPT = 256 << 10 };

/* How much of `from` comes next, up to `most`; *ret_is_hole if all of that is nothing. */
static uint64_t next_piece(int from, uint64_t most, bool is_first, bool *ret_is_hole)
{
    uint64_t piece = is_first ? FIRST_PIECE : PIECE;
    struct stat st;
    off_t at = lseek(from, 0, SEEK_CUR);

    *ret_is_hole = false;
    if (at >= 0 && fstat(from, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > at) {
        off_t data = lseek(from, at, SEEK_DATA);
        off_t end = data < 0 ? st.st_size : data;
        *ret_is_hole = end - at > KEPT && most > KEPT;
        if (!*ret_is_hole && (data = lseek(from, at, SEEK_HOLE)) > at)
            end = data;
        piece = *ret_is_hole || end - at < PIECE ? (uint64_t)(end - at) : PIECE;
        (void)lseek(from, at, SEEK_SET);
    }
    return piece < most ? piece : most;
}

static int end_of(int fd, bool appends, uint64_t *ret_at)
{
    struct stat st;
    off_t at = appends ? fstat(fd, &st) == 0 ? st.st_size : -1 : lseek(fd, 0, SEEK_CUR);

    *ret_at = at < 0 ? 0 : (uint64_t)at;
    return at < 0 ? -errno : 0;
}

int copy_into(const struct fs *fs, int from, int to, uint64_t max, uint64_t *ret_copied)
{
    bool appends = fcntl(to, F_GETFL) & O_APPEND, is_hole;
    uint64_t at, copied, piece = 0, taken = 0;

    if (!fs->take_room)
        return copy_bytes(from, to, max, ret_copied);
    *ret_copied = 0;
    do {
        int error = end_of(to, appends, &at);
        piece = next_piece(from, max - *ret_copied, taken == 0 || appends, &is_hole);
        if (!error && !is_hole)
            error = fs_take_room(fs, to, at, piece);
        if (!error)
            error = copy_bytes(from, to, piece, &copied);
        if (error)
            return error;
        taken = is_hole ? taken : at + piece;
        *ret_copied += copied;
    } while (copied == piece && *ret_copied < max);
    if (appends || at + copied >= taken)
        return 0;
    return ftruncate(to, (off_t)(at + copied)) == 0 ? 0 : -errno;
}
