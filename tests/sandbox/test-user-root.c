/* SPDX-License-Identifier: Apache-2.0 */

/* Templates and disks of ordinary users: what only they have, what is refused, and what
 * an archive or root inside may try with files that belong to subordinate ids.
 * test-ladder runs the other tests of templates and disks as an ordinary user. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/xattr.h>

#include "ladder.h"
#include "native/record/userns.h"
#include "templates.h"

static void (*act_in_home)(void);

static void run_in_home(void)
{
    char word[] = "rm", flags[] = "-rf";

    use_own_home();
    char *const argv[] = {word, flags, strdupa(scratch()), NULL};
    act_in_home();
    remove_own_home();
    ASSERT_INT(ordinary_spawn(argv), 0);
}

static void in_home_on(enum cay_level level, void (*act)(void))
{
    act_in_home = act;
    on_level(level, run_in_home);
}

static cay_sandbox *make_on_disk(enum cay_level level, const char *template_name)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .storage = CAY_STORAGE_DISK,
                                                .template_name = template_name,
                                                .level = level};
    cay_sandbox *sandbox = NULL;

    ASSERT_OK(cay_sandbox_create(&options, &sandbox, &err));
    return sandbox;
}

static int try_sandbox(enum cay_level level, const char *template_name,
                       enum cay_storage storage)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .storage = storage,
                                                .template_name = template_name,
                                                .level = level};
    AUTO(cay_sandbox) sandbox = NULL;

    return cay_sandbox_create(&options, &sandbox, &err);
}

/* Names without "." and "..". */
static size_t count_in(const char *name)
{
    size_t count = count_names(scratch_path(name), "");

    return count ? count - 2 : 0;
}

/* --- Archives --- */

static bool archive_has(const char *path, const char *text)
{
    char command[640], word[] = "sh", flag[] = "-c";

    snprintf(command, sizeof command, "grep -aq '%s' '%s'", text, path);
    char *const argv[] = {word, flag, command, NULL};
    return ordinary_spawn(argv) == 0;
}

static void unpack_forged(void)
{
    static const char *const marked[] = {"srv/hidden", "srv/led", "srv/empty",
                                         "srv/gone"};
    const char *path = make_image("forged");
    char names[256];

    ASSERT(archive_has(path, "xattr.user.overlay.redirect=/opt"));
    ASSERT_OK(try_template("tiny", CAY_TEMPLATE_TAR, path));
    for (size_t i = 0; i < sizeof marked / sizeof *marked; i++)
        ASSERT_INT(llistxattr(in_tiny(marked[i]), names, sizeof names), 0);
    ASSERT_INT(stat_in_tiny("opt/zero").st_mode, 0);
    ASSERT_INT(stat_in_tiny("opt/disk").st_mode, 0);
    ASSERT_INT(stat_in_tiny("opt/busybox-su").st_mode & 07777, 04755);
    ASSERT_INT(stat_in_tiny("opt/busybox-su").st_uid, 0);
    AUTO(cay_sandbox) sandbox = make_tiny();
    run(sandbox, "cat /srv/hidden/file /srv/empty /srv/gone; ls /srv/led; ls /opt");
    ASSERT_STR(result.out, "seen\nfull\nthere\nbusybox-su\nhidden\nset-user\n");
    run(sandbox, "stat -c %a /opt/busybox-su; /opt/busybox-su id -u");
    ASSERT_STR(result.out, "4755\n1000\n");
}

TEST(an_archive_brings_neither_marks_nor_devices_nor_rights)
{
    in_home_on(CAY_LEVEL_RANGE, unpack_forged);
}

static int mark(void *cookie, struct cay_error *error)
{
    (void)cookie;
    (void)error;
    return setxattr(in_tiny("srv"), "user.overlay.redirect", "/opt", 4, 0) == 0 ? CAY_OK
                                                                                : -errno;
}

static void use_marked(void)
{
    char value[16];

    make_template("tar");
    ASSERT_OK(userns_run(mark, NULL, &err));
    ASSERT_INT(getxattr(in_tiny("srv"), "user.overlay.redirect", value, sizeof value), 4);
    AUTO(cay_sandbox) sandbox = make_tiny();
    run(sandbox, "ls /srv; ls /opt");
    ASSERT_STR(result.out, "absolute\nclimbing\nother-name\nowned\nsetuid\nhidden\n");
}

TEST(a_mark_in_a_template_leads_nowhere)
{
    in_home_on(CAY_LEVEL_RANGE, use_marked);
}

/* --- The files on the host --- */

static void write_as_user(void)
{
    char path[64];
    struct stat st;

    make_template("tar");
    AUTO(cay_sandbox) sandbox = make_on_disk(CAY_LEVEL_RANGE, "tiny");
    run_as(sandbox, "root",
           "cp /bin/busybox /opt/set; chown 1000 /opt/set; chmod 4755 /opt/set; "
           "rm /bin/wc; mkdir -p /a/b; chmod 0 /a",
           PATIENCE_MS);
    ASSERT_STR(result.error, "");
    snprintf(path, sizeof path, "home/sandboxes/%s/disk/upper/opt/set",
             cay_sandbox_id(sandbox));
    ASSERT(stat(scratch_path(path), &st) == 0);
    ASSERT_INT(st.st_uid, geteuid());
    ASSERT_INT(st.st_mode & 07777, 04755);
    /* No other user gets there. */
    ASSERT(stat(scratch_path("home/sandboxes"), &st) == 0);
    ASSERT_INT(st.st_mode & 07777, 0700);
    ASSERT(stat(scratch_path("home/templates"), &st) == 0);
    ASSERT_INT(st.st_mode & 07777, 0700);
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    ASSERT_OK(cay_template_remove("tiny", &err));
    ASSERT_INT(count_in("home/sandboxes"), 0);
    ASSERT_INT(count_in("home/templates"), 0);
}

TEST(files_of_all_users_inside_are_hidden_from_others_and_removed)
{
    in_home_on(CAY_LEVEL_RANGE, write_as_user);
}

static void use_disk(void)
{
    AUTO(cay_sandbox) sandbox = make_on_disk(CAY_LEVEL_SINGLE, NULL);
    run(sandbox, "echo mine > file; mkdir -p a/b; chmod 0 a");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_OK(cay_sandbox_start(sandbox, &err));
    run(sandbox, "cat file; stat -c '%u %a' a");
    ASSERT_STR(result.out, "mine\n1000 0\n");
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    ASSERT_INT(count_in("home/sandboxes"), 0);
}

TEST(a_disk_needs_no_range)
{
    in_home_on(CAY_LEVEL_SINGLE, use_disk);
}

/* --- Refusals --- */

static void edit_info(const char *script)
{
    char word[] = "sed", flag[] = "-i";
    char *const argv[] = {word, flag, strdupa(script),
                          strdupa(scratch_path("home/templates/tiny/info")), NULL};

    ASSERT_INT(ordinary_spawn(argv), 0);
}

static void be_refused(void)
{
    make_template("tar");
    ASSERT_CODE(try_sandbox(CAY_LEVEL_BEST, scratch(), CAY_STORAGE_MEMORY),
                CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "--from-dir");
    ASSERT_CODE(try_sandbox(CAY_LEVEL_SINGLE, "tiny", CAY_STORAGE_MEMORY),
                CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "sudo $(which cay) setup");
    ASSERT_CODE(try_sandbox(CAY_LEVEL_LANDLOCK, NULL, CAY_STORAGE_DISK),
                CAY_E_UNSUPPORTED);
    ASSERT_STR(err.subject, "storage");
    ASSERT_CODE(try_template("other", CAY_TEMPLATE_DEBOOTSTRAP, "bookworm"),
                CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.message, "debootstrap needs root");
    ASSERT_OK(try_sandbox(CAY_LEVEL_RANGE, "tiny", CAY_STORAGE_MEMORY));
    edit_info("s/map=[0-9]*/map=7/");
    ASSERT_CODE(try_sandbox(CAY_LEVEL_RANGE, "tiny", CAY_STORAGE_MEMORY),
                CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.message, "other user ids");
    edit_info("s/map=[0-9:]*/mop=/");
    ASSERT_CODE(try_sandbox(CAY_LEVEL_RANGE, "tiny", CAY_STORAGE_DISK),
                CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.message, "created by root");
    ASSERT_OK(cay_template_remove("tiny", &err));
    ASSERT_INT(count_in("home/templates"), 0);
    ASSERT_INT(count_in("home/sandboxes"), 0);
}

TEST(the_level_range_refuses_what_its_ids_do_not_allow)
{
    need_landlock();
    in_home_on(CAY_LEVEL_RANGE, be_refused);
}

static void be_led_to_setup(void)
{
    ASSERT_CODE(try_template("tiny", CAY_TEMPLATE_TAR, make_image("tar")),
                CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "sudo $(which cay) setup");
    ASSERT_INT(count_in("home/templates"), 0);
}

TEST(a_user_without_a_range_is_led_to_cay_setup)
{
    in_home_on(CAY_LEVEL_SINGLE, be_led_to_setup);
}

/* --- Interrupted creations --- */

static int cancel(void *cookie, const char *step, uint64_t bytes)
{
    *(pid_t *)cookie = getpid();
    return step && bytes == 0;
}

static int create_with(const char *path, void *cookie,
                       int (*on_progress)(void *, const char *, uint64_t))
{
    const struct cay_template_options options = {.size = sizeof options,
                                                 .name = "tiny",
                                                 .source = CAY_TEMPLATE_TAR,
                                                 .from = path,
                                                 .on_progress = on_progress,
                                                 .cookie = cookie};

    return cay_template_create(&options, &err);
}

static void be_cancelled(void)
{
    pid_t worker = 0;

    ASSERT_CODE(create_with(make_image("tar"), &worker, cancel), CAY_E_CANCELLED);
    ASSERT(worker && worker != getpid());
    ASSERT_INT(count_in("home/templates"), 0);
    ASSERT_INT(prctl(PR_GET_DUMPABLE), 1);
    make_template("tar");
}

TEST(a_cancelled_creation_leaves_nothing)
{
    in_home_on(CAY_LEVEL_RANGE, be_cancelled);
}

static int await_signal(void *cookie, const char *step, uint64_t bytes)
{
    const struct timespec most = {.tv_sec = PATIENCE_MS / 1000};
    sigset_t wanted;

    (void)step;
    (void)bytes;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    *(int *)cookie = sigtimedwait(&wanted, NULL, &most);
    return 1;
}

static void be_signalled(void)
{
    const char *path = make_image("tar");
    int number = 0;
    sigset_t blocked;

    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    ASSERT(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
    ASSERT(kill(getpid(), SIGTERM) == 0);
    ASSERT_CODE(create_with(path, &number, await_signal), CAY_E_CANCELLED);
    ASSERT_INT(number, SIGTERM);
    ASSERT_INT(count_in("home/templates"), 0);
}

TEST(a_callback_finds_the_signals_of_its_creator)
{
    in_home_on(CAY_LEVEL_RANGE, be_signalled);
}

static int stay(void *cookie, const char *step, uint64_t bytes)
{
    (void)step;
    (void)bytes;
    *(volatile pid_t *)cookie = getpid();
    return pause();
}

static void wait_until(bool (*is_true)(pid_t), volatile pid_t *worker)
{
    const struct timespec moment = {.tv_nsec = 10000000};

    for (int tries = 0; !is_true(*worker); tries++) {
        ASSERT(tries < PATIENCE_MS / 10);
        nanosleep(&moment, NULL);
    }
}

static bool has_begun(pid_t worker)
{
    return worker != 0;
}

static bool has_ended(pid_t worker)
{
    return kill(worker, 0) != 0 && errno == ESRCH;
}

static void outlive_creator(void)
{
    pid_t *worker = mmap(NULL, sizeof *worker, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const char *path = make_image("tar");
    int status;

    ASSERT(worker != MAP_FAILED);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0)
        _exit(create_with(path, worker, stay) == CAY_OK);
    wait_until(has_begun, worker);
    ASSERT(!has_ended(*worker));
    ASSERT(kill(pid, SIGKILL) == 0);
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    wait_until(has_ended, worker);
    ASSERT_INT(count_in("home/templates"), 1);
    ASSERT_OK(create_with(path, NULL, NULL));
    ASSERT_INT(count_in("home/templates"), 1);
    ASSERT_INT(count_names(scratch_path("home/templates"), ".new-"), 0);
    (void)munmap(worker, sizeof *worker);
}

TEST(a_creation_ends_with_its_creator_and_the_next_one_removes_it)
{
    in_home_on(CAY_LEVEL_RANGE, outlive_creator);
}
