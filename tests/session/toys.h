/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_TOYS_H
#define TESTS_TOYS_H

#include "sessions.h"

/* A backend that is a few numbers, and fails when it is told to. */

static struct toy {
    char id[32];
    bool lives;
    enum cay_state state;
} toys[16];
static int toy_count;

static struct {
    int create, connect, pause, remove; /* what they are to fail with; 0: they do not */
    int created, connected, paused;     /* how often they were called */
} toy;

static int toy_fail(int code, struct cay_error *error)
{
    if (error) {
        memset(error, 0, sizeof *error);
        error->code = code;
        snprintf(error->op, sizeof error->op, "toy");
        snprintf(error->message, sizeof error->message, "it was told to fail");
        snprintf(error->hint, sizeof error->hint, "tell it not to");
    }
    return code;
}

static int toy_create(void *data, const cay_config *config, void **ret_cookie,
                      struct cay_error *error)
{
    (void)data;
    toy.created++;
    if (toy.create)
        return toy_fail(toy.create, error);
    struct toy *made = &toys[toy_count++];
    snprintf(made->id, sizeof made->id, "toy-%d", toy_count);
    made->lives = true;
    made->state = CAY_STATE_RUNNING;
    const char *key = cay_config_text(config, "api_key");
    if (!key || strcmp(key, "very secret") != 0)
        return toy_fail(CAY_E_DENIED, error);
    *ret_cookie = made;
    return CAY_OK;
}

static int toy_connect(void *data, const cay_config *config, const char *id,
                       void **ret_cookie, struct cay_error *error)
{
    (void)data;
    (void)config;
    toy.connected++;
    if (toy.connect)
        return toy_fail(toy.connect, error);
    for (int i = 0; i < toy_count; i++)
        if (toys[i].lives && strcmp(toys[i].id, id) == 0) {
            toys[i].state = CAY_STATE_RUNNING;
            *ret_cookie = &toys[i];
            return CAY_OK;
        }
    return toy_fail(CAY_E_NOT_FOUND, error);
}

static void toy_free(void *cookie)
{
    (void)cookie;
}

static const char *toy_id(const void *cookie)
{
    return ((const struct toy *)cookie)->id;
}

static int toy_state(void *cookie, enum cay_state *ret_state, struct cay_error *error)
{
    const struct toy *one = cookie;

    *ret_state = one->state;
    return one->lives ? CAY_OK : toy_fail(CAY_E_NOT_FOUND, error);
}

static int toy_pause(void *cookie, struct cay_error *error)
{
    toy.paused++;
    if (toy.pause)
        return toy_fail(toy.pause, error);
    ((struct toy *)cookie)->state = CAY_STATE_PAUSED;
    return CAY_OK;
}

static int toy_resume(void *cookie, struct cay_error *error)
{
    (void)error;
    ((struct toy *)cookie)->state = CAY_STATE_RUNNING;
    return CAY_OK;
}

static int toy_kill(void *cookie, struct cay_error *error)
{
    if (toy.remove)
        return toy_fail(toy.remove, error);
    ((struct toy *)cookie)->lives = false;
    return CAY_OK;
}

static int toy_exec(void *cookie, const struct cay_exec_options *options,
                    struct cay_exec_result *ret_result, struct cay_error *error)
{
    (void)cookie, (void)options, (void)ret_result;
    return toy_fail(CAY_E_UNSUPPORTED, error);
}

static int toy_files(void *cookie, const char *user, cay_files **ret_files,
                     struct cay_error *error)
{
    (void)cookie, (void)user, (void)ret_files;
    return toy_fail(CAY_E_UNSUPPORTED, error);
}

static const struct cay_field fields[] = {
    {.name = "api_key", .type = CAY_FIELD_SECRET, .about = "its key"},
    {.name = "colour", .type = CAY_FIELD_TEXT, .about = "its colour"},
};

static const struct cay_backend toy_backend = {
    .size = sizeof toy_backend,
    .name = "toy",
    .about = "a few numbers",
    .fields = fields,
    .field_count = 2,
    .create = toy_create,
    .connect = toy_connect,
    .free = toy_free,
    .id = toy_id,
    .state = toy_state,
    .pause = toy_pause,
    .resume = toy_resume,
    .kill = toy_kill,
    .exec = toy_exec,
    .open_files = toy_files,
};

static inline size_t living(void)
{
    size_t count = 0;

    for (int i = 0; i < toy_count; i++)
        count += toys[i].lives;
    return count;
}

static inline void toys_reset(void)
{
    memset(&toy, 0, sizeof toy);
    memset(toys, 0, sizeof toys);
    toy_count = 0;
    setenv("TOY_KEY", "very secret", 1);
}

#endif
