/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nearest.h"
#include "harness.h"

static const char *const commands[] = {"env", "run", "start", "stat", "rm", "cat", "put"};

static const char *nearest(const char *word)
{
    return nearest_name(word, commands, sizeof *commands,
                        sizeof commands / sizeof *commands);
}

TEST(two_letters_in_the_wrong_order_are_one_mistake)
{
    ASSERT_STR(nearest("rnu"), "run");
    ASSERT_STR(nearest("urn"), "run");
    ASSERT_STR(nearest("strat"), "start");
}

TEST(a_letter_too_many_too_few_or_wrong_is_one_mistake)
{
    ASSERT_STR(nearest("runn"), "run");
    ASSERT_STR(nearest("rn"), "run");
    ASSERT_STR(nearest("ruf"), "run");
    ASSERT_STR(nearest("stata"), "stat");
}

TEST(a_beginning_is_near_and_a_word_of_its_own_is_not)
{
    ASSERT_STR(nearest("star"), "start");
    ASSERT(!nearest("images"));
    ASSERT(!nearest(""));
}

TEST(another_short_word_is_not_a_misspelling)
{
    ASSERT(!nearest("wait"));
    ASSERT(!nearest("port"));
    ASSERT_STR(nearest("stats"), "stat");
    ASSERT_STR(nearest("sttrat"), "start"); /* two edits in six letters */
}
