/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_OOM_H
#define INIT_OOM_H

/* When memory runs out, the kernel kills this process and its children before others.  A
 * failure is ignored. */
void oom_raise(int by);

#endif
