/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/clone.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>

#include "sys/raw.h"

/* No wrapper of the C library does this, and no function may return on a stack the child
 * has used. */
long clone_run(const struct clone_args *args, void (*run)(void *cookie), void *cookie)
{
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "mov %[cookie], %%rdi\n\t"
                     "call *%[run]\n\t"
                     "hlt\n"
                     "1:"
                     : "=a"(result)
                     : "0"((long)SYS_clone3), "D"(args),
                       "S"(sizeof *args), [cookie] "r"(cookie), [run] "r"(run)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long number __asm__("x8") = SYS_clone3;
    register long result __asm__("x0") = (long)args;
    register long size __asm__("x1") = (long)sizeof *args;
    __asm__ volatile("svc 0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x0, %[cookie]\n\t"
                     "blr %[run]\n\t"
                     "brk 1\n"
                     "1:"
                     : "+r"(result)
                     : "r"(number), "r"(size), [cookie] "r"(cookie), [run] "r"(run)
                     : "memory", "cc");
    return result;
#else
    _Static_assert(0, "clone_run() is written for x86_64 and arm64");
#endif
}

IN_CLONE static long place_descriptors(int socket, int program)
{
    long null =
        raw_call(SYS_openat, AT_FDCWD, (long)"/dev/null", O_RDWR | O_CLOEXEC, 0, 0);

    for (long i = 0; i < 3 && null >= 0; i++)
        if (raw_call(SYS_dup3, null, i, 0, 0, 0) < 0)
            null = -EBADF;
    if (null < 0)
        return null;
    long error = raw_call(SYS_dup3, socket, CLONE_SOCKET, 0, 0, 0);
    if (error >= 0)
        error = raw_call(SYS_dup3, program, CLONE_PROGRAM, O_CLOEXEC, 0, 0);
    return error < 0 ? error
                     : raw_call(SYS_close_range, CLONE_PROGRAM + 1, (long)~0u, 0, 0, 0);
}

/* ETXTBSY: another thread has just written the program, and a child that it started
 * meanwhile has a copy of the descriptor until its own execve(2). */
IN_CLONE long clone_execute(int socket, int program, char *const *argv, char *const *env)
{
    enum { TRIES = 2000, PAUSE_NS = 1000000 };
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    long error = place_descriptors(socket, program);

    if (error < 0)
        return error;
    error = -ETXTBSY;
    for (int i = 0; i < TRIES && error == -ETXTBSY; i++) {
        if (i)
            (void)raw_call(SYS_nanosleep, (long)&pause, 0, 0, 0, 0);
        error = raw_call(SYS_execveat, CLONE_PROGRAM, (long)"", (long)argv, (long)env,
                         AT_EMPTY_PATH);
    }
    return error;
}
