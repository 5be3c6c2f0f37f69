/* SPDX-License-Identifier: Apache-2.0 */

/* Becomes the process that warm-save.c has written to a file: see warm.h.
 *
 * Theory of operation.  This program's own memory has to go, and with it the code that
 * unmaps it.  So the last part, jump(), is copied to addresses that neither process uses,
 * together with all that it needs: struct jump, the regions, a stack, and room for the
 * kernel's vDSO, which has to be at its old address because the C library of the saved
 * process knows it.  jump() calls no function and reads no constant outside of its own
 * section. */
#include "init/warm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__GLIBC__) && __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#endif

#include "base/auto.h"
#include "sys/raw.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum {
    OLD_MAX = 128,
    VDSO_MAX = 8,
    CODE_SIZE = 2 * WARM_PAGE,
    STACK_SIZE = 4 * WARM_PAGE,
    MAPS_MAX = 16 << 10,
    PLACES = 128 /* that are tried for jump() */
};

static const uint64_t address_end = 1UL << 48, first_place = 1UL << 36,
                      next_place = 1UL << 31;
static const rlim_t stack_most = 64 << 20, stack_usual = 8 << 20;

struct range {
    uint64_t start, end;
};

struct jump {
    struct warm_head head;
    struct prctl_mm_map layout;
    struct range old[OLD_MAX];
    struct range vdso[VDSO_MAX];
    uint64_t old_count, vdso_count;
    uint64_t area, area_size, park; /* park: where the vDSO waits */
    const struct warm_region *regions;
    const int *files;
    int fd;
};

/* --- The last part --- */

#define IN_JUMP                                                                          \
    __attribute__((section("warm_jump"), noinline, used, no_stack_protector,             \
                   no_sanitize("address", "undefined")))
#define PART_OF_JUMP __attribute__((always_inline)) inline

extern const char begin_of_jump[] __asm__("__start_warm_jump")
    __attribute__((visibility("hidden")));
extern const char end_of_jump[] __asm__("__stop_warm_jump")
    __attribute__((visibility("hidden")));

static size_t size_of_jump(void)
{
    return (size_t)((uintptr_t)end_of_jump - (uintptr_t)begin_of_jump);
}

PART_OF_JUMP static void check(long result)
{
    if (result < 0)
        (void)raw_call(SYS_exit_group, WARM_EXIT, 0, 0, 0, 0);
}

PART_OF_JUMP static void move(uint64_t from, uint64_t size, uint64_t to)
{
    check(raw_call(SYS_mremap, (long)from, (long)size, (long)size,
                   MREMAP_MAYMOVE | MREMAP_FIXED, (long)to));
}

PART_OF_JUMP static void map(const struct warm_region *region, int flags, int fd)
{
    check(raw_call6(SYS_mmap, (long)region->start, (long)(region->end - region->start),
                    region->prot, MAP_PRIVATE | MAP_FIXED | flags, fd,
                    fd < 0 ? 0 : (long)region->offset));
}

PART_OF_JUMP static void restore_region(const struct jump *jump,
                                        const struct warm_region *region, uint64_t *park)
{
    const uint64_t size = region->end - region->start;

    if (region->kind == WARM_VDSO) {
        move(*park, size, region->start);
        *park += size;
    } else if (region->kind == WARM_STORED) {
        map(region, 0, jump->fd);
    } else if (region->kind == WARM_FILE) {
        map(region, 0, jump->files[region->file]);
    } else {
        map(region, MAP_ANONYMOUS | MAP_NORESERVE, -1);
    }
    if (region->kind == WARM_WIPED)
        check(raw_call(SYS_madvise, (long)region->start, (long)size, MADV_WIPEONFORK, 0,
                       0));
    if (region->kind != WARM_STACK)
        return;
    uint64_t at = region->start + region->stored_at, offset = region->offset;
    while (at < region->end) {
        long count = raw_call(SYS_pread64, jump->fd, (long)at, (long)(region->end - at),
                              (long)offset, 0);
        check(count > 0 ? 0 : -1);
        at += (uint64_t)count;
        offset += (uint64_t)count;
    }
}

__attribute__((always_inline, noreturn)) static inline void
enter(const uint64_t *registers, uint64_t thread)
{
#if defined(__x86_64__)
    enum { SET_FS = 0x1002 };
    check(raw_call(SYS_arch_prctl, SET_FS, (long)thread, 0, 0, 0));
    __asm__ volatile("ldmxcsr 64(%0)\n"
                     "fldcw 72(%0)\n"
                     "mov 0(%0), %%rbx\n"
                     "mov 8(%0), %%rbp\n"
                     "mov 16(%0), %%r12\n"
                     "mov 24(%0), %%r13\n"
                     "mov 32(%0), %%r14\n"
                     "mov 40(%0), %%r15\n"
                     "mov 48(%0), %%rsp\n"
                     "mov $1, %%eax\n"
                     "jmp *56(%0)\n" ::"D"(registers)
                     : "memory");
#elif defined(__aarch64__)
    __asm__ volatile("msr tpidr_el0, %1\n"
                     "mov x0, %0\n"
                     "ldp x19, x20, [x0, 0]\n"
                     "ldp x21, x22, [x0, 16]\n"
                     "ldp x23, x24, [x0, 32]\n"
                     "ldp x25, x26, [x0, 48]\n"
                     "ldp x27, x28, [x0, 64]\n"
                     "ldp x29, x30, [x0, 80]\n"
                     "ldp x1, x2, [x0, 96]\n"
                     "mov sp, x1\n"
                     "msr fpcr, x2\n"
                     "ldp d8, d9, [x0, 112]\n"
                     "ldp d10, d11, [x0, 128]\n"
                     "ldp d12, d13, [x0, 144]\n"
                     "ldp d14, d15, [x0, 160]\n"
                     "mov x0, 1\n"
                     "ret\n" ::"r"(registers),
                     "r"(thread)
                     : "memory");
#endif
    __builtin_unreachable();
}

IN_JUMP static void jump(const struct jump *jump)
{
    uint64_t park = jump->park;

    for (uint64_t i = 0; i < jump->vdso_count; i++) {
        const uint64_t size = jump->vdso[i].end - jump->vdso[i].start;
        move(jump->vdso[i].start, size, park);
        park += size;
    }
    for (uint64_t i = 0; i < jump->old_count; i++)
        check(raw_call(SYS_munmap, (long)jump->old[i].start,
                       (long)(jump->old[i].end - jump->old[i].start), 0, 0, 0));
    park = jump->park;
    for (uint32_t i = 0; i < jump->head.region_count; i++)
        restore_region(jump, &jump->regions[i], &park);
    for (uint32_t i = 0; i < jump->head.file_count; i++)
        (void)raw_call(SYS_close, jump->files[i], 0, 0, 0, 0);
    (void)raw_call(SYS_close, jump->fd, 0, 0, 0, 0);
    check(raw_call(SYS_prctl, PR_SET_MM, PR_SET_MM_MAP, (long)&jump->layout,
                   sizeof jump->layout, 0));
    struct warm_head *self = (struct warm_head *)(uintptr_t)jump->head.self;
    self->leftover = jump->area;
    self->leftover_size = jump->area_size;
    enter(jump->head.registers, jump->head.thread);
}

/* --- Checks --- */

static bool is_page(uint64_t address)
{
    return address % WARM_PAGE == 0;
}

static bool check_head(const struct warm_head *head)
{
    return memcmp(head->magic, WARM_MAGIC, sizeof head->magic) == 0 &&
           head->version == WARM_VERSION && head->page_size == WARM_PAGE &&
           sysconf(_SC_PAGESIZE) == WARM_PAGE && head->region_count > 0 &&
           head->region_count <= WARM_REGIONS_MAX && head->file_count <= WARM_FILES_MAX &&
           head->path_bytes <= WARM_PATHS_MAX;
}

static bool check_region(const struct warm_head *head, const struct warm_region *region,
                         uint64_t last_end)
{
    return is_page(region->start) && is_page(region->end) && region->start >= last_end &&
           region->start < region->end && region->end <= address_end &&
           region->kind <= WARM_WIPED && is_page(region->offset) &&
           (region->kind != WARM_FILE || region->file < head->file_count) &&
           region->stored_at < region->end - region->start;
}

/* head.self has to be in memory that is written to. */
static bool check_regions(const struct warm_head *head, const struct warm_region *regions)
{
    uint64_t last_end = WARM_PAGE;
    bool has_self = false;

    for (uint32_t i = 0; i < head->region_count; i++) {
        const struct warm_region *region = &regions[i];
        if (!check_region(head, region, last_end))
            return false;
        last_end = region->end;
        has_self |= head->self >= region->start &&
                    head->self + sizeof *head <= region->end && region->prot & PROT_WRITE;
    }
    return has_self;
}

static bool is_free(const struct warm_head *head, const struct warm_region *regions,
                    uint64_t start, uint64_t end)
{
    for (uint32_t i = 0; i < head->region_count; i++)
        if (start < regions[i].end && regions[i].start < end)
            return false;
    return true;
}

/* --- Preparation --- */

/* Also gives the stack the room that it may grow into. */
static void widen_stack(const struct warm_head *head, struct warm_region *regions)
{
    struct rlimit limit = {.rlim_cur = stack_usual};
    uint64_t floor = WARM_PAGE;

    (void)getrlimit(RLIMIT_STACK, &limit);
    uint64_t size =
        limit.rlim_cur < stack_most ? limit.rlim_cur & ~(WARM_PAGE - 1UL) : stack_most;
    for (uint32_t i = 0; i < head->region_count; i++) {
        struct warm_region *region = &regions[i];
        uint64_t had = region->end - region->start;
        if (region->kind == WARM_STACK && size > had &&
            region->end - floor > size + WARM_PAGE) {
            region->start = region->end - size;
            region->stored_at += (uint32_t)(size - had);
        }
        floor = region->end;
    }
}

static int add_old(struct jump *jump, const char *line, uint64_t start, uint64_t end)
{
    bool is_vdso = strstr(line, "[v") != NULL;

    if (strstr(line, "[vsyscall]") ||
        (start >= jump->area && end <= jump->area + jump->area_size))
        return 0;
    if (is_vdso ? jump->vdso_count == VDSO_MAX : jump->old_count == OLD_MAX)
        return -E2BIG;
    *(is_vdso ? &jump->vdso[jump->vdso_count++] : &jump->old[jump->old_count++]) =
        (struct range){start, end};
    return 0;
}

/* The memory of this process. */
static int list_old(struct jump *jump)
{
    AUTO_FD fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    char text[MAPS_MAX];
    size_t len = 0;
    ssize_t count = 0;
    int error = 0;

    do {
        len += (size_t)count;
        count = read(fd, text + len, sizeof text - 1 - len);
    } while (count > 0);
    text[len] = 0;
    if (count < 0 || len == sizeof text - 1)
        return -EIO;
    for (char *line = text, *next; *line && !error; line = next) {
        next = line + strcspn(line, "\n");
        if (*next)
            *next++ = 0;
        char *dash = line;
        const uint64_t start = strtoul(line, &dash, 16);
        error =
            *dash == '-' ? add_old(jump, line, start, strtoul(dash + 1, NULL, 16)) : -EIO;
    }
    return error;
}

static bool is_same_vdso(const struct jump *jump)
{
    uint64_t found = 0;

    for (uint32_t i = 0; i < jump->head.region_count; i++) {
        const struct warm_region *region = &jump->regions[i];
        if (region->kind != WARM_VDSO)
            continue;
        if (found == jump->vdso_count ||
            jump->vdso[found].end - jump->vdso[found].start !=
                region->end - region->start)
            return false;
        found++;
    }
    return found == jump->vdso_count;
}

static int open_same(const struct warm_file *file, const char *path)
{
    struct stat info;
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (fd < 0)
        return -errno;
    if (fstat(fd, &info) != 0 || (file->inode && info.st_ino != file->inode) ||
        (uint64_t)info.st_size != file->size ||
        (uint64_t)info.st_mtim.tv_sec != file->seconds ||
        (uint64_t)info.st_mtim.tv_nsec != file->nanoseconds)
        return -ESTALE;
    return TAKE_FD(fd);
}

struct table {
    struct warm_region regions[WARM_REGIONS_MAX];
    struct warm_file files[WARM_FILES_MAX];
    char paths[WARM_PATHS_MAX + 1];
    int fds[WARM_FILES_MAX];
};

/* code, struct jump, the table, the stack, the vDSO */
struct area {
    char code[CODE_SIZE];
    struct jump jump;
    struct table table;
    char stack[STACK_SIZE] __attribute__((aligned(WARM_PAGE)));
    char vdso[VDSO_MAX * 16 * WARM_PAGE];
};

static int read_table(int fd, const struct warm_head *head, struct table *table)
{
    const size_t regions = head->region_count * sizeof *table->regions,
                 files = head->file_count * sizeof *table->files;
    const off_t at = (off_t)head->table;

    if (pread(fd, table->regions, regions, at) != (ssize_t)regions ||
        pread(fd, table->files, files, at + (off_t)regions) != (ssize_t)files ||
        pread(fd, table->paths, head->path_bytes, at + (off_t)(regions + files)) !=
            (ssize_t)head->path_bytes)
        return -EINVAL;
    return check_regions(head, table->regions) ? 0 : -EINVAL;
}

static int open_files(const struct warm_head *head, struct table *table)
{
    for (uint32_t i = 0; i < head->file_count; i++) {
        int fd = table->files[i].path < head->path_bytes
                     ? open_same(&table->files[i], table->paths + table->files[i].path)
                     : -EINVAL;
        if (fd < 0) {
            while (i-- > 0)
                (void)close(table->fds[i]);
            return fd;
        }
        table->fds[i] = fd;
    }
    return 0;
}

static struct area *map_area(uint64_t at)
{
    void *wanted = (void *)(uintptr_t)at;
    void *memory =
        mmap(wanted, sizeof(struct area), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

    if (memory == wanted)
        return memory;
    if (memory != MAP_FAILED)
        (void)munmap(memory, sizeof(struct area));
    return NULL;
}

/* At addresses that neither process uses; those of the other are known when its table has
 * been read. */
static int find_area(int fd, const struct warm_head *head, struct area **ret_area)
{
    int error = -ENOMEM;

    for (uint64_t i = 0; i < PLACES; i++) {
        const uint64_t at = first_place + i * next_place;
        struct area *area = map_area(at);
        if (!area)
            continue;
        error = read_table(fd, head, &area->table);
        if (!error)
            widen_stack(head, area->table.regions);
        if (!error && is_free(head, area->table.regions, at, at + sizeof *area)) {
            *ret_area = area;
            return 0;
        }
        (void)munmap(area, sizeof *area);
        if (error)
            return error;
    }
    return error;
}

static void fill_layout(struct jump *jump)
{
    struct prctl_mm_map *layout = &jump->layout;

    _Static_assert(offsetof(struct prctl_mm_map, auxv) == WARM_LAYOUT * 8, "see warm.h");
    memcpy(layout, jump->head.layout, sizeof jump->head.layout);
    layout->exe_fd = (uint32_t)-1;
}

static int fill(struct area *area, int fd, const struct warm_head *head)
{
    const size_t code = size_of_jump();
    struct jump *jump = &area->jump;
    unsigned size = 0;

    jump->head = *head;
    jump->area = (uint64_t)(uintptr_t)area;
    jump->area_size = sizeof *area;
    jump->park = (uint64_t)(uintptr_t)area->vdso;
    jump->regions = area->table.regions;
    jump->files = area->table.fds;
    jump->fd = fd;
    fill_layout(jump);
    memcpy(area->code, begin_of_jump, code);
    __builtin___clear_cache(area->code, area->code + code);
    if (code > CODE_SIZE || prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 0) != 0 ||
        size != sizeof jump->layout ||
        mprotect(area->code, CODE_SIZE, PROT_READ | PROT_EXEC) != 0)
        return -ENOTSUP;
    return list_old(jump);
}

/* The kernel writes to the struct rseq that a C library has registered, whenever it
 * likes. */
static void leave_rseq(void)
{
#ifdef RSEQ_SIG
    enum { SIZE = 32 };
    char *thread = __builtin_thread_pointer();
    (void)raw_call(SYS_rseq, (long)(thread + __rseq_offset), SIZE, RSEQ_FLAG_UNREGISTER,
                   RSEQ_SIG, 0);
#endif
}

__attribute__((noreturn)) static void leave(struct area *area)
{
    char *stack = area->stack + STACK_SIZE;
    void *code = area->code + ((const char *)jump - begin_of_jump);

#if defined(__x86_64__)
    __asm__ volatile("mov %0, %%rsp\n"
                     "xor %%ebp, %%ebp\n"
                     "call *%1\n" ::"r"(stack),
                     "r"(code), "D"(&area->jump)
                     : "memory");
#elif defined(__aarch64__)
    __asm__ volatile("mov sp, %0\n"
                     "mov x0, %2\n"
                     "br %1\n" ::"r"(stack),
                     "r"(code), "r"(&area->jump)
                     : "x0", "memory");
#endif
    __builtin_unreachable();
}

int warm_start(int fd)
{
    struct warm_head head;
    struct area *area = NULL;

    if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head || !check_head(&head))
        return -EINVAL;
    int error = find_area(fd, &head, &area);
    if (error)
        return error;
    error = fill(area, fd, &head);
    if (!error && !is_same_vdso(&area->jump))
        error = -ESTALE;
    if (!error)
        error = open_files(&head, &area->table);
    if (error) {
        (void)munmap(area, sizeof *area);
        return error;
    }
    leave_rseq();
    leave(area);
}
