/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/native/blueprint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "init/protocol.h"
#include "sys/io.h"

static const char op[] = "sandbox.plan";

int blueprint_init(struct blueprint *ret_blueprint, struct cay_error *err)
{
    *ret_blueprint =
        (struct blueprint){.plan = calloc(1, sizeof(struct plan) + PLAN_BYTES_MAX)};
    if (!ret_blueprint->plan)
        return cay_fail_memory(err, op);
    ret_blueprint->plan->version = PLAN_VERSION;
    ret_blueprint->plan->bytes_len = 1; /* offset 0 is "" */
    return CAY_OK;
}

void blueprint_done(struct blueprint *blueprint)
{
    free(blueprint->plan);
    blueprint->plan = NULL;
}

static uint32_t keep(struct blueprint *blueprint, const char *text, size_t len)
{
    struct plan *plan = blueprint->plan;

    if (len >= PLAN_BYTES_MAX - plan->bytes_len) {
        blueprint->overflow = true;
        return 0;
    }
    uint32_t at = plan->bytes_len;
    memcpy(plan->bytes + at, text, len);
    plan->bytes[at + len] = '\0';
    plan->bytes_len += (uint32_t)len + 1;
    return at;
}

static struct plan_step *add(struct blueprint *blueprint, enum plan_kind kind,
                             const char *path)
{
    struct plan *plan = blueprint->plan;

    if (plan->step_count == PLAN_STEPS_MAX) {
        blueprint->overflow = true;
        plan->step_count--;
    }
    struct plan_step *step = &plan->steps[plan->step_count++];
    *step = (struct plan_step){.kind = kind, .path = keep(blueprint, path, strlen(path))};
    return step;
}

void blueprint_directory(struct blueprint *blueprint, const char *path, unsigned mode,
                         unsigned owner)
{
    struct plan_step *step = add(blueprint, PLAN_DIRECTORY, path);

    step->mode = mode;
    step->uid = step->gid = owner;
}

void blueprint_bytes(struct blueprint *blueprint, const char *path, unsigned mode,
                     const void *data, size_t len)
{
    struct plan_step *step = add(blueprint, PLAN_FILE, path);

    step->mode = mode;
    step->data_len = (uint32_t)len;
    step->data = keep(blueprint, data, len);
}

void blueprint_file(struct blueprint *blueprint, const char *path, unsigned mode,
                    const char *text)
{
    blueprint_bytes(blueprint, path, mode, text, strlen(text));
}

void blueprint_link(struct blueprint *blueprint, const char *path, const char *target)
{
    struct plan_step *step = add(blueprint, PLAN_LINK, path);

    step->data = keep(blueprint, target, strlen(target));
}

void blueprint_bind(struct blueprint *blueprint, const char *path, const char *source,
                    unsigned flags)
{
    struct plan_step *step = add(blueprint, PLAN_BIND, path);

    step->mode = flags;
    step->data = keep(blueprint, source, strlen(source));
}

void blueprint_step(struct blueprint *blueprint, enum plan_kind kind, const char *path,
                    unsigned mode, uint64_t number)
{
    struct plan_step *step = add(blueprint, kind, path);

    step->mode = mode;
    step->number = number;
}

int blueprint_env(struct blueprint *blueprint, const char *const *env,
                  struct cay_error *err)
{
    struct plan *plan = blueprint->plan;
    size_t count = 0, len = 0;

    for (; env && env[count] && count <= ENV_COUNT_MAX && len <= ENV_MAX; count++) {
        len += strlen(env[count]) + 1;
        if (env[count][0] == '=' || !strchr(env[count], '='))
            return cay_fail(err, CAY_E_INVALID, 0, "sandbox.create", env[count],
                            "this is no variable", "write NAME=value");
    }
    if (count > ENV_COUNT_MAX || len > ENV_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, "sandbox.create", "env",
                        "the sandbox's environment is too large",
                        "at most %d variables of %d KiB together; pass more with the "
                        "command itself",
                        ENV_COUNT_MAX, ENV_MAX >> 10);
    plan->env = plan->bytes_len;
    for (size_t i = 0; i < count; i++)
        (void)keep(blueprint, env[i], strlen(env[i]));
    plan->env_len = plan->bytes_len - plan->env;
    return CAY_OK;
}

int blueprint_seal(struct blueprint *blueprint, int *ret_fd, struct cay_error *err)
{
    struct plan *plan = blueprint->plan;
    AUTO_FD fd = memfd_create("cay-plan", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (blueprint->overflow)
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                        "the sandbox has more mounts or files than a plan can hold",
                        "use at most %d of them", PLAN_STEPS_MAX / 2);
    if (fd < 0)
        return cay_fail_errno(err, errno, op, NULL);
    plan->size = (uint32_t)sizeof *plan + plan->bytes_len;
    int error = io_write(fd, plan, plan->size);
    if (!error && fcntl(fd, F_ADD_SEALS,
                        F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
        error = -errno;
    if (error)
        return cay_fail_errno(err, -error, op, NULL);
    *ret_fd = TAKE_FD(fd);
    return CAY_OK;
}
