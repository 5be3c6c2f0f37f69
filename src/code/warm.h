/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CODE_WARM_H
#define CODE_WARM_H

/* Files of warm interpreters (docs/design/warm.md): "warm/NAME" in the state directory,
 * which no other user can reach.  NAME is a hash of the template, the version of cay and
 * the boot id. */

/* A descriptor of the file for the template, or -1. */
int code_warm_open(const char *template_name);

/* Removes the file: it does not fit the sandboxes of the template any more. */
void code_warm_remove(const char *template_name);

#endif
