/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_WARM_H
#define INIT_WARM_H

/* A warm interpreter: the memory of a process that has loaded its modules, in a file.
 *
 * warm-save.c, a shared object without a C library, writes the file from inside that
 * process; warm-start.c turns another process into a copy of it.  Both run with the
 * rights of the sandbox they are in and with no others: starting the file is like
 * executing a program of the template.  The copy maps the pages that were changed from
 * the file, privately, and all others from the programs and libraries they came from; so
 * every copy shares them until it writes to them.
 *
 * The file is valid on the machine that wrote it until the next boot: it contains
 * addresses of the kernel's vDSO. */
#include <stdint.h>

enum {
    WARM_VERSION = 2,
    WARM_REGIONS_MAX = 4096,
    WARM_FILES_MAX = 512,
    WARM_PATHS_MAX = 128 << 10, /* bytes of all paths, each with its NUL */
    WARM_REGISTERS = 24,
    WARM_SIGNALS = 64,
    WARM_LAYOUT = 11,
    WARM_PAGE = 4096
};

#define WARM_MAGIC "cay-warm"

enum warm_kind {
    WARM_EMPTY,  /* memory that was never written to */
    WARM_STORED, /* in this file, at offset */
    WARM_FILE,   /* in files[file], at offset */
    WARM_STACK,  /* stored like WARM_STORED, copied, and with room to grow */
    WARM_VDSO,   /* the kernel's: moved there */
    WARM_WIPED   /* empty in each copy, as in a child of fork(2): MADV_WIPEONFORK */
};

struct warm_region {
    uint64_t start, end, offset;
    uint32_t kind, prot, file;
    uint32_t stored_at; /* WARM_STACK: first page that is stored, from start */
};

/* A file that must be the same in the new process. */
struct warm_file {
    uint64_t inode; /* 0: any */
    uint64_t size, seconds, nanoseconds;
    uint32_t path; /* in the table's paths */
    uint32_t unused;
};

struct warm_head {
    char magic[8];
    uint32_t version, page_size;
    uint32_t region_count, file_count;
    uint64_t path_bytes;
    uint64_t table; /* where the regions, the files and the paths are, in this order */
    uint64_t registers[WARM_REGISTERS];
    uint64_t thread; /* the thread pointer */
    /* start_code to env_end of struct prctl_mm_map */
    uint64_t layout[WARM_LAYOUT];
    uint64_t self; /* the address of this struct in the process */
    /* Filled in by warm-start.c: its own memory, to be unmapped. */
    uint64_t leftover, leftover_size;
};

/* Turns the calling process, which has one thread, into a copy of the one in the file.
 * Its descriptors, working directory, user and limits stay.  Returns a negative errno,
 * with nothing changed, if the file is not valid or does not fit this process; after that
 * point a failure ends the process with exit status WARM_EXIT. */
int warm_start(int fd);

enum { WARM_EXIT = 121 };

#endif
