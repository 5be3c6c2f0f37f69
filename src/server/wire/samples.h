/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_WIRE_SAMPLES_H
#define SERVER_WIRE_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* Text for Prometheus (0.0.4), or OpenMetrics (1.0), which names the family of a counter
 * without "_total". */

struct samples {
    struct buf *text;
    bool is_open; /* OpenMetrics */
};

void samples_type(struct samples *samples, const char *name, const char *type,
                  const char *help);
/* A family with one sample, without labels. */
void samples_one(struct samples *samples, const char *name, const char *type,
                 const char *help, uint64_t value);
/* The value of a label is escaped, and cut after 128 bytes. */
void samples_label(struct samples *samples, const char *name, const char *label,
                   const char *value, uint64_t number);
/* Appends name="value" to a list of labels. */
void samples_put_label(struct buf *text, const char *label, const char *value);

#endif
