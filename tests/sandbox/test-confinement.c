/* SPDX-License-Identifier: Apache-2.0 */

/* What must not work inside, tried from inside, as `user` and as `root`. */
#include "ledger.h"

static cay_sandbox *sandbox;

/* The script prints "ESCAPE" if it gets away with something. */
static void must_fail(const char *user, const char *script)
{
    run_as(sandbox, user, script, PATIENCE_MS);
    if (strstr(result.out, "ESCAPE") || result.cause != CAY_CAUSE_EXITED)
        harness_fail(__FILE__, __LINE__, "as %s: %s\n# out: %s\n# err: %s",
                     user ? user : "user", script, result.out, result.error);
}

static void must_fail_for_all(const char *script)
{
    must_fail(NULL, script);
    must_fail("root", script);
}

static void begin(void)
{
    sandbox = make_sandbox(NULL);
}

static void end(void)
{
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    cay_sandbox_free(sandbox);
    cay_exec_done(&result);
}

TEST(the_host_is_not_in_sight)
{
    begin();
    must_fail_for_all(
        "for f in /etc/machine-id /root/.bashrc /boot /media/host /lost+found; do "
        "[ -e $f ] && echo ESCAPE $f; done; true");
    must_fail_for_all("[ $(ls /proc | grep -c '^[0-9]') -lt 10 ] || echo ESCAPE");
    must_fail_for_all(
        "ls /proc/1/root/ /proc/1/cwd/ /proc/1/fd/ 2>/dev/null && echo ESCAPE; true");
    end();
}

/* The id of the boot as /proc shows it inside. */
static void read_boot_id(cay_sandbox *one, char ret_id[64])
{
    run(one, "cat /proc/sys/kernel/random/boot_id");
    snprintf(ret_id, 64, "%s", result.out);
    ASSERT_INT(strlen(ret_id), 37);
    ASSERT_INT(ret_id[14], '4');
}

TEST(every_start_of_a_sandbox_has_a_boot_id_of_its_own)
{
    const struct cay_sandbox_options on_disk = {.size = sizeof on_disk,
                                                .storage = CAY_STORAGE_DISK};
    char host[64] = "", ids[4][64];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    ASSERT(file && fgets(host, sizeof host, file));
    (void)fclose(file);
    begin();
    read_boot_id(sandbox, ids[0]);
    must_fail_for_all("echo x > /proc/sys/kernel/random/boot_id && echo ESCAPE; "
                      "chmod 666 /proc/sys/kernel/random/boot_id && echo ESCAPE; true");
    ASSERT_OK(cay_sandbox_pause(sandbox, &err));
    ASSERT_OK(cay_sandbox_resume(sandbox, &err));
    read_boot_id(sandbox, ids[1]);
    ASSERT_STR(ids[1], ids[0]);
    end();
    AUTO(cay_sandbox) disk = make_sandbox(&on_disk);
    read_boot_id(disk, ids[1]);
    ASSERT_OK(cay_sandbox_kill(disk, &err));
    ASSERT_OK(cay_sandbox_start(disk, &err));
    read_boot_id(disk, ids[2]);
    ASSERT_OK(cay_sandbox_remove(disk, &err));
    snprintf(ids[3], sizeof ids[3], "%s", host);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            ASSERT(strcmp(ids[i], ids[j]) != 0);
}

TEST(only_the_three_standard_descriptors_are_open)
{
    begin();
    run(sandbox, "ls /proc/self/fd | tr '\\n' ' '");
    ASSERT_STR(result.out, "0 1 2 3 ");
    end();
}

TEST(no_host_user_is_mapped_inside)
{
    begin();
    run(sandbox, "awk '{print $1, $3, ($2 >= 1879048192)}' /proc/self/uid_map");
    ASSERT_STR(result.out, "0 65536 1\n");
    end();
}

TEST(the_programs_of_the_host_cannot_be_written)
{
    begin();
    must_fail_for_all(
        "echo x > /usr/bin/true && echo ESCAPE; touch /usr/x && echo ESCAPE; "
        "touch /etc/ssl/x && echo ESCAPE; true");
    must_fail_for_all("mount -o remount,rw /usr 2>/dev/null && echo ESCAPE; true");
    end();
}

TEST(kernel_controls_are_out_of_reach)
{
    begin();
    must_fail_for_all("for f in /proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches "
                      "/proc/sysrq-trigger /proc/sys/user/max_user_namespaces; do "
                      "(echo x > $f) 2>/dev/null && echo ESCAPE $f; done; true");
    must_fail_for_all("for f in kcore keys timer_list kallsyms slabinfo; do "
                      "[ -s /proc/$f ] && [ $(head -c1 /proc/$f | wc -c) -gt 0 ] && "
                      "echo ESCAPE $f; done; true");
    end();
}

TEST(nested_namespaces_and_mounts_are_refused)
{
    begin();
    must_fail_for_all("unshare -U true 2>/dev/null && echo ESCAPE; "
                      "unshare -Ur true 2>/dev/null && echo ESCAPE; "
                      "unshare -m true 2>/dev/null && echo ESCAPE; "
                      "unshare -n true 2>/dev/null && echo ESCAPE; "
                      "mount -t tmpfs x /mnt 2>/dev/null && echo ESCAPE; "
                      "mount --bind / /mnt 2>/dev/null && echo ESCAPE; "
                      "umount -l /proc 2>/dev/null && echo ESCAPE; "
                      "chroot / true 2>/dev/null && echo ESCAPE; true");
    end();
}

TEST(devices_cannot_be_made)
{
    begin();
    must_fail_for_all("mknod /tmp/b b 254 0 2>/dev/null && echo ESCAPE; "
                      "mknod /tmp/c c 1 3 2>/dev/null && echo ESCAPE; true");
    end();
}

TEST(setuid_programs_give_nothing)
{
    begin();
    run_as(sandbox, "root", "cp /bin/sh /tmp/s && chmod 6755 /tmp/s", PATIENCE_MS);
    must_fail(NULL, "[ \"$(/tmp/s -p -c 'id -u')\" = 0 ] && echo ESCAPE; true");
    end();
}

TEST(capabilities_are_few_for_root_and_none_for_user)
{
    begin();
    run(sandbox, "grep -E 'Cap[IPEA]' /proc/self/status | grep -vc 0000000000000000");
    ASSERT_STR(result.out, "0\n");
    run_as(sandbox, "root",
           "awk '/CapEff|CapBnd/ {print $2}' /proc/self/status | sort -u", PATIENCE_MS);
    ASSERT_STR(result.out, "00000000200004fb\n");
    run(sandbox, "awk '/NoNewPrivs|Seccomp:/ {printf \"%s \", $2}' /proc/self/status");
    ASSERT_STR(result.out, "1 2 ");
    end();
}

TEST(there_is_no_network_but_the_loopback)
{
    begin();
    run(sandbox, "ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | wc -l");
    ASSERT_STR(result.out, "1\n");
    run(sandbox,
        "python3 - <<'E'\n"
        "import socket\n"
        "s=socket.socket(); s.bind(('127.0.0.1',0)); s.listen()\n"
        "c=socket.create_connection(s.getsockname(),2); print('loopback works')\n"
        "for f in (10, 17, 38, 40, 21, 30, 31):\n"
        "    try:\n"
        "        socket.socket(f, socket.SOCK_DGRAM); print('ESCAPE', f)\n"
        "    except OSError: pass\n"
        "try:\n"
        "    socket.create_connection(('192.0.2.1',80),2); print('ESCAPE')\n"
        "except OSError: pass\n"
        "E");
    ASSERT_STR(result.out, "loopback works\n");
    end();
}

/* The kernel's own numbers, with the high half of an argument set: a filter that compares
 * 64 bits lets them through. */
TEST(system_calls_are_filtered_also_with_odd_upper_halves)
{
    begin();
    run(sandbox,
        "python3 - <<'E'\n"
        "import ctypes, platform\n"
        "c=ctypes.CDLL(None, use_errno=True)\n"
        "x=platform.machine()=='x86_64'\n"
        "n=dict(socket=41,unshare=272,bpf=321,io_uring_setup=425,keyctl=250,"
        "perf_event_open=298,userfaultfd=323,personality=135,ioctl=16,ptrace=101) if x "
        "else "
        "dict(socket=198,unshare=97,bpf=280,io_uring_setup=425,keyctl=219,"
        "perf_event_open=241,userfaultfd=282,personality=92,ioctl=29,ptrace=117)\n"
        "def e(name,*a):\n"
        "    r=c.syscall(ctypes.c_long(n[name]),*[ctypes.c_ulong(v) for v in a])\n"
        "    return 0 if r>=0 else ctypes.get_errno()\n"
        "H=1<<32\n"
        "print(e('socket',38,2,0), e('socket',H|38,2,0), e('socket',H|2,1,0), "
        "e('unshare',0x10000000), e('unshare',H|0x10000000), e('bpf',0,0,0), "
        "e('io_uring_setup',1,0), e('keyctl',0,0), e('perf_event_open',0,0,0,0,0), "
        "e('userfaultfd',0), e('personality',H|1), e('ioctl',0,0x5412,0), "
        "e('ioctl',0,H|0x5412,0))\n"
        "E");
    ASSERT_STR(result.out, "97 97 97 1 1 1 38 38 1 1 1 1 1\n");
    end();
}

TEST(processes_cannot_look_into_init)
{
    begin();
    must_fail_for_all("cat /proc/1/environ 2>/dev/null | grep -q . && echo ESCAPE; "
                      "cat /proc/1/maps 2>/dev/null | grep -q . && echo ESCAPE; "
                      "readlink /proc/1/exe >/dev/null 2>&1 && echo ESCAPE; true");
    must_fail("root", "kill -9 1; kill -STOP 1; true");
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
    end();
}

TEST(killing_everything_inside_does_not_end_the_sandbox)
{
    begin();
    run(sandbox, "sleep 1000 & exit 0");
    run_as(sandbox, "root", "kill -9 -1; while pgrep -x sleep; do :; done", PATIENCE_MS);
    ASSERT_INT(result.exit_code, 0);
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
    end();
}

TEST(two_sandboxes_share_neither_ids_nor_processes_nor_network)
{
    begin();
    cay_sandbox *other = make_sandbox(NULL);
    char base[32];
    run(sandbox, "awk '{print $2}' /proc/self/uid_map");
    snprintf(base, sizeof base, "%s", result.out);
    run(other, "awk '{print $2}' /proc/self/uid_map");
    ASSERT(strcmp(base, result.out) != 0);
    run(sandbox, "sleep 321 & exit 0");
    run(other, "ps -eo args | grep -c '[s]leep 321'");
    ASSERT_STR(result.out, "0\n");
    ASSERT_OK(cay_sandbox_kill(other, &err));
    cay_sandbox_free(other);
    end();
}
