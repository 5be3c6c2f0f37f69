/* SPDX-License-Identifier: Apache-2.0 */

/* The files of the dashboard, at /ui.  The front cannot open files once it is confined,
 * so it reads all of them before that, and a request selects one by its exact name: no
 * path of a client reaches the file system. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/front/front.h"
#include "sys/io.h"

enum {
    FILES_MAX = 128,
    FILE_BYTES = 2 << 20,
    ALL_BYTES = 8 << 20,
    UI_NAME_MAX = 128, /* "FOLDER/NAME" and the NUL */
    ETAG_BYTES = 16,
    ETAG_MAX = 2 * ETAG_BYTES + 3 /* with quotes and the NUL */
};

struct front_ui {
    size_t count, bytes;
    struct ui_file {
        char name[UI_NAME_MAX], etag[ETAG_MAX];
        const char *type;
        char *data;
        size_t len;
    } files[FILES_MAX];
};

static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src 'self' data:; font-src 'self'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'self'";

/* NULL: files of this type are not served. */
static const char *type_of(const char *name)
{
    static const char *const types[][2] = {
        {".html", "text/html; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".svg", "image/svg+xml"},
        {".png", "image/png"},
        {".json", "application/json"},
        {".map", "application/json"},
        {".woff2", "font/woff2"},
        {".txt", "text/plain; charset=utf-8"},
    };
    const char *end = strrchr(name, '.');

    for (size_t i = 0; end && i < sizeof types / sizeof *types; i++)
        if (strcmp(end, types[i][0]) == 0)
            return types[i][1];
    return NULL;
}

/* Letters that a URL does not encode; no name of a hidden file, and not "..". */
static bool is_name(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

    return *name && *name != '.' && strspn(name, letters) == strlen(name) &&
           strlen(name) < UI_NAME_MAX / 2;
}

/* --- Reading --- */

static void put_etag(struct ui_file *file)
{
    unsigned char digest[ETAG_BYTES];
    struct sha256_ctx sha;
    char *at = file->etag;

    sha256_init(&sha);
    sha256_update(&sha, file->len, (const uint8_t *)file->data);
    sha256_digest(&sha, sizeof digest, digest);
    *at++ = '"';
    for (size_t i = 0; i < sizeof digest; i++, at += 2)
        snprintf(at, 3, "%02x", digest[i]);
    cay_copy_text(at, 2, "\"");
}

/* Files that do not fit are left out. */
static void read_file(struct front_ui *ui, int dir, const char *folder, const char *name)
{
    const char *type = type_of(name);
    struct stat st;

    if (!type || ui->count == FILES_MAX)
        return;
    AUTO_FD fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < 1 ||
        st.st_size > FILE_BYTES || ui->bytes + (size_t)st.st_size > ALL_BYTES)
        return;
    struct ui_file *file = &ui->files[ui->count];
    file->len = (size_t)st.st_size;
    file->data = malloc(file->len);
    if (!file->data || io_pread(fd, file->data, file->len, 0) != st.st_size) {
        free(file->data);
        return;
    }
    snprintf(file->name, sizeof file->name, "%s%s", folder, name);
    file->type = type;
    put_etag(file);
    ui->bytes += file->len;
    ui->count++;
}

/* `folder`: "", or "FOLDER/", which is read without folders of its own. */
static void read_folder(struct front_ui *ui, int fd, const char *folder)
{
    const struct dirent *entry;
    char inner[UI_NAME_MAX];
    DIR *dir = fdopendir(fd);

    if (!dir) {
        (void)close(fd);
        return;
    }
    while ((entry = readdir(dir))) {
        if (!is_name(entry->d_name))
            continue;
        int child = *folder ? -1
                            : openat(dirfd(dir), entry->d_name,
                                     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        snprintf(inner, sizeof inner, "%.*s/", UI_NAME_MAX / 2, entry->d_name);
        if (child >= 0)
            read_folder(ui, child, inner);
        else
            read_file(ui, dirfd(dir), folder, entry->d_name);
    }
    (void)closedir(dir);
}

bool front_ui_open(struct front *front)
{
    if (!front->options->has_ui)
        return true;
    front->ui = calloc(1, sizeof *front->ui);
    if (!front->ui)
        return false;
    int fd = open(front->options->ui, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        read_folder(front->ui, fd, "");
    return true;
}

/* --- Requests --- */

static const struct ui_file *find(const struct front_ui *ui, const char *target)
{
    const char *name = target + strlen("/ui/");
    size_t len = strcspn(name, "?");

    if (!len) {
        name = "index.html";
        len = strlen(name);
    }
    for (size_t i = 0; i < ui->count; i++)
        if (strlen(ui->files[i].name) == len && memcmp(ui->files[i].name, name, len) == 0)
            return &ui->files[i];
    return NULL;
}

static void redirect(struct exchange *exchange)
{
    exchange_respond_empty(exchange, 301);
    if (exchange->response)
        (void)MHD_add_response_header(exchange->response, "Location", "/ui/");
}

/* A list of tags, any of them possibly weak. */
static bool has_tag(const char *tags, const char *etag)
{
    return tags && (strcmp(tags, "*") == 0 || strstr(tags, etag));
}

static void send_file(struct exchange *exchange)
{
    const struct front_ui *ui = exchange->front->ui;
    const struct ui_file *file = ui ? find(ui, exchange->target) : NULL;

    if (!ui || !ui->count) {
        exchange_refuse(exchange, 404,
                        ui ? "the files of the dashboard (share/cay/ui) are not installed"
                           : "the dashboard is off: start the server without --no-ui");
        return;
    }
    if (!file) {
        exchange_refuse(exchange, 404, "the dashboard has no such file");
        return;
    }
    bool is_known = has_tag(exchange_header(exchange, "If-None-Match"), file->etag);
    struct MHD_Response *response = MHD_create_response_from_buffer(
        is_known ? 0 : file->len, file->data, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return;
    exchange->sent = is_known ? 0 : file->len;
    if (!is_known)
        (void)MHD_add_response_header(response, "Content-Type", file->type);
    (void)MHD_add_response_header(response, "ETag", file->etag);
    (void)MHD_add_response_header(response, "Cache-Control", "no-cache");
    exchange_respond(exchange, is_known ? 304 : 200, response);
}

/* --- Headers of responses --- */

static bool is_ui(const char *target)
{
    size_t len = strlen("/ui");

    return strncmp(target, "/ui", len) == 0 &&
           (!target[len] || target[len] == '/' || target[len] == '?');
}

/* Pages of the dashboard have the origin of the API.  Whatever else a browser opens
 * there, such as a file of a sandbox, must not run as a page of that origin. */
void front_ui_protect(const struct exchange *exchange, struct MHD_Response *response)
{
    bool is_page = exchange->route.plane == PLANE_CONTROL && is_ui(exchange->target);

    if (exchange->route.plane == PLANE_PORT ||
        (!is_page && strcmp(exchange->method, "GET") != 0))
        return;
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    (void)MHD_add_response_header(response, "Content-Security-Policy",
                                  is_page ? policy : "default-src 'none'; sandbox");
    if (!is_page)
        return;
    (void)MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    (void)MHD_add_response_header(response, "Cross-Origin-Opener-Policy", "same-origin");
    (void)MHD_add_response_header(response, "Cross-Origin-Resource-Policy",
                                  "same-origin");
}

#define ON(name, route, action)                                                          \
    {                                                                                    \
        .method = (name), .path = (route), .act = (action)                               \
    }

const struct handler ui_handlers[] = {
    ON("GET", "/ui", redirect),
    ON("HEAD", "/ui", redirect),
    ON("GET", "/ui/", send_file),
    ON("HEAD", "/ui/", send_file),
    ON("GET", "/ui/{name}", send_file),
    ON("HEAD", "/ui/{name}", send_file),
    ON("GET", "/ui/{folder}/{name}", send_file),
    ON("HEAD", "/ui/{folder}/{name}", send_file),
    {0},
};
