/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_BUILD_BUILD_H
#define NATIVE_BUILD_BUILD_H

#include <jansson.h>
#include <nettle/sha2.h>

#include "build/dockerfile.h"
#include "build/ignore.h"
#include "cay/sandbox.h"
#include "native/template/template.h"

/* Builds a template from a Dockerfile.
 *
 * A step that changes files becomes a layer: STATE/layers/KEY.  KEY is a SHA-256 of the
 * layer below and of everything that the step uses, so a layer that exists is the result
 * of the same step.  RUN is a command in a sandbox of its own, whose root is on the disk
 * above the layers so far: what it wrote becomes the layer.  COPY, ADD and WORKDIR write
 * to an overlay over the same layers that only this process has.
 *
 * A layer is complete when it has its name.  A build holds a shared lock on the store, so
 * that no layer is removed meanwhile. */

/* The files of a stage so far. */
struct build_chain {
    struct build_texts layers; /* the highest first */
    char base[TEMPLATE_NAME_MAX];
    char identity[512]; /* of the highest layer, for the next key */
    uint64_t bytes;
};

struct build_stage_state {
    struct build_chain chain;
    json_t *config;          /* an object, as "config" of an OCI image */
    struct build_texts args; /* "NAME=VALUE" */
    bool is_needed;
};

struct build {
    const struct cay_build_options *options;
    struct dockerfile file;
    struct ignore ignore;
    const char *name; /* of the Dockerfile, for errors */
    int context;      /* the directory of the build */
    int store;        /* of the layers, locked */
    bool is_user;     /* an ordinary user, whose layers have subordinate ids */
    struct build_stage_state *stages;
    struct build_texts args; /* before the first stage */
    size_t step, step_count; /* those that change files */
    char subject[320];
};

/* cay_build() with the instructions of a text; options->dir is not used. */
int build_from_text(const struct cay_build_options *options, const char *text, size_t len,
                    struct cay_error *err);

const char *build_subject(struct build *build,
                          const struct build_instruction *instruction);
/* Expands a raw word with the variables of a stage; NULL: before the first stage. */
int build_word(struct build *build, const struct build_stage_state *stage,
               const struct build_instruction *instruction, const char *raw,
               char **ret_text, struct cay_error *err);
int build_report(const struct build *build, enum cay_build_event event, const char *text,
                 size_t len, struct cay_error *err);

/* --- Keys --- */

void build_key_add(struct sha256_ctx *hash, const char *text);
void build_key_end(struct sha256_ctx *hash, char ret_key[TEMPLATE_KEY + 1]);

/* --- Layers --- */

struct build_layer {
    struct build *build;
    const struct build_chain *chain; /* below it */
    const char *text;                /* the instruction, for its metadata */
    int dir;                         /* the draft */
    char name[NAME_MAX + 1];         /* of the draft */
    struct template below;           /* the chain, opened */
    int root;                        /* its files over the chain, while it is filled */
};

/* Whether a layer exists; *ret_bytes is its size. */
bool build_layer_exists(const struct build *build, const char *key, uint64_t *ret_bytes);

typedef int build_fill(void *cookie, struct build_layer *layer, struct cay_error *err);

/* Fills a new layer by `fill`, which runs in the user namespace of an ordinary user's
 * files.  If `has_root`, layer->root is a view of all files for it. */
int build_layer_make(struct build *build, const struct build_chain *chain,
                     const char *text, const char *key, bool has_root, build_fill *fill,
                     void *cookie, uint64_t *ret_bytes, struct cay_error *err);

/* A view of all files of a template; its root may be -1.  Changes go to "upper" in the
 * directory `top`, which is created in the draft.  A descriptor or a code. */
int build_view(const struct build_layer *layer, const struct template *template,
               const char *top, struct cay_error *err);

int build_chain_copy(struct build_chain *chain, const struct build_chain *from,
                     struct cay_error *err);
/* Makes room for one more layer: beyond the limit of a template, all files so far are
 * copied into one layer, and the chain is that layer. */
int build_chain_squash(struct build *build, struct build_chain *chain,
                       struct cay_error *err);
int build_chain_add(struct build_chain *chain, const char *key, uint64_t bytes,
                    struct cay_error *err);
void build_chain_done(struct build_chain *chain);
/* The name that opens the chain as a template; "" if it has no files. */
const char *build_chain_name(const struct build_chain *chain,
                             char ret_name[TEMPLATE_KEY + 2]);
/* Opens it; the root is -1 if it has no files.  The caller calls template_done(). */
int build_chain_open(const struct build_chain *chain, struct template *ret_template,
                     struct cay_error *err);

/* --- Copying --- */

struct build_copy {
    struct build *build;
    const struct build_instruction *instruction;
    const struct template *from; /* of COPY --from; NULL: the directory of the build */
    const char *from_identity;
    struct build_texts sources;
    char *target;               /* absolute */
    char *owner;                /* "USER[:GROUP]" */
    int mode;                   /* -1: that of each file */
    bool unpacks;               /* ADD */
    char key[TEMPLATE_KEY + 1]; /* of the sources */
};

/* The key of what the sources contain, into copy->key. */
int build_copy_digest(struct build_copy *copy, struct cay_error *err);
/* As build_layer_make() calls it; the cookie is a struct build_copy. */
int build_copy_fill(void *cookie, struct build_layer *layer, struct cay_error *err);

/* --- Steps --- */

/* ARG of a stage; NULL: before the first one. */
int build_args(struct build *build, struct build_stage_state *stage,
               const struct build_instruction *instruction, struct cay_error *err);
/* Carries out one instruction of a stage. */
int build_step(struct build *build, size_t number,
               const struct build_instruction *instruction, struct cay_error *err);
/* The chain that FROM or --from names; `before` is the number of stages before it.  The
 * caller calls build_chain_done(); *ret_config is NULL or a new reference. */
int build_source(struct build *build, size_t before,
                 const struct build_instruction *instruction, const char *name,
                 struct build_chain *ret_chain, json_t **ret_config,
                 struct cay_error *err);
/* "NAME=value" of an array of the configuration; NULL-terminated, the caller frees the
 * list. */
const char **build_env(const json_t *config, const char *key, size_t more);
const char *build_config_text(const json_t *config, const char *key);

#endif
