/* SPDX-License-Identifier: Apache-2.0 */
/* read-pages POLICY PATH: prints a file forty characters at a time, as a model with a
 * small window would read it.  The first page counts the file; the later ones cost only
 * themselves, for the reader stays open. */
#include <cay/files.h>
#include <stdio.h>

static int complain(const struct cay_error *err)
{
    fprintf(stderr, "%s: %s: %s (%s)\n", cay_code_slug(err->code), err->subject,
            err->message, err->hint);
    return cay_code_exit(err->code);
}

static int print_pages(cay_reader *reader, struct cay_error *err)
{
    struct cay_read_options options = {.size = sizeof options, .max = 40};
    bool more = true;

    while (more) {
        struct cay_page page = {0};
        int code = cay_reader_page(reader, &options, &page, err);
        if (code)
            return code;
        printf("--- characters %llu to %llu of %llu\n%s\n",
               (unsigned long long)page.offset,
               (unsigned long long)(page.offset + page.count),
               (unsigned long long)page.total, page.text);
        options.offset = page.offset + page.count;
        more = page.truncated;
        cay_page_done(&page);
    }
    return CAY_OK;
}

int main(int argc, char **argv)
{
    struct cay_error err = {0};
    cay_policy *policy = NULL;
    cay_files *files = NULL;
    cay_reader *reader = NULL;

    if (argc != 3) {
        fprintf(stderr, "usage: read-pages POLICY PATH\n");
        return 2;
    }
    int code = cay_policy_load(argv[1], NULL, &policy, &err);
    if (!code)
        code = cay_files_open(policy, NULL, &files, &err);
    if (!code)
        code = cay_reader_open(files, argv[2], &reader, &err);
    if (!code)
        code = print_pages(reader, &err);
    cay_reader_free(reader);
    cay_files_free(files);
    cay_policy_free(policy);
    return code ? complain(&err) : 0;
}
