/* SPDX-License-Identifier: Apache-2.0 */

/* The store of templates: what becomes of archives, images and directories, good and bad.
 */
#include "templates.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>

static void assert_tiny(void)
{
    char target[64] = {0};

    ASSERT_INT(stat_in_tiny("").st_mode & 07777, 0755);
    ASSERT_INT(stat_in_tiny("srv/owned").st_uid, 33);
    ASSERT_INT(stat_in_tiny("srv/owned").st_mode & 07777, 0640);
    ASSERT_INT(stat_in_tiny("srv/owned").st_mtime, 1000000000);
    ASSERT_INT(stat_in_tiny("srv/setuid").st_mode & 07777, 04755);
    ASSERT_INT(stat_in_tiny("tmp").st_mode & 07777, 01777);
    ASSERT_INT(stat_in_tiny("srv/other-name").st_ino, stat_in_tiny("srv/owned").st_ino);
    ASSERT(readlink(in_tiny("srv/climbing"), target, sizeof target - 1) > 0);
    ASSERT_STR(target, "../../../../etc/motd");
    ASSERT_INT(stat_in_tiny("home/user").st_uid, 1000);
}

static void assert_users(void)
{
    ASSERT_HAS(get_file("home/templates/tiny/root/etc/passwd"),
               "daemon:x:1:1::/:/bin/false\nuser:x:1000:1000:user:/home/user:/bin/sh\n");
    ASSERT_HAS(get_file("home/templates/tiny/root/etc/group"), "user:x:1000:\n");
}

TEST(a_directory_is_copied_with_its_owners)
{
    use_own_home();
    make_template("directory");
    assert_tiny();
    assert_users();
    /* What has no number inside is nobody's, and what is no file stays out. */
    ASSERT_INT(stat_in_tiny("etc/motd").st_uid, 65534);
    ASSERT_INT(stat_in_tiny("fifo").st_mode, 0);
}

TEST(a_directory_may_contain_the_store_itself)
{
    use_own_home();
    put_file("bin/sh", "");
    put_file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    ASSERT_OK(try_template("tiny", CAY_TEMPLATE_DIR, scratch()));
    ASSERT(stat_in_tiny("etc/passwd").st_mode);
}

TEST(the_holes_of_a_file_stay_holes)
{
    use_own_home();
    put_file("from/bin/sh", "");
    put_file("from/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    put_file("from/disk", "begin");
    ASSERT(truncate(scratch_path("from/disk"), 64 << 20) == 0);
    ASSERT_OK(try_template("tiny", CAY_TEMPLATE_DIR, scratch_path("from")));
    ASSERT_INT(stat_in_tiny("disk").st_size, 64 << 20);
    ASSERT(stat_in_tiny("disk").st_blocks < 1024);
}

/* A file system of an ordinary user, who alone may look at it; not every host has it. */
static void mount_somebody_elses(const char *path)
{
    char options[128];
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=4242,group_id=4242",
             fd);
    if (fd >= 0 && mount("none", path, "fuse", 0, options) == 0)
        ASSERT(access(path, F_OK) != 0);
}

static void copy_with_mounts(void)
{
    ASSERT(unshare(CLONE_NEWNS) == 0);
    ASSERT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    ASSERT(mount("none", scratch_path("from/other"), "tmpfs", 0, NULL) == 0);
    put_file("from/other/over", "");
    mount_somebody_elses(scratch_path("from/theirs"));
    ASSERT_OK(try_template("tiny", CAY_TEMPLATE_DIR, scratch_path("from")));
}

TEST(what_lies_on_other_file_systems_is_not_copied)
{
    use_own_home();
    put_file("from/bin/sh", "");
    put_file("from/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    put_file("from/other/under", "");
    put_file("from/theirs/under", "");
    in_own_process(copy_with_mounts);
    ASSERT(S_ISREG(stat_in_tiny("bin/sh").st_mode));
    ASSERT(S_ISDIR(stat_in_tiny("other").st_mode));
    ASSERT_INT(count_names(in_tiny("other"), ""), 2);
}

/* In place of the real one, which takes minutes. */
static void bootstrap_with_sigchld_ignored(void)
{
    static const char real[] = "/usr/sbin/debootstrap";

    put_file("debootstrap", "#!/bin/sh\nmkdir -p root/bin root/etc root/var/cache/apt\n"
                            "echo 'I: Base system installed successfully.'\n");
    ASSERT(chmod(scratch_path("debootstrap"), 0755) == 0);
    ASSERT(unshare(CLONE_NEWNS) == 0);
    ASSERT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    ASSERT(mount(scratch_path("debootstrap"), real, NULL, MS_BIND, NULL) == 0);
    ASSERT(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    ASSERT_OK(try_template("tiny", CAY_TEMPLATE_DEBOOTSTRAP, "bookworm"));
    ASSERT(truncate(scratch_path("debootstrap"), strlen("#!/bin/sh\n")) == 0);
    ASSERT_CODE(try_template("none", CAY_TEMPLATE_DEBOOTSTRAP, "bookworm"),
                CAY_E_UNAVAILABLE);
}

TEST(a_host_that_ignores_its_children_can_bootstrap)
{
    use_own_home();
    if (access("/usr/sbin/debootstrap", X_OK) != 0)
        SKIP("debootstrap is not installed");
    in_own_process(bootstrap_with_sigchld_ignored);
    ASSERT(S_ISDIR(stat_in_tiny("bin").st_mode));
}

TEST(what_is_no_root_of_a_system_is_refused)
{
    use_own_home();
    put_file("from/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    ASSERT_CODE(try_template("tiny", CAY_TEMPLATE_DIR, scratch_path("from")),
                CAY_E_INVALID);
    ASSERT_HAS(err.message, "neither bin nor usr");
    ASSERT(access(scratch_path("home/templates/tiny"), F_OK) != 0);
}

TEST(tar_files_are_unpacked_whatever_compresses_them)
{
    static const char *const kinds[] = {"tar", "tar-gz", "tar-xz", "tar-zst"};

    use_own_home();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        make_template(kinds[i]);
        assert_tiny();
        assert_users();
        ASSERT_OK(cay_template_remove("tiny", &err));
    }
}

TEST(only_directories_that_are_made_count_for_the_limit)
{
    use_own_home();
    make_template("tar-deep");
}

static void assert_layers(void)
{
    struct cay_template_info *infos;
    size_t count;

    ASSERT_INT(stat_in_tiny("etc/motd").st_mode, 0);
    ASSERT(stat_in_tiny("etc/issue").st_mode);
    ASSERT_INT(stat_in_tiny("bin/wc").st_mode, 0);
    ASSERT(stat_in_tiny("bin/cat").st_mode);
    ASSERT_INT(stat_in_tiny("srv/owned").st_mode, 0);
    ASSERT_STR(get_file("home/templates/tiny/root/srv/new"), "new\n");
    ASSERT(S_ISREG(stat_in_tiny("opt").st_mode));
    ASSERT_INT(stat_in_tiny("srv/.wh..wh..opq").st_mode, 0);
    ASSERT_OK(cay_template_list(&infos, &count, &err));
    ASSERT_INT(count, 3);
    ASSERT_STR(infos[2].source, "oci");
    ASSERT_STR(infos[2].user, "33:33");
    ASSERT_STR(infos[2].workdir, "/srv");
    cay_free(infos);
}

TEST(layers_of_images_are_put_on_each_other_with_what_they_hide)
{
    static const char *const kinds[] = {"saved", "oci-tar", "oci-named-twice",
                                        "oci-directory"};

    use_own_home();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        make_template(kinds[i]);
        assert_layers();
        assert_users();
        /* Nothing of the image itself stays. */
        ASSERT_INT(count_names(scratch_path("home/templates/tiny"), ""), 4);
        ASSERT_OK(cay_template_remove("tiny", &err));
    }
}

/* What `rm LINK && mkdir LINK` in a Dockerfile comes to. */
TEST(a_layer_that_has_a_directory_for_a_link_hides_nothing_behind_it)
{
    use_own_home();
    make_template("saved-directory-for-link");
    ASSERT(S_ISDIR(stat_in_tiny("into").st_mode));
    ASSERT_STR(get_file("home/templates/tiny/root/into/new"), "new\n");
    ASSERT(stat_in_tiny("srv/owned").st_mode);
    ASSERT(S_ISLNK(stat_in_tiny("out").st_mode));
    assert_canary();
}

static void assert_refused(const char *kind, int code)
{
    ASSERT_CODE(try_template("tiny", source_of(kind), make_image(kind)), code);
    ASSERT_INT(count_names(scratch_path("home/templates"), ""), 2);
    ASSERT(access(scratch_path("escaped"), F_OK) != 0);
    ASSERT(access(scratch_path("home/escaped"), F_OK) != 0);
    ASSERT(access("/tmp/escaped", F_OK) != 0);
    assert_canary();
}

TEST(hostile_archives_are_refused_and_leave_nothing)
{
    use_own_home();
    assert_refused("hostile-climbing", CAY_E_OUTSIDE);
    assert_refused("hostile-absolute", CAY_E_OUTSIDE);
    assert_refused("hostile-through-link", CAY_E_OUTSIDE);
    assert_refused("hostile-through-climbing-link", CAY_E_OUTSIDE);
    assert_refused("hostile-hard-link", CAY_E_OUTSIDE);
    assert_refused("hostile-hard-link-absolute", CAY_E_NOT_FOUND);
    assert_refused("hostile-hard-link-through-link", CAY_E_OUTSIDE);
    assert_refused("hostile-whiteout", CAY_E_INVALID);
    assert_refused("truncated", CAY_E_INVALID);
    assert_refused("not-tar", CAY_E_INVALID);
}

TEST(an_image_that_is_not_what_its_digests_say_is_refused)
{
    use_own_home();
    assert_refused("saved-damaged", CAY_E_INVALID);
    ASSERT_HAS(err.message, "digest");
    /* The blob is what the manifest names, but not what the configuration does. */
    assert_refused("oci-other-diff-id", CAY_E_INVALID);
    ASSERT_HAS(err.message, "does not match its diff_id");
    assert_refused("oci-few-diff-ids", CAY_E_INVALID);
    ASSERT_STR(err.subject, "diff_ids");
    assert_refused("oci-damaged-gzip", CAY_E_INVALID);
    ASSERT_HAS(err.message, "damaged");
}

TEST(a_blob_that_does_not_match_its_digest_is_refused)
{
    static const char *const kinds[] = {"oci-wrong-layer", "oci-wrong-config",
                                        "oci-wrong-manifest"};

    use_own_home();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        assert_refused(kinds[i], CAY_E_INVALID);
        ASSERT_HAS(err.message, "digest");
    }
    make_template("oci-tar"); /* the same image as it was */
}

TEST(headers_of_an_archive_are_limited)
{
    use_own_home();
    make_template("tar-header");
    ASSERT_OK(cay_template_remove("tiny", &err));
    make_template("tar-name");
    ASSERT_OK(cay_template_remove("tiny", &err));
    assert_refused("hostile-header", CAY_E_INVALID);
    assert_refused("hostile-name", CAY_E_INVALID);
    assert_refused("hostile-component", CAY_E_INVALID);
    assert_refused("oci-large-config", CAY_E_INVALID);
}

TEST(an_image_that_describes_itself_wrongly_is_refused)
{
    use_own_home();
    assert_refused("oci-without-blob", CAY_E_INVALID);
    assert_refused("oci-climbing-digest", CAY_E_INVALID);
    assert_refused("oci-wrong-kinds", CAY_E_INVALID);
    assert_refused("oci-deep", CAY_E_INVALID);
    assert_refused("saved-climbing-layer", CAY_E_INVALID);
    assert_refused("saved-two-images", CAY_E_INVALID);
    ASSERT_HAS(err.hint, "it contains 2");
    assert_refused("saved-user-long", CAY_E_INVALID);
    assert_refused("saved-workdir-long", CAY_E_INVALID);
    assert_refused("saved-workdir-is-file", CAY_E_INVALID);
    assert_refused("saved-workdir-leads-out", CAY_E_INVALID);
}

TEST(the_size_of_what_an_image_unpacks_to_is_limited)
{
    use_own_home();
    make_template("oci-zeros");
    ASSERT_INT(stat_in_tiny("zeros").st_size, 64 << 20);
    ASSERT_OK(cay_template_remove("tiny", &err));
    assert_refused("oci-ratio", CAY_E_LIMIT);
    ASSERT_HAS(err.hint, "200 times");
    assert_refused("hostile-bytes", CAY_E_LIMIT);
    assert_refused("hostile-depth", CAY_E_LIMIT);
    assert_refused("oci-many-layers", CAY_E_INVALID);
    assert_refused("oci-indexes", CAY_E_INVALID);
    ASSERT_HAS(err.message, "nested too deeply");
}

TEST(layers_reach_nothing_through_the_links_of_lower_ones)
{
    use_own_home();
    make_template("oci-links");
    ASSERT_INT(stat_in_tiny("gone").st_mode, 0);
    ASSERT(S_ISLNK(stat_in_tiny("out").st_mode));
    ASSERT(S_ISLNK(stat_in_tiny("whole").st_mode));
    ASSERT_INT(stat_in_tiny("null").st_mode | stat_in_tiny("disk").st_mode, 0);
    ASSERT(stat_in_tiny("srv/owned").st_mode);
    assert_canary();
    ASSERT_OK(cay_template_remove("tiny", &err));
    assert_refused("oci-through-link", CAY_E_OUTSIDE);
    assert_refused("oci-hard-link", CAY_E_OUTSIDE);
}

TEST(an_image_for_another_machine_is_refused)
{
    use_own_home();
    assert_refused("oci-foreign", CAY_E_UNSUPPORTED);
}

TEST(an_archive_has_at_most_a_million_entries)
{
    use_own_home();
    assert_refused("many-entries", CAY_E_LIMIT);
    ASSERT_HAS(err.hint, "1000000");
}

TEST(devices_in_an_archive_are_left_out)
{
    use_own_home();
    make_template("devices");
    assert_tiny();
    ASSERT_INT(stat_in_tiny("disk").st_mode, 0);
    ASSERT_INT(stat_in_tiny("fifo").st_mode, 0);
}

TEST(the_host_comes_first_and_a_removed_template_is_gone)
{
    struct cay_template_info *infos;
    size_t count;

    use_own_home();
    make_template("tar");
    ASSERT_OK(cay_template_list(&infos, &count, &err));
    ASSERT_INT(count, 3);
    ASSERT_STR(infos[0].name, "host");
    ASSERT_STR(infos[0].source, "builtin");
    ASSERT_STR(infos[1].name, "base");
    ASSERT_STR(infos[1].source, "builtin");
    ASSERT_STR(infos[2].name, "tiny");
    ASSERT_STR(infos[2].source, "tar");
    ASSERT_STR(infos[2].from, scratch_path("tar"));
    ASSERT(infos[2].bytes > 100000);
    ASSERT(infos[2].created_ms > 1600000000000);
    cay_free(infos);
    ASSERT_OK(cay_template_remove("tiny", &err));
    ASSERT_INT(count_names(scratch_path("home/templates"), ""), 2);
    ASSERT_CODE(cay_template_remove("tiny", &err), CAY_E_NOT_FOUND);
    ASSERT_HAS(err.hint, "host");
}

TEST(what_cannot_be_a_template_is_told)
{
    use_own_home();
    put_file("a", "a");
    ASSERT_CODE(try_template("host", CAY_TEMPLATE_DIR, scratch()), CAY_E_INVALID);
    ASSERT_CODE(try_template("../x", CAY_TEMPLATE_DIR, scratch()), CAY_E_INVALID);
    ASSERT_CODE(try_template("", CAY_TEMPLATE_DIR, scratch()), CAY_E_INVALID);
    ASSERT_CODE(try_template(".new-x", CAY_TEMPLATE_DIR, scratch()), CAY_E_INVALID);
    ASSERT_CODE(try_template("x", (enum cay_template_source)9, "x"), CAY_E_INVALID);
    ASSERT_CODE(try_template("x", CAY_TEMPLATE_TAR, NULL), CAY_E_INVALID);
    ASSERT_CODE(try_template("x", CAY_TEMPLATE_TAR, scratch()), CAY_E_NOT_A_FILE);
    ASSERT_CODE(try_template("x", CAY_TEMPLATE_TAR, "/nonexistent"), CAY_E_NOT_FOUND);
    ASSERT_CODE(try_template("x", CAY_TEMPLATE_OCI, scratch()), CAY_E_INVALID);
    ASSERT_CODE(try_template("x", CAY_TEMPLATE_DEBOOTSTRAP, "../sid"), CAY_E_INVALID);
}

TEST(a_name_is_taken_once)
{
    use_own_home();
    make_template("tar");
    ASSERT_CODE(try_template("tiny", CAY_TEMPLATE_TAR, scratch_path("tar")),
                CAY_E_EXISTS);
}

TEST(a_template_may_have_a_tag_and_latest_is_the_name_alone)
{
    struct cay_template_info *infos;
    size_t count;

    use_own_home();
    const char *file = make_image("tar");
    ASSERT_OK(try_template("tiny:v1.2", CAY_TEMPLATE_TAR, file));
    ASSERT_OK(try_template("tiny:latest", CAY_TEMPLATE_TAR, file));
    ASSERT_CODE(try_template("tiny", CAY_TEMPLATE_TAR, file), CAY_E_EXISTS);
    ASSERT_CODE(try_template("tiny:", CAY_TEMPLATE_TAR, file), CAY_E_INVALID);
    ASSERT_CODE(try_template("tiny:a:b", CAY_TEMPLATE_TAR, file), CAY_E_INVALID);
    ASSERT_CODE(try_template("tiny:.a", CAY_TEMPLATE_TAR, file), CAY_E_INVALID);
    ASSERT_CODE(try_template("host:a", CAY_TEMPLATE_TAR, file), CAY_E_INVALID);
    ASSERT_OK(cay_template_list(&infos, &count, &err));
    ASSERT_INT(count, 4);
    ASSERT_STR(infos[2].name, "tiny");
    ASSERT_STR(infos[3].name, "tiny:v1.2");
    cay_free(infos);
    ASSERT_OK(cay_template_remove("tiny:latest", &err));
    ASSERT_OK(cay_template_remove("tiny:v1.2", &err));
}

TEST(what_a_crash_left_is_swept_by_the_next)
{
    use_own_home();
    put_file("home/templates/.new-0123456789abcdef/root/etc/passwd", "x");
    put_file("home/templates/.old-0123456789abcdef/template/root/x", "x");
    ASSERT(chmod(scratch_path("home"), 0700) == 0);
    ASSERT(chmod(scratch_path("home/templates"), 0700) == 0);
    make_template("tar");
    ASSERT_INT(count_names(scratch_path("home/templates"), ""), 3);
}

static int cancel(void *cookie, const char *step, uint64_t bytes)
{
    ++*(int *)cookie;
    ASSERT(*step && bytes < 1u << 30);
    return 1;
}

TEST(progress_is_told_and_may_cancel)
{
    int calls = 0;

    use_own_home();
    const struct cay_template_options options = {.size = sizeof options,
                                                 .name = "tiny",
                                                 .source = CAY_TEMPLATE_TAR,
                                                 .from = make_image("tar"),
                                                 .on_progress = cancel,
                                                 .cookie = &calls};
    ASSERT_CODE(cay_template_create(&options, &err), CAY_E_CANCELLED);
    ASSERT_INT(calls, 1);
    ASSERT_INT(count_names(scratch_path("home/templates"), ""), 2);
}

TEST(a_home_that_others_may_write_is_refused)
{
    use_own_home();
    put_file("home/x", "x");
    ASSERT(chmod(scratch_path("home"), 0777) == 0);
    ASSERT_CODE(try_template("tiny", CAY_TEMPLATE_DIR, scratch()), CAY_E_UNAVAILABLE);
}
