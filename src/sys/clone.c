/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/clone.h"

#include <sys/syscall.h>

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
