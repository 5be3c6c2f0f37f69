/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/hash.h"
#include "files/handle.h"

struct session *session_new(const struct cay_files_options *options,
                            struct cay_error *err)
{
    struct session *session = calloc(1, sizeof *session);

    if (!session) {
        cay_fail_memory(err, "files.open");
        return NULL;
    }
    atomic_init(&session->references, 1);
    pthread_mutex_init(&session->mutex, NULL);
    session->flags = options->flags;
    session->approver = options->approver;
    session->cookie = options->cookie;
    return session;
}

struct session *session_ref(struct session *session)
{
    atomic_fetch_add(&session->references, 1);
    return session;
}

void session_unref(struct session *session)
{
    if (!session || atomic_fetch_sub(&session->references, 1) != 1)
        return;
    for (size_t i = 0; i < SESSION_INDEXES; i++)
        text_index_unref(session->indexes[i]);
    pthread_mutex_destroy(&session->mutex);
    free(session->approved);
    free(session);
}

static uint64_t place_hash(const struct target *target, unsigned access)
{
    char text[PATH_MAX + 32];
    int len =
        snprintf(text, sizeof text, "%u %zu %s", access, target->mount, target->rel);

    return hash_bytes(text, (size_t)len);
}

static bool is_remembered(struct session *session, uint64_t hash)
{
    bool found = false;

    pthread_mutex_lock(&session->mutex);
    for (size_t i = 0; i < session->approved_count && !found; i++)
        found = session->approved[i] == hash;
    pthread_mutex_unlock(&session->mutex);
    return found;
}

/* If an approval is forgotten, the approver gets another request. */
static void remember(struct session *session, uint64_t hash)
{
    pthread_mutex_lock(&session->mutex);
    size_t count = session->approved_count;
    if (count < SESSION_APPROVALS_MAX) {
        uint64_t *grown = reallocarray(session->approved, count + 1, sizeof *grown);
        if (grown) {
            grown[count] = hash;
            session->approved = grown;
            session->approved_count = count + 1;
        }
    }
    pthread_mutex_unlock(&session->mutex);
}

/* The bits of `access` that still need approval. */
static unsigned access_to_ask(const cay_files *files, const struct target *target,
                              unsigned access)
{
    const struct mount *mount = target_mount(files, target);
    unsigned rules = (mount->read_approval ? CAY_ACCESS_READ : 0u) |
                     (mount->write_approval ? CAY_ACCESS_WRITE : 0u);
    unsigned wanted = access & rules;

    if (files->session->flags & CAY_FILES_APPROVED_OUTSIDE)
        return 0;
    for (unsigned bit = CAY_ACCESS_READ; bit <= CAY_ACCESS_WRITE; bit <<= 1)
        if (wanted & bit && is_remembered(files->session, place_hash(target, bit)))
            wanted &= ~bit;
    return wanted;
}

bool approval_wanted(const cay_files *files, const struct target *target, unsigned access)
{
    return access_to_ask(files, target, access) != 0;
}

static void remember_place(const cay_files *files, const struct target *target,
                           unsigned access)
{
    unsigned asked = access_to_ask(files, target, access);

    for (unsigned bit = CAY_ACCESS_READ; bit <= CAY_ACCESS_WRITE; bit <<= 1)
        if (asked & bit)
            remember(files->session, place_hash(target, bit));
}

static const char *verb_of(enum cay_op op)
{
    switch (op) {
    case CAY_OP_READ:
        return "Read from";
    case CAY_OP_WRITE:
        return "Write to";
    case CAY_OP_EDIT:
        return "Edit";
    case CAY_OP_DELETE:
        return "Delete";
    case CAY_OP_MOVE:
        return "Move";
    case CAY_OP_COPY:
        return "Copy";
    case CAY_OP_LIST:
        return "List files in";
    case CAY_OP_SEARCH:
        return "Search the files in";
    case CAY_OP_MKDIR:
        return "Create the directory";
    case CAY_OP_APPEND:
        return "Append to";
    case CAY_OP_EXPORT:
        return "Export";
    case CAY_OP_IMPORT:
        return "Unpack an archive into";
    }
    return "Use";
}

/* After an approval: the same path must still lead to the same, unchanged file. */
static int find_again(cay_files *files, struct target *target, struct cay_error *err)
{
    struct target now;
    struct cay_pin pin;
    enum target_how how =
        target->fd >= 0 && S_ISLNK(target->st.st_mode) ? TARGET_NO_FOLLOW : TARGET_FOLLOW;

    target_pin(target, &pin);
    int code = target_find(files, target->op, target->path, 0, how, &now, err);
    if (!code)
        code = target_check_pin(files, &now, &pin, err);
    if (code) {
        target_done(&now);
        return code;
    }
    target_done(target);
    *target = now;
    return CAY_OK;
}

static int ask(cay_files *files, struct cay_approval *shown, const struct target *target,
               const struct target *other, bool *ret_remember, struct cay_error *err)
{
    struct session *session = files->session;
    char note[CAY_NOTE_MAX] = "";
    char summary[2 * PATH_MAX + 64];

    if (!shown->path)
        shown->path = target->path;
    if (!session->approver)
        return cay_fail(err, CAY_E_NOT_APPROVED, 0, target->op, shown->path,
                        "this needs approval, and there is no approver",
                        "run it where a person can approve it, or use a path that needs "
                        "no approval");
    shown->size = sizeof *shown;
    shown->other = other ? other->path : NULL;
    if (!shown->summary) {
        snprintf(summary, sizeof summary, other ? "%s %s to %s" : "%s %s",
                 verb_of(shown->op), target->path, other ? other->path : "");
        shown->summary = summary;
    }
    enum cay_verdict verdict = session->approver(session->cookie, shown, note);
    note[sizeof note - 1] = '\0';
    *ret_remember = verdict == CAY_VERDICT_REMEMBER;
    if (verdict == CAY_VERDICT_APPROVE || verdict == CAY_VERDICT_REMEMBER)
        return CAY_OK;
    return cay_fail(err, CAY_E_NOT_APPROVED, 0, target->op, shown->path,
                    "the approver denied it", "%s%s",
                    *note ? "the reason: " : "no reason was given", note);
}

int approve(cay_files *files, struct cay_approval *shown, struct target *target,
            unsigned access, struct target *other, unsigned other_access,
            struct cay_error *err)
{
    bool kept = false;

    if (!approval_wanted(files, target, access) &&
        !(other && approval_wanted(files, other, other_access)))
        return CAY_OK;
    TRY(ask(files, shown, target, other, &kept, err));
    TRY(find_again(files, target, err));
    if (other)
        TRY(find_again(files, other, err));
    if (kept) {
        remember_place(files, target, access);
        if (other)
            remember_place(files, other, other_access);
    }
    return CAY_OK;
}

enum { PIN_EXISTS = 1, PIN_KNOWN = 2 };

static uint64_t nanoseconds(struct timespec time)
{
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void target_pin(const struct target *target, struct cay_pin *ret_pin)
{
    const struct stat *st = &target->st;

    *ret_pin = (struct cay_pin){.words = {PIN_KNOWN, place_hash(target, 0)}};
    if (target->fd < 0)
        return;
    ret_pin->words[0] |= PIN_EXISTS | (uint64_t)st->st_mode << 8;
    ret_pin->words[2] = st->st_dev;
    ret_pin->words[3] = st->st_ino;
    /* The times of a directory change with its entries: only its inode counts. */
    if (S_ISDIR(st->st_mode))
        return;
    ret_pin->words[4] = (uint64_t)st->st_size;
    ret_pin->words[5] = nanoseconds(st->st_mtim);
    ret_pin->words[6] = nanoseconds(st->st_ctim);
}

int target_check_pin(const cay_files *files, const struct target *target,
                     const struct cay_pin *pin, struct cay_error *err)
{
    struct cay_pin now;

    if (!pin)
        return CAY_OK;
    target_pin(target, &now);
    if (memcmp(&now, pin, sizeof now) == 0)
        return CAY_OK;
    if (target->fd >= 0 && S_ISLNK(target->st.st_mode)) {
        AUTO_TARGET led_to = TARGET_NONE;
        if (target_find(files, target->op, target->path, 0, TARGET_FOLLOW, &led_to,
                        NULL) == CAY_OK) {
            target_pin(&led_to, &now);
            if (memcmp(&now, pin, sizeof now) == 0)
                return CAY_OK;
        }
    }
    return cay_fail(err, CAY_E_CHANGED, 0, target->op, target->path,
                    "it has changed since it was approved; nothing was done",
                    "read it again and request approval again");
}

int cay_files_pin(cay_files *files, const char *path, struct cay_pin *ret_pin,
                  struct cay_error *err)
{
    AUTO_TARGET target = TARGET_NONE;

    int code = target_find(files, "files.pin", path, 0, TARGET_FOLLOW, &target, NULL);
    if (code) {
        target_done(&target);
        code = target_find(files, "files.pin", path, 0, TARGET_NO_FOLLOW, &target, err);
    }
    if (!code)
        target_pin(&target, ret_pin);
    return code;
}
