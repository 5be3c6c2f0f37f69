/* SPDX-License-Identifier: Apache-2.0 */

/* No memory for what changes files, and for archives. */
#include <sys/mman.h>
#include <unistd.h>

#include "survive.h"

/* --- Writing ----------------------------------------------------------------------- */

static int write_to(const char *path, unsigned flags)
{
    const struct cay_write_options options = {.size = sizeof options, .flags = flags};

    return cay_files_write(files, path, "new content\n", 12, &options, &err);
}

SURVIVES(replacing_a_file, WHOLE)
{
    return write_to("data/a.txt", CAY_WRITE_DURABLE);
}

SURVIVES(replacing_through_a_link, WHOLE)
{
    return write_to("data/link.txt", 0);
}

SURVIVES(a_new_file_with_its_parents, WHOLE)
{
    return write_to("data/x/y/z.txt", CAY_WRITE_NEW);
}

SURVIVES(overwriting_in_place, WHOLE)
{
    return write_to("data/a.txt", CAY_WRITE_IN_PLACE);
}

SURVIVES(appending, WHOLE)
{
    return write_to("data/a.txt", CAY_WRITE_APPEND);
}

SURVIVES(writing_many, PARTS)
{
    struct cay_write_item items[] = {{.path = "data/a.txt", .data = "A", .len = 1},
                                     {.path = "other/b.txt", .data = "B", .len = 1}};
    int code = cay_files_write_many(files, items, 2, NULL, &err);

    if (!code)
        ASSERT_INT(items[0].error.code + items[1].error.code, 0);
    return code;
}

#define EDIT(old, new, edit_flags)                                                       \
    {                                                                                    \
        .old_text = (old), .old_len = strlen(old), .new_text = (new),                    \
        .new_len = strlen(new), .flags = (edit_flags)                                    \
    }

static int edit(const char *path, const struct cay_edit *edits, size_t count,
                unsigned flags)
{
    const struct cay_write_options options = {.size = sizeof options, .flags = flags};

    return cay_files_edit(files, path, edits, count, &options, NULL, &err);
}

SURVIVES(an_edit, WHOLE)
{
    return edit("data/a.txt", (struct cay_edit[]){EDIT("beta", "gamma", 0)}, 1, 0);
}

SURVIVES(an_edit_of_dos_lines, WHOLE)
{
    return edit("data/dos.txt", (struct cay_edit[]){EDIT("one\n", "1\n2\n", 0)}, 1, 0);
}

SURVIVES(a_list_of_edits, WHOLE)
{
    return edit("data/a.txt",
                (struct cay_edit[]){EDIT("beta", "gamma", CAY_EDIT_EXACT),
                                    EDIT("alpha", "delta", CAY_EDIT_ALL)},
                2, CAY_WRITE_DURABLE);
}

SURVIVES(an_edit_in_place, WHOLE)
{
    return edit("data/a.txt", (struct cay_edit[]){EDIT("beta", "b", 0)}, 1,
                CAY_WRITE_IN_PLACE);
}

/* --- Names ------------------------------------------------------------------------- */

static const struct cay_name_options *named(unsigned flags)
{
    static struct cay_name_options options;

    options = (struct cay_name_options){.size = sizeof options, .flags = flags};
    return &options;
}

SURVIVES(deleting_a_file, WHOLE)
{
    return cay_files_delete(files, "data/a.txt", NULL, &err);
}

SURVIVES(deleting_a_link, WHOLE)
{
    return cay_files_delete(files, "data/link.txt", NULL, &err);
}

SURVIVES(deleting_a_directory, WHOLE)
{
    return cay_files_delete(files, "data/dir", named(CAY_NAME_RECURSIVE), &err);
}

SURVIVES(moving_a_file, WHOLE)
{
    return cay_files_move(files, "data/a.txt", "other/x/a.txt", NULL, &err);
}

SURVIVES(moving_a_file_to_another_file_system, WHOLE)
{
    far_apart = true;
    return cay_files_move(files, "data/a.txt", "other/x/a.txt", NULL, &err);
}

SURVIVES(moving_a_directory, WHOLE)
{
    return cay_files_move(files, "data/dir", "data/moved", named(CAY_NAME_DIRECTORY),
                          &err);
}

SURVIVES(copying, WHOLE)
{
    return cay_files_copy(files, "data/large.txt", "other/x/y.txt", NULL, &err);
}

SURVIVES(copying_to_another_file_system, WHOLE)
{
    far_apart = true;
    return cay_files_copy(files, "data/large.txt", "other/x/y.txt", NULL, &err);
}

SURVIVES(making_a_directory, WHOLE)
{
    return cay_files_mkdir(files, "data/x/y", NULL, &err);
}

/* --- Archives ---------------------------------------------------------------------- */

SURVIVES(exporting, WHOLE)
{
    struct cay_tar_result result;
    AUTO_FD fd = memfd_create("tar", MFD_CLOEXEC);
    int code = cay_files_export(files, "data", fd, NULL, &result, &err);

    if (!code)
        ASSERT_INT(result.entries, 8);
    return code;
}

/* An archive of data/, made once. */
static int archive = -1;

static int import(void)
{
    struct cay_tar_result result;

    ASSERT(lseek(archive, 0, SEEK_SET) == 0);
    int code = cay_files_import(files, "other/in", archive, NULL, &result, &err);
    if (!code)
        ASSERT_INT(result.entries, 8);
    return code;
}

TEST(importing_survives_any_failing_allocation)
{
    struct cay_tar_result result;

    make_world();
    open_world();
    archive = memfd_create("tar", MFD_CLOEXEC);
    ASSERT_OK(cay_files_export(files, "data", archive, NULL, &result, &err));
    close_world();
    survive(import, PARTS, &err);
    close(archive);
}
