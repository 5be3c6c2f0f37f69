/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_LOOPS_H
#define TESTS_LOOPS_H

#include "ledger.h"

/* Loop devices with a file below the scratch directory. */
static inline size_t count_loops(void)
{
    char path[300], line[4096];
    DIR *list = opendir("/sys/block");
    size_t count = 0;

    for (struct dirent *entry; list && (entry = readdir(list));) {
        snprintf(path, sizeof path, "/sys/block/%s/loop/backing_file", entry->d_name);
        FILE *file = fopen(path, "re");
        count += file && fgets(line, sizeof line, file) && strstr(line, scratch());
        if (file)
            fclose(file);
    }
    if (list)
        closedir(list);
    return count;
}

/* The kernel releases the device a moment after the last mount. */
static inline void assert_no_loops(void)
{
    for (int i = 0; count_loops() && i < PATIENCE_MS; i++)
        usleep(1000);
    ASSERT_INT(count_loops(), 0);
}

#endif
