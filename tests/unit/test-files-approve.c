/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policies.h"

enum { NOBODY = 65534 };

/* An approver that notes what it is asked and may do mischief before it answers. */
struct person {
    enum cay_verdict verdict;
    const char *note;
    void (*meanwhile)(void);
    unsigned asked;
    enum cay_op op;
    char summary[256], path[128], other[128], before[256], after[256];
};

static void keep_text(char *field, size_t room, const char *text)
{
    snprintf(field, room, "%s", text ? text : "(none)");
}

static enum cay_verdict decide(void *cookie, const struct cay_approval *request,
                               char note[CAY_NOTE_MAX])
{
    struct person *person = cookie;

    person->asked++;
    person->op = request->op;
    keep_text(person->summary, sizeof person->summary, request->summary);
    keep_text(person->path, sizeof person->path, request->path);
    keep_text(person->other, sizeof person->other, request->other);
    keep_text(person->before, sizeof person->before, request->before);
    keep_text(person->after, sizeof person->after, request->after);
    if (person->meanwhile)
        person->meanwhile();
    if (person->note)
        snprintf(note, CAY_NOTE_MAX, "%s", person->note);
    return person->verdict;
}

static cay_files *open_asking(struct person *person, bool reads_too)
{
    AUTO(cay_policy) policy = NULL;
    cay_files *files = NULL;
    struct cay_mount mount = CAY_MOUNT_INIT;
    const struct cay_policy_config config = {.size = sizeof config,
                                             .style = CAY_STYLE_PATHS,
                                             .mounts = &mount,
                                             .mount_count = 1,
                                             .base = scratch()};
    const struct cay_files_options options = {
        .size = sizeof options, .approver = person ? decide : NULL, .cookie = person};

    mount.name = mount.host = "data";
    mount.writable = true;
    mount.read_approval = reads_too;
    ASSERT_OK(cay_policy_new(&config, &policy, &err));
    ASSERT_OK(cay_files_open(policy, &options, &files, &err));
    return files;
}

static int write_x(cay_files *files, const char *path)
{
    return cay_files_write(files, path, "new", 3, NULL, &err);
}

static int edit_old(cay_files *files)
{
    const struct cay_edit edit = {"old", 3, "new", 3, 0};

    return cay_files_edit(files, "data/a", &edit, 1, NULL, NULL, &err);
}

TEST(a_yes_lets_the_write_happen_and_the_person_saw_it)
{
    struct person person = {.verdict = CAY_VERDICT_APPROVE};
    AUTO(cay_files) files = open_asking(&person, false);

    ASSERT_OK(write_x(files, "data/a"));
    ASSERT_INT(person.asked, 1);
    ASSERT_INT(person.op, CAY_OP_WRITE);
    ASSERT_STR(person.summary, "Write 3 chars to data/a");
    ASSERT_STR(person.after, "new");
    ASSERT_STR(get_file("data/a"), "new");
}

TEST(a_no_leaves_everything_and_tells_the_reason)
{
    struct person person = {.verdict = CAY_VERDICT_DENY, .note = "not on Sundays"};
    AUTO(cay_files) files = open_asking(&person, false);

    put_file("data/a", "old");
    ASSERT_CODE(write_x(files, "data/sub/b"), CAY_E_NOT_APPROVED);
    ASSERT_HAS(err.hint, "not on Sundays");
    ASSERT(access(scratch_path("data/sub"), F_OK) != 0);
    ASSERT_CODE(edit_old(files), CAY_E_NOT_APPROVED);
    ASSERT_CODE(cay_files_delete(files, "data/a", NULL, &err), CAY_E_NOT_APPROVED);
    ASSERT_CODE(cay_files_move(files, "data/a", "data/b", NULL, &err),
                CAY_E_NOT_APPROVED);
    ASSERT_CODE(cay_files_copy(files, "data/a", "data/b", NULL, &err),
                CAY_E_NOT_APPROVED);
    ASSERT_CODE(cay_files_mkdir(files, "data/d", NULL, &err), CAY_E_NOT_APPROVED);
    ASSERT_INT(person.asked, 6);
    ASSERT_STR(get_file("data/a"), "old");
}

TEST(without_anybody_to_ask_the_answer_is_no)
{
    AUTO(cay_files) files = open_asking(NULL, false);

    ASSERT_CODE(write_x(files, "data/a"), CAY_E_NOT_APPROVED);
    ASSERT(access(scratch_path("data/a"), F_OK) != 0);
}

TEST(a_remembered_yes_holds_for_that_path_and_that_access)
{
    struct person person = {.verdict = CAY_VERDICT_REMEMBER};
    AUTO(cay_files) files = open_asking(&person, true);
    struct cay_page page;

    ASSERT_OK(write_x(files, "data/a"));
    ASSERT_OK(write_x(files, "data/a"));
    ASSERT_INT(person.asked, 1);
    ASSERT_OK(write_x(files, "data/b"));
    ASSERT_INT(person.asked, 2);
    ASSERT_OK(cay_files_read(files, "data/a", NULL, &page, &err));
    cay_page_done(&page);
    ASSERT_INT(person.asked, 3);

    AUTO(cay_files) child = NULL;
    const struct cay_derive wish = {.size = sizeof wish, .inherit = true};
    ASSERT_OK(cay_files_derive(files, &wish, &child, &err));
    ASSERT_OK(write_x(child, "data/a"));
    ASSERT_INT(person.asked, 3);
}

TEST(a_clone_sees_the_same_and_asks_somebody_else)
{
    struct person first = {.verdict = CAY_VERDICT_REMEMBER};
    struct person second = {.verdict = CAY_VERDICT_APPROVE};
    const struct cay_files_options options = {
        .size = sizeof options, .approver = decide, .cookie = &second};
    const char *const entry = "data/report";
    const struct cay_derive wish = {
        .size = sizeof wish, .allow_write = &entry, .allow_write_count = 1};
    cay_files *files = open_asking(&first, false), *child;
    AUTO(cay_files) clone = NULL;

    ASSERT_OK(cay_files_derive(files, &wish, &child, &err));
    ASSERT_OK(write_x(child, "data/report"));
    ASSERT_OK(cay_files_clone(child, &options, &clone, &err));
    cay_files_free(child);
    cay_files_free(files);
    ASSERT_OK(write_x(clone, "data/report"));
    ASSERT_INT(first.asked, 1);
    ASSERT_INT(second.asked, 1);
    ASSERT_CODE(write_x(clone, "data/more"), CAY_E_READ_ONLY);

    const struct cay_files_options unknown = {.size = sizeof unknown, .flags = 1 << 9};
    ASSERT_CODE(cay_files_clone(clone, &unknown, &child, &err), CAY_E_UNSUPPORTED);
}

TEST(a_plain_yes_is_asked_for_again)
{
    struct person person = {.verdict = CAY_VERDICT_APPROVE};
    AUTO(cay_files) files = open_asking(&person, false);

    ASSERT_OK(write_x(files, "data/a"));
    ASSERT_OK(write_x(files, "data/a"));
    ASSERT_INT(person.asked, 2);
}

TEST(what_the_rules_refuse_is_never_asked_about)
{
    struct person person = {.verdict = CAY_VERDICT_APPROVE};
    AUTO(cay_files) files = open_asking(&person, false);

    put_file("data/a", "text");
    ASSERT_CODE(write_x(files, "etc/passwd"), CAY_E_OUTSIDE);
    ASSERT_CODE(edit_old(files), CAY_E_NO_MATCH);
    ASSERT_CODE(cay_files_delete(files, "data/none", NULL, &err), CAY_E_NOT_FOUND);
    ASSERT_INT(person.asked, 0);
}

TEST(an_edit_shows_the_file_before_and_after)
{
    struct person person = {.verdict = CAY_VERDICT_APPROVE};
    AUTO(cay_files) files = open_asking(&person, false);

    put_file("data/a", "the old text");
    ASSERT_OK(edit_old(files));
    ASSERT_STR(person.before, "the old text");
    ASSERT_STR(person.after, "the new text");
    ASSERT_STR(get_file("data/a"), "the new text");
    ASSERT_STR(person.summary, "Edit data/a: replace 3 chars with 3 chars");

    const struct cay_edit edit = {"e", 1, "\xC3\xBC", 2, CAY_EDIT_ALL};
    ASSERT_OK(cay_files_edit(files, "data/a", &edit, 1, NULL, NULL, &err));
    ASSERT_STR(person.summary, "Edit data/a: replace 1 chars with 1 chars everywhere");
}

TEST(an_append_shows_what_is_added)
{
    struct person person = {.verdict = CAY_VERDICT_APPROVE};
    AUTO(cay_files) files = open_asking(&person, false);
    const struct cay_write_options options = {.size = sizeof options,
                                              .flags = CAY_WRITE_APPEND};

    put_file("data/a", "old");
    ASSERT_OK(cay_files_write(files, "data/a", "new", 3, &options, &err));
    ASSERT_STR(person.summary, "Append 3 chars to data/a");
    ASSERT_STR(person.before, "(none)");
    ASSERT_STR(person.after, "new");
    ASSERT_STR(get_file("data/a"), "oldnew");
}

static void change_the_file(void)
{
    put_file("data/a", "The old text");
}

TEST(an_edit_of_a_file_that_changed_meanwhile_is_not_made)
{
    struct person person = {.verdict = CAY_VERDICT_APPROVE, .meanwhile = change_the_file};
    AUTO(cay_files) files = open_asking(&person, false);

    put_file("data/a", "the old text");
    ASSERT_CODE(edit_old(files), CAY_E_CHANGED);
    ASSERT_STR(get_file("data/a"), "The old text");
}

static void swap_for_a_link(void)
{
    ASSERT_INT(rename(scratch_path("data/a"), scratch_path("data/aside")), 0);
    ASSERT_INT(symlink("victim", scratch_path("data/a")), 0);
}

TEST(a_path_that_leads_elsewhere_after_the_yes_is_not_followed)
{
    struct person person = {.verdict = CAY_VERDICT_APPROVE, .meanwhile = swap_for_a_link};
    AUTO(cay_files) files = open_asking(&person, false);

    put_file("data/victim", "old");
    put_file("data/a", "old");
    ASSERT_CODE(write_x(files, "data/a"), CAY_E_CHANGED);
    ASSERT_STR(get_file("data/victim"), "old");
    ASSERT_STR(get_file("data/aside"), "old");
}

static void create_the_file(void)
{
    put_file("data/a", "somebody else's");
}

TEST(a_file_that_appears_after_the_yes_is_not_overwritten)
{
    struct person person = {.verdict = CAY_VERDICT_APPROVE, .meanwhile = create_the_file};
    AUTO(cay_files) files = open_asking(&person, false);

    ASSERT_CODE(write_x(files, "data/a"), CAY_E_CHANGED);
    ASSERT_STR(get_file("data/a"), "somebody else's");
}

TEST(moves_and_copies_name_both_ends)
{
    struct person person = {.verdict = CAY_VERDICT_APPROVE};
    AUTO(cay_files) files = open_asking(&person, false);

    put_file("data/a", "x");
    ASSERT_OK(cay_files_copy(files, "data/a", "data/b", NULL, &err));
    ASSERT_STR(person.summary, "Copy data/a to data/b");
    ASSERT_STR(person.other, "data/b");
    ASSERT_OK(cay_files_move(files, "data/a", "data/c", NULL, &err));
    ASSERT_STR(person.summary, "Move data/a to data/c");
}

TEST(a_pin_taken_earlier_holds_the_operation_to_what_was_seen)
{
    AUTO(cay_files) files = open_data();
    struct cay_pin pin;
    struct cay_write_options writing = {.size = sizeof writing, .pin = &pin};
    struct cay_name_options naming = {.size = sizeof naming, .pin = &pin};

    put_file("data/a", "one");
    ASSERT_INT(symlink("a", scratch_path("data/link")), 0);
    ASSERT_OK(cay_files_pin(files, "data/link", &pin, &err));
    ASSERT_OK(cay_files_write(files, "data/link", "two", 3, &writing, &err));
    ASSERT_CODE(cay_files_write(files, "data/link", "three", 5, &writing, &err),
                CAY_E_CHANGED);
    ASSERT_STR(get_file("data/a"), "two");
    ASSERT_CODE(cay_files_delete(files, "data/link", &naming, &err), CAY_E_CHANGED);
    ASSERT_OK(cay_files_pin(files, "data/link", &pin, &err));
    ASSERT_OK(cay_files_delete(files, "data/link", &naming, &err));
    ASSERT_OK(cay_files_pin(files, "data/new", &pin, &err));
    ASSERT_OK(cay_files_write(files, "data/new", "x", 1, &writing, &err));
}

static cay_files *reentrant;

static enum cay_verdict reads_itself(void *cookie, const struct cay_approval *request,
                                     char note[CAY_NOTE_MAX])
{
    struct cay_page page;

    (void)cookie;
    (void)note;
    if (cay_files_read(reentrant, request->path, NULL, &page, NULL) != CAY_OK)
        return CAY_VERDICT_DENY;
    cay_page_done(&page);
    return CAY_VERDICT_APPROVE;
}

TEST(an_approver_may_use_the_handle_it_is_asked_by)
{
    AUTO(cay_policy) policy = NULL;
    AUTO(cay_files) files = NULL;
    static const char text[] = "paths: {data: {root: data, mode: rw}}";
    const struct cay_files_options options = {.size = sizeof options,
                                              .approver = reads_itself};

    ASSERT_OK(cay_policy_parse(text, strlen(text), "x", scratch(), &policy, &err));
    ASSERT_OK(cay_files_open(policy, &options, &files, &err));
    reentrant = files;
    put_file("data/a", "old");
    ASSERT_OK(write_x(files, "data/a"));
}

/* "asks", where reading needs approval and writing may, and "open", where nothing does.
 */
static cay_files *open_two(struct person *person, bool writes_too)
{
    struct cay_mount mounts[2] = {CAY_MOUNT_INIT, CAY_MOUNT_INIT};
    AUTO(cay_policy) policy = NULL;
    cay_files *files = NULL;
    const struct cay_policy_config config = {.size = sizeof config,
                                             .style = CAY_STYLE_PATHS,
                                             .mounts = mounts,
                                             .mount_count = 2,
                                             .base = scratch()};
    const struct cay_files_options options = {
        .size = sizeof options, .approver = decide, .cookie = person};

    mounts[0].name = mounts[0].host = "asks";
    mounts[1].name = mounts[1].host = "open";
    mounts[0].writable = mounts[1].writable = mounts[0].read_approval = true;
    mounts[0].write_approval = writes_too;
    mounts[1].write_approval = false;
    ASSERT_OK(cay_policy_new(&config, &policy, &err));
    ASSERT_OK(cay_files_open(policy, &options, &files, &err));
    return files;
}

TEST(what_was_remembered_access_by_access_is_remembered_for_both_at_once)
{
    struct person person = {.verdict = CAY_VERDICT_REMEMBER};
    AUTO(cay_files) files = open_two(&person, true);
    struct cay_page page;

    ASSERT_OK(write_x(files, "asks/a"));
    ASSERT_OK(cay_files_read(files, "asks/a", NULL, &page, &err));
    cay_page_done(&page);
    ASSERT_INT(person.asked, 2);
    ASSERT_OK(cay_files_move(files, "asks/a", "open/a", NULL, &err));
    ASSERT_INT(person.asked, 2);

    put_file("asks/b", "x");
    ASSERT_OK(cay_files_move(files, "asks/b", "open/b", NULL, &err));
    ASSERT_INT(person.asked, 3);
    ASSERT_OK(write_x(files, "asks/b"));
    ASSERT_OK(cay_files_read(files, "asks/b", NULL, &page, &err));
    cay_page_done(&page);
    ASSERT_INT(person.asked, 3);
}

TEST(a_move_to_another_mount_asks_what_a_read_would_ask)
{
    struct person person = {.verdict = CAY_VERDICT_DENY};
    AUTO(cay_files) files = open_two(&person, false);

    put_file("asks/a", "x");
    ASSERT_CODE(cay_files_move(files, "asks/a", "open/a", NULL, &err),
                CAY_E_NOT_APPROVED);
    ASSERT_INT(person.asked, 1);
    ASSERT_OK(cay_files_move(files, "asks/a", "asks/b", NULL, &err));
    ASSERT_INT(person.asked, 1);
}

TEST(everything_is_asked_for_mount_by_mount_in_the_callers_spelling)
{
    struct person person = {.verdict = CAY_VERDICT_APPROVE};
    AUTO(cay_policy) policy = NULL;
    AUTO(cay_files) files = NULL;
    static const char text[] =
        "mounts: [{host_path: a, mount_point: /a, mode: rw, read_approval: true},"
        " {host_path: b, mount_point: /b, mode: rw, read_approval: true}]";
    const struct cay_files_options options = {
        .size = sizeof options, .approver = decide, .cookie = &person};
    struct cay_listing listing;
    struct cay_matches matches;

    ASSERT_OK(cay_policy_parse(text, strlen(text), "x", scratch(), &policy, &err));
    ASSERT_OK(cay_files_open(policy, &options, &files, &err));
    ASSERT_OK(cay_files_list(files, "/", NULL, &listing, &err));
    cay_listing_done(&listing);
    ASSERT_INT(person.asked, 2);
    ASSERT_STR(person.path, "/");
    ASSERT_STR(person.summary, "List file paths in /b matching **/*");

    person.verdict = CAY_VERDICT_DENY;
    ASSERT_CODE(cay_files_list(files, "/", NULL, &listing, &err), CAY_E_NOT_APPROVED);
    ASSERT_STR(err.subject, "/");
    ASSERT_STR(person.summary, "List file paths in /a matching **/*");
    ASSERT_CODE(cay_files_grep(files, ".", "x", NULL, &matches, &err),
                CAY_E_NOT_APPROVED);
    ASSERT_STR(err.subject, ".");
    ASSERT_STR(person.path, ".");
    ASSERT_STR(person.summary, "Search the files in /a");
}

TEST(what_cannot_be_done_there_is_never_asked_about)
{
    struct person person = {.verdict = CAY_VERDICT_APPROVE};
    AUTO(cay_files) files = open_two(&person, true);

    put_file("asks/f", "x");
    ASSERT_INT(symlink("f", scratch_path("asks/link")), 0);
    ASSERT_CODE(cay_files_move(files, "asks/link", "open/link", NULL, &err),
                CAY_E_UNSUPPORTED);
    ASSERT_CODE(write_x(files, "asks/f/x"), CAY_E_NOT_A_DIRECTORY);
    ASSERT_CODE(write_x(files, "asks/f/x/y"), CAY_E_NOT_A_DIRECTORY);
    ASSERT_CODE(cay_files_mkdir(files, "asks/f/x", NULL, &err), CAY_E_NOT_A_DIRECTORY);
    ASSERT_CODE(cay_files_copy(files, "asks/f", "asks/f/x", NULL, &err),
                CAY_E_NOT_A_DIRECTORY);
    ASSERT_CODE(cay_files_move(files, "asks/f", "asks/f/x", NULL, &err),
                CAY_E_NOT_A_DIRECTORY);
    const struct cay_write_options options = {.size = sizeof options,
                                              .flags = CAY_WRITE_NO_PARENTS};
    ASSERT_CODE(cay_files_write(files, "asks/no/x", "x", 1, &options, &err),
                CAY_E_NOT_FOUND);
    ASSERT_INT(person.asked, 0);
}

TEST(what_a_sticky_directory_forbids_is_never_asked_about)
{
    struct person person = {.verdict = CAY_VERDICT_APPROVE};
    AUTO(cay_files) files = open_asking(&person, true);

    if (geteuid() != 0)
        SKIP("only root makes files of others");
    put_file("data/theirs", "x");
    put_file("data/ours", "x");
    ASSERT_INT(chmod(scratch_path("data"), 01777), 0);
    ASSERT_INT(chown(scratch_path("data/ours"), NOBODY, NOBODY), 0);
    ASSERT_OK(seteuid(NOBODY));
    int deleted = cay_files_delete(files, "data/theirs", NULL, NULL);
    int moved = cay_files_move(files, "data/theirs", "data/x", NULL, NULL);
    unsigned asked = person.asked;
    int ours = cay_files_delete(files, "data/ours", NULL, NULL);
    ASSERT_OK(seteuid(0));
    ASSERT_INT(deleted, CAY_E_DENIED);
    ASSERT_INT(moved, CAY_E_DENIED);
    ASSERT_INT(asked, 0);
    ASSERT_INT(ours, CAY_OK);
    ASSERT_OK(cay_files_delete(files, "data/theirs", NULL, &err));
    ASSERT_INT(person.asked, 2);
}

/* 0: refused and not asked; 1: something else; 2: cannot be tried here. */
static int move_between_systems(void)
{
    struct person person = {.verdict = CAY_VERDICT_APPROVE};
    const struct cay_name_options options = {.size = sizeof options,
                                             .flags = CAY_NAME_DIRECTORY};

    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", scratch_path("data/other"), "tmpfs", 0, NULL) != 0)
        return 2;
    AUTO(cay_files) files = open_asking(&person, true);
    int code = cay_files_move(files, "data/dir", "data/other/dir", &options, NULL);
    return code == CAY_E_UNSUPPORTED && person.asked == 0 ? 0 : 1;
}

TEST(a_directory_for_another_file_system_is_never_asked_about)
{
    int status;

    put_file("data/dir/f", "x");
    put_file("data/other/f", "x");
    pid_t pid = fork();
    if (pid == 0)
        _exit(move_between_systems());
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    if (WEXITSTATUS(status) == 2)
        SKIP("mounting is not permitted here");
    ASSERT_INT(WEXITSTATUS(status), 0);
}

TEST(what_its_mode_forbids_is_never_asked_about)
{
    struct person person = {.verdict = CAY_VERDICT_APPROVE};
    AUTO(cay_files) files = open_asking(&person, true);
    const struct cay_write_options append = {.size = sizeof append,
                                             .flags = CAY_WRITE_APPEND};
    static const struct {
        const char *name;
        mode_t mode;
    } modes[] = {{"data", 0777},
                 {"data/shut", 0555},
                 {"data/shut/f", 0666},
                 {"data/secret", 0},
                 {"data/closed", 0}};
    struct cay_page page;
    struct cay_matches matches;
    struct cay_tar_result result;
    AUTO_FD archive = open("/dev/null", O_RDONLY | O_CLOEXEC);

    put_file("data/shut/f", "x");
    put_file("data/secret", "x");
    put_file("data/closed/f", "x");
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        ASSERT_INT(chmod(scratch_path(modes[i].name), modes[i].mode), 0);
    ASSERT(geteuid() != 0 || seteuid(NOBODY) == 0);
    const int codes[] = {
        cay_files_read(files, "data/secret", NULL, &page, NULL),
        cay_files_copy(files, "data/secret", "data/x", NULL, NULL),
        cay_files_write(files, "data/shut/new", "x", 1, NULL, NULL),
        cay_files_write(files, "data/shut/f", "x", 1, NULL, NULL),
        cay_files_mkdir(files, "data/shut/d/e", NULL, NULL),
        cay_files_delete(files, "data/shut/f", NULL, NULL),
        cay_files_move(files, "data/shut/f", "data/f", NULL, NULL),
        cay_files_import(files, "data/shut/new", archive, NULL, &result, NULL),
        cay_files_grep(files, "data/closed", "x", NULL, &matches, NULL),
        cay_files_grep(files, "data/secret", "x", NULL, &matches, NULL),
    };
    unsigned asked = person.asked;
    int appended = cay_files_write(files, "data/shut/f", "y", 1, &append, NULL);
    ASSERT(getuid() != 0 || seteuid(0) == 0);
    ASSERT_INT(chmod(scratch_path("data/shut"), 0700), 0);
    ASSERT_INT(chmod(scratch_path("data/closed"), 0700), 0);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        ASSERT_INT(codes[i], CAY_E_DENIED);
    ASSERT_INT(asked, 0);
    ASSERT_INT(appended, CAY_OK);
    ASSERT_INT(person.asked, 1);
}

static void shorten_source(void)
{
    ASSERT_INT(truncate(scratch_path("from"), 3), 0);
}

TEST(a_source_that_becomes_shorter_while_it_is_copied_replaces_nothing)
{
    struct person person = {.verdict = CAY_VERDICT_APPROVE, .meanwhile = shorten_source};
    AUTO(cay_files) files = open_asking(&person, false);
    const struct cay_write_options keep = {.size = sizeof keep, .flags = CAY_WRITE_KEEP};
    uint64_t bytes = 0;

    put_file("from", "all of it");
    put_file("data/a", "before");
    AUTO_FD from = open(scratch_path("from"), O_RDONLY | O_CLOEXEC);
    ASSERT_CODE(cay_files_write_from(files, "data/a", from, &keep, &bytes, &err),
                CAY_E_CHANGED);
    ASSERT_STR(get_file("data/a"), "before");

    /* Without CAY_WRITE_KEEP the descriptor is a stream, which ends where it ends. */
    put_file("from", "all of it");
    ASSERT_INT(lseek(from, 0, SEEK_SET), 0);
    ASSERT_OK(cay_files_write_from(files, "data/a", from, NULL, &bytes, &err));
    ASSERT_STR(get_file("data/a"), "all");
}
