/* SPDX-License-Identifier: Apache-2.0 */
/* Resolves the text of a path to a mount and a relative path.  Invariant: whatever the
 * text, the result is plain (see struct place) and no longer mount point covers it; so a
 * rule cannot be evaded by spelling a path differently. */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "policy/policy.h"
#include "policy/tidy.h"

enum verdict {
    PLACED,
    TOO_LONG,
    OUTSIDE,
    CLIMBS,
    HAS_UP,
    HAS_COLON,
    HAS_DRIVE,
    HAS_HOME
};

/* Why the spelling alone is refused. */
static const char *const refused[] = {
    [OUTSIDE] = NULL,
    [CLIMBS] = "'..' leads above the root",
    [HAS_UP] = "a path must not contain '..'",
    [HAS_COLON] = "a path must not contain ':'",
    [HAS_DRIVE] = "a path must not start with a drive letter",
    [HAS_HOME] = "a path must not start with '~'",
};

static void drop_front(char *path, size_t len)
{
    const char *rest = path + len;

    if (*rest == '/')
        rest++;
    memmove(path, rest, strlen(rest) + 1);
}

/* place->rel is a plain path in the tree of all mounts: the longest mount point that
 * covers it wins. */
static enum verdict settle(const cay_policy *policy, struct place *place)
{
    for (size_t i = 0; i < policy->mount_count; i++) {
        const char *point = policy->mounts[policy->by_length[i]].point + 1;

        if (tidy_covers(point, place->rel)) {
            place->mount = policy->by_length[i];
            drop_front(place->rel, strlen(point));
            return PLACED;
        }
    }
    return OUTSIDE;
}

static enum verdict place_in_tree(const cay_policy *policy, const char *path,
                                  struct place *place)
{
    bool is_root = policy->style == CAY_STYLE_ROOT;
    size_t len;
    const char *text = tidy_strip(path, &len);

    if (len > 0 && *text == '~')
        return HAS_HOME;
    if (len > 1 && text[1] == ':' && *text != '/' && *text != '\\')
        return HAS_DRIVE;
    if (is_root && memchr(text, ':', len))
        return HAS_COLON;

    struct tidy tidy = tidy_path(text, len, TIDY_BACKSLASH, place->rel);
    if (is_root && tidy.has_up)
        return HAS_UP;
    if (tidy.climbs)
        return CLIMBS;
    return tidy.fits ? settle(policy, place) : TOO_LONG;
}

/* The mount whose name starts the path, and what follows the name and its separator. */
static const struct mount *find_named(const cay_policy *policy, const char *path,
                                      char separator, const char **ret_rest)
{
    for (size_t i = 0; i < policy->mount_count; i++) {
        const struct mount *mount = &policy->mounts[policy->by_length[i]];
        size_t len = strlen(mount->name);

        if (strncmp(path, mount->name, len) == 0 &&
            (path[len] == separator || path[len] == '\0')) {
            *ret_rest = path + len + (path[len] != '\0');
            return mount;
        }
    }
    return NULL;
}

/* "name/../x" must not become a sibling of the name, so only the rest is tidied; and
 * "name/./sub" may be what a mount named "name/sub" covers, so the whole is then settled
 * like any path of the tree. */
static enum verdict place_below(const cay_policy *policy, const char *name,
                                const char *rest, struct place *place)
{
    struct tidy tidy = tidy_path(rest, strlen(rest), 0, place->rel);
    size_t len = strlen(name);

    if (tidy.climbs)
        return CLIMBS;
    if (!tidy.fits || len + 1 + tidy.len > PATH_MAX - 2)
        return TOO_LONG;
    memmove(place->rel + len + 1, place->rel, tidy.len + 1);
    memcpy(place->rel, name, len);
    place->rel[len] = tidy.len ? '/' : '\0';
    return settle(policy, place);
}

static enum verdict place_on_host(const cay_policy *policy, const char *path,
                                  struct place *place)
{
    struct tidy tidy = tidy_path(path, strlen(path), 0, place->rel);
    size_t longest = 0;
    bool found = false;

    if (tidy.climbs)
        return CLIMBS;
    if (!tidy.fits)
        return TOO_LONG;
    for (size_t i = 0; i < policy->mount_count; i++) {
        const char *hosts[] = {policy->mounts[i].host, policy->mounts[i].host_was};
        for (size_t j = 0; j < 2; j++) {
            size_t len = strlen(hosts[j] + 1);
            if (tidy_covers(hosts[j] + 1, place->rel) && (!found || len > longest)) {
                found = true;
                longest = len;
                place->mount = i;
            }
        }
    }
    if (!found)
        return OUTSIDE;
    drop_front(place->rel, longest);
    return policy_is_hidden(policy, place->mount, place->rel) ? OUTSIDE : PLACED;
}

static enum verdict place_by_name(const cay_policy *policy, const char *path,
                                  struct place *place)
{
    const char *rest;
    const struct mount *mount = find_named(policy, path, '/', &rest);

    if (!mount)
        mount = find_named(policy, path, ':', &rest);
    if (mount)
        return place_below(policy, mount->name, rest, place);
    return *path == '/' ? place_on_host(policy, path, place) : OUTSIDE;
}

/* As the kernel resolves a path: every byte is literal, and ".." is known only when links
 * are followed. */
static enum verdict place_inside(const cay_policy *policy, const char *path,
                                 struct place *place)
{
    char text[2 * PATH_MAX];
    size_t base = *path == '/' ? 0 : strlen(policy->base), len = strlen(path);

    if (base + 1 + len > sizeof text)
        return TOO_LONG;
    memcpy(text, policy->base, base);
    text[base] = '/';
    memcpy(text + base + 1, path, len);
    place->mount = 0;
    return tidy_path(text, base + 1 + len, TIDY_KEEP_UP, place->rel).fits ? PLACED
                                                                          : TOO_LONG;
}

int policy_place(const cay_policy *policy, const char *op, const char *path,
                 struct place *ret_place, struct cay_error *err)
{
    enum verdict verdict = policy->base ? place_inside(policy, path, ret_place)
                           : policy->style == CAY_STYLE_PATHS
                               ? place_by_name(policy, path, ret_place)
                               : place_in_tree(policy, path, ret_place);

    if (verdict == PLACED)
        return CAY_OK;
    return verdict == TOO_LONG
               ? cay_fail_errno(err, ENAMETOOLONG, op, path)
               : policy_fail_outside(policy, op, path, refused[verdict], err);
}

/* Where another mount's point lies below this one's, or NULL. */
static const char *point_within(const cay_policy *policy, size_t mount, size_t other)
{
    const char *point = policy->mounts[mount].point + 1;
    const char *rest = policy->mounts[other].point + 1;

    if (other == mount || !tidy_covers(point, rest))
        return NULL;
    rest += strlen(point);
    return rest + (*rest == '/');
}

bool policy_is_hidden(const cay_policy *policy, size_t mount, const char *rel)
{
    for (size_t i = 0; i < policy->mount_count; i++) {
        const char *other = point_within(policy, mount, i);
        if (other && tidy_covers(other, rel))
            return true;
    }
    return false;
}

bool policy_hides_below(const cay_policy *policy, size_t mount, const char *rel)
{
    for (size_t i = 0; i < policy->mount_count; i++) {
        const char *other = point_within(policy, mount, i);
        if (other && tidy_covers(rel, other))
            return true;
    }
    return false;
}

bool policy_label(const cay_policy *policy, size_t mount, const char *rel, char *out,
                  size_t room)
{
    const char *name = policy->mounts[mount].name;
    size_t name_len = strlen(name), rel_len = strlen(rel);
    bool slash = rel_len > 0 && name[name_len - 1] != '/';

    if (name_len + slash + rel_len >= room)
        return false;
    memcpy(out, name, name_len);
    if (slash)
        out[name_len] = '/';
    memcpy(out + name_len + slash, rel, rel_len + 1);
    return true;
}

bool policy_label_means(const cay_policy *policy, const char *label, size_t mount,
                        const char *rel)
{
    struct place place;

    place.mount = SIZE_MAX;
    return policy_place(policy, "policy.label", label, &place, NULL) == CAY_OK &&
           place.mount == mount && strcmp(place.rel, rel) == 0;
}
