/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_RAW_H
#define SYS_RAW_H

/* A bare system call, without errno, which a clone with CLONE_VM shares with its parent.
 * The result, or a negative errno.  Always part of the caller, which may have to run at
 * an address that it was not linked for. */
__attribute__((always_inline)) static inline long
raw_call6(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long result;
    register long fourth __asm__("r10") = d;
    register long fifth __asm__("r8") = e;
    register long sixth __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth),
                       "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long nr __asm__("x8") = number;
    register long first __asm__("x0") = a;
    register long second __asm__("x1") = b;
    register long third __asm__("x2") = c;
    register long fourth __asm__("x3") = d;
    register long fifth __asm__("x4") = e;
    register long sixth __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(first)
                     : "r"(nr), "r"(second), "r"(third), "r"(fourth), "r"(fifth),
                       "r"(sixth)
                     : "memory", "cc");
    return first;
#else
    _Static_assert(0, "raw_call6() is written for x86_64 and arm64");
#endif
}

__attribute__((always_inline)) static inline long raw_call(long number, long a, long b,
                                                           long c, long d, long e)
{
    return raw_call6(number, a, b, c, d, e, 0);
}

#endif
