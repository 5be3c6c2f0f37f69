/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Stands in for libFuzzer where there is none: gives the target each file of the corpus
 * directories that are its arguments, once.  Options ("-...") are for libFuzzer. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool replay(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    struct stat st;
    bool ok = fd >= 0 && fstat(fd, &st) == 0;
    uint8_t *data = ok ? malloc((size_t)st.st_size + !st.st_size) : NULL;

    ok = data && read(fd, data, (size_t)st.st_size) == st.st_size;
    if (ok)
        ok = LLVMFuzzerTestOneInput(data, (size_t)st.st_size) == 0;
    free(data);
    if (fd >= 0)
        close(fd);
    if (!ok)
        fprintf(stderr, "failed on %s\n", name);
    return ok;
}

int main(int argc, char **argv)
{
    int count = 0;

    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-')
            continue;
        DIR *dir = opendir(argv[i]);
        if (!dir) {
            perror(argv[i]);
            return 1;
        }
        for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
            if (entry->d_name[0] == '.')
                continue;
            if (!replay(dirfd(dir), entry->d_name))
                return 1;
            count++;
        }
        closedir(dir);
    }
    printf("%d inputs\n", count);
    return count > 0 ? 0 : 1;
}
