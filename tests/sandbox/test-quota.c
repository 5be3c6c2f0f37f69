/* SPDX-License-Identifier: Apache-2.0 */

/* The size limit of a sandbox's files, in memory and on disk. */
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>

#include "ladder.h"
#include "loops.h"
#include "native/make/visit.h"
#include "native/native.h"
#include "native/record/storage.h"
#include "sandbox/backend.h"
#include "sys/shift.h"
#include "templates.h"

enum { MIB = 1 << 20 };

static const struct cay_sandbox_options in_memory = {
    .size = sizeof in_memory, .disk_bytes = 32 * MIB, .ephemeral = true};
static const struct cay_sandbox_options on_disk = {.size = sizeof on_disk,
                                                   .disk_bytes = 32 * MIB,
                                                   .storage = CAY_STORAGE_DISK,
                                                   .ephemeral = true};

static cay_sandbox *make(const struct cay_sandbox_options *options)
{
    cay_sandbox *sandbox = NULL;

    ASSERT_OK(cay_sandbox_create(options, &sandbox, &err));
    return sandbox;
}

/* What a write of so many MiB says, as root inside. */
static const char *write_mib(cay_sandbox *sandbox, const char *path, int count)
{
    char script[256];

    snprintf(script, sizeof script,
             "LC_ALL=C dd if=/dev/urandom of=%s bs=1M count=%d "
             "iflag=fullblock 2>&1 | grep -v records | grep -v copied",
             path, count);
    run_as(sandbox, "root", script, PATIENCE_MS);
    return result.out;
}

static void expect_text(cay_sandbox *sandbox, const char *script, const char *text)
{
    run_as(sandbox, "root", script, PATIENCE_MS);
    ASSERT_STR(result.out, text);
}

static void restart(cay_sandbox *sandbox)
{
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_OK(cay_sandbox_start(sandbox, &err));
}

static void remove_it(cay_sandbox *sandbox)
{
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    assert_no_loops();
}

/* --- On disk --- */

static void fill(const char *template_name)
{
    struct cay_sandbox_options options = on_disk;

    options.template_name = template_name;
    AUTO(cay_sandbox) sandbox = make(&options);
    look(sandbox);
    ASSERT_HAS(by(CAY_LAYER_DISK), "ext4");
    ASSERT_INT(info.disk_bytes, 32 * MIB);
    ASSERT(info.disk_used < 4 * MIB);
    ASSERT_INT(count_loops(), 1);
    ASSERT_STR(write_mib(sandbox, "/srv/some", 8), "");
    ASSERT_HAS(write_mib(sandbox, "/srv/big", 64), "No space left");
    look(sandbox);
    ASSERT(info.disk_used > 16 * MIB && info.disk_used <= 32 * MIB);
    expect_text(sandbox, "rm /srv/big; cksum < /srv/some > /srv/sum", "");
    restart(sandbox);
    expect_text(sandbox, "cksum < /srv/some | cmp - /srv/sum && echo same", "same\n");
    ASSERT_HAS(write_mib(sandbox, "/srv/big", 64), "No space left");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    assert_no_loops();
    look(sandbox);
    ASSERT_INT(info.state, CAY_STATE_STOPPED);
    ASSERT_INT(info.disk_bytes, 32 * MIB);
    remove_it(sandbox);
}

TEST(a_limit_on_disk_holds_before_and_after_a_start)
{
    use_own_home();
    make_template("tar");
    fill(NULL);
    fill("base");
    fill("tiny");
}

/* The kernel clones no detached mount before Linux 6.15. */
TEST(a_directory_of_a_detached_mount_is_mounted_by_older_kernels_too)
{
    struct storage storage;
    struct stat st;

    use_own_home();
    AUTO(cay_sandbox) sandbox = make(&on_disk);
    expect_text(sandbox, "echo x > /srv/x; chown user /srv/x", "");
    ASSERT_OK(storage_lock(cay_sandbox_id(sandbox), &storage, &err));
    AUTO_FD map = shift_map("0 300000 65536\n", "0 300000 65536\n");
    AUTO_FD upper = shift_mount_below(storage.disk, "upper", map, 0);
    ASSERT(upper >= 0 && fstatat(upper, "srv/x", &st, 0) == 0);
    ASSERT_INT(st.st_uid, 301000);
    ASSERT(shift_mount_below(storage.disk, "none", map, 0) < 0);
    storage_done(&storage);
    auto_close(&upper);
    upper = -1;
    remove_it(sandbox);
}

/* As after a crash of the host's programs: PID 1 killed, and no process that waits. */
TEST(a_killed_init_and_a_collect_keep_the_files_and_release_the_device)
{
    struct cay_sandbox_options options = on_disk;
    size_t count;

    use_own_home();
    options.ephemeral = false;
    AUTO(cay_sandbox) sandbox = make(&options);
    ASSERT_STR(write_mib(sandbox, "/srv/some", 8), "");
    expect_text(sandbox, "cksum < /srv/some > /srv/sum; sync", "");
    const struct native *native = sandbox->cookie;
    ASSERT(kill(native->record.init, SIGKILL) == 0);
    assert_no_loops();
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    ASSERT_OK(cay_sandbox_start(sandbox, &err));
    expect_text(sandbox, "cksum < /srv/some | cmp - /srv/sum && echo same", "same\n");
    remove_it(sandbox);
}

TEST(a_collect_removes_an_image_whose_creator_died)
{
    size_t count;
    struct storage storage;

    use_own_home();
    ASSERT_OK(storage_create("sb-abcdefgh234567xy", 16 * MIB, &storage, &err));
    ASSERT_INT(count_loops(), 1);
    storage_done(&storage);
    assert_no_loops();
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    ASSERT_INT(count_names(scratch_path("home/sandboxes"), "sb-"), 0);
}

TEST(a_limit_that_is_too_small_or_has_no_space_is_refused_and_leaves_nothing)
{
    struct cay_sandbox_options options = on_disk;
    cay_sandbox *sandbox = NULL;

    use_own_home();
    options.disk_bytes = 16 * MIB - 1;
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_INVALID);
    ASSERT_HAS(err.hint, "16 MiB");
    options.disk_bytes = (16ull << 40) + 1;
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_INVALID);
    options.disk_bytes = 16ull << 40;
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_NO_SPACE);
    ASSERT_HAS(err.hint, "smaller");
    options = on_disk;
    options.level = CAY_LEVEL_SINGLE;
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "level of root");
    ASSERT_INT(count_names(scratch_path("home/sandboxes"), "sb-"), 0);
    assert_no_loops();
}

static void expect_refusal(void)
{
    cay_sandbox *sandbox = NULL;

    ASSERT_CODE(cay_sandbox_create(&on_disk, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.message, "only root");
}

TEST(an_ordinary_user_gets_the_reason_why_there_is_no_limit_on_disk)
{
    need_root();
    on_every_level(expect_refusal);
}

/* --- Checkpoints --- */

/* Checkpoints need Linux 6.15. */
static void need_store(void)
{
    need_root();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct native *native = sandbox->cookie;
    AUTO_FD namespace = visit_open(native->record.init);
    AUTO_FD store = visit_open_store(namespace, VISIT_OWN_STORE);
    if (store == -ENOENT)
        SKIP("this kernel cannot mount parts of a detached tmpfs");
}

static void seal(cay_sandbox *sandbox)
{
    struct cay_checkpoint checkpoint = {0};

    ASSERT_OK(cay_sandbox_checkpoint(sandbox, NULL, &checkpoint, &err));
}

/* What checkpoints have is counted, also if it is removed inside. */
static void pile_up(const struct cay_sandbox_options *options)
{
    AUTO(cay_sandbox) sandbox = make(options);
    uint64_t before;

    ASSERT_STR(write_mib(sandbox, "/srv/one", 12), "");
    expect_text(sandbox, "cksum < /srv/one > /srv/sum", "");
    seal(sandbox);
    look(sandbox);
    before = info.disk_used;
    ASSERT(before >= 12 * MIB);
    expect_text(sandbox, "rm /srv/one", "");
    look(sandbox);
    ASSERT(info.disk_used >= before);
    ASSERT_STR(write_mib(sandbox, "/srv/two", 4), "");
    seal(sandbox);
    ASSERT_HAS(write_mib(sandbox, "/srv/three", 24), "No space left");
    struct cay_checkpoint checkpoint;
    expect_text(sandbox, "ls /srv; rm /srv/three", "sum\nthree\ntwo\n");
    ASSERT_OK(cay_sandbox_rollback(sandbox, "1", &checkpoint, &err));
    expect_text(sandbox, "ls /srv; cksum < /srv/one | cmp - /srv/sum && echo same",
                "one\nsum\nsame\n");
    ASSERT_HAS(write_mib(sandbox, "/srv/three", 24), "No space left");
    remove_it(sandbox);
}

/* Also if the files of the sandbox leave no space for the next layer. */
static void roll_back_full(const struct cay_sandbox_options *options)
{
    AUTO(cay_sandbox) sandbox = make(options);
    struct cay_checkpoint undone;

    ASSERT_STR(write_mib(sandbox, "/srv/one", 4), "");
    seal(sandbox);
    run_as(
        sandbox, "root",
        "dd if=/dev/urandom of=/srv/big bs=1M; dd if=/dev/urandom of=/srv/rest bs=512; "
        "n=0; while echo > /srv/small$n; do n=$((n + 1)); done",
        PATIENCE_MS);
    ASSERT_OK(cay_sandbox_rollback(sandbox, "1", &undone, &err));
    expect_text(sandbox, "ls /srv", "one\n");
    remove_it(sandbox);
}

TEST(a_sandbox_that_has_filled_its_disk_can_be_rolled_back)
{
    need_store();
    use_own_home();
    roll_back_full(&in_memory);
    roll_back_full(&on_disk);
}

TEST(checkpoints_count_against_the_limit_in_memory)
{
    need_store();
    pile_up(&in_memory);
}

TEST(checkpoints_count_against_the_limit_on_disk)
{
    need_store();
    use_own_home();
    pile_up(&on_disk);
}

/* What a fork writes counts against its own limit, what it has inherited does not. */
TEST(a_fork_has_a_limit_of_its_own)
{
    need_store();
    AUTO(cay_sandbox) sandbox = make(&in_memory);
    ASSERT_STR(write_mib(sandbox, "/srv/one", 20), "");
    const struct cay_sandbox_options own = {.size = sizeof own, .ephemeral = true};
    cay_sandbox *made = NULL;
    ASSERT_OK(cay_sandbox_fork(sandbox, NULL, &own, 1, &made, NULL, &err));
    AUTO(cay_sandbox) fork = made;
    look(fork);
    ASSERT_INT(info.disk_bytes, 32 * MIB);
    ASSERT(info.disk_used < 2 * MIB);
    ASSERT_STR(write_mib(fork, "/srv/two", 24), "");
    ASSERT_HAS(write_mib(fork, "/srv/three", 16), "No space left");
    look(sandbox);
    ASSERT(info.disk_used >= 20 * MIB && info.disk_used < 24 * MIB);
    ASSERT_HAS(write_mib(sandbox, "/srv/three", 16), "No space left");
    expect_text(fork, "rm /srv/three", "");
    seal(fork);
    ASSERT_HAS(write_mib(fork, "/srv/four", 16), "No space left");
}
