/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_STORE_SCHEMA_H
#define SERVER_STORE_SCHEMA_H

/* The version of the tables that this program reads and writes. */
enum { SCHEMA_VERSION = 1 };

/* Creates or migrates the tables, in one transaction under an advisory lock: servers that
 * start at the same time wait for each other.  Fails if they are of a later version. */
extern const char *const schema_migration;

#endif
