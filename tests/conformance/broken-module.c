/* SPDX-License-Identifier: Apache-2.0 */

/* Shared objects that are no backends, each for another reason: -DBROKEN_NAME. */
#include "cay/backend.h"

CAY_PUBLIC const struct cay_backend *cay_backend_entry(void);

#if defined(BROKEN_NO_ENTRY)

CAY_PUBLIC int something_else(void);
int something_else(void)
{
    return 0;
}

#elif defined(BROKEN_NULL)

const struct cay_backend *cay_backend_entry(void)
{
    return NULL;
}

#elif defined(BROKEN_SYMBOL)

extern const struct cay_backend *nobody_has_this(void);
const struct cay_backend *cay_backend_entry(void)
{
    return nobody_has_this();
}

#elif defined(BROKEN_LACKS)

const struct cay_backend *cay_backend_entry(void)
{
    static const struct cay_backend table = {.size = sizeof table, .name = "lacking"};
    return &table;
}

#elif defined(BROKEN_TAKEN)

/* Whole, but of a name that is taken. */
const struct cay_backend *cay_backend_entry(void)
{
    static struct cay_backend table;

    table = *cay_backend_find("native");
    return &table;
}

#endif
