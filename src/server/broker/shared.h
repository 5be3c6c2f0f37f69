/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_SHARED_H
#define SERVER_BROKER_SHARED_H

#include "server/broker/broker.h"

struct sqlite3_stmt;

/* The directory or bucket of --shared: what other nodes have put there becomes rows of
 * this node's store, before a request is handled that may name it, and files when a
 * sandbox is created from it.  Keepers without a sandbox read and write it
 * (keeper/shared.c); the broker never waits for it. */

/* Remembers it in the store, or compares it: CAY_E_INVALID if it is another one, such as
 * the empty directory below a mount.  A bucket that this node has used may be away: its
 * keepers compare it.  Without --shared what is not on this node is forgotten. */
int shared_open(struct broker *broker, struct cay_error *err);

/* Whether a bucket can be read, for --check.  *ret_is_new: it is empty. */
int shared_check_bucket(const struct serve_options *options, bool *ret_is_new,
                        struct cay_error *err);

bool shared_is_on(const struct broker *broker);

/* Takes the request and handles it again when this node knows what the directory has for
 * the tenant; false if that is not necessary. */
bool shared_sync(struct broker *broker, struct request_packet *request,
                 const char *tenant);

/* Takes the request and handles it again when the files of this record are here, as the
 * template `source` of Cay; false if they are. */
bool shared_fetch(struct broker *broker, struct request_packet *request,
                  const char *tenant, const char *name, const char *source);
bool shared_fetch_snapshot(struct broker *broker, struct request_packet *request,
                           const struct snapshot_row *row);

/* The directory could not be read: what is not known may well exist. */
bool shared_is_away(const struct broker *broker);

/* Writes a snapshot to the directory and calls `done` with the request, which then has
 * pending->digest; the client of `pending` gets an error if that fails. */
int shared_publish(struct broker *broker, struct broker_request *pending,
                   int (*done)(struct broker *broker, struct broker_request *pending,
                               const struct reply_packet *reply, struct cay_error *err),
                   void (*failed)(struct broker *broker, struct broker_request *pending,
                                  const struct cay_error *error),
                   struct cay_error *err);

/* Adds the strings of OP_SNAPSHOT_REMOVE that name its record, and returns their number:
 * 0 without --shared. */
uint32_t shared_add_record(const struct broker *broker, const struct snapshot_row *row,
                           struct buf *strings);

/* Rows of the store: a record of the directory, and whether its files are here. */
int shared_note(struct broker *broker, const char *name, const char *tenant,
                const char *digest, int64_t flags, bool is_here, struct cay_error *err);
int shared_note_snapshot(struct broker *broker, const struct snapshot_row *row,
                         const char *digest, bool is_here, struct cay_error *err);
void shared_forget(struct broker *broker, const char *name);
void shared_forget_snapshot(struct broker *broker, const char *id);
/* Its files are gone: they are fetched again.  False: the directory has none. */
bool shared_lost(struct broker *broker, const char *id);

/* A statement with up to three texts; NULL: not bound. */
struct sqlite3_stmt *shared_prepare(struct broker *broker, const char *text,
                                    const char *one, const char *two, const char *three,
                                    struct cay_error *err);
int shared_run(struct broker *broker, const char *text, const char *one, const char *two,
               const char *three, struct cay_error *err);

/* --- Templates that tenants build: shared-templates.c --- */

#define SHARED_FORMAT "cay 1" /* the first line of a record */
/* The name of the record of a row of the table "builds". */
#define SHARED_BUILD_RECORD "'t.' || replace(id, '-', '')"

bool shared_is_hex(const char *text, size_t len);

/* Records that another node has written or removed; false if one is invalid. */
bool shared_add_build(struct broker *broker, const char *tenant, const char *name,
                      const char *const *lines);
bool shared_add_tag(struct broker *broker, const char *tenant, const char *name,
                    const char *const *lines);
void shared_drop_build(struct broker *broker, const char *name);
void shared_drop_tag(struct broker *broker, const char *name);
/* Removes the files of a build that has no row. */
void shared_drop_files(struct broker *broker, const char *name);

/* The id of a new template: the same on all nodes. */
void shared_template_id(const struct broker *broker, const char *tenant, const char *name,
                        char ret_id[CATALOG_ID_MAX]);

/* The name of the record of a build. */
void shared_build_name(const char *build, char ret_name[SHARED_NAME_MAX]);

/* shared_fetch() for the files of a build. */
bool shared_fetch_build(struct broker *broker, struct request_packet *request,
                        const char *tenant, const struct catalog_build *build);

/* CAY_E_LIMIT: the commands of a build are too long for its record. */
int shared_check_commands(const struct broker *broker, const struct catalog_build *build,
                          struct cay_error *err);

/* Writes a build, whose finished_ms is set, and calls one of the two.  The request has
 * the template, the build, and finished_ms as its number. */
int shared_publish_build(
    struct broker *broker, const char *tenant, const struct catalog_build *build,
    int (*done)(struct broker *broker, struct broker_request *pending,
                const struct reply_packet *reply, struct cay_error *err),
    void (*failed)(struct broker *broker, struct broker_request *pending,
                   const struct cay_error *error),
    struct cay_error *err);

/* A time for a tag of a template: at least *ms and now, and after the one it replaces. */
int shared_tag_time(struct broker *broker, const char *template_id, const char *tag,
                    int64_t *ms, struct cay_error *err);

/* Writes records that give tags to a build, or remove them (build ""), and calls `done`,
 * which calls shared_apply_tags().  Takes the channel of the request unless it fails. */
int shared_change_tags(struct broker *broker, struct request_packet *request,
                       const char *tenant, const struct catalog_template *template,
                       const char *build, const char *const *tags, size_t count,
                       int (*done)(struct broker *broker, struct broker_request *pending,
                                   const struct reply_packet *reply,
                                   struct cay_error *err),
                       struct cay_error *err);
/* Changes the rows; *ret_tags are the tags, with blanks between them. */
int shared_apply_tags(struct broker *broker, const struct broker_request *pending,
                      struct buf *ret_tags, struct cay_error *err);

/* Sends OP_SHARED_RECORDS for the template of the request: removes these templates of
 * Cay, the records of the builds whose ids are the lines of `builds`, and those of all
 * tags of the template, or without `with_tags` of those that newer ones have replaced. */
void shared_send_removal(struct broker *broker, struct broker_request *pending,
                         bool with_tags, const struct buf *sources, uint32_t source_count,
                         const char *builds);
/* The template and its rows are gone. */
void shared_forget_template(struct broker *broker, const char *template_id);
/* Builds whose files are gone, after a removal that failed: they are fetched again. */
void shared_find_lost(struct broker *broker);

/* At the start: removes files that were in use, and shared_find_lost(). */
void shared_reconcile_templates(struct broker *broker);

/* For GET /metrics. */
void shared_put(struct samples *out, const struct broker *broker);

#endif
