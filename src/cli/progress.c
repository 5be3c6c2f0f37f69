/* SPDX-License-Identifier: Apache-2.0 */
/* The library works through a whole transfer in one call, so progress is shown by a timer
 * signal, from the kernel's own count of what this process has moved (/proc/self/io).
 * Only async-signal-safe functions are called in the handler. */
#include "cli/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/output.h"

static struct {
    const char *what;
    const char *field;
    uint64_t start;    /* the counter at progress_start()... */
    uint64_t start_ms; /* ...and the time */
    uint64_t expected; /* bytes in all; 0 if not known */
    volatile sig_atomic_t is_shown;
    bool is_running;
} progress;

/* The number after `field` in /proc/self/io; 0 if not available. */
static uint64_t count_bytes(const char *field)
{
    char text[512];
    uint64_t value = 0;
    int fd = open("/proc/self/io", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return 0;
    ssize_t len = read(fd, text, sizeof text - 1);
    close(fd);
    text[len < 0 ? 0 : len] = '\0';
    const char *p = strstr(text, field);
    for (p = p ? p + strlen(field) : ""; *p >= '0' && *p <= '9'; p++)
        value = value * 10 + (uint64_t)(*p - '0');
    return value;
}

static char *add(char *end, const char *text)
{
    size_t len = strlen(text);

    memcpy(end, text, len);
    return end + len;
}

static char *add_number(char *end, uint64_t number)
{
    char digits[24] = "", *digit = digits + sizeof digits - 1;

    do
        *--digit = (char)('0' + number % 10);
    while (number /= 10);
    return add(end, digit);
}

static void show(int signal_number)
{
    int saved = errno;
    char line[192];
    uint64_t bytes = count_bytes(progress.field) - progress.start;
    uint64_t ms = clock_ms() - progress.start_ms;

    (void)signal_number;
    char *end = add(line, "\r");
    end = add(end, progress.what);
    end = add(end, ": ");
    end = add_number(end, bytes >> 20);
    if (progress.expected && progress.expected >= bytes) {
        end = add(end, " of ");
        end = add_number(end, progress.expected >> 20);
    }
    end = add(end, " MiB, ");
    end = add_number(end, (bytes >> 10) * 1000 / 1024 / (ms ? ms : 1));
    end = add(end, " MiB/s\033[K");
    ssize_t written = write(STDERR_FILENO, line, (size_t)(end - line));
    (void)written;
    progress.is_shown = 1;
    errno = saved;
}

void progress_start(const char *what, enum progress_counter counter)
{
    struct sigaction action = {.sa_handler = show, .sa_flags = SA_RESTART};

    if (!isatty(STDERR_FILENO) || sigaction(SIGALRM, &action, NULL) < 0)
        return;
    progress.what = what;
    progress.field = counter == PROGRESS_READ ? "rchar: " : "wchar: ";
    progress.start = count_bytes(progress.field);
    progress.start_ms = clock_ms();
    progress.expected = 0;
    progress.is_running = true;
    progress_resume();
}

void progress_expect(uint64_t bytes)
{
    progress.expected = bytes;
}

void progress_stop(void)
{
    progress_pause();
    progress.is_running = false;
}

void progress_pause(void)
{
    if (!progress.is_running)
        return;
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_sec = 0}, NULL);
    if (progress.is_shown && write(STDERR_FILENO, "\r\033[K", 4) > 0)
        progress.is_shown = 0;
}

void progress_resume(void)
{
    struct itimerval every = {.it_value.tv_sec = 1, .it_interval.tv_usec = 250000};

    if (progress.is_running)
        setitimer(ITIMER_REAL, &every, NULL);
}

void progress_step(const char *step, uint64_t bytes)
{
    static uint64_t next_ms; /* when to show the next one */
    static bool is_shown;

    if (!isatty(STDERR_FILENO))
        return;
    uint64_t now = clock_ms();
    if (!step) {
        if (is_shown)
            fputs("\r\033[K", stderr);
        fflush(stderr);
        is_shown = false;
        next_ms = 0;
        return;
    }
    if (!next_ms)
        next_ms = now + 1000;
    if (now < next_ms)
        return;
    next_ms = now + 250;
    is_shown = true;
    fputc('\r', stderr);
    show_text(stderr, step, strlen(step), 60);
    if (bytes)
        fprintf(stderr, ": %llu MiB", (unsigned long long)(bytes >> 20));
    fputs("\033[K", stderr);
    fflush(stderr);
}

void progress_skipped(uint64_t count)
{
    if (count)
        fprintf(stderr,
                "cay: note: %" PRIu64 " entries were skipped: special files, links that "
                "lead out, or files whose suffix or size is not allowed\n",
                count);
}
