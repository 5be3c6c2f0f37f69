/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>

#include "base/signal.h"
#include "harness.h"

TEST(every_signal_has_one_name_and_one_description)
{
    for (int i = 1; i < 32; i++) {
        ASSERT_INT(signal_by_name(signal_name(i)), i);
        ASSERT_INT(signal_by_words(signal_words(i), strlen(signal_words(i))), i);
    }
    ASSERT_STR(signal_name(SIGSEGV), "SEGV");
    ASSERT_STR(signal_words(SIGSEGV), "Segmentation fault");
    ASSERT_INT(signal_by_words("segmentation fault (core dumped)", 18), SIGSEGV);
}

#ifdef __GLIBC__
TEST(the_names_of_signals_are_those_of_glibc)
{
    for (int i = 1; i < 32; i++) {
        ASSERT_STR(signal_name(i), sigabbrev_np(i));
        ASSERT_STR(signal_words(i), sigdescr_np(i));
    }
}
#endif

TEST(a_signal_without_a_name_has_no_number)
{
    static const int numbers[] = {-1, 0, 32, 64, 1 << 30};

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        ASSERT_STR(signal_name(numbers[i]), "?");
        ASSERT_STR(signal_words(numbers[i]), "unknown");
    }
    ASSERT_INT(signal_by_name("?"), 0);
    ASSERT_INT(signal_by_name("SIGSEGV"), 0);
    ASSERT_INT(signal_by_words("segmentation", 12), 0);
    ASSERT_INT(signal_by_words("", 0), 0);
}
