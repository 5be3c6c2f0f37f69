/* SPDX-License-Identifier: Apache-2.0 */

/* A whole Debian from its archive, made once for all tests and kept in the build
 * directory. */
#include "templates.h"

/* A host with certificates that Debian lacks needs them inside, too. */
static const struct cay_bind certificates = {"/etc/ssl/certs/ca-certificates.crt",
                                             "/etc/ssl/certs/ca-certificates.crt", false};
static const char *const env[] = {"PIP_CERT=/etc/ssl/certs/ca-certificates.crt", NULL};

static cay_sandbox *make_debian(enum cay_network network)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .template_name = "debian",
                                                .network = network,
                                                .binds = &certificates,
                                                .bind_count = network == CAY_NETWORK_HOST,
                                                .env = env,
                                                .memory_bytes = 2ull << 30,
                                                .disk_bytes = 1ull << 30};
    struct cay_template_options wanted = {.size = sizeof wanted,
                                          .name = "debian",
                                          .source = CAY_TEMPLATE_DEBOOTSTRAP,
                                          .from = "bookworm",
                                          .packages = "python3-yaml"};

    need_root();
    ASSERT(setenv("CAY_HOME", DEBIAN_HOME, 1) == 0);
    int code = cay_template_create(&wanted, &err);
    if (code == CAY_E_UNAVAILABLE)
        SKIP("debootstrap is not installed, or Debian's archive cannot be reached");
    if (code != CAY_E_EXISTS)
        ASSERT_OK(code);
    return make_sandbox(&options);
}

static int cancel_later(void *cookie, const char *step, uint64_t bytes)
{
    (void)bytes;
    ASSERT(*step);
    return ++*(int *)cookie == 8;
}

TEST(making_a_debian_tells_its_progress_and_can_be_cancelled)
{
    int calls = 0;
    struct cay_template_options wanted = {.size = sizeof wanted,
                                          .name = "debian",
                                          .source = CAY_TEMPLATE_DEBOOTSTRAP,
                                          .from = "bookworm",
                                          .on_progress = cancel_later,
                                          .cookie = &calls};

    use_own_home();
    int code = cay_template_create(&wanted, &err);
    if (code == CAY_E_UNAVAILABLE)
        SKIP("debootstrap is not installed, or Debian's archive cannot be reached");
    ASSERT_INT(code, CAY_E_CANCELLED);
    ASSERT_INT(calls, 8);
    ASSERT_INT(count_names(scratch_path("home/templates"), ""), 2);
}

TEST(a_suite_that_there_is_not_is_told)
{
    use_own_home();
    ASSERT_CODE(try_template("x", CAY_TEMPLATE_DEBOOTSTRAP, "nosuchsuite"),
                CAY_E_UNAVAILABLE);
    ASSERT_INT(count_names(scratch_path("home/templates"), ""), 2);
}

TEST(a_debian_has_the_packages_that_were_asked_for)
{
    AUTO(cay_sandbox) sandbox = make_debian(CAY_NETWORK_NONE);
    run(sandbox, "python3 -c 'import yaml; print(yaml.__name__)'; "
                 "cat /etc/pip.conf");
    ASSERT_STR(result.out, "yaml\n[global]\nbreak-system-packages = true\n");
}

TEST(lists_of_packages_are_checked)
{
    static const char *const lists[] = {"", "-y", "a b", "python3,--arch=x", "A", "a;b"};
    struct cay_template_options wanted = {.size = sizeof wanted,
                                          .name = "debian",
                                          .source = CAY_TEMPLATE_DEBOOTSTRAP,
                                          .from = "bookworm"};

    use_own_home();
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        wanted.packages = lists[i];
        ASSERT_CODE(cay_template_create(&wanted, &err), CAY_E_INVALID);
    }
    ASSERT_INT(count_names(scratch_path("home/templates"), ""), 2);
}

TEST(a_debian_is_whole_and_has_nothing_of_the_host)
{
    AUTO(cay_sandbox) sandbox = make_debian(CAY_NETWORK_NONE);
    run(sandbox, "id -un; . /etc/os-release; echo $VERSION_CODENAME; "
                 "for name in ps adduser userdel; do command -v $name; done; "
                 "ls /var/cache/apt/archives; cat /etc/resolv.conf; dpkg --audit; "
                 "test -s /etc/ssl/certs/ca-certificates.crt && echo certificates");
    ASSERT_STR(result.out, "user\nbookworm\n/usr/bin/ps\n/usr/sbin/adduser\n"
                           "/usr/sbin/userdel\ncertificates\n");
}

TEST(adduser_and_su_work_inside_a_debian)
{
    AUTO(cay_sandbox) sandbox = make_debian(CAY_NETWORK_NONE);
    run_as(sandbox, "root",
           "adduser --comment '' --disabled-password a-name-of-28-characters-abcd "
           ">/dev/null && id -u a-name-of-28-characters-abcd && "
           "su a-name-of-28-characters-abcd -c 'whoami; touch ~/x' && "
           "userdel -r a-name-of-28-characters-abcd 2>/dev/null; ls /home",
           PATIENCE_MS);
    ASSERT_STR(result.error, "");
    ASSERT_STR(result.out, "1001\na-name-of-28-characters-abcd\nuser\n");
}

TEST(apt_and_pip_install_in_a_debian_with_the_hosts_network)
{
    AUTO(cay_sandbox) sandbox = make_debian(CAY_NETWORK_HOST);
    run_as(
        sandbox, "root",
        "apt-get -q update >/tmp/log 2>&1 && DEBIAN_FRONTEND=noninteractive apt-get -q "
        "-y --no-install-recommends install hello python3-pip >>/tmp/log 2>&1 || tail "
        "/tmp/log; hello; dpkg -s hello | grep Status; dpkg -r hello | tail -1; "
        "ls /usr/bin/hello; dpkg --audit",
        500000);
    ASSERT_STR(result.out, "Hello, world!\nStatus: install ok installed\nRemoving hello "
                           "(2.10-3) ...\n");
    run_as(sandbox, "user",
           "pip install -q --break-system-packages six 2>&1; "
           "python3 -c 'import six; print(six.__file__)'",
           200000);
    ASSERT_STR(result.out, "/home/user/.local/lib/python3.11/site-packages/six.py\n");
}
