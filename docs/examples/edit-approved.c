/* SPDX-License-Identifier: Apache-2.0 */
/* edit-approved POLICY PATH OLD NEW: replaces text, with a prompt on standard input if
 * the policy requires approval.  The edit applies exactly what was shown: if the file
 * changes before the reply, the edit fails with "changed" and writes nothing. */
#include <cay/files.h>
#include <stdio.h>
#include <string.h>

static enum cay_verdict ask(void *cookie, const struct cay_approval *request,
                            char note[CAY_NOTE_MAX])
{
    char answer[64] = "";

    (void)cookie;
    printf("%s\n", request->summary);
    if (request->after)
        printf("The file would be:\n%.*s", (int)request->after_len, request->after);
    printf("Approve? [y/N] ");
    if (fgets(answer, sizeof answer, stdin) && answer[0] == 'y')
        return CAY_VERDICT_APPROVE;
    snprintf(note, CAY_NOTE_MAX, "the person at the terminal said no");
    return CAY_VERDICT_DENY;
}

int main(int argc, char **argv)
{
    struct cay_error err = {0};
    struct cay_files_options options = {.size = sizeof options, .approver = ask};
    struct cay_edit_result result = {0};
    cay_policy *policy = NULL;
    cay_files *files = NULL;

    if (argc != 5) {
        fprintf(stderr, "usage: edit-approved POLICY PATH OLD NEW\n");
        return 2;
    }
    struct cay_edit edit = {
        .old_text = argv[3],
        .old_len = strlen(argv[3]),
        .new_text = argv[4],
        .new_len = strlen(argv[4]),
    };
    int code = cay_policy_load(argv[1], NULL, &policy, &err);
    if (!code)
        code = cay_files_open(policy, &options, &files, &err);
    if (!code)
        code = cay_files_edit(files, argv[2], &edit, 1, NULL, &result, &err);
    cay_files_free(files);
    cay_policy_free(policy);
    if (code) {
        fprintf(stderr, "%s: %s (%s)\n", cay_code_slug(code), err.message, err.hint);
        return cay_code_exit(code);
    }
    printf("replaced %llu, %llu bytes now\n", (unsigned long long)result.replaced,
           (unsigned long long)result.bytes);
    return 0;
}
