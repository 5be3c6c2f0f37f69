/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ESCAPE_OWN_FILTER_H
#define ESCAPE_OWN_FILTER_H

#include <linux/filter.h>
#include <stddef.h>

/* The library's own filter for a sandbox without a network; how many instructions, or 0.
 * It lives for ever. */
size_t own_filter(struct sock_filter **ret_code);

#endif
