/* SPDX-License-Identifier: Apache-2.0 */

/* The template "base": a /usr that root inside can change, sudo, python, pip. */
#include "templates.h"

#include <linux/filter.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const struct cay_sandbox_options base = {.size = sizeof base,
                                                .template_name = "base"};

static cay_sandbox *make_base(void)
{
    use_own_home();
    return make_sandbox(&base);
}

static void need_inside(cay_sandbox *sandbox, const char *program)
{
    char script[128];

    snprintf(script, sizeof script, "command -v %s", program);
    run(sandbox, script);
    if (result.exit_code != 0)
        SKIP("this machine lacks a program that is to be run inside");
}

/* --- /usr --- */

TEST(base_root_inside_changes_usr_and_the_host_keeps_its_own)
{
    struct stat before, after;

    ASSERT(stat("/usr/bin/env", &before) == 0);
    AUTO(cay_sandbox) sandbox = make_base();
    run_as(sandbox, "root",
           "echo made > /usr/bin/made && ln /usr/bin/env /usr/bin/env2 && "
           "chmod 700 /usr/bin/env && echo more >> /usr/bin/env && "
           "mv /usr/bin/env2 /usr/bin/env3 && rm /usr/bin/env && "
           "mkdir -p /usr/local/lib/x && cat /usr/bin/made && ls /usr/bin/env",
           PATIENCE_MS);
    ASSERT_STR(result.out, "made\n");
    ASSERT(stat("/usr/bin/env", &after) == 0);
    ASSERT(before.st_ino == after.st_ino && before.st_mode == after.st_mode &&
           before.st_size == after.st_size && before.st_nlink == after.st_nlink);
    ASSERT(access("/usr/bin/made", F_OK) != 0);
    AUTO(cay_sandbox) other = make_sandbox(&base);
    run(other, "ls /usr/bin/made; test -x /usr/bin/env && echo there");
    ASSERT_STR(result.out, "there\n");
    run(other, "echo x > /usr/bin/mine");
    ASSERT(result.exit_code != 0);
}

TEST(base_counts_what_is_written_to_usr_against_the_disk_limit)
{
    struct cay_sandbox_options options = base;

    use_own_home();
    options.disk_bytes = 32 << 20;
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    run_as(sandbox, "root",
           "head -c 24000000 /dev/zero > /usr/one && echo one; "
           "head -c 24000000 /dev/zero > /two; echo $?",
           PATIENCE_MS);
    ASSERT_HAS(result.out, "one\n1\n");
    ASSERT_HAS(result.error, "No space left");
}

/* A /usr of our own, in a mount namespace of our own. */
static void use_own_usr(void)
{
    static const char make[] =
        "set -e; mkdir -p bin lib share/open share/closed; cp /bin/busybox bin/;"
        "for a in sh cat ls chmod mv cp ln rm mkdir grep head echo setfattr; do"
        "  ln -s busybox bin/$a; done;"
        "echo public > share/open/public; echo secret > share/open/secret;"
        "chmod 600 share/open/secret; echo secret > share/open/group;"
        "chmod 640 share/open/group; echo secret > share/closed/inner;"
        "chmod 700 share/closed";
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, strdupa(make), NULL};

    ASSERT(mkdir(scratch_path("usr"), 0755) == 0 && chdir(scratch_path("usr")) == 0);
    ASSERT_INT(run_program(argv), 0);
    ASSERT(unshare(CLONE_NEWNS) == 0);
    ASSERT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    ASSERT(mount(scratch_path("usr"), "/usr", NULL, MS_BIND, NULL) == 0);
}

static void try_private_files(void)
{
    use_own_usr();
    AUTO(cay_sandbox) sandbox = make_sandbox(&base);
    run_as(sandbox, "root", "cat /usr/share/open/public", PATIENCE_MS);
    ASSERT_STR(result.out, "public\n");
    run_as(sandbox, "root",
           "cd /usr/share; cat open/secret open/group closed/inner; ls closed;"
           "cp open/secret /tmp/copy; mv open/secret open/moved; ln open/group open/link;"
           "chmod 644 open/secret open/group; chmod 755 closed; cat open/* closed/*;"
           "mv closed opened; cat opened/inner; echo x >> open/secret; cat open/secret;"
           "cat /proc/self/root/usr/share/open/secret",
           PATIENCE_MS);
    ASSERT_HAS(result.error, "Permission denied");
    ASSERT(!strstr(result.out, "secret"));
    /* The same way leads to what others may read: it is the mode that decides. */
    ASSERT(chmod(scratch_path("usr/share/open/group"), 0644) == 0);
    run_as(sandbox, "root", "cat /usr/share/open/group", PATIENCE_MS);
    ASSERT_STR(result.out, "secret\n");
    /* What the host closes later is closed. */
    ASSERT(chmod(scratch_path("usr/share/open/public"), 0600) == 0);
    run_as(sandbox, "root", "cat /usr/share/open/public", PATIENCE_MS);
    ASSERT_STR(result.out, "");
}

TEST(base_shows_root_inside_no_file_of_usr_that_others_may_not_read)
{
    if (access("/bin/busybox", X_OK) != 0)
        SKIP("busybox-static is not installed");
    use_own_home();
    in_own_process(try_private_files);
}

TEST(base_root_inside_cannot_forge_marks_of_the_overlay)
{
    AUTO(cay_sandbox) sandbox = make_base();

    need_inside(sandbox, "python3");
    run_as(sandbox, "root",
           "mkdir /usr/forged; mknod /usr/forged/w c 0 0; mknod /usr/forged/d c 1 1;"
           "mknod /usr/forged/b b 8 0; mount -o remount,rw /usr; ls /usr/forged;"
           "python3 -c '\n"
           "import os\n"
           "for name in (\"trusted.overlay.opaque\", \"trusted.overlay.redirect\",\n"
           "             \"trusted.overlay.metacopy\", \"trusted.x\"):\n"
           "    try:\n"
           "        os.setxattr(\"/usr/forged\", name, b\"y\")\n"
           "        print(\"set\", name)\n"
           "    except OSError:\n"
           "        pass\n"
           "os.setxattr(\"/usr/forged\", \"user.overlay.opaque\", b\"y\")\n"
           "print(os.path.isdir(\"/usr/forged\"))'",
           PATIENCE_MS);
    ASSERT_STR(result.out, "True\n");
}

/* As fsconfig(2) of Linux before 6.13 does to a descriptor. */
static void try_without_descriptors(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsconfig, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FSCONFIG_SET_FD, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EBADF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};

    use_own_usr();
    ASSERT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    AUTO(cay_sandbox) sandbox = make_sandbox(&base);
    run_as(sandbox, "root",
           "cat /usr/share/open/secret; echo x > /usr/bin/made && cat /usr/bin/made "
           "/usr/share/open/public",
           PATIENCE_MS);
    ASSERT_STR(result.out, "x\npublic\n");
}

TEST(base_works_on_kernels_that_want_paths_for_an_overlay)
{
    if (access("/bin/busybox", X_OK) != 0)
        SKIP("busybox-static is not installed");
    use_own_home();
    in_own_process(try_without_descriptors);
}

TEST(base_on_disk_keeps_changes_of_usr)
{
    struct cay_sandbox_options options = base;

    use_own_home();
    options.storage = CAY_STORAGE_DISK;
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    run_as(sandbox, "root", "echo kept > /usr/local/kept; rm /usr/bin/env", PATIENCE_MS);
    ASSERT_INT(result.exit_code, 0);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_OK(cay_sandbox_start(sandbox, &err));
    run(sandbox, "cat /usr/local/kept; ls /usr/bin/env; sudo id -u");
    ASSERT_STR(result.out, "kept\n0\n");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}

TEST(base_is_like_host_on_the_isolation_levels_of_ordinary_users)
{
    static const enum cay_level levels[] = {CAY_LEVEL_SINGLE, CAY_LEVEL_LANDLOCK};

    use_own_home();
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        struct cay_sandbox_options options = base;
        options.level = levels[i];
        AUTO(cay_sandbox) sandbox = make_sandbox(&options);
        run(sandbox, "echo $PIP_BREAK_SYSTEM_PACKAGES; echo x > /usr/bin/made; ls "
                     "/dev/cay-sudo");
        ASSERT_STR(result.out, "1\n");
    }
}

/* --- What is in it --- */

TEST(base_takes_no_credentials_of_the_host)
{
    AUTO(cay_sandbox) sandbox = make_base();

    run_as(sandbox, "root",
           "cat /etc/shadow | wc -l; ls -d /etc/ssl/private /etc/apt/auth.conf* "
           "/etc/ssh /etc/cay /root/.npmrc 2>/dev/null; grep -rlE '://[^/ ]*@' /etc/apt "
           "/etc/pip.conf /etc/npmrc 2>/dev/null",
           PATIENCE_MS);
    ASSERT_STR(result.out, "2\n");
}

/* An /etc/apt of our own, in a mount namespace of our own. */
static void use_own_apt(void)
{
    static const char make[] =
        "set -e; mkdir -p conf.d/deep keyrings;"
        "echo 'deb https://example.org/a;b stable main' > sources.list;"
        "printf '\\231\\000public pass' > keyrings/public.gpg;"
        "echo 'Acquire::Retries 3;' > conf.d/good; cp conf.d/good conf.d/deep/closed;"
        "{ echo 'http://u:p@example.org/'; head -c 1100000 /dev/zero | tr '\\0' '#'; }"
        "  > conf.d/large;"
        "printf 'x\\000http://u:p@example.org/' > conf.d/nul;"
        "echo '-----BEGIN RSA PRIVATE KEY-----' > conf.d/key;"
        "printf '\\000-----BEGIN PGP PRIVATE KEY BLOCK-----' > keyrings/private.gpg;"
        "echo 'Acquire::http::Proxy::Pass \"x\";' > conf.d/pass;"
        "echo 'Token x' > conf.d/deep/token; echo \"http://u:a'b;c@h/\" > conf.d/user;"
        "chmod -R a+rX .";
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, strdupa(make), NULL};

    ASSERT(mkdir(scratch_path("apt"), 0755) == 0 && chdir(scratch_path("apt")) == 0);
    ASSERT_INT(run_program(argv), 0);
    ASSERT(unshare(CLONE_NEWNS) == 0);
    ASSERT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    ASSERT(mount(scratch_path("apt"), "/etc/apt", NULL, MS_BIND, NULL) == 0);
}

static void try_credentials(void)
{
    static const char list[] = "cd /etc/apt; find . -type f ! -name '*cay*' | sort";

    use_own_apt();
    AUTO(cay_sandbox) sandbox = make_sandbox(&base);
    run_as(sandbox, "root", list, PATIENCE_MS);
    ASSERT_STR(result.out, "./conf.d/deep/closed\n./conf.d/good\n./keyrings/public.gpg\n"
                           "./sources.list\n");
    /* What the host closes later is not in the next sandbox. */
    ASSERT(chmod(scratch_path("apt/conf.d/deep/closed"), 0600) == 0);
    AUTO(cay_sandbox) later = make_sandbox(&base);
    run_as(later, "root", list, PATIENCE_MS);
    ASSERT_STR(result.out, "./conf.d/good\n./keyrings/public.gpg\n./sources.list\n");
}

/* Finding A4. */
TEST(base_takes_no_file_of_the_host_that_may_hold_credentials)
{
    if (access("/etc/apt", F_OK) != 0)
        SKIP("this machine has no /etc/apt");
    use_own_home();
    in_own_process(try_credentials);
}

TEST(base_has_python_under_its_plain_name)
{
    AUTO(cay_sandbox) sandbox = make_base();

    need_inside(sandbox, "python3");
    run(sandbox, "python -c 'print(6 * 7)'");
    ASSERT_STR(result.out, "42\n");
}

/* Without a network nothing is tried twice. */
TEST(base_without_a_network_lets_pip_and_npm_fail_at_once)
{
    AUTO(cay_sandbox) sandbox = make_base();

    need_inside(sandbox, "pip");
    run(sandbox, "pip install cay-no-such-package; echo $?");
    ASSERT_HAS(result.out, "1\n");
    ASSERT(!strstr(result.error, "Retrying") && !strstr(result.out, "Retrying"));
    ASSERT(!strstr(result.error, "externally-managed"));
    need_inside(sandbox, "npm");
    run(sandbox, "npm config get fetch-retries");
    ASSERT_STR(result.out, "0\n");
    need_inside(sandbox, "apt-config");
    run(sandbox, "sudo apt-config dump Acquire::Retries");
    ASSERT_STR(result.out, "Acquire::Retries \"0\";\n");
}

/* Whatever registries this machine's own clients use. */
TEST(base_installs_packages_where_there_is_a_network)
{
    struct cay_sandbox_options options = base;

    use_own_home();
    options.network = CAY_NETWORK_HOST;
    options.disk_bytes = (uint64_t)1 << 30;
    options.memory_bytes = (uint64_t)2 << 30;
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    run_as(sandbox, NULL, "sudo apt-get update", 2 * PATIENCE_MS);
    if (result.exit_code != 0 && !getenv("CAY_MUST_WORK"))
        SKIP("no package registry can be reached");
    run_as(sandbox, NULL, "sudo apt-get install -y hello >&2 && hello", 2 * PATIENCE_MS);
    ASSERT_STR(result.out, "Hello, world!\n");
    /* One that the host has, whose files are replaced. */
    run_as(sandbox, NULL, "sudo apt-get install -y --reinstall sed >&2 && sed --version",
           2 * PATIENCE_MS);
    ASSERT_HAS(result.out, "sed");
    run_as(sandbox, NULL, "pip install cowsay >&2 && cowsay -t hello", 2 * PATIENCE_MS);
    ASSERT_HAS(result.out, "hello");
    run_as(sandbox, NULL, "sudo npm install -g semver >&2 && semver 1.2.3",
           2 * PATIENCE_MS);
    ASSERT_STR(result.out, "1.2.3\n");
}

/* --- sudo --- */

TEST(sudo_runs_commands_as_root_and_passes_everything_on)
{
    AUTO(cay_sandbox) sandbox = make_base();

    run(sandbox,
        "sudo id -u; sudo -n sh -c 'exit 7'; echo $?; cd /var/log; sudo pwd;"
        "echo piped | sudo cat; sudo sh -c 'echo err >&2'; sudo -u nobody id -un;"
        "sudo A=1 -- sh -c 'echo $A$HOME$USER$SUDO_USER'; B=2 sudo -E sh -c 'echo "
        "$B'; B=2 sudo sh -c 'echo _$B'; sudo -i pwd; sudo no-such; echo $?;"
        "sudo --no-such 2>/dev/null; echo $?; sudo -v && echo valid");
    ASSERT_STR(
        result.out,
        "0\n7\n/var/log\npiped\nnobody\n1/rootrootuser\n2\n_\n/root\n1\n1\nvalid\n");
    ASSERT_STR(result.error, "err\nsudo: no-such: command not found\n");
}

TEST(sudo_passes_signals_and_takes_its_command_with_it)
{
    AUTO(cay_sandbox) sandbox = make_base();

    run(sandbox, "sudo sh -c 'trap \"echo caught; exit 3\" TERM; echo ready; "
                 "while :; do sleep 0.05; done' > out & p=$!; "
                 "until grep -q ready out; do sleep 0.05; done; kill -TERM $p; wait $p; "
                 "echo $?; cat out");
    ASSERT_STR(result.out, "3\nready\ncaught\n");
    run(sandbox,
        "sudo sleep 1000 & p=$!; until ps -C sleep >/dev/null; do :; done; "
        "kill -9 $p; while ps -C sleep >/dev/null; do sleep 0.05; done; echo gone");
    ASSERT_STR(result.out, "gone\n");
    run(sandbox, "sudo sh -c 'kill -KILL $$'; echo $?");
    ASSERT_STR(result.out, "137\n");
}

TEST(sudo_takes_long_arguments)
{
    AUTO(cay_sandbox) sandbox = make_base();

    run(sandbox,
        "a=$(head -c 90000 /dev/zero | tr '\\0' x); sudo sh -c \"echo $a\" | wc -c");
    ASSERT_STR(result.out, "90001\n");
}

TEST(sudo_is_for_user_and_root_only)
{
    AUTO(cay_sandbox) sandbox = make_base();

    run_as(sandbox, "nobody", "sudo id -u", PATIENCE_MS);
    ASSERT_INT(result.exit_code, 1);
    ASSERT_STR(result.out, "");
    run_as(sandbox, "root", "sudo id -u", PATIENCE_MS);
    ASSERT_STR(result.out, "0\n");
    AUTO(cay_sandbox) host = make_sandbox(NULL);
    run_as(host, "root", "ls /run", PATIENCE_MS);
    ASSERT(!strstr(result.out, "sudo"));
}

static const char hostile[] =
    "cat > /tmp/hostile.py <<'END'\n"
    "import array, os, socket, struct, sys\n"
    "def call():\n"
    "    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
    "    s.settimeout(30)\n"
    "    s.connect('/dev/cay-sudo')\n"
    "    return s\n"
    "def send(kind, payload=b'', fds=(), version=2, length=None, count=None):\n"
    "    s = call()\n"
    "    head = struct.pack('4I', version, kind, len(payload) if length is None else "
    "length, len(fds) if count is None else count)\n"
    "    s.sendmsg([head + payload], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, "
    "array.array('i', fds))] if fds else [])\n"
    "    return s\n"
    "def ask(flags, strings, argc=1, fds=(), n=None, timeout=0, **more):\n"
    "    data = b''.join(x.encode() + b'\\0' for x in strings)\n"
    "    return send(1, struct.pack('4I2Q2HI', argc, 0, len(data) if n is None else n, "
    "flags, timeout, 0, 0, 0, 0) + data, fds, **more)\n"
    "def answer(s):\n"
    "    try:\n"
    "        return s.recv(100000)\n"
    "    except ConnectionResetError:\n"
    "        return b''\n"
    "word = ['/', 'root', '', 'true']\n"
    "three = (0, 1, 2)\n"
    "kinds = [answer(send(kind)) for kind in range(2, 40)]\n"
    "print('kinds', set(kinds))\n"
    "bad = [answer(ask(flags, word, fds=three)) for flags in "
    "(1 | 8, 2 | 8, 8 | 64, 8 | 256, 8 | 512, 8 | 1 << 31)]\n"
    "bad += [answer(ask(8, word, fds=three, version=1)), "
    "answer(ask(8, word, fds=three, length=7)), answer(ask(8, word, fds=three, "
    "count=9)),\n"
    "        answer(ask(8, word, fds=three, timeout=5)), answer(send(1, b'x')), "
    "answer(send(25, struct.pack('i', 9)))]\n"
    "pair = socket.socket(), socket.socket()\n"
    "pair[0].bind(('127.0.0.1', 0)); pair[0].listen(); "
    "pair[1].connect(pair[0].getsockname())\n"
    "bad.append(answer(ask(8, word, fds=(pair[1].fileno(), 1, 2))))\n"
    "file = open('/tmp/plain', 'w+b'); file.write(b'/\\0root\\0\\0true\\0'); "
    "file.flush()\n"
    "bad.append(answer(send(1, struct.pack('4I2Q2HI', 1, 0, 14, 8 | 32, 0, 0, 0, 0, 0), "
    "three + (file.fileno(),))))\n"
    "print('bad', set(bad))\n"
    "def kind(s): return struct.unpack('4I', answer(s)[:16])[1]\n"
    "print('argc', kind(ask(8, word, argc=60000, fds=three)), "
    "kind(ask(8, word, argc=0, fds=three)), kind(ask(8, word, n=1 << 30, fds=three)))\n"
    "print('user', kind(ask(8, ['/', '../../x', '', 'true'], fds=three)))\n"
    "print('good', kind(ask(8, word, fds=three)))\n"
    "END\n"
    "python3 /tmp/hostile.py";

/* The last line is the control: the same bytes without the fault are accepted. */
TEST(sudo_ends_connections_that_break_its_rules)
{
    AUTO(cay_sandbox) sandbox = make_base();

    need_inside(sandbox, "python3");
    run(sandbox, hostile);
    ASSERT_STR(result.error, "");
    ASSERT_STR(result.out, "kinds {b''}\nbad {b''}\nargc 103 103 103\nuser 103\n"
                           "good 101\n");
    run(sandbox, "sudo id -u");
    ASSERT_STR(result.out, "0\n");
}

/* Many connections keep PID 1 busy, so that the second packet of one is there, and not
 * received, when the first one ends it.  If PID 1 was faster, sendmsg() fails: each of
 * the 9 processes reports once it has succeeded three times. */
static const char lingering[] =
    "cat > /tmp/linger.py <<'END'\n"
    "import array, os, socket, struct\n"
    "def call():\n"
    "    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
    "    s.connect('/dev/cay-sudo')\n"
    "    return s\n"
    "def linger():\n"
    "    a, b = socket.socket(), socket.socket()\n"
    "    a.bind(('127.0.0.1', 0)); a.listen(); b.connect(a.getsockname())\n"
    "    b.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, "
    "100000))\n"
    "    b.setblocking(False)\n"
    "    try:\n"
    "        while True: b.send(bytes(65536))\n"
    "    except BlockingIOError: return a, b\n"
    "for i in range(8):\n"
    "    if os.fork() == 0: break\n"
    "kept = []\n"
    "sent = 0\n"
    "while sent < 3:\n"
    "    a, b = linger()\n"
    "    kept.append(a)\n"
    "    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', "
    "[b.fileno()]))]\n"
    "    calls = [call() for _ in range(5)]\n"
    "    try:\n"
    "        for s in calls: s.send(b'x')\n"
    "        s.sendmsg([b'y'], rights)\n"
    "        sent += 1\n"
    "    except OSError: pass\n"
    "    b.close()\n"
    "os.write(1, b'sent\\n')\n"
    "import time; time.sleep(1000)\n"
    "END\n"
    "mkfifo /tmp/reports; python3 /tmp/linger.py >/tmp/reports 2>&1 &\n"
    "head -n 9 /tmp/reports | uniq -c | tr -d ' '";

/* PID 1 closes what it did not receive: it must not wait for the peer then. */
TEST(sudo_is_not_held_up_by_a_lingering_connection)
{
    AUTO(cay_sandbox) sandbox = make_base();

    need_inside(sandbox, "python3");
    run(sandbox, lingering);
    ASSERT_STR(result.out, "9sent\n");
    run(sandbox, "echo there");
    ASSERT_STR(result.out, "there\n");
}

TEST(sudo_connections_do_not_take_those_of_callers)
{
    AUTO(cay_sandbox) sandbox = make_base();

    need_inside(sandbox, "python3");
    run(sandbox, "python3 -c '\n"
                 "import os, socket, time\n"
                 "held = []\n"
                 "for i in range(1200):\n"
                 "    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                 "    s.setblocking(False)\n"
                 "    try:\n"
                 "        s.connect(\"/dev/cay-sudo\")\n"
                 "    except OSError:\n"
                 "        pass\n"
                 "    held.append(s)\n"
                 "if os.fork() == 0:\n"
                 "    os.setsid(); os.closerange(0, 3); time.sleep(60); os._exit(0)\n"
                 "print(len(held))'");
    ASSERT_STR(result.out, "1200\n");
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
}
