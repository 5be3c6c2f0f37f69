/* SPDX-License-Identifier: Apache-2.0 */

/* Volumes: their store, and sandboxes that share them. */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "cay/pool.h"
#include "cay/volume.h"
#include "killed.h"
#include "ladder.h"
#include "loops.h"
#include "native/record/volume.h"
#include "templates.h"

static int try_volume(const char *name)
{
    const struct cay_volume_options options = {.size = sizeof options, .name = name};

    return cay_volume_create(&options, &err);
}

static cay_sandbox *make_with(const char *volume, bool writable,
                              struct cay_sandbox_options options)
{
    const struct cay_bind bind = {volume, "/data", writable};

    options.size = sizeof options;
    options.binds = &bind;
    options.bind_count = 1;
    options.ephemeral = true;
    return make_sandbox(&options);
}

static cay_sandbox *make_plain(const char *volume, bool writable)
{
    return make_with(volume, writable, (struct cay_sandbox_options){0});
}

static int create_code(const char *source)
{
    const struct cay_bind bind = {source, "/data", true};
    const struct cay_sandbox_options options = {
        .size = sizeof options, .binds = &bind, .bind_count = 1, .ephemeral = true};
    cay_sandbox *sandbox = NULL;
    int code = cay_sandbox_create(&options, &sandbox, &err);

    cay_sandbox_free(sandbox);
    return code;
}

/* The number of volumes, and the last of them. */
static size_t list(struct cay_volume_info *ret_last)
{
    struct cay_volume_info *infos = NULL;
    size_t count = 0;

    ASSERT_OK(cay_volume_list(&infos, &count, &err));
    if (count)
        *ret_last = infos[count - 1];
    cay_free(infos);
    return count;
}

/* --- The store --- */

TEST(a_volume_is_created_listed_and_removed)
{
    struct cay_volume_info last;

    use_own_home();
    ASSERT_INT(list(&last), 0);
    ASSERT_OK(try_volume("one"));
    ASSERT_OK(try_volume("Two_2.x-y"));
    ASSERT_INT(list(&last), 2);
    ASSERT_STR(last.name, "one");
    ASSERT(last.created_ms > 0 && last.bytes == 0 && last.sandboxes == 0);
    ASSERT_CODE(try_volume("one"), CAY_E_EXISTS);
    ASSERT_OK(cay_volume_remove("one", &err));
    ASSERT_CODE(cay_volume_remove("one", &err), CAY_E_NOT_FOUND);
    ASSERT_INT(list(&last), 1);
    ASSERT_OK(cay_volume_remove("Two_2.x-y", &err));
    ASSERT_INT(count_names(scratch_path("home/volumes"), ""), 2); /* "." and ".." */
}

TEST(an_invalid_volume_name_is_refused_with_the_allowed_letters)
{
    char longest[CAY_NAME_MAX + 1] = {0};
    const char *const names[] = {NULL, "", ".", "..", ".new-1", "-x", "a/b", "a b", "ä"};

    use_own_home();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ASSERT_CODE(try_volume(names[i]), CAY_E_INVALID);
        ASSERT_HAS(err.hint, "letters");
        ASSERT_CODE(cay_volume_remove(names[i], &err), CAY_E_INVALID);
    }
    memset(longest, 'x', CAY_NAME_MAX);
    ASSERT_CODE(try_volume(longest), CAY_E_INVALID);
    longest[CAY_NAME_MAX - 1] = '\0';
    ASSERT_OK(try_volume(longest));
    ASSERT_OK(cay_volume_remove(longest, &err));
}

static int try_sized(const char *name, uint64_t bytes)
{
    const struct cay_volume_options options = {
        .size = sizeof options, .name = name, .bytes = bytes};

    return cay_volume_create(&options, &err);
}

TEST(a_volume_has_the_size_that_it_was_given)
{
    struct cay_volume_info last;

    use_own_home();
    if (access("/dev/loop-control", R_OK | W_OK) != 0)
        harness_remark("left out: this machine has no loop devices");
    ASSERT_OK(try_sized("sized", 32 << 20));
    assert_no_loops();
    ASSERT_INT(list(&last), 1);
    ASSERT_INT(last.bytes, 32 << 20);
    AUTO(cay_sandbox) first = make_plain("sized", true);
    AUTO(cay_sandbox) second = make_plain("sized", true);
    ASSERT_INT(count_loops(), 1);
    run(first, "ls -A /data; stat -c '%u %g %a' /data; echo x > /data/file; "
               "head -c 40M /dev/zero > /data/big || echo full");
    ASSERT_STR(result.out, "1000 1000 777\nfull\n");
    ASSERT_HAS(result.error, "No space left");
    run_as(second, "root", "cat /data/file; rm /data/big; chown 33 /data/file",
           PATIENCE_MS);
    ASSERT_STR(result.out, "x\n");
    ASSERT_CODE(cay_volume_remove("sized", &err), CAY_E_BUSY);
    ASSERT_OK(cay_sandbox_kill(first, &err));
    ASSERT_OK(cay_sandbox_kill(second, &err));
    AUTO(cay_sandbox) reader = make_plain("sized", false);
    run_as(reader, "root", "stat -c %u /data/file; echo y > /data/file || echo refused",
           PATIENCE_MS);
    ASSERT_STR(result.out, "33\nrefused\n");
    ASSERT_OK(cay_sandbox_kill(reader, &err));
    assert_no_loops();
    ASSERT_OK(cay_volume_remove("sized", &err));
}

TEST(an_invalid_size_of_a_volume_is_refused_with_the_allowed_ones)
{
    struct cay_volume_info last;

    use_own_home();
    ASSERT_CODE(try_sized("small", 1 << 20), CAY_E_INVALID);
    ASSERT_HAS(err.hint, "16 MiB");
    ASSERT_CODE(try_sized("large", UINT64_MAX), CAY_E_INVALID);
    ASSERT_CODE(try_sized("full", UINT64_C(16) << 40), CAY_E_NO_SPACE);
    ASSERT_INT(list(&last), 0);
    ASSERT_INT(count_names(scratch_path("home/volumes"), "."), 2);
}

TEST(a_collect_removes_what_a_crash_left_of_volumes)
{
    char draft[NAME_MAX + 1];
    struct cay_volume_info last;
    size_t count = 0;

    use_own_home();
    ASSERT_OK(try_volume("whole"));
    put_file("home/volumes/.new-1/root/file", "half");
    put_file("home/volumes/.old-1/root/file", "half");
    int store = open(scratch_path("home/volumes"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int locked = state_draft(store, ".new-", draft, &err);
    ASSERT(locked >= 0); /* of a process that still creates it */
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    ASSERT(count >= 2);
    ASSERT_INT(count_names(scratch_path("home/volumes"), ""), 4);
    (void)close(locked);
    (void)close(store);
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    ASSERT_INT(count_names(scratch_path("home/volumes"), ""), 3);
    ASSERT_INT(list(&last), 1);
}

static void create_v(void)
{
    ASSERT_OK(try_volume("v"));
}

static void remove_v(void)
{
    ASSERT_OK(cay_volume_remove("v", &err));
}

/* After a sweep there is nothing but "v", which is whole, or nothing at all. */
static bool has_whole_volume(void)
{
    struct cay_volume_info last;

    (void)volume_sweep();
    size_t count = list(&last), names = count_names(scratch_path("home/volumes"), "");
    ASSERT_INT(names ? names - 2 : 0, count);
    if (count) {
        ASSERT_STR(last.name, "v");
        ASSERT(access(scratch_path("home/volumes/v/root"), F_OK) == 0);
    }
    return count;
}

TEST(a_creator_killed_at_any_system_call_leaves_a_whole_volume_or_none)
{
    int calls = 0;

    use_own_home();
    while (dies_after(create_v, ++calls))
        if (has_whole_volume())
            remove_v();
    ASSERT(has_whole_volume());
    ASSERT(calls > 10);
}

TEST(a_remover_killed_at_any_system_call_leaves_a_whole_volume_or_none)
{
    int calls = 0;

    use_own_home();
    do {
        if (!has_whole_volume()) {
            create_v();
            put_file("home/volumes/v/root/dir/file", "kept");
        }
        ASSERT_STR(get_file("home/volumes/v/root/dir/file"), "kept");
    } while (dies_after(remove_v, ++calls));
    ASSERT(!has_whole_volume());
    ASSERT(calls > 10);
}

/* --- Sandboxes --- */

TEST(sandboxes_with_different_ranges_share_the_owners_of_a_volume)
{
    struct cay_sandbox_info one, other;

    use_own_home();
    ASSERT_OK(try_volume("v"));
    AUTO(cay_sandbox) first = make_plain("v", true);
    AUTO(cay_sandbox) second = make_plain("v", true);
    ASSERT_OK(cay_sandbox_inspect(first, &one, &err));
    ASSERT_OK(cay_sandbox_inspect(second, &other, &err));
    ASSERT(one.id_base != other.id_base);
    run(first, "echo mine > /data/user; stat -c '%u %g %a' /data /data/user");
    ASSERT_STR(result.out, "1000 1000 777\n1000 1000 644\n");
    run_as(first, "root", "echo x > /data/root; chown 33:44 /data/root", PATIENCE_MS);
    ASSERT_INT(result.exit_code, 0);
    run(second, "stat -c '%u %g' /data/user /data/root; cat /data/user; "
                "echo more >> /data/user; echo no >> /data/root");
    ASSERT_STR(result.out, "1000 1000\n33 44\nmine\n");
    ASSERT_HAS(result.error, "ermission denied");
    run(first, "cat /data/user");
    ASSERT_STR(result.out, "mine\nmore\n");
    struct stat st;
    ASSERT(stat(scratch_path("home/volumes/v/root/root"), &st) == 0);
    ASSERT_INT(st.st_uid, 33);
    ASSERT_INT(st.st_gid, 44);
}

TEST(a_volume_outlives_its_sandboxes)
{
    use_own_home();
    ASSERT_OK(try_volume("v"));
    cay_sandbox *first = make_plain("v", true);
    run(first, "mkdir /data/a; echo kept > /data/a/b");
    ASSERT_OK(cay_sandbox_kill(first, &err));
    cay_sandbox_free(first);
    AUTO(cay_sandbox) second = make_plain("v", false);
    run(second, "cat /data/a/b");
    ASSERT_STR(result.out, "kept\n");
}

TEST(a_read_only_volume_refuses_writes_of_root_inside)
{
    use_own_home();
    ASSERT_OK(try_volume("v"));
    AUTO(cay_sandbox) writer = make_plain("v", true);
    AUTO(cay_sandbox) reader = make_plain("v", false);
    run(writer, "echo x > /data/file");
    run_as(reader, "root", "cat /data/file; echo y > /data/file || echo refused",
           PATIENCE_MS);
    ASSERT_STR(result.out, "x\nrefused\n");
    ASSERT_HAS(result.error, "Read-only");
}

TEST(set_user_id_bits_and_devices_in_a_volume_have_no_effect)
{
    use_own_home();
    ASSERT_OK(try_volume("v"));
    AUTO(cay_sandbox) sandbox = make_plain("v", true);
    run_as(sandbox, "root",
           "cp /usr/bin/id /data/id && chmod 4755 /data/id; mknod /data/null c 1 3",
           PATIENCE_MS);
    run(sandbox, "stat -c %a /data/id; /data/id -u; test -c /data/null && echo device");
    ASSERT_STR(result.out, "4755\n1000\n");
}

TEST(a_link_in_a_volume_leads_nowhere_outside)
{
    use_own_home();
    put_file("secret", "canary\n");
    ASSERT_OK(try_volume("v"));
    ASSERT(symlink(scratch_path("secret"), scratch_path("home/volumes/v/root/link")) ==
           0);
    ASSERT(symlink("../../../../..", scratch_path("home/volumes/v/root/up")) == 0);
    cay_sandbox *opened = NULL;
    ASSERT_OK(cay_volume_open("v", &opened, &err));
    AUTO(cay_sandbox) sandbox = opened;
    cay_files *files = NULL;
    struct cay_page page = {0};
    ASSERT_OK(cay_sandbox_files(sandbox, "root", &files, &err));
    ASSERT_CODE(cay_files_read_bytes(files, CAY_VOLUME_PATH "/link", NULL, &page, &err),
                CAY_E_NOT_FOUND);
    ASSERT_OK(cay_files_write(files, CAY_VOLUME_PATH "/up/tmp/x", "x", 1, NULL, &err));
    cay_files_free(files);
    run(sandbox, "pwd; cat /tmp/x");
    ASSERT_STR(result.out, CAY_VOLUME_PATH "\nx");
}

TEST(an_unknown_volume_is_named_with_the_way_to_create_it)
{
    use_own_home();
    ASSERT_CODE(create_code("missing"), CAY_E_NOT_FOUND);
    ASSERT_STR(err.subject, "missing");
    ASSERT_HAS(err.hint, "cay volume create missing");
    ASSERT_HAS(err.hint, "./missing");
    ASSERT_CODE(create_code(".hidden"), CAY_E_INVALID);
}

TEST(a_sandbox_with_too_many_names_of_volumes_is_refused)
{
    enum { COUNT = 5 };
    char names[COUNT][CAY_NAME_MAX], targets[COUNT][8];
    struct cay_bind binds[COUNT];
    const struct cay_sandbox_options options = {
        .size = sizeof options, .binds = binds, .bind_count = COUNT, .ephemeral = true};
    cay_sandbox *sandbox = NULL;

    use_own_home();
    for (int i = 0; i < COUNT; i++) {
        memset(names[i], 'a' + i, sizeof names[i] - 1);
        names[i][sizeof names[i] - 1] = '\0';
        snprintf(targets[i], sizeof targets[i], "/v%d", i);
        binds[i] = (struct cay_bind){names[i], targets[i], true};
        ASSERT_OK(try_volume(names[i]));
    }
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_LIMIT);
}

/* --- Removal --- */

TEST(a_volume_in_use_is_not_removed)
{
    struct cay_volume_info last;

    use_own_home();
    ASSERT_OK(try_volume("v"));
    ASSERT_OK(try_volume("vv"));
    AUTO(cay_sandbox) sandbox = make_plain("vv", true);
    ASSERT_OK(cay_volume_remove("v", &err));
    ASSERT_CODE(cay_volume_remove("vv", &err), CAY_E_BUSY);
    ASSERT_HAS(err.hint, cay_sandbox_id(sandbox));
    ASSERT_INT(list(&last), 1);
    ASSERT_INT(last.sandboxes, 1);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_INT(list(&last), 1);
    ASSERT_INT(last.sandboxes, 0);
    ASSERT_OK(cay_volume_remove("vv", &err));
}

TEST(a_volume_of_a_stopped_sandbox_is_not_removed)
{
    struct cay_volume_info last;

    use_own_home();
    ASSERT_OK(try_volume("v"));
    AUTO(cay_sandbox)
    sandbox =
        make_with("v", true, (struct cay_sandbox_options){.storage = CAY_STORAGE_DISK});
    run(sandbox, "echo x > /data/file");
    ASSERT_INT(list(&last), 1);
    ASSERT_INT(last.sandboxes, 1);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_CODE(cay_volume_remove("v", &err), CAY_E_BUSY);
    ASSERT_HAS(err.hint, cay_sandbox_id(sandbox));
    ASSERT_OK(cay_sandbox_start(sandbox, &err));
    run(sandbox, "cat /data/file; stat -c %u /data/file");
    ASSERT_STR(result.out, "x\n1000\n");
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    ASSERT_OK(cay_volume_remove("v", &err));
}

TEST(a_volume_of_a_spare_is_not_removed)
{
    const struct cay_bind bind = {"v", "/data", true};
    const struct cay_sandbox_options options = {
        .size = sizeof options, .binds = &bind, .bind_count = 1};
    const struct cay_pool_options wish = {
        .size = sizeof wish, .sandbox = &options, .count = 1};
    cay_pool *pool = NULL;

    use_own_home();
    ASSERT_OK(try_volume("v"));
    ASSERT_OK(cay_pool_create(&wish, &pool, &err));
    ASSERT_CODE(cay_volume_remove("v", &err), CAY_E_BUSY);
    ASSERT_HAS(err.hint, cay_pool_id(pool));
    cay_pool_free(pool);
    ASSERT_OK(cay_volume_remove("v", &err));
}

TEST(a_volume_that_a_creator_has_locked_is_not_removed)
{
    use_own_home();
    ASSERT_OK(try_volume("v"));
    int dir = open(scratch_path("home/volumes/v"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASSERT(dir >= 0 && flock(dir, LOCK_SH) == 0);
    ASSERT_CODE(cay_volume_remove("v", &err), CAY_E_BUSY);
    (void)close(dir);
    ASSERT_OK(cay_volume_remove("v", &err));
}

/* --- Ordinary users --- */

static char home_of_user[64];

static void enter_home_of_user(void)
{
    snprintf(home_of_user, sizeof home_of_user, "/tmp/cay-volumes-XXXXXX");
    ASSERT(mkdtemp(home_of_user));
    ASSERT(setenv("CAY_HOME", home_of_user, 1) == 0);
    ASSERT_OK(try_volume("v"));
}

static void leave_home_of_user(void)
{
    int dir = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    ASSERT_OK(
        state_remove_tree(dir, home_of_user + strlen("/tmp/"), "test", "home", &err));
    (void)close(dir);
}

static void share_as_user(void)
{
    struct cay_sandbox_options options = {.level = level_here};

    enter_home_of_user();
    cay_sandbox *first = make_with("v", true, options);
    cay_sandbox *second = make_with("v", true, options);
    cay_sandbox *reader = make_with("v", false, options);
    run(first, "echo mine > /data/file; chmod 640 /data/file");
    ASSERT_STR(result.error, "");
    run(second, "stat -c '%u %g %a' /data/file; echo more >> /data/file");
    ASSERT_STR(result.out, "1000 1000 640\n");
    run(reader, "cat /data/file; echo no > /data/file || echo refused");
    ASSERT_STR(result.out, "mine\nmore\nrefused\n");
    if (level_here == CAY_LEVEL_RANGE) {
        run_as(first, "root", "echo x > /data/root; chown 33:44 /data/root", PATIENCE_MS);
        run(second, "stat -c '%u %g' /data/root");
        ASSERT_STR(result.out, "33 44\n");
    }
    ASSERT_CODE(try_sized("sized", 32 << 20), CAY_E_UNSUPPORTED);
    ASSERT_CODE(cay_volume_remove("v", &err), CAY_E_BUSY);
    ASSERT_OK(cay_sandbox_kill(first, &err));
    ASSERT_OK(cay_sandbox_kill(second, &err));
    ASSERT_OK(cay_sandbox_kill(reader, &err));
    ASSERT_OK(cay_volume_remove("v", &err));
    cay_sandbox_free(first);
    cay_sandbox_free(second);
    cay_sandbox_free(reader);
    leave_home_of_user();
}

TEST(ordinary_users_share_volumes_among_their_sandboxes)
{
    on_level(CAY_LEVEL_RANGE, share_as_user);
    on_level(CAY_LEVEL_SINGLE, share_as_user);
}

static void refuse_as_user(void)
{
    const struct cay_bind bind = {"v", "/data", true};
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .binds = &bind,
                                                .bind_count = 1,
                                                .level = CAY_LEVEL_LANDLOCK};
    cay_sandbox *sandbox = NULL;

    enter_home_of_user();
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_STR(err.subject, "volume");
    leave_home_of_user();
}

TEST(a_sandbox_at_the_level_landlock_has_no_volumes)
{
    on_level(CAY_LEVEL_LANDLOCK, refuse_as_user);
}

TEST(root_has_volumes_at_the_level_root_only)
{
    const struct cay_bind bind = {"v", "/data", true};
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .binds = &bind,
                                                .bind_count = 1,
                                                .level = CAY_LEVEL_SINGLE};
    cay_sandbox *sandbox = NULL;

    use_own_home();
    ASSERT_OK(try_volume("v"));
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "root");
}
