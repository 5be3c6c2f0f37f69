/* SPDX-License-Identifier: Apache-2.0 */

/* Things that take up room.  Every one is bounded by its amount, or by time, so that it
 * ends also where nothing limits it. */
#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1ul << 20)

static char block[MIB];

static int tell(long made, int error)
{
    printf("made %ld errno %d\n", made, error);
    fflush(stdout);
    return 0;
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* --- Processes --- */

static int make_processes(long amount)
{
    long made = 0;
    int error = 0;

    (void)setpgid(0, 0);
    for (; made < amount; made++) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            pause();
            _exit(0);
        }
        if (child < 0) {
            error = errno;
            break;
        }
    }
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGTERM, &ignore, NULL);
    kill(0, SIGTERM);
    while (wait(NULL) > 0)
        continue;
    return tell(made, error);
}

static int make_zombies(long amount)
{
    long made = 0;

    for (; made < amount; made++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        if (child < 0)
            return tell(made, errno);
    }
    return tell(made, 0);
}

static void *wait_for_ever(void *nothing)
{
    pause();
    return nothing;
}

static int make_threads(long amount)
{
    pthread_attr_t attributes;
    pthread_t thread;
    long made = 0;
    int error = 0;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN));
    while (made < amount && !error) {
        error = pthread_create(&thread, &attributes, wait_for_ever, NULL);
        made += !error;
    }
    return tell(made, error);
}

/* Every process forks as fast as it can until the time is over: `amount` ms, or longer
 * where none was refused by then, up to far more than a limit allows.  Tells how often
 * all of them together were refused. */
static int make_bomb(long amount)
{
    enum { FAR_TOO_MANY = 1000 };
    double end = now() + (double)amount / 1e3;
    pid_t own = getpid();
    struct {
        atomic_long made, refused;
        atomic_int error;
    } *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                  -1, 0);

    if (all == MAP_FAILED)
        return tell(-1, errno);
    while (now() < end || (all->refused == 0 && all->made < FAR_TOO_MANY)) {
        pid_t pid = fork();
        if (pid < 0) {
            all->error = errno;
            all->refused++;
        } else if (pid > 0)
            all->made++;
    }
    if (getpid() != own)
        _exit(0);
    return tell(all->refused, all->error);
}

/* --- Survivors --- */

static void outlive(long number)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};

    for (int signal = 1; signal < 32; signal++)
        sigaction(signal, &ignore, NULL);
    prctl(PR_SET_PDEATHSIG, 0);
    if (number % 2)
        setsid();
    if (fork() > 0) /* the parent goes, we are PID 1's */
        _exit(0);
    if (number % 3 == 0)
        raise(SIGSTOP);
    if (number % 5 == 0 && vfork() == 0) {
        /* our parent waits for us in the kernel */
        for (;;)
            pause();
    }
    for (;;)
        pause();
}

static int start_survivors(long amount)
{
    for (long i = 1; i <= amount; i++) {
        pid_t child = fork();
        if (child == 0)
            outlive(i);
        if (child < 0)
            return tell(i - 1, errno);
        (void)waitpid(child, NULL, 0);
    }
    return tell(amount, 0);
}

/* And waits with them, to be killed. */
static int make_survivors(long amount)
{
    int status = start_survivors(amount);

    while (status == 0)
        pause();
    return status;
}

static int hold_the_pipe(long amount)
{
    if (fork() == 0) {
        sleep((unsigned)amount);
        _exit(0);
    }
    return tell(1, 0);
}

/* --- Memory, in MiB --- */

static int touch(long amount, int flags, int fd)
{
    for (long made = 0; made < amount; made++) {
        if (fd >= 0 && ftruncate(fd, (made + 1) * (long)MIB) != 0)
            return tell(made, errno);
        char *piece = mmap(NULL, MIB, PROT_READ | PROT_WRITE, flags, fd,
                           fd < 0 ? 0 : made * (long)MIB);
        if (piece == MAP_FAILED)
            return tell(made, errno);
        for (size_t i = 0; i < MIB; i += 4096)
            piece[i] = 1;
    }
    return tell(amount, 0);
}

static int touch_shared_segments(long amount)
{
    for (long made = 0; made < amount; made++) {
        int id = shmget(IPC_PRIVATE, MIB, IPC_CREAT | 0600);
        char *piece = id < 0 ? (void *)-1 : shmat(id, NULL, 0);
        if (piece == (void *)-1)
            return tell(made, errno);
        (void)shmctl(id, IPC_RMID, NULL);
        memset(piece, 1, MIB);
    }
    return tell(amount, 0);
}

/* One page in 2 MiB: as much again goes into the tables. */
static int touch_sparsely(long amount)
{
    size_t step = 2 * MIB;
    size_t count = (size_t)amount * MIB / 8192;
    char *place = mmap(NULL, count * step, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (place == MAP_FAILED)
        return tell(0, errno);
    (void)madvise(place, count * step, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < count; i++)
        place[i * step] = 1;
    return tell(amount, 0);
}

/* --- Descriptors and what hangs on them --- */

static int fill(int fd)
{
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    while (write(fd, block, 4096) > 0)
        continue;
    return errno == EAGAIN ? 0 : errno;
}

static int make_pipes(long amount)
{
    int ends[2], error = 0;
    long made = 0;

    for (; made < amount && !error; made++) {
        error = pipe(ends) == 0 ? 0 : errno;
        if (!error)
            error = fill(ends[1]);
    }
    return tell(made, error);
}

static int make_sockets(long amount)
{
    int ends[2], error = 0;
    long made = 0;

    for (; made < amount && !error; made++) {
        error = socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 ? 0 : errno;
        if (!error)
            error = fill(ends[1]);
    }
    return tell(made, error);
}

/* Connections to ourselves with full buffers, in MiB. */
static int fill_tcp(long amount)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int size = 4 << 20, listening = socket(AF_INET, SOCK_STREAM, 0);
    size_t bytes = 0;

    if (bind(listening, (struct sockaddr *)&address, len) != 0 ||
        listen(listening, 4096) != 0 ||
        getsockname(listening, (struct sockaddr *)&address, &len) != 0)
        return tell(-1, errno);
    /* A thousand connections that take nothing any more are an end, too. */
    for (int i = 0; i < 1000 && bytes < (size_t)amount * MIB; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&address, len) != 0)
            return tell((long)(bytes / MIB), errno);
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        (void)fcntl(fd, F_SETFL, O_NONBLOCK);
        for (ssize_t put; (put = write(fd, block, sizeof block)) > 0;)
            bytes += (size_t)put;
    }
    bool all = bytes >= (size_t)amount * MIB;
    return tell(all ? amount : (long)(bytes / MIB), all ? 0 : EAGAIN);
}

static int make_terminals(long amount)
{
    for (long made = 0; made < amount; made++)
        if (open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC) < 0)
            return tell(made, errno);
    return tell(amount, 0);
}

static int make_descriptors(long amount)
{
    for (long made = 0; made < amount; made++)
        if (open("/dev/null", O_RDONLY | O_CLOEXEC) < 0)
            return tell(made, errno);
    return tell(amount, 0);
}

static int make_watchers(long amount)
{
    for (long made = 0; made < amount; made++)
        if (inotify_init1(IN_CLOEXEC) < 0)
            return tell(made, errno);
    return tell(amount, 0);
}

/* --- Files --- */

static int fill_file(long amount, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), error = 0;
    long made = 0;

    if (fd < 0)
        return tell(0, errno);
    for (; made < amount && !error; made++)
        if (write(fd, block, MIB) != (ssize_t)MIB) {
            error = errno ? errno : ENOSPC;
            break;
        }
    unlink(path);
    close(fd);
    return tell(made, error);
}

static int make_files(long amount)
{
    char path[64];
    long made = 0;
    int error = 0;

    if (mkdir("/tmp/many", 0700) != 0)
        return tell(0, errno);
    for (; made < amount; made++) {
        snprintf(path, sizeof path, "/tmp/many/%ld", made);
        if (mknod(path, S_IFREG | 0600, 0) != 0) {
            error = errno;
            break;
        }
    }
    for (long i = 0; i < made; i++) {
        snprintf(path, sizeof path, "/tmp/many/%ld", i);
        unlink(path);
    }
    rmdir("/tmp/many");
    return tell(made, error);
}

/* `amount` MiB are asked for at once. */
static int allocate(long amount)
{
    int fd = open("/tmp/sparse", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0)
        return tell(0, errno);
    int error = posix_fallocate(fd, 0, (off_t)amount << 20);
    unlink("/tmp/sparse");
    return tell(error ? 0 : amount, error);
}

/* Swaps "d" and "l" here, for `amount` ms. */
static int flip(long amount)
{
    double end = now() + (double)amount / 1e3;
    long made = 0;

    for (; now() < end; made++)
        if (syscall(SYS_renameat2, AT_FDCWD, "d", AT_FDCWD, "l", RENAME_EXCHANGE) != 0)
            return tell(made, errno);
    return tell(made, 0);
}

/* Directories in directories, each called "d". */
static int dig(long amount)
{
    for (long made = 0; made < amount; made++)
        if (mkdir("d", 0700) != 0 || chdir("d") != 0)
            return tell(made, errno);
    return tell(amount, 0);
}

/* --- Filters of system calls --- */

/* The largest there is: it allows everything.  0 or an errno. */
static int install_filter(bool by_prctl)
{
    static struct sock_filter code[BPF_MAXINSNS];
    const struct sock_fprog program = {.len = BPF_MAXINSNS, .filter = code};

    for (size_t i = 0; i < BPF_MAXINSNS - 1; i++)
        code[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
    code[BPF_MAXINSNS - 1] =
        (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return errno;
    long failed = by_prctl ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
                           : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
    return failed ? errno : 0;
}

/* The same in a child, whose errno comes back through a pipe.  The child then stays, or
 * ends, or leaves a child of its own that stays; all end with us. */
enum fate { STAYS, ENDS, LEAVES_A_CHILD, STAYS_IN_GROUPS };

/* So many that /proc/PID/status is long before it says how many filters there are. */
static int join_groups(void)
{
    static gid_t groups[2000];

    for (size_t i = 0; i < 2000; i++)
        groups[i] = (gid_t)(10000 + i);
    return setgroups(2000, groups) == 0 ? 0 : errno;
}

static int install_in_child(bool by_prctl, enum fate fate)
{
    int ends[2], error = ECHILD;

    if (pipe(ends) != 0)
        return errno;
    pid_t child = fork();
    if (child < 0)
        error = errno;
    if (child == 0) {
        error = install_filter(by_prctl);
        if (fate == LEAVES_A_CHILD && fork() != 0)
            _exit(0);
        if (!error && fate == STAYS_IN_GROUPS)
            error = join_groups();
        (void)!write(ends[1], &error, sizeof error);
        close(ends[1]);
        if (fate != ENDS)
            pause();
        _exit(0);
    }
    close(ends[1]);
    (void)!read(ends[0], &error, sizeof error);
    close(ends[0]);
    if (child > 0 && (fate == ENDS || fate == LEAVES_A_CHILD))
        (void)waitpid(child, NULL, 0);
    return error;
}

static int make_filters(long amount, enum fate fate)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    long made = 0;
    int error = 0;

    (void)setpgid(0, 0);
    while (made < amount && !error) {
        error = install_in_child(made & 1, fate);
        made += !error;
    }
    sigaction(SIGTERM, &ignore, NULL);
    kill(0, SIGTERM);
    return tell(made, error);
}

static int make_filters_that_stay(long amount)
{
    return make_filters(amount, STAYS);
}

static int make_filters_that_end(long amount)
{
    return make_filters(amount, ENDS);
}

static int make_filters_of_the_dead(long amount)
{
    return make_filters(amount, LEAVES_A_CHILD);
}

static int make_filters_in_groups(long amount)
{
    return make_filters(amount, STAYS_IN_GROUPS);
}

/* After the limit is reached, `amount` more are asked for. */
static int ask_for_filters(long amount)
{
    int error = 0;

    while (!error)
        error = install_in_child(false, STAYS);
    for (long asked = 0; error == ENOMEM && asked < amount; asked++)
        error = install_filter(false);
    return tell(0, error);
}

static void *install_in_thread(void *ret_error)
{
    atomic_int *error = ret_error;

    int first = install_filter(false);
    atomic_store(error, first ? first : install_filter(true));
    pause();
    return NULL;
}

/* Two in each, since there may be fewer threads than filters. */
static int make_filters_of_threads(long amount)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    long made = 0;
    int failed = 0;

    while (made < amount && !failed) {
        static atomic_int error;
        pthread_t thread;
        atomic_store(&error, -1);
        failed = pthread_create(&thread, NULL, install_in_thread, &error);
        while (!failed && atomic_load(&error) < 0)
            nanosleep(&moment, NULL);
        if (!failed)
            failed = atomic_load(&error);
        made += failed ? 0 : 2;
    }
    return tell(made, failed);
}

/* --- Output, and time --- */

/* `amount` bytes to stdout without one newline, half as many NULs to stderr. */
static int flood(long amount)
{
    static char zeros[4096];

    memset(block, 'x', sizeof block);
    for (long left = amount; left > 0;) {
        ssize_t put = write(1, block, left < 65536 ? (size_t)left : 65536);
        if (put <= 0)
            return 1;
        left -= put;
    }
    for (long left = amount / 2; left > 0;) {
        ssize_t put = write(2, zeros, left < 4096 ? (size_t)left : 4096);
        if (put <= 0)
            return 1;
        left -= put;
    }
    return 0;
}

/* `amount` processes that do nothing but use the processor, for a second. */
static int spin(long amount)
{
    double end = now() + 1;

    for (long i = 1; i < amount; i++)
        if (fork() == 0)
            break;
    while (now() < end)
        continue;
    while (wait(NULL) > 0)
        continue;
    return 0;
}

/* The neighbour: counts for `amount` ms; "count C gap MICROSECONDS sum S".  The sum is
 * what it must be if every step was taken. */
static int count(long amount)
{
    const struct timespec pause_time = {.tv_nsec = 2000000};
    double end = now() + (double)amount / 1e3, before = now(), gap = 0;
    unsigned long steps = 0, sum = 0;

    while (now() < end) {
        nanosleep(&pause_time, NULL);
        double after = now();
        if (after - before > gap)
            gap = after - before;
        before = after;
        sum += ++steps;
    }
    printf("count %lu gap %.0f sum %lu\n", steps, gap * 1e6, sum);
    return 0;
}

int load_run(const char *kind, long amount)
{
    static const struct {
        const char *kind;
        int (*make)(long amount);
    } plain[] = {
        {"processes", make_processes},
        {"zombies", make_zombies},
        {"threads", make_threads},
        {"bomb", make_bomb},
        {"survivors", make_survivors},
        {"background", start_survivors},
        {"hold", hold_the_pipe},
        {"segments", touch_shared_segments},
        {"tables", touch_sparsely},
        {"pipes", make_pipes},
        {"sockets", make_sockets},
        {"descriptors", make_descriptors},
        {"watchers", make_watchers},
        {"files", make_files},
        {"allocate", allocate},
        {"flood", flood},
        {"spin", spin},
        {"count", count},
        {"tcp", fill_tcp},
        {"terminals", make_terminals},
        {"filters", make_filters_that_stay},
        {"filters-again", make_filters_that_end},
        {"filters-in-groups", make_filters_in_groups},
        {"filters-asked-for", ask_for_filters},
        {"filters-orphaned", make_filters_of_the_dead},
        {"filters-threads", make_filters_of_threads},
        {"flip", flip},
        {"dig", dig},
    };

    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strcmp(kind, plain[i].kind) == 0)
            return plain[i].make(amount);
    if (strcmp(kind, "private") == 0)
        return touch(amount, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (strcmp(kind, "shared") == 0)
        return touch(amount, MAP_SHARED | MAP_ANONYMOUS, -1);
    if (strcmp(kind, "memfd") == 0)
        return touch(amount, MAP_SHARED, memfd_create("load", MFD_CLOEXEC));
    if (*kind == '/')
        return fill_file(amount, kind);
    fprintf(stderr, "no such load: %s\n", kind);
    return 2;
}
