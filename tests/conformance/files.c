/* SPDX-License-Identifier: Apache-2.0 */

/* Files, by the functions of agent.h, which work on every backend. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cay/agent.h"
#include "conformance.h"

/* Names that are trouble to whoever makes a shell line of them, or takes them apart. */
static const char *const awkward[] = {
    "plain",
    "two words",
    " blanks around ",
    "'quote'",
    "\"double\"",
    "$HOME",
    "`id`",
    "a;b&c|d",
    "-rf",
    "--help",
    "*",
    "?[a]",
    "back\\slash",
    "new\nline",
    "tab\there",
    "~",
    "#hash",
    "!bang",
    "\xc3\xa9t\xc3\xa9",
    ".hidden",
    "{a,b}",
    "%s%n",
    "name.",
};
enum { AWKWARD = sizeof awkward / sizeof *awkward };

static void put(cay_sandbox *sandbox, const char *path, const char *text)
{
    ASSERT_OK(cay_file_write(sandbox, NULL, path, text, strlen(text), 0, &err));
}

static void expect(cay_sandbox *sandbox, const char *path, const char *text)
{
    struct cay_content content = {0};

    ASSERT_OK(cay_file_read(sandbox, NULL, path, &content, &err));
    ASSERT_MEM(content.data, content.len, text, strlen(text));
    cay_free(content.data);
}

static int read_code(cay_sandbox *sandbox, const char *path)
{
    struct cay_content content = {0};
    int code = cay_file_read(sandbox, NULL, path, &content, &err);

    cay_free(content.data);
    return code;
}

CASE(what_is_written_is_what_programs_and_callers_read)
{
    cay_sandbox *sandbox = make();
    char home[1024], path[1100];

    snprintf(home, sizeof home, "%s", told(sandbox, "pwd"));
    put(sandbox, "file", "one\ntwo\n");
    ASSERT_STR(told(sandbox, "cat file"), "one\ntwo");
    (void)told(sandbox, "printf three > file");
    expect(sandbox, "file", "three");
    snprintf(path, sizeof path, "%s/deep/er/file", home); /* parents are made */
    put(sandbox, path, "absolute");
    expect(sandbox, "deep/er/file", "absolute");
    expect(reach(cay_sandbox_id(sandbox)), "file", "three");
}

CASE(file_names_that_are_not_utf8_are_kept_or_refused)
{
    static const char name[] = "not-utf8\xff/\xfe";
    cay_sandbox *sandbox = make();

    int code = cay_file_write(sandbox, NULL, name, "odd", 3, 0, &err);
    if (code == CAY_E_UNSUPPORTED)
        report_unsupported("bytes");
    ASSERT_OK(code);
    ASSERT_STR(told(sandbox, "cat not-utf8*/*"), "odd");
    expect(sandbox, name, "odd");
}

CASE(content_is_bytes)
{
    enum { LEN = 3 << 20 };
    cay_sandbox *sandbox = make();
    AUTO_FREE char *bytes = malloc(LEN);
    struct cay_content content = {0};

    ASSERT(bytes);
    for (size_t i = 0; i < LEN; i++)
        bytes[i] = (char)(i * 7 + i / 256);
    ASSERT_OK(cay_file_write(sandbox, NULL, "bytes", bytes, LEN, 0, &err));
    ASSERT_OK(cay_file_read(sandbox, NULL, "bytes", &content, &err));
    ASSERT_MEM(content.data, content.len, bytes, LEN);
    cay_free(content.data);
    put(sandbox, "empty", "");
    expect(sandbox, "empty", "");
    ASSERT_STR(told(sandbox, "wc -c < empty"), "0");
}

CASE(names_mean_nothing_but_themselves)
{
    cay_sandbox *sandbox = make();
    struct cay_file_infos infos = {0};
    char path[256];

    ASSERT_OK(cay_directory_create(sandbox, NULL, "names", true, &err));
    for (size_t i = 0; i < AWKWARD; i++) {
        snprintf(path, sizeof path, "names/%s", awkward[i]);
        put(sandbox, path, awkward[i]);
        expect(sandbox, path, awkward[i]);
        ASSERT_INT(cay_file_exists(sandbox, NULL, path, &err), 1);
    }
    char count[16];
    snprintf(count, sizeof count, "%d", AWKWARD);
    ASSERT_STR(told(sandbox, "set -- names/* names/.h*; echo $#"), count);
    ASSERT_OK(cay_file_list(sandbox, NULL, "names", false, NULL, &infos, &err));
    ASSERT_INT(infos.count, AWKWARD);
    for (size_t i = 1; i < infos.count; i++)
        ASSERT(strcmp(infos.items[i - 1].path, infos.items[i].path) < 0);
    cay_file_infos_done(&infos);
    for (size_t i = 0; i < AWKWARD; i++) {
        snprintf(path, sizeof path, "names/%s", awkward[i]);
        ASSERT_OK(cay_file_delete(sandbox, NULL, path, &err));
    }
    ASSERT_STR(told(sandbox, "ls -A names | wc -l"), "0");
}

CASE(what_is_not_there_is_not_found)
{
    cay_sandbox *sandbox = make();
    struct cay_file_info info = {0};

    ASSERT_CODE(read_code(sandbox, "none"), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_file_delete(sandbox, NULL, "none", &err), CAY_E_NOT_FOUND);
    ASSERT_INT(cay_file_exists(sandbox, NULL, "none", &err), 0);
    ASSERT_OK(cay_file_inspect(sandbox, NULL, "none", &info, &err));
    ASSERT(!info.exists);
    cay_file_info_done(&info);
}

CASE(a_file_is_described_as_it_is)
{
    cay_sandbox *sandbox = make();
    struct cay_file_info info = {0};

    put(sandbox, "file", "12345");
    (void)told(sandbox, "chmod 640 file; mkdir dir; ln -s file link");
    ASSERT_OK(cay_file_inspect(sandbox, NULL, "file", &info, &err));
    ASSERT(info.exists && info.readable && info.writable && !info.link_target);
    ASSERT_INT(info.stat.type, CAY_TYPE_FILE);
    ASSERT_INT(info.stat.bytes, 5);
    ASSERT_INT(info.stat.mode, 0640);
    ASSERT_STR(info.path, "file");
    cay_file_info_done(&info);
    ASSERT_OK(cay_file_inspect(sandbox, NULL, "dir", &info, &err));
    ASSERT_INT(info.stat.type, CAY_TYPE_DIRECTORY);
    cay_file_info_done(&info);
    ASSERT_OK(cay_file_inspect(sandbox, NULL, "link", &info, &err));
    ASSERT_INT(info.stat.type, CAY_TYPE_FILE); /* what it leads to */
    ASSERT_STR(info.link_target, "file");
    cay_file_info_done(&info);
}

/* The last parts of their paths, with blanks between. */
static const char *names_of(const struct cay_file_infos *infos)
{
    static char names[1024];
    size_t used = 0;

    names[0] = '\0';
    for (size_t i = 0; i < infos->count; i++) {
        const char *slash = strrchr(infos->items[i].path, '/');
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? " " : "",
                                 slash ? slash + 1 : infos->items[i].path);
        ASSERT(used < sizeof names);
    }
    return names;
}

CASE(directories_are_listed_flat_deep_and_by_pattern)
{
    cay_sandbox *sandbox = make();
    struct cay_file_infos infos = {0};

    (void)told(sandbox, "mkdir -p d/sub/deep; touch d/a.txt d/b.md d/.dot d/sub/c.txt "
                        "d/sub/deep/e.txt");
    ASSERT_OK(cay_file_list(sandbox, NULL, "d", false, NULL, &infos, &err));
    ASSERT_STR(names_of(&infos), ".dot a.txt b.md sub");
    cay_file_infos_done(&infos);
    ASSERT_OK(cay_file_list(sandbox, NULL, "d", true, NULL, &infos, &err));
    ASSERT_STR(names_of(&infos), ".dot a.txt b.md sub c.txt deep e.txt");
    cay_file_infos_done(&infos);
    ASSERT_OK(cay_file_list(sandbox, NULL, "d", true, "*.txt", &infos, &err));
    ASSERT_STR(names_of(&infos), "a.txt c.txt e.txt");
    cay_file_infos_done(&infos);
}

CASE(glob_finds_what_matches)
{
    cay_sandbox *sandbox = make();
    struct cay_strings paths = {0};

    (void)told(sandbox, "mkdir -p g/sub; touch g/a.txt g/b.md g/sub/c.txt 'g/x y.txt'");
    ASSERT_OK(cay_file_glob(sandbox, NULL, "g/*.txt", false, &paths, &err));
    ASSERT_INT(paths.count, 2);
    ASSERT_STR(paths.items[0], "g/a.txt");
    ASSERT_STR(paths.items[1], "g/x y.txt");
    cay_strings_done(&paths);
    ASSERT_OK(cay_file_glob(sandbox, NULL, "g/**/*.txt", true, &paths, &err));
    ASSERT_INT(paths.count, 3);
    cay_strings_done(&paths);
    ASSERT_OK(cay_file_glob(sandbox, NULL, "none/*", false, &paths, &err));
    ASSERT_INT(paths.count, 0);
    cay_strings_done(&paths);
}

static int edit(cay_sandbox *sandbox, const char *path, const char *old_text,
                const char *new_text, enum cay_edit_kind *kind)
{
    return cay_file_edit(sandbox, NULL, path, old_text, strlen(old_text), new_text,
                         strlen(new_text), kind, &err);
}

CASE(edits_make_change_and_take_away)
{
    cay_sandbox *sandbox = make();
    enum cay_edit_kind kind = 0;

    ASSERT_OK(edit(sandbox, "edited", "", "one two three\n", &kind));
    ASSERT_INT(kind, CAY_EDIT_CREATE);
    ASSERT_CODE(edit(sandbox, "edited", "", "again", &kind), CAY_E_EXISTS);
    ASSERT_OK(edit(sandbox, "edited", "two", "2", &kind));
    ASSERT_INT(kind, CAY_EDIT_UPDATE);
    ASSERT_OK(edit(sandbox, "edited", " three", "", &kind));
    ASSERT_INT(kind, CAY_EDIT_REMOVE);
    expect(sandbox, "edited", "one 2\n");
    ASSERT_CODE(edit(sandbox, "edited", "four", "4", &kind), CAY_E_NO_MATCH);
    put(sandbox, "edited", "x x");
    ASSERT_CODE(edit(sandbox, "edited", "x", "y", &kind), CAY_E_NO_MATCH);
    expect(sandbox, "edited", "x x");
    ASSERT_CODE(edit(sandbox, "none", "a", "b", &kind), CAY_E_NOT_FOUND);
}

CASE(directories_are_made_and_go_with_all_below_them)
{
    cay_sandbox *sandbox = make();

    ASSERT(cay_directory_create(sandbox, NULL, "no/parents", false, &err) != CAY_OK);
    ASSERT_OK(cay_directory_create(sandbox, NULL, "with/its/parents", true, &err));
    ASSERT_STR(told(sandbox, "test -d with/its/parents && echo yes"), "yes");
    put(sandbox, "with/file", "x");
    (void)told(sandbox, "echo far > outside; ln -s \"$PWD/outside\" with/link; "
                        "mkfifo with/pipe");
    ASSERT_INT(cay_file_exists(sandbox, NULL, "with/pipe", &err), 1);
    ASSERT_OK(cay_file_delete(sandbox, NULL, "with/link", &err));
    ASSERT_OK(cay_file_delete(sandbox, NULL, "with/pipe", &err));
    ASSERT_INT(cay_file_exists(sandbox, NULL, "with/pipe", &err), 0);
    expect(sandbox, "outside", "far\n");
    ASSERT_OK(cay_file_delete(sandbox, NULL, "with", &err));
    ASSERT_INT(cay_file_exists(sandbox, NULL, "with", &err), 0);
}

/* --- Between here and there --- */

CASE(files_go_in_and_come_out)
{
    cay_sandbox *sandbox = make();
    struct cay_transfer transfer = {0};

    put_file("in - 'odd' name", "carried\n");
    ASSERT_OK(cay_file_upload(sandbox, NULL, scratch_path("in - 'odd' name"),
                              "to/a 'place'/file", &transfer, &err));
    ASSERT_INT(transfer.files, 1);
    ASSERT_INT(transfer.bytes, 8);
    expect(sandbox, "to/a 'place'/file", "carried\n");
    ASSERT_OK(cay_file_download(sandbox, NULL, "to/a 'place'/file",
                                scratch_path("out/of/it"), &transfer, &err));
    ASSERT_STR(get_file("out/of/it"), "carried\n");
    ASSERT_CODE(
        cay_file_upload(sandbox, NULL, scratch_path("none"), "x", &transfer, &err),
        CAY_E_NOT_FOUND);
    ASSERT_CODE(
        cay_file_download(sandbox, NULL, "none", scratch_path("none"), &transfer, &err),
        CAY_E_NOT_FOUND);
    ASSERT(access(scratch_path("none"), F_OK) != 0 && errno == ENOENT);
}

CASE(a_big_file_comes_back_as_it_was)
{
    enum { LEN = 12 << 20 };
    cay_sandbox *sandbox = make();
    AUTO_FREE char *bytes = malloc(LEN);
    struct cay_transfer transfer = {0};
    struct stat st;

    ASSERT(bytes);
    for (size_t i = 0; i < LEN; i++)
        bytes[i] = (char)(i ^ (i >> 9));
    put_bytes("big", bytes, LEN);
    ASSERT_OK(
        cay_file_upload(sandbox, NULL, scratch_path("big"), "big", &transfer, &err));
    ASSERT_STR(told(sandbox, "wc -c < big"), "12582912");
    ASSERT_OK(
        cay_file_download(sandbox, NULL, "big", scratch_path("back"), &transfer, &err));
    ASSERT_INT(stat(scratch_path("back"), &st), 0);
    ASSERT_INT(st.st_size, LEN);
    FILE *file = fopen(scratch_path("back"), "re");
    AUTO_FREE char *back = malloc(LEN);
    ASSERT(file && back);
    ASSERT_INT(fread(back, 1, LEN, file), LEN);
    (void)fclose(file);
    ASSERT(memcmp(back, bytes, LEN) == 0);
}

CASE(directories_go_in_and_come_out_with_every_name)
{
    cay_sandbox *sandbox = make();
    struct cay_transfer transfer = {0};
    char path[256];

    for (size_t i = 0; i < AWKWARD; i++) {
        snprintf(path, sizeof path, "tree/%s/%s", i % 2 ? "one" : "two words",
                 awkward[i]);
        put_file(path, awkward[i]);
    }
    ASSERT_INT(chmod(scratch_path("tree/one/two words"), 0750), 0);
    ASSERT_OK(cay_directory_upload(sandbox, NULL, scratch_path("tree"), "there/tree",
                                   &transfer, &err));
    ASSERT_INT(transfer.files, AWKWARD);
    ASSERT_STR(told(sandbox, "test -x 'there/tree/one/two words' && echo x"), "x");
    ASSERT_OK(cay_directory_download(sandbox, NULL, "there", scratch_path("back"),
                                     &transfer, &err));
    ASSERT_INT(transfer.files, AWKWARD);
    for (size_t i = 0; i < AWKWARD; i++) {
        snprintf(path, sizeof path, "back/tree/%s/%s", i % 2 ? "one" : "two words",
                 awkward[i]);
        ASSERT_STR(get_file(path), awkward[i]);
    }
    ASSERT_INT(access(scratch_path("back/tree/one/two words"), X_OK), 0);
}

/* What comes out of a sandbox is not to be trusted. */
CASE(a_download_stays_where_it_belongs)
{
    cay_sandbox *sandbox = make();
    struct cay_transfer transfer = {0};

    put_file("outside/file", "mine\n");
    (void)told(sandbox,
               "mkdir -p tree; echo fine > tree/file; ln -s /etc/passwd tree/out; "
               "ln -s ../../outside tree/up; mkfifo tree/fifo");
    ASSERT_OK(cay_directory_download(sandbox, NULL, "tree", scratch_path("got/tree"),
                                     &transfer, &err));
    ASSERT_STR(get_file("got/tree/file"), "fine\n");
    ASSERT_STR(get_file("outside/file"), "mine\n");
    ASSERT(transfer.skipped >= 1); /* the FIFO at least */
    struct stat st;
    ASSERT(lstat(scratch_path("got/tree/fifo"), &st) != 0);
}
