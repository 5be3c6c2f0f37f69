/* SPDX-License-Identifier: Apache-2.0 */
/* derive POLICY DIRECTORY: hands a helper a view of one directory that it can only read.
 * The view has its own descriptors: it stays valid when the parent is gone, and nothing
 * done with it can widen it again. */
#include <cay/files.h>
#include <stdio.h>

static void show(cay_files *files, const char *whose)
{
    struct cay_error err = {0};
    struct cay_strings roots = {0};

    if (cay_files_roots(files, CAY_ACCESS_READ, &roots, &err) == CAY_OK) {
        printf("%s may read:", whose);
        for (size_t i = 0; i < roots.count; i++)
            printf(" %s%s", roots.items[i],
                   cay_files_can(files, roots.items[i], CAY_ACCESS_WRITE) ? " (and write)"
                                                                          : "");
        printf("\n");
    }
    cay_strings_done(&roots);
}

int main(int argc, char **argv)
{
    struct cay_error err = {0};
    cay_policy *policy = NULL;
    cay_files *parent = NULL, *child = NULL, *grandchild = NULL;

    if (argc != 3) {
        fprintf(stderr, "usage: derive POLICY DIRECTORY\n");
        return 2;
    }
    const char *const directory[] = {argv[2]};
    struct cay_derive narrow = {
        .size = sizeof narrow, .allow_read = directory, .allow_read_count = 1};
    struct cay_derive wide = {
        .size = sizeof wide, .allow_write = directory, .allow_write_count = 1};

    int code = cay_policy_load(argv[1], NULL, &policy, &err);
    if (!code)
        code = cay_files_open(policy, NULL, &parent, &err);
    if (!code)
        code = cay_files_derive(parent, &narrow, &child, &err);
    if (!code) {
        show(parent, "the parent");
        show(child, "the helper");
        code = cay_files_derive(child, &wide, &grandchild, &err);
        if (code == CAY_E_ESCALATION) {
            printf("and cannot get more: %s\n", err.message);
            code = CAY_OK;
        }
    }
    cay_files_free(grandchild);
    cay_files_free(child);
    cay_files_free(parent);
    cay_policy_free(policy);
    if (code)
        fprintf(stderr, "%s: %s (%s)\n", cay_code_slug(code), err.message, err.hint);
    return cay_code_exit(code);
}
