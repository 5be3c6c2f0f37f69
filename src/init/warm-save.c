/* SPDX-License-Identifier: Apache-2.0 */

/* Writes the memory of the calling process to a file: see warm.h.  A shared object that
 * needs no other, loaded by the interpreter of a context with dlopen(3); whatever C
 * library is there, this does not call it. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "init/warm.h"
#include "sys/raw.h"

#define EXPORT __attribute__((visibility("default")))

enum {
    MAPS_MAX = 4 << 20,
    PAGEMAP_MAX = 1 << 20, /* pages of a region: 4 GiB */
    RSEQ_SIZE = 32,
#if defined(__x86_64__)
    RSEQ_SIGNATURE = 0x53053053
#else
    RSEQ_SIGNATURE = (int)0xd428bc00
#endif
};

/* What the kernel keeps for a process and a copy of it lacks. */
struct kept {
    uint64_t tid_address, robust, robust_size, rseq;
    uint64_t signals[WARM_SIGNALS][4];
    uint64_t stack[3]; /* stack_t */
    uint64_t mask;
    char name[16];
};

struct scratch {
    char maps[MAPS_MAX];
    uint64_t pagemap[PAGEMAP_MAX];
    struct warm_region regions[WARM_REGIONS_MAX];
    struct warm_file files[WARM_FILES_MAX];
    char paths[WARM_PATHS_MAX];
};

struct save {
    struct scratch *scratch;
    int fd, pagemap;
    bool any_inode;
    uint64_t end; /* of the file */
    uint64_t text_len;
};

/* Part of the memory that is written, so a copy finds it. */
static struct warm_head head;
static struct kept kept;

/* --- Without a C library --- */

/* The compiler calls these for its own purposes. */
void *warm_fill(void *to, int byte, size_t len) __asm__("memset");
void *warm_copy(void *restrict to, const void *restrict from,
                size_t len) __asm__("memcpy");

void *warm_fill(void *to, int byte, size_t len)
{
    char *at = to;

    while (len--) {
        *at++ = (char)byte;
        __asm__ volatile("" ::
                             : "memory"); /* or this loop would become a call of itself */
    }
    return to;
}

void *warm_copy(void *restrict to, const void *restrict from, size_t len)
{
    char *at = to;
    const char *source = from;

    while (len--) {
        *at++ = *source++;
        __asm__ volatile("" ::: "memory");
    }
    return to;
}

static bool begins(const char *text, const char *with)
{
    while (*with)
        if (*text++ != *with++)
            return false;
    return true;
}

static long open_file(const char *path)
{
    return raw_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0);
}

static long write_at(int fd, const void *from, uint64_t len, uint64_t offset)
{
    while (len) {
        long count = raw_call(SYS_pwrite64, fd, (long)from, (long)len, (long)offset, 0);
        if (count <= 0)
            return count ? count : -EIO;
        from = (const char *)from + count;
        len -= (uint64_t)count;
        offset += (uint64_t)count;
    }
    return 0;
}

static uint64_t thread_pointer(void)
{
    uint64_t value = 0;
#if defined(__x86_64__)
    enum { GET_FS = 0x1003 };
    (void)raw_call(SYS_arch_prctl, GET_FS, (long)&value, 0, 0, 0);
#else
    __asm__("mrs %0, tpidr_el0" : "=r"(value));
#endif
    return value;
}

/* Stores the registers that a call preserves, and returns 0.  warm-start.c loads them and
 * lets this return 1. */
long warm_registers(uint64_t *to);

#if defined(__x86_64__)
__asm__(".text\n"
        ".hidden warm_registers\n"
        ".globl warm_registers\n"
        "warm_registers:\n"
        "endbr64\n"
        "mov %rbx, 0(%rdi)\n"
        "mov %rbp, 8(%rdi)\n"
        "mov %r12, 16(%rdi)\n"
        "mov %r13, 24(%rdi)\n"
        "mov %r14, 32(%rdi)\n"
        "mov %r15, 40(%rdi)\n"
        "lea 8(%rsp), %rax\n"
        "mov %rax, 48(%rdi)\n"
        "mov (%rsp), %rax\n"
        "mov %rax, 56(%rdi)\n"
        "stmxcsr 64(%rdi)\n"
        "fnstcw 72(%rdi)\n"
        "xor %eax, %eax\n"
        "ret\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".hidden warm_registers\n"
        ".globl warm_registers\n"
        "warm_registers:\n"
        "stp x19, x20, [x0, 0]\n"
        "stp x21, x22, [x0, 16]\n"
        "stp x23, x24, [x0, 32]\n"
        "stp x25, x26, [x0, 48]\n"
        "stp x27, x28, [x0, 64]\n"
        "stp x29, x30, [x0, 80]\n"
        "mov x1, sp\n"
        "mrs x2, fpcr\n"
        "stp x1, x2, [x0, 96]\n"
        "stp d8, d9, [x0, 112]\n"
        "stp d10, d11, [x0, 128]\n"
        "stp d12, d13, [x0, 144]\n"
        "stp d14, d15, [x0, 160]\n"
        "mov x0, 0\n"
        "ret\n");
#endif

/* --- What the kernel keeps --- */

static long keep_kernel_state(int64_t rseq_offset)
{
    const int tid = (int)raw_call(SYS_gettid, 0, 0, 0, 0, 0);

    kept.rseq = rseq_offset ? head.thread + (uint64_t)rseq_offset : 0;
    if (raw_call(SYS_prctl, PR_GET_TID_ADDRESS, (long)&kept.tid_address, 0, 0, 0) < 0 ||
        !kept.tid_address || *(int *)kept.tid_address != tid)
        return -ENOTSUP; /* a C library that stores its thread id elsewhere */
    (void)raw_call(SYS_get_robust_list, 0, (long)&kept.robust, (long)&kept.robust_size, 0,
                   0);
    for (long i = 0; i < WARM_SIGNALS; i++)
        (void)raw_call(SYS_rt_sigaction, i + 1, 0, (long)kept.signals[i], 8, 0);
    (void)raw_call(SYS_rt_sigprocmask, 0, 0, (long)&kept.mask, 8, 0);
    (void)raw_call(SYS_sigaltstack, 0, (long)kept.stack, 0, 0, 0);
    return raw_call(SYS_prctl, PR_GET_NAME, (long)kept.name, 0, 0, 0);
}

static void restore_kernel_state(void)
{
    long tid = raw_call(SYS_set_tid_address, (long)kept.tid_address, 0, 0, 0, 0);

    *(int *)kept.tid_address = (int)tid;
    if (kept.robust)
        (void)raw_call(SYS_set_robust_list, (long)kept.robust, (long)kept.robust_size, 0,
                       0, 0);
    if (kept.rseq) {
        ((uint32_t *)kept.rseq)[0] = 0;
        ((int32_t *)kept.rseq)[1] = -1; /* not registered */
        (void)raw_call(SYS_rseq, (long)kept.rseq, RSEQ_SIZE, 0, RSEQ_SIGNATURE, 0);
    }
    for (long i = 0; i < WARM_SIGNALS; i++)
        (void)raw_call(SYS_rt_sigaction, i + 1, (long)kept.signals[i], 0, 8, 0);
    (void)raw_call(SYS_sigaltstack, (long)kept.stack, 0, 0, 0, 0);
    (void)raw_call(SYS_prctl, PR_SET_NAME, (long)kept.name, 0, 0, 0);
    (void)raw_call(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, (long)&kept.mask, 0, 8, 0);
    (void)raw_call(SYS_munmap, (long)head.leftover, (long)head.leftover_size, 0, 0, 0);
}

/* The bounds of code, heap, stack, arguments and environment. */
static long keep_layout(void)
{
    /* Where they are among the fields of /proc/self/stat. */
    static const unsigned char fields[WARM_LAYOUT] = {26, 27, 45, 46, 47, 0,
                                                      28, 48, 49, 50, 51};
    uint64_t values[52] = {0};
    char text[1024] = "";
    long fd = open_file("/proc/self/stat"), end = 0, number = 2;

    if (fd < 0)
        return fd;
    long len = raw_call(SYS_read, fd, (long)text, sizeof text, 0, 0);
    (void)raw_call(SYS_close, fd, 0, 0, 0, 0);
    for (long i = 0; i < len; i++)
        end = text[i] == ')' ? i + 1 : end;
    for (long i = end; i < len; i++) {
        if (text[i] == ' ')
            number++;
        else if (number < 52 && text[i] >= '0' && text[i] <= '9')
            values[number] = values[number] * 10 + (uint64_t)(text[i] - '0');
    }
    for (unsigned i = 0; i < WARM_LAYOUT; i++)
        head.layout[i] = values[fields[i]];
    head.layout[5] = (uint64_t)raw_call(SYS_brk, 0, 0, 0, 0, 0);
    if (number < 51)
        return -EIO;
    return values[20] == 1 ? 0 : -EBUSY; /* threads */
}

/* --- One region --- */

static uint64_t read_hex(const char **at)
{
    uint64_t value = 0;

    for (;; (*at)++) {
        char c = **at;
        if (c >= '0' && c <= '9')
            value = value * 16 + (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value * 16 + (uint64_t)(c - 'a' + 10);
        else
            return value;
    }
}

/* Adds the file at path, up to the newline, if it can be opened by that path: not if it
 * was removed or replaced, or is in a mount without a path, as those that copies start
 * from are. */
static bool add_file(struct save *save, const char *path, uint32_t *ret_index)
{
    struct scratch *scratch = save->scratch;
    char *name = scratch->paths + head.path_bytes;
    struct warm_file *file = &scratch->files[head.file_count];
    struct stat info = {0};
    uint64_t len = 0;

    while (path[len] != '\n')
        len++;
    if (head.path_bytes + len + 1 > WARM_PATHS_MAX)
        return false;
    for (uint64_t i = 0; i < len; i++)
        name[i] = path[i];
    name[len] = 0;
    if (head.file_count) {
        const struct warm_file *last = &scratch->files[head.file_count - 1];
        if (begins(scratch->paths + last->path, name) &&
            begins(name, scratch->paths + last->path)) {
            *ret_index = head.file_count - 1;
            return true;
        }
    }
    if (head.file_count == WARM_FILES_MAX)
        return false;
    if (raw_call(SYS_newfstatat, AT_FDCWD, (long)name, (long)&info, 0, 0) < 0 ||
        !S_ISREG(info.st_mode))
        return false;
    file->inode = save->any_inode ? 0 : info.st_ino;
    file->size = (uint64_t)info.st_size;
    file->seconds = (uint64_t)info.st_mtim.tv_sec;
    file->nanoseconds = (uint64_t)info.st_mtim.tv_nsec;
    file->path = (uint32_t)head.path_bytes;
    head.path_bytes += len + 1;
    *ret_index = head.file_count++;
    return true;
}

enum { PAGE_FILE = 61, PAGE_SWAPPED = 62, PAGE_PRESENT = 63 };

/* Whether the page has contents of its own. */
static bool is_written(uint64_t page, bool of_file)
{
    bool exists = page >> PAGE_PRESENT & 1 || page >> PAGE_SWAPPED & 1;

    return exists && !(of_file && page >> PAGE_FILE & 1);
}

static bool is_zero(const char *page)
{
    const uint64_t *words = (const uint64_t *)(const void *)page;

    for (unsigned i = 0; i < WARM_PAGE / sizeof *words; i++)
        if (words[i])
            return false;
    return true;
}

/* Writes those pages that exist; holes of the file are zeros. */
static long store(struct save *save, struct warm_region *region, uint64_t first,
                  uint64_t last, bool whole)
{
    const uint64_t *pages = save->scratch->pagemap;

    region->offset = save->end;
    for (uint64_t i = first; i < last;) {
        uint64_t run = i;
        while (run < last &&
               (whole ? !is_zero((const char *)region->start + run * WARM_PAGE)
                      : is_written(pages[run], false)))
            run++;
        long error = write_at(save->fd, (const char *)region->start + i * WARM_PAGE,
                              (run - i) * WARM_PAGE, save->end + (i - first) * WARM_PAGE);
        if (error)
            return error;
        i = run > i ? run : i + 1;
    }
    save->end += (last - first) * WARM_PAGE;
    return 0;
}

static long add_memory(struct save *save, struct warm_region *region, bool of_file,
                       const char *path)
{
    uint64_t count = (region->end - region->start) / WARM_PAGE, first = count, last = 0;

    if (region->prot == PROT_NONE) {
        region->kind = WARM_EMPTY;
        return 0;
    }
    if (count > PAGEMAP_MAX)
        return -E2BIG;
    if (raw_call(SYS_pread64, save->pagemap, (long)save->scratch->pagemap,
                 (long)(count * 8), (long)(region->start / WARM_PAGE * 8),
                 0) != (long)(count * 8))
        return -EIO;
    for (uint64_t i = 0; i < count; i++)
        if (is_written(save->scratch->pagemap[i], of_file)) {
            first = first == count ? i : first;
            last = i + 1;
        }
    if (begins(path, "[stack]")) {
        region->kind = WARM_STACK;
        region->stored_at = (uint32_t)(first * WARM_PAGE);
        return store(save, region, first, count, false);
    }
    if (of_file && first >= last && add_file(save, path, &region->file)) {
        region->kind = WARM_FILE;
        return 0;
    }
    region->kind = of_file || first < last ? WARM_STORED : WARM_EMPTY;
    if (region->kind == WARM_EMPTY)
        return 0;
    return region->prot & PROT_READ ? store(save, region, 0, count, of_file) : -EACCES;
}

/* Whether "VmFlags: rd wr wf" of the region that begins with this line has "wf".  Random
 * number generators keep their state in such memory, that of vDSO getrandom(2) among
 * them: two processes must not have the same. */
static bool is_wiped(const char *line)
{
    while (*line && !begins(line, "VmFlags:"))
        while (*line && *line++ != '\n')
            ;
    for (; *line && *line != '\n'; line++)
        if (begins(line, " wf"))
            return true;
    return false;
}

/* A line of /proc/self/smaps: START-END PROT OFFSET DEVICE INODE PATH */
static long add_line(struct save *save, const char *line)
{
    const bool wiped = is_wiped(line);
    struct warm_region *region = &save->scratch->regions[head.region_count];

    *region = (struct warm_region){0};
    region->start = read_hex(&line);
    line++;
    region->end = read_hex(&line);
    line++;
    region->prot = (line[0] == 'r' ? PROT_READ : 0) | (line[1] == 'w' ? PROT_WRITE : 0) |
                   (line[2] == 'x' ? PROT_EXEC : 0);
    if (line[3] == 's' && line[1] == 'w')
        return -EBUSY; /* memory shared with another process */
    line += 5;
    region->offset = read_hex(&line);
    line++;
    while (*line++ != ' ') /* the device */
        ;
    bool of_file = !(line[0] == '0' && line[1] == ' ');
    while (*line != ' ' && *line != '\n')
        line++;
    while (*line == ' ')
        line++;
    if (region->start == (uint64_t)(uintptr_t)save->scratch || begins(line, "[vsyscall]"))
        return 0;
    if (head.region_count == WARM_REGIONS_MAX)
        return -E2BIG;
    head.region_count++;
    if (begins(line, "[v")) {
        region->kind = WARM_VDSO;
        return 0;
    }
    if (wiped) {
        region->kind = WARM_WIPED;
        return 0;
    }
    return add_memory(save, region, of_file, line);
}

/* --- The whole --- */

static long read_maps(struct save *save)
{
    long fd = open_file("/proc/self/smaps"), count = 0;

    if (fd < 0)
        return fd;
    do {
        save->text_len += (uint64_t)count;
        count = raw_call(SYS_read, fd, (long)save->scratch->maps + (long)save->text_len,
                         MAPS_MAX - 1 - (long)save->text_len, 0, 0);
    } while (count > 0);
    (void)raw_call(SYS_close, fd, 0, 0, 0, 0);
    return count < 0 ? count : save->text_len == MAPS_MAX - 1 ? -E2BIG : 0;
}

static long add_regions(struct save *save)
{
    const char *at = save->scratch->maps, *end = at + save->text_len;
    long error = 0;

    while (!error && at < end) {
        if (*at < 'A' || *at > 'Z') /* of the lines below it */
            error = add_line(save, at);
        while (*at++ != '\n')
            ;
    }
    return error;
}

static long write_table(struct save *save)
{
    const struct scratch *scratch = save->scratch;
    const uint64_t regions = head.region_count * sizeof *scratch->regions,
                   files = head.file_count * sizeof *scratch->files;

    head.table = save->end;
    long error = write_at(save->fd, scratch->regions, regions, head.table);
    if (!error)
        error = write_at(save->fd, scratch->files, files, head.table + regions);
    if (!error)
        error = write_at(save->fd, scratch->paths, head.path_bytes,
                         head.table + regions + files);
    if (!error)
        error = write_at(save->fd, &head, sizeof head, 0);
    return error;
}

static long save_memory(int fd, bool any_inode)
{
    struct save save = {.fd = fd, .any_inode = any_inode, .end = WARM_PAGE};
    long memory = raw_call6(SYS_mmap, 0, sizeof *save.scratch, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory < 0)
        return memory;
    save.scratch = (struct scratch *)memory;
    long pagemap = open_file("/proc/self/pagemap");
    long error = pagemap < 0 ? pagemap : 0;
    save.pagemap = (int)pagemap;
    if (!error)
        error = read_maps(&save);
    if (!error)
        error = add_regions(&save);
    if (!error)
        error = write_table(&save);
    if (pagemap >= 0)
        (void)raw_call(SYS_close, pagemap, 0, 0, 0, 0);
    (void)raw_call(SYS_munmap, memory, sizeof *save.scratch, 0, 0, 0);
    return error;
}

/* Called by a process with a single thread.  `rseq_offset` is where its struct rseq
 * is, from the thread pointer (glibc's __rseq_offset), or 0.  `any_inode`: libraries may
 * be other files of the same size and time, as those that a fork has copies of.  Returns
 * 0 when the file is complete, a negative errno if it cannot be written, and 1 in every
 * process that is started from it. */
EXPORT int warm_save(int fd, int64_t rseq_offset, int any_inode)
{
    if (head.region_count)
        return -EALREADY;
    for (unsigned i = 0; i < sizeof head.magic; i++)
        head.magic[i] = WARM_MAGIC[i];
    head.version = WARM_VERSION;
    head.page_size = WARM_PAGE;
    head.self = (uint64_t)(uintptr_t)&head;
    head.thread = thread_pointer();
    long error = keep_layout();
    if (!error)
        error = keep_kernel_state(rseq_offset);
    if (error)
        return (int)error;
    if (warm_registers(head.registers)) {
        restore_kernel_state();
        return 1;
    }
    return (int)save_memory(fd, any_inode != 0);
}
