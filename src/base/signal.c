/* SPDX-License-Identifier: Apache-2.0 */
#include "base/signal.h"

#include <signal.h>
#include <string.h>

#define SIGNAL(name, words) [SIG##name] = {#name, words}

static const struct {
    const char *name, *words;
} signals[] = {
    SIGNAL(HUP, "Hangup"),
    SIGNAL(INT, "Interrupt"),
    SIGNAL(QUIT, "Quit"),
    SIGNAL(ILL, "Illegal instruction"),
    SIGNAL(TRAP, "Trace/breakpoint trap"),
    SIGNAL(ABRT, "Aborted"),
    SIGNAL(BUS, "Bus error"),
    SIGNAL(FPE, "Floating point exception"),
    SIGNAL(KILL, "Killed"),
    SIGNAL(USR1, "User defined signal 1"),
    SIGNAL(SEGV, "Segmentation fault"),
    SIGNAL(USR2, "User defined signal 2"),
    SIGNAL(PIPE, "Broken pipe"),
    SIGNAL(ALRM, "Alarm clock"),
    SIGNAL(TERM, "Terminated"),
    SIGNAL(STKFLT, "Stack fault"),
    SIGNAL(CHLD, "Child exited"),
    SIGNAL(CONT, "Continued"),
    SIGNAL(STOP, "Stopped (signal)"),
    SIGNAL(TSTP, "Stopped"),
    SIGNAL(TTIN, "Stopped (tty input)"),
    SIGNAL(TTOU, "Stopped (tty output)"),
    SIGNAL(URG, "Urgent I/O condition"),
    SIGNAL(XCPU, "CPU time limit exceeded"),
    SIGNAL(XFSZ, "File size limit exceeded"),
    SIGNAL(VTALRM, "Virtual timer expired"),
    SIGNAL(PROF, "Profiling timer expired"),
    SIGNAL(WINCH, "Window changed"),
    SIGNAL(POLL, "I/O possible"),
    SIGNAL(PWR, "Power failure"),
    SIGNAL(SYS, "Bad system call"),
};

enum { COUNT = sizeof signals / sizeof *signals };

const char *signal_name(int number)
{
    return number > 0 && number < COUNT && signals[number].name ? signals[number].name
                                                                : "?";
}

const char *signal_words(int number)
{
    return number > 0 && number < COUNT && signals[number].words ? signals[number].words
                                                                 : "unknown";
}

int signal_by_name(const char *name)
{
    for (int i = 1; i < COUNT; i++)
        if (signals[i].name && strcmp(signals[i].name, name) == 0)
            return i;
    return 0;
}

int signal_by_words(const char *words, size_t len)
{
    for (int i = 1; i < COUNT; i++)
        if (signals[i].words && strlen(signals[i].words) == len &&
            strncasecmp(signals[i].words, words, len) == 0)
            return i;
    return 0;
}
