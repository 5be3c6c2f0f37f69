/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_POLICY_H
#define CAY_POLICY_H

#include <stdbool.h>

#include "cay/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A policy defines which host directories a caller may see, under which names, and which
 * operations are allowed there; and which hosts of the network a sandbox may reach.
 * Nothing is visible unless a mount shows it, and no host unless a rule allows it.  A
 * policy is pure data: creating one opens no file; cay_files_open() (files.h) opens the
 * directories.  A policy is immutable, so threads may share it. */
typedef struct cay_policy cay_policy;

/* How paths are spelled.  One engine implements all three styles.
 *
 *   ROOT    one directory that is "/".     /a/b  or  a/b
 *   PATHS   named directories.             name/a/b, name:a/b, name, or a host path
 *   MOUNTS  directories at mount points.   /point/a/b  or  point/a/b
 *
 * ROOT and MOUNTS accept '\' for '/' and ignore blanks around the path; PATHS takes every
 * byte literally.  Names are case-sensitive bytes.  "." and ".." are removed from the
 * text before a mount is chosen (ROOT refuses ".." altogether).  A path that climbs above
 * its top is outside, and so is a path with NUL, a leading "~" or a drive letter.  If two
 * mounts cover a path, the longer one applies. */
enum cay_style { CAY_STYLE_ROOT = 1, CAY_STYLE_PATHS = 2, CAY_STYLE_MOUNTS = 3 };

enum cay_access {
    CAY_ACCESS_READ = 1 << 0,
    CAY_ACCESS_WRITE = 1 << 1,
    /* Only in queries: access to the name itself, which a delete or a move acts on.  A
     * symbolic link in the last component is not followed. */
    CAY_ACCESS_NAME = 1 << 2
};

/* Access of programs in a sandbox below a mount.  The file tools ignore it. */
enum cay_exec_mode {
    CAY_EXEC_DEFAULT = 0, /* as the mode, but read-only if a rule needs checks by Cay */
    CAY_EXEC_RO = 1,
    CAY_EXEC_RW = 2
};

#define CAY_NO_LIMIT (-1)

/* One directory and its rules.  Zero the struct, set `size`, fill in what matters.
 * Strings are copied. */
struct cay_mount {
    size_t size;      /* sizeof(struct cay_mount) */
    const char *name; /* PATHS: the name.  MOUNTS: the mount point.  ROOT: NULL */
    const char *host; /* host directory; a relative path starts at the base directory */
    bool writable;    /* mode rw instead of ro */
    bool write_approval; /* writing needs approval */
    bool read_approval;  /* reading needs approval */
    bool limit_suffixes; /* only `suffixes` (each with its dot, any case) are allowed */
    const char *const *suffixes;
    size_t suffix_count;
    int64_t max_file_bytes; /* largest file to read or write, or CAY_NO_LIMIT */
    enum cay_exec_mode exec;
    const char *origin; /* where it was defined, for errors: "cay.yaml:7: paths.docs" */
};

/* A mount with the defaults of a policy file: read-only, writes need approval, no
 * limits. */
#define CAY_MOUNT_INIT                                                                   \
    {                                                                                    \
        .size = sizeof(struct cay_mount), .write_approval = true,                        \
        .max_file_bytes = CAY_NO_LIMIT                                                   \
    }

struct cay_policy_config {
    size_t size; /* sizeof(struct cay_policy_config) */
    enum cay_style style;
    const struct cay_mount *mounts; /* ROOT: exactly one; MOUNTS: at least one */
    size_t mount_count;
    const char *base; /* where relative hosts start; NULL: the current directory */
};

/* CAY_E_INVALID names the mount and the rule it breaks (a duplicate name, a mount point
 * that does not start with "/", a negative limit).  The caller owns the result. */
CAY_PUBLIC CAY_NODISC int cay_policy_new(const struct cay_policy_config *config,
                                         cay_policy **ret_policy, struct cay_error *err);

/* Reads YAML or JSON (JSON is YAML): one of `root`, `paths`, `mounts`, at the top level
 * or below `policy:`; see cay-policy(5).  Unknown keys, duplicate keys, wrong types and
 * aliases are CAY_E_INVALID with the line and the key.  Errors call the text `name`.
 * Relative hosts start at `base` (NULL: the current directory). */
CAY_PUBLIC CAY_NODISC int cay_policy_parse(const char *text, size_t len, const char *name,
                                           const char *base, cay_policy **ret_policy,
                                           struct cay_error *err);

/* The same from a file of at most 1 MiB.  `base` NULL is the file's own directory. */
CAY_PUBLIC CAY_NODISC int cay_policy_load(const char *file, const char *base,
                                          cay_policy **ret_policy, struct cay_error *err);

CAY_PUBLIC void cay_policy_free(cay_policy *policy); /* NULL is allowed */

CAY_PUBLIC enum cay_style cay_policy_style(const cay_policy *policy);
CAY_PUBLIC size_t cay_policy_mount_count(const cay_policy *policy);

/* Fills `ret_mount` (its `size` must be set) with pointers into the policy, valid while
 * the policy lives.  Mounts are in the order of the configuration.  Returns false past
 * the last one. */
CAY_PUBLIC bool cay_policy_mount(const cay_policy *policy, size_t index,
                                 struct cay_mount *ret_mount);

/* --- Network ------------------------------------------------------------------------
 */

enum cay_network {
    CAY_NETWORK_NONE = 0,  /* own network namespace, loopback up */
    CAY_NETWORK_HOST = 1,  /* the network of this machine; not for a policy */
    CAY_NETWORK_RULES = 2, /* only what a rule allows */
    CAY_NETWORK_OPEN = 3   /* every public address, but for rules that deny */
};

/* What all connections of a sandbox may use together, in both directions; 0: no limit.  A
 * connection above a limit is refused, and one that would carry more bytes is cut. */
struct cay_network_limits {
    uint64_t connections; /* at a time, up to 256 */
    uint64_t bytes;       /* since the sandbox was started */
    uint64_t rate;        /* bytes a second, at least 1,024; connections wait */
};

/* A header that is set in every request to a host, outside the sandbox: programs inside
 * neither see nor change it.  TLS to the host is opened for that. */
struct cay_header {
    const char *host;  /* a complete name */
    const char *name;  /* not one that frames the request, like Content-Length */
    const char *value; /* without control characters */
    /* Parts of the value that are secret.  A header with any is sent over verified TLS
     * only, and replies have "*" in their place. */
    const char *const *secrets;
    size_t secret_count;
};

/* Rules about hosts.  A rule is a group of hosts ("pypi"), a name ("api.example.com"),
 * the names below one ("*.example.com"), an address or a range of addresses
 * ("192.0.2.0/24"), each but the group with ports ("host:443", "host:8000-8010",
 * "host:*"; without them 80 and 443); names also with HTTP methods before them and a path
 * after them ("GET api.example.com/v1").  "!" before a rule makes it deny, every port
 * unless it names some.  cay-policy(5) describes them all. */
struct cay_network_config {
    size_t size; /* sizeof(struct cay_network_config) */
    enum cay_network
        network; /* NONE: that of the policy; else RULES if there are rules */
    /* With OPEN: rules that allow come before rules that deny, instead of after them; a
     * rule for addresses without ports is for all ports; and no rule opens a private
     * address.  These are the rules of E2B's API.  With approve_ms what no rule names
     * waits instead. */
    bool allow_first;
    const char *const *rules;
    size_t rule_count;
    /* Hosts added to groups, for these rules and for those added later:
     * "pypi=mirror.example.com". */
    const char *const *groups;
    size_t group_count;
    /* "connections=64,bytes=1G,rate=10M": some of the fields of cay_network_limits;
     * "none" as a value removes a limit.  NULL: as they are. */
    const char *limits;
    /* Instead of those of a running sandbox, which must have been created with some; a
     * policy has none. */
    const struct cay_header *headers;
    size_t header_count;
    /* Connections that no rule allows or denies wait for approval, as requests of kind
     * "egress": cay_sandbox_pass_egress().  In milliseconds, at most 7 days; then they
     * are refused.  0: as it is. */
    uint64_t approve_ms;
};

/* Returns a copy of the policy (NULL: one without mounts) that has these rules too.  The
 * caller owns it.  CAY_E_INVALID names the rule and what is allowed instead. */
CAY_PUBLIC CAY_NODISC int cay_policy_add_network(const cay_policy *policy,
                                                 const struct cay_network_config *config,
                                                 cay_policy **ret_policy,
                                                 struct cay_error *err);

/* NONE, RULES or OPEN. */
CAY_PUBLIC enum cay_network cay_policy_network(const cay_policy *policy);

/* A rule in its one spelling, in the order of the table; "!" before it denies.  Returns
 * false past the last one. */
struct cay_network_rule {
    char text[640];
    char group[32]; /* from which it comes, or "" */
};
CAY_PUBLIC bool cay_policy_network_rule(const cay_policy *policy, size_t index,
                                        struct cay_network_rule *ret_rule);

/* All 0 for a policy without a network. */
CAY_PUBLIC void cay_policy_network_limits(const cay_policy *policy,
                                          struct cay_network_limits *ret_limits);

/* cay_network_config.approve_ms; 0: other connections are refused at once. */
CAY_PUBLIC uint64_t cay_policy_network_approval(const cay_policy *policy);

/* Whether rules that allow come first: see cay_network_config. */
CAY_PUBLIC bool cay_policy_allows_first(const cay_policy *policy);

enum cay_reach {
    CAY_REACH_DENY = 0,
    CAY_REACH_ALLOW = 1,
    CAY_REACH_REQUESTS = 2 /* some HTTP requests are allowed: see method and path */
};

struct cay_network_query {
    size_t size;
    const char *host;    /* a name or an address */
    uint16_t port;       /* 0: any port */
    const char *address; /* an address that the lookup of the name returned, or NULL */
    const char *method, *path; /* of a request, or NULL: "GET", "/v1/models" */
};

struct cay_network_answer {
    enum cay_reach verdict;
    char rule[640]; /* the rule that decides, or "default" */
    char why[768];  /* one or two sentences */
};

/* What the policy says about a connection or a request, and why.  Looks nothing up. */
CAY_PUBLIC CAY_NODISC int
cay_policy_explain_network(const cay_policy *policy,
                           const struct cay_network_query *query,
                           struct cay_network_answer *ret_answer, struct cay_error *err);

#ifdef __cplusplus
}
#endif
#endif
