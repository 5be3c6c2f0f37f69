/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_TRUST_H
#define NATIVE_MAKE_TRUST_H

#include "native/make/root-plan.h"

/* How programs inside trust the authority of cay-net-tls, where it opens TLS. */

/* The certificates that this machine trusts, as text: a descriptor, or -1. */
int trust_open_host(void);

/* The caller's environment with the variables that name the certificates; those that the
 * caller sets stay.  The array is the caller's, its texts are not; it has room for `more`
 * variables. */
int trust_env(const char *const *env, size_t more, const char ***ret_env,
              struct cay_error *err);

/* Files for the root of a template (-1: the host's): its own certificates and, after
 * them, the authority. */
void trust_plan(struct root_plan *root_plan, int template_root, const char *authority);

#endif
