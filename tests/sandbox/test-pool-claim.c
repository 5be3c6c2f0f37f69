/* SPDX-License-Identifier: Apache-2.0 */

/* The claim as PID 1 of a spare sees it: malformed, repeated, while the pool ends. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "init/packet.h"
#include "init/plan.h"
#include "init/protocol.h"
#include "ordinary.h"
#include "pools.h"

struct spare {
    char id[CAY_ID_MAX];
    pid_t init;
};

/* Of the pool, which is the newest. */
static struct spare find_spare(void)
{
    struct cay_sandbox_info *infos = NULL;
    struct spare spare = {.init = 0};
    size_t count = 0;

    ASSERT_OK(cay_sandbox_list_brief(&infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        if (infos[i].state == CAY_STATE_SPARE) {
            memcpy(spare.id, infos[i].id, sizeof spare.id);
            spare.init = infos[i].init_pid;
        }
    cay_free(infos);
    ASSERT(spare.init > 0);
    return spare;
}

/* Takes the offer, as a claim does first. */
static void take_offer(const struct spare *spare)
{
    char path[300];

    snprintf(path, sizeof path, "%s/spares", runtime_path());
    DIR *list = opendir(path);
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (strstr(entry->d_name, spare->id))
            ASSERT(unlinkat(dirfd(list), entry->d_name, 0) == 0);
    (void)closedir(list);
}

static int dial(const struct spare *spare)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(name.sun_path, sizeof name.sun_path, "%.60s/%s.control", runtime_path(),
             spare->id);
    ASSERT(fd >= 0 && connect(fd, (const struct sockaddr *)&name, sizeof name) == 0);
    return fd;
}

/* The kind of the reply; 0 if the connection was closed. */
static uint32_t receive(int fd)
{
    struct message head = {0};
    char bytes[4096];

    ssize_t len = recv(fd, bytes, sizeof bytes, 0);
    if (len >= (ssize_t)sizeof head)
        memcpy(&head, bytes, sizeof head);
    return head.kind;
}

static void send_claim(int fd, const struct plan_defaults *head, const char *env,
                       size_t env_len, int leash)
{
    char bytes[sizeof *head + 64];

    memcpy(bytes, head, sizeof *head);
    memcpy(bytes + sizeof *head, env, env_len);
    ASSERT(packet_send(fd, MESSAGE_CLAIM, bytes, sizeof *head + env_len, &leash,
                       leash >= 0) == 0);
}

static const struct plan_defaults empty;

static bool is_alive(const struct spare *spare)
{
    return kill(spare->init, 0) == 0;
}

static void await_end(const struct spare *spare)
{
    for (int i = 0; i < PATIENCE_MS && is_alive(spare); i++)
        rest_ms(1);
    ASSERT(!is_alive(spare));
}

TEST(a_claim_of_the_wrong_size_is_refused_and_leaves_the_spare)
{
    AUTO(cay_pool) pool = make_pool(1);
    struct spare spare = find_spare();
    struct plan_defaults head = {.env_len = 7};

    int fd = dial(&spare);
    ASSERT(packet_send(fd, MESSAGE_CLAIM, "short", 5, NULL, 0) == 0);
    ASSERT_INT(receive(fd), 0);
    (void)close(fd);
    fd = dial(&spare);
    send_claim(fd, &head, "A=1", 4, -1);
    ASSERT_INT(receive(fd), 0);
    (void)close(fd);
    AUTO(cay_sandbox) sandbox = claim(pool, NULL);
    ASSERT_STR(cay_sandbox_id(sandbox), spare.id);
    run(sandbox, "true");
    ASSERT_INT(result.exit_code, 0);
}

/* It would have parts of that request, and memory that nothing frees. */
TEST(a_spare_ends_if_its_claim_is_malformed)
{
    struct plan_defaults no_end = {.env_len = 3}, user = {.env_len = 0};
    const struct plan_defaults *const heads[] = {&no_end, &user};

    memset(user.user, 'x', sizeof user.user);
    for (size_t i = 0; i < 2; i++) {
        AUTO(cay_pool) pool = make_pool(1);
        struct spare spare = find_spare();
        struct cay_pool_stats stats = {0};
        int fd = dial(&spare);
        send_claim(fd, heads[i], "A=1", heads[i]->env_len, -1);
        ASSERT_INT(receive(fd), 0);
        (void)close(fd);
        await_end(&spare);
        for (int tries = 0; tries < PATIENCE_MS && stats.created < 2; tries++) {
            rest_ms(1);
            cay_pool_get_stats(pool, &stats);
        }
        ASSERT_INT(stats.created, 2);
        ASSERT_INT(stats.claimed, 0);
    }
}

/* A descriptor that epoll(7) cannot watch, instead of a socket. */
TEST(a_spare_ends_if_its_new_leash_is_invalid)
{
    __attribute__((unused)) AUTO(cay_pool) pool = make_pool(1);
    struct spare spare = find_spare();
    int fd = dial(&spare), file = open("/etc/passwd", O_RDONLY | O_CLOEXEC);

    send_claim(fd, &empty, "", 0, file);
    ASSERT_INT(receive(fd), 0);
    await_end(&spare);
    (void)close(fd);
    (void)close(file);
}

TEST(a_second_claim_is_refused_and_the_first_lives_on)
{
    __attribute__((unused)) AUTO(cay_pool) pool = make_pool(1);
    struct spare spare = find_spare();
    int fd = dial(&spare), other = dial(&spare);

    take_offer(&spare);
    send_claim(fd, &empty, "", 0, -1); /* without a reply */
    ASSERT(packet_send(fd, MESSAGE_PING, NULL, 0, NULL, 0) == 0);
    ASSERT_INT(receive(fd), MESSAGE_PONG);
    for (int i = 0; i < 2; i++) {
        send_claim(other, &empty, "", 0, -1);
        ASSERT_INT(receive(other), MESSAGE_FAILED);
    }
    ASSERT(packet_send(fd, MESSAGE_PING, NULL, 0, NULL, 0) == 0);
    ASSERT_INT(receive(fd), MESSAGE_PONG);
    (void)close(fd);
    (void)close(other);
    ASSERT(kill(spare.init, SIGKILL) == 0);
    await_end(&spare);
}

/* PID 1 finds the claim and the end of the pool in one round of events. */
TEST(a_claim_that_comes_before_the_end_of_the_pool_is_kept)
{
    cay_pool *pool = make_pool(1);
    struct spare spare = find_spare();
    int fd = dial(&spare);

    ASSERT(packet_send(fd, MESSAGE_PING, NULL, 0, NULL, 0) == 0);
    ASSERT_INT(receive(fd), MESSAGE_PONG);
    take_offer(&spare);
    ASSERT(kill(spare.init, SIGSTOP) == 0);
    rest_ms(20);
    send_claim(fd, &empty, "", 0, -1);
    cay_pool_free(pool);
    ASSERT(kill(spare.init, SIGCONT) == 0);
    ASSERT(packet_send(fd, MESSAGE_PING, NULL, 0, NULL, 0) == 0);
    ASSERT_INT(receive(fd), MESSAGE_PONG);
    (void)close(fd);
    ASSERT(kill(spare.init, SIGKILL) == 0);
    await_end(&spare);
}

TEST(a_spare_ends_with_its_pool_if_its_claim_was_given_up)
{
    cay_pool *pool = make_pool(1);
    struct spare spare = find_spare();

    take_offer(&spare);
    cay_pool_free(pool);
    await_end(&spare);
}

/* --- Files of the runtime directory that the same user has changed --- */

static const char *runtime_file(const char *name)
{
    static char path[600];

    snprintf(path, sizeof path, "%s/%s", runtime_path(), name);
    return path;
}

TEST(planted_files_neither_block_nor_pass_for_pools)
{
    static const char locked[] = "pools/p-ffffffffffffffff-and-much-longer-than-an-id";
    AUTO(cay_pool) pool = make_pool(1);
    struct cay_pool_info *infos = NULL;
    struct cay_pool_info junk;
    size_t count = 0, found = 0;

    memset(&junk, 'p', sizeof junk);
    memcpy(junk.id, strchr(locked, '/') + 1, sizeof junk.id);
    ASSERT(mkfifo(runtime_file("pools/p-fifo"), 0600) == 0);
    ASSERT(symlink("/etc/passwd", runtime_file("pools/p-link")) == 0);
    int fd = open(runtime_file(locked), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT(fd >= 0 && flock(fd, LOCK_EX) == 0 &&
           write(fd, &junk, sizeof junk) == sizeof junk);
    ASSERT_OK(cay_pool_list(&infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        found += strcmp(infos[i].id, cay_pool_id(pool)) == 0 ||
                 strncmp(infos[i].id, "p-f", 3) == 0 ||
                 strncmp(infos[i].id, "p-l", 3) == 0;
    cay_free(infos);
    ASSERT_INT(found, 1);
    ASSERT_INT(cay_pool_stop("p-fifo", &err), CAY_E_NOT_FOUND);
    ASSERT_INT(cay_pool_stop(strchr(locked, '/') + 1, &err), CAY_E_NOT_FOUND);
    (void)close(fd);
    ASSERT(unlink(runtime_file(locked)) == 0 &&
           unlink(runtime_file("pools/p-link")) == 0);
    ASSERT(access(runtime_file("pools/p-fifo"), F_OK) != 0); /* of no running pool */
}

/* The key of the pool, with ids that are none, or that no sandbox has, or another's. */
TEST(planted_offers_lead_to_no_other_sandbox)
{
    AUTO(cay_sandbox) other = make_sandbox(NULL);
    AUTO(cay_pool) pool = make_pool(1);
    struct spare spare = find_spare();
    char key[18] = "", name[100];
    const char *const ids[] = {"", "..", "sb-aaaaaaaaaaaaaaaa", "sb-short",
                               cay_sandbox_id(other)};

    DIR *list = opendir(runtime_file("spares"));
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (strstr(entry->d_name, spare.id))
            memcpy(key, entry->d_name, 17);
    (void)closedir(list);
    take_offer(&spare);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        snprintf(name, sizeof name, "spares/%s%s", key, ids[i]);
        (void)close(open(runtime_file(name), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    }
    AUTO(cay_sandbox) sandbox = claim(pool, NULL);
    ASSERT(strcmp(cay_sandbox_id(sandbox), cay_sandbox_id(other)) != 0);
    run(sandbox, "touch /tmp/mark");
    run(other, "test ! -e /tmp/mark");
    ASSERT_INT(result.exit_code, 0);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        snprintf(name, sizeof name, "spares/%s%s", key, ids[i]);
        (void)unlink(runtime_file(name));
    }
}

TEST(a_pool_may_have_any_name_in_a_request)
{
    static char long_name[100000];
    const char *const names[] = {"../../etc", "/", "p-", long_name};

    need_root();
    memset(long_name, 'x', sizeof long_name - 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct cay_sandbox_options options = {.size = sizeof options,
                                                    .pool = names[i]};
        AUTO(cay_pool) pool = make_pool(1);
        AUTO(cay_sandbox) sandbox = make_sandbox(&options);
        run(sandbox, "true");
        rest_ms(20);
        ASSERT_INT(claimed(pool), 0);
    }
}

/* --- Another user --- */

static char pool_of_root[CAY_POOL_ID_MAX];

static void try_as_another(void)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .pool = pool_of_root, .ephemeral = true};
    struct cay_pool_info *infos = NULL;
    cay_sandbox *sandbox = NULL;
    size_t count = 1;

    ASSERT_OK(cay_pool_list(&infos, &count, &err));
    ASSERT_INT(count, 0);
    cay_free(infos);
    ASSERT_INT(cay_pool_stop(pool_of_root, &err), CAY_E_NOT_FOUND);
    ASSERT(open("/run/cay/spares/0123456789abcdef-sb-aaaaaaaaaaaaaaaa",
                O_WRONLY | O_CREAT | O_CLOEXEC, 0600) < 0);
    ASSERT_INT(errno, EACCES);
    ASSERT_OK(cay_sandbox_create(&options, &sandbox, &err)); /* a new one */
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    cay_sandbox_free(sandbox);
}

TEST(another_user_neither_sees_nor_stops_nor_claims_from_a_pool)
{
    AUTO(cay_pool) pool = make_pool(1);

    if (geteuid() != 0)
        SKIP("needs root to become another user");
    memcpy(pool_of_root, cay_pool_id(pool), sizeof pool_of_root);
    as_ordinary(ordinary_user(false), try_as_another);
    rest_ms(20);
    ASSERT_INT(claimed(pool), 0);
}

/* --- A child of the program --- */

static size_t count_open(void)
{
    return count_names("/proc/self/fd", "");
}

TEST(a_spare_takes_two_descriptors_of_the_program)
{
    enum { OWN = 5, EACH = 2, COUNT = 4 };
    size_t before = count_open();
    __attribute__((unused)) AUTO(cay_pool) pool = make_pool(COUNT);

    rest_ms(50); /* the thread waits */
    ASSERT_INT(count_open(), before + OWN + EACH * COUNT);
}

TEST(a_child_that_frees_the_pool_closes_it_and_leaves_the_parents)
{
    int status;
    size_t before = count_open();
    AUTO(cay_pool) pool = make_pool(2);

    rest_ms(50); /* the thread waits */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        cay_pool_free(pool);
        _exit(count_open() == before ? 0 : 1);
    }
    ASSERT(waitpid(child, &status, 0) == child);
    ASSERT_INT(status, 0);
    AUTO(cay_sandbox) sandbox = claim(pool, NULL);
    run(sandbox, "true");
    await_claims(pool, 1);
}

TEST(a_wait_for_ever_does_not_end_at_once)
{
    AUTO(cay_pool) pool = make_pool(1);

    __attribute__((unused)) AUTO(cay_sandbox) sandbox = claim(pool, NULL);
    await_claims(pool, 1);
    ASSERT_OK(cay_pool_wait(pool, 1, UINT64_MAX, &err));
}
