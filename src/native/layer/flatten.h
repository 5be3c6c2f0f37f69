/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_LAYER_FLATTEN_H
#define NATIVE_LAYER_FLATTEN_H

#include "native/make/inherit.h"

/* For struct inherited: makes all that a fork inherits the checkpoint 1 of its disk, and
 * an empty layer on it the live one. */
int flatten_inherited(const struct inherited *inherited, const struct overlay *overlay,
                      uint32_t id_base);

#endif
