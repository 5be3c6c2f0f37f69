/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_PLACE_H
#define INIT_PLACE_H

#include <stdbool.h>

#include "init/plan.h"

/* Places in the new root while it is the working directory and the host's is still "/".
 * The root may be an image that was made to mislead: nothing here leaves it.  All return
 * a negative errno on failure. */

/* What is at `path`, through no link: an O_PATH descriptor. */
int place_open(const char *path);

/* The same for a mount that the caller chose a place for; links are followed as they will
 * be inside, and what is missing is made, owned like the directory it is in. */
int place_target(const char *path, bool is_directory);

/* A PLAN_NEED and a PLAN_REPLACE step. */
int place_directory(const struct plan_step *step, const char *path);
int place_file(const struct plan_step *step, const char *path, const char *data);

#endif
