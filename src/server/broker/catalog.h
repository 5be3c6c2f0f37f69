/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_CATALOG_H
#define SERVER_BROKER_CATALOG_H

#include "server/broker/registry.h"

/* The templates that tenants build, in the server's store.  A template has builds, and
 * tags that each name one finished build; "default" is the tag of a name without one.
 * The files of a build are a template of Cay: catalog_source(). */

enum {
    CATALOG_ID_MAX = 24,
    CATALOG_NAME_MAX = 129, /* these include the NUL */
    CATALOG_TAG_MAX = 129,
    CATALOG_BUILD_MAX = 37,
    CATALOG_SOURCE_MAX = 40,
    CATALOG_STEP_MAX = 16,
    CATALOG_REASON_MAX = 1024,
    CATALOG_TAGS_MAX = 4096, /* bytes of all tags of a build */
    CATALOG_LISTED = 1000,   /* builds of a template, of which there are never more */
    CATALOG_UNTAGGED = 300,  /* that are kept */
    CATALOG_COMMAND_MAX = 64 << 10
};

/* Templates of Cay whose names begin like this are builds, of one tenant each. */
#define CATALOG_PREFIX  "e2b."
#define CATALOG_DEFAULT "default"

struct catalog_template {
    char id[CATALOG_ID_MAX], name[CATALOG_NAME_MAX];
    int64_t created_ms, updated_ms;
    int64_t spawned_ms, spawn_count; /* sandboxes created from it; 0: never */
    int64_t build_count;
};

struct catalog_build {
    char id[CATALOG_BUILD_MAX];
    struct catalog_template template;
    enum build_state state;
    int64_t cpus, memory_mb;
    int64_t created_ms, updated_ms, finished_ms;             /* 0: not finished */
    char step[CATALOG_STEP_MAX], reason[CATALOG_REASON_MAX]; /* of BUILD_ERROR */
    struct buf tags;         /* that it gets when it is ready, with blanks between them */
    struct buf start, ready; /* commands, "": none */
};

static inline void catalog_build_done(struct catalog_build *build)
{
    buf_done(&build->tags);
    buf_done(&build->start);
    buf_done(&build->ready);
}

#define CATALOG_BUILD_INIT                                                               \
    {                                                                                    \
        .tags = {.max = CATALOG_TAGS_MAX}, .start = {.max = CATALOG_COMMAND_MAX},        \
        .ready = {                                                                       \
            .max = CATALOG_COMMAND_MAX                                                   \
        }                                                                                \
    }
#define AUTO_CATALOG_BUILD                                                               \
    __attribute__((cleanup(catalog_build_done))) struct catalog_build

/* Creates the tables, and marks builds that a server left behind as failed. */
int catalog_open(struct registry *registry, struct cay_error *err);

/* The name of the template of Cay that has the files of a build. */
void catalog_source(const char *build, char ret_name[CATALOG_SOURCE_MAX]);

/* "[TENANT/]NAME[:TAG]" in lower case; the tag is "" if there is none.  CAY_E_INVALID:
 * invalid characters, or the namespace of another tenant. */
int catalog_parse(const char *tenant, const char *text, char ret_name[CATALOG_NAME_MAX],
                  char ret_tag[CATALOG_TAG_MAX], struct cay_error *err);
bool catalog_is_tag(const char *tag);

/* A new build of the template with this name, which is created if it is missing, with
 * the id build->template.id, or a random one if that is "". */
int catalog_add(struct registry *registry, const char *tenant, const char *name,
                struct catalog_build *build, struct cay_error *err);

/* By id or name, possibly with a tag, which is ignored.  CAY_E_NOT_FOUND. */
int catalog_find_template(struct registry *registry, const char *tenant, const char *text,
                          struct catalog_template *ret_template, struct cay_error *err);
/* The finished build that the tag names. */
int catalog_find_tagged(struct registry *registry, const char *tenant, const char *text,
                        struct catalog_build *ret_build, struct cay_error *err);
int catalog_find_build(struct registry *registry, const char *tenant, const char *text,
                       const char *id, struct catalog_build *ret_build,
                       struct cay_error *err);

/* Writes state, times, step, reason and commands; a build that is ready gets its tags. */
int catalog_update(struct registry *registry, const struct catalog_build *build,
                   struct cay_error *err);
int catalog_count_spawn(struct registry *registry, const char *template_id,
                        struct cay_error *err);

int catalog_set_tag(struct registry *registry, const char *template_id, const char *tag,
                    const char *build, int64_t created_ms, struct cay_error *err);
int catalog_remove_tag(struct registry *registry, const char *template_id,
                       const char *tag, struct cay_error *err);
/* With all its builds and tags. */
int catalog_remove(struct registry *registry, const char *template_id,
                   struct cay_error *err);

/* Of the shared directory: a build that is ready, without its tags.  build->template has
 * an id for a new template; that of a known one replaces it. */
int catalog_put_build(struct registry *registry, const char *tenant,
                      struct catalog_build *build, struct cay_error *err);
/* Sets a tag unless a newer one is known.  A build of "" is a tag that was removed. */
int catalog_put_tag(struct registry *registry, const char *template_id, const char *tag,
                    const char *build, int64_t created_ms, struct cay_error *err);
/* Removes a tag that was set at this time. */
int catalog_drop_tag(struct registry *registry, const char *template_id, const char *tag,
                     int64_t created_ms, struct cay_error *err);
/* ret_build->id and created_ms; the latter is 0 if there is none. */
int catalog_find_tag(struct registry *registry, const char *template_id, const char *tag,
                     struct catalog_build *ret_build, struct cay_error *err);
/* Whether a build got the tag when it became ready. */
int catalog_lists_tag(struct registry *registry, const char *template_id, const char *tag,
                      bool *ret_lists, struct cay_error *err);
/* The start and ready commands of a build, also of one that is buried; the id is "" if
 * there is none. */
int catalog_find_commands(struct registry *registry, const char *id,
                          struct catalog_build *ret_build, struct cay_error *err);

/* A build that another node has removed: no template has it, and a template that has
 * no other one, ready or running, is gone.  Its row stays for the sandboxes that use its
 * files. */
int catalog_bury(struct registry *registry, const char *id, struct cay_error *err);
int catalog_forget_buried(struct registry *registry, const char *id,
                          struct cay_error *err);

/* The newest first; `visit` returns false to stop.  Of each template: the build of the
 * tag "default", or else the last one. */
typedef bool catalog_visit(const struct catalog_build *build, void *cookie);
int catalog_visit_templates(struct registry *registry, const char *tenant,
                            const char *after, catalog_visit *visit, void *cookie,
                            struct cay_error *err);
int catalog_visit_builds(struct registry *registry, const char *template_id,
                         catalog_visit *visit, void *cookie, struct cay_error *err);
/* In order; build->tags is the tag, and created_ms when it was set. */
int catalog_visit_tags(struct registry *registry, const char *template_id,
                       catalog_visit *visit, void *cookie, struct cay_error *err);

int catalog_visit_buried(struct registry *registry, catalog_visit *visit, void *cookie,
                         struct cay_error *err);

int catalog_count_tags(struct registry *registry, const char *template_id,
                       int64_t *ret_tags, struct cay_error *err);
/* Templates of a tenant, and its builds that run. */
int catalog_count(struct registry *registry, const char *tenant, int64_t *ret_templates,
                  int64_t *ret_builds, struct cay_error *err);

#endif
