/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/language.h"

#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "cay/agent.h"

/* Python imports from the directory of the script, which is a private one here; the code
 * expects the working directory.  With -c it imports from there; this line runs the file
 * as __main__ and removes itself from tracebacks. */
static const char run_python[] =
    "import sys;sys.argv[:]=sys.argv[1:];__file__=sys.argv[0];"
    "sys.excepthook=lambda t,e,b,h=sys.__excepthook__:"
    "h(t,e.with_traceback(b and b.tb_next),b and b.tb_next);del sys;"
    "exec(compile(open(__file__,'rb').read(),__file__,'exec'))";

/* What they compile is beside the code's file, which is in a private directory. */
static const char compile_c[] = "\"$0\" -o \"$1.bin\" \"$1\" -lm && exec \"$1.bin\"";
static const char compile_go[] = "\"$0\" build -o \"$1.bin\" \"$1\" && exec \"$1.bin\"";
static const char compile_rust[] = "\"$0\" -o \"$1.bin\" \"$1\" && exec \"$1.bin\"";

static const char run_typescript[] =
    "case $0 in\n"
    "deno) exec deno run -A \"$1\" ;;\n"
    "node) if node --experimental-strip-types -e 0 2>/dev/null; then\n"
    "        exec node --experimental-strip-types --no-warnings \"$1\"\n"
    "    fi\n"
    "    echo 'TypeScript needs Node.js 22.6 or later, tsx, deno or bun' >&2\n"
    "    exit 1 ;;\n"
    "*) exec \"$0\" \"$1\" ;;\n"
    "esac";

const struct language language_table[LANGUAGE_COUNT] = {
    {{"python", "py", "python3"}, {"python3", "python"}, {"-c", run_python}, "main.py"},
    /* Code on standard input requires modules from the working directory. */
    {{"javascript", "js", "node", "nodejs"}, {"node", "nodejs"}, {"-"}, NULL},
    {{"bash"}, {"bash"}, {NULL}, "main.sh"},
    {{"sh", "shell"}, {"sh"}, {NULL}, "main.sh"},
    {{"perl", "pl"}, {"perl"}, {NULL}, "main.pl"},
    {{"ruby", "rb"}, {"ruby"}, {NULL}, "main.rb"},
    {{"php"}, {"php"}, {NULL}, "main.php"},
    {{"lua"}, {"lua", "lua5.4", "lua5.3"}, {NULL}, "main.lua"},
    {{"r", "rscript"}, {"Rscript"}, {NULL}, "main.R"},
    {{"typescript", "ts"},
     {"tsx", "deno", "bun", "node"},
     {NULL},
     "main.ts",
     run_typescript},
    {{"java"}, {"java"}, {NULL}, "Main.java"},
    {{"go", "golang"}, {"go"}, {NULL}, "main.go", compile_go},
    {{"c"}, {"cc", "gcc", "clang"}, {NULL}, "main.c", compile_c},
    {{"c++", "cpp", "cxx"}, {"c++", "g++", "clang++"}, {NULL}, "main.cpp", compile_c},
    {{"rust", "rs"}, {"rustc"}, {NULL}, "main.rs", compile_rust},
};

const char *cay_code_language(size_t index)
{
    return index < LANGUAGE_COUNT ? language_table[index].names[0] : NULL;
}

const struct language *language_find(const char *name)
{
    for (size_t i = 0; i < LANGUAGE_COUNT; i++)
        for (size_t k = 0; k < LANGUAGE_NAMES && language_table[i].names[k]; k++)
            if (strcasecmp(language_table[i].names[k], name) == 0)
                return &language_table[i];
    return NULL;
}

/* --- Scripts --- */

static void put_quoted(struct buf *out, const char *text)
{
    buf_text(out, "'");
    for (const char *quote; (quote = strchr(text, '\'')) != NULL; text = quote + 1) {
        buf_append(out, text, (size_t)(quote - text));
        buf_text(out, "'\\''");
    }
    buf_text(out, text);
    buf_text(out, "'");
}

/* The file is in a directory of its own, as in cay_code_run(). */
void language_put_script(const struct language *language, const char *code,
                         struct buf *out)
{
    buf_text(out, "(directory=$(mktemp -d) || exit; trap 'rm -rf \"$directory\"' EXIT\n"
                  "file=$directory/");
    buf_format(out, "%s\nprintf %%s ", language->file);
    put_quoted(out, code);
    buf_text(out, " >\"$file\" || exit\nfor program in");
    for (size_t i = 0; i < LANGUAGE_PROGRAMS && language->programs[i]; i++)
        buf_format(out, " %s", language->programs[i]);
    buf_text(out, "; do command -v $program >/dev/null || continue\n");
    if (language->line) {
        buf_text(out, "sh -c ");
        put_quoted(out, language->line);
    }
    buf_text(out, " $program ");
    for (size_t i = 0; i < LANGUAGE_ARGUMENTS && language->arguments[i]; i++) {
        put_quoted(out, language->arguments[i]);
        buf_text(out, " ");
    }
    buf_text(out, "\"$file\"; exit; done\n");
    buf_format(out,
               "echo '%s: no interpreter or compiler is installed in the sandbox' >&2; "
               "exit 127)",
               language->names[0]);
}
