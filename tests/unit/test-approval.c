/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "approval/rules.h"
#include "harness.h"

static void begin(void)
{
    setenv("CAY_HOME", scratch_path("state"), 1);
}

static int submit_in(const char *scope, const char *subject, const char *content,
                     char *ret_id, enum cay_decision *ret_decision)
{
    const struct cay_request ask = {.size = sizeof ask,
                                    .kind = "write",
                                    .scope = scope,
                                    .subject = subject,
                                    .content = content,
                                    .content_len = strlen(content)};

    return cay_pending_submit(&ask, ret_id, ret_decision, &err);
}

static int submit(const char *subject, const char *content, char *ret_id,
                  enum cay_decision *ret_decision)
{
    return submit_in("/policy", subject, content, ret_id, ret_decision);
}

static enum cay_decision look(const char *id, char *note)
{
    enum cay_decision decision;

    ASSERT_OK(cay_pending_wait(id, 0, &decision, note, &err));
    return decision;
}

static enum cay_decision decide(const char *rules, const char *subject)
{
    return rules_decide(rules, "write", "/policy", subject);
}

TEST(a_reply_is_for_one_content_and_used_once)
{
    char one[CAY_PENDING_ID_MAX], two[CAY_PENDING_ID_MAX], again[CAY_PENDING_ID_MAX];
    enum cay_decision decision;
    char note[CAY_NOTE_MAX];

    begin();
    ASSERT_OK(submit("a", "one", one, &decision));
    ASSERT_INT(decision, CAY_DECISION_NONE);
    ASSERT_OK(submit("a", "two", two, &decision));
    ASSERT(strcmp(one, two) != 0);
    ASSERT_OK(cay_pending_decide(one, CAY_VERDICT_APPROVE, NULL, &err));
    ASSERT_CODE(cay_pending_decide(one, CAY_VERDICT_DENY, NULL, &err), CAY_E_EXISTS);
    ASSERT_INT(look(two, note), CAY_DECISION_NONE);
    /* The program has ended; the next one has the same request. */
    ASSERT_OK(submit("a", "one", again, &decision));
    ASSERT_STR(again, one);
    ASSERT_INT(look(again, note), CAY_DECISION_YES);
    ASSERT_INT(look(again, note), CAY_DECISION_NO);
    ASSERT_OK(cay_pending_decide(two, CAY_VERDICT_DENY, "not\nnow", &err));
    ASSERT_INT(look(two, note), CAY_DECISION_NO);
    ASSERT_STR(note, "not\nnow");
    ASSERT_CODE(cay_pending_decide(two, CAY_VERDICT_APPROVE, NULL, &err),
                CAY_E_NOT_FOUND);
}

TEST(a_request_that_expires_is_denied_and_removed)
{
    const struct cay_request ask = {
        .size = sizeof ask, .kind = "command", .subject = "make", .timeout_ms = 1};
    struct cay_pending *list;
    char id[CAY_PENDING_ID_MAX], note[CAY_NOTE_MAX];
    enum cay_decision decision;
    enum cay_verdict verdict;
    size_t count;

    begin();
    ASSERT_OK(cay_pending_submit(&ask, id, &decision, &err));
    ASSERT_OK(cay_pending_wait(id, UINT64_MAX, &decision, note, &err));
    ASSERT_INT(decision, CAY_DECISION_NO);
    ASSERT_STR(note, "no reply in time");
    ASSERT_OK(cay_pending_request(&ask, &verdict, note, &err));
    ASSERT_INT(verdict, CAY_VERDICT_DENY);
    ASSERT_OK(cay_pending_list(&list, &count, &err));
    ASSERT_INT(count, 0);
    free(list);
}

TEST(a_waiting_program_gets_the_reply_of_another)
{
    const struct cay_request ask = {.size = sizeof ask,
                                    .kind = "command",
                                    .subject = "make\tall\n",
                                    .content = "a\0b",
                                    .content_len = 3};
    static struct cay_pending found;
    char id[CAY_PENDING_ID_MAX];
    enum cay_decision decision;
    enum cay_verdict verdict;
    char *content;
    int status;

    begin();
    ASSERT_OK(cay_pending_submit(&ask, id, &decision, &err));
    pid_t pid = fork();
    if (pid == 0)
        _exit(cay_pending_request(&ask, &verdict, NULL, NULL) == CAY_OK &&
                      verdict == CAY_VERDICT_APPROVE
                  ? 0
                  : 1);
    id[8] = '\0';
    ASSERT_OK(cay_pending_find(id, &found, &content, &err));
    ASSERT_STR(found.subject, "make\tall\n");
    ASSERT_MEM(content, found.content_len, "a\0b", 3);
    free(content);
    ASSERT_OK(cay_pending_decide(found.id, CAY_VERDICT_REMEMBER, NULL, &err));
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    ASSERT_INT(status, 0);
    ASSERT_OK(cay_pending_request(&ask, &verdict, NULL, &err));
    ASSERT_INT(verdict, CAY_VERDICT_APPROVE);
}

TEST(the_queue_is_bounded)
{
    char subject[16], id[CAY_PENDING_ID_MAX];
    enum cay_decision decision;

    begin();
    for (int i = 0; i < CAY_PENDING_SCOPE_MAX; i++) {
        snprintf(subject, sizeof subject, "%d", i);
        ASSERT_OK(submit(subject, "", id, &decision));
    }
    ASSERT_CODE(submit("more", "", id, &decision), CAY_E_LIMIT);
    ASSERT_OK(submit("7", "", id, &decision)); /* joins */
    for (int i = CAY_PENDING_SCOPE_MAX; i < CAY_PENDING_MAX; i++) {
        snprintf(subject, sizeof subject, "%d", i);
        ASSERT_OK(submit_in(NULL, subject, "", id, &decision));
    }
    ASSERT_CODE(submit_in("/other", "more", "", id, &decision), CAY_E_LIMIT);
    struct cay_request ask = {.size = sizeof ask, .kind = "write", .subject = "x"};
    AUTO_FREE char *large = calloc(1, CAY_PENDING_CONTENT_MAX + 1);
    ask.content = large;
    ask.content_len = CAY_PENDING_CONTENT_MAX + 1;
    ASSERT_CODE(cay_pending_submit(&ask, id, &decision, &err), CAY_E_LIMIT);
    ask.content_len = 0;
    ask.kind = "a b";
    ASSERT_CODE(cay_pending_submit(&ask, id, &decision, &err), CAY_E_INVALID);
    ask.kind = "write";
    ask.subject = "";
    ASSERT_CODE(cay_pending_submit(&ask, id, &decision, &err), CAY_E_INVALID);
    ASSERT_CODE(cay_pending_wait("../../etc/passwd", 0, &decision, NULL, &err),
                CAY_E_INVALID);
}

/* Of this process, read by read(2) and pread(2). */
static unsigned long long bytes_read(void)
{
    unsigned long long bytes = 0;
    FILE *file = fopen("/proc/self/io", "re");

    if (!file)
        SKIP("this kernel does not count what a process reads");
    ASSERT(fscanf(file, "rchar: %llu", &bytes) == 1);
    (void)fclose(file);
    return bytes;
}

/* A program inside decides how much there is to read, and the queue is locked meanwhile.
 */
TEST(a_list_does_not_read_the_contents)
{
    enum { COUNT = 8 };
    AUTO_FREE char *large = malloc(CAY_PENDING_CONTENT_MAX + 1);
    AUTO_FREE struct cay_pending *all = NULL;
    struct cay_pending found;
    char subject[16], id[CAY_PENDING_ID_MAX], *content = NULL;
    enum cay_decision decision;
    size_t count = 0;

    begin();
    memset(large, 'x', CAY_PENDING_CONTENT_MAX);
    large[CAY_PENDING_CONTENT_MAX] = '\0';
    for (int i = 0; i < COUNT; i++) {
        snprintf(subject, sizeof subject, "%d", i);
        ASSERT_OK(submit(subject, large, id, &decision));
    }
    unsigned long long before = bytes_read();
    ASSERT_OK(cay_pending_list(&all, &count, &err));
    ASSERT(bytes_read() - before < COUNT * 64 * 1024);
    ASSERT_INT(count, COUNT);
    for (size_t i = 0; i < count; i++)
        ASSERT_INT(all[i].content_len, CAY_PENDING_CONTENT_MAX);
    ASSERT_OK(cay_pending_find(id, &found, &content, &err));
    ASSERT_INT(found.content_len, CAY_PENDING_CONTENT_MAX);
    ASSERT_STR(content, large);
    cay_free(content);
}

TEST(a_damaged_request_or_unreadable_rules_allow_nothing)
{
    char id[CAY_PENDING_ID_MAX], name[CAY_PENDING_ID_MAX + 16];
    enum cay_decision decision;

    begin();
    ASSERT_OK(submit("a", "content", id, &decision));
    ASSERT_OK(cay_pending_decide(id, CAY_VERDICT_APPROVE, NULL, &err));
    snprintf(name, sizeof name, "state/approvals/%s", id);
    ASSERT_INT(truncate(scratch_path(name), 20), 0);
    ASSERT_INT(look(id, (char[CAY_NOTE_MAX]){0}), CAY_DECISION_NO);
    ASSERT_INT(mkdir(scratch_path("state/approvals/rules"), 0700), 0);
    ASSERT_CODE(submit("a", "content", id, &decision), CAY_E_LIMIT);
}

TEST(a_rule_allows_its_subject_and_a_denial_comes_first)
{
    static const char rules[] = "# allow\twrite\t/policy\tnever\n"
                                "allow\twrite\t/policy\ta.txt\n"
                                "allow\twrite\t/policy\tdocs/*.md\n"
                                "allow\twrite\t/policy\tstar\\*\\\\\\t\n"
                                "deny\twrite\t*\tdocs/secret*\n"
                                "allow\twrite\t/policy\tfive\tfields\n"
                                "allow\twrite\t/policy\n"
                                "*\t*\t*\t*\n"
                                "allow\tcopy\t/policy\tb.txt";

    ASSERT_INT(decide(rules, "a.txt"), CAY_DECISION_YES);
    ASSERT_INT(decide(rules, "a.txt2"), CAY_DECISION_NONE);
    ASSERT_INT(decide(rules, "docs/x/y.md"), CAY_DECISION_YES);
    ASSERT_INT(decide(rules, "docs/../y.md"), CAY_DECISION_NONE);
    ASSERT_INT(decide(rules, "docs/a..md"), CAY_DECISION_YES);
    ASSERT_INT(decide(rules, "docs/secret.md"), CAY_DECISION_NO);
    ASSERT_INT(decide(rules, "star*\\\t"), CAY_DECISION_YES);
    ASSERT_INT(decide(rules, "starry\\\t"), CAY_DECISION_NONE);
    ASSERT_INT(decide(rules, "five"), CAY_DECISION_NONE);
    ASSERT_INT(decide(rules, "b.txt"), CAY_DECISION_NONE);
    ASSERT_INT(decide(rules, "never"), CAY_DECISION_NONE);
    ASSERT_INT(rules_decide(rules, "copy", "/policy", "b.txt"), CAY_DECISION_YES);
    ASSERT_INT(rules_decide("", "read", "", "b.txt"), CAY_DECISION_NONE);
}

TEST(a_remembered_rule_matches_exactly_its_subject)
{
    static const char *const subjects[] = {"*", "a\tb\\n\n", "\\*", "plain -> other"};
    char id[CAY_PENDING_ID_MAX];
    enum cay_decision decision;

    begin();
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        ASSERT_OK(submit(subjects[i], "x", id, &decision));
        ASSERT_INT(decision, CAY_DECISION_NONE);
        ASSERT_OK(cay_pending_decide(id, CAY_VERDICT_REMEMBER, NULL, &err));
        ASSERT_INT(look(id, (char[CAY_NOTE_MAX]){0}), CAY_DECISION_YES);
        ASSERT_OK(submit(subjects[i], "other", id, &decision));
        ASSERT_INT(decision, CAY_DECISION_YES);
    }
    ASSERT_OK(submit("something", "x", id, &decision));
    ASSERT_INT(decision, CAY_DECISION_NONE);
}

static void write_rules(const char *text)
{
    FILE *file = fopen(scratch_path("state/approvals/rules"), "w");

    ASSERT(file && fputs(text, file) >= 0);
    ASSERT_INT(fclose(file), 0);
}

TEST(the_rules_are_listed_and_removed_by_the_hash_of_their_line)
{
    struct cay_pending_rule *rules = NULL;
    char id[CAY_PENDING_ID_MAX], removed[CAY_PENDING_ID_MAX];
    enum cay_decision decision;
    size_t count = 9;

    begin();
    ASSERT_OK(cay_pending_list_rules(&rules, &count, &err));
    ASSERT_INT((int)count, 0);
    cay_free(rules);
    ASSERT_OK(submit("a.txt", "x", id, &decision));
    write_rules("# mine\nallow\twrite\t/policy\ta.txt\nno rule\na*\twrite\t*\tb\\*.txt\n"
                "allow\twrite\t/policy\ta.txt\ndeny\t*\t/policy\tc.txt");
    ASSERT_OK(cay_pending_list_rules(&rules, &count, &err));
    ASSERT_INT((int)count, 4);
    ASSERT(rules[0].allows && rules[1].allows && !rules[3].allows);
    ASSERT_STR(rules[0].subject, "a.txt");
    ASSERT_STR(rules[1].scope, "*");
    ASSERT_STR(rules[1].subject, "b\\*.txt");
    ASSERT_STR(rules[3].kind, "*");
    ASSERT_STR(rules[3].subject, "c.txt");
    ASSERT_STR(rules[0].id, rules[2].id);
    memcpy(removed, rules[0].id, sizeof removed);
    cay_free(rules);
    ASSERT_OK(submit("a.txt", "x", id, &decision));
    ASSERT_INT(decision, CAY_DECISION_YES);
    ASSERT_OK(cay_pending_remove_rule(removed, &err));
    ASSERT_OK(submit("a.txt", "x", id, &decision));
    ASSERT_INT(decision, CAY_DECISION_NONE);
    ASSERT_CODE(cay_pending_remove_rule(removed, &err), CAY_E_NOT_FOUND);
    removed[8] = '\0';
    ASSERT_CODE(cay_pending_remove_rule(removed, &err), CAY_E_NOT_FOUND);
    FILE *file = fopen(scratch_path("state/approvals/rules"), "r");
    char text[256] = "";
    ASSERT(file && fread(text, 1, sizeof text - 1, file) > 0);
    (void)fclose(file);
    ASSERT_STR(text, "# mine\nno rule\na*\twrite\t*\tb\\*.txt\ndeny\t*\t/policy\tc.txt");
}
