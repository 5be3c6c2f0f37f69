/* SPDX-License-Identifier: Apache-2.0 */

/* A claimed sandbox is the one that the request would get without a pool: seen from
 * inside, from outside, and by a program that other restrictions apply to than to the
 * pool. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "pools.h"

/* --- The same inside and outside --- */

/* Left out: ids of processes, sizes of memory, times, counts, the host's ids. */
static const char look_around[] =
    "exec 2>&1; id; umask; pwd; ulimit -a; ulimit -H -a; nice; hostname; uname -srm\n"
    "env | sort\n"
    "cat /proc/self/limits /proc/self/cgroup /proc/self/oom_score_adj\n"
    "cat /proc/self/timerslack_ns /proc/self/personality /proc/self/coredump_filter\n"
    "cat /proc/self/setgroups /proc/self/loginuid /proc/self/attr/current\n"
    "awk '{print $1, $3}' /proc/self/uid_map /proc/self/gid_map\n"
    "for i in self 1; do grep -Ev "
    "'^(Tgid|Ngid|Pid|PPid|Vm|Rss|Hugetlb|NS|SigQ|.*ctxt|Threads|State|Kthread)'"
    " /proc/$i/status; done\n"
    "cut -d' ' -f4- /proc/self/mountinfo | sed 's/id=[0-9]*//g' | sort\n"
    "readlink /proc/self/fd/* | sed 's/[0-9]*//g'; readlink /proc/self/cwd "
    "/proc/self/root\n"
    "for i in comm cmdline environ limits cgroup; do tr '\\0' ' ' </proc/1/$i; done\n"
    "ls -l /proc/1/fd /proc/1/cwd /proc/1/root /proc/1/exe 2>&1 | sed 's/[0-9]//g' | "
    "sort -u\n"
    "grep -s . /proc/sys/user/* /proc/sys/kernel/[ms][ehs][mg]* /proc/sys/fs/mqueue/*\n"
    "cat /proc/net/route /proc/net/if_inet6; awk '{print $4, $5, $6, $8}' "
    "/proc/net/unix\n"
    "cut -c1-10 /proc/net/dev; cat /etc/passwd /etc/group /etc/hosts /etc/hostname\n"
    "find / -xdev -not -path '/proc/*' -printf '%p %M %U %G %s %l\\n' | sort\n"
    "find /dev /tmp /run /home -printf '%p %M %U %G %s %l\\n' | sort\n"
    "cat /proc/sysvipc/*; cat /proc/keys /proc/key-users | wc -l; tty\n"
    "chrt -p $$ | sed 's/.*:/:/'; ionice -p $$; taskset -p $$ | sed 's/.*:/:/'\n";

static const char *const request_env[] = {"COLOR=blue", "EMPTY=", NULL};

static struct cay_sandbox_options same_request(void)
{
    return (struct cay_sandbox_options){.size = sizeof(struct cay_sandbox_options),
                                        .level = wanted_level(),
                                        .hostname = "same",
                                        .env = request_env,
                                        .workdir = "/tmp",
                                        .ttl_ms = 3600000,
                                        .memory_bytes = geteuid() ? 0 : 600 << 20,
                                        .pids = geteuid() ? 0 : 99};
}

struct view {
    char *inside;
    struct cay_sandbox_info outside;
};

static struct view view(const char *pool, const char *user)
{
    struct cay_sandbox_options options = same_request();
    struct view view = {0};

    options.pool = pool;
    options.user = user;
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    run(sandbox, "true"); /* the prefork for the next command is there */
    run(sandbox, look_around);
    view.inside = strdup(result.out);
    ASSERT_OK(cay_sandbox_inspect(sandbox, &view.outside, &err));
    return view;
}

/* Another program than the one that makes the requests, and as different as it can be. */
static pid_t start_pool(int *ret_end, char name[CAY_POOL_ID_MAX])
{
    int ends[2];

    ASSERT(pipe(ends) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        const struct itimerval timer = {.it_value.tv_sec = 100000};
        struct cay_sandbox_options options = {.size = sizeof options, .hostname = "same"};
        sigset_t all;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        setenv("POOL_SECRET", "of-the-pool", 1);
        ASSERT(chdir("/var") == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);
        umask(0777);
        (void)signal(SIGPIPE, SIG_IGN);
        (void)signal(SIGUSR1, SIG_IGN);
        (void)prctl(PR_SET_NAME, "pool-secret");
        cay_pool *pool = make_pool_of(&options, 2, false);
        sigfillset(&all);
        (void)sigprocmask(SIG_BLOCK, &all, NULL);
        ASSERT(write(ends[1], cay_pool_name(pool), CAY_POOL_ID_MAX) == CAY_POOL_ID_MAX);
        for (;;)
            pause();
    }
    (void)close(ends[1]);
    *ret_end = ends[0];
    ASSERT(read(ends[0], name, CAY_POOL_ID_MAX) == CAY_POOL_ID_MAX);
    return child;
}

/* Its spares end a moment later. */
static void end_pool(pid_t child, int end)
{
    char path[300];
    size_t count;
    int status;

    (void)close(end);
    snprintf(path, sizeof path, "%s/spares", runtime_path());
    ASSERT(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    for (int i = 0; i < 500 && count_names(path, "-sb-"); i++) {
        rest_ms(10);
        ASSERT_OK(cay_sandbox_collect(&count, &err));
    }
}

static struct cay_pool_stats stats_of(const char *id)
{
    struct cay_pool_stats stats = {0};
    struct cay_pool_info *infos = NULL;
    size_t count = 0;

    ASSERT_OK(cay_pool_list(&infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        if (strcmp(infos[i].id, id) == 0)
            stats = infos[i].stats;
    cay_free(infos);
    return stats;
}

static void compare_infos(const struct cay_sandbox_info *one,
                          const struct cay_sandbox_info *other)
{
    ASSERT_INT(other->state, one->state);
    ASSERT_INT(other->level, one->level);
    ASSERT_INT(other->network, one->network);
    ASSERT_INT(other->storage, one->storage);
    ASSERT_INT(other->ephemeral, one->ephemeral);
    ASSERT_STR(other->template_name, one->template_name);
    ASSERT_STR(other->user, one->user);
    ASSERT_STR(other->workdir, one->workdir);
    ASSERT_INT(other->memory_bytes, one->memory_bytes);
    ASSERT_INT(other->disk_bytes, one->disk_bytes);
    ASSERT_INT(other->pids, one->pids);
    ASSERT_INT(other->cpu_percent, one->cpu_percent);
    ASSERT_INT(other->id_count, one->id_count);
    ASSERT_INT(other->layers, one->layers);
    ASSERT_STR(other->type, one->type);
    ASSERT_STR(other->name, one->name);
    ASSERT_INT(other->enforced_count, one->enforced_count);
    for (size_t i = 0; i < one->enforced_count; i++) {
        ASSERT_INT(other->enforced[i].layer, one->enforced[i].layer);
        if (strncmp(one->enforced[i].by, "user ids ", 9) != 0)
            ASSERT_STR(other->enforced[i].by, one->enforced[i].by);
    }
    ASSERT(other->created_ms >= one->created_ms); /* the claim, not the spare */
    ASSERT(other->ttl_left_ms > 3000000 && other->ttl_left_ms <= 3600000);
}

static void print_difference(const char *cold, const char *pooled)
{
    while (*cold || *pooled) {
        size_t one = strcspn(cold, "\n"), other = strcspn(pooled, "\n");
        if (one != other || memcmp(cold, pooled, one) != 0) {
            printf("# cold:   %.*s\n# pooled: %.*s\n", (int)one, cold, (int)other,
                   pooled);
            return;
        }
        cold += one + (cold[one] != '\0');
        pooled += other + (pooled[other] != '\0');
    }
}

static void compare_views(const char *user)
{
    char name[CAY_POOL_ID_MAX];
    int end;
    pid_t child = start_pool(&end, name);
    struct view cold = view(NULL, user), pooled = view(name, user);

    for (int i = 0; i < PATIENCE_MS && !stats_of(name).claimed; i++)
        rest_ms(1);
    ASSERT_INT(stats_of(name).claimed, 1);
    end_pool(child, end);
    print_difference(cold.inside, pooled.inside);
    ASSERT(strcmp(pooled.inside, cold.inside) == 0);
    ASSERT(strlen(cold.inside) > 4000 && strstr(cold.inside, "COLOR=blue"));
    ASSERT(!strstr(pooled.inside, "secret") && !strstr(pooled.inside, "SECRET"));
    compare_infos(&cold.outside, &pooled.outside);
    free(cold.inside);
    free(pooled.inside);
}

TEST(a_claimed_sandbox_looks_the_same_to_its_user)
{
    compare_views(NULL);
}

TEST(a_claimed_sandbox_looks_the_same_to_root_inside)
{
    if (wanted_level() >= CAY_LEVEL_SINGLE)
        SKIP("there is no root inside");
    compare_views("root");
}

/* --- Programs with other restrictions --- */

static uint64_t claims_after(cay_pool *pool)
{
    rest_ms(50);
    return claimed(pool);
}

/* Runs `act` in a child of its own, which then creates a sandbox that must be new. */
static void must_be_new(void (*act)(void), const char *script, const char *want)
{
    AUTO(cay_pool) pool = make_pool(1);
    int status;

    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        act();
        cay_sandbox *sandbox = claim(pool, NULL);
        run(sandbox, script);
        ASSERT_STR(result.out, want);
        ASSERT_OK(cay_sandbox_kill(sandbox, &err));
        fflush(stdout);
        _exit(0);
    }
    ASSERT(waitpid(child, &status, 0) == child);
    ASSERT_INT(status, 0);
    ASSERT_INT(claims_after(pool), 0);
}

static void have_fixed_addresses(void)
{
    ASSERT(personality(ADDR_NO_RANDOMIZE) >= 0);
}

TEST(a_program_with_another_personality_gets_a_new_sandbox)
{
    must_be_new(have_fixed_addresses, "cat /proc/self/personality", "00040000\n");
}

/* A filter that refuses nothing: what counts is that the sandbox has it. */
static void have_a_filter(void)
{
    struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog program = {1, code};

    ASSERT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    ASSERT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

TEST(a_program_with_another_seccomp_filter_gets_a_new_sandbox)
{
    if (geteuid() != 0)
        SKIP("newuidmap(1) cannot be used with no_new_privs");
    must_be_new(have_a_filter, "echo new", "new\n");
}

static void lose_groups(void)
{
    ASSERT(setgroups(0, NULL) == 0);
}

/* Root that sandboxes of one user are requested from keeps its groups there. */
TEST(a_program_in_other_groups_gets_a_new_sandbox_of_one_user)
{
    const gid_t extra[] = {4242};
    gid_t before[64];
    int count = getgroups(64, before), status;

    if (geteuid() != 0 || wanted_level())
        SKIP("needs root to change its groups");
    ASSERT(count >= 0 && setgroups(1, extra) == 0);
    struct cay_sandbox_options options = {.size = sizeof options,
                                          .level = CAY_LEVEL_SINGLE};
    const struct cay_pool_options wish = {
        .size = sizeof wish, .sandbox = &options, .count = 1};
    AUTO(cay_pool) pool = NULL;
    int code = cay_pool_create(&wish, &pool, &err);
    ASSERT(setgroups((size_t)count, before) == 0);
    ASSERT_OK(code);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        lose_groups();
        cay_sandbox *sandbox = claim(pool, &options);
        ASSERT_OK(cay_sandbox_kill(sandbox, &err));
        _exit(0);
    }
    ASSERT(waitpid(child, &status, 0) == child);
    ASSERT_INT(status, 0);
    ASSERT_INT(claims_after(pool), 0);
}

/* The same directory twice, once through a mount that is read-only. */
static void bind_read_only(void)
{
    const char *source = scratch_path("data"), *other = scratch_path("read-only");
    const struct cay_bind open = {.source = source, .target = "/data", .writable = true};
    const struct cay_bind closed = {.source = other, .target = "/data", .writable = true};
    const struct cay_sandbox_options pooled = {
        .size = sizeof pooled, .binds = &open, .bind_count = 1};
    const struct cay_sandbox_options request = {
        .size = sizeof request, .binds = &closed, .bind_count = 1};

    ASSERT(unshare(CLONE_NEWNS) == 0 &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    ASSERT(mount(source, other, NULL, MS_BIND, NULL) == 0 &&
           mount(NULL, other, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
    AUTO(cay_pool) pool = make_pool_of(&pooled, 1, false);
    AUTO(cay_sandbox) sandbox = claim(pool, &request);
    run(sandbox, "touch /data/file && echo written");
    ASSERT_STR(result.out, "");
    ASSERT_INT(claims_after(pool), 0);
    AUTO(cay_sandbox) fits = claim(pool, &pooled);
    run(fits, "touch /data/file && echo written");
    ASSERT_STR(result.out, "written\n");
    await_claims(pool, 1);
}

TEST(a_mount_that_is_read_only_on_the_host_is_not_replaced_by_a_writable_one)
{
    need_root();
    if (geteuid() != 0)
        SKIP("needs root to mount");
    ASSERT(mkdir(scratch_path("data"), 0777) == 0 &&
           mkdir(scratch_path("read-only"), 0755) == 0);
    ASSERT(chmod(scratch_path("data"), 0777) == 0);
    in_own_process(bind_read_only);
}
