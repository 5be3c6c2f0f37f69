/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/signals.h"

#include <stddef.h>
#include <time.h>
#include <unistd.h>

static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static const int changing[] = {SIGWINCH, SIGCONT};

static sigset_t mask, caught;
static volatile sig_atomic_t asked, changed;

static void note_end(int number)
{
    asked = number;
}

static void note_change(int number)
{
    (void)number;
    changed = 1;
}

static void ignore_signal(int number)
{
    (void)number;
}

static void catch_one(int number, void (*handler)(int))
{
    struct sigaction before, action = {.sa_handler = handler};

    sigaction(number, &action, &before);
    if (number == SIGPIPE)
        return;
    if (before.sa_handler == SIG_IGN)
        sigaction(number, &before, NULL);
    else
        sigaddset(&caught, number);
}

void signals_catch(void)
{
    sigemptyset(&caught);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        catch_one(ending[i], note_end);
    for (size_t i = 0; i < sizeof changing / sizeof *changing; i++)
        catch_one(changing[i], note_change);
    catch_one(SIGPIPE, ignore_signal);
    sigprocmask(SIG_BLOCK, &caught, &mask);
    for (int number = 1; number < NSIG; number++)
        if (sigismember(&caught, number) == 1)
            sigdelset(&mask, number);
}

const sigset_t *signals_mask(void)
{
    return &mask;
}

int signals_take(void)
{
    const struct timespec now = {0};
    int number = asked;

    asked = 0;
    if (!number) {
        sigset_t ends;
        sigemptyset(&ends);
        for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
            if (sigismember(&caught, ending[i]))
                sigaddset(&ends, ending[i]);
        number = sigtimedwait(&ends, NULL, &now);
    }
    return number > 0 ? number : 0;
}

bool signals_redraw(void)
{
    bool was = changed;

    changed = 0;
    return was;
}

_Noreturn void signals_die(int number)
{
    struct sigaction normal = {.sa_handler = SIG_DFL};
    sigset_t only;

    sigaction(number, &normal, NULL);
    sigemptyset(&only);
    sigaddset(&only, number);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
    (void)raise(number);
    _exit(128 + number);
}
