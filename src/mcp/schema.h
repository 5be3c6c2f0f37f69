/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MCP_SCHEMA_H
#define MCP_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cay/error.h"
#include "json/json.h"

/* The members of an object: one table is both its JSON Schema and its check. */
enum mcp_type {
    MCP_STRING = 1, /* without NUL */
    MCP_BYTES,      /* a string with any characters */
    MCP_INTEGER,
    MCP_BOOLEAN,
    MCP_STRINGS, /* an array of strings */
    MCP_MAP,     /* an object with strings */
    MCP_OBJECT,  /* an object with `fields`, or any object */
    MCP_LIST     /* an array of objects with `fields` */
};

struct mcp_field {
    const char *name; /* NULL ends a table */
    const char *help;
    enum mcp_type type;
    bool is_required;
    int64_t least, most;  /* of MCP_INTEGER; both 0: any number from 0 */
    const char *choices;  /* of MCP_STRING: "text|base64"; or NULL: any */
    const char *fallback; /* the default, as JSON; for the schema only */
    const struct mcp_field *fields;
};

/* A schema as one value.  `is_closed`: other members are not allowed. */
void mcp_schema_put(struct json *json, const struct mcp_field *fields, bool is_closed);

/* CAY_E_INVALID names the argument and what is allowed.  `arguments` may be NULL. */
int mcp_schema_check(const struct mcp_field *fields, const json_t *arguments,
                     struct cay_error *err);

#endif
